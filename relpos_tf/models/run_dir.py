"""The files of a run, except the content of checkpoints. No TensorFlow."""

import contextlib
import importlib.metadata
import json
import pathlib
import platform
import re
import subprocess
from collections.abc import Iterable
from typing import Any

import relpos_tf
from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import locks

HPARAMS = "hparams.json"
TOKENIZER = "tokenizer.model"
SUBWORDS = "tokenizer.subwords"  # instead, for a tensor2tensor vocabulary
METRICS = "metrics.jsonl"
LOG = "train.log"
VERSIONS = "versions.json"
CHECKPOINT = ".npz"  # the end of a checkpoint's file, after `ckpt-STEP`
AVERAGE = "average"  # the folder of averages in a run
FLAGS = "flags.txt"
_PROBLEM = "problem.json"
# Marks, after a checkpoint's name: an epoch of the data ends there; only a stop
# saved it, and it goes when the next is saved; it has the best BLEU; the
# training came to its end there.
EPOCH, STOP, BEST, END = _MARKS = ".epoch", ".stop", ".best", ".end"
_PROBLEM_FIELDS = {
    "problem": str,
    "source_language": str,
    "target_language": str,
    "tokenizer_sha256": str,
    "longest_source": int,  # the most ids of a source in training
    "data": dict[str, str],
    # Ids per word, and the share of byte pieces: `data.tokenizer.Fit`.
    "vocabulary_fit": list[float],
}
# What every event in metrics.jsonl has.
_EVENT_FIELDS = {"step": int, "split": str, "loss": float}
_PACKAGES = (
    "tensorflow keras tensorflow-text sentencepiece sacrebleu numpy"
).split()


class RunDir:
    """A run's directory.

    Args:
        path: str or path. Created when its first files are written; training
            adds to a folder that is there.
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)

    @property
    def tokenizer_path(self) -> str:
        """The path of the run's tokenizer."""
        path = self.path / SUBWORDS
        return str(path if path.is_file() else self.path / TOKENIZER)

    def has_hparams(self) -> bool:
        """Returns whether this is a run's directory."""
        return (self.path / HPARAMS).is_file()

    def is_trained(self) -> bool:
        """Returns whether this is a run with a checkpoint or an average."""
        folders = self.path, self.path / AVERAGE
        return self.has_hparams() and any(map(all_steps, folders))

    def read_hparams(self) -> hparam.HParams:
        """Returns the hparams that the run was trained with."""
        path = files.regular(self.path / HPARAMS)
        try:
            kinds = hparam.field_types()
            values = checked_json.loads(path.read_bytes(), kinds)
            return hparam.HParams().replace(**values)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise errors.UserError(
                f"Expected a run's directory with {HPARAMS}. "
                f"Received: {self.path}."
            ) from error
        except ValueError as error:
            raise errors.UserError(f"{path}: {error}") from error

    def write_hparams(self, hparams: hparam.HParams) -> None:
        """Writes hparams.json."""
        self._write_json(HPARAMS, hparams.to_dict())

    def read_flags(self) -> dict[str, str]:
        """Returns the flags in flags.txt, by name; {} if there is no file."""
        path = self.path / FLAGS
        if not path.is_file():
            return {}
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = filter(None, text.split("\n"))
        pairs = (line.removeprefix("--").partition("=") for line in lines)
        return {name: value for name, _, value in pairs}

    def write_flags(self, text: str) -> None:
        """Writes flags.txt: the command line of the last start of training."""
        self._write(FLAGS, text.encode(errors="surrogateescape"))

    def write_versions(self, device: str = "") -> None:
        """Writes versions.json, with what trains."""
        self._write_json(VERSIONS, {**versions(), "device": device})

    def read_problem(self) -> dict[str, Any]:
        """Returns the fields of problem.json, which describe the run's data.

        Returns {} if there is no file, as in imported runs.

        Raises:
            UserError: the file is damaged.
        """
        with contextlib.suppress(FileNotFoundError):
            return checked_json.read(
                self.path / _PROBLEM,
                _PROBLEM_FIELDS,
                "Put the original back, or remove the file: the data of the "
                "run are then not compared.",
            )
        return {}

    def write_problem(self, problem: dict[str, Any]) -> None:
        """Writes problem.json, which describes the run's data."""
        self._write_json(_PROBLEM, problem)

    def longest_source(self) -> int:
        """Returns the most ids of a source in training, as far as known."""
        most = self.read_hparams().max_length
        return self.read_problem().get("longest_source", most)

    def copy_tokenizer(self, path: str | pathlib.Path) -> None:
        """Copies a tokenizer into the run.

        Raises:
            OSError: it cannot be read.
            UserError: the run is trained with another tokenizer.
        """
        content = files.regular(path).read_bytes()
        current = pathlib.Path(self.tokenizer_path)
        if current.is_file() and self.is_trained():
            if current.read_bytes() == content:
                return
            raise errors.UserError(
                f"The tokenizer {path} is not the one that the run "
                f"{self.path} was trained with. Prepare the data as before, "
                "or name another --output_dir."
            )
        current.unlink(missing_ok=True)  # it may be of the other kind
        is_subwords = pathlib.Path(path).suffix == pathlib.Path(SUBWORDS).suffix
        self._write(SUBWORDS if is_subwords else TOKENIZER, content)

    def append_metrics(self, event: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl, and removes an incomplete last one.

        Raises:
            OSError: the file cannot be written, or is a link.
        """
        with files.open_appending(self.path / METRICS) as file:
            file.seek(0)
            size = file.read().rfind(b"\n") + 1
            file.truncate(size)
            file.write(_line(event))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Returns the events of metrics.jsonl without an incomplete last line.

        Raises:
            UserError: a line is not an event.
        """
        path = self.path / METRICS
        if not path.is_file():
            return []
        events = []
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            try:
                events.append(checked_json.loads(line, _EVENT_FIELDS))
            except ValueError as error:
                raise errors.UserError(
                    f"{path}, line {number}, is damaged: {error} Remove the "
                    "line."
                ) from error
        return events

    def truncate(self, step: int) -> None:
        """Removes what a run that resumes at `step` repeats.

        These are the later events, marks and averages, and the mark of its end.
        """
        kept = [e for e in self.read_metrics() if e["step"] <= step]
        if (self.path / METRICS).exists():
            self._write(METRICS, b"".join(map(_line, kept)))
        for mark in _MARKS:
            marked = steps_of(self.path, mark)
            self.unmark(mark, [n for n in marked if n > step or mark == END])
        for n in (n for n in all_steps(self.path / AVERAGE) if n > step):
            remove_checkpoint(self.path / AVERAGE / f"ckpt-{n}")

    def mark(self, mark: str, step: int) -> None:
        """Marks the checkpoint of a step, which may come later.

        Args:
            mark: str. `EPOCH`, `STOP`, `BEST` or `END`.
            step: int. The step.
        """
        files.write(self.path / f"ckpt-{step}{mark}", b"")

    def unmark(self, mark: str, steps: Iterable[int]) -> None:
        """Removes the marks of some steps, those that are there."""
        for step in steps:
            (self.path / f"ckpt-{step}{mark}").unlink(missing_ok=True)

    def best(self) -> int | None:
        """Returns the step of the checkpoint that is kept as the best."""
        steps = steps_of(self.path, BEST) & steps_of(self.path, CHECKPOINT)
        return max(steps, default=None)

    def unfinished(self) -> str:
        """Returns a sentence if training has not come to its end, else "".

        An imported run, without flags.txt, has ended.
        """
        steps, flags = all_steps(self.path), self.read_flags()
        if not flags or not steps or steps[-1] in steps_of(self.path, END):
            return ""
        asked = flags.get("train_steps", "")
        hparams = self.read_hparams()
        total = asked.isdecimal() and int(asked) or hparams.train_steps
        is_averaged = steps[-1] in all_steps(self.path / AVERAGE)
        if steps[-1] >= total and (is_averaged or hparams.num_averaged < 2):
            return ""  # copied without the mark
        return (
            f"The run {self.path} has not ended: it has {steps[-1]:,} of "
            f"{total:,} updates, without the evaluation and the average of its "
            "end."
        )

    def _write_json(self, name: str, values: dict[str, Any]) -> None:
        self._write(name, (json.dumps(values, indent=2) + "\n").encode())

    def _write(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        files.write(self.path / name, content)


def remove_left_overs(directory: str | pathlib.Path) -> None:
    """Removes the incomplete files of a run that killed processes have left.

    Others in its folder may be the output of a decoder that is at work.
    """
    for path in pathlib.Path(directory).glob(f"*{files.PART}"):
        if not locks.is_locked(path):
            path.unlink(missing_ok=True)


def latest_run(root: str = "runs", flag: str = "--output_dir") -> pathlib.Path:
    """Returns the newest run in `root` that has a checkpoint.

    Args:
        root: str. A folder of runs, or of folders of runs.
        flag: str. What names a run, for the message.

    Raises:
        UserError: there is none.
    """
    saved = [
        (path.stat().st_mtime, run)
        for folders in ("*", "*/*")
        for run in pathlib.Path(root).glob(folders)
        if RunDir(run).is_trained()
        for path in run.rglob(f"ckpt-*{CHECKPOINT}")
    ]
    if not saved:
        raise errors.UserError(
            f"Expected a trained run in {root}/. Received: none. Train one "
            f"with relpos-trainer, or name one with {flag}."
        )
    return max(saved)[1]


def run_of(path: str | pathlib.Path) -> RunDir:
    """Returns the run that a directory or a checkpoint belongs to.

    An average of checkpoints lies in a folder inside its run.

    Raises:
        UserError: neither the path nor the two folders above it is a run.
    """
    path = pathlib.Path(path)
    for folder in (path, *list(path.parents)[:2]):
        run = RunDir(folder)
        if run.has_hparams():
            return run
    raise errors.UserError(
        "Expected a run's directory, which holds hparams.json, or a checkpoint "
        f"in one. Received: {path}."
    )


def changes_of_model(old: hparam.HParams, new: hparam.HParams) -> list[str]:
    """Returns the changes that weights do not allow, "name=old (now new)"."""
    of_model = {*hparam.model_fields()} - {"relative_attention_implementation"}
    if "emb" in (old.pos, old.decoder_pos):
        of_model |= {"max_length"}
    changes = hparam.changes(old, new)
    return [changes[name] for name in changes if name in of_model]


def check_same_architecture(
    old: hparam.HParams, new: hparam.HParams
) -> list[str]:
    """Compares the hparams of a run with those of its continuation.

    Returns:
        A line for each difference that the weights allow.

    Raises:
        UserError: the weights do not allow a difference; all are named.
    """
    changed = hparam.differences(old, new)
    if fatal := changes_of_model(old, new):
        raise errors.UserError(
            f"The run was trained with {', '.join(fatal)}. Resume with the "
            "same hparams, or name another --output_dir."
        )
    return [
        f"{name} was {a} in this run so far and is now {b}."
        for name, (a, b) in changed.items()
        if name != "train_steps"  # which --train_steps overrides
    ]


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that affect results.

    A package without its usual name, as in other builds of TensorFlow, is
    "not installed".
    """
    installed = {
        "python": platform.python_version(),
        "relpos_tf": relpos_tf.__version__,
        "relpos_tf commit": _commit(),
        "relpos_tf sources": registry.sources()[:16],
    }
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed


def _commit() -> str:
    """Returns the commit of the checkout that has this package, if one has."""
    root = pathlib.Path(relpos_tf.__file__).parents[1]
    command = ["git", f"--git-dir={root}/.git", f"--work-tree={root}"]
    command += ["describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.check_output(command, stderr=subprocess.DEVNULL)
        return found.decode().strip()
    return "unknown"


def checkpoint_step(prefix: str | pathlib.Path) -> int:
    """Returns the step in a checkpoint's name.

    Example:
    >>> checkpoint_step("runs/demo/ckpt-300")
    300
    """
    match = re.fullmatch(r"ckpt-(\d+)", pathlib.Path(prefix).name)
    if match is None:
        raise errors.UserError(
            f"Expected a checkpoint named ckpt-STEP. Received: {prefix}."
        )
    return int(match.group(1))


def all_steps(directory: str | pathlib.Path) -> list[int]:
    """Returns the steps of the checkpoints in a directory, ascending."""
    return sorted(steps_of(directory, CHECKPOINT))


def steps_of(directory: str | pathlib.Path, end: str) -> set[int]:
    """Returns the steps of the files `ckpt-STEP` with an end, as of a mark."""
    names = [p.stem for p in pathlib.Path(directory).glob(f"ckpt-*{end}")]
    return {int(n[5:]) for n in names if re.fullmatch(r"ckpt-\d+", n)}


def remove_checkpoint(prefix: str | pathlib.Path) -> None:
    """Removes the file of a checkpoint, and then its marks."""
    for end in (CHECKPOINT, f"{CHECKPOINT}.damaged", *_MARKS):
        pathlib.Path(f"{prefix}{end}").unlink(missing_ok=True)


def _line(event: dict[str, Any]) -> bytes:
    """Returns an event as a line of metrics.jsonl."""
    return json.dumps(event, ensure_ascii=False).encode() + b"\n"
