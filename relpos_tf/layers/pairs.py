"""The pairs of queries and keys: positions, masks, and a cache of the keys.

Shapes: B batch, H heads, Q queries, K keys, T positions so far, D depth per
head.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf import errors

NEGATIVE = -1e9  # the logit of a forbidden pair; T2T's value


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Queries at consecutive positions, keys at the positions 0 to K - 1.

    `start`, of the first query, is explicit where a fixed cache has room behind
    the queries.
    """

    queries: int | tf.Tensor  # Q
    keys: int | tf.Tensor  # K
    start: int | tf.Tensor | None = None  # None: the queries are the last keys
    may_attend: tf.Tensor | None = None  # bool, broadcasts to [B, H, Q, K]
    causal: bool = False  # whether later keys are forbidden
    # What was computed for them: the layers of a stack may share their pairs.
    known: dict = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Returns the result of the first `compute` with this key.

        New pairs are made in each call, so a result stays in its graph.
        """
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    @property
    def only_causal(self) -> bool:
        """Whether every query has a key, and none of a later position."""
        return self.causal and self.may_attend is None

    def first(self) -> int | tf.Tensor:
        """Returns the position of the first query."""
        return self.keys - self.queries if self.start is None else self.start

    def distances(self) -> tf.Tensor:
        """Returns key positions minus query positions: int32 `[Q, K]`."""
        queries = self.first() + tf.range(self.queries)
        return tf.range(self.keys) - queries[:, tf.newaxis]

    def mask(self) -> tf.Tensor | None:
        """Returns `may_attend` and the causal mask, joined; None: no mask."""
        is_last = self.start is None and tf.get_static_value(self.queries) == 1
        if not self.causal or is_last:  # no key is after the last one
            return self.may_attend
        return join(self.may_attend, self.distances() <= 0)

    def bias(self) -> tf.Tensor | None:
        """Returns the mask as a summand of the logits."""

        def compute():
            mask = self.mask()
            return None if mask is None else to_bias(mask)

        return self.once("bias", compute)

    def of_queries(self, start: tf.Tensor, end: tf.Tensor) -> "Pairs":
        """Returns the pairs of the queries `start` to `end` - 1, from 0."""
        mask = self.may_attend
        if mask is not None and mask.shape.rank > 1 and mask.shape[-2] != 1:
            is_one = tf.shape(mask)[-2] == 1  # the same for all queries
            first, last = tf.where(is_one, 0, start), tf.where(is_one, 1, end)
            mask = mask[..., first:last, :]
        return Pairs(
            end - start, self.keys, self.first() + start, mask, self.causal
        )


def join(one: tf.Tensor | None, other: tf.Tensor | None) -> tf.Tensor | None:
    """Returns the conjunction of two masks; None stands for True."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def to_bias(mask: tf.Tensor) -> tf.Tensor:
    """Returns 0 where a mask allows attention, -1e9 where not: float32."""
    return tf.where(mask, 0.0, NEGATIVE)


def softmax(
    logits: tf.Tensor, bias: tf.Tensor | None, dtype: Any, axis: int = -1
) -> tf.Tensor:
    """Returns the softmax of logits plus a bias, in a dtype; see `add_bias`."""
    return tf.cast(tf.nn.softmax(add_bias(logits, bias), axis), dtype)


def add_bias(logits: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """Returns logits plus a bias that fits: float32, or float64 in float64."""
    logits = tf.cast(logits, sum_dtype(logits.dtype))
    return logits if bias is None else logits + tf.cast(bias, logits.dtype)


def finite(bias: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Returns a bias of logits in a dtype, with -1e9 for anything below."""
    # A softmax of -inf alone is NaN; so much is -1e9 in float16.
    return tf.maximum(tf.cast(bias, sum_dtype(dtype)), NEGATIVE)


def sum_dtype(dtype: Any) -> tf.DType:
    """Returns the dtype of logits and biases for layers of a dtype."""
    return tf.float64 if dtype == "float64" else tf.float32


def size(tensor: tf.Tensor, axis: int) -> int | tf.Tensor:
    """Returns the size of an axis: an int if the graph knows it."""
    static = tensor.shape[axis]
    return tf.shape(tensor)[axis] if static is None else static


class KeysValues(NamedTuple):
    """Keys and values `[B, H, K, D]` of a memory, or a growing cache."""

    keys: tf.Tensor
    values: tf.Tensor

    def extend(self, new: "KeysValues", start: int | tf.Tensor) -> "KeysValues":
        """Returns the cache with new positions, which follow the others."""
        del start
        return KeysValues(
            tf.concat([self.keys, new.keys], 2),
            tf.concat([self.values, new.values], 2),
        )


class FixedCache(KeysValues):
    """Keys and values `[B, H, T, D]`, zeros behind the positions so far.

    A causal mask hides the zeros.
    """

    def extend(self, new: KeysValues, start: int | tf.Tensor) -> "FixedCache":
        """Returns the cache with new positions, from `start` on."""
        room, number = size(self.keys, 2), size(new.keys, 2)
        known = tf.get_static_value(start), number, room
        is_known = not any(n is None or tf.is_tensor(n) for n in known)
        if is_known and known[0] + number > room:
            raise errors.UserError(
                f"The cache has room for {room} positions: make it with a "
                f"larger `max_length`. Received: start={known[0]}, "
                f"{number} new positions."
            )
        position = tf.range(room)[:, tf.newaxis]  # [T, 1]
        is_new = (position >= start) & (position < start + number)

        def write(old, new):
            if new.shape[2] != 1:  # one position broadcasts instead
                around = [start, room - start - number]
                new = tf.pad(new, [[0, 0], [0, 0], around, [0, 0]])
            return tf.where(is_new, new, old)

        return FixedCache(
            write(self.keys, new.keys), write(self.values, new.values)
        )
