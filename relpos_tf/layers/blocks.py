"""Blocks of the encoder and the decoder.

Shapes: B batch, S source length, T target length, F features, H heads,
D depth per head, n hypotheses of one source.
"""

from collections.abc import Mapping

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import checks
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class EncoderBlock(keras.layers.Layer):
    """Self-attention and a feed-forward layer: a block of the encoder.

    Args:
        attention_args: dict. Arguments of `attention.TransformerAttention`.
        feed_forward_args: dict. Arguments of `sublayers.FeedForward`.
        residual_args: dict. Arguments of `sublayers.Residual`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, S, F]` tensor.
        may_attend: bool tensor that broadcasts to `[B, H, S, S]`.
        return_weights: bool. Whether to return the attention weights as well.
        training: bool.

    Returns:
        A `[B, S, F]` tensor in the layer's compute dtype; with
        `return_weights` a pair of it and the weights `[B, H, S, S]`.

    Example:

    >>> block = EncoderBlock(
    ...     {"hidden_size": 4, "num_heads": 2},
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
        checks.needs_tensorflow(self)
        _check_sizes(attention_args, feed_forward_args)
        self.supports_masking = True  # the attention obeys the mask of x
        self.attention_args = _copied(attention_args)
        self.feed_forward_args = dict(feed_forward_args)
        self.residual_args = dict(residual_args)
        policy = {"dtype": self.dtype_policy}
        self.self_attention = attention.TransformerAttention(
            **self.attention_args, **policy, name="self_attention"
        )
        self.self_attention_residual = sublayers.Residual(
            **residual_args, **policy, name="self_attention_residual"
        )
        self.ffn = sublayers.FeedForward(
            **feed_forward_args, **policy, name="ffn"
        )
        self.ffn_residual = sublayers.Residual(
            **residual_args, **policy, name="ffn_residual"
        )

    def build(self, x_shape):
        features = self.attention_args["hidden_size"]
        checks.sizes("x", x_shape, ("batch", "positions", features))
        for layer in (
            self.self_attention,
            self.self_attention_residual,
            self.ffn,
            self.ffn_residual,
        ):
            layer.build(x_shape)

    def call(self, x, *, may_attend=None, return_weights=False, training=False):
        y = self.self_attention(
            self.self_attention_residual.before(x),
            may_attend=may_attend,
            return_weights=return_weights,
            training=training,
        )
        y, weights = y if return_weights else (y, None)
        x = self.self_attention_residual(x, y, training=training)
        y = self.ffn(self.ffn_residual.before(x), training=training)
        x = self.ffn_residual(x, y, training=training)
        return (x, weights) if return_weights else x

    def get_config(self):
        return super().get_config() | {
            "attention_args": _plain(self.attention_args),
            "feed_forward_args": self.feed_forward_args,
            "residual_args": self.residual_args,
        }


@keras.saving.register_keras_serializable(package="relpos_tf")
class DecoderBlock(keras.layers.Layer):
    """Self-attention, attention to the encoder and a feed-forward layer.

    Args:
        attention_args: dict. Arguments of `attention.TransformerAttention`. Its
            `positions` are for self-attention only.
        feed_forward_args: dict. Arguments of `sublayers.FeedForward`.
        residual_args: dict. Arguments of `sublayers.Residual`.
        source_positions: Schemes of the attention to the source. Source and
            target positions have no distance, so most schemes do not fit.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, T, F]` tensor.
        memory: `[B, S, F]` tensor, the encoder's output.
        may_attend: bool tensor that broadcasts to `[B, H, T, S]`.
        return_weights: bool. Whether to return the attention weights as well.
        training: bool.

    Returns:
        A `[B, T, F]` tensor in the layer's compute dtype; with
        `return_weights` a triple of it, the weights of self-attention
        `[B, H, T, T]` and those of the attention to the source `[B, H, T, S]`.

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
        self,
        attention_args,
        feed_forward_args,
        residual_args,
        source_positions=(),
        **kwargs,
    ):
        super().__init__(**kwargs)
        checks.needs_tensorflow(self)
        _check_sizes(attention_args, feed_forward_args)
        self.supports_masking = True  # the attention obeys the mask of x
        self.attention_args = _copied(attention_args)
        self.feed_forward_args = dict(feed_forward_args)
        self.residual_args = dict(residual_args)
        self.source_positions = scheme.copies(source_positions)
        policy = {"dtype": self.dtype_policy}
        self.self_attention = attention.TransformerAttention(
            **self.attention_args, **policy, name="self_attention"
        )
        self.encdec_attention = attention.TransformerAttention(
            **(self.attention_args | {"positions": self.source_positions}),
            **policy,
            name="encdec_attention",
        )
        self.ffn = sublayers.FeedForward(
            **feed_forward_args, **policy, name="ffn"
        )
        (
            self.self_attention_residual,
            self.encdec_attention_residual,
            self.ffn_residual,
        ) = (
            sublayers.Residual(
                **residual_args, **policy, name=f"{name}_residual"
            )
            for name in ("self_attention", "encdec_attention", "ffn")
        )

    def build(self, x_shape, memory_shape=None):
        features = self.attention_args["hidden_size"]
        checks.sizes("x", x_shape, ("batch", "positions", features))
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

    def call(
        self,
        x,
        memory,
        *,
        may_attend=None,
        return_weights=False,
        training=False,
    ):
        y = self.self_attention(
            self.self_attention_residual.before(x),
            use_causal_mask=True,
            return_weights=return_weights,
            training=training,
        )
        y, own_weights = y if return_weights else (y, None)
        x = self.self_attention_residual(x, y, training=training)
        y = self.encdec_attention(
            self.encdec_attention_residual.before(x),
            memory,
            may_attend=may_attend,
            return_weights=return_weights,
            training=training,
        )
        y, weights = y if return_weights else (y, None)
        x = self.encdec_attention_residual(x, y, training=training)
        y = self.ffn(self.ffn_residual.before(x), training=training)
        x = self.ffn_residual(x, y, training=training)
        return (x, own_weights, weights) if return_weights else x

    def step(self, x, cache, memory, *, start, may_attend):
        """Computes new positions, with a cache of the positions before.

        Args:
            x: `[B * n, T, F]`: positions `start` to `start + T - 1`. The rows
                `b * n` to `b * n + n - 1` are hypotheses for source `b`.
            cache: self-attention's cache, `[B * n, H, start, D]`.
            memory: `caches.KeysValues` of the source, `[B, H, S, D]`.
            start: int or scalar tensor.
            may_attend: bool tensor `[B, 1, 1, S]`.

        Returns:
            A triple: a `[B * n, T, F]` tensor, the new cache, and the weights
            of the attention to the source, `[B, H, n * T, S]`.
        """
        y, cache = self.self_attention.step(
            self.self_attention_residual.before(x), cache, start=start
        )
        x = self.self_attention_residual(x, y)
        y = self.encdec_attention_residual.before(x)
        shape = tf.shape(x)
        sources = tf.shape(memory.keys)[0]
        # Without positions, hypotheses are just more queries: [B, n * T, F].
        y = tf.reshape(y, [sources, -1, x.shape[-1]])
        y, weights = self.encdec_attention.attend(
            y, memory, may_attend=may_attend
        )
        x = self.encdec_attention_residual(x, tf.reshape(y, shape))
        y = self.ffn(self.ffn_residual.before(x))
        return self.ffn_residual(x, y), cache, weights

    def step_rows(self, x, kernel, cache, memory, *, past, source):
        """Computes one position of the hypotheses of a beam search.

        Args:
            x: `[B * n, F]`: the n hypotheses of each source.
            kernel: self-attention's `fused_kernel`.
            cache: self-attention's `caches.BeamKeysValues` so far.
            memory: `caches.BeamKeysValues` of the sources.
            past: `pairs.OnePosition` of the keys of self-attention.
            source: `pairs.OnePosition` of the keys of the sources.

        Returns:
            A pair: a `[B * n, F]` tensor, and the cache with this position.
        """
        y = self.self_attention_residual.before(x)
        y, cache = self.self_attention.step_rows(y, kernel, cache, past)
        x = self.self_attention_residual(x, y)
        y = self.encdec_attention_residual.before(x)
        y = self.encdec_attention.attend_rows(y, memory, source)
        x = self.encdec_attention_residual(x, y)
        y = self.ffn(self.ffn_residual.before(x))
        return self.ffn_residual(x, y), cache

    def get_config(self):
        return super().get_config() | {
            "attention_args": _plain(self.attention_args),
            "feed_forward_args": self.feed_forward_args,
            "residual_args": self.residual_args,
            "source_positions": scheme.serialized(self.source_positions),
        }


def _check_sizes(attention_args, feed_forward_args):
    """Refuses sublayers whose outputs cannot be added to the block's input."""
    for name, arguments in (
        ("attention_args", attention_args),
        ("feed_forward_args", feed_forward_args),
    ):
        if not isinstance(arguments, Mapping):
            raise errors.UserError(
                f"`{name}` must be a dict of arguments. "
                f"Received: {name}={arguments!r}."
            )
    sizes = [
        arguments.get("hidden_size")
        for arguments in (attention_args, feed_forward_args)
    ]
    if sizes[0] != sizes[1]:
        raise errors.UserError(
            "`hidden_size` must be the same in `attention_args` and "
            f"`feed_forward_args`. Received: {sizes[0]!r} and {sizes[1]!r}."
        )


def _copied(attention_args):
    """Returns arguments of an attention, with schemes of their own."""
    positions = scheme.copies(attention_args.get("positions", ()))
    return dict(attention_args) | {"positions": positions}


def _plain(attention_args):
    """Returns arguments of an attention, with serialized schemes."""
    positions = scheme.serialized(attention_args["positions"])
    return dict(attention_args) | {"positions": positions}
