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
# Options of the campaign's own command line that are for the comparison.
STOPS = "--stops="
OTHERS = [text for text in sys.argv[1:] if not text.startswith(STOPS)]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
# The fields of a report that must not depend on stops.
SAME = (
    "label seed train_steps target_tokens loss bleu chrf exact_match "
    "bleu_by_length"
).split()


def start(folder):
    """Starts the comparison in a folder."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "relpos_tf.bin.compare",
            *OPTIONS,
            *OTHERS,
            f"--data_dir={folder / 'data'}",
            f"--output_dir={folder / 'out'}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_until_signal(folder, number=None, lines=0):
    """Runs the comparison; sends a signal after so many lines.

    Returns:
        (exit code, standard error, whether the signal was sent).
    """
    process = start(folder)
    said, is_sent = [], False
    for line in process.stderr:
        said.append(line)
        if number is not None and len(said) == lines:
            process.send_signal(number)
            is_sent = True
    process.stdout.read()
    return process.wait(), "".join(said), is_sent


def wait_for_trainers(folder):
    """Waits until no trainer of a comparison is running."""
    for path in (folder / "out" / "runs").glob("*"):
        while locks.is_locked(path):
            time.sleep(1)


def result(folder):
    """Returns the rows of the report and the translations."""
    report = json.loads((folder / "out" / "report.json").read_text("utf-8"))
    rows = [{name: row[name] for name in SAME} for row in report["runs"]]
    texts = {
        path.name: path.read_text("utf-8")
        for path in sorted((folder / "out" / "translations").glob("*.txt"))
    }
    return rows, texts


def main():
    # Shells ignore SIGINT in background jobs. Processes inherit that, but they
    # do not inherit handlers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = [text for text in sys.argv[1:] if text.startswith(STOPS)]
    stops = int(given[-1].removeprefix(STOPS)) if given else 6
    is_serial = not any(text.startswith("--jobs=") for text in OTHERS)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="compare."))
    wrong = []
    code, said, _ = run_until_signal(folder / "undisturbed")
    if code:
        sys.exit(said)
    length = said.count("\n")
    shutil.copytree(
        folder / "undisturbed" / "data", folder / "stopped" / "data"
    )
    generator = random.Random(2018)
    print(f"{'signal':8}  {'after line':>10}  {'exit code':>9}")
    is_over, left = False, stops
    while not is_over:
        number = generator.choice(SIGNALS) if left > 0 else None
        line = generator.randint(1, length // 2)
        code, said, is_sent = run_until_signal(folder / "stopped", number, line)
        left -= 1
        is_over = not is_sent or number is None
        name = signal.Signals(number).name if is_sent else "none"
        print(f"{name:8}  {line:10}  {code:9}", flush=True)
        if "Traceback" in said:
            wrong.append(said)
        if is_sent and number == signal.SIGKILL:
            if is_serial:
                wait_for_trainers(folder / "stopped")
        elif code or (is_sent and "goes on from there" not in said):
            wrong.append(f"exit code {code}:\n{said}")
    if result(folder / "undisturbed") != result(folder / "stopped"):
        wrong.append(f"The results differ: see {folder}.")
    else:
        shutil.rmtree(folder)
    print("\n".join(wrong) or "All as expected.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
