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
SMALL = ["--hidden=16", "--filter=32", "--heads=2", "--layers=1", "--vocab=64"]
SMALL += ["--batch=2", "--len=3", "--steps=2"]


class Summary:
    """Runs the benchmarks and keeps their figures.

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
        value, aim, result = "-", "", "-"
        is_good = True
        if at_most is not None:
            aim = f"at most {at_most}{unit}"
            is_good = measured is None or measured <= at_most
        elif at_least is not None:
            aim = f"at least {at_least}{unit}"
            is_good = measured is None or measured >= at_least
        if measured is not None:
            value = f"{measured:,.4g}{unit}"
            if aim:
                result = "reached" if is_good else "not reached"
        self.rows.append([figure, value, aim, result])
        print(*self.rows[-1], sep="  ", file=sys.stderr, flush=True)

    def table(self):
        """Returns the table in Markdown."""
        return common.table(["figure", "measured", "aim", "result"], self.rows)

    def peer_flags(self, opennmt):
        """Returns the flags of a comparison with other engines."""
        flags = [f"--rounds={self.args.rounds}"]
        if opennmt:
            flags.append(f"--opennmt={opennmt}")
        return self.small_or(*flags)

    def small_or(self, *flags):
        """Returns flags, or those of sizes that measure nothing."""
        return [*flags, *SMALL] if self.args.small else flags


def training(summary, opennmt):
    """Compares steps: relative with absolute, and with OpenNMT-tf."""
    for batch, length in ((64, 32), (16, 128)):
        flags = ["--steps=30", f"--batch={batch}", f"--len={length}"]
        models = "relative=1", "relative=0"
        relative, _ = summary.run(
            "compare_steps.py", *summary.small_or(*flags), *models
        )
        summary.add(
            f"training step, relative / absolute, {batch} x {length}",
            relative["ratio"],
            at_most=1.04,
        )
    *rows, base = summary.run("train_peers.py", *summary.peer_flags(opennmt))
    aims = {"relative": 0.87, "relative, XLA": 0.65, "relative, bfloat16": 0.6}
    for row in rows:
        summary.add(
            f"training step, {row['name']} / {base['name']}",
            row["ratio"],
            at_most=aims.get(row["name"]) if opennmt else None,
        )


def attention_memory(summary):
    """Compares the peak memory of one attention, relative and none."""
    flags = ["--impl=none,compact", "--n=512", "--steps=3"]
    if summary.args.small:
        flags += ["--batch=1", "--heads=2", "--depth=4"]
    for causal, kind in enumerate(("both directions", "causal")):
        rounds = [
            summary.run("attention.py", *flags, f"--causal={causal}")
            for _ in range(summary.args.rounds)
        ]
        ratio = statistics.median(
            compact["added_memory_mb"] / max(none["added_memory_mb"], 1)
            for none, compact in rounds
        )
        summary.add(
            f"attention, n = 512, added memory, relative / none, {kind}",
            ratio,
            at_most=1.3,
        )


def starts(summary):
    """Times --help, and a training up to its first update."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, TRAINER, "--help"], capture_output=True)
    seconds = time.perf_counter() - begin
    summary.add("trainer.py --help", seconds, at_most=2, unit=" s")
    with tempfile.TemporaryDirectory() as folder:
        for state, aim in (("data not prepared", None), ("data prepared", 20)):
            summary.add(
                f"start to the first update, built-in problem, {state}",
                first_update(folder, f"{folder}/{aim}"),
                at_most=aim,
                unit=" s",
            )


def first_update(folder, run):
    """Returns the seconds from the start of a training to its first step."""
    flags = {"data_dir": f"{folder}/data", "output_dir": run}
    flags |= {"train_steps": 1, "schedule": "train", "log_step_count_steps": 1}
    command = [sys.executable, TRAINER, *common.as_flags(**flags)]
    start, seconds = time.perf_counter(), None
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line.startswith("step 1/1 "):
                seconds = time.perf_counter() - start
    return seconds


def decoding(summary, opennmt):
    """Compares our beam search with the other engines."""
    *rows, base = summary.run("decode_peers.py", *summary.peer_flags(opennmt))
    for row in rows:
        summary.add(
            f"decoding, {row['name']}, speed / {base['name']}",
            1 / row["ratio"],
            at_least=1.4 if row["name"] == "relpos_tf" else None,
        )


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    opennmt = args.peers and pathlib.Path(args.peers, "opennmt/bin/python")
    if opennmt and not opennmt.exists():
        parser.error(f"Expected {opennmt}, from benchmarks/peers/build.py.")
    summary = Summary(args)
    start = time.perf_counter()
    training(summary, opennmt)
    attention_memory(summary)
    starts(summary)
    decoding(summary, opennmt)
    minutes = (time.perf_counter() - start) / 60
    print(f"{machine()}. {minutes:.0f} minutes.\n\n{summary.table()}")
    if args.out:
        result = {"machine": machine(), "figures": summary.rows}
        result["runs"] = summary.details
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
