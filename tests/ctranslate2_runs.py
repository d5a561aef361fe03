"""Runs of random models that CTranslate2 can translate with, and exports.

They lie in the folder of tests/tiny_run.py and go when it goes.
"""

import functools
import tempfile
import unittest

import tensorflow as tf

import relpos_tf
from relpos_tf import errors
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.export import ctranslate2_export
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from tests import tiny_run

LINES = (
    *("twenty-one days", "", "Where is the station?", " \t"),
    "It is raining, and it will rain tomorrow as well. " * 3,
    *("a\u2028b", "twenty-one days", "7", "WHERE IS THE STATION?"),
)
ABSOLUTE = {"self_attention_type": "dot_product", "pos": "timing"}
PRE_NORM = {
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
}


def skip_without_library(package=ctranslate2_engine.package):
    """Skips the tests of a module where CTranslate2 is not installed."""
    try:
        package()
    except errors.UserError as error:
        raise unittest.SkipTest(str(error)) from error


@functools.cache
def run_of(seed=3, padding=1.0, **changes):
    """Makes a run of a random model that CTranslate2 can run.

    The logit of padding, id 0, is multiplied by `padding`.
    """
    run = run_dir.RunDir(tempfile.mkdtemp(dir=tiny_run.path()))
    run.copy_tokenizer(tiny_run.path() / "tokenizer.model")
    hparams = run_dir.RunDir(tiny_run.path()).read_hparams()
    hparams = hparams.replace(
        num_hidden_layers=2, pos="none", heads_share_relative_embedding=True
    )
    hparams = hparams.replace(**changes)
    model = tiny_run.random_model(hparams, seed)
    table = model.softmax_embedding.embeddings.value
    table.assign(tf.concat([padding * table[:1], table[1:]], 0))
    manager = checkpoints.CheckpointManager(
        run.path, {"model": {v.path: v.value for v in model.variables}}
    )
    manager.save(7)
    run.write_hparams(hparams)
    return run.path


@functools.cache
def export_of(quantization="none", **changes):
    run = run_of(**changes)
    return ctranslate2_export.export_ctranslate2(
        run, run / quantization, quantization=quantization
    )


@functools.cache
def ours(**changes):
    """Returns the run's own translator, which is slow to make."""
    return relpos_tf.Translator.load(run_of(**changes))
