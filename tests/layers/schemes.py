"""Attention with schemes of positions from the flat dict of a test case."""

import tensorflow as tf

from relpos_tf.layers import attention
from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import fire
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import kerple
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import transformer_xl
from relpos_tf.layers.positions import window
from tests import testing

_SHAW = (
    "add_to_keys add_to_values heads_share implementation "
    "max_relative_position_right"
).split()
_SCORES = {"additive": additive.Additive, "feature_wise": additive.FeatureWise}
_SCHEMES = {
    "heads_window": head_window.HeadWindow,
    "window": window.Window,
    "direction": window.Direction,
    "localness": localness.Localness,
    "t5": bucketed.Bucketed,
    "alibi": alibi.Alibi,
    "rotary": rotary.Rotary,
    "kerple": kerple.Kerple,
    "fire": fire.Fire,
    "transformer_xl": transformer_xl.TransformerXL,
}
_RELATIVE = {"max_relative_position": 2}
_SHARED = _RELATIVE | {"heads_share": True}
# Cases of every scheme, for attention of three heads.
KINDS = {
    "absolute": {},
    "per_head": _RELATIVE,
    "reshape": _RELATIVE | {"implementation": "reshape"},
    "gather": _RELATIVE | {"implementation": "gather"},
    "shared": _SHARED,
    "keys_only": _RELATIVE | {"add_to_values": False},
    "values_only": _RELATIVE | {"add_to_keys": False},
    "neither": _RELATIVE | {"add_to_keys": False, "add_to_values": False},
    "k0": {"max_relative_position": 0},
    "k_apart": {"max_relative_position": 3, "max_relative_position_right": 1},
    "k_before": {"max_relative_position": 1, "max_relative_position_right": 0},
    "k_after": {"max_relative_position": 0, "max_relative_position_right": 2},
    "fixed": {"localness": 3},
    "layer": {"localness": "layer"},
    "query": {"localness": "query"},
    "layer_relative": {"localness": "layer"} | _RELATIVE,
    "layer_window_split": {
        "localness": "layer",
        "window": 2,
        "direction": "split",
    },
    "window": {"window": 1},
    "window_relative": {"window": 3} | _SHARED,
    "forward": {"direction": "forward"} | _RELATIVE,
    "backward": {"direction": "backward"},
    "split_relative": {"direction": "split"} | _SHARED,
    "heads": {"heads_window": 5},
    "heads_relative": {"heads_window": 3, "window": 2} | _RELATIVE,
    "heads_localness": {"heads_window": 3, "localness": "layer"} | _SHARED,
    "additive": {"score": "additive"},
    "feature_wise": {"score": "feature_wise"},
    "feature_wise_relative": {"score": "feature_wise", "window": 2} | _RELATIVE,
    "feature_wise_shared": {"score": "feature_wise"} | _SHARED,
    "additive_relative": {"score": "additive"} | _RELATIVE,
    "additive_shared": {"score": "additive", "localness": "query"} | _SHARED,
    "alibi": {"alibi": ()},
    "rotary": {"rotary": ()},
    "kerple": {"kerple": ()},
    "fire": {"fire": ()},
    "transformer_xl": {"transformer_xl": ()},
    "t5": {"t5": (8, 5)},
}
# What a decoder may have: it sees no later position anyway.
CAUSAL = [kind for kind in KINDS if "direction" not in KINDS[kind]]


def schemes(**case):
    """Returns the `positions` of an attention.

    Args:
        **case: Arguments of `shaw.Shaw`; `score`, a key of _SCORES; and the
            arguments of the _SCHEMES, a tuple of them if there are several.
    """
    result = []
    shaws = {name: case.pop(name) for name in _SHAW if name in case}
    if "max_relative_position" in case:
        result = [shaw.Shaw(case.pop("max_relative_position"), **shaws)]
    if "score" in case:
        result = [_SCORES[case.pop("score")](*result)]
    for name, arguments in case.items():
        is_tuple = isinstance(arguments, tuple)
        result.append(_SCHEMES[name](*(arguments if is_tuple else [arguments])))
    return result


def made(size, heads, *positions, **arguments):
    """Returns a `TransformerAttention` whose weights all differ from 0."""
    layer = attention.TransformerAttention(
        size, heads, positions=positions, **arguments
    )
    layer.build((None, None, size))
    return testing.randomize(layer)


def floats(seed, *shape):
    """Returns normal numbers, float32."""
    return tf.constant(testing.normal(seed, *shape), tf.float32)
