"""Times this project's beam search and its peers', in turn.

    python benchmarks/decode_peers.py --rounds 3 \
        --opennmt build/peers/opennmt/bin/python \
        --ctranslate2 build/peers/ctranslate2/bin/python

Each run is a process of its own with one thread; a round runs every engine
once. Engines without a Python are left out. Other flags go to all of them:
`--relative 0`, `--steps 20`. Prints a table of medians over the rounds, and
how many times the speed of OpenNMT-tf (or else of ours) each engine reaches.
benchmarks/peers/README.md says how to make the environments.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIZE = ["--batch=32", "--src_len=30", "--out_len=32", "--threads=1"]


def commands(args):
    """Returns the command of each engine that has a Python."""
    peers = HERE / "peers"
    found = {"ours": [args.ours, HERE / "decode.py"]}
    if args.opennmt:
        found["OpenNMT-tf"] = [args.opennmt, peers / "opennmt_tf.py"]
    if args.ctranslate2:
        script = [args.ctranslate2, peers / "ctranslate2_cpu.py"]
        found["CTranslate2 float32"] = script
        found["CTranslate2 int8"] = [*script, "--compute_type=int8"]
    return found


def run(command):
    """Returns the JSON line that a benchmark prints."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed.\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def print_table(results):
    """Prints medians over the rounds: a row for each engine."""
    base = "OpenNMT-tf" if "OpenNMT-tf" in results else "ours"
    speeds = {
        name: statistics.median(r["tokens_per_second"] for r in rows)
        for name, rows in results.items()
    }
    print(f"\n| engine | tokens/s | / {base} | median ms, each run | CPU ms |")
    print("|---|---|---|---|---|")
    for name, rows in results.items():
        each = ", ".join(f"{row['median_ms']:.0f}" for row in rows)
        cpu = statistics.median(row["cpu_ms"] for row in rows)
        ratio = speeds[name] / speeds[base]
        print(
            f"| {name} | {speeds[name]:.0f} | {ratio:.2f} | {each} "
            f"| {cpu:.0f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", default=sys.executable)
    parser.add_argument("--opennmt", help="the Python of its environment")
    parser.add_argument("--ctranslate2", help="the Python of its environment")
    args, rest = parser.parse_known_args()
    results = {}
    for _ in range(args.rounds):
        for name, command in commands(args).items():
            result = run([*command, *SIZE, *rest])
            print(json.dumps(result), flush=True)
            results.setdefault(name, []).append(result)
    print_table(results)


if __name__ == "__main__":
    main()
