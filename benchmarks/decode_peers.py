"""Times the beam search of this project and of other engines, in turn.

    python benchmarks/decode_peers.py \
        --opennmt build/peers/opennmt/bin/python

Each engine has its own process, with one thread; all search in turn. Other
flags go to all engines: `--relative 0`. Prints each result, and a table.
benchmarks/peers/README.md describes the environment of OpenNMT-tf, without
which the others are compared with ours.
"""

import sys

import common

PEERS = common.HERE / "peers"
SIZE = ["--batch=32", "--len=30", "--decode_length=32", "--threads=1"]


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of a round")
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
    common.run_in_turn(commands, args.rounds, args.steps)


if __name__ == "__main__":
    main()
