"""Schemes of positions from the flat dict of a test case."""

from relpos_tf.layers.positions import additive
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


def schemes(num_heads, **case):
    """Returns the `positions` of an attention.

    Args:
        num_heads: int.
        **case: Arguments of `shaw.Shaw`; `score`, "additive"; `window`, int;
            `direction`; `localness`, a kind, and `localness_window`.
    """
    result = []
    shaws = {name: case.pop(name) for name in _SHAW if name in case}
    if "max_relative_position" in case:
        result = [shaw.Shaw(case.pop("max_relative_position"), **shaws)]
    if case.pop("score", None) == "additive":
        result = [additive.Additive(*result)]
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
