"""Blocks of the encoder and the decoder.

Shapes: B batch, S source length, T target length, F features.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import attention
from relpos_tf.layers import dropout


@keras.saving.register_keras_serializable(package="relpos_tf")
class FeedForward(keras.layers.Layer):
    """Two linear maps with a ReLU between them, for each position alone.

    Args:
        filter_size: int. Size of the inner layer.
        hidden_size: int, F.
        relu_dropout: float. Fraction of the inner layer to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, L, F]` tensor.
        training: bool.

    Returns:
        A `[B, L, F]` tensor in the layer's compute dtype.

    Example:

    >>> tuple(FeedForward(filter_size=16, hidden_size=4)(tf.ones([2, 3, 4])).shape)
    (2, 3, 4)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3.
    """

    def __init__(
        self,
        filter_size: int,
        hidden_size: int,
        relu_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filter_size = filter_size
        self.hidden_size = hidden_size
        self.relu_dropout = relu_dropout
        self.conv1 = keras.layers.Dense(
            filter_size,
            activation="relu",
            dtype=self.dtype_policy,
            name="conv1",
        )
        self.conv2 = keras.layers.Dense(
            hidden_size, dtype=self.dtype_policy, name="conv2"
        )
        self.inner_dropout = dropout.Dropout(
            relu_dropout, dtype=self.dtype_policy, name="relu_dropout"
        )

    def build(self, x_shape):
        self.conv1.build(x_shape)
        self.conv2.build((*x_shape[:-1], self.filter_size))

    def call(self, x, *, training=False):
        inner = self.inner_dropout(self.conv1(x), training=training)
        return self.conv2(inner)

    def get_config(self):
        return super().get_config() | {
            "filter_size": self.filter_size,
            "hidden_size": self.hidden_size,
            "relu_dropout": self.relu_dropout,
        }


@keras.saving.register_keras_serializable(package="relpos_tf")
class Residual(keras.layers.Layer):
    """What stands around a sublayer: dropout, addition, normalisation.

    `before(x)` is the sublayer's input; `call(x, y)` joins its output `y` to
    `x`. Vaswani et al. normalise after the addition, `LayerNorm(x + y)`;
    tensor2tensor's later sets normalise the input.

    Args:
        norm_before: bool. Whether `before` normalises.
        norm_after: bool. Whether the call normalises.
        rate: float. Fraction of the sublayer's output to drop.
        epsilon: float, added to the variance.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, L, F]` tensor, the sublayer's input before `before`.
        y: `[B, L, F]` tensor, the sublayer's output.
        training: bool.

    Returns:
        A `[B, L, F]` tensor in the layer's compute dtype.

    Example:

    >>> residual = Residual(norm_before=True, norm_after=False)
    >>> residual(tf.ones([1, 1, 2]), tf.ones([1, 1, 2])).numpy().tolist()
    [[[2.0, 2.0]]]

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(
        self,
        *,
        norm_before: bool,
        norm_after: bool,
        rate: float = 0.0,
        epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.norm_before = norm_before
        self.norm_after = norm_after
        self.rate = rate
        self.epsilon = epsilon
        self.before_norm = self._norm("before_norm") if norm_before else None
        self.after_norm = self._norm("after_norm") if norm_after else None
        self.drop = dropout.Dropout(rate, dtype=self.dtype_policy, name="drop")

    def _norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name=name
        )

    def build(self, x_shape, y_shape=None):
        for norm in (self.before_norm, self.after_norm):
            if norm is not None:
                norm.build(x_shape)

    def before(self, x):
        """Returns the sublayer's input."""
        return x if self.before_norm is None else self.before_norm(x)

    def call(self, x, y, *, training=False):
        x = x + self.drop(y, training=training)
        return x if self.after_norm is None else self.after_norm(x)

    def get_config(self):
        return super().get_config() | {
            "norm_before": self.norm_before,
            "norm_after": self.norm_after,
            "rate": self.rate,
            "epsilon": self.epsilon,
        }


@keras.saving.register_keras_serializable(package="relpos_tf")
class EncoderBlock(keras.layers.Layer):
    """Self-attention and a feed-forward layer.

    Args:
        attention_args: dict. Arguments of `attention.MultiHeadAttention`.
        feed_forward_args: dict. Arguments of `FeedForward`.
        residual_args: dict. Arguments of `Residual`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, S, F]` tensor.
        may_attend: bool tensor that broadcasts to `[B, H, S, S]`.
        training: bool.

    Returns:
        A `[B, S, F]` tensor in the layer's compute dtype.

    Example:

    >>> block = EncoderBlock(
    ...     {"hidden_size": 4, "num_heads": 2, "max_relative_position": 3},
    ...     {"filter_size": 8, "hidden_size": 4},
    ...     {"norm_before": False, "norm_after": True},
    ... )
    >>> tuple(block(tf.ones([2, 3, 4])).shape)
    (2, 3, 4)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(
        self, attention_args, feed_forward_args, residual_args, **kwargs
    ):
        super().__init__(**kwargs)
        self.attention_args = dict(attention_args)
        self.feed_forward_args = dict(feed_forward_args)
        self.residual_args = dict(residual_args)
        policy = {"dtype": self.dtype_policy}
        self.self_attention = attention.MultiHeadAttention(
            **attention_args, **policy, name="self_attention"
        )
        self.self_attention_residual = Residual(
            **residual_args, **policy, name="self_attention_residual"
        )
        self.ffn = FeedForward(**feed_forward_args, **policy, name="ffn")
        self.ffn_residual = Residual(
            **residual_args, **policy, name="ffn_residual"
        )

    def build(self, x_shape):
        for layer in (
            self.self_attention,
            self.self_attention_residual,
            self.ffn,
            self.ffn_residual,
        ):
            layer.build(x_shape)

    def call(self, x, *, may_attend=None, training=False):
        y = self.self_attention(
            self.self_attention_residual.before(x),
            may_attend=may_attend,
            training=training,
        )
        x = self.self_attention_residual(x, y, training=training)
        y = self.ffn(self.ffn_residual.before(x), training=training)
        return self.ffn_residual(x, y, training=training)

    def get_config(self):
        return super().get_config() | {
            "attention_args": self.attention_args,
            "feed_forward_args": self.feed_forward_args,
            "residual_args": self.residual_args,
        }


@keras.saving.register_keras_serializable(package="relpos_tf")
class DecoderBlock(keras.layers.Layer):
    """Self-attention, attention to the encoder, a feed-forward layer.

    Relative positions take part in self-attention only: source and target
    positions have no distance.

    Args:
        attention_args: dict. Arguments of `attention.MultiHeadAttention`.
        feed_forward_args: dict. Arguments of `FeedForward`.
        residual_args: dict. Arguments of `Residual`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, T, F]` tensor.
        memory: `[B, S, F]` tensor, the encoder's output.
        may_attend: bool tensor that broadcasts to `[B, H, T, S]`.
        training: bool.

    Returns:
        A `[B, T, F]` tensor in the layer's compute dtype.

    Example:

    >>> block = DecoderBlock(
    ...     {"hidden_size": 4, "num_heads": 2},
    ...     {"filter_size": 8, "hidden_size": 4},
    ...     {"norm_before": True, "norm_after": False},
    ... )
    >>> tuple(block(tf.ones([2, 3, 4]), tf.ones([2, 5, 4])).shape)
    (2, 3, 4)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(
        self, attention_args, feed_forward_args, residual_args, **kwargs
    ):
        super().__init__(**kwargs)
        self.attention_args = dict(attention_args)
        self.feed_forward_args = dict(feed_forward_args)
        self.residual_args = dict(residual_args)
        policy = {"dtype": self.dtype_policy}
        self.self_attention = attention.MultiHeadAttention(
            **attention_args, **policy, name="self_attention"
        )
        without_positions = attention_args | {"max_relative_position": None}
        self.encdec_attention = attention.MultiHeadAttention(
            **without_positions, **policy, name="encdec_attention"
        )
        self.ffn = FeedForward(**feed_forward_args, **policy, name="ffn")
        (
            self.self_attention_residual,
            self.encdec_attention_residual,
            self.ffn_residual,
        ) = (
            Residual(**residual_args, **policy, name=f"{name}_residual")
            for name in ("self_attention", "encdec_attention", "ffn")
        )

    def build(self, x_shape, memory_shape=None):
        memory_shape = memory_shape or x_shape
        self.encdec_attention.build(x_shape, memory_shape)
        for layer in (
            self.self_attention,
            self.ffn,
            self.self_attention_residual,
            self.encdec_attention_residual,
            self.ffn_residual,
        ):
            layer.build(x_shape)

    def call(self, x, memory, *, may_attend=None, training=False):
        length = tf.shape(x)[1]
        y = self.self_attention(
            self.self_attention_residual.before(x),
            may_attend=attention.causal_mask(length, length),
            training=training,
        )
        x = self.self_attention_residual(x, y, training=training)
        y = self.encdec_attention(
            self.encdec_attention_residual.before(x),
            memory,
            may_attend=may_attend,
            training=training,
        )
        x = self.encdec_attention_residual(x, y, training=training)
        y = self.ffn(self.ffn_residual.before(x), training=training)
        return self.ffn_residual(x, y, training=training)

    def step(self, x, cache, memory, *, start, may_attend):
        """Computes new positions from a cache of those before them.

        Args:
            x: `[B * n, T, F]`: positions `start` to `start + T - 1`. With
                n > 1, the rows `b * n` to `b * n + n - 1` are hypotheses for
                the same source `b`, and share its memory.
            cache: self-attention's cache, `[B * n, H, start, D]`.
            memory: `attention.KeysValues` of the source, `[B, H, S, D]`.
            start: int or scalar tensor.
            may_attend: bool tensor `[B, 1, 1, S]`.

        Returns:
            A pair: a `[B * n, T, F]` tensor and the new cache.
        """
        y, cache = self.self_attention.step(
            self.self_attention_residual.before(x), cache, start=start
        )
        x = self.self_attention_residual(x, y)
        y = self.encdec_attention_residual.before(x)
        shape = tf.shape(x)
        sources = tf.shape(memory.keys)[0]
        # Without positions, hypotheses are only more queries: [B, n * T, F].
        y = tf.reshape(y, [sources, -1, x.shape[-1]])
        y = self.encdec_attention.attend(y, memory, may_attend=may_attend)
        x = self.encdec_attention_residual(x, tf.reshape(y, shape))
        return self.ffn_residual(x, self.ffn(self.ffn_residual.before(x))), cache

    def get_config(self):
        return super().get_config() | {
            "attention_args": self.attention_args,
            "feed_forward_args": self.feed_forward_args,
            "residual_args": self.residual_args,
        }
