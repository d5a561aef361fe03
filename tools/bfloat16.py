"""Trains the built-in problem in float32 and in bfloat16, and compares.

    python -m tools.bfloat16 --output_dir=/tmp/bfloat16

Each run is that of `python trainer.py`. Prints the scores of the last
evaluation, the median time of a step, and the processor time of the whole run,
which depends least on other work of the machine.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DTYPES = ("float32", "bfloat16")


def train(folder, dtype, steps):
    """Runs the trainer; returns its events and the seconds of processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [
            sys.executable,
            "trainer.py",
            f"--hparams=activation_dtype={dtype}",
            f"--output_dir={folder / dtype}",
            f"--data_dir={folder / 'data'}",
            f"--tmp_dir={folder}",
            f"--train_steps={steps}",
        ],
        check=True,
        cwd=ROOT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = (folder / dtype / "metrics.jsonl").read_text(encoding="utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    return events, sum(after[:2]) - sum(before[:2])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="")
    parser.add_argument("--train_steps", type=int, default=0)
    args = parser.parse_args()
    folder = pathlib.Path(args.output_dir or tempfile.mkdtemp())
    rows = {}
    for dtype in DTYPES:
        events, seconds = train(folder, dtype, args.train_steps)
        last = [event for event in events if event["split"] == "dev"][-1]
        speeds = [
            e["steps_per_second"] for e in events if e["split"] == "train"
        ]
        rows[dtype] = {
            "steps": last["step"],
            "exact match %": last["exact_match"],
            "BLEU": last["bleu"],
            "loss": last["loss"],
            "ms per step": 1000 / statistics.median(speeds),
            "processor s": seconds,
        }
    print(f"{'':15}" + "".join(f"{dtype:>12}" for dtype in DTYPES) + "   ratio")
    for name in rows["float32"]:
        values = [rows[dtype][name] for dtype in DTYPES]
        cells = "".join(f"{value:12.2f}" for value in values)
        print(f"{name:15}{cells}{values[1] / values[0]:8.2f}")


if __name__ == "__main__":
    main()
