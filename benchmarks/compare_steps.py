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


def measure(models, args):
    """Makes steps of all models in turn; yields the figures of each.

    Args:
        models: dict from a name to the flags of a model. The last one is what
            the others are compared with.
        args: the flags of the timing.
    """
    tf = common.import_tensorflow(args.threads)
    steps = {
        name: train_step.make_step(each, tf) for name, each in models.items()
    }
    times = common.take_turns(steps, args.steps, args.warmup)
    for name, each in times.items():
        yield {
            "model": name,
            "median_ms": round(statistics.median(each), 1),
            "min_ms": round(min(each), 1),
            "ratio": common.median_ratio(each, times[list(models)[-1]]),
        }


def main():
    parser = common.model_parser(__doc__, steps=20)
    parser.add_argument("models", nargs="+", help="name=value,name=value")
    args = parser.parse_args()
    models = {changes: changed_flags(args, changes) for changes in args.models}
    for figures in measure(models, args):
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
