"""Loads the model and the tokenizer of a run."""

import pathlib

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer


def load_model(
    run_dir_or_checkpoint: str | pathlib.Path,
) -> transformer.Transformer:
    """Builds the model of a run and restores its weights.

    No code of the run's directory is executed.

    Args:
        run_dir_or_checkpoint: A run's directory, for the average of its end,
            else its newest checkpoint; `RUN/best`, the checkpoint of the best
            BLEU in training; or a checkpoint, as in `runs/mine/ckpt-1000`.

    Returns:
        The model. Its `hparams` are those it was trained with.

    Raises:
        UserError: there is no run or checkpoint, or the checkpoint is damaged
            or has other variables than the model.
    """
    prefix = checkpoints.resolve(run_dir_or_checkpoint)
    model = transformer.Transformer(run_dir.run_of(prefix).read_hparams())
    variables = {v.path: v.value for v in model.variables}
    checkpoints.restore_model(prefix, variables)
    return model


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
            f"The tokenizer {run.tokenizer_path} is damaged or not the run's: "
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
