"""Multi-head attention, absolute or relative, with a key/value cache.

Positions are explicit wherever a query may stand somewhere else than at the
end of its keys: a cache with free places after the query would otherwise
shift every distance.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import beams
from relpos_tf.layers import caches
from relpos_tf.layers import dropout as dropout_lib
from relpos_tf.layers import projections
from relpos_tf.layers import relative
from relpos_tf.layers import rows


def causal_mask(query_length, key_length, query_start=None):
    """Returns which keys a query may attend to: itself and those before it.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        query_start: int or scalar tensor: the position of the first query
            among the keys. By default the queries are the last Q keys.

    Returns:
        A bool `[1, 1, Q, K]` tensor; True where attention is allowed.

    Example:

    >>> causal_mask(2, 3).numpy()[0, 0].tolist()
    [[True, True, False], [True, True, True]]
    """
    if query_start is None:
        query_start = key_length - query_length
    queries = query_start + tf.range(query_length)
    allowed = tf.range(key_length)[tf.newaxis, :] <= queries[:, tf.newaxis]
    return allowed[tf.newaxis, tf.newaxis]  # [1, 1, Q, K]


@keras.saving.register_keras_serializable(package="relpos_tf")
class MultiHeadAttention(rows.RowAttention, keras.layers.Layer):
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
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        queries: `[B, Q, F]` tensor.
        memory: `[B, K, F]` tensor to attend to; the queries by default.
        may_attend: None or a bool tensor that broadcasts to `[B, H, Q, K]`,
            True where attention is allowed.
        use_causal_mask: bool. Whether a query may see only itself and the keys
            before it; for self-attention.
        training: bool. Whether to drop weights.

    Returns:
        A `[B, Q, F]` tensor in the layer's compute dtype.

    Raises:
        ValueError: sizes that do not divide, or a negative distance.

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        if hidden_size % num_heads:
            raise ValueError(
                "`hidden_size` must be a multiple of `num_heads`. Received: "
                f"hidden_size={hidden_size}, num_heads={num_heads}."
            )
        if max_relative_position is not None and max_relative_position < 0:
            raise ValueError(
                "`max_relative_position` must be None or at least 0. "
                f"Received: max_relative_position={max_relative_position}."
            )
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.max_relative_position = max_relative_position
        self.add_relative_to_keys = add_relative_to_keys
        self.add_relative_to_values = add_relative_to_values
        self.heads_share_relative_embedding = heads_share_relative_embedding
        self.implementation = implementation
        self.dropout = dropout
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

    def build(self, queries_shape, memory_shape=None):
        self.q.build(queries_shape)
        self.k.build(memory_shape or queries_shape)
        self.v.build(memory_shape or queries_shape)
        self.output_transform.build((*queries_shape[:-1], self.hidden_size))
        self.key_table = self.value_table = None
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
        limit = (6 / (rows + depth)) ** 0.5  # Glorot's, for each head's table
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
        if memory is None:
            q, *keys_values = self._project_all(queries)
            keys_values = caches.KeysValues(*keys_values)
        else:
            q, keys_values = (
                self._project_queries(queries),
                self.project(memory),
            )
        if use_causal_mask:
            length = tf.shape(queries)[1]
            causal = causal_mask(length, length)
            may_attend = causal if may_attend is None else may_attend & causal
        return self._attend(
            q,
            keys_values,
            may_attend=may_attend,
            causal=use_causal_mask,
            training=training,
        )[0]

    def project(self, memory) -> caches.KeysValues:
        """Projects `[B, K, F]` to keys and values, once for many queries."""
        kernel = projections.fuse((self.k, self.v), self.compute_dtype)
        return caches.KeysValues(
            *projections.to_heads(memory, kernel, self.num_heads, parts=2)
        )

    def attend(self, queries, keys_values, **kwargs):
        """Returns the output of `attend_and_weigh`."""
        return self.attend_and_weigh(queries, keys_values, **kwargs)[0]

    def attend_and_weigh(self, queries, keys_values, *, may_attend=None):
        """Attends from `[B, Q, F]` to keys and values that are projected.

        Args:
            queries: `[B, Q, F]` tensor.
            keys_values: `caches.KeysValues`, `[B, H, K, D]` each.
            may_attend: As in the call.

        Returns:
            A pair: a `[B, Q, F]` tensor, and the weights `[B, H, Q, K]`.
        """
        q = self._project_queries(queries)
        return self._attend(q, keys_values, may_attend=may_attend)

    def step(self, queries, cache, *, start):
        """Attends from new positions to all positions so far.

        Args:
            queries: `[B, Q, F]`: the positions `start` to `start + Q - 1`.
            cache: `caches.GrowingCache` or `caches.FixedCache` of the
                positions before.
            start: int or scalar tensor.

        Returns:
            A pair: a `[B, Q, F]` tensor, and the cache with these positions.
        """
        q, *keys_values = self._project_all(queries)
        cache = cache.extend(*keys_values, start)
        may_attend = None  # One query may see all that a growing cache has.
        if queries.shape[1] != 1 or not isinstance(cache, caches.GrowingCache):
            may_attend = causal_mask(
                tf.shape(queries)[1], tf.shape(cache.keys)[2], start
            )
        output, _ = self._attend(
            q, cache, may_attend=may_attend, query_start=start, causal=True
        )
        return output, cache

    def _project_all(self, x):
        """Projects `[B, Q, F]` to queries, keys, values `[B, H, Q, D]`."""
        return projections.to_heads(
            x, self.fused_kernel(), self.num_heads, parts=3
        )

    def _project_queries(self, queries):
        # Scaled once, for the content term and for the relative one.
        scale = (self.hidden_size // self.num_heads) ** -0.5
        kernel = projections.fuse((self.q,), self.compute_dtype, (scale,))
        return projections.to_heads(queries, kernel, self.num_heads, parts=1)[0]

    def _attend(
        self,
        q,
        keys_values,
        *,
        may_attend,
        query_start=None,
        causal=False,
        training=False,
    ):
        """Attends from scaled queries `[B, H, Q, D]`; see `attend_and_weigh`.

        Args:
            q: `[B, H, Q, D]` tensor.
            keys_values: `caches.KeysValues` or a cache, `[B, H, K, D]` each.
            may_attend: As in the call.
            query_start: As in `causal_mask`.
            causal: bool. Whether `may_attend` is a causal mask, or less.
            training: As in the call.
        """
        bias = None
        if may_attend is not None:
            bias = tf.where(may_attend, 0.0, beams.NEGATIVE)
        output, weights = relative.relative_attention(
            q,
            keys_values.keys,
            keys_values.values,
            self._table(self.key_table),
            self._table(self.value_table),
            bias=bias,
            implementation=self.implementation,
            query_start=query_start,
            causal=causal,
            dropout=self._dropout(training),
        )
        batch, _, length, _ = tf.unstack(tf.shape(q))
        output = tf.transpose(output, [0, 2, 1, 3])  # [B, Q, H, D]
        output = tf.reshape(output, [batch, length, self.hidden_size])
        return self.output_transform(output), weights

    def _dropout(self, training):
        if not training or not self.dropout:
            return None
        return lambda weights: self.weights_dropout(weights, training=True)

    def _table(self, weight):
        if weight is None:
            return None
        return tf.cast(weight.value, self.compute_dtype)

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "max_relative_position": self.max_relative_position,
            "add_relative_to_keys": self.add_relative_to_keys,
            "add_relative_to_values": self.add_relative_to_values,
            "heads_share_relative_embedding": (
                self.heads_share_relative_embedding
            ),
            "implementation": self.implementation,
            "dropout": self.dropout,
        }
