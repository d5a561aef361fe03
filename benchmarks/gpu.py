"""Measures a machine with a GPU: training, decoding, attention by length.

    python benchmarks/gpu.py --out gpu.json
    python benchmarks/gpu.py --small

Each figure comes from its own process, so that peak memory is measured
separately. Prints tables; --out writes all results as JSON. `share` is the rate
of a step's matrix products divided by the device's measured rate of matrix
products in the same dtype. Without a GPU the CPU is measured. --small takes
sizes that measure nothing, to test that everything runs.
"""

import json
import os
import pathlib
import sys
import time

import common

SIZES = {
    "base": {"hidden": 512, "filter": 2048, "heads": 8, "layers": 6},
    "big": {"hidden": 1024, "filter": 4096, "heads": 16, "layers": 6},
}
MODES = {
    "float32": {},
    "bfloat16": {"bfloat16": 1},
    "float32, XLA": {"xla": 1},
    "bfloat16, XLA": {"bfloat16": 1, "xla": 1},
}


def run(script, **flags):
    """Runs a benchmark; returns the object it prints, or its error."""
    path = common.HERE / script
    try:
        return common.run([sys.executable, path, *common.as_flags(**flags)])[0]
    except common.BenchmarkFailedError as error:
        # For example out of memory: the other figures are still measured.
        return {"error": str(error).strip().split("\n")[-1][-300:]}


def step_products(size, vocab, batch, length):
    """Returns the floating-point operations of a step's matrix products.

    Two for each weight and token forward, twice that backward; and those of
    queries with keys and of weights with values.
    """
    hidden, inner = size["hidden"], size["filter"]
    encoder = 4 * hidden**2 + 2 * hidden * inner
    decoder = 8 * hidden**2 + 2 * hidden * inner
    weights = size["layers"] * (encoder + decoder) + hidden * vocab
    pairs = 3 * size["layers"] * 2 * length * hidden
    return 6 * batch * length * (weights + pairs)


def matrix_rates(size):
    """Returns operations per second of `[size, size]` products, by dtype."""
    tf = common.import_tensorflow()
    rates = {}
    for dtype in (tf.float32, tf.bfloat16):
        x = tf.cast(tf.random.stateless_normal([size, size], [1, 2]), dtype)
        product = tf.function(lambda x: tf.matmul(x, x))
        product(x).numpy()
        start = time.perf_counter()
        for _ in range(10):
            result = product(x)
        result.numpy()
        seconds = (time.perf_counter() - start) / 10
        rates[dtype.name] = 2 * size**3 / seconds
    return rates


def training_rows(args, rates):
    """Measures steps: sizes x positions x modes."""
    sizes = {"small": common.SMALL} if args.small else SIZES
    vocab = 64 if args.small else 32_000
    for name, size in sizes.items():
        shape = {"batch": 4, "len": 8} if args.small else args.shape[name]
        for mode, flags in MODES.items():
            for relative in (1, 0):
                row = run(
                    "train_step.py",
                    **size,
                    **shape,
                    **flags,
                    vocab=vocab,
                    relative=relative,
                    steps=args.steps,
                )
                if "error" not in row:
                    products = step_products(size, vocab, *shape.values())
                    rate = rates["bfloat16" if "bf" in mode else "float32"]
                    row["share"] = round(
                        1000 * products / row["median_ms"] / rate, 3
                    )
                yield {"size": name, "mode": mode, "relative": relative} | row


def decoding_rows(args):
    """Measures beam search."""
    sizes = {"small": common.SMALL} if args.small else SIZES
    shape = {"batch": 2, "len": 4, "decode_length": 4}
    if not args.small:
        shape = {"batch": 64, "len": 32, "decode_length": 32}
    for name, size in sizes.items():
        for relative in (1, 0):
            row = run(
                "decode.py",
                **size,
                **shape,
                vocab=64 if args.small else 32_000,
                relative=relative,
                steps=args.steps,
            )
            yield {"size": name, "relative": relative} | row


def attention_rows(args):
    """Measures one attention by length."""
    lengths = "8,16" if args.small else "256,512,1024,2048,4096"
    for impl in ("none", "compact"):
        for length in lengths.split(","):
            yield run(
                "attention.py", impl=impl, n=length, batch=1, steps=args.steps
            )


def print_table(title, rows, names):
    """Prints some fields of each row; an error in place of missing ones."""
    cells = [[row.get(n, row.get("error", "")) for n in names] for row in rows]
    print(f"\n## {title}\n\n{common.table(names, cells)}", end="")


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128, help="for base")
    parser.add_argument("--len", type=int, default=64)
    args = parser.parse_args()
    # Otherwise the first process would take all of the device's memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    args.shape = {
        name: {"batch": args.batch // part, "len": args.len}
        for name, part in (("base", 1), ("big", 2))
    }
    rates = matrix_rates(256 if args.small else 8192)
    tf = common.import_tensorflow()
    devices = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(d) for d in devices]
    result = {
        "device": names[0].get("device_name", "a GPU") if names else "CPU",
        "matrix_gflops": {n: round(r / 1e9) for n, r in rates.items()},
        "training": list(training_rows(args, rates)),
        "decoding": list(decoding_rows(args)),
        "attention": list(attention_rows(args)),
    }
    print(f"{result['device']}: {result['matrix_gflops']} GFLOP/s")
    training = ["size", "mode", "relative", "median_ms"]
    training += ["target_tokens_per_second", "share", common.MEMORY]
    print_table("Training", result["training"], training)
    decoding = ["size", "relative", "median_ms", "tokens_per_second"]
    print_table("Decoding", result["decoding"], [*decoding, common.MEMORY])
    attention = ["impl", "n", "median_ms", "added_memory_mb"]
    print_table("Attention", result["attention"], attention)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
