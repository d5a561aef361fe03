"""A learned bias of the logits for each bucket of distances, as in T5.

A bucket holds distances that share one number for each head. Of N buckets for
one direction, the first N/2 hold one distance each, 0 to N/2 - 1. The others
grow in geometric steps: the buckets N/2 to N - 1 begin at the distances

    n[m] = N/2 (L / (N/2))^(m / (N/2)),    m = 0, 1, ..., N/2 - 1

rounded up, and the last one holds everything beyond. L is the distance from
which all keys would share the last bucket in any case.

Shapes: H heads, Q queries, K keys, R buckets, S distances.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import by_distance
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class Bucketed(scheme.Scheme):
    """Adds a learned number for each head and bucket of distances.

        e[i, j] = q[i] . k[j] / sqrt(D) + b[h, bucket(j - i)]

    Layers that are given the same object share the table b, as T5's do. The
    first that is built owns it; Keras can save or clone no other one of them.

    Args:
        num_buckets: int, R, even and at least 4.
        max_distance: int. Keys at this distance or beyond share a bucket of
            each direction.
        bidirectional: bool. Whether half of the buckets are for keys after
            the query. Otherwise such keys have the bucket of distance 0.

    Raises:
        UserError: an odd number of buckets, or a `max_distance` that is among
            the distances with a bucket of their own.

    Reference:
        [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 2.1,
        and the released code.
    """

    name = "T5 bias"

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
    ):
        self.num_buckets = checks.integer("num_buckets", num_buckets, least=4)
        self.max_distance = checks.integer(
            "max_distance", max_distance, least=1
        )
        self.bidirectional = checks.flag("bidirectional", bidirectional)
        directions = 2 if bidirectional else 1
        if num_buckets % 2 or max_distance <= num_buckets // directions // 2:
            raise errors.UserError(
                "`num_buckets` must be even, and `max_distance` above the half "
                "of the buckets of a direction. Received: "
                f"num_buckets={num_buckets}, max_distance={max_distance}."
            )
        self._starts = bucket_starts(num_buckets // directions, max_distance)
        # "table": the bias of each bucket for each head, `[R, H]`.
        self.shared: dict[str, keras.Variable] = {}  # by all copies
        self._is_owner = True

    def build(self, layer: keras.layers.Layer) -> None:
        self._is_owner = not self.shared
        if self._is_owner:
            shape = self.num_buckets, layer.num_heads
            # Not in bfloat16, as the softmax is not.
            self.shared["table"] = layer.add_scheme_weight(
                "relative_attention_bias",
                shape,
                "glorot_uniform",
                autocast=False,
            )

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        distances = by_distance.distances(pairs)  # [S]
        ids = bucket_ids(distances, self._starts, self.bidirectional)
        table = self.shared["table"].value  # [R, H]
        # A product with one-hot rows has a dense gradient.
        one_hot = tf.one_hot(ids, self.num_buckets, dtype=table.dtype)
        numbers = tf.matmul(
            table, one_hot, transpose_a=True, transpose_b=True
        )  # [H, S]
        return by_distance.biases(numbers, pairs)  # [H, Q, K]

    def why_not_ctranslate2(self) -> str | None:
        return None

    def get_config(self) -> dict[str, Any]:
        if not self._is_owner:
            raise errors.UserError(
                "Layers that share a Bucketed cannot be saved or cloned by "
                "Keras: take `save_weights`, and the same code before "
                "`load_weights`, or give each layer a Bucketed of its own."
            )
        return super().get_config()


def bucket_starts(number: int, max_distance: int) -> list[int]:
    """Returns the smallest distance of each of N buckets of one direction.

    Example:
    >>> bucket_starts(16, 128)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    """
    exact = number // 2
    steps = np.arange(1, number - exact) / (number - exact)
    far = exact * (max_distance / exact) ** steps
    # Rounding may have raised an integer to slightly above it.
    return [*range(exact + 1), *np.ceil(far - 1e-9).astype(int).tolist()]


def bucket_ids(
    distances: tf.Tensor, starts: list[int], bidirectional: bool
) -> tf.Tensor:
    """Returns the bucket of each distance.

    Args:
        distances: int32 `[S]`: key positions minus query positions.
        starts: The result of `bucket_starts`.
        bidirectional: bool. Whether the buckets from `len(starts)` on are
            for positive distances.

    Example:
    >>> starts = bucket_starts(4, 8)  # 0, 1, 2 to 3, from 4 on
    >>> bucket_ids(tf.range(-5, 6), starts, True).numpy().tolist()
    [3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7]
    >>> bucket_ids(tf.range(-5, 2), starts, False).numpy().tolist()
    [3, 3, 2, 2, 1, 0, 0]
    """
    distances = tf.convert_to_tensor(distances)
    far = tf.abs(distances) if bidirectional else tf.maximum(-distances, 0)
    is_reached = far[:, tf.newaxis] >= tf.constant(starts[1:], far.dtype)
    ids = tf.reduce_sum(tf.cast(is_reached, tf.int32), -1)  # [S]
    if bidirectional:
        ids += len(starts) * tf.cast(distances > 0, tf.int32)
    return ids
