"""Damages the files of a run in many places and checks the outcomes.

    python -m tests.campaigns.corruption [--cases=50]

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
import hashlib
import importlib
import itertools
import multiprocessing
import pathlib
import random
import shutil
import sys
import tempfile
from concurrent import futures
from typing import NamedTuple

from relpos_tf.models import checkpoints
from tests.bin import calls

TARGETS = "checkpoint", "tokens", "tokenizer", "export"
KINDS = (
    *("flip", "flip", "flip", "flip", "flip"),
    *("cut short", "cut short", "zeros", "cut out", "delete"),
)
GOOD = "error", "fallback", "same"
SECONDS = 120.0
_BLOCK = 512
_LINES = "ba do mi\n\ngi ku ta ba\nbu\nmi mi mi du te\n"
_TRAINING = (
    "--problem=algorithmic_reverse",
    "--local_eval_frequency=10",
    "--schedule=train",
    "--deterministic",
    "--hparams=hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,learning_rate_warmup_steps=20,batch_size=256,"
    "extra_length=5,beam_size=2",
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
        main = importlib.import_module(f"relpos_tf.bin.{name}").main
        if self._pool is None:
            self._pool = futures.ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn")
            )
        try:
            done = self._pool.submit(calls.execute, main, *arguments)
            code, _, text = done.result(SECONDS)
        except Exception as error:  # a traceback, a crash, or no end in time
            self.close()
            return None, repr(error)
        return code, text

    def close(self):
        """Ends the process."""
        for child in multiprocessing.active_children():
            child.kill()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class World:
    """Undamaged files, and the results of commands with them.

    Args:
        folder: path. The files are written to it.
        worker: `Worker`.
    """

    def __init__(self, folder, worker):
        self.folder = pathlib.Path(folder)
        self.worker = worker
        self.places = {
            "data_dir": self.folder / "data",
            "output_dir": self.folder / "run",
            "checkpoint_path": self.folder / "run" / "ckpt-10",
            "export_dir": self.folder / "export",
        }
        (self.folder / "lines").write_text(_LINES)
        data, run, _, export = self.places.values()
        for name, *words in (
            ("trainer", *_TRAINING, f"--data_dir={data}", "--train_steps=20"),
            ("export", f"--export_dir={export}"),
        ):
            code, text = worker.run(name, f"--output_dir={run}", *words)
            if code != 0:
                raise RuntimeError(f"{name}: {code} {text}")
        self._answers = {}

    def use(self, option, place):
        """Trains with data, or translates with the files of another option.

        Returns:
            (exit code, standard error, what was written or None).
        """
        flag = f"--{option}={place}"
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            output = pathlib.Path(folder, "output")
            if option == "data_dir":
                words = *_TRAINING, "--train_steps=2", f"--output_dir={output}"
                code, text = self.worker.run("trainer", flag, *words)
                if code == 0:
                    return code, text, weights(output / "ckpt-2")
                return code, text, any(output.glob("ckpt-*")) or None
            words = (
                f"--decode_from_file={self.folder / 'lines'}",
                f"--decode_to_file={output}",
                "--decode_hparams=n_best=2,write_beam_scores=true",
            )
            code, text = self.worker.run("decoder", flag, *words)
            return code, text, output.read_bytes() if output.exists() else None

    def answer(self, option):
        """Returns what undamaged files give, computed once."""
        if option not in self._answers:
            found = self.use(option, self.places[option])
            if found[0] != 0:
                raise RuntimeError(f"{option}: {found}")
            self._answers[option] = found[2]
        return self._answers[option]

    def case(self, target, number):
        """Damages a copy of a file and uses it.

        Args:
            target: str. One of `TARGETS`.
            number: int. Which case.

        Returns:
            `Found`.
        """
        draw = random.Random(f"{target} {number}")
        # Half of the tokenizers are in the data, half in the run.
        option = {
            "checkpoint": "output_dir",
            "tokens": "data_dir",
            "tokenizer": ("output_dir", "data_dir")[number % 2],
            "export": "export_dir",
        }[target]
        # A checkpoint is one file. Without it, there is no damage.
        kinds = KINDS[:-1] if target == "checkpoint" else KINDS
        kind = kinds[number % len(kinds)]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            copy = pathlib.Path(folder, "copy")
            shutil.copytree(self.places[option], copy)
            damage = spoil(draw.choice(files_of(target, copy)), kind, draw)
            code, text, result = self.use(option, copy)
        outcome = self._outcome(option, code, text, result)
        return Found(target, number, damage, outcome, text)

    def _outcome(self, option, code, text, result):
        if code is None:
            return text
        if code == 0:
            if result == self.answer(option):
                return "same"
            if option == "output_dir" and result == self.answer(
                "checkpoint_path"
            ):
                return "fallback" if "ckpt-20 " in text else "silent fallback"
            return "another result"
        lines = text.rstrip("\n").split("\n")
        of_command = [n for n, line in enumerate(lines, 1) if "relpos-" in line]
        is_clean = of_command == [len(lines)] and result is None
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
    arguments = parser.parse_args()
    worker = Worker()
    counts = {target: collections.Counter() for target in TARGETS}
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, worker)
        for target, number in itertools.product(
            TARGETS, range(arguments.cases)
        ):
            found = world.case(target, number)
            is_good = found.outcome in GOOD
            counts[target][found.outcome if is_good else "bug"] += 1
            if not is_good:
                print(*found[:4], found.message[-600:], sep="\n  ")
        worker.close()
    columns = *GOOD, "bug"
    print(f"{'':12}" + "".join(f"{name:>10}" for name in columns))
    for target, row in counts.items():
        print(f"{target:12}" + "".join(f"{row[c]:10}" for c in columns))
    sys.exit(any(row["bug"] for row in counts.values()))


if __name__ == "__main__":
    main()
