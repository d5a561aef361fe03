"""Loads the model and the tokenizer of a run."""

import itertools
import pathlib

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import shapes
from relpos_tf.models import transformer
from relpos_tf.utils import forks


def load_model(
    run_dir_or_checkpoint: str | pathlib.Path,
) -> transformer.Transformer:
    """Builds the model of a run and restores its weights.

    Args:
        run_dir_or_checkpoint: A run's directory, for its newest checkpoint,
            or the prefix of a checkpoint, as in `runs/mine/ckpt-1000`.

    Returns:
        The model. Its `hparams` are those it was trained with.

    Raises:
        UserError: there is no run or checkpoint, or the checkpoint has other
            variables than the model, or this process was forked from one
            that had loaded a model.
    """
    forks.check()
    prefix = checkpoints.resolve(run_dir_or_checkpoint)
    hparams = run_dir.run_of(prefix).read_hparams()
    check_fit(prefix, hparams)
    model = transformer.Transformer(hparams)
    checkpoints.restore_model(
        prefix, {v.path: v.value for v in model.variables}
    )
    return model


def check_fit(prefix: str, hparams: hparam.HParams) -> None:
    """Compares the shapes that hparams announce with a checkpoint.

    No model is built: hparams from elsewhere could announce one larger than
    the memory.

    Args:
        prefix: str. The checkpoint.
        hparams: The hparams of its run.

    Raises:
        UserError: the checkpoint is of another model, or damaged.
    """
    found = checkpoints.model_shapes(prefix)
    announced = dict(itertools.islice(shapes.of_model(hparams), len(found) + 1))
    if len(announced) > len(found):  # not all, but one of these is missing
        found = {path: found[path] for path in announced.keys() & found.keys()}
    checkpoints.check_shapes(prefix, announced, found)


def load_tokenizer(
    run_dir_or_checkpoint: str | pathlib.Path,
) -> tokenizer_lib.AnyTokenizer:
    """Reads the tokenizer of a run.

    Raises:
        UserError: there is no run, or its tokenizer is missing, damaged or
            not the model's.
    """
    run = run_dir.run_of(run_dir_or_checkpoint)
    tokenizer = tokenizer_lib.load(run.tokenizer_path)
    known = run.read_problem().get("tokenizer_sha256", tokenizer.fingerprint)
    if tokenizer.fingerprint != known:
        raise errors.UserError(
            f"The tokenizer {run.tokenizer_path} is damaged or another one: "
            f"expected sha256 {known[:8]}... Received: "
            f"{tokenizer.fingerprint[:8]}... Put the original file back."
        )
    expected = run.read_hparams().vocab_size
    if tokenizer.vocab_size != expected:
        raise errors.UserError(
            f"Expected a tokenizer of {expected} pieces, as the model of "
            f"{run.path} was trained with. Received: {run.tokenizer_path} of "
            f"{tokenizer.vocab_size}. Put the original file back."
        )
    return tokenizer
