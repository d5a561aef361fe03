"""Times single lines, one after another, with a run and with its exports.

    python benchmarks/single_lines.py --output_dir=runs/mine \
        --source=test.source --lines=500 --threads=1

The run is exported as a SavedModel, for LiteRT and for CTranslate2 (float32 and
int8). Each line is then translated by every engine in turn, and the order
rotates. The table has the median and the 95th percentile of a line, the ratio
of medians to CTranslate2 in float32, the lines translated otherwise than by the
run, and the least time of a batch. CTranslate2's threads spin for a while after
each call, so with several threads the benchmark rests until they sleep. The run
has compiled its searches for single lines before.
"""

import os
import pathlib
import statistics
import tempfile
import time

import common

BASE = "CTranslate2 float32"
# The threads of OpenMP spin for .2 s.
REST = 0.25


def load(args, folder):
    """Exports a run; returns translators by name."""
    import relpos_tf
    from relpos_tf.export import ctranslate2_export
    from relpos_tf.export import litert_export
    from relpos_tf.export import saved_model

    folders = {
        "SavedModel": saved_model.export_saved_model(
            args.output_dir, folder / "saved_model", warmup_lines=[]
        ),
        "LiteRT": litert_export.export_litert(
            args.output_dir, folder / "litert"
        ),
        BASE: ctranslate2_export.export_ctranslate2(
            args.output_dir, folder / "float32"
        ),
        "CTranslate2 int8": ctranslate2_export.export_ctranslate2(
            args.output_dir, folder / "int8", quantization="int8"
        ),
    }
    load = relpos_tf.Translator.load
    exports = {name: load(path) for name, path in folders.items()}
    return {"run": load(args.output_dir, jit_compile=True)} | exports


def warm_up(translators, lines, batch):
    """Has each translator trace, compile and load what it needs."""
    for translator in translators.values():
        for line in lines[:3]:
            translator.translate([line])
        translator.translate(lines[:batch])
    for step in translators["run"].engine.warm_up_steps():
        step()


def time_lines(translators, lines, rest):
    """Translates each line by every translator in turn.

    Returns:
        The times of each translator in ms, and its translations.
    """
    times = {name: [] for name in translators}
    found = {name: [] for name in translators}
    order = list(translators)
    for line in lines:
        for name in order:
            start = time.perf_counter()
            found[name] += translators[name].translate([line])
            times[name].append(1000 * (time.perf_counter() - start))
            if rest and name.startswith("CTranslate2"):
                time.sleep(REST)
        order.append(order.pop(0))
    return times, found


def time_batches(translators, lines, rounds, rest):
    """Returns the least time of a batch in ms, by name."""
    times = {name: [] for name in translators}
    for _ in range(rounds):
        for name, translator in translators.items():
            start = time.perf_counter()
            translator.translate(lines)
            times[name].append(1000 * (time.perf_counter() - start))
            if rest and name.startswith("CTranslate2"):
                time.sleep(REST)
    return {name: min(each) for name, each in times.items()}


def rows_of(times, found, batches):
    """Returns the rows of the table."""
    base = statistics.median(times[BASE])
    rows = []
    for name, each in times.items():
        median = statistics.median(each)
        late = sorted(each)[int(0.95 * len(each))]
        others = sum(
            a != b for a, b in zip(found[name], found["run"], strict=True)
        )
        rows.append(
            [
                name,
                f"{median:.1f}",
                f"{late:.1f}",
                f"{median / base:.2f}",
                others,
                f"{batches[name]:.0f}",
            ]
        )
    return rows


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--output_dir", required=True, help="a run, or a checkpoint")
    add("--source", required=True, help="a file of lines")
    add("--lines", type=int, default=500)
    add("--threads", type=int, default=1)
    add("--batch", type=int, default=64, help="lines of the batch")
    add("--rounds", type=int, default=5, help="batches timed")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # of CTranslate2
    common.import_tensorflow(args.threads)
    text = pathlib.Path(args.source).read_text(encoding="utf-8")
    lines = text.removesuffix("\n").split("\n")[: args.lines]
    rest = args.threads > 1
    with tempfile.TemporaryDirectory() as folder:
        translators = load(args, pathlib.Path(folder))
        warm_up(translators, lines, args.batch)
        times, found = time_lines(translators, lines, rest)
        batches = time_batches(
            translators, lines[: args.batch], args.rounds, rest
        )
    head = ["engine", "median ms", "95 % ms", f"/ {BASE}", "other lines"]
    head.append(f"{len(lines[: args.batch])} lines, ms")
    print(common.table(head, rows_of(times, found, batches)), end="")


if __name__ == "__main__":
    main()
