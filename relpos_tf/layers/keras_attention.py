"""Relative attention with the interface of `keras.layers.MultiHeadAttention`.

For models of one's own, on every backend of Keras. `attention` has the layer
of the Transformer, with other position schemes and caches.

Arguments, projections, masks of padding and of order, and quantization are
those of Keras' layer; the attention itself is not.

Shapes: B batch, T queries, S keys, N heads, D depth per head, F features,
k clipping, R = 2k+1 rows of a table. The letters are Keras' here.
"""

import functools
from typing import Any

import keras
from keras import ops

from relpos_tf import errors
from relpos_tf.layers import base
from relpos_tf.layers import checks
from relpos_tf.layers.positions import relative_ops

HAS_TENSORFLOW = keras.backend.backend() == "tensorflow"
if HAS_TENSORFLOW:
    from relpos_tf.layers import pairs as pairs_lib
    from relpos_tf.layers.positions import shaw

IMPLEMENTATIONS = ("auto", "reshape", "compact", "ops")
Tensor = Any  # of the backend that Keras runs on
Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="relpos_tf")
class RelativeMultiHeadAttention(base.Config, keras.layers.MultiHeadAttention):
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
            `positions.shaw`, "ops" in `positions.relative_ops`. All give
            the same numbers to queries that may attend to a key. "auto" is
            "compact", on GPUs "gather", or "reshape" for one query. Instead,
            "ops" serves for inputs of rank 4 or more, on other backends than
            TensorFlow, and where the graph does not know that there are at
            least as many keys as queries: it knows their numbers, or that
            both are one tensor, which needs no cast to the compute dtype.
            An export to LiteRT needs "ops" or "reshape", and one to ONNX
            "reshape".
        **kwargs: Passed to `keras.layers.MultiHeadAttention`: `seed`,
            `attention_axes`, initializers, regularizers, constraints, `name`,
            `dtype` and so on. `attention_axes` must name one axis, which is
            needed for inputs of rank 4 or more.

    Call arguments:
        query: `[B, T, F]` tensor.
        value: `[B, S, F]` tensor; its F may be another.
        key: None or `[B, S, F]` tensor; `value` by default.
        query_mask: None or bool `[B, T]`: False for padding, which may attend
            to nothing. Keras passes here, and as the next two, the masks that
            layers such as `Embedding(mask_zero=True)` attach to tensors.
        value_mask: None or bool `[B, S]`: False for padding.
        key_mask: The same.
        attention_mask: None or a bool tensor that broadcasts to `[B, T, S]`,
            or `[B, N, T, S]`: True where attention is allowed, unless another
            mask forbids it. A query that
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
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | tuple[int, ...] | None = None,
        *,
        max_relative_position: int = 16,
        add_relative_to_keys: bool = True,
        add_relative_to_values: bool = True,
        heads_share_relative_embedding: bool = False,
        relative_initializer: Any = None,
        implementation: str = "auto",
        **kwargs: Any,
    ):
        if value_dim is not None:
            value_dim = checks.integer("value_dim", value_dim, least=1)
        super().__init__(
            checks.integer("num_heads", num_heads, least=1),
            checks.integer("key_dim", key_dim, least=1),
            value_dim=value_dim,
            dropout=checks.number("dropout", dropout, least=0, below=1),
            use_bias=use_bias,
            output_shape=output_shape,
            **kwargs,
        )
        self.max_relative_position = checks.integer(
            "max_relative_position", max_relative_position, least=0
        )
        self.add_relative_to_keys = checks.flag(
            "add_relative_to_keys", add_relative_to_keys
        )
        self.add_relative_to_values = checks.flag(
            "add_relative_to_values", add_relative_to_values
        )
        self.heads_share_relative_embedding = checks.flag(
            "heads_share_relative_embedding", heads_share_relative_embedding
        )
        self.relative_initializer = keras.initializers.get(relative_initializer)
        self.implementation = checks.choice(
            "implementation", implementation, IMPLEMENTATIONS
        )

    def build(
        self,
        query_shape: Shape,
        value_shape: Shape,
        key_shape: Shape | None = None,
    ) -> None:
        shapes = query_shape, value_shape, key_shape or value_shape
        rank = self._rank = max(len(query_shape), 3)
        self._features = [shape[-1] for shape in shapes]
        self._check_shapes(*shapes)
        axes = self.attention_axes
        axes = range(1, rank - 1) if axes is None else axes
        between = (*range(1, rank - 1), *range(1 - rank, -1))
        if len(axes) != 1 or axes[0] not in between:
            raise errors.UserError(
                "`attention_axes` must name one axis between batch and "
                "features, along which distances are counted. Received: "
                f"inputs of rank {rank} and the axes {tuple(axes)}."
            )
        self._axis = axes[0] % rank
        super().build(*shapes)
        for layer in (self.query_dense, self.key_dense, self.value_dense):
            layer.supports_masking = True  # or Keras warns of the inputs' masks
        self.relative_keys = self.relative_values = None
        if self.add_relative_to_keys:
            self.relative_keys = self._add_table("keys", self.key_dim)
        if self.add_relative_to_values:
            self.relative_values = self._add_table("values", self.value_dim)

    def _check_shapes(self, query, value, key):
        """Refuses shapes that do not fit to one another or to the weights."""
        features = self._features
        positions = ["positions"] * (self._rank - 2)
        checks.sizes("query", query, ("batch", *positions, features[0]))
        checks.sizes("value", value, (query[0], *positions, features[1]))
        checks.sizes("key", key, (query[0], *value[1:-1], features[2]))

    def _add_table(self, kind, depth):
        shape = (2 * self.max_relative_position + 1, depth)  # [R, D]
        limit = (6 / sum(shape)) ** 0.5
        initializer = self.relative_initializer
        if initializer is None:
            initializer = keras.initializers.RandomUniform(-limit, limit)
        elif isinstance(initializer, keras.initializers.Initializer):
            initializer = initializer.clone()  # One object repeats its numbers.
        if not self.heads_share_relative_embedding:
            shape = (self.num_heads, *shape)
        return self.add_weight(
            shape=shape,
            initializer=initializer,
            name=f"relative_positions_{kind}",
        )

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        # Not Keras' call, which takes the masks off its inputs: then
        # `Add()([x, attention(x, x)])` would have none.
        key = value if key is None else key
        self._check_shapes(query.shape, value.shape, key.shape)
        padding = {
            "query_mask": query_mask,
            "value_mask": value_mask,
            "key_mask": key_mask,
        }
        may_attend = self._join_masks(
            query, value, attention_mask, padding, use_causal_mask
        )
        window = getattr(self, "_sliding_window", None)
        others = attention_mask, window, *padding.values()
        q, k, v = (
            # [B, .., N, T or S, D]; a layer may have a dtype of its own.
            ops.cast(ops.moveaxis(layer(x), self._axis, -2), self.compute_dtype)
            for layer, x in (
                (self.query_dense, query),
                (self.key_dense, key),
                (self.value_dense, value),
            )
        )
        heads, scores = self._attend(
            q * ops.cast(self.key_dim**-0.5, q.dtype),
            k,
            v,
            may_attend,
            is_self=query is value,
            is_causal=use_causal_mask and all(one is None for one in others),
            drops=training and self.dropout > 0,
        )
        heads = ops.moveaxis(heads, -2, self._axis)
        if getattr(self, "_use_gate", False):
            heads = heads * self._gate_dense(query)
        output = self.output_dense(heads)
        return (output, scores) if return_attention_scores else output

    def _join_masks(
        self, query, value, attention_mask, padding, use_causal_mask
    ):
        """Returns None, or the masks as one: bool `[B, .., N or 1, T, S]`."""
        # Keras takes the lengths from axis 1.
        query, value = (ops.moveaxis(x, self._axis, 1) for x in (query, value))
        for name, mask in padding.items():
            if mask is not None and self._rank == 3:
                rows = query if name == "query_mask" else value
                checks.sizes(name, mask.shape, rows.shape[:2])
            elif mask is not None and len(mask.shape) > self._axis:
                padding[name] = ops.moveaxis(mask, self._axis, -1)
        by_position = self._compute_attention_mask(
            query, value, use_causal_mask=use_causal_mask, **padding
        )
        if by_position is not None:
            by_position = self._with_heads(by_position)
        if attention_mask is None:
            return by_position
        attention_mask = self._with_heads(attention_mask)
        if self._rank == 3:
            (batch, queries), keys = query.shape[:2], value.shape[1]
            sizes = batch, self.num_heads, queries, keys
            checks.mask_of_pairs("attention_mask", attention_mask, sizes)
        if by_position is None:
            return attention_mask
        return attention_mask & by_position

    def _with_heads(self, mask):
        """Returns `[.., T, S]` as bool `[.., 1, T, S]`, if it has no heads."""
        mask = ops.cast(mask, "bool")
        while 3 <= len(mask.shape) <= self._rank:
            mask = ops.expand_dims(mask, -3)
        return mask

    def _attend(self, q, k, v, may_attend, *, is_self, is_causal, drops):
        """Returns `[B, .., N, T, D]`, and the weights `[B, .., N, T, S]`.

        `is_self` says that T and S are equal for certain, and `is_causal` that
        `may_attend` is the causal mask alone.
        """
        queries, keys = q.shape[-2], k.shape[-2]
        tables = [
            # Where there is no pair, no distance has a vector.
            None
            if table is None or 0 in (queries, keys)
            else ops.cast(ops.convert_to_tensor(table), self.compute_dtype)
            for table in (self.relative_keys, self.relative_values)
        ]
        dropout = None
        if drops:
            dropout = functools.partial(self._dropout_layer, training=True)
        # The compact form needs a key at the position of each query.
        fits = is_self or (None not in (queries, keys) and queries <= keys)
        if (
            self.implementation == "ops"
            or (self.implementation != "reshape" and not fits)
            or not HAS_TENSORFLOW
            or self._rank > 3
        ):
            return relative_ops.relative_attention(
                q, k, v, *tables, may_attend=may_attend, dropout=dropout
            )
        return shaw.relative_attention(
            q,
            k,
            v,
            *tables,
            bias=None if may_attend is None else pairs_lib.to_bias(may_attend),
            implementation=self.implementation,
            query_start=0,
            causal=is_causal,
            dropout=dropout,
        )

    def compute_output_spec(
        self, query: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        spec = super().compute_output_spec(query, value, *args, **kwargs)
        if not isinstance(spec, tuple):
            return spec
        # Keras' own has as many keys as queries.
        batch = list(query.shape[:-1])
        axis = (self.attention_axes or (1,))[0] % len(query.shape)
        lengths = batch.pop(axis), value.shape[axis]
        shape = (*batch, self.num_heads, *lengths)
        return spec[0], keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        initializer = keras.initializers.serialize(self.relative_initializer)
        return super().get_config() | {"relative_initializer": initializer}
