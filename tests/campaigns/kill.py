"""Stops a short run at 20 moments, resumes it, and compares the results.

    python -m tests.campaigns.kill
    python -m tests.campaigns.kill --signal=TERM

The moments are random with fixed seeds: a quarter each before the first step,
during training, during a save, and during evaluation. After SIGKILL the same
command resumes the run; after SIGTERM, the command that the trainer printed.
The last column of a row says which of these conditions fails:

- the last checkpoint equals that of the undisturbed run, bit for bit;
- metrics.jsonl has each step and each evaluation once, with the loss and the
  BLEU of the undisturbed run;
- every checkpoint that existed when the run was stopped still exists, but
  that of a stop, which goes when the next is saved;
- no partial file is left;
- there is no traceback, and SIGTERM gives exit code 143.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHASES = ("start", "training", "saving", "evaluating")
STEPS, FREQUENCY = 60, 20
OPTIONS = (
    *(f"--train_steps={STEPS}", f"--local_eval_frequency={FREQUENCY}"),
    *("--save_checkpoints_secs=1", "--keep_checkpoint_max=1000"),
    *("--log_step_count_steps=1", "--deterministic"),
    "--hparams=batch_size=512,beam_size=1,extra_length=3",
)
ONE_THREAD = dict.fromkeys(
    "OMP_NUM_THREADS TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS".split(), "1"
)


class Run:
    """A trainer in its own process, with the lines that it has written.

    Args:
        folder: pathlib.Path. Gets the run in `run` and the data in `data`.
        options: Further flags.
        command: str or None. A command line to run instead.
        **environment: Further variables of the environment.
    """

    def __init__(self, folder, options, command=None, **environment):
        self.folder, self.directory = folder, folder / "run"
        self.lines = []
        words = [sys.executable, "trainer.py", *options]
        own = f"--data_dir={folder / 'data'}", f"--output_dir={self.directory}"
        given = {option.partition("=")[0] for option in options}
        words += [flag for flag in own if flag.partition("=")[0] not in given]
        environment = ONE_THREAD | {"PYTHONPATH": str(ROOT)} | environment
        self.process = subprocess.Popen(
            shlex.split(command) if command else words,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def wait_for(self, pattern):
        """Returns once a line matches; False if the process ends first."""
        is_alive = True
        while is_alive:
            is_alive = self.reader.is_alive()  # as of the lines that follow
            if any(re.search(pattern, line) for _, line in self.lines):
                return True
            time.sleep(0.005)
        return False

    def wait_for_half(self, number):
        """Returns once the number-th checkpoint is being written."""
        seen, is_half = 0, False
        while self.process.poll() is None:
            names = self.directory.glob("ckpt-*.part")
            before, is_half = is_half, next(names, None) is not None
            seen += is_half and not before
            if seen > number:
                return
            time.sleep(0.001)

    def stop(self, number):
        """Sends a signal, waits, and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.finish()

    def finish(self, seconds=900):
        """Waits for the end and returns the exit code."""
        code = self.process.wait(timeout=seconds)
        self.reader.join()
        self.process.stderr.close()
        return code

    def text(self):
        """Returns the text that the trainer has written."""
        return "\n".join(line for _, line in self.lines)

    def seconds_to(self, pattern, after=""):
        """Returns the time from a line to the next one that matches."""
        begin = next(t for t, line in self.lines if re.search(after, line))
        times = (t for t, line in self.lines if re.search(pattern, line))
        return next(t for t in times if t >= begin) - begin


def wait_for_moment(run, phase, chance, undisturbed):
    """Returns at a random moment of a phase."""
    if phase == "start":
        first = undisturbed.seconds_to(r"^step 1/")
        time.sleep(chance.uniform(0.1, 3.0 + first))
    elif phase == "training":
        run.wait_for(rf"^step {chance.randrange(1, STEPS)}/")
        time.sleep(chance.uniform(0.0, 0.1))
    elif phase == "saving":
        run.wait_for_half(chance.randrange(3))
        time.sleep(chance.uniform(0.0, 0.05))
    else:
        step = FREQUENCY * chance.randrange(1, STEPS // FREQUENCY + 1)
        saved = rf"^Saved .*ckpt-{step}\."
        run.wait_for(saved)
        seconds = undisturbed.seconds_to(rf"^dev at step {step}:", saved)
        time.sleep(chance.uniform(0.0, 0.8 * seconds))


def checkpoints_in(directory):
    """Returns {name: bytes} of the checkpoints, without that of a stop.

    The checkpoint of a stop goes when the next is saved.
    """
    stops = run_dir.steps_of(directory, run_dir.STOP)
    return {
        f"ckpt-{step}.npz": (directory / f"ckpt-{step}.npz").read_bytes()
        for step in run_dir.all_steps(directory)
        if step not in stops
    }


def events(directory):
    """Returns the events in metrics.jsonl, without speeds."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return sorted(
        (*map(e.get, ("step", "split", "loss", "target_tokens")), e.get("bleu"))
        for e in map(json.loads, lines)
    )


def halves(folder):
    """Returns the names of partial files."""
    found = *folder.rglob("*.part"), *folder.glob("data/.*")
    return [str(path.relative_to(folder)) for path in found]


def differences(run, undisturbed, there, steps):
    """Returns the differences between a resumed run and an undisturbed one."""
    found = [f"left over: {name}" for name in halves(run.folder)]
    expected, actual = (
        checkpoints.read(one.directory / f"ckpt-{steps}")
        for one in (undisturbed, run)
    )
    if actual.keys() != expected.keys():
        found.append("other variables")
    for key in actual.keys() & expected.keys():
        if actual[key].tobytes() != expected[key].tobytes():
            found.append(f"{key} differs")
            break
    kept = checkpoints_in(run.directory)
    found += [f"lost: {name}" for name in there if name not in kept]
    left, right = (
        collections.Counter(events(one.directory)) for one in (run, undisturbed)
    )
    found += [f"event {event} is repeated or differs" for event in left - right]
    return found + [f"no event {event}" for event in right - left]


def case(folder, seed, number, undisturbed):
    """Stops a run once and resumes it; returns a row of the table."""
    phase = PHASES[seed % len(PHASES)]
    chance = random.Random(f"{phase} {seed}")
    if phase != "start":  # A start may include the preparation of data.
        shutil.copytree(undisturbed.folder / "data", folder / "data")
    run = Run(folder, OPTIONS)
    wait_for_moment(run, phase, chance, undisturbed)
    code = run.stop(number)
    there = checkpoints_in(run.directory) if run.directory.exists() else {}
    last = max((int(re.sub(r"\D", "", name)) for name in there), default="-")
    left = len(halves(folder)) if folder.exists() else 0
    found, command = [], None
    if number == signal.SIGTERM:
        command = re.search(r"^  (\S+ trainer\.py .*)", run.text(), re.M)
        command = command and command[1]
        # -15: the signal came before its handler was installed. 0: after the
        # last step.
        if code not in (0, 143, -15):
            found.append(f"exit code {code}")
        if code == 143 and left:
            found.append("left halves behind")
    while True:
        # Libraries may write before the trainer does.
        if "Traceback" in run.text():
            found.append("traceback")
        if run.process.returncode == 0 and "Translate with" in run.text():
            break
        run = Run(folder, OPTIONS, command)
        if run.finish() != 0:
            found.append(run.text()[-300:])
            break
    if not found:
        found = differences(run, undisturbed, there, STEPS)
    return [phase, seed, code, last, left, "; ".join(found) or "same"]


def main():
    """Runs the campaign and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--signal", choices=["KILL", "TERM"], default="KILL")
    parser.add_argument("--cases", type=int, default=20)
    arguments = parser.parse_args()
    number = signal.Signals[f"SIG{arguments.signal}"]
    good = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        undisturbed = Run(folder / "undisturbed", OPTIONS)
        if undisturbed.finish() != 0:
            sys.exit(undisturbed.text())
        row = "{:10} {:>4} {:>9} {:>10} {:>6}  {}".format
        print(row("phase", "seed", "exit code", "checkpoint", "halves", "end"))
        for seed in range(arguments.cases):
            result = case(folder / str(seed), seed, number, undisturbed)
            good += result[-1] == "same"
            print(row(*map(str, result)), flush=True)
    print(f"{good} of {arguments.cases} runs end like the undisturbed one.")
    sys.exit(good < arguments.cases)


if __name__ == "__main__":
    main()
