"""The interface of position schemes: the hooks that an attention layer calls.

A scheme is a plain object. `TransformerAttention` calls its hooks in this
order, for whole sequences, cached steps and the hypotheses of a beam search:

    transform   changes projected queries and keys                   rotary
    allowed     forbids pairs                             window, direction
    logits      computes the logits, by default q k^T  Shaw's keys, additive
    bias        adds to the logits              ALiBi, T5's bias, localness
    weights     turns logits into weights, by a softmax      window of heads
    output      computes the output, by default weights v     Shaw's values

At most one scheme of a layer computes logits, weights and output. Any number of
others transform, forbid and add.

Shapes: B batch, H heads, Q queries, K keys, L queries or keys, D depth per
head, F features.
"""

import inspect
from collections.abc import Iterable
from collections.abc import Mapping

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import masks
from relpos_tf.utils import saved_names


class Scheme:
    """Scaled dot-product attention without positions; base of all schemes.

    A subclass overrides the hooks it needs, and `get_config` if its
    constructor has arguments. `TransformerAttention` keeps a copy, so that one
    scheme can be passed to many layers. To load a saved layer, Keras must know
    the class: decorate it with `@keras.saving.register_keras_serializable()`.

    Attributes:
        computes: bool. Whether `logits`, `weights` or `output` is overridden.
        name: str. The name in messages.
        shared: bool. Whether all layers of a stack share the weights, which
            the first layer then has.
        first: None, or the scheme of the first layer, whose weights this one
            uses and does not build; see `share`.
    """

    computes = False
    name = "no positions"
    shared = False
    first = None

    def build(self, layer):
        """Adds weights to a `TransformerAttention`, by `layer.add_uniform`."""

    def weight_shapes(self, num_heads, depth):
        """Returns the shapes of the weights for H and D, without building.

        Returns:
            A dict of shapes by path below the attention layer.
        """
        del num_heads, depth
        return {}

    def scale(self, depth):
        """Returns the factor of the queries, for D = `depth`."""
        return depth**-0.5

    def transform(self, x, positions):
        """Returns queries or keys, changed by their positions.

        Args:
            x: `[B, H, L, D]` tensor of projected queries or keys.
            positions: int32 `[L]`, or `[1]` if all have one position.

        Returns:
            A `[B, H, L, D]` tensor.
        """
        del positions
        return x

    def allowed(self, pairs):
        """Returns the mask of the scheme, or None for all pairs.

        Args:
            pairs: `pairs.Sequence` or `pairs.OnePosition`.

        Returns:
            A bool tensor that broadcasts to `[B, H, Q, K]`.
        """
        del pairs

    def logits(self, q, keys_values, pairs):
        """Returns the logits, `[B, H, Q, K]` or what `weights` takes.

        Args:
            q: `[B, H, Q, D]` queries, multiplied with `scale`.
            keys_values: One of the classes of `caches`, of K positions.
            pairs: As in `allowed`.
        """
        del pairs
        return keys_values.dot(q)

    def bias(self, x, keys_values, pairs, allowed):
        """Returns a summand of the logits, or None.

        Args:
            x: `[B, Q, F]` tensor, the input of the layer.
            keys_values: As in `logits`.
            pairs: As in `allowed`.
            allowed: None or a bool tensor that broadcasts to `[B, H, Q, K]`:
                the masks of the caller and of all schemes, joined.

        Returns:
            A tensor that broadcasts to `[B, H, Q, K]`.
        """
        del x, keys_values, pairs, allowed

    def weights(self, logits, bias, dtype):
        """Returns the attention weights, `[B, H, Q, K]` or what `output` takes.

        Args:
            logits: The result of `logits`.
            bias: None or a tensor that broadcasts to `[B, H, Q, K]`: the masks
                and the summands of all schemes.
            dtype: The dtype of the result.
        """
        return masks.softmax(logits, bias, dtype)

    def weights_of_keys(self, weights):
        """Returns `[B, H, Q, K]`: the weights by the position of the key."""
        return weights

    def output(self, weights, keys_values, pairs, sums_to_one):
        """Returns the weighted values, `[B, H, Q, D]`.

        Args:
            weights: The result of `weights`, perhaps after dropout.
            keys_values: As in `logits`.
            pairs: As in `allowed`.
            sums_to_one: bool. Whether the weights of a query sum to 1: False
                after dropout.
        """
        del pairs, sums_to_one
        return tf.matmul(weights, keys_values.values)

    def tables(self):
        """Returns the vectors of clipped distances: `{"keys": variable}`."""
        return {}

    def numbers_per_pair(self, logits, num_heads, depth):
        """Returns how many numbers in memory a pair of positions needs.

        Args:
            logits: int or scalar tensor: the number of logits, B * H.
            num_heads: int, H.
            depth: int, D.
        """
        del num_heads, depth
        return logits

    def summary(self):
        """Returns a few words for the line that describes a model."""
        return self.name

    def why_not_ctranslate2(self):
        """Returns why CTranslate2 cannot compute the same, or None."""
        return f"it knows no {self.name} ({self.summary()})"

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {}

    @classmethod
    def from_config(cls, config):
        """Returns the scheme of a `get_config`."""
        return cls(**config)

    def copy(self):
        """Returns a scheme with the same arguments and without weights.

        Raises:
            UserError: the class has arguments and does not tell them.
        """
        kind = type(self)
        arguments = inspect.signature(kind).parameters
        if arguments and kind.get_config is Scheme.get_config:
            raise errors.UserError(
                "`get_config` must return the arguments of the constructor, "
                "because a layer keeps a copy: define it in the class. "
                f"Received: {kind.__name__}, without `get_config` and with "
                f"the arguments {', '.join(arguments)}."
            )
        return kind.from_config(self.get_config())


def copies(schemes):
    """Returns copies of schemes, as a tuple.

    Args:
        schemes: Sequence of `Scheme`, or of the dicts that `serialized` makes.

    Raises:
        UserError: another type, or several schemes that compute logits.
    """
    if isinstance(schemes, Scheme | Mapping | str) or not isinstance(
        schemes, Iterable
    ):
        raise errors.UserError(
            "`positions` must be a sequence of schemes of "
            "relpos_tf.layers.positions, such as [shaw.Shaw(16)]. Received: "
            f"{schemes!r}."
        )
    schemes = tuple(restored(one) for one in schemes)
    for one in schemes:
        if not isinstance(one, Scheme):
            raise errors.UserError(
                "`positions` must be a sequence of schemes of "
                f"relpos_tf.layers.positions. Received: {one!r}."
            )
    computing = [one.name for one in schemes if one.computes]
    if len(computing) > 1:
        raise errors.UserError(
            "At most one scheme of `positions` can compute the logits. "
            f"Received: {', '.join(computing)}."
        )
    return tuple(one.copy() for one in schemes)


def share(stack):
    """Has the layers of a stack share the weights of `shared` schemes.

    Args:
        stack: Sequence of the schemes of each layer, not built yet. The first
            layer has a scheme of each kind.
    """
    kinds = {type(one): one for one in stack[0] if one.shared}
    for layer in stack[1:]:
        for one in layer:
            one.first = kinds.get(type(one))


def serialized(schemes):
    """Returns schemes as dicts for a config; `copies` restores them."""
    return [
        {
            "class_name": keras.saving.get_registered_name(type(one)),
            "config": one.get_config(),
        }
        if isinstance(one, Scheme)
        else one
        for one in schemes
    ]


def restored(one):
    """Returns the scheme of a dict of `serialized`, or else the argument.

    Raises:
        UserError: no scheme of that name is registered with Keras.
    """
    if not isinstance(one, dict):
        return one
    kind = saved_names.loaded(
        keras.saving.get_registered_object(one.get("class_name"))
    )
    if not (isinstance(kind, type) and issubclass(kind, Scheme)):
        raise errors.UserError(
            "`positions` must name schemes that are registered with Keras: "
            "decorate the class with `@keras.saving."
            "register_keras_serializable()`, and import its module before. "
            f"Received: {one.get('class_name')!r}."
        )
    return kind.from_config(one["config"])
