"""Times training steps of several models in turn, in one process.

    python benchmarks/compare_steps.py relative=1 relative=0
    python benchmarks/compare_steps.py --batch 16 --len 128 \
        relative=1 relative=0 relative=1,bfloat16=1

Each argument is a model, as changes to the flags of train_step.py. Each round
makes one step of every model, and the order rotates from round to round, so
that other load on the machine affects all models alike. The ratio to the last
model is taken in each round; compare models by the median ratio. Prints one
JSON line for each model.
"""

import argparse
import json
import statistics

import common
import train_step


def changed_flags(args, changes):
    """Returns the flags with changes such as `relative=0,k=8`."""
    changed = argparse.Namespace(**vars(args))
    for change in changes.split(","):
        name, _, value = change.partition("=")
        if name not in vars(args):
            raise SystemExit(f"Expected name=value of a flag. Got: {change}")
        kind = type(getattr(args, name))
        setattr(changed, name, kind(value))
    return changed


def main():
    parser = train_step.make_parser(__doc__, steps=20)
    parser.add_argument("models", nargs="+", help="name=value,name=value")
    args = parser.parse_args()
    models = {changes: changed_flags(args, changes) for changes in args.models}
    tf = common.import_tensorflow(args.threads)
    steps = {
        changes: train_step.make_step(flags, tf)
        for changes, flags in models.items()
    }
    times = common.take_turns(steps, args)
    for changes, each in times.items():
        result = {
            "model": changes,
            "median_ms": round(statistics.median(each), 1),
            "min_ms": round(min(each), 1),
            "ratio": common.median_ratio(each, times[args.models[-1]]),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
