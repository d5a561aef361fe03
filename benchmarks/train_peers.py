"""Times this project's training step and OpenNMT-tf's, in turn.

    python benchmarks/train_peers.py --rounds 5 \
        --opennmt build/peers/opennmt/bin/python

Each run is a process of its own; a round runs every model once. Other flags go
to all of them: `--batch 16 --len 128`. Prints a table of medians over the
rounds; the ratio to OpenNMT-tf (or else to ours in float32) is the median of
the rounds' own ratios. benchmarks/peers/README.md says how to make the
environment.
"""

import argparse
import json
import statistics
import sys

import decode_peers

OURS = {
    "relative": [],
    "relative, XLA": ["--xla=1"],
    "relative, bfloat16": ["--bfloat16=1"],
    "absolute": ["--relative=0"],
}


def commands(args):
    """Returns the command of each model."""
    script = decode_peers.HERE / "train_step.py"
    found = {
        name: [args.ours, script, *flags]
        for name, flags in OURS.items()
        if name in args.models.split("; ")
    }
    if args.opennmt:
        script = decode_peers.HERE / "peers" / "opennmt_tf_train.py"
        found["OpenNMT-tf, relative"] = [args.opennmt, script]
    return found


def print_table(results):
    """Prints a row for each model; the last one is the base."""
    base = [row["median_ms"] for row in list(results.values())[-1]]
    print("\n| model | ratio | median ms, each run | CPU ms | peak MB |")
    print("|---|---|---|---|---|")
    for name, rows in results.items():
        times = [row["median_ms"] for row in rows]
        ratio = statistics.median(
            own / other for own, other in zip(times, base, strict=True)
        )
        each = ", ".join(f"{value:.0f}" for value in times)
        cpu = statistics.median(row["cpu_ms"] for row in rows)
        peak = max(row["peak_memory_mb"] for row in rows)
        print(f"| {name} | {ratio:.2f} | {each} | {cpu:.0f} | {peak} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", default=sys.executable)
    parser.add_argument("--opennmt", help="the Python of its environment")
    parser.add_argument(
        "--models", default="; ".join(OURS), help="which of ours, '; ' between"
    )
    args, rest = parser.parse_known_args()
    results = {}
    for _ in range(args.rounds):
        for name, command in commands(args).items():
            result = decode_peers.run([*command, *rest])
            print(json.dumps(result), flush=True)
            results.setdefault(name, []).append(result)
    print_table(results)


if __name__ == "__main__":
    main()
