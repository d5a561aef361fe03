"""Times the training step of this project and of OpenNMT-tf, in turn.

    python benchmarks/train_peers.py \
        --opennmt build/peers/opennmt/bin/python

Each model has its own process; all make steps in turn. Other flags go to all
models: `--batch 16 --len 128`. Prints each result, and a table.
benchmarks/peers/README.md describes the environment of OpenNMT-tf.
"""

import sys

import common

SIZE = ["--batch=64", "--len=32"]
OURS = {
    "relative": [],
    "relative, XLA": ["--xla=1"],
    "relative, bfloat16": ["--bfloat16=1"],
    "absolute": ["--relative=0"],
}


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--opennmt", help="the Python of its environment")
    names = "; ".join(OURS)
    parser.add_argument("--models", default=names, help=f"some of: {names}")
    args, rest = parser.parse_known_args()
    script = common.HERE / "train_step.py"
    commands = {
        name: [sys.executable, script, *SIZE, *OURS[name], *rest]
        for name in args.models.split("; ")
    }
    if args.opennmt:
        script = common.HERE / "peers" / "opennmt_tf.py"
        command = [args.opennmt, script, "--what=train", *SIZE, *rest]
        commands["OpenNMT-tf"] = command
    common.run_in_turn(commands, args.rounds, args.steps)


if __name__ == "__main__":
    main()
