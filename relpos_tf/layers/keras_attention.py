"""Relative attention with the interface of `keras.layers.MultiHeadAttention`.

For models of one's own, on every backend of Keras. `attention` has the layer
of the Transformer, with other position schemes and caches.

Keras' layer does everything but the attention itself: arguments, projections,
masks, quantization. It calls `_compute_attention` for the rest, and gives it
what `_compute_attention_mask` returned.

Shapes: B batch, T queries, S keys, N heads, D depth per head, F features,
k clipping, R = 2k+1 rows of a table. The letters are Keras' here.
"""

import sys
from typing import Any
from typing import NamedTuple

import keras
from keras import ops
from keras.src import backend  # nothing public reads and sets a tensor's mask

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import inputs as inputs_lib
from relpos_tf.layers.positions import relative_ops

HAS_TENSORFLOW = keras.backend.backend() == "tensorflow"
if HAS_TENSORFLOW:
    import tensorflow as tf

    from relpos_tf.layers import masks as masks_lib
    from relpos_tf.layers.positions import relative

IMPLEMENTATIONS = ("auto", "reshape", "compact", "ops")


class _Mask(NamedTuple):
    """The mask of a call, and what is known of it.

    Attributes:
        may_attend: None or a bool tensor that broadcasts to `[B, N, T, S]`.
        is_causal: bool. Whether it is the causal mask and nothing else.
        is_self: bool. Whether there are as many keys as queries for certain.
    """

    may_attend: Any
    is_causal: bool
    is_self: bool


@keras.saving.register_keras_serializable(package="relpos_tf")
class RelativeMultiHeadAttention(keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` with relative position representations.

    Attention depends on the distance between query and key, which a model
    learns: it needs no other positions, and it holds for lines that are longer
    than those of training. With all tables 0, the numbers are those of
    `keras.layers.MultiHeadAttention`.

    Query i and key i have the same position, also if there are more keys than
    queries or fewer; Keras' causal mask counts in the same way.

    Args:
        num_heads: int, N.
        key_dim: int, D of queries and keys.
        value_dim: None or int, D of values; `key_dim` by default.
        dropout: float. Fraction of the attention weights to drop.
        use_bias: bool. Whether the projections have biases.
        output_shape: None, int or tuple: the features of the output; those of
            the query by default.
        max_relative_position: int, k. Distances beyond are clipped to it. The
            default is the paper's.
        add_relative_to_keys: bool. Whether the keys get vectors (equation 4).
        add_relative_to_values: bool. Whether the values get vectors
            (equation 3).
        heads_share_relative_embedding: bool. One pair of tables for all heads,
            instead of one for each.
        relative_initializer: The initializer of the tables. None: uniform,
            with Glorot's limit for the table of each head.
        implementation: str. "compact" and "reshape" are explained in
            `positions.relative`, "ops" in `positions.relative_ops`. All give
            the same numbers to queries that may attend to a key. "auto" is
            "compact", or "reshape" for one query. Instead of these two, "ops"
            serves where the graph does not know that there are at least as
            many keys as queries, for inputs of rank 4 or more, and on other
            backends than TensorFlow.
        **kwargs: Passed to `keras.layers.MultiHeadAttention`: `seed`,
            `attention_axes`, initializers, regularizers, constraints, `name`,
            `dtype` and so on. `attention_axes` must name one axis, which is
            needed for inputs of rank 4 or more.

    Call arguments:
        query: `[B, T, F]` tensor.
        value: `[B, S, F]` tensor; its F may be another.
        key: None or `[B, S, F]` tensor; `value` by default.
        query_mask: None or bool `[B, T]`. Keras passes the masks that layers
            such as `Embedding(mask_zero=True)` attach to tensors.
        value_mask: None or bool `[B, S]`: False for padding.
        key_mask: The same.
        attention_mask: None or a bool tensor that broadcasts to `[B, T, S]`,
            or `[B, N, T, S]`: True where attention is allowed. A query that
            may attend to nothing attends to all keys equally if its logits are
            below about 32, which float32 loses beside -1e9. Larger ones count,
            and in float64 all of them, but not with "ops".
        return_attention_scores: bool. Whether to return the attention weights
            as well.
        training: bool. Whether to drop weights.
        use_causal_mask: bool. Whether a query sees only keys up to its own
            position.

    Returns:
        A `[B, T, F]` tensor in the layer's compute dtype; with
        `return_attention_scores` a pair of it and the weights before dropout,
        `[B, N, T, S]`.

    Raises:
        UserError: wrong arguments, or inputs of a rank below 3.

    Example:

    >>> layer = RelativeMultiHeadAttention(2, key_dim=4)
    >>> x = keras.random.normal([3, 5, 8])
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (3, 5, 8)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        *,
        max_relative_position: int = 16,
        add_relative_to_keys: bool = True,
        add_relative_to_values: bool = True,
        heads_share_relative_embedding: bool = False,
        relative_initializer=None,
        implementation: str = "auto",
        **kwargs,
    ):
        checks.integer("num_heads", num_heads, least=1)
        checks.integer("key_dim", key_dim, least=1)
        if value_dim is not None:
            checks.integer("value_dim", value_dim, least=1)
        if output_shape is not None:
            one = not isinstance(output_shape, list | tuple)
            for size in [output_shape] if one else output_shape:
                checks.integer("output_shape", size, least=1)
        checks.fraction("dropout", dropout)
        for name, value in (
            ("use_bias", use_bias),
            ("add_relative_to_keys", add_relative_to_keys),
            ("add_relative_to_values", add_relative_to_values),
            ("heads_share_relative_embedding", heads_share_relative_embedding),
        ):
            checks.flag(name, value)
        checks.integer("max_relative_position", max_relative_position, least=0)
        checks.choice("implementation", implementation, IMPLEMENTATIONS)
        if kwargs.get("flash_attention"):
            raise errors.UserError(
                "`flash_attention` must be None or False, because no flash "
                "kernel adds relative positions. Received: "
                f"flash_attention={kwargs['flash_attention']!r}."
            )
        super().__init__(
            int(num_heads),
            int(key_dim),
            value_dim=None if value_dim is None else int(value_dim),
            dropout=dropout,
            use_bias=use_bias,
            output_shape=output_shape,
            **kwargs,
        )
        # `keras.config.enable_flash_attention` asks for it where possible.
        self._flash_attention = False
        self.max_relative_position = int(max_relative_position)
        self.add_relative_to_keys = add_relative_to_keys
        self.add_relative_to_values = add_relative_to_values
        self.heads_share_relative_embedding = heads_share_relative_embedding
        self.relative_initializer = keras.initializers.get(relative_initializer)
        self.implementation = implementation

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        _check_shapes(query_shape, value_shape, key_shape, len(query_shape))
        self._rank = len(query_shape)
        super().build(query_shape, value_shape, key_shape)
        for layer, shape in (
            (self.query_dense, query_shape),
            (self.key_dense, key_shape),
            (self.value_dense, value_shape),
        ):
            # Keras' sentence about a wrong size, instead of its einsum's.
            layer.input_spec = keras.layers.InputSpec(axes={-1: shape[-1]})
        self.relative_keys = self.relative_values = None
        if self.add_relative_to_keys:
            self.relative_keys = self._add_table("keys", self.key_dim)
        if self.add_relative_to_values:
            self.relative_values = self._add_table("values", self.value_dim)

    def _add_table(self, kind, depth):
        shape = (2 * self.max_relative_position + 1, depth)  # [R, D]
        limit = (6 / sum(shape)) ** 0.5
        initializer = self.relative_initializer
        if initializer is None:
            initializer = keras.initializers.RandomUniform(-limit, limit)
        if not self.heads_share_relative_embedding:
            shape = (self.num_heads, *shape)
        return self.add_weight(
            shape=shape,
            initializer=initializer,
            name=f"relative_positions_{kind}",
        )

    def __call__(self, *args, **kwargs):
        args, kwargs = inputs_lib.converted_once(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
    ):
        inputs = [x for x in (query, value, key) if x is not None]
        shapes = (tuple(x.shape) for x in (*inputs, value)[:3])
        _check_shapes(*shapes, self._rank)
        padding = [backend.get_keras_mask(x) for x in inputs]
        outputs = super().call(
            query,
            value,
            key,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            use_causal_mask=use_causal_mask,
        )
        # Keras takes the masks off its inputs: `Add()([x, attention(x, x)])`
        # would have none.
        for x, mask in zip(inputs, padding, strict=True):
            if mask is not None:
                backend.set_keras_mask(x, mask)
        return outputs

    def _build_attention(self, rank):
        rank -= 1  # of the inputs
        axes = self.attention_axes
        axes = tuple(range(1, rank - 1)) if axes is None else tuple(axes)
        if len(axes) != 1:
            raise errors.UserError(
                "`attention_axes` must name one axis, along which distances "
                "are counted, if inputs have a rank above 3. Received: inputs "
                f"of rank {rank} and axes {axes}."
            )
        if axes[0] not in (*range(1, rank - 1), *range(1 - rank, -1)):
            raise errors.UserError(
                "`attention_axes` must name an axis between batch and "
                f"features. Received: inputs of rank {rank} and axis {axes[0]}."
            )
        super()._build_attention(rank + 1)
        # A negative axis counts from the end of the inputs.
        self._axis = axes[0] % rank

    def _check_masks(self, query_shape, keys, attention_mask, padding):
        """Refuses masks that do not fit, or that fit by accident only.

        Args:
            query_shape: `[B, T, .., F]`.
            keys: int, S, or None.
            attention_mask: None or a tensor.
            padding: dict of None or tensors by name.
        """
        batch, queries = query_shape[:2]
        leading = batch, self.num_heads
        if len(query_shape) > 3:
            leading = (None,) * (len(query_shape) - 1)
            padding = {}
        _check_mask(attention_mask, (*leading, queries, keys))
        for name, mask in padding.items():
            if mask is not None:
                length = queries if name == "query_mask" else keys
                expected = batch or "batch", length or "positions"
                checks.sizes(name, mask.shape, expected)

    def _compute_attention_mask(
        self,
        query,
        value,
        *,
        attention_mask=None,
        use_causal_mask=False,
        **masks,
    ):
        # Keras takes the lengths from axis 1.
        x, y = (ops.moveaxis(z, self._axis, 1) for z in (query, value))
        self._check_masks(x.shape, y.shape[1], attention_mask, masks)
        may_attend = super()._compute_attention_mask(
            x,
            y,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            **masks,
        )
        others = [attention_mask, *masks.values()]
        others.append(getattr(self, "_sliding_window", None))
        is_causal = use_causal_mask and all(one is None for one in others)
        if may_attend is not None:
            for _ in range(len(query.shape) + 1 - len(may_attend.shape)):
                may_attend = ops.expand_dims(may_attend, -3)  # [.., 1, T, S]
        return _Mask(may_attend, is_causal, query is value)

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        del return_attention_scores  # Keras returns them or not
        query = query * ops.cast(self.key_dim**-0.5, query.dtype)
        q, k, v = (
            ops.moveaxis(x, self._axis, -2)  # [B, .., N, T or S, D]
            for x in (query, key, value)
        )
        tables = map(self._table, (self.relative_keys, self.relative_values))
        if 0 in (q.shape[-2], k.shape[-2]):  # no pair has a distance
            tables = None, None
        arrays = q, k, v, *tables
        drops = training and self.dropout > 0
        dropout = self._drop if drops else None
        if self._has_fast_form(q, k, attention_mask):
            output, weights = _attend_in_tensorflow(
                arrays, attention_mask, self.implementation, dropout
            )
        else:
            output, weights = relative_ops.relative_attention(
                *arrays, may_attend=attention_mask.may_attend, dropout=dropout
            )
        return ops.moveaxis(output, -2, self._axis), weights

    def _has_fast_form(self, q, k, mask):
        """Returns whether `relative` is to compute, and not `relative_ops`."""
        if not HAS_TENSORFLOW or len(q.shape) > 4:
            return False
        if self.implementation in ("ops", "reshape"):
            return self.implementation == "reshape"
        if _is_for_litert():
            return False
        if mask.is_self:
            return True
        # The compact form needs a key at the position of each query.
        lengths = q.shape[2], k.shape[2]
        return None not in lengths and lengths[0] <= lengths[1]

    def _table(self, weight):
        """Returns a table in the compute dtype, or None."""
        if weight is None:
            return None
        return ops.cast(ops.convert_to_tensor(weight), self.compute_dtype)

    def _drop(self, weights):
        return self._dropout_layer(weights, training=True)

    def compute_output_spec(
        self, query, value, key=None, *, return_attention_scores=False, **kwargs
    ):
        if len(query.shape) == 3:  # the call checks the others
            names = "query_mask", "value_mask", "key_mask"
            padding = {name: kwargs.get(name) for name in names}
            self._check_masks(
                query.shape,
                value.shape[1],
                kwargs.get("attention_mask"),
                padding,
            )
        output = super().compute_output_spec(query, value, key, **kwargs)
        if not return_attention_scores:
            return output
        rank = len(query.shape)
        axis = (self.attention_axes or (1,))[0] % rank
        batch = [n for i, n in enumerate(query.shape[:-1]) if i != axis]
        shape = (*batch, self.num_heads, query.shape[axis], value.shape[axis])
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return super().get_config() | {
            "max_relative_position": self.max_relative_position,
            "add_relative_to_keys": self.add_relative_to_keys,
            "add_relative_to_values": self.add_relative_to_values,
            "heads_share_relative_embedding": (
                self.heads_share_relative_embedding
            ),
            "relative_initializer": keras.initializers.serialize(
                self.relative_initializer
            ),
            "implementation": self.implementation,
        }


def _is_for_litert():
    """Returns whether this is the trace of an export to LiteRT.

    LiteRT has no operations for diagonals, which the compact form needs.
    Nothing but the callers tells for what a graph is made.
    """
    if tf.executing_eagerly():
        return False
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module.startswith(("keras.src.export.litert", "tensorflow.lite.")):
            return True
        frame = frame.f_back
    return False


def _check_shapes(query, value, key, rank):
    """Refuses shapes that do not fit to one another, or of another rank."""
    for name, shape in (("query", query), ("value", value), ("key", key)):
        if len(shape) < 3 or len(shape) != rank:
            raise errors.UserError(
                f"`{name}` must have the axes batch, positions and features"
                f"{f', {rank} in all' if rank > 3 else ''}. Received: a shape "
                f"of {tuple(shape)}."
            )
    if _differ(value[1:-1], key[1:-1]):
        raise errors.UserError(
            "`key` must have the positions of `value`. Received: shapes of "
            f"{tuple(key)} and {tuple(value)}."
        )
    if _differ(query[:1], value[:1]) and 1 not in (query[0], value[0]):
        raise errors.UserError(
            "`query` and `value` must be batches of one size. Received: shapes "
            f"of {tuple(query)} and {tuple(value)}."
        )


def _differ(shape, other):
    """Returns whether sizes are known to differ."""
    return any(
        None not in pair and pair[0] != pair[1]
        for pair in zip(shape, other, strict=True)
    )


def _check_mask(mask, sizes):
    """Refuses a mask that does not broadcast to `[.., T, S]`, or by accident.

    Args:
        mask: None or a tensor.
        sizes: B, N, T and S, or None where any size is right.
    """
    if mask is None:
        return
    *leading, queries, keys = sizes
    shape = tuple(mask.shape)
    fits = 2 <= len(shape) <= len(sizes) and all(
        None in pair or pair[0] in (1, pair[1])
        for pair in zip(
            shape, (*leading[: len(shape) - 2], queries, keys), strict=True
        )
    )
    # Of rank 2, [B, S] and [T, S] are alike where B and T are.
    if fits and (len(shape) > 2 or shape[0] == 1 or shape[0] != leading[0]):
        return
    raise errors.UserError(
        f"`attention_mask` must broadcast to [batch, {queries} queries, "
        f"{keys} keys]; a mask of padding, [batch, {keys} keys], is a "
        "`value_mask`; one of [queries, keys] is mask[None]. Received: a mask "
        f"of shape {shape}."
    )


def _attend_in_tensorflow(arrays, mask, implementation, dropout):
    """Returns the result of `relative.relative_attention`.

    Args:
        arrays: q `[B, N, T, D]`, k and v `[B, N, S, D]`, and two tables.
        mask: `_Mask`.
        implementation: str.
        dropout: None or a function of the weights.
    """
    bias = None
    if mask.may_attend is not None:
        bias = masks_lib.to_bias(mask.may_attend)
    return relative.relative_attention(
        *arrays,
        bias=bias,
        implementation=implementation,
        query_start=0,
        causal=mask.is_causal,
        dropout=dropout,
    )
