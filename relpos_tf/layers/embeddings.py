"""Token embeddings, the softmax that shares them, absolute positions.

Shapes: B batch, L length, V vocabulary, F features.
"""

import math
from typing import Any

import keras
import tensorflow as tf

from relpos_tf.layers import base
from relpos_tf.layers import checks
from relpos_tf.layers import dropout


def timing_signal(
    positions: tf.Tensor, channels: int, max_timescale: float = 1.0e4
) -> tf.Tensor:
    """Returns the sinusoids of Vaswani et al. (2017), section 3.5.

    The first half of the channels are sines, the second half cosines, with
    wavelengths from 2 pi to `max_timescale` times 2 pi. The paper interleaves
    them; this is tensor2tensor's order.

    Args:
        positions: float or integer tensor `[L]` or `[B, L]`; the first
            position is 0.
        channels: int, F. An odd last channel is zero.
        max_timescale: float.

    Returns:
        A float32 `[L, F]` or `[B, L, F]` tensor.

    Example:
    >>> timing_signal(tf.constant([0]), 4).numpy().tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    scales = channels // 2
    increment = math.log(max_timescale) / max(scales - 1, 1)
    inverse = tf.exp(-increment * tf.range(scales, dtype=tf.float32))
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * inverse
    signal = tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)
    paddings = [[0, 0]] * (signal.shape.rank - 1) + [[0, channels % 2]]
    return tf.pad(signal, paddings)


def shifted_positions(
    batch: int | tf.Tensor, length: int | tf.Tensor, max_shift: int
) -> tf.Tensor:
    """Returns the positions of sequences that begin at random ones.

    The shift of each sequence is drawn from 0, 1, ..., `max_shift`, all equally
    likely. In the training step it is a function of `dropout.seed_scope`.

    Args:
        batch: int or int32 scalar, B.
        length: int or int32 scalar, L.
        max_shift: int, at least 0.

    Returns:
        An int32 `[B, L]` tensor.

    Example:
    >>> shifted_positions(2, 3, max_shift=0).numpy().tolist()
    [[0, 1, 2], [0, 1, 2]]

    Reference:
        [Kiyono et al., 2021](https://arxiv.org/abs/2109.05644), section 3.
    """
    shifts = tf.random.stateless_uniform(
        [batch, 1],
        dropout.next_seed(),
        minval=0,
        maxval=max_shift + 1,
        dtype=tf.int32,
    )
    return shifts + tf.range(length)  # [B, L]


@keras.saving.register_keras_serializable(package="relpos_tf")
class TokenEmbedding(base.Layer):
    """A vector for each id, and with the same table a logit for each id.

    The vectors of ids are multiplied by `sqrt(F)`; the table of the logits is
    not. Id 0 (padding, and the start of a target) has the zero vector.

    Args:
        vocab_size: int, V.
        hidden_size: int, F.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        ids: `[B, L]` integer tensor.

    Returns:
        A `[B, L, F]` tensor in the layer's compute dtype.

    Example:
    >>> embedding = TokenEmbedding(vocab_size=7, hidden_size=4)
    >>> embedding(tf.constant([[0, 3]])).numpy()[0, 0].tolist()
    [0.0, 0.0, 0.0, 0.0]

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4.
    """

    def __init__(self, vocab_size: int, hidden_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.vocab_size = checks.integer("vocab_size", vocab_size, least=1)
        self.hidden_size = checks.integer("hidden_size", hidden_size, least=1)

    def build(self, ids_shape: tuple) -> None:
        self.embeddings = self.add_weight(
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(
                stddev=self.hidden_size**-0.5
            ),
            name="embeddings",
        )

    def compute_output_shape(self, *shapes: Any) -> Any:
        return (*shapes[0], self.hidden_size)

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        checks.ids("ids", ids)
        return self.look_up(ids, self.table())

    def table(self) -> tf.Tensor:
        """Returns the table, `[V, F]`; TensorFlow copies it at each call."""
        return tf.cast(self.embeddings.value, self.compute_dtype)

    def look_up(self, ids: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """Returns the call's result, with a `table` read before."""
        vectors = tf.gather(table, ids) * self.hidden_size**0.5  # [B, L, F]
        is_token = tf.not_equal(ids, 0)[..., tf.newaxis]  # [B, L, 1]
        return tf.where(is_token, vectors, tf.zeros([], vectors.dtype))

    def logits(
        self, features: tf.Tensor, transposed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Multiplies `[B, L, F]` with the table: `[B, L, V]`, float32.

        Many steps may share the `transposed` table, `[F, V]`.
        """
        rows = tf.reshape(features, [-1, self.hidden_size])  # [B * L, F]
        if transposed is None:
            logits = tf.matmul(rows, self.table(), transpose_b=True)
        else:
            logits = tf.matmul(rows, transposed)
        shape = tf.concat([tf.shape(features)[:-1], [self.vocab_size]], 0)
        return tf.cast(tf.reshape(logits, shape), tf.float32)


@keras.saving.register_keras_serializable(package="relpos_tf")
class TargetSpaceEmbedding(base.Layer):
    """Adds the vector of the kind of output at every position.

    tensor2tensor numbers kinds of output, such as German subwords. All of its
    translation problems have number 0, so their models learn one vector.

    Args:
        space_id: int, in [0, `spaces`).
        spaces: int. Rows of the table.
        hidden_size: int, F.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, L, F]` tensor, embedded tokens.

    Returns:
        A `[B, L, F]` tensor in the layer's compute dtype.

    Example:
    >>> tuple(TargetSpaceEmbedding(0, 32, 4)(tf.ones([2, 3, 4])).shape)
    (2, 3, 4)

    Reference:
        tensor2tensor 1.15.7, `transformer_prepare_encoder`.
    """

    def __init__(
        self, space_id: int, spaces: int, hidden_size: int, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.space_id = checks.integer("space_id", space_id, least=0)
        self.spaces = checks.integer("spaces", spaces, least=1)
        self.hidden_size = checks.integer("hidden_size", hidden_size, least=1)

    def build(self, x_shape: tuple) -> None:
        self.embeddings = self.add_weight(
            shape=(self.spaces, self.hidden_size),
            initializer="glorot_uniform",
            name="embeddings",
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        vector = self.embeddings.value[self.space_id]  # [F]
        return x + tf.cast(vector, self.compute_dtype)


@keras.saving.register_keras_serializable(package="relpos_tf")
class LearnedPositions(base.Layer):
    """A learned vector for each absolute position.

    Args:
        max_length: int. Later positions share the last vector.
        hidden_size: int, F.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        positions: `[L]` integer tensor, counted from 0.

    Returns:
        A `[L, F]` tensor in the layer's compute dtype.

    Example:
    >>> tuple(LearnedPositions(16, 4)(tf.range(3)).shape)
    (3, 4)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), table 3 (E).
    """

    def __init__(self, max_length: int, hidden_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_length = checks.integer("max_length", max_length, least=1)
        self.hidden_size = checks.integer("hidden_size", hidden_size, least=1)

    def build(self, positions_shape: tuple) -> None:
        self.embeddings = self.add_weight(
            shape=(self.max_length, self.hidden_size),
            initializer="glorot_uniform",
            name="embeddings",
        )

    def compute_output_shape(self, *shapes: Any) -> Any:
        return (*shapes[0], self.hidden_size)

    def call(self, positions: tf.Tensor) -> tf.Tensor:
        checks.ids("positions", positions)
        # A product with one-hot rows has a dense gradient, in which any
        # optimizer finds the sum for the shared last position.
        rows = tf.minimum(positions, self.max_length - 1)
        one_hot = tf.one_hot(rows, self.max_length, dtype=self.compute_dtype)
        table = tf.cast(self.embeddings.value, self.compute_dtype)
        return tf.matmul(one_hot, table)  # [L, F]
