"""The files of a run, whatever is in its checkpoints. No TensorFlow."""

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
from relpos_tf.utils import faults
from relpos_tf.utils import files

HPARAMS = "hparams.json"
TOKENIZER = "tokenizer.model"
SUBWORDS = "tokenizer.subwords"  # in its place: tensor2tensor's vocabulary
METRICS = "metrics.jsonl"
_FLAGS = "flags.txt"
_VERSIONS = "versions.json"
_PROBLEM = "problem.json"
_STATE = "checkpoint"
# What is written whole or not at all.
_WRITTEN = (
    HPARAMS,
    TOKENIZER,
    SUBWORDS,
    METRICS,
    _FLAGS,
    _VERSIONS,
    _PROBLEM,
    _STATE,
    "ckpt-*.json",  # beside an average
)
# The fields of problem.json; runs of earlier versions have fewer.
_PROBLEM_FIELDS = {
    "problem": str,
    "tokenizer_sha256": str,
    "data": dict[str, str],
}
# Of an event in metrics.jsonl, where it has them.
_EVENT_FIELDS = {
    "step": int,
    "split": str,
    "averaged": int,
    **dict.fromkeys(
        (
            "loss",
            "steps_per_second",
            "tokens_per_second",
            "learning_rate",
            "target_tokens",
            "skipped_steps",
            "teacher_forced_accuracy",
            "bleu",
            "chrf",
            "exact_match",
        ),
        float,
    ),
    "peak_memory_mb": float | None,
}

# Fields that the shapes or the meaning of the weights depend on.
_ARCHITECTURE = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "filter_size",
        "num_heads",
        "num_hidden_layers",
        "num_encoder_layers",
        "num_decoder_layers",
        "pos",
        "self_attention_type",
        "max_relative_position",
        "add_relative_to_keys",
        "add_relative_to_values",
        "heads_share_relative_embedding",
        "attention_score",
        "attention_window",
        "encoder_attention_direction",
        "localness",
        "localness_window",
        "layer_preprocess_sequence",
        "layer_postprocess_sequence",
        "norm_epsilon",
        "shared_embedding",
        "shared_embedding_and_softmax_weights",
        "use_target_space_embedding",
        "target_space_id",
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
        path: str or path. Made when something is written.
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)

    @property
    def tokenizer_path(self) -> str:
        """Where the run's tokenizer lies."""
        path = self.path / SUBWORDS
        return str(path if path.is_file() else self.path / TOKENIZER)

    def has_hparams(self) -> bool:
        """Says whether this is a run's directory."""
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
        """Returns what flags.txt says, by name; nothing if it is not there."""
        path = self.path / _FLAGS
        if not path.is_file():
            return {}
        return parse_flags(path.read_text(encoding="utf-8", errors="replace"))

    def write_flags(self, text: str) -> None:
        """Writes flags.txt: the command line of the last start of training."""
        self._write(_FLAGS, text.encode(errors="surrogateescape"))

    def write_versions(self) -> None:
        """Writes versions.json."""
        self._write(_VERSIONS, _json(versions()))

    def read_problem(self) -> dict[str, Any]:
        """Returns the fields of problem.json: what the run learns.

        Imported runs have no such file, and the result is {}. In runs of
        earlier versions the file has fewer fields.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / _PROBLEM
        try:
            problem = checked_json.loads(path.read_bytes(), _PROBLEM_FIELDS)
            name = problem.get("problem", "")
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
        """Writes problem.json: what the run learns."""
        self._write(_PROBLEM, checked_json.dumps(problem).encode())

    def copy_tokenizer(self, path: str | pathlib.Path) -> None:
        """Takes the tokenizer into the run.

        Raises:
            UserError: it cannot be read, or the run has another one already.
        """
        try:
            content = pathlib.Path(path).read_bytes()
        except OSError as error:
            message = f"Cannot read the tokenizer {path}: {error.strerror}."
            raise errors.UserError(message) from error
        own = pathlib.Path(self.tokenizer_path)
        if own.is_file() and own.read_bytes() != content:
            raise errors.UserError(
                f"The tokenizer {path} is not the one that the run "
                f"{self.path} was trained with. Prepare the data as before, "
                "or name another --output_dir."
            )
        suffix = pathlib.Path(path).suffix
        self._write(
            SUBWORDS if suffix == pathlib.Path(SUBWORDS).suffix else TOKENIZER,
            content,
        )

    def make_folder(self, name: str) -> pathlib.Path:
        """Returns a folder in the run, made if need be.

        Raises:
            UserError: it is a link: the files elsewhere are not the run's.
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
        """Adds a line to metrics.jsonl, whole or, if killed, cut short.

        A line cut short by an earlier kill is removed first.

        Raises:
            UserError: it cannot be written, as on a full disk, or is a link.
        """
        path = self.path / METRICS
        line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
        with faults.writing(path):
            self.path.mkdir(parents=True, exist_ok=True)
            with files.open_appending(path) as file:
                size = file.seek(0, os.SEEK_END)
                if size:
                    file.seek(size - 1)
                    if file.read(1) != b"\n":
                        file.seek(0)
                        file.truncate(file.read().rfind(b"\n") + 1)
                file.seek(0, os.SEEK_END)
                file.write(line)

    def read_metrics(self) -> list[dict]:
        """Returns the events of metrics.jsonl; a line cut short is left out.

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
        """Drops the events after `step`, which are about to happen again."""
        kept = [e for e in self.read_metrics() if e["step"] <= step]
        if (self.path / METRICS).exists():
            lines = [json.dumps(e, ensure_ascii=False) + "\n" for e in kept]
            self._write(METRICS, "".join(lines).encode())

    def _write(self, name: str, content: bytes) -> None:
        with faults.writing(self.path / name):
            self.path.mkdir(parents=True, exist_ok=True)
            files.write(self.path / name, content)


def parse_flags(text: str) -> dict[str, str]:
    """Returns flags by name, of lines `--name=value`.

    Example:

    >>> parse_flags("--random_seed=3\\n--nodeterministic\\n")
    {'random_seed': '3', 'nodeterministic': ''}
    """
    lines = filter(None, text.split("\n"))
    pairs = (line.removeprefix("--").partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


def remove_left_overs(directory: str | pathlib.Path) -> None:
    """Removes the files that kills have left half-written."""
    for name in _WRITTEN:
        # Earlier versions wrote to .NAME.part.
        for pattern in (f"{name}{files.PART}", f".{name}.part"):
            for path in pathlib.Path(directory).glob(pattern):
                path.unlink()


def latest_run(root: str = "runs") -> pathlib.Path:
    """Returns the newest run in `root` that has a checkpoint.

    Raises:
        UserError: there is none.
    """
    found = []
    for pattern in ("*", "*/*"):
        for folder in pathlib.Path(root).glob(pattern):
            indices = list(folder.glob("ckpt-*.index"))
            if (folder / HPARAMS).is_file() and indices:
                found.append((max(i.stat().st_mtime for i in indices), folder))
    if not found:
        raise errors.UserError(
            f"Expected a trained run in {root}/. Received: none. Train one "
            "with trainer.py, or name one with --output_dir."
        )
    return max(found)[1]


def check_same_architecture(
    old: hparam.HParams, new: hparam.HParams
) -> list[str]:
    """Compares a run's hparams with those it is to go on with.

    Returns:
        A line for each difference that the weights survive.

    Raises:
        UserError: naming the differences that they do not.
    """
    changed = hparam.differences(old, new)
    matter = set(_ARCHITECTURE)
    if old.pos == "emb":
        matter.add("max_length")  # of the table of learned positions
    fatal = {n: v for n, v in changed.items() if n in matter}
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
    """Returns the versions of Python and of what the results depend on.

    What is not installed under its usual name is recorded as such: other
    builds of TensorFlow have other names.
    """
    found = {
        "python": platform.python_version(),
        "relpos_tf": relpos_tf.__version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


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


def remove_checkpoint(prefix: str) -> None:
    """Removes the files of a checkpoint; the index goes first."""
    pathlib.Path(f"{prefix}.index").unlink(missing_ok=True)
    folder, name = os.path.split(prefix)
    for path in pathlib.Path(folder).glob(f"{name}.*"):
        path.unlink()


def write_checkpoint_state(directory: pathlib.Path) -> None:
    """Writes `checkpoint`, where TensorFlow's own tools look."""
    names = [f"ckpt-{step}" for step in all_steps(directory)]
    lines = [f'all_model_checkpoint_paths: "{name}"\n' for name in names]
    lines.insert(0, f'model_checkpoint_path: "{names[-1]}"\n')
    RunDir(directory)._write(_STATE, "".join(lines).encode())


def _event(line: bytes) -> dict:
    """Returns the event that a line of metrics.jsonl holds."""
    event = checked_json.loads(line, _EVENT_FIELDS)
    needed = {"step", "split", "loss"}
    if event.get("split", "train") != "train":
        needed |= {"bleu"}
    if missing := sorted(needed - event.keys()):
        raise errors.UserError(
            f"expected an event with {', '.join(missing)}. "
            f"Received: {line[:40]!r}."
        )
    return event


def _json(value) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
