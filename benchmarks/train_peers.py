"""Times the training step of this project and of OpenNMT-tf, in turn.

    python benchmarks/train_peers.py --rounds 5 \
        --opennmt build/peers/opennmt/bin/python

Each run is a process of its own; a round runs every model once. Other flags go
to all models: `--batch 16 --len 128`. Prints a table of medians over the
rounds. The ratio to OpenNMT-tf (or to the last of our models, if it is left
out) is the median of the ratios of single rounds. benchmarks/peers/README.md
describes the environment.
"""

import statistics
import sys

import common

OURS = {
    "relative": [],
    "relative, XLA": ["--xla=1"],
    "relative, bfloat16": ["--bfloat16=1"],
    "absolute": ["--relative=0"],
}


def models(args):
    """Returns the command of each model."""
    script = common.HERE / "train_step.py"
    commands = {
        name: [args.ours, script, *flags]
        for name, flags in OURS.items()
        if name in args.models.split("; ")
    }
    if args.opennmt:
        script = common.HERE / "peers" / "opennmt_tf_train.py"
        commands["OpenNMT-tf, relative"] = [args.opennmt, script]
    return commands


def print_table(results):
    """Prints a row for each model; ratios are to the last model."""
    base = [result["median_ms"] for result in list(results.values())[-1]]
    rows = []
    for name, rounds in results.items():
        times = [result["median_ms"] for result in rounds]
        ratio = statistics.median(
            own / other for own, other in zip(times, base, strict=True)
        )
        each = ", ".join(f"{value:.0f}" for value in times)
        cpu = statistics.median(result["cpu_ms"] for result in rounds)
        peak = max(result[common.MEMORY] for result in rounds)
        rows.append([name, f"{ratio:.2f}", each, f"{cpu:.0f}", peak])
    head = ["model", "ratio", "median ms, each run", "CPU ms", "peak MB"]
    print("\n" + common.table(head, rows), end="")


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", default=sys.executable)
    parser.add_argument("--opennmt", help="the Python of its environment")
    parser.add_argument(
        "--models",
        default="; ".join(OURS),
        help="our models to run, separated by '; '",
    )
    args, rest = parser.parse_known_args()
    commands = {
        name: [*command, *rest] for name, command in models(args).items()
    }
    print_table(common.run_rounds(commands, args.rounds))


if __name__ == "__main__":
    main()
