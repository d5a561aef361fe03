"""Schemes of positions from the flat dict of a test case."""

from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window

_SHAW = (
    "add_to_keys",
    "add_to_values",
    "heads_share",
    "implementation",
    "max_relative_position_right",
)
_SCORES = {
    "additive": additive.Additive,
    "feature_wise": additive.FeatureWise,
}
_SCHEMES = {
    "heads_window": head_window.HeadWindow,
    "window": window.Window,
    "direction": window.Direction,
    "localness": localness.Localness,
    "t5": bucketed.Bucketed,
    "alibi": alibi.Alibi,
    "rotary": rotary.Rotary,
}


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
