"""Small models of every variant, and a batch for them.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, R rows of a relative table.
"""

import contextlib
import functools
import resource

import numpy as np
import tensorflow as tf

from relpos_tf.models import transformer
from tests import testing

V = 23
_SINUSOIDS = "self_attention_type=dot_product,pos=timing"
# What each has instead of `testing.HPARAMS`.
VARIANTS = {
    "per_head": "",
    "shared": "heads_share_relative_embedding=true",
    "keys_only": "add_relative_to_values=false",
    "absolute": _SINUSOIDS,
    "relative_and_absolute": "pos=timing",
    # Shorter than the targets: the later positions share a vector.
    "learned": "self_attention_type=dot_product,pos=emb,max_length=4",
    "higher_decoder": "num_decoder_layers=3",
    "untied": "shared_embedding=false,"
    "shared_embedding_and_softmax_weights=false",
    "pre_norm": "layer_preprocess_sequence=n,layer_postprocess_sequence=da",
    "target_space": "use_target_space_embedding=true,target_space_id=9",
    "reshape": "relative_attention_implementation=reshape",
    "gather": "relative_attention_implementation=gather,"
    "heads_share_relative_embedding=true",
    # In the encoder, in all layers of both stacks, and in one layer.
    "localness_fixed": f"{_SINUSOIDS},localness=fixed,localness_window=3",
    "localness_layer": "localness=layer,localness_layers=0,attention_window=2",
    "localness_query": "localness=query,localness_layers=1",
    # Buckets from 0, 1, 2 and 4 on in each direction of the encoder.
    "t5_bias": "self_attention_type=dot_product_relative_bias,"
    "relative_attention_num_buckets=8,relative_attention_max_distance=6",
    "alibi": "self_attention_type=dot_product_alibi",
    "rotary": "self_attention_type=dot_product_rotary",
    "kerple": "self_attention_type=dot_product_kerple",
    "fire": "self_attention_type=dot_product_fire",
    "transformer_xl": "self_attention_type=dot_product_transformer_xl",
    # k of 3 before and 1 after a query; in the decoder 1 before it.
    "k_apart": "max_relative_position=3,max_relative_position_right=1,"
    "decoder_max_relative_position=1",
    "k_after": "max_relative_position=0,max_relative_position_right=2,"
    "decoder_max_relative_position=2,heads_share_relative_embedding=true",
    "relative_encoder": "decoder_self_attention_type=dot_product,"
    "decoder_pos=timing",
    "relative_decoder": "self_attention_type=dot_product,pos=emb,max_length=4,"
    "decoder_self_attention_type=dot_product_relative,decoder_pos=none",
    "no_decoder_positions": f"{_SINUSOIDS},decoder_pos=none",
    # In all layers of both stacks, and in one layer of two.
    "window": f"{_SINUSOIDS},attention_window=1",
    "convolutional": "attention_window=1,attention_window_layers=1",
}
INPUTS = np.array([[5, 7, 11, 3, 1], [13, 2, 1, 0, 0], [22, 1, 0, 0, 0]])
TARGETS = np.array(
    [[4, 9, 1, 0, 0, 0, 0], [6, 6, 8, 20, 3, 9, 1], [17, 2, 12, 5, 1, 0, 0]]
)
BATCH = tf.constant(INPUTS, tf.int32), tf.constant(TARGETS, tf.int32)


def small(name, **changes):
    return testing.HPARAMS.override(VARIANTS[name]).replace(**changes)


@contextlib.contextmanager
def files_up_to(size):
    """Lets no file grow beyond so many bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@functools.cache
def made(name, **arguments):
    """Returns a model with weights that depend on the variant alone.

    Tests share the model, and must not change it.
    """
    return testing.randomize(transformer.Transformer(small(name), **arguments))


@functools.cache
def logits(name):
    """Returns the logits of the batch, which tests share."""
    return made(name)(*BATCH)
