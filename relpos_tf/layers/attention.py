"""Multi-head attention, with schemes of positions and a key/value cache.

The layer of the Transformer. `keras_attention` has one with the arguments of
`keras.layers.MultiHeadAttention`, and `conversion` turns one into the other.

The position of the first query is explicit if the queries may be others than
the last keys: a cache with room after the query has more keys than that.

Without training, the queries of long lines are taken in blocks (`row_blocks`),
so that memory grows with the length of a line and not with its square.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
n hypotheses of one source.
"""

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import caches
from relpos_tf.layers import heads as heads_lib
from relpos_tf.layers import masks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers import row_blocks
from relpos_tf.layers.positions import scheme as scheme_lib


@keras.saving.register_keras_serializable(package="relpos_tf")
class TransformerAttention(heads_lib.Heads):
    """Attention of several heads, by content and optionally by position.

    Without `positions` this is scaled dot-product attention. The projections
    have no biases, as in tensor2tensor.

    Generation computes one position after another, and keeps the keys and
    values of earlier positions in a cache: `init_cache` makes it, and `step`
    returns the rows of new positions and the cache with them. These rows equal
    those of one causal call; only the rounding differs, by about 1e-6 in
    float32 and 1e-15 in float64 for outputs of size 1.

    Args:
        hidden_size: int, F. Size of the output, and of all heads together.
        num_heads: int, H. Divides `hidden_size`.
        positions: Sequence of `positions.scheme.Scheme`: how positions take
            part. The layer keeps copies.
        dropout: float. Fraction of the attention weights to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        queries: `[B, Q, F]` tensor.
        memory: `[B, K, F]` tensor to attend to; the queries by default.
        may_attend: None or a bool tensor that broadcasts to `[B, H, Q, K]`,
            True where attention is allowed. A query that may attend to
            nothing attends to all keys equally if its logits are below about
            32, which float32 loses beside -1e9. Larger ones count, and in
            float64 all of them.
        use_causal_mask: bool. Whether a query may see only itself and the keys
            before it. The queries are the last keys, those of a memory too.
        return_weights: bool. Whether to return the attention weights as well.
        training: bool. Whether to drop weights.
        mask: None or bool `[B, Q]`: False for padding, to which no query
            attends. Keras passes here, or as the next two, the masks that
            layers such as `Embedding(mask_zero=True)` attach to tensors.
        queries_mask: The same.
        memory_mask: None or bool `[B, K]`, for a memory.

    Returns:
        A `[B, Q, F]` tensor in the layer's compute dtype; with
        `return_weights` a pair of it and the weights before dropout,
        `[B, H, Q, K]`.

    Raises:
        UserError: sizes that do not divide, something else than schemes, or
            inputs and masks of shapes that do not fit.

    Example:

    >>> from relpos_tf.layers.positions import shaw
    >>> layer = TransformerAttention(8, num_heads=2, positions=[shaw.Shaw(4)])
    >>> x = keras.random.normal([3, 5, 8])
    >>> y = layer(x, use_causal_mask=True)
    >>> prompt, cache = layer.step(x[:, :4], layer.init_cache(3), start=0)
    >>> last, cache = layer.step(x[:, 4:], cache, start=4)
    >>> rows = tf.concat([prompt, last], axis=1)
    >>> bool(tf.reduce_max(tf.abs(rows - y)) < 1e-6)
    True

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2;
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        positions=(),
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(hidden_size, num_heads, dropout=dropout, **kwargs)
        self.positions = scheme_lib.copies(positions)
        base = scheme_lib.Scheme
        self._scoring = next((s for s in self.positions if s.computes), base())
        self._transforming = [
            s for s in self.positions if type(s).transform is not base.transform
        ]
        self._adding = [
            s for s in self.positions if type(s).bias is not base.bias
        ]
        self.scale = self._scoring.scale(self.depth)

    def build(self, queries_shape, memory_shape=None):
        super().build(queries_shape, memory_shape)
        for one in self.positions:
            one.build(self)

    def add_uniform(self, name, shape, fans, autocast=True):
        """Adds a weight for a scheme, with Glorot's uniform initial values."""
        self._check_new(name)
        limit = (6 / fans) ** 0.5
        weight = self.add_weight(
            shape=shape,
            initializer=keras.initializers.RandomUniform(-limit, limit),
            autocast=autocast,
            name=name,
        )
        # An attribute, or tf.train.Checkpoint would not see it.
        setattr(self, name, weight)
        return weight

    def add_sublayer(self, layer):
        """Adds and builds a layer for a scheme; returns it."""
        self._check_new(layer.name)
        setattr(self, layer.name, layer)
        layer.build((None, None, self.hidden_size))
        return layer

    def _check_new(self, name):
        """Refuses a name for which saved files would keep one weight of two."""
        if hasattr(self, name):
            raise errors.UserError(
                "The schemes of `positions` must give their weights and "
                "sublayers names that the layer does not have: choose another "
                "one, or leave out one of two schemes of a kind. Received: "
                f"{name!r}."
            )

    def call(
        self,
        queries,
        memory=None,
        *,
        may_attend=None,
        use_causal_mask=False,
        return_weights=False,
        training=False,
        mask=None,
        queries_mask=None,
        memory_mask=None,
    ):
        padding = {
            "mask": mask,
            "queries_mask": queries_mask,
            "memory_mask": memory_mask,
        }
        may_attend = self.allowed(queries, memory, may_attend, padding)
        if memory is queries:
            memory = None  # whose positions are those of the queries, too
        start, causal = None, False
        if memory is not None and use_causal_mask:
            _check_causal(queries.shape[1], memory.shape[1])
        if memory is None:
            q, keys_values = self._project_all(queries, 0)
            start = 0  # as many keys as queries
            # A mask of the caller might leave a query without any key.
            causal = may_attend is None and use_causal_mask
        else:
            q = self._project_queries(queries, tf.shape(memory)[1])
            keys_values = self.project(memory)
        pairs = pairs_lib.Sequence(
            tf.shape(q)[2],
            tf.shape(keys_values.keys)[2],
            start,
            causal,
            may_attend,
            use_causal_mask,
        )
        # With a memory, a block may have queries at positions without a key,
        # which the compact form of relative positions cannot compute.
        is_whole = memory is not None and self.tables()
        if is_whole or training or return_weights:
            output, weights = self._attend(
                queries, q, keys_values, pairs, training=training
            )
            return (output, weights) if return_weights else output
        size = self._numbers_per_query(q, keys_values)
        return row_blocks.cond(
            row_blocks.fits(row_blocks.size(q, 2), size),
            lambda: self._attend(queries, q, keys_values, pairs)[0],
            lambda: self._attend_in_blocks(
                queries, q, keys_values, pairs, size
            ),
        )

    def _attend_in_blocks(self, queries, q, keys_values, pairs, size):
        """Attends from one block of queries after another, to save memory."""

        def attend(start, end):
            output, _ = self._attend(
                queries[:, start:end],
                q[:, :, start:end],
                keys_values,
                pairs.of_queries(start, end),
            )
            return [tf.transpose(output, [1, 0, 2])]  # [Q of the block, B, F]

        (output,) = row_blocks.by_blocks(
            attend, pairs.queries, size, (self.compute_dtype,)
        )
        shape = tf.stack([pairs.queries, tf.shape(q)[0], self.hidden_size])
        return tf.transpose(tf.reshape(output, shape), [1, 0, 2])

    def _numbers_per_query(self, q, keys_values):
        """Returns how many numbers attention computes for each query."""
        logits = row_blocks.size(q, 0) * self.num_heads  # [B, H] of a pair
        each = self._scoring.numbers_per_pair(
            logits, self.num_heads, self.depth
        )
        return each * row_blocks.size(keys_values.keys, 2)

    def project(self, memory) -> caches.KeysValues:
        """Projects `[B, K, F]` to keys and values, once for many queries."""
        k, v = self.to_heads(memory, self.k, self.v)
        return caches.KeysValues(self._transform(k, 0), v)

    def attend(self, queries, keys_values, *, may_attend=None):
        """Attends from `[B, Q, F]` to projected keys and values.

        Returns:
            A pair: a `[B, Q, F]` tensor, and the weights `[B, H, Q, K]`.
        """
        length, keys = tf.shape(queries)[1], tf.shape(keys_values.keys)[2]
        q = self._project_queries(queries, keys)
        pairs = pairs_lib.Sequence(length, keys, may_attend=may_attend)
        return self._attend(queries, q, keys_values, pairs)

    def init_cache(self, batch_size, max_length=None):
        """Returns the cache before the first `step`.

        Args:
            batch_size: int or scalar tensor, B.
            max_length: None for a `caches.GrowingCache`, whose shape changes
                with every step, or an int or scalar tensor: the number of
                positions of a `caches.FixedCache`, whose shape stays.
        """
        kind = caches.FixedCache
        if max_length is None:
            kind, max_length = caches.GrowingCache, 0
        shape = [batch_size, self.num_heads, max_length, self.depth]
        empty = tf.zeros(shape, self.compute_dtype)
        return kind(empty, empty)

    def step(self, queries, cache, *, start):
        """Attends from new positions to themselves and the positions before.

        The result equals these rows of `call(..., use_causal_mask=True)` for
        the whole sequences, which have no padding.

        Args:
            queries: `[B, Q, F]`: the positions `start` to `start + Q - 1`, a
                whole prompt or one position.
            cache: The result of `init_cache`, or of the step before.
            start: int or scalar tensor: the number of positions so far.

        Returns:
            A pair: a `[B, Q, F]` tensor, and the cache with these positions.

        Raises:
            UserError: the layer was not built, the cache has no room for the
                positions, or `start` is not the number of positions so far. A
                graph checks the sizes that it knows.
        """
        if not self.built:
            raise errors.UserError(
                "The layer must be built before a step, by a call for example. "
                f"Received: {self}."
            )
        queries = tf.convert_to_tensor(queries)
        cache.check_start(start, queries.shape[1])
        q, new = self._project_all(queries, start)
        cache = cache.extend(new.keys, new.values, start)
        length, keys = tf.shape(queries)[1], tf.shape(cache.keys)[2]
        may_attend = None  # one query may attend to all of a growing cache
        if queries.shape[1] != 1 or not isinstance(cache, caches.GrowingCache):
            may_attend = masks.causal_mask(length, keys, start)
        pairs = pairs_lib.Sequence(length, keys, start, True, may_attend)
        return self._attend(queries, q, cache, pairs)[0], cache

    def fused_kernel(self):
        """Returns the kernel `[F, 3 F]` of queries, keys and values.

        A search reads it once for all of its steps.
        """
        return self.fuse(self.q, self.k, self.v)

    def project_rows(self, rows, sources) -> caches.BeamKeysValues:
        """Projects `[B * K, F]` to keys and values of `sources`, B."""
        k, v = (self._split_rows(f(rows), sources) for f in (self.k, self.v))
        k = self._transform(k, 0)  # [B, H, K, D]
        return caches.BeamKeysValues(tf.transpose(k, [0, 1, 3, 2]), v)

    def step_rows(self, rows, kernel, cache, pairs):
        """Attends from hypotheses at one position to all positions so far.

        Args:
            rows: `[B * n, F]` tensor: the n hypotheses of each source.
            kernel: The result of `fused_kernel`.
            cache: `caches.BeamKeysValues` of the positions before.
            pairs: `pairs.OnePosition`, the position of the rows included.

        Returns:
            A pair: a `[B * n, F]` tensor, and the cache with this position.
        """
        q, k, v = heads_lib.split_projections(
            tf.matmul(rows, kernel),  # [B * n, 3 F]
            [*_sources(cache, pairs), 3, self.num_heads, self.depth],
        )  # [B, H, n, D] each
        if self._transforming:
            position = pairs.number_of_keys() - 1
            q, k = (self._transform(x, position, length=1) for x in (q, k))
        k = tf.transpose(k, [0, 1, 3, 2])  # [B, H, D, n]
        cache = cache.extend(caches.BeamKeysValues(k, v))
        return self._attend_rows(rows, q, cache, pairs), cache

    def attend_rows(self, rows, keys_values, pairs):
        """Attends from `[B * n, F]`: hypotheses at one position."""
        shape = [*_sources(keys_values, pairs), self.num_heads, self.depth]
        q = heads_lib.split_heads(self.q(rows), shape)  # [B, H, n, D]
        return self._attend_rows(rows, q * self.scale, keys_values, pairs)

    def tables(self):
        """Returns the vectors of clipped distances, by kind: keys, values."""
        return {
            kind: table
            for one in self.positions
            for kind, table in one.tables().items()
        }

    def _project_all(self, x, start):
        """Projects `[B, Q, F]` at the positions from `start`; q is scaled."""
        q, k, v = self.to_heads(x, self.q, self.k, self.v)
        keys_values = caches.KeysValues(self._transform(k, start), v)
        return self._transform(q, start), keys_values

    def _project_queries(self, queries, keys):
        """Projects the queries of the last of `keys` positions, scaled."""
        (q,) = self.to_heads(queries, self.q)
        return self._transform(q, keys - tf.shape(q)[2])

    def _split_rows(self, rows, sources):
        """Splits the heads of `[B * L, F]`: `[B, H, L, D]`."""
        shape = [sources, -1, self.num_heads, self.depth]
        return heads_lib.split_heads(rows, shape)

    def _transform(self, x, start, length=None):
        """Applies schemes to `[B, H, L, D]` at the positions from `start`.

        With a `length` of 1, all L have the position `start`.
        """
        if not self._transforming:
            return x
        length = tf.shape(x)[2] if length is None else length
        for one in self._transforming:
            x = one.transform(x, start + tf.range(length))
        return x

    def _attend_rows(self, rows, q, keys_values, pairs):
        """Attends from `[B, H, n, D]` queries of one position: `[B * n, F]`."""
        x = None
        if self._adding:
            shape = [*_sources(keys_values, pairs), self.hidden_size]
            x = tf.reshape(rows, shape)  # [B, n, F]
        heads, _ = self._heads(x, q, keys_values, pairs)
        rows = heads_lib.join_heads(heads, [-1, self.hidden_size])
        return self.output_transform(rows)

    def _attend(self, x, q, keys_values, pairs, training=False):
        """Returns the output `[B, Q, F]` and the weights `[B, H, Q, K]`."""
        heads, weights = self._heads(x, q, keys_values, pairs, training)
        # The shape of q: its lengths are static where `heads` has none.
        batch, _, length, _ = tf.unstack(tf.shape(q))
        rows = heads_lib.join_heads(heads, [batch, length, self.hidden_size])
        return self.output_transform(rows), weights

    def _heads(self, x, q, keys_values, pairs, training=False):
        """Attends with every head, by all hooks of the schemes.

        Args:
            x: `[B, Q, F]` tensor, the input of the queries' projection.
            q: `[B, H, Q, D]` tensor, scaled.
            keys_values: One of the classes of `caches`, of K positions.
            pairs: `pairs.Sequence` or `pairs.OnePosition`.
            training: bool.

        Returns:
            A pair: `[B, H, Q, D]`, and the weights before dropout,
            `[B, H, Q, K]`.
        """
        by_position = masks.join(*(s.allowed(pairs) for s in self.positions))
        bias = pairs.bias(by_position)
        for one in self._adding:
            allowed = pairs.allowed(by_position)
            more = one.bias(x, keys_values, pairs, allowed)
            bias = more if bias is None else more + tf.cast(bias, more.dtype)
        logits = self._scoring.logits(q, keys_values, pairs)
        weights = self._scoring.weights(logits, bias, self.compute_dtype)
        drops = training and self.dropout > 0
        dropped = (
            self.weights_dropout(weights, training=True) if drops else weights
        )
        heads = self._scoring.output(
            dropped, keys_values, pairs, sums_to_one=not drops
        )  # [B, H, Q, D]
        return heads, self._scoring.weights_of_keys(weights)

    def get_config(self):
        return super().get_config() | {
            "positions": scheme_lib.serialized(self.positions)
        }


def _sources(keys_values, pairs):
    """Returns the sizes B, n of rows `[B * n, F]`, of which one may be -1.

    Constants save operations in every step of a search.
    """
    if pairs.number is not None:
        return -1, pairs.number
    return tf.shape(keys_values.values)[0], -1


def _check_causal(queries, keys):
    """Refuses a causal mask that leaves queries without any key."""
    if None not in (queries, keys) and queries > keys:
        raise errors.UserError(
            "With `use_causal_mask`, the memory must be at least as long as "
            "the queries, which are its last positions; "
            "`RelativeMultiHeadAttention` counts from the first. Received: "
            f"{queries} queries and {keys} keys."
        )
