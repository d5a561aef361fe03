"""Says whether the beginning of the recipe for Multi30k goes as it did before.

    python benchmarks/headline.py runs/headline

`make headline` trains the run, 500 of the recipe's 8,000 updates. The exit
code is 1 if a score of the development set is outside of its band.
"""

import sys

from relpos_tf.models import run_dir

STEP = 500
# Lowest and highest. Seed 4 had 4.058 and 9.71 at commit 5de1f30 in float32 on
# an AMD EPYC; the training losses of seeds 4 to 6 differ by up to 0.07.
BAND = {"loss": (3.96, 4.16), "bleu": (8.0, 11.5)}


def main(folder):
    """Prints both scores of a run; returns the exit code."""
    found = [
        event
        for event in run_dir.RunDir(folder).read_metrics()
        if event["step"] == STEP and event["split"] == "dev"
    ]
    if not found:
        print(f"{folder} has no scores of step {STEP}.")
        return 1
    code = 0
    for name, (low, high) in BAND.items():
        is_within = low <= found[-1][name] <= high  # NaN is not
        code |= not is_within
        print(
            f"{name} {found[-1][name]:.3f}, {low} to {high} expected: "
            f"{'good' if is_within else 'outside'}"
        )
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
