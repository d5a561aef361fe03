"""Measures every figure the project aims at, and prints one table.

    python benchmarks/summary.py
    python benchmarks/summary.py --peers build/peers --out figures.json

Takes about ten minutes on two otherwise idle cores; about twenty with --peers,
the folder that benchmarks/peers/build.py filled. Each benchmark runs in its own
processes, with models in turn. --small takes sizes that measure nothing, to
test that everything runs.
"""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import common

TRAINER = common.HERE.parent / "trainer.py"
SMALL = common.as_flags(**common.SMALL, vocab=64)
LENGTHS = (256, 512, 1024, 2048, 4096)


class Figures:
    """Runs the benchmarks and keeps their rows.

    Args:
        args: the parsed flags.
    """

    def __init__(self, args):
        self.args = args
        self.rows = []
        self.details = {}

    def run(self, script, *flags):
        """Runs a benchmark; returns the objects it prints."""
        shown = " ".join([f"benchmarks/{script}", *flags])
        print(shown, file=sys.stderr, flush=True)
        results = common.run([sys.executable, common.HERE / script, *flags])
        self.details.setdefault(shown, []).extend(results)
        return results

    def add(self, figure, measured, at_most=None, at_least=None, unit=""):
        """Adds a row; `measured` is None where nothing was measured."""
        aim = at_most if at_least is None else at_least
        sign = "at most" if at_least is None else "at least"
        reached = "-"
        if measured is not None and aim is not None:
            good = measured <= aim if at_least is None else measured >= aim
            reached = "reached" if good else "not reached"
        row = {
            "figure": figure,
            "measured": None if measured is None else round(measured, 3),
            "aim": "" if aim is None else f"{sign} {aim}{unit}",
            "unit": unit,
            "reached": reached,
        }
        self.rows.append(row)
        cells = common.table_row(self.cells(row))
        print(cells, file=sys.stderr, flush=True)

    @staticmethod
    def cells(row):
        """Returns a row of the table as text."""
        value = "-"
        if row["measured"] is not None:
            value = f"{row['measured']:,.4g}{row['unit']}"
            if row["measured"] >= 1000:
                value = f"{row['measured']:,.0f}{row['unit']}"
        return row["figure"], value, row["aim"], row["reached"]

    def table(self):
        """Returns the table in Markdown."""
        head = ["figure", "measured", "aim", "result"]
        return common.table(head, map(self.cells, self.rows))


def relative_over_absolute(figures):
    """Times steps of both models in turn."""
    small = figures.args.small
    for batch, length, aim in ((64, 32, 1.02), (16, 128, 1.03)):
        size = ["--batch=2", "--len=3", *SMALL] if small else []
        size = size or [f"--batch={batch}", f"--len={length}"]
        steps = 2 if small else 30
        models = "relative=1", "relative=0"
        relative, _ = figures.run(
            "compare_steps.py", *size, f"--steps={steps}", *models
        )
        figures.add(
            f"training step, relative / absolute, {batch} x {length}",
            relative["ratio"],
            at_most=aim,
        )


def training_against_peers(figures, python):
    """Compares steps with OpenNMT-tf's, or with our own in float32."""
    names = ["relative", "relative, XLA", "relative, bfloat16", "absolute"]
    aims = dict(zip(names, (0.85, 0.65, 0.6, None), strict=True))
    if python:
        flags = [f"--opennmt={python}", f"--rounds={figures.args.rounds}"]
        rows = figures.run("train_peers.py", *flags)
        *own, base = [rows[i :: len(names) + 1] for i in range(len(names) + 1)]
        for name, each in zip(names, own, strict=True):
            ratio = statistics.median(
                a["median_ms"] / b["median_ms"]
                for a, b in zip(each, base, strict=True)
            )
            figures.add(
                f"training step, {name} / OpenNMT-tf float32",
                ratio,
                at_most=aims[name],
            )
        return
    for name in names[:3]:
        label = f"training step, {name} / OpenNMT-tf float32 (make bench-peers)"
        figures.add(label, None, at_most=aims[name])
    flags = ["--batch=2", "--len=3", *SMALL] if figures.args.small else []
    steps = 2 if figures.args.small else 15
    models = "relative=1,xla=1", "relative=1,bfloat16=1", "relative=1"
    xla, half, _ = figures.run(
        "compare_steps.py", *flags, f"--steps={steps}", *models
    )
    figures.add("training step, XLA / our float32", xla["ratio"])
    figures.add("training step, bfloat16 / our float32", half["ratio"])


def attention_memory(figures):
    """Compares the peak memory of one attention, relative and none."""
    small = (
        ["--batch=1", "--heads=2", "--depth=4"] if figures.args.small else []
    )
    flags = ["--impl=none,compact", "--n=512", "--steps=3", *small]
    for causal in (0, 1):
        rounds = [
            figures.run("attention.py", *flags, f"--causal={causal}")
            for _ in range(1 if figures.args.small else 3)
        ]
        ratio = statistics.median(
            compact["added_memory_mb"] / max(none["added_memory_mb"], 1)
            for none, compact in rounds
        )
        kind = "causal" if causal else "both directions"
        figures.add(
            f"attention, n = 512, added memory, relative / none, {kind}",
            ratio,
            at_most=1.3,
        )


def growth_with_length(figures):
    """Compares the ratio to absolute attention at lengths 256 to 4,096."""
    lengths = (8, 16) if figures.args.small else LENGTHS
    flags = ["--impl=none,compact", "--batch=1", "--steps=5"]
    ratios = {"median_ms": [], "added_memory_mb": []}
    for length in lengths:
        none, compact = figures.run("attention.py", *flags, f"--n={length}")
        for name, values in ratios.items():
            values.append(compact[name] / max(none[name], 1))
    for name, label in (("median_ms", "time"), ("added_memory_mb", "memory")):
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios[name])
        figures.add(
            f"attention, {label}, relative / none from n = {lengths[0]} to "
            f"{lengths[-1]}: {each}; last / first",
            ratios[name][-1] / ratios[name][0],
            at_most=1.0,
        )


def input_pipeline(figures):
    """Times the training batches alone."""
    small = ["--pairs=500", "--seconds=1"] if figures.args.small else []
    (row,) = figures.run("input_pipeline.py", *small)
    figures.add(
        "input, padded ids per second on one core",
        row["tf_data_padded_ids_per_second"] / 1e6,
        at_least=2,
        unit=" million",
    )


def starts(figures):
    """Times --help, and a training up to its first update."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, TRAINER, "--help"], capture_output=True, check=True
        )
        times.append(time.perf_counter() - start)
    help_ = statistics.median(times)
    figures.add("trainer.py --help", help_, at_most=2, unit=" s")
    with tempfile.TemporaryDirectory() as folder:
        for state, aim in (("data not prepared", None), ("data prepared", 20)):
            seconds = first_update(folder, f"{folder}/{aim}")
            figures.add(
                f"start to the first update, built-in problem, {state}",
                seconds,
                at_most=aim,
                unit=" s",
            )


def first_update(folder, run):
    """Returns the seconds from the start of a training to its first step."""
    flags = {"data_dir": f"{folder}/data", "output_dir": run}
    flags |= {"train_steps": 1, "schedule": "train", "log_step_count_steps": 1}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, TRAINER, *common.as_flags(**flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("step 1/1 "):
                seconds = time.perf_counter() - start
        if process.wait():
            raise SystemExit("trainer.py failed.\n" + "".join(lines[-20:]))
    return seconds


def decoding(figures, opennmt, ctranslate2):
    """Times our beam search, and the other engines if they are installed."""
    small = figures.args.small
    size = ["--batch=2", "--src_len=3", "--out_len=3", *SMALL] if small else []
    if not opennmt:
        size = size or ["--batch=32", "--src_len=30", "--out_len=32"]
        (row,) = figures.run("decode.py", "--threads=1", *size)
        figures.add("decoding, tokens per second", row["tokens_per_second"])
        figures.add(
            "decoding, speed / OpenNMT-tf (make bench-peers)",
            None,
            at_least=1.5,
        )
        return
    flags = [f"--opennmt={opennmt}", f"--ctranslate2={ctranslate2}"]
    rows = figures.run("decode_peers.py", *flags, "--rounds=3")
    ours, base, *others = [
        statistics.median(row["tokens_per_second"] for row in rows[i::4])
        for i in range(4)
    ]
    figures.add("decoding, tokens per second", ours)
    figures.add("decoding, speed / OpenNMT-tf", ours / base, at_least=1.5)
    for name, speed in zip(("float32", "int8"), others, strict=True):
        label = f"decoding, CTranslate2 {name}, speed / OpenNMT-tf"
        figures.add(label, speed / base)


def machine():
    """Describes the machine in words."""
    name = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {name}, Python {platform.python_version()}"


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--peers", help="folder that peers/build.py filled")
    parser.add_argument("--rounds", type=int, default=3, help="with --peers")
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    opennmt = ctranslate2 = None
    if args.peers:
        opennmt, ctranslate2 = (
            pathlib.Path(args.peers, name, "bin", "python")
            for name in ("opennmt", "ctranslate2")
        )
        for path in (opennmt, ctranslate2):
            if not path.exists():
                parser.error(
                    f"Expected {path}, from benchmarks/peers/build.py."
                )
    figures = Figures(args)
    start = time.perf_counter()
    relative_over_absolute(figures)
    training_against_peers(figures, opennmt)
    attention_memory(figures)
    growth_with_length(figures)
    input_pipeline(figures)
    starts(figures)
    decoding(figures, opennmt, ctranslate2)
    minutes = (time.perf_counter() - start) / 60
    print(f"{machine()}. {minutes:.0f} minutes.\n\n{figures.table()}")
    if args.out:
        result = {"machine": machine(), "figures": figures.rows}
        result["runs"] = figures.details
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
