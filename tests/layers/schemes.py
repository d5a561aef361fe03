"""Schemes of positions from the flat dict of a test case."""

from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window

_SHAW = (
    "add_to_keys",
    "add_to_values",
    "heads_share",
    "implementation",
    "max_relative_position_right",
)

SCORES = {
    "additive": additive.Additive,
    "feature_wise": additive.FeatureWise,
}


def schemes(num_heads, **case):
    """Returns the `positions` of an attention.

    Args:
        num_heads: int.
        **case: Arguments of `shaw.Shaw`; `score`, a key of SCORES; `window`
            and `heads_window`, int; `direction`; `localness`, a kind, and
            `localness_window`.
    """
    result = []
    shaws = {name: case.pop(name) for name in _SHAW if name in case}
    if "max_relative_position" in case:
        result = [shaw.Shaw(case.pop("max_relative_position"), **shaws)]
    if "score" in case:
        result = [SCORES[case.pop("score")](*result)]
    if "heads_window" in case:
        result.append(head_window.HeadWindow(case.pop("heads_window")))
    if "window" in case:
        result.append(window.Window(case.pop("window")))
    direction = case.pop("direction", "both")
    if direction != "both":
        result.append(window.Direction(direction, num_heads))
    if "localness" in case:
        size = {}
        if "localness_window" in case:
            size = {"window": case.pop("localness_window")}
        result.append(localness.Localness(case.pop("localness"), **size))
    if case:
        raise ValueError(f"Unknown: {case}")
    return result
