"""Damages the files of a run in many places and checks the outcomes.

    python -m tests.campaigns.corruption [--cases=50] [--log=FILE]

Fifty places each in a checkpoint, in training data, in tokenizers and
in an export are damaged, one at a time: a byte is flipped,
the file is truncated, a block is zeroed or removed, or the file is deleted.
Then a command uses the file, in another process. The outcome must be one of:

    error      exit code 1, one line, and no output file
    fallback   a warning, and the result of the previous checkpoint
    same       the result of the undamaged files, bit for bit

Any other outcome (an exception, a crash, a hang, another result) is a bug: it
is printed, and the exit code is 1. The places are always the same.
"""

import argparse
import collections
import contextlib
import hashlib
import importlib
import io
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import sys
import tempfile
import traceback
from concurrent import futures
from concurrent.futures import process
from typing import NamedTuple

from relpos_tf.bin import command
from relpos_tf.models import checkpoints

TARGETS = "checkpoint", "tokens", "tokenizer", "export"
KINDS = (
    *("flip", "flip", "flip", "flip", "flip"),
    *("cut short", "cut short", "zeros", "cut out", "delete"),
)
GOOD = "error", "fallback", "same"
SECONDS = 120.0
_BLOCK = 512
_LINES = "ba do mi\n\ngi ku ta ba\nbu\nmi mi mi du te\n"
_SMALL = (
    "--hparams=hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,learning_rate_warmup_steps=20,batch_size=256,"
    "extra_length=5,beam_size=2"
)


class Found(NamedTuple):
    """The outcome of one case."""

    target: str
    number: int
    damage: str  # the file, the kind of damage, and the place
    outcome: str  # one of `GOOD`, or a description of the bug
    message: str


class Worker:
    """A process that runs commands, and is replaced when it dies or hangs."""

    def __init__(self):
        self._pool = None

    def run(self, name, *arguments):
        """Runs a command.

        Args:
            name: str. "trainer", "decoder" or "export".
            *arguments: as on the command line.

        Returns:
            (exit code, standard error); or (None, the description of a bug).
        """
        if self._pool is None:
            self._pool = futures.ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn")
            )
        try:
            done = self._pool.submit(_execute, name, arguments)
            return done.result(SECONDS)
        except futures.TimeoutError:
            wrong = f"no end within {SECONDS} seconds"
        except process.BrokenProcessPool:
            wrong = "crash"
        self.close()
        return None, wrong

    def close(self):
        """Ends the process."""
        for child in multiprocessing.active_children():
            child.kill()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _execute(name, arguments):
    """Runs a command in the process."""
    main = importlib.import_module(f"relpos_tf.bin.{name}").main
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        try:
            code = command.execute(main, arguments)
        except BaseException:  # The user would see a traceback.
            return None, traceback.format_exc()
    return code, error.getvalue()


class World:
    """Undamaged files, and the results of commands with them.

    Args:
        folder: path. The files are written to it.
        worker: `Worker`.
    """

    def __init__(self, folder, worker):
        self.folder = pathlib.Path(folder)
        self.worker = worker
        self.data, self.run = self.folder / "data", self.folder / "run"
        self.export = self.folder / "export"
        self.lines = self.folder / "lines"
        self.lines.write_text(_LINES)
        self._do("trainer", *self.training(self.data, self.run, 20))
        self._do(
            "export", f"--output_dir={self.run}", f"--export_dir={self.export}"
        )
        self._answers = {}

    def _do(self, name, *arguments):
        """Runs a command that must succeed; returns its standard error."""
        code, text = self.worker.run(name, *arguments)
        if code != 0:
            raise RuntimeError(f"{name} {arguments}: {code} {text}")
        return text

    def answer(self, name):
        """Returns the result of undamaged files, computed once."""
        if name not in self._answers:
            self._answers[name] = {
                "trainer": self._trained,
                "run": lambda: self._translated("output_dir", self.run),
                "older": lambda: self._translated(
                    "checkpoint_path", self.run / "ckpt-10"
                ),
                "export": lambda: self._translated("export_dir", self.export),
            }[name]()
        return self._answers[name]

    def _trained(self):
        fresh = self.folder / "fresh"
        self._do("trainer", *self.training(self.data, fresh, 2))
        return weights(fresh / "ckpt-2")

    def _translated(self, option, place):
        output = self.folder / "output"
        self._do("decoder", *self.translating(f"--{option}={place}", output))
        return output.read_bytes()

    def training(self, data, run, steps):
        """Returns the trainer's flags."""
        return (
            "--problem=algorithmic_reverse",
            f"--data_dir={data}",
            f"--output_dir={run}",
            f"--train_steps={steps}",
            "--local_eval_frequency=10",
            "--schedule=train",
            "--deterministic",
            _SMALL,
        )

    def translating(self, place, output):
        """Returns the decoder's flags."""
        return (
            place,
            f"--decode_from_file={self.lines}",
            f"--decode_to_file={output}",
            "--decode_hparams=n_best=2,write_beam_scores=true",
        )

    def case(self, target, number):
        """Damages a copy of a file and uses it.

        Args:
            target: str. One of `TARGETS`.
            number: int. Which case.

        Returns:
            `Found`.
        """
        draw = random.Random(f"{target} {number}")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            copy = pathlib.Path(folder, "copy")
            # Half of the tokenizers are in the data, half in the run.
            trains = target == "tokens" or (
                target == "tokenizer" and number % 2
            )
            name = "export" if target == "export" else "run"
            name = "data" if trains else name
            shutil.copytree(getattr(self, name), copy)
            # A checkpoint is one file. Without it, there is no damage.
            kinds = KINDS[:-1] if target == "checkpoint" else KINDS
            kind = kinds[number % len(kinds)]
            damage = spoil(draw.choice(files_of(target, copy)), kind, draw)
            output = pathlib.Path(folder, "output")
            if trains:
                name = "trainer"
                arguments = self.training(copy, output, 2)
            else:
                option = "export_dir" if name == "export" else "output_dir"
                arguments = self.translating(f"--{option}={copy}", output)
            code, text = self.worker.run(
                "trainer" if trains else "decoder", *arguments
            )
            outcome = self._outcome(name, code, text, output)
        return Found(target, number, damage, outcome, text)

    def _outcome(self, name, code, text, output):
        if code is None:
            return text.strip().splitlines()[-1]
        answer = None
        if code == 0:
            answer = output / "ckpt-2" if name == "trainer" else output
            answer = weights(answer) if output.is_dir() else answer.read_bytes()
        if code == 0 and answer == self.answer(name):
            return "same"
        if code == 0 and name == "run" and answer == self.answer("older"):
            return "fallback" if "ckpt-20 " in text else "silent fallback"
        if code == 0:
            return "another result"
        lines = [line for line in text.splitlines() if "relpos-" in line]
        is_clean = len(lines) == 1 and text.splitlines()[-1] == lines[0]
        if output.is_dir():
            is_clean &= not list(output.glob("ckpt-*"))
        else:
            is_clean &= not output.exists()
        return "error" if code == 1 and is_clean else f"exit code {code}"


def files_of(target, folder):
    """Returns the files that may be damaged."""
    patterns = {
        "checkpoint": ["ckpt-20.npz"],
        "tokens": ["*/train.ids", "*/train.lengths"],
        "tokenizer": ["tokenizer.model", "*/tokenizer.model"],
        "export": ["**/*"],
    }
    found = {p for pattern in patterns[target] for p in folder.glob(pattern)}
    return sorted(path for path in found if path.is_file())


def spoil(path, kind, draw):
    """Damages a file; returns a description."""
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content))
    if kind == "flip":
        content[place] ^= 1 << draw.randrange(8)
    elif kind == "cut short":
        del content[place:]
    elif kind == "zeros":
        content[place : place + _BLOCK] = bytes(len(content[place:][:_BLOCK]))
    elif kind == "cut out":
        del content[place : place + _BLOCK]
    path.unlink()
    if kind != "delete":
        path.write_bytes(content)
    return f"{path.name}: {kind} at {place}"


def weights(prefix):
    """Returns a checksum of the variables in a checkpoint."""
    checksum = hashlib.sha256()
    for name, value in sorted(checkpoints.read(prefix).items()):
        checksum.update(name.encode() + value.tobytes())
    return checksum.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--log", default=os.devnull)
    arguments = parser.parse_args()
    worker = Worker()
    counts = collections.defaultdict(collections.Counter)
    bugs = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        open(arguments.log, "w", encoding="utf-8") as log,
    ):
        world = World(folder, worker)
        for target in arguments.targets:
            for number in range(arguments.cases):
                found = world.case(target, number)
                print(json.dumps(found), file=log, flush=True)
                is_good = found.outcome in GOOD
                counts[target][found.outcome if is_good else "bug"] += 1
                if not is_good:
                    bugs += 1
                    print(*found[:4], found.message[-600:], sep="\n  ")
        worker.close()
    columns = *GOOD, "bug"
    print(f"{'':12}" + "".join(f"{name:>10}" for name in columns))
    for target, row in counts.items():
        print(f"{target:12}" + "".join(f"{row[c]:10}" for c in columns))
    sys.exit(1 if bugs else 0)


if __name__ == "__main__":
    main()
