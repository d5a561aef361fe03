"""Converts a model directory of tensor2tensor into a run's directory.

A model directory holds checkpoints in the format of TensorFlow 1,
`hparams.json`, and sometimes the vocabulary. The run holds all files that
relpos-decoder, relpos-export and `relpos-trainer --warm_start_from` need, and a
record of the import.
"""

import json
import os
import pathlib
import re
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import t2t_subwords
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.t2t import t2t_hparams
from relpos_tf.t2t import t2t_variables
from relpos_tf.utils import files
from relpos_tf.utils import paths

RECORD = "t2t_import.json"
# The errors of a damaged or missing checkpoint of TensorFlow.
_UNREADABLE = (tf.errors.OpError, OSError, ValueError, RuntimeError, IndexError)


class Imported(NamedTuple):
    """The result of an import.

    Attributes:
        hparams: `hparam.HParams` of the run.
        checkpoint: str. The prefix of the checkpoint.
        used: {our variable: [variables of the checkpoint, shards in order]}.
        ignored: list of the other variables of the checkpoint.
        notes: list of str. Warnings for the user.
        has_vocabulary: bool. Whether the run has a tokenizer.
    """

    hparams: hparam.HParams
    checkpoint: str
    used: dict[str, list[str]]
    ignored: list[str]
    notes: list[str]
    has_vocabulary: bool


def import_run(
    t2t_dir: str | pathlib.Path,
    output_dir: str | pathlib.Path,
    *,
    checkpoint: str | None = None,
    vocab_file: str | None = None,
    target_space_id: int = 0,
) -> Imported:
    """Writes a run's directory, whole or not at all.

    Args:
        t2t_dir: A model directory of tensor2tensor, with hparams.json.
        output_dir: The run to write. An earlier import there is replaced.
        checkpoint: The checkpoint to read, as `find_checkpoint` takes it.
        vocab_file: The subword vocabulary. None: `vocab*` or `*.subwords` in
            `t2t_dir`, or in the data_dir in the flags of its training.
        target_space_id: int. The target space of the problem: 0 in all
            translation problems since tensor2tensor 1.10.

    Raises:
        UserError: a file is missing, of another kind, or does not fit; the
            message names it.
    """
    t2t_dir, output_dir = pathlib.Path(t2t_dir), pathlib.Path(output_dir)
    known = [path.name for path in output_dir.glob("ckpt-*.npz")]
    known += [RECORD, run_dir.SUBWORDS, run_dir.VERSIONS, run_dir.HPARAMS]
    known *= (output_dir / RECORD).is_file()
    paths.check_replaceable(output_dir, known, "an earlier import")
    t2t = t2t_hparams.read(t2t_dir / "hparams.json")
    prefix = find_checkpoint(t2t_dir, checkpoint)
    reader = open_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    scope, ignored = t2t_variables.model_scope(shapes)
    hparams, notes = t2t_hparams.translate(
        t2t, t2t_variables.vocab_size(shapes, scope), target_space_id
    )
    vocabulary = find_vocabulary(
        t2t_dir, vocab_file, t2t, hparams.vocab_size, notes
    )
    model = transformer.Transformer(hparams)
    variables = {v.path: tuple(v.shape) for v in model.variables}
    used = t2t_variables.names_of(variables, hparams, shapes)
    t2t_variables.check_fit(variables, used, shapes, ignored)
    try:
        values = {
            path: np.concatenate(
                [reader.get_tensor(name) for name in used[path]]
            ).astype(np.float32)
            for path in variables
        }
    except _UNREADABLE as error:
        raise errors.UserError(f"Cannot read {prefix}: {error}.") from error
    result = Imported(hparams, prefix, used, ignored, notes, bool(vocabulary))
    step = read_step(reader, prefix)
    with files.replacing_folder(output_dir) as partial:
        _write(partial, result, values, vocabulary, step)
    return result


def find_checkpoint(t2t_dir: pathlib.Path, checkpoint: str | None) -> str:
    """Returns the prefix of the checkpoint to read.

    Args:
        t2t_dir: The model directory.
        checkpoint: A prefix, which may be relative to `t2t_dir`; or a folder;
            or None for `t2t_dir`. In a folder, the checkpoint with the highest
            step is read, or without steps the last one of the state file.

    Raises:
        UserError: there is no checkpoint.
    """
    if checkpoint and not os.path.isdir(checkpoint):
        prefix = checkpoint.removesuffix(".index")
        inside = str(t2t_dir / prefix)
        there = os.path.isfile(f"{inside}.index")
        return inside if there and not os.path.exists(prefix) else prefix
    folder = pathlib.Path(checkpoint or t2t_dir)
    paths.check_name(folder)
    prefixes = {}  # by step
    for path in folder.glob("model.ckpt-*.index"):
        if match := re.fullmatch(r"model\.ckpt-(\d+)\.index", path.name):
            prefixes[int(match[1])] = str(path).removesuffix(".index")
    if prefixes:
        return prefixes[max(prefixes)]
    last = tf.train.latest_checkpoint(str(folder))
    if not last:
        raise errors.UserError(
            "Expected a checkpoint model.ckpt-STEP.index of tensor2tensor. "
            f"Received: {folder}, which has none."
        )
    return last


def open_checkpoint(prefix: str) -> Any:
    """Returns a reader of a TensorFlow 1 checkpoint.

    Raises:
        UserError: it is missing or damaged.
    """
    paths.check_name(prefix)
    try:
        return tf.train.load_checkpoint(str(prefix))
    except _UNREADABLE as error:
        raise errors.UserError(
            "Expected the prefix of a checkpoint, as in model.ckpt-250000. "
            f"Received: {prefix}, which cannot be read: {error}."
        ) from error


def find_vocabulary(
    t2t_dir: pathlib.Path, vocab_file: str | None, t2t, vocab_size, notes
) -> bytes | None:
    """Returns the vocabulary file of a model, one line for each id.

    Args:
        t2t_dir: The model directory.
        vocab_file: A path, or None to look for the file.
        t2t: The hparams of tensor2tensor.
        vocab_size: int. The rows of the embeddings.
        notes: list of str. The reasons against other files are added to it.

    Returns:
        The file's content, or None if `vocab_file` is None and no file fits.

    Raises:
        UserError: `vocab_file` is not a subword vocabulary of this size, or
            several different files fit.
    """
    if vocab_file:
        return _read_vocabulary(pathlib.Path(vocab_file), t2t, vocab_size)
    reasons = []
    for folder in filter(None, (t2t_dir, _data_dir(t2t_dir))):
        fitting = {}
        for path in sorted(
            {*folder.glob("vocab*"), *folder.glob("*.subwords")}
        ):
            try:
                fitting[path] = _read_vocabulary(path, t2t, vocab_size)
            except errors.UserError as error:
                reasons.append(str(error))
        if len(set(fitting.values())) > 1:
            raise errors.UserError(
                f"Several vocabularies have the right size: "
                f"{checkpoints.abridged(list(map(str, fitting)))}. "
                "Name one with --vocab_file."
            )
        if fitting:
            return next(iter(fitting.values()))
    notes.extend(reasons)
    return None


def read_step(reader, prefix: str) -> int:
    """Returns the number of updates of a checkpoint."""
    if reader.has_tensor("global_step"):
        return int(reader.get_tensor("global_step"))
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else 0


def _write(folder, result, values, vocabulary, step) -> None:
    """Writes the files of the run."""
    run = run_dir.RunDir(folder)
    checkpoints.write_model(str(folder / f"ckpt-{step}"), values, step)
    if vocabulary:
        (folder / run_dir.SUBWORDS).write_bytes(vocabulary)
    run.write_versions()
    record = {
        "checkpoint": result.checkpoint,
        "step": step,
        "used": result.used,
        "ignored": result.ignored,
        "notes": result.notes,
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    run.write_hparams(result.hparams)


def _read_vocabulary(path: pathlib.Path, t2t, vocab_size: int) -> bytes:
    """Returns a vocabulary file with a line for every row of the embeddings.

    If `vocab_divisor` rounded up the number of rows, the last rows have no
    piece in the file, and empty pieces are added.
    """
    size = t2t_subwords.SubwordTokenizer(path).vocab_size
    missing = vocab_size - size
    if missing != -size % (t2t.get("vocab_divisor") or 1):
        raise errors.UserError(
            f"Expected a vocabulary of {vocab_size} subwords, as the "
            f"embeddings have rows. Received: {path} of {size}."
        )
    content = path.read_bytes()
    end = b"" if content.endswith(b"\n") else b"\n"
    return content + (end + b"''\n" * missing if missing else b"")


def _data_dir(t2t_dir: pathlib.Path) -> pathlib.Path | None:
    """Returns the data_dir of the flags of a model directory, if it exists.

    The trainer of tensor2tensor writes its flags to flags.txt and
    flags_t2t.txt.
    """
    for name in ("flags.txt", "flags_t2t.txt"):
        path = t2t_dir / name
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
        if match := re.search(r"^--data_dir=(.+)$", text, re.MULTILINE):
            folder = os.path.expanduser(match[1].strip().strip("'\""))
            if os.path.isdir(folder):
                return pathlib.Path(folder)
    return None
