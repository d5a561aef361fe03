"""Multi-head attention, absolute or relative, with a key/value cache.

Positions are explicit wherever a query may stand somewhere else than at the
end of its keys: a cache with free places after the query would otherwise
shift every distance.

Where nothing is trained, the queries of long lines are taken in blocks
(`row_blocks`): memory then grows with the length of a line and not with its
square.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import beams
from relpos_tf.layers import cached
from relpos_tf.layers import caches
from relpos_tf.layers import checks
from relpos_tf.layers import dropout as dropout_lib
from relpos_tf.layers import localness as localness_lib
from relpos_tf.layers import masks
from relpos_tf.layers import projections
from relpos_tf.layers import relative
from relpos_tf.layers import row_blocks
from relpos_tf.layers import rows

SCORES = ("dot_product", "additive")
# Arguments that are attributes of the same name.
_PLAIN_ARGUMENTS = (
    "hidden_size",
    "num_heads",
    "max_relative_position",
    "add_relative_to_keys",
    "add_relative_to_values",
    "heads_share_relative_embedding",
    "implementation",
    "dropout",
    "score",
    "window",
    "direction",
    "localness_window",
)
causal_mask = masks.causal_mask


@keras.saving.register_keras_serializable(package="relpos_tf")
class MultiHeadAttention(
    cached.CachedAttention, rows.RowAttention, keras.layers.Layer
):
    """Attention of several heads, by content and perhaps by position.

    Without `max_relative_position` this is scaled dot-product attention. With
    it, learned vectors of the clipped distance between query and key take
    part in both sums. The projections have no biases, as in tensor2tensor.

    Args:
        hidden_size: int, F. Size of the output, and of all heads together.
        num_heads: int, H. Divides `hidden_size`.
        max_relative_position: None or int, k. None: positions play no part.
        add_relative_to_keys: bool. Whether the keys get vectors (equation 4).
        add_relative_to_values: bool. Whether the values do (equation 3).
        heads_share_relative_embedding: bool. One pair of tables for all
            heads, instead of one for each.
        implementation: str. See `relative.relative_attention`.
        dropout: float. Fraction of the attention weights to drop.
        score: str. "dot_product", or "additive": see `additive`.
        window: int. How many places away a key may be at most; 0: any number.
        direction: str. The side that a query looks to: one of
            `masks.DIRECTIONS`; "both": all sides.
        localness: None, or "fixed", "layer" or "query": adds a Gaussian to
            the logits; see `localness`.
        localness_window: float. The window of the kind "fixed".
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        queries: `[B, Q, F]` tensor.
        memory: `[B, K, F]` tensor to attend to; the queries by default.
        may_attend: None or a bool tensor that broadcasts to `[B, H, Q, K]`,
            True where attention is allowed. A query that may attend to
            nothing attends to all keys equally; in float64, which keeps the
            logits beside -1e9, as if it might attend to all.
        use_causal_mask: bool. Whether a query may see only itself and the keys
            before it. The queries are the last keys, those of a memory too.
        training: bool. Whether to drop weights.

    Returns:
        A `[B, Q, F]` tensor in the layer's compute dtype.

    Raises:
        UserError: sizes that do not divide, a negative distance, or a kind
            that there is not.

    Example:

    >>> layer = MultiHeadAttention(8, num_heads=2, max_relative_position=4)
    >>> tuple(layer(tf.ones([3, 5, 8])).shape)
    (3, 5, 8)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        max_relative_position: int | None = None,
        add_relative_to_keys: bool = True,
        add_relative_to_values: bool = True,
        heads_share_relative_embedding: bool = False,
        implementation: str = "auto",
        dropout: float = 0.0,
        score: str = "dot_product",
        window: int = 0,
        direction: str = "both",
        localness: str | None = None,
        localness_window: float = 10,
        **kwargs,
    ):
        super().__init__(**kwargs)
        checks.heads(hidden_size, num_heads)
        if max_relative_position is not None:
            checks.integer(
                "max_relative_position", max_relative_position, least=0
            )
        checks.choice(
            "implementation", implementation, relative.IMPLEMENTATIONS
        )
        checks.choice("score", score, SCORES)
        checks.integer("window", window, least=0)
        checks.fraction("dropout", dropout)
        masks.check_direction(direction, num_heads)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.max_relative_position = max_relative_position
        self.add_relative_to_keys = add_relative_to_keys
        self.add_relative_to_values = add_relative_to_values
        self.heads_share_relative_embedding = heads_share_relative_embedding
        self.implementation = implementation
        self.dropout = dropout
        self.score = score
        self.window = window
        self.direction = direction
        self.localness_kind = localness
        self.localness_window = localness_window
        self.q, self.k, self.v, self.output_transform = (
            projections.Projection(
                hidden_size,
                use_bias=False,
                kernel_initializer="glorot_uniform",
                dtype=self.dtype_policy,
                name=name,
            )
            for name in ("q", "k", "v", "output_transform")
        )
        self.weights_dropout = dropout_lib.Dropout(
            dropout, dtype=self.dtype_policy, name="weights_dropout"
        )
        self.localness = None
        if localness is not None:
            self.localness = localness_lib.Localness(
                hidden_size,
                num_heads,
                kind=localness,
                window=localness_window,
                dtype=self.dtype_policy,
                name="localness",
            )

    def build(self, queries_shape, memory_shape=None):
        self.q.build(queries_shape)
        self.k.build(memory_shape or queries_shape)
        self.v.build(memory_shape or queries_shape)
        self.output_transform.build((*queries_shape[:-1], self.hidden_size))
        self.key_table = self.value_table = self.score_vectors = None
        if self.localness is not None:
            self.localness.build(queries_shape)
        if self.score == "additive":
            depth = self.hidden_size // self.num_heads
            self.score_vectors = self._add_uniform(
                "score_vectors", (self.num_heads, depth), depth + 1
            )
        if self.max_relative_position is None:
            return
        if self.add_relative_to_keys:
            self.key_table = self._add_table("relative_positions_keys")
        if self.add_relative_to_values:
            self.value_table = self._add_table("relative_positions_values")

    def _add_table(self, name):
        rows = 2 * self.max_relative_position + 1
        depth = self.hidden_size // self.num_heads
        shape = (rows, depth)
        if not self.heads_share_relative_embedding:
            shape = (self.num_heads, rows, depth)
        return self._add_uniform(name, shape, rows + depth)

    def _add_uniform(self, name, shape, fans):
        limit = (6 / fans) ** 0.5  # Glorot's, for each head by itself
        return self.add_weight(
            shape=shape,
            initializer=keras.initializers.RandomUniform(-limit, limit),
            name=name,
        )

    def call(
        self,
        queries,
        memory=None,
        *,
        may_attend=None,
        use_causal_mask=False,
        training=False,
    ):
        query_start, causal = None, False
        if memory is None:
            q, *keys_values = self._project_all(queries)
            keys_values = caches.KeysValues(*keys_values)
            query_start = 0  # which says that there are as many keys
            # Another mask may leave a query without any key.
            causal = may_attend is None and (
                use_causal_mask or self.direction == "forward"
            )
        else:
            q = self._project_queries(queries)
            keys_values = self.project(memory)
        arguments = {
            "may_attend": may_attend,
            "use_causal_mask": use_causal_mask,
            "causal": causal,
        }
        # Blocks of queries that stand outside of their keys have no band.
        has_tables = self.max_relative_position is not None
        if training or (memory is not None and has_tables):
            return self._attend_whole(
                queries,
                q,
                keys_values,
                query_start=query_start,
                training=training,
                **arguments,
            )
        size = self._numbers_per_query(q, keys_values.keys)
        return _cond(
            row_blocks.fits(_size(q, 2), size),
            lambda: self._attend_whole(
                queries, q, keys_values, query_start=query_start, **arguments
            ),
            lambda: self._attend_in_blocks(
                queries, q, keys_values, size=size, **arguments
            ),
        )

    def _attend_whole(
        self, queries, q, keys_values, *, use_causal_mask, **arguments
    ):
        """Attends from all queries of a call at once: `[B, Q, F]`."""
        if use_causal_mask:
            mask = masks.causal_mask(
                tf.shape(q)[2], tf.shape(keys_values.keys)[2]
            )
            arguments["may_attend"] = masks.join(arguments["may_attend"], mask)
        return self._attend(queries, q, keys_values, **arguments)[0]

    def _attend_in_blocks(
        self,
        queries,
        q,
        keys_values,
        *,
        may_attend,
        use_causal_mask,
        causal,
        size,
    ):
        """Does what `_attend_whole` does, with little memory.

        Args:
            queries: As of `_attend`, as for the next three.
            q: `[B, H, Q, D]`.
            keys_values: `caches.KeysValues`.
            may_attend: As in the call, as for the next one.
            use_causal_mask: bool.
            causal: As of `_attend`.
            size: What `_numbers_per_query` returned.
        """
        length, keys = tf.shape(q)[2], tf.shape(keys_values.keys)[2]

        def attend(start, end):
            first = keys - length + start
            mask = masks.of_queries(may_attend, start, end)
            if use_causal_mask:
                mask = masks.join(
                    mask, masks.causal_mask(end - start, keys, first)
                )
            output, _ = self._attend(
                queries[:, start:end],
                q[:, :, start:end],
                keys_values,
                may_attend=mask,
                query_start=first,
                causal=causal,
            )
            return [tf.transpose(output, [1, 0, 2])]  # [Q of the block, B, F]

        (output,) = row_blocks.by_blocks(
            attend, length, size, (self.compute_dtype,)
        )
        shape = tf.stack([length, tf.shape(q)[0], self.hidden_size])
        return tf.transpose(tf.reshape(output, shape), [1, 0, 2])

    def _numbers_per_query(self, q, keys):
        """Returns how many numbers attention has for each query: int or int64.

        Where vectors of pairs are made, these are the most.
        """
        depth = self.hidden_size // self.num_heads
        each = _size(q, 0) * self.num_heads  # [B, H, 1, K]
        if self.score == "additive":
            each *= depth
        has_table = self.key_table is not None or self.value_table is not None
        if has_table and (
            self.implementation == "reshape" or self.score == "additive"
        ):
            own = 1 if self.heads_share_relative_embedding else self.num_heads
            each += own * depth + 2 * self.max_relative_position + 1
        return each * _size(keys, 2)

    def _attend(
        self,
        queries,
        q,
        keys_values,
        *,
        may_attend,
        query_start=None,
        causal=False,
        training=False,
    ):
        """Attends from projected queries; see `attend_and_weigh`.

        Args:
            queries: `[B, Q, F]` tensor: what was projected.
            q: `[B, H, Q, D]` tensor, scaled by `query_scale`.
            keys_values: `caches.KeysValues` or a cache, `[B, H, K, D]` each.
            may_attend: As in the call.
            query_start: As in `relative.relative_attention`.
            causal: bool. As in `relative.relative_attention`.
            training: As in the call.
        """
        keys = keys_values.keys
        allowed = self._allowed(may_attend, q, keys, query_start)
        bias = None
        if allowed is not None:
            bias = tf.where(allowed, 0.0, beams.NEGATIVE)
        if self.localness is not None:
            local = self.localness(
                queries,
                keys,
                size=masks.number_of_keys(may_attend, tf.shape(keys)[2]),
                positions=tf.range(tf.shape(keys)[2]),
                may_attend=allowed,
            )
            bias = local if bias is None else local + tf.cast(bias, local.dtype)
        output, weights = relative.relative_attention(
            q,
            keys,
            keys_values.values,
            self._table(self.key_table),
            self._table(self.value_table),
            bias=bias,
            implementation=self.implementation,
            query_start=query_start,
            causal=causal,
            dropout=self._dropout(training),
            score_vectors=self._table(self.score_vectors),
        )
        batch, _, length, _ = tf.unstack(tf.shape(q))
        output = tf.transpose(output, [0, 2, 1, 3])  # [B, Q, H, D]
        output = tf.reshape(output, [batch, length, self.hidden_size])
        return self.output_transform(output), weights

    def _allowed(self, may_attend, q, keys, query_start):
        """Adds what the window and the direction say to a mask."""
        if not self.window and self.direction == "both":
            return may_attend
        by_position = masks.by_position(
            tf.shape(q)[2],
            tf.shape(keys)[2],
            self.window,
            self.direction,
            self.num_heads,
            query_start,
        )
        return masks.join(may_attend, by_position)

    def _dropout(self, training):
        if not training or not self.dropout:
            return None
        return lambda weights: self.weights_dropout(weights, training=True)

    def _table(self, weight):
        if weight is None:
            return None
        return tf.cast(weight.value, self.compute_dtype)

    def get_config(self):
        config = {name: getattr(self, name) for name in _PLAIN_ARGUMENTS}
        config["localness"] = self.localness_kind
        return super().get_config() | config


def _size(tensor, axis):
    """Returns an axis's length: an int, or an int64 scalar if not known."""
    known = tensor.shape[axis]
    return tf.shape(tensor, tf.int64)[axis] if known is None else known


def _cond(condition, if_true, if_false):
    """Returns `tf.cond`, or one branch alone where it is known which."""
    if isinstance(condition, bool):
        return if_true() if condition else if_false()
    return tf.cond(condition, if_true, if_false)
