"""The files of a run, except the content of checkpoints. No TensorFlow."""

import importlib.metadata
import json
import os
import pathlib
import platform
import re
from typing import Any

import relpos_tf
from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import system_errors

HPARAMS = "hparams.json"
TOKENIZER = "tokenizer.model"
SUBWORDS = "tokenizer.subwords"  # instead, for a tensor2tensor vocabulary
METRICS = "metrics.jsonl"
_FLAGS = "flags.txt"
VERSIONS = "versions.json"
_PROBLEM = "problem.json"
_SHARING = "sharing.json"
_STATE = "checkpoint"
# After a checkpoint's name: it is the end of an epoch; only a stop saved it.
_EPOCH, _STOP = ".epoch", ".stop"
# The files that are written whole or not at all.
_WRITTEN = (
    HPARAMS,
    TOKENIZER,
    SUBWORDS,
    METRICS,
    _FLAGS,
    VERSIONS,
    _PROBLEM,
    _SHARING,
    _STATE,
    "ckpt-*.json",  # beside an average
    "ckpt-*.epoch",  # beside the checkpoint at the end of an epoch
    "ckpt-*.stop",  # beside a checkpoint that only a stop has saved
)
# The fields of problem.json.
_PROBLEM_FIELDS = {
    "problem": str,
    "source_language": str,
    "target_language": str,
    "tokenizer_sha256": str,
    "data": dict[str, str],
    # Ids per word, and the share of byte pieces: `data.tokenizer.Fit`.
    "vocabulary_fit": list[float],
}
# The fields of sharing.json.
_SHARING_FIELDS = {"jobs": int, "cores": int, "gpus": int}
# The fields of an event in metrics.jsonl. Each event has the first ones, those
# of training or of an evaluation have more.
_ALWAYS = "step", "split", "loss"
_OF_TRAINING = (
    "steps_per_second",
    "tokens_per_second",
    "target_tokens",
    "peak_memory_mb",
)
_OF_EVALUATION = ("bleu",)
_EVENT_FIELDS = {
    "step": int,
    "split": str,
    "averaged": int,
    "loss": float,
    "steps_per_second": float,
    "tokens_per_second": float,
    "learning_rate": float,
    "target_tokens": float,
    "skipped_steps": float,
    "teacher_forced_accuracy": float,
    "bleu": float,
    "chrf": float,
    "exact_match": float,
    "peak_memory_mb": float | None,
}
# The hparams that may change when a run is resumed. The shapes or the meaning
# of the weights depend on all others.
_MAY_CHANGE = frozenset(
    {
        "activation_dtype",
        "alpha",
        "attention_dropout",
        "average_checkpoints",
        "average_epochs",
        "batch_size",
        "beam_size",
        "bpe_dropout",
        "clip_grad_norm",
        "extra_length",
        "label_smoothing",
        "layer_prepostprocess_dropout",
        "learning_rate",
        "learning_rate_constant",
        "learning_rate_schedule",
        "learning_rate_warmup_steps",
        "length_bucket_step",
        "max_length",  # unless it is the length of learned positions
        "min_length_bucket",
        "moving_average_decay",
        "optimizer",
        "optimizer_adam_beta1",
        "optimizer_adam_beta2",
        "optimizer_adam_epsilon",
        "optimizer_multistep_accumulate_steps",
        "pair_concatenation",
        "r_drop_alpha",
        "relative_attention_implementation",
        "relu_dropout",
        "symbol_dropout",
        "train_steps",
        "weight_decay",
    }
)
_PACKAGES = (
    "tensorflow",
    "keras",
    "tensorflow-text",
    "sentencepiece",
    "sacrebleu",
    "numpy",
)


class RunDir:
    """A run's directory.

    Args:
        path: str or path. Created when something is written.
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

    def read_hparams(self) -> hparam.HParams:
        """Returns the hparams that the run was trained with."""
        path = self.path / HPARAMS
        try:
            values = checked_json.loads(path.read_bytes())
            return hparam.HParams.from_json(json.dumps(values))
        except OSError as error:
            raise errors.UserError(
                f"Expected a run's directory with {HPARAMS}. "
                f"Received: {self.path}."
            ) from error
        except ValueError as error:
            raise errors.UserError(f"{path} is damaged: {error}") from error

    def write_hparams(self, hparams: hparam.HParams) -> None:
        """Writes hparams.json."""
        values = json.loads(hparams.to_json())
        self._write(HPARAMS, checked_json.dumps(values).encode())

    def read_flags(self) -> dict[str, str]:
        """Returns the flags in flags.txt, by name; {} if there is no file."""
        path = self.path / _FLAGS
        if not path.is_file():
            return {}
        return parse_flags(path.read_text(encoding="utf-8", errors="replace"))

    def write_flags(self, text: str) -> None:
        """Writes flags.txt: the command line of the last start of training."""
        self._write(_FLAGS, text.encode(errors="surrogateescape"))

    def write_versions(self) -> None:
        """Writes versions.json."""
        text = json.dumps(versions(), indent=2) + "\n"
        self._write(VERSIONS, text.encode())

    def read_problem(self) -> dict[str, Any]:
        """Returns the fields of problem.json, which describe the run's data.

        Returns {} if there is no file, as in imported runs.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / _PROBLEM
        try:
            problem = checked_json.loads(
                path.read_bytes(), _PROBLEM_FIELDS, _PROBLEM_FIELDS
            )
            name = problem["problem"]
            if pathlib.PurePath(name).name != name:
                raise errors.UserError(
                    "expected the name of a problem, which is no path. "
                    f"Received: {name!r}."
                )
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise errors.UserError(
                f"{path} is damaged: {error} Put the original back, or remove "
                "the file: the data of the run are then not compared."
            ) from error
        return problem

    def write_problem(self, problem: dict) -> None:
        """Writes problem.json, which describes the run's data."""
        self._write(_PROBLEM, checked_json.dumps(problem).encode())

    def read_sharing(self) -> dict[str, int] | None:
        """Returns how many runs shared the machine with this one, if any did.

        Returns:
            dict of `jobs`, the runs at once, this one included, and of the
            `cores` and `gpus` that they shared; None if it was alone.
        """
        path = self.path / _SHARING
        try:
            record = checked_json.loads(
                path.read_bytes(), _SHARING_FIELDS, _SHARING_FIELDS
            )
        except (FileNotFoundError, ValueError):
            return None
        return {name: record[name] for name in _SHARING_FIELDS}

    def write_sharing(self, sharing: dict[str, int]) -> None:
        """Writes sharing.json; of two records, the one with more jobs stays."""
        before = self.read_sharing()
        if before is None or before["jobs"] < sharing["jobs"]:
            self._write(_SHARING, checked_json.dumps(sharing).encode())

    def copy_tokenizer(self, path: str | pathlib.Path) -> None:
        """Copies a tokenizer into the run.

        Raises:
            UserError: it cannot be read, or the run has another tokenizer.
        """
        try:
            content = pathlib.Path(path).read_bytes()
        except OSError as error:
            message = f"Cannot read the tokenizer {path}: {error.strerror}."
            raise errors.UserError(message) from error
        current = pathlib.Path(self.tokenizer_path)
        if current.is_file():
            if current.read_bytes() == content:
                return
            raise errors.UserError(
                f"The tokenizer {path} is not the one that the run "
                f"{self.path} was trained with. Prepare the data as before, "
                "or name another --output_dir."
            )
        is_subwords = pathlib.Path(path).suffix == pathlib.Path(SUBWORDS).suffix
        self._write(SUBWORDS if is_subwords else TOKENIZER, content)

    def make_folder(self, name: str) -> pathlib.Path:
        """Creates a folder in the run if it is missing, and returns its path.

        Raises:
            UserError: it is a link to a folder outside the run.
        """
        folder = self.path / name
        if folder.is_symlink():
            raise errors.UserError(
                f"Expected a folder of the run. Received: {folder}, a link to "
                f"{os.path.realpath(folder)}. Remove the link, or put the "
                "folder in its place."
            )
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def append_metrics(self, event: dict) -> None:
        """Appends a line to metrics.jsonl.

        A kill may leave an incomplete line; it is removed first.

        Raises:
            UserError: the file cannot be written, or is a link.
        """
        path = self.path / METRICS
        with system_errors.writing(path):
            self.path.mkdir(parents=True, exist_ok=True)
            with files.open_appending(path) as file:
                size = file.seek(0, os.SEEK_END)
                if size:
                    file.seek(size - 1)
                    if file.read(1) != b"\n":
                        file.seek(0)
                        file.truncate(file.read().rfind(b"\n") + 1)
                file.seek(0, os.SEEK_END)
                file.write(_line(event))

    def read_metrics(self) -> list[dict]:
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
                events.append(_event(line))
            except ValueError as error:
                raise errors.UserError(
                    f"{path}, line {number}, is damaged: {error} Remove the "
                    "line."
                ) from error
        return events

    def truncate_metrics(self, step: int) -> None:
        """Removes the events after `step`: a resumed run repeats them."""
        kept = [e for e in self.read_metrics() if e["step"] <= step]
        if (self.path / METRICS).exists():
            self._write(METRICS, b"".join(map(_line, kept)))

    def mark_epoch_end(self, step: int, epochs: int) -> None:
        """Marks a checkpoint as the last one of an epoch of the data.

        Args:
            step: int. The step of the checkpoint.
            epochs: int. The number of epochs that have ended.
        """
        self._write(f"ckpt-{step}{_EPOCH}", f"{epochs}\n".encode())

    def truncate_epoch_ends(self, step: int) -> None:
        """Removes the marks of epochs that end after `step`."""
        for marked in _marked_steps(self.path, _EPOCH):
            if marked > step:
                (self.path / f"ckpt-{marked}{_EPOCH}").unlink()

    def mark_stop(self, step: int) -> None:
        """Marks the checkpoint of a step, which only a stop saves."""
        self._write(f"ckpt-{step}{_STOP}", b"")

    def unmark_stop(self, step: int) -> None:
        """Removes the mark of `mark_stop`, if there is one."""
        (self.path / f"ckpt-{step}{_STOP}").unlink(missing_ok=True)

    def _write(self, name: str, content: bytes) -> None:
        with system_errors.writing(self.path / name):
            self.path.mkdir(parents=True, exist_ok=True)
            files.write(self.path / name, content)


def parse_flags(text: str) -> dict[str, str]:
    """Parses lines `--name=value`; returns the values by name.

    Example:

    >>> parse_flags("--random_seed=3\\n--nodeterministic\\n")
    {'random_seed': '3', 'nodeterministic': ''}
    """
    lines = filter(None, text.split("\n"))
    pairs = (line.removeprefix("--").partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


def remove_left_overs(directory: str | pathlib.Path) -> None:
    """Removes the incomplete files that a kill left."""
    for name in _WRITTEN:
        for path in pathlib.Path(directory).glob(f"{name}{files.PART}"):
            path.unlink()


def latest_run(root: str = "runs", flag: str = "--output_dir") -> pathlib.Path:
    """Returns the newest run in `root` that has a checkpoint.

    Args:
        root: str. A folder of runs, or of folders of runs.
        flag: str. What names a run, for the message.

    Raises:
        UserError: there is none.
    """
    runs = []  # pairs (time of the newest checkpoint, folder)
    for pattern in ("*", "*/*"):
        for folder in pathlib.Path(root).glob(pattern):
            indices = list(folder.glob("ckpt-*.index"))
            if (folder / HPARAMS).is_file() and indices:
                runs.append((max(i.stat().st_mtime for i in indices), folder))
    if not runs:
        raise errors.UserError(
            f"Expected a trained run in {root}/. Received: none. Train one "
            f"with relpos-trainer, or name one with {flag}."
        )
    return max(runs)[1]


def run_of(path: str | pathlib.Path) -> RunDir:
    """Returns the run that a directory or a checkpoint belongs to.

    An average of checkpoints lies in a folder of its own inside its run.

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


def tokenizer_path_of(run_dir_or_checkpoint: str | pathlib.Path) -> str | None:
    """Returns the path of a run's tokenizer, or None if there is none."""
    try:
        path = run_of(run_dir_or_checkpoint).tokenizer_path
    except errors.UserError:
        return None
    return path if pathlib.Path(path).is_file() else None


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
    allowed = _MAY_CHANGE - ({"max_length"} if old.pos == "emb" else set())
    fatal = {n: v for n, v in changed.items() if n not in allowed}
    if fatal:
        listed = ", ".join(f"{n}={a} (now {b})" for n, (a, b) in fatal.items())
        raise errors.UserError(
            f"The run was trained with {listed}. Go on with the same hparams, "
            "or name another --output_dir."
        )
    return [
        f"{name} was {a} in this run so far and is now {b}."
        for name, (a, b) in changed.items()
    ]


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that affect results.

    A package without its usual name, as in other builds of TensorFlow, is
    "not installed".
    """
    installed = {
        "python": platform.python_version(),
        "relpos_tf": relpos_tf.__version__,
    }
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed


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
    names = [path.stem for path in pathlib.Path(directory).glob("ckpt-*.index")]
    return sorted(int(n[5:]) for n in names if re.fullmatch(r"ckpt-\d+", n))


def epoch_ends(directory: str | pathlib.Path) -> list[int]:
    """Returns the steps of the checkpoints at the ends of epochs, ascending.

    Runs have them while `average_epochs` is set.
    """
    return sorted(_marked_steps(directory, _EPOCH) & set(all_steps(directory)))


def stops(directory: str | pathlib.Path) -> set[int]:
    """Returns the steps of the checkpoints that only a stop has saved."""
    return _marked_steps(directory, _STOP)


def regular_steps(directory: str | pathlib.Path) -> list[int]:
    """Returns the steps that a run that never stopped would have, ascending.

    They are those of all checkpoints except `stops`. The newest is among them
    in any case: the run may end there.
    """
    steps, stopped = all_steps(directory), stops(directory)
    return [n for n in steps if n not in stopped or n == steps[-1]]


def _marked_steps(directory: str | pathlib.Path, mark: str) -> set[int]:
    names = [p.stem for p in pathlib.Path(directory).glob(f"ckpt-*{mark}")]
    return {int(n[5:]) for n in names if re.fullmatch(r"ckpt-\d+", n)}


def remove_checkpoint(prefix: str) -> None:
    """Removes the files of a checkpoint; the index goes first."""
    pathlib.Path(f"{prefix}.index").unlink(missing_ok=True)
    folder, name = os.path.split(prefix)
    for path in pathlib.Path(folder).glob(f"{name}.*"):
        path.unlink()


def write_checkpoint_state(directory: pathlib.Path) -> None:
    """Writes the state file `checkpoint`, which TensorFlow's tools read."""
    names = [f"ckpt-{step}" for step in all_steps(directory)]
    lines = [f'all_model_checkpoint_paths: "{name}"\n' for name in names]
    lines.insert(0, f'model_checkpoint_path: "{names[-1]}"\n')
    RunDir(directory)._write(_STATE, "".join(lines).encode())


def _event(line: bytes) -> dict:
    """Parses a line of metrics.jsonl."""
    event = checked_json.loads(line, _EVENT_FIELDS, _ALWAYS)
    more = _OF_TRAINING if event["split"] == "train" else _OF_EVALUATION
    checked_json.check(event, {}, more)
    return event


def _line(event: dict) -> bytes:
    """Returns an event as a line of metrics.jsonl."""
    return json.dumps(event, ensure_ascii=False).encode() + b"\n"
