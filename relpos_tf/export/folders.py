"""What the formats share: the model to export, and the folder of an export."""

import contextlib
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import export_files
from relpos_tf.decoding import model_engine
from relpos_tf.models import run_dir
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import text


def check(export_dir: str | pathlib.Path) -> pathlib.Path:
    """Returns the path of a folder that an export may be written to.

    Raises:
        UserError: the folder cannot be written, or holds something else.
    """
    folder = pathlib.Path(export_dir)
    known = []
    if (folder / export_files.EXPORT_INFO).is_file():
        info = export_files.read_info(folder)
        known = [export_files.EXPORT_INFO, *info["files"]]
    paths.check_replaceable(folder, known, "an earlier export")
    return folder


def load(
    run_dir_or_checkpoint: str | pathlib.Path, **search: Any
) -> tuple[model_engine.ModelEngine, decode_hparam.Completed]:
    """Loads a model to export.

    Args:
        run_dir_or_checkpoint: A run's directory, or a checkpoint.
        **search: Settings of the export, `decode_hparam.EXPORTED`. Default:
            the values of the run's hparams.

    Returns:
        The engine, and its settings without None.

    Raises:
        UserError: the run is not complete, or its model computes NaN.
    """
    fields.check_names(search, decode_hparam.EXPORTED, "options")
    engine = model_engine.load(run_dir_or_checkpoint)
    ids = tf.constant([[text.EOS_ID]])
    if not tf.reduce_all(tf.math.is_finite(engine.model(ids, ids))):
        raise errors.UserError(engines.nan_logits(engine.name))
    return engine, engine.complete(decode_hparam.DecodeHParams(**search))


@contextlib.contextmanager
def replacing(
    folder: pathlib.Path,
    engine: model_engine.ModelEngine,
    decode_hparams: decode_hparam.Completed,
    info: dict[str, Any],
    has_tokenizer: bool = True,
) -> Iterator[pathlib.Path]:
    """Yields a folder that replaces `folder`, whole or not at all.

    At the end of the block, it gets `export_info.json`, with the checksums of
    all other files.

    Args:
        folder: The folder to write.
        engine: The exported model and tokenizer.
        decode_hparams: The settings of the export.
        info: What the format alone says in `export_info.json`.
        has_tokenizer: bool. Whether the folder gets the tokenizer's file.
    """
    run = run_dir.run_of(engine.name)
    problem = run.read_problem()  # {} if it was imported
    description = {
        "versions": run_dir.versions() | info.pop("versions", {}),
        "decode_hparams": decode_hparams.search_settings(),
        "problem": problem.get("problem"),
        "source_language": problem.get("source_language"),
        "target_language": problem.get("target_language"),
        "tokenizer": pathlib.Path(run.tokenizer_path).name,
        "tokenizer_sha256": engine.tokenizer.fingerprint,
        "checkpoint": engine.name,
        "parameters": sum(math.prod(v.shape) for v in engine.model.variables),
        "hparams": engine.model.hparams.to_dict(),
        "longest_source": engine.longest_source,
        "max_positions": None,
        **info,
    }
    with files.replacing_folder(folder) as partial:
        yield partial
        if has_tokenizer:
            path = partial / description["tokenizer"]
            path.write_bytes(engine.tokenizer.model_bytes)
        description["files"] = export_files.file_checksums(partial)
        (partial / export_files.EXPORT_INFO).write_text(
            checked_json.dumps(description), encoding="utf-8"
        )
