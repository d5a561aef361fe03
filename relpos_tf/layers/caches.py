"""Projected keys and values of the positions that queries attend to.

Shapes: B batch, H heads, K keys, T target length, D depth per head, n
hypotheses of one source.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf import errors


class KeysValues(NamedTuple):
    """Projected keys and values of one attention, both `[B, H, K, D]`."""

    keys: tf.Tensor
    values: tf.Tensor

    def dot(self, q):
        """Returns the products of `[B, H, Q, D]` with the keys."""
        return tf.matmul(q, self.keys, transpose_b=True)  # [B, H, Q, K]

    def key_rows(self):
        """Returns the keys as `[B, H, K, D]`."""
        return self.keys


class GrowingCache(NamedTuple):
    """Keys and values of the positions so far, both `[B, H, T, D]`.

    T grows with every step.
    """

    keys: tf.Tensor
    values: tf.Tensor

    dot = KeysValues.dot
    key_rows = KeysValues.key_rows

    def check_start(self, start, new):
        """Refuses `new` positions from `start` that do not follow the others.

        Sizes that only the graph knows are not checked.
        """
        del new
        start, length = tf.get_static_value(start), self.keys.shape[2]
        if start is not None and length is not None and start != length:
            raise errors.UserError(
                "`start` must be the number of positions in the cache, "
                f"{length}. Received: start={start}."
            )

    def extend(self, keys, values, start):
        """Appends the keys and values of new positions."""
        del start  # the new positions follow the old ones
        return GrowingCache(
            tf.concat([self.keys, keys], 2), tf.concat([self.values, values], 2)
        )


class FixedCache(NamedTuple):
    """Keys and values of a fixed number of positions, both `[B, H, T, D]`.

    Positions that are not written yet hold zeros and must be masked, as a
    causal mask does.
    """

    keys: tf.Tensor
    values: tf.Tensor

    dot = KeysValues.dot
    key_rows = KeysValues.key_rows

    def check_start(self, start, new):
        """Refuses `new` positions from `start` for which there is no room.

        Sizes that only the graph knows are not checked.
        """
        start, length = tf.get_static_value(start), self.keys.shape[2]
        if None not in (start, new, length) and start + new > length:
            raise errors.UserError(
                f"The cache has room for {length} positions: make it with a "
                f"larger `max_length`. Received: start={start}, {new} new "
                "positions."
            )

    def extend(self, keys, values, start):
        """Writes the keys and values of the positions from `start`."""
        length = tf.shape(self.keys)[2]
        new = tf.shape(keys)[2]
        position = tf.range(length)[:, tf.newaxis]  # [T, 1]
        is_new = (position >= start) & (position < start + new)

        def write(old, values):
            if values.shape[2] != 1:  # one position broadcasts instead
                end = length - start - new
                values = tf.pad(values, [[0, 0], [0, 0], [start, end], [0, 0]])
            return tf.where(is_new, values, old)

        return FixedCache(write(self.keys, keys), write(self.values, values))


class BeamKeysValues(NamedTuple):
    """Keys and values that the hypotheses of a source share.

    Attributes:
        keys: `[B, H, D, K]`, transposed for the product with queries.
        values: `[B, H, K, D]`.
    """

    keys: tf.Tensor
    values: tf.Tensor

    def dot(self, q):
        """Returns the products of `[B, H, n, D]` with the keys."""
        return tf.matmul(q, self.keys)  # [B, H, n, K]

    def key_rows(self):
        """Returns the keys as `[B, H, K, D]`."""
        return tf.transpose(self.keys, [0, 1, 3, 2])

    def extend(self, new):
        """Appends the keys and values of a step, n for each source."""
        return BeamKeysValues(
            tf.concat([self.keys, new.keys], 3),
            tf.concat([self.values, new.values], 2),
        )
