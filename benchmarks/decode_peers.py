"""Times the beam search of this project and of other engines, in turn.

    python benchmarks/decode_peers.py --rounds 3 \
        --opennmt build/peers/opennmt/bin/python

Each run is a process of its own with one thread; a round runs every engine
once. Other flags go to all engines: `--relative 0`, `--steps 20`. Prints each
result, and a table of medians. benchmarks/peers/README.md describes the
environment of OpenNMT-tf, without which the others are compared with ours.
"""

import sys

import common

PEERS = common.HERE / "peers"
SIZE = ["--batch=32", "--len=30", "--decode_length=32", "--threads=1"]


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--opennmt", help="the Python of its environment")
    args, rest = parser.parse_known_args()
    script = [sys.executable, PEERS / "ctranslate2_cpu.py"]
    commands = {
        "CTranslate2 float32": script,
        "CTranslate2 int8": [*script, "--compute_type=int8"],
        "relpos_tf": [sys.executable, common.HERE / "decode.py"],
    }
    if args.opennmt:
        script = [args.opennmt, PEERS / "opennmt_tf.py", "--what=decode"]
        commands["OpenNMT-tf"] = script
    commands = {
        name: [*command, *SIZE, *rest] for name, command in commands.items()
    }
    common.run_rounds(commands, args.rounds)


if __name__ == "__main__":
    main()
