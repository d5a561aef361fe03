"""Projected keys and values, and what attention keeps of earlier positions.

Shapes: B batch, H heads, K keys, T target length, D depth per head, n
hypotheses of one source.
"""

from typing import NamedTuple

import tensorflow as tf


class KeysValues(NamedTuple):
    """Projected keys and values of one attention, both `[B, H, K, D]`."""

    keys: tf.Tensor
    values: tf.Tensor

    def dot(self, q):
        """Returns the products of `[B, H, Q, D]` with the keys."""
        return tf.matmul(q, self.keys, transpose_b=True)  # [B, H, Q, K]

    def rows(self):
        """Returns the keys as `[B, H, K, D]`."""
        return self.keys


class GrowingCache(NamedTuple):
    """Keys and values of the positions so far, and of no others.

    Both tensors are `[B, H, T, D]`; T grows with every step.
    """

    keys: tf.Tensor
    values: tf.Tensor

    dot = KeysValues.dot
    rows = KeysValues.rows

    def extend(self, keys, values, start):
        """Appends the keys and values of new positions."""
        del start  # the new positions follow the old ones
        return GrowingCache(
            tf.concat([self.keys, keys], 2), tf.concat([self.values, values], 2)
        )


class FixedCache(NamedTuple):
    """Places for a fixed number of positions, `[B, H, T, D]`.

    T never changes. Places not yet written hold zeros and must be masked, as
    a causal mask does.
    """

    keys: tf.Tensor
    values: tf.Tensor

    dot = KeysValues.dot
    rows = KeysValues.rows

    def extend(self, keys, values, start):
        """Writes the keys and values of positions `start` onwards."""
        length = tf.shape(self.keys)[2]
        new = tf.shape(keys)[2]
        place = tf.range(length)[:, tf.newaxis]  # [T, 1]
        written = (place >= start) & (place < start + new)

        def write(old, values):
            if values.shape[2] != 1:  # one position broadcasts instead
                end = length - start - new
                values = tf.pad(values, [[0, 0], [0, 0], [start, end], [0, 0]])
            return tf.where(written, values, old)

        return FixedCache(write(self.keys, keys), write(self.values, values))


class BeamKeysValues(NamedTuple):
    """Keys and values that all hypotheses of a source may choose from.

    Attributes:
        keys: `[B, H, D, K]`, transposed as the product with queries wants it.
        values: `[B, H, K, D]`.
    """

    keys: tf.Tensor
    values: tf.Tensor

    def dot(self, q):
        """Returns the products of `[B, H, n, D]` with the keys."""
        return tf.matmul(q, self.keys)  # [B, H, n, K]

    def rows(self):
        """Returns the keys as `[B, H, K, D]`."""
        return tf.transpose(self.keys, [0, 1, 3, 2])

    def extend(self, new):
        """Appends those of a step, n for each source."""
        return BeamKeysValues(
            tf.concat([self.keys, new.keys], 3),
            tf.concat([self.values, new.values], 2),
        )
