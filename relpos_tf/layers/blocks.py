"""Blocks of the encoder and the decoder.

Shapes: B batch, S source length, T target length, F features, H heads,
D depth per head, n hypotheses of one source.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from relpos_tf.layers import attention
from relpos_tf.layers import base
from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import scheme


class Block(base.Layer):
    """Self-attention and a feed-forward layer: base of both blocks."""

    def __init__(
        self,
        attention_args: Mapping[str, Any],
        feed_forward_args: Mapping[str, Any],
        residual_args: Mapping[str, Any],
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True  # the attention obeys the mask of x
        self.attention_args = dict(attention_args)
        self.feed_forward_args = dict(feed_forward_args)
        self.residual_args = dict(residual_args)
        self.self_attention = self._attention("self_attention")
        self.ffn = sublayers.FeedForward(
            **self.feed_forward_args, dtype=self.dtype_policy, name="ffn"
        )
        self.self_attention_residual = self._residual("self_attention")
        self.ffn_residual = self._residual("ffn")

    def _attention(self, name, **changes):
        return attention.TransformerAttention(
            **(self.attention_args | changes),
            dtype=self.dtype_policy,
            name=name,
        )

    def _residual(self, name):
        return sublayers.Residual(
            **self.residual_args,
            dtype=self.dtype_policy,
            name=f"{name}_residual",
        )

    def _feed_forward(self, x, training):
        """Applies the last sublayer."""
        y = self.ffn(self.ffn_residual.before(x), training=training)
        return self.ffn_residual(x, y, training=training)

    def build(self, x_shape: Sequence[int | None]) -> None:
        features = self.attention_args["hidden_size"]
        checks.sizes("x", x_shape, ("batch", "positions", features))
        for layer in (
            self.self_attention,
            self.self_attention_residual,
            self.ffn,
            self.ffn_residual,
        ):
            layer.build(x_shape)

    def get_config(self) -> dict[str, Any]:
        positions = scheme.serialized(self.self_attention.positions)
        return super().get_config() | {
            "attention_args": self.attention_args | {"positions": positions}
        }


@keras.saving.register_keras_serializable(package="relpos_tf")
class EncoderBlock(Block):
    """Self-attention and a feed-forward layer: a block of the encoder.

    Args:
        attention_args: dict. Arguments of `attention.TransformerAttention`.
        feed_forward_args: dict. Arguments of `sublayers.FeedForward`.
        residual_args: dict. Arguments of `sublayers.Residual`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, S, F]` tensor.
        may_attend: bool tensor that broadcasts to `[B, H, S, S]`.
        pairs: None, or the `pairs.Pairs` of self-attention in all layers of a
            stack, with their masks.
        return_weights: bool. Whether to return the attention weights as well.
        training: bool.

    Returns:
        A `[B, S, F]` tensor; with `return_weights` a pair of it and the
        weights `[B, H, S, S]`.

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

    def call(
        self,
        x: tf.Tensor,
        *,
        may_attend: tf.Tensor | None = None,
        pairs: pairs_lib.Pairs | None = None,
        return_weights: bool = False,
        training: bool = False,
    ) -> Any:
        options = {"return_weights": return_weights, "training": training}

        def attend(y):
            return self.self_attention(
                y, may_attend=may_attend, pairs=pairs, **options
            )

        x, weights = self.self_attention_residual.around(attend, x, training)
        x = self._feed_forward(x, training)
        return (x, weights) if return_weights else x


@keras.saving.register_keras_serializable(package="relpos_tf")
class DecoderBlock(Block):
    """Self-attention, attention to the encoder and a feed-forward layer.

    Arguments that are not explained here are those of `EncoderBlock`; the
    `positions` of `attention_args` are for self-attention only.

    Args:
        source_positions: Schemes of the attention to the source. Source and
            target positions have no distance, so most schemes do not fit.

    Call arguments:
        x: `[B, T, F]` tensor.
        memory: `[B, S, F]` tensor, the encoder's output.
        may_attend: bool tensor that broadcasts to `[B, H, T, S]`.

    Returns:
        A `[B, T, F]` tensor; with `return_weights` a triple of it, the weights
        of self-attention `[B, H, T, T]` and those of the attention to the
        source `[B, H, T, S]`.

    Example:
    >>> block = DecoderBlock(
    ...     {"hidden_size": 4, "num_heads": 2},
    ...     {"filter_size": 8, "hidden_size": 4},
    ...     {"norm_before": True, "norm_after": False},
    ... )
    >>> tuple(block(tf.ones([2, 3, 4]), tf.ones([2, 5, 4])).shape)
    (2, 3, 4)
    """

    def __init__(
        self,
        attention_args: Mapping[str, Any],
        feed_forward_args: Mapping[str, Any],
        residual_args: Mapping[str, Any],
        source_positions: Sequence[scheme.Scheme] = (),
        **kwargs: Any,
    ):
        super().__init__(
            attention_args, feed_forward_args, residual_args, **kwargs
        )
        self.encdec_attention = self._attention(
            "encdec_attention", positions=source_positions
        )
        self.encdec_attention_residual = self._residual("encdec_attention")

    def build(
        self,
        x_shape: Sequence[int | None],
        memory_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().build(x_shape)
        self.encdec_attention.build(x_shape, memory_shape)
        self.encdec_attention_residual.build(x_shape)

    def call(
        self,
        x: tf.Tensor,
        memory: tf.Tensor,
        *,
        may_attend: tf.Tensor | None = None,
        pairs: pairs_lib.Pairs | None = None,
        return_weights: bool = False,
        training: bool = False,
    ) -> Any:
        options = {"return_weights": return_weights, "training": training}

        def attend(y):
            return self.self_attention(
                y, use_causal_mask=True, pairs=pairs, **options
            )

        def attend_to_source(y):
            return self.encdec_attention(
                y, memory, may_attend=may_attend, **options
            )

        x, *weights = self._sublayers(attend, attend_to_source, x, training)
        return (x, *weights) if return_weights else x

    def _sublayers(self, attend, attend_to_source, x, training=False):
        """Applies the sublayers in their order."""
        x, own = self.self_attention_residual.around(attend, x, training)
        x, source = self.encdec_attention_residual.around(
            attend_to_source, x, training
        )
        return self._feed_forward(x, training), own, source

    def step(
        self,
        x: tf.Tensor,
        cache: pairs_lib.KeysValues,
        memory: pairs_lib.KeysValues,
        *,
        start: int | tf.Tensor,
        may_attend: tf.Tensor,
        kernel: tf.Tensor | None = None,
        pairs: pairs_lib.Pairs | None = None,
    ) -> tuple[tf.Tensor, pairs_lib.KeysValues, tf.Tensor]:
        """Computes new positions, with a cache of the positions before.

        Returns `[B * n, T, F]`, the new cache, and the weights of the attention
        to the source, `[B, H, n * T, S]`.

        Args:
            x: `[B * n, T, F]`: positions `start` to `start + T - 1`. The rows
                `b * n` to `b * n + n - 1` are hypotheses for source `b`.
            cache: As of `self_attention.step`; so are start, kernel and pairs.
            memory: `encdec_attention.project` of the encoder's output.
            may_attend: bool tensor `[B, 1, 1, S]`.
        """

        def attend(y):
            return self.self_attention.step(
                y, cache, start=start, kernel=kernel, pairs=pairs
            )

        def attend_to_source(y):
            # Without positions, hypotheses are just more queries.
            rows = tf.reshape(y, [tf.shape(memory.keys)[0], -1, y.shape[-1]])
            output, weights = self.encdec_attention.attend(
                rows, memory, may_attend=may_attend
            )  # [B, n * T, F]
            return tf.reshape(output, tf.shape(y)), weights

        return self._sublayers(attend, attend_to_source, x)

    def get_config(self) -> dict[str, Any]:
        positions = scheme.serialized(self.encdec_attention.positions)
        return super().get_config() | {"source_positions": positions}
