"""A run's directory with a small model of random weights.

Its translations are random pieces and bytes of many lengths.
"""

import atexit
import functools
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer

TEXT = (
    "The train leaves at seven.",
    "Der Zug fährt um sieben Uhr ab.",
    "twenty-one days",
    "einundzwanzig Tage",
    "Where is the station?",
    "Wo ist der Bahnhof?",
    "It is raining, and it will rain tomorrow as well.",
    "Es regnet, und es wird auch morgen regnen.",
)
HPARAMS = hparam.HParams(
    hidden_size=16,
    filter_size=29,
    num_heads=2,
    num_hidden_layers=2,
    pos="timing",
    # A tied model of random weights repeats one piece.
    shared_embedding_and_softmax_weights=False,
    self_attention_type="dot_product_relative",
    max_relative_position=3,
    beam_size=3,
    alpha=0.6,
    extra_length=7,
)
# The fields of problem.json, for a run of no data.
PROBLEM = {
    "problem": "pairs",
    "source_language": "",
    "target_language": "",
    "tokenizer_sha256": "",
    "data": {},
    "vocabulary_fit": [1.0, 0.0],
    "longest_source": 64,
}


def random_model(hparams: hparam.HParams, seed: int = 54):
    """Returns a model whose outputs vary in length."""
    keras.utils.set_random_seed(seed)
    model = transformer.Transformer(hparams)
    for variable in model.variables:
        # Vectors of zeros or ones would hide mistakes.
        variable.assign_add(
            tf.random.stateless_normal(variable.shape, [seed, 1], stddev=0.05)
        )
    embeddings = model.softmax_embedding.embeddings.value
    scale = 1.0 + 7.0 * tf.one_hot(1, hparams.vocab_size)  # EOS now and then
    embeddings.assign(embeddings * scale[:, tf.newaxis])
    return model


@functools.cache
def path(num_hidden_layers: int = 1) -> pathlib.Path:
    """Makes the run, once in a process, and returns its directory.

    Every layer more takes time wherever a graph of the model is built.
    """
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tiny_run."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pieces.learn(pieces.count_words(TEXT * 5), folder / "made.model", 340)
    run = run_dir.RunDir(folder / "run")
    run.copy_tokenizer(folder / "made.model")
    tokens = tokenizer.Tokenizer(run.tokenizer_path)
    hparams = HPARAMS.replace(
        vocab_size=tokens.vocab_size, num_hidden_layers=num_hidden_layers
    )
    model = random_model(hparams)
    manager = checkpoints.CheckpointManager(
        run.path, {"model": {v.path: v.value for v in model.variables}}
    )
    manager.save(7)
    run.write_hparams(hparams)
    return run.path
