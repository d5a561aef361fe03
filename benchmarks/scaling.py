"""Times training steps by length, vocabulary, model size and replicas.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --small

One variable at a time differs from the usual size, at 2,048 target tokens a
step. Each step is measured in its own process. `share` is the rate of a step's
matrix products divided by the machine's measured rate of matrix products.
Replicas are parts of the same processor, so they show the cost of splitting a
batch. Prints a table.
"""

import common
import gpu

TOKENS = 2048
USUAL = {"hidden": 256, "filter": 1024, "heads": 4, "layers": 3}
LENGTHS = 16, 32, 64, 128, 256
VOCABULARIES = 2_000, 8_000, 32_000
MODELS = {
    "128 x 2 layers": {"hidden": 128, "filter": 512, "heads": 4, "layers": 2},
    "256 x 3 layers": USUAL,
    "256 x 6 layers": USUAL | {"layers": 6},
    "512 x 6 layers (base)": {
        "hidden": 512,
        "filter": 1024,
        "heads": 8,
        "layers": 6,
    },
}
REPLICAS = 1, 2, 4


def cases():
    """Yields a variable, its value, and the flags of train_step.py."""
    for length in LENGTHS:
        yield "length", length, {"len": length, "batch": TOKENS // length}
    for vocab in VOCABULARIES:
        yield "vocabulary", f"{vocab:,}", {"vocab": vocab}
    for name, size in MODELS.items():
        yield "model", name, size
    for number in REPLICAS:
        yield "replicas on one processor", number, {"replicas": number}


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    usual = {"vocab": 8_000, "batch": 64, "len": 32, "replicas": 1}
    usual |= USUAL | {"steps": args.steps}
    rate = gpu.matrix_rates(256 if args.small else 4096)["float32"]
    print(f"Matrix products: {rate / 1e9:.0f} GFLOP/s.\n")
    head = ["variable", "value", "relative / absolute", "ms", "share"]
    print(common.table([*head, "peak MB"], []), end="", flush=True)
    for variable, value, changes in cases():
        flags = usual | changes
        if args.small:
            flags |= common.SMALL | {"vocab": 64, "batch": 4, "len": 3}
        relative, absolute = (
            gpu.run("train_step.py", relative=number, **flags)
            for number in (1, 0)
        )
        products = gpu.step_products(
            flags, flags["vocab"], flags["batch"], flags["len"]
        )
        share = 1000 * products / relative["median_ms"] / rate
        ratio = relative["median_ms"] / absolute["median_ms"]
        cells = [f"{ratio:.2f}", f"{relative['median_ms']:.0f}"]
        cells += [f"{share:.2f}", f"{relative[common.MEMORY]:,}"]
        print(common.table_row([variable, value, *cells]), flush=True)


if __name__ == "__main__":
    main()
