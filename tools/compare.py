"""Compares two sets, once undisturbed and once with repeated stops.

    python -m tools.compare [--stops=6] [--jobs=2]

Two sets and two seeds of a small model, from data to report. The second
comparison gets SIGINT, SIGTERM or SIGKILL after a line of output drawn with a
fixed seed, and is started again until it ends by itself. The last lines say
which of these conditions fails:

- after SIGINT or SIGTERM, the exit code is 0 and the last line says how to
  resume;
- there is no traceback;
- translations, losses and scores equal those of the undisturbed comparison.

After SIGKILL, the campaign waits for a trainer that is still running; with more
than one job, the comparison itself waits. More options are for the comparison.
"""

import argparse
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from relpos_tf.utils import locks

OPTIONS = (
    "--problem=algorithmic_copy",
    "--hparams_sets=relative=transformer_relative_tiny,absolute="
    "transformer_tiny",
    "--hparams=hidden_size=32,filter_size=48,num_heads=2,num_hidden_layers=1,"
    "batch_size=256,beam_size=2,extra_length=3,learning_rate_warmup_steps=60",
    "--seeds=1,2",
    "--train_steps=400",
    "--local_eval_frequency=200",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
# The fields of a report that must not depend on stops.
SAME = "label seed train_steps target_tokens loss bleu chrf exact_match"


def run(folder, options, number=None, lines=0):
    """Runs the comparison; sends a signal after a number of lines.

    Returns:
        (exit code, standard error, whether the signal was sent).
    """
    command = [
        *(sys.executable, "-m", "relpos_tf.bin.compare", *OPTIONS, *options),
        f"--data_dir={folder / 'data'}",
        f"--output_dir={folder / 'out'}",
    ]
    said = []
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stderr:
            said.append(line)
            if number is not None and len(said) == lines:
                process.send_signal(number)
    is_sent = number is not None and len(said) >= lines
    return process.returncode, "".join(said), is_sent


def wait_for_trainers(folder):
    """Waits until no trainer of a comparison is running."""
    for path in (folder / "out" / "runs").glob("*"):
        while locks.is_locked(path):
            time.sleep(1)


def result(folder):
    """Returns the rows of the report and the translations."""
    report = json.loads((folder / "out" / "report.json").read_text("utf-8"))
    rows = [
        {name: row[name] for name in SAME.split()} for row in report["runs"]
    ]
    translations = sorted((folder / "out" / "translations").glob("*.txt"))
    return rows, [(path.name, path.read_text("utf-8")) for path in translations]


def main():
    # Shells ignore SIGINT in background jobs. Processes inherit that, but they
    # do not inherit handlers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stops", type=int, default=6)
    args, options = parser.parse_known_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="compare."))
    whole, stopped = folder / "undisturbed", folder / "stopped"
    code, said, _ = run(whole, options)
    if code:
        sys.exit(said)
    length = said.count("\n")
    shutil.copytree(whole / "data", stopped / "data")
    generator = random.Random(2018)
    wrong = []
    is_sent = True
    while is_sent:
        number = generator.choice(SIGNALS) if args.stops > 0 else None
        line = generator.randint(1, length // 2)
        code, said, is_sent = run(stopped, options, number, line)
        args.stops -= 1
        name = number.name if is_sent else "none"
        print(f"{name:8} after line {line:3}: exit code {code}", flush=True)
        if "Traceback" in said:
            wrong.append(said)
        if is_sent and number == signal.SIGKILL:
            if not any(text.startswith("--jobs=") for text in options):
                wait_for_trainers(stopped)
        elif code or (is_sent and "goes on from there" not in said):
            wrong.append(f"exit code {code}:\n{said}")
    if result(whole) != result(stopped):
        wrong.append(f"The results differ: see {folder}.")
    else:
        shutil.rmtree(folder)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
