"""Times the beam search of this project and of other engines, in turn.

    python benchmarks/decode_peers.py --rounds 3 \
        --opennmt build/peers/opennmt/bin/python \
        --ctranslate2 build/peers/ctranslate2/bin/python

Each run is a process of its own with one thread; a round runs every engine
once. An engine without a Python is left out. Other flags go to all engines:
`--relative 0`, `--steps 20`. Prints a table of medians over the rounds, with
the speed of each engine divided by that of OpenNMT-tf (or of this project, if
OpenNMT-tf is left out). benchmarks/peers/README.md describes the environments.
"""

import statistics
import sys

import common

PEERS = common.HERE / "peers"
SIZE = ["--batch=32", "--src_len=30", "--out_len=32", "--threads=1"]


def engines(args):
    """Returns the command of each engine that has a Python."""
    commands = {"ours": [args.ours, common.HERE / "decode.py"]}
    if args.opennmt:
        commands["OpenNMT-tf"] = [args.opennmt, PEERS / "opennmt_tf.py"]
    if args.ctranslate2:
        script = [args.ctranslate2, PEERS / "ctranslate2_cpu.py"]
        commands["CTranslate2 float32"] = script
        commands["CTranslate2 int8"] = [*script, "--compute_type=int8"]
    return commands


def print_table(results):
    """Prints medians over the rounds: a row for each engine."""
    base = "OpenNMT-tf" if "OpenNMT-tf" in results else "ours"
    speeds = {
        name: statistics.median(r["tokens_per_second"] for r in rounds)
        for name, rounds in results.items()
    }
    rows = []
    for name, rounds in results.items():
        times = ", ".join(f"{result['median_ms']:.0f}" for result in rounds)
        cpu = statistics.median(result["cpu_ms"] for result in rounds)
        ratio = speeds[name] / speeds[base]
        rows.append(
            [name, f"{speeds[name]:.0f}", f"{ratio:.2f}", times, f"{cpu:.0f}"]
        )
    head = ["engine", "tokens/s", f"/ {base}", "median ms, each run", "CPU ms"]
    print("\n" + common.table(head, rows), end="")


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", default=sys.executable)
    parser.add_argument("--opennmt", help="the Python of its environment")
    parser.add_argument("--ctranslate2", help="the Python of its environment")
    args, rest = parser.parse_known_args()
    commands = {
        name: [*command, *SIZE, *rest]
        for name, command in engines(args).items()
    }
    print_table(common.run_rounds(commands, args.rounds))


if __name__ == "__main__":
    main()
