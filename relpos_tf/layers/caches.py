"""What attention keeps of earlier positions.

Shapes: B batch, H heads, K keys, T target length, D depth per head.
"""

from typing import NamedTuple

import tensorflow as tf


class KeysValues(NamedTuple):
    """Projected keys and values of one attention, both `[B, H, K, D]`."""

    keys: tf.Tensor
    values: tf.Tensor


class GrowingCache(NamedTuple):
    """Keys and values of the positions so far, and of no others.

    Both tensors are `[B, H, T, D]`; T grows with every step.
    """

    keys: tf.Tensor
    values: tf.Tensor

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
