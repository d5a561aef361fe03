"""The interface of position schemes: the hooks that an attention layer calls.

A scheme takes part by the hooks that it overrides:

    rotate    changes projected queries and keys                        rotary
    bias      adds to the logits; -1e9 forbids a pair
                               ALiBi, T5's bias, KERPLE, FIRE, windows,
                                                     direction, localness
    logits    adds a product with the queries to q k^T
                                              Shaw's keys, Transformer-XL
    output    adds a product with the weights to w v            Shaw's values
    attend    replaces products and softmax          scores of another kind

`attention.TransformerAttention` calls the hooks of all its schemes, for whole
sequences and for the steps of a search. One scheme at most may replace.

Arguments of hooks, where they are not explained: `x` `[B, Q, F]`, the input of
the queries; `q` `[B, H, Q, D]`, the queries, scaled by `D**-0.5`; `keys`
`[B, H, K, D]`; `logits` and `weights` `[B, H, Q, K]`; `pairs`, the positions
and masks of a `pairs.Pairs`.

Shapes: B batch, H heads, Q queries, K keys, L queries or keys, D depth per
head, F features.
"""

import copy
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import base
from relpos_tf.layers import pairs as pairs_lib


class Scheme:
    """Base of the schemes of positions.

    The hooks of this class change nothing; `attend` alone has no such default.
    A layer keeps a copy of a scheme and builds it. What the constructor makes
    is shared by the copies, as the table of `bucketed.Bucketed` is.

    To be loaded with a saved model, a subclass is decorated with
    `@keras.saving.register_keras_serializable()`, and keeps its arguments in
    attributes of their names, or defines `get_config`.
    """

    name = "positions"  # in messages

    def build(self, layer: keras.layers.Layer) -> None:
        """Adds weights to a `TransformerAttention`: `add_scheme_weight`."""

    def rotate(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Returns queries or keys `[B, H, L, D]`, changed by position `[L]`."""
        return x

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        """Returns a summand that broadcasts to the logits: `[B, H, Q, K]`.

        It is added in float32, or float64; what is below -1e9 counts as -1e9.
        """
        return tf.zeros([])

    def logits(
        self, logits: tf.Tensor, q: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        """Returns the logits, plus products with the queries."""
        return logits

    def output(
        self, weights: tf.Tensor, pairs: pairs_lib.Pairs, sums_to_one: bool
    ) -> tuple[tf.Tensor, tf.Tensor | float]:
        """Returns the weights and a summand of the weighted values.

        `sums_to_one` is True for weights of the layer's softmax: not after
        dropout, another scheme's `output`, or `attend`. The weights are for the
        product with the values, usually as they are; the summand broadcasts to
        `[B, H, Q, D]`.
        """
        return weights, 0.0

    def attend(
        self,
        layer: keras.layers.Layer,
        q: tf.Tensor,
        keys_values: pairs_lib.KeysValues,
        pairs: pairs_lib.Pairs,
        bias: tf.Tensor | None,
        training: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the output of all heads in place of the layer.

        `logits` and `weighted_values` of the layer call the hooks of all
        schemes. `bias` is None, or the sum of masks and biases. Returns
        `[B, H, Q, D]`, and the weights before dropout.
        """
        raise NotImplementedError("The base class replaces no attention.")

    @staticmethod
    def share(schemes: Sequence[Any], pairs: pairs_lib.Pairs) -> None:
        """Computes in `pairs.known` what the layers of a stack share.

        `schemes` are those of this class, which all get these pairs.
        """

    def overrides(self, hook: str) -> bool:
        """Returns whether the class has a hook of its own."""
        return getattr(type(self), hook) is not getattr(Scheme, hook)

    def summary(self) -> str:
        """Returns a few words for the line that describes a model."""
        return self.name

    def why_not_ctranslate2(self) -> str | None:
        """Returns why CTranslate2 cannot compute the same, or None."""
        return f"it knows no {self.summary()}"

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, see `base.arguments`."""
        return base.arguments(self, Scheme)


def share(layers: Iterable[keras.layers.Layer], pairs: pairs_lib.Pairs) -> None:
    """Computes in `pairs.known` what the layers of a stack share."""
    groups: dict[type[Scheme], list[Scheme]] = {}
    for layer in layers:
        for one in layer.positions:
            groups.setdefault(type(one), []).append(one)
    for kind, schemes in groups.items():
        kind.share(schemes, pairs)


def add_exact(
    layer: keras.layers.Layer, kind: str, **weights: tuple[Sequence[int], Any]
) -> list[keras.Variable]:
    """Adds variables of shapes and initializers, which autocast leaves out."""
    return [
        layer.add_scheme_weight(f"{kind}_{name}", *one, autocast=False)
        for name, one in weights.items()
    ]


def exact(variable: keras.Variable) -> tf.Tensor:
    """Returns a variable in the dtype of biases: float32, or float64."""
    return tf.cast(variable.value, pairs_lib.sum_dtype(variable.dtype))


def glorot_uniform(fans: int) -> keras.initializers.Initializer:
    """Returns Glorot's initializer of uniform values, for fan-in + fan-out."""
    limit = (6 / fans) ** 0.5
    return keras.initializers.RandomUniform(-limit, limit)


def copies(schemes: Iterable[Any]) -> tuple[Scheme, ...]:
    """Returns copies of schemes, or of the dicts that `serialized` makes."""
    is_sequence = isinstance(schemes, Iterable)
    is_sequence &= not isinstance(schemes, Mapping | str)
    restored = [restored_from(one) for one in schemes] if is_sequence else []
    if not is_sequence or not all(isinstance(s, Scheme) for s in restored):
        raise errors.UserError(
            "`positions` must be a sequence of schemes of "
            "relpos_tf.layers.positions, such as [shaw.Shaw(16)]. Received: "
            f"{schemes!r}."
        )
    replacing = [one.summary() for one in restored if one.overrides("attend")]
    if len(replacing) > 1:
        raise errors.UserError(
            "At most one scheme of `positions` can replace attention. "
            f"Received: {' and '.join(replacing)}."
        )
    return tuple(copy.copy(one) for one in restored)


def serialized(schemes: Iterable[Scheme]) -> list[dict[str, Any]]:
    """Returns schemes as dicts for a config; `copies` restores them."""
    return [
        {
            "class_name": keras.saving.get_registered_name(type(one)),
            "config": one.get_config(),
        }
        for one in schemes
    ]


def restored_from(one: Any) -> Any:
    """Returns the scheme of a dict of `serialized`, or else the argument."""
    if not isinstance(one, Mapping):
        return one
    kind = keras.saving.get_registered_object(one.get("class_name"))
    if not (isinstance(kind, type) and issubclass(kind, Scheme)):
        raise errors.UserError(
            "`positions` must name schemes that are registered with Keras: "
            "decorate the class with `@keras.saving."
            "register_keras_serializable()`, and import its module before. "
            f"Received: {one.get('class_name')!r}."
        )
    return kind(**one["config"])
