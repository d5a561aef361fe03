"""Multi-head attention, with schemes of positions and a key/value cache.

This is the layer of the Transformer; `keras_attention` has one with the
arguments of `keras.layers.MultiHeadAttention`. Without training, the queries of
long lines are taken in blocks (`row_blocks`), to save memory.

Shapes: B batch, H heads, Q queries, K keys, L queries or keys, D depth per
head, F features, P projections at once. Projected queries are scaled by
`D**-0.5`.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import base
from relpos_tf.layers import checks
from relpos_tf.layers import dropout as dropout_lib
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers import projections
from relpos_tf.layers import row_blocks
from relpos_tf.layers.positions import scheme as scheme_lib


class MultiHead(base.Layer):
    """Projections and dropout of an attention: base of attention layers."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.hidden_size = checks.integer("hidden_size", hidden_size, least=1)
        self.num_heads = checks.integer("num_heads", num_heads, least=1)
        self.depth, rest = divmod(self.hidden_size, self.num_heads)
        if rest:
            raise errors.UserError(
                "`hidden_size` must be a multiple of `num_heads`. Received: "
                f"hidden_size={hidden_size!r}, num_heads={num_heads!r}."
            )
        self.dropout = checks.number("dropout", dropout, least=0, below=1)
        self.supports_masking = True
        self.q, self.k, self.v, self.output_transform = (
            projections.Projection(
                self.hidden_size,
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

    def build(
        self,
        queries_shape: Sequence[int | None],
        memory_shape: Sequence[int | None] | None = None,
    ) -> None:
        memory_shape = memory_shape or queries_shape
        axes = "batch", "positions", "features"
        checks.sizes("queries", queries_shape, axes)
        checks.sizes("memory", memory_shape, axes)
        features = {-1: queries_shape[-1]}
        self.input_spec = keras.layers.InputSpec(ndim=3, axes=features)
        self.q.build(queries_shape)
        self.k.build(memory_shape)
        self.v.build(memory_shape)
        self.output_transform.build((*queries_shape[:-1], self.hidden_size))

    def compute_output_shape(self, queries_shape: Any, *others: Any) -> Any:
        return (*queries_shape[:-1], self.hidden_size)

    def joined_mask(
        self,
        queries: tf.Tensor,
        memory: tf.Tensor | None,
        may_attend: tf.Tensor | None,
        mask: tf.Tensor | None,
        queries_mask: tf.Tensor | None,
        memory_mask: tf.Tensor | None,
    ) -> tf.Tensor | None:
        """Checks the inputs of a call, and joins its masks."""
        batch, length = queries.shape[:2]
        keys = queries if memory is None else memory
        features = self.k.kernel.shape[0]
        checks.sizes("memory", keys.shape, (batch, "keys", features))
        padding, other = {"memory_mask": memory_mask}, mask
        if memory is None:
            padding = {"mask": mask, "queries_mask": queries_mask}
            other = memory_mask
        if other is not None:
            raise errors.UserError(
                "The padding of the keys is `memory_mask` with a memory, and "
                "`mask` without. Received: the other one."
            )
        if may_attend is not None:
            may_attend = tf.convert_to_tensor(may_attend)
            sizes = batch, self.num_heads, length, keys.shape[1]
            checks.mask_of_pairs("may_attend", may_attend, sizes)
            may_attend = tf.cast(may_attend, tf.bool)
        for name, one in padding.items():
            if one is not None:
                checks.sizes(name, one.shape, keys.shape[:2])
                one = tf.cast(one, tf.bool)[:, tf.newaxis, tf.newaxis]
                may_attend = pairs_lib.join(may_attend, one)
        return may_attend  # [B, H or 1, Q or 1, K]

    def compute_value(self, *variables: keras.Variable) -> tf.Tensor:
        """Returns a variable in the compute dtype; several, stacked."""
        values = [variable.value for variable in variables]
        value = values[0] if len(values) == 1 else tf.stack(values)
        return tf.cast(value, self.compute_dtype)

    def fuse(self, *layers: keras.layers.Layer) -> tf.Tensor:
        """Returns the kernel `[F, P * H * D]` of P projections at once."""
        kernels = [projections.kernel_of(layer) for layer in layers]
        if layers[0] is self.q:
            kernels[0] = kernels[0] * self.depth**-0.5
        return tf.cast(tf.concat(kernels, 1), self.compute_dtype)

    def to_heads(self, x: tf.Tensor, kernel: tf.Tensor) -> list[tf.Tensor]:
        """Projects `[B, L, F]` by a fused kernel: P tensors `[B, H, L, D]`."""
        batch, length = tf.shape(x)[0], pairs_lib.size(x, 1)
        heads, depth = self.num_heads, self.depth
        number = kernel.shape[1] // self.hidden_size  # P
        rows = tf.reshape(tf.cast(x, kernel.dtype), [-1, kernel.shape[0]])
        rows = tf.matmul(rows, kernel)  # [B * L, P * H * D]
        if x.shape[1] == 1:  # quicker than a transpose
            rows = tf.reshape(rows, [batch, number, heads, 1, depth])
            return tf.unstack(rows, axis=1)
        rows = tf.reshape(rows, [batch, length, number, heads, depth])
        return tf.unstack(tf.transpose(rows, [2, 0, 3, 1, 4]))

    def from_heads(self, heads: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        """Joins `[B, H, L, D]` and projects to the output, `[B, L, F]`."""
        rows = tf.transpose(heads, [0, 2, 1, 3])  # [B, L, H, D]
        # The shape of the queries: LiteRT cannot convert that of a sum.
        shape = [tf.shape(q)[0], pairs_lib.size(q, 2), self.hidden_size]
        return self.output_transform(tf.reshape(rows, shape))


@keras.saving.register_keras_serializable(package="relpos_tf")
class TransformerAttention(MultiHead):
    """Attention of several heads, by content and optionally by position.

    Without `positions` this is scaled dot-product attention. The projections
    have no biases, as in tensor2tensor. `step` computes new positions with a
    cache of the positions before: the rows of one causal call but for rounding,
    by about 1e-6 in float32.

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
        pairs: None, or the pairs that the layers of a stack share, in place of
            a memory and of masks: `positions.scheme.share`.
        return_weights: bool. Whether to return the attention weights as well.
        training: bool. Whether to drop weights.
        mask: None or bool `[B, Q]`: False for padding, to which no query
            attends. Keras passes here, or as `queries_mask`, the mask that a
            layer such as `Embedding(mask_zero=True)` attaches to a tensor.
        memory_mask: None or bool `[B, K]`, for a memory.

    Returns:
        A `[B, Q, F]` tensor in the layer's compute dtype; with
        `return_weights` a pair of it and the weights before dropout,
        `[B, H, Q, K]`.

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
        positions: Sequence[scheme_lib.Scheme] = (),
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(hidden_size, num_heads, dropout=dropout, **kwargs)
        self.positions = scheme_lib.copies(positions)

    def build(
        self,
        queries_shape: Sequence[int | None],
        memory_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().build(queries_shape, memory_shape)
        for one in self.positions:
            one.build(self)

    def add_scheme_weight(
        self, name: str, shape: Sequence[int], initializer: Any, **options: Any
    ) -> keras.Variable:
        """Adds a variable for a scheme; the arguments are `add_weight`'s."""
        if hasattr(self, name):
            raise errors.UserError(
                "The schemes of `positions` must give their variables names "
                "that the layer does not have: choose a new one, or leave "
                f"out one of two schemes of a kind. Received: {name!r}."
            )
        variable = self.add_weight(
            name=name, shape=shape, initializer=initializer, **options
        )
        # An attribute, or tf.train.Checkpoint would not see it.
        setattr(self, name, variable)
        return variable

    def call(
        self,
        queries: tf.Tensor,
        memory: tf.Tensor | None = None,
        *,
        may_attend: tf.Tensor | None = None,
        use_causal_mask: bool = False,
        pairs: pairs_lib.Pairs | None = None,
        return_weights: bool = False,
        training: bool = False,
        mask: tf.Tensor | None = None,
        queries_mask: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
    ) -> Any:
        if pairs is not None and (
            may_attend is not None or (use_causal_mask and not pairs.causal)
        ):
            raise errors.UserError(
                "`pairs` takes the place of masks: give it `may_attend` and "
                "`causal`. Received: both."
            )
        may_attend = self.joined_mask(
            queries, memory, may_attend, mask, queries_mask, memory_mask
        )
        if memory is None:
            start = 0  # as many keys as queries
            q, keys_values = self._project_all(queries, start)
        else:
            start = None
            if use_causal_mask:
                _check_causal(queries.shape[1], memory.shape[1])
            keys_values = self.project(memory)
            q = self._project_queries(queries, keys_values)
        pairs = pairs or pairs_lib.Pairs(
            pairs_lib.size(q, 2),
            pairs_lib.size(keys_values.keys, 2),
            start,
            may_attend,
            use_causal_mask,
        )
        # With a memory, a block may have queries at positions without a key,
        # which the compact form of relative positions cannot compute.
        is_whole = memory is not None and any(
            map(self._schemes, ("logits", "output", "attend"))
        )
        if training or return_weights or is_whole:
            output, weights = self._attend(
                queries, q, keys_values, pairs, training
            )
            return (output, weights) if return_weights else output
        return self._attend_in_blocks(queries, q, keys_values, pairs)

    def _attend_in_blocks(self, x, q, keys_values, pairs):
        """Attends from one block of queries after another, to save memory."""
        rows = pairs.queries
        numbers = pairs_lib.size(q, 0) * self.num_heads * pairs.keys
        if self._schemes("attend"):
            numbers *= self.depth  # of a pair, at most
        if row_blocks.at_once(rows, numbers):
            return self._attend(x, q, keys_values, pairs)[0]

        def attend(start, end):
            output, _ = self._attend(
                x[:, start:end],
                q[:, :, start:end],
                keys_values,
                pairs.of_queries(start, end),
            )
            return [tf.transpose(output, [1, 0, 2])]  # [Q of the block, B, F]

        dtypes = (self.compute_dtype,)
        (output,) = row_blocks.by_blocks(attend, rows, numbers, dtypes)
        shape = [rows, tf.shape(x)[0], self.hidden_size]
        return tf.transpose(tf.reshape(output, shape), [1, 0, 2])

    def project(self, memory: tf.Tensor) -> pairs_lib.KeysValues:
        """Projects `[B, K, F]` to keys and values, once for many queries."""
        k, v = self.to_heads(memory, self.fuse(self.k, self.v))
        return pairs_lib.KeysValues(self._rotate(k, 0), v)

    def attend(
        self,
        queries: tf.Tensor,
        keys_values: pairs_lib.KeysValues,
        *,
        may_attend: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends to a projected memory: `[B, Q, F]`, `[B, H, Q, K]`."""
        q = self._project_queries(queries, keys_values)
        pairs = pairs_lib.Pairs(
            pairs_lib.size(queries, 1),
            pairs_lib.size(keys_values.keys, 2),
            may_attend=may_attend,
        )
        return self._attend(queries, q, keys_values, pairs)

    def init_cache(
        self,
        batch_size: int | tf.Tensor,
        max_length: int | tf.Tensor | None = None,
    ) -> pairs_lib.KeysValues:
        """Returns the cache before the first `step`.

        It grows, or with `max_length` it is a `pairs.FixedCache` of so many
        positions.
        """
        kind: type[pairs_lib.KeysValues] = pairs_lib.FixedCache
        if max_length is None:
            kind, max_length = pairs_lib.KeysValues, 0
        shape = [batch_size, self.num_heads, max_length, self.depth]
        empty = tf.zeros(shape, self.compute_dtype)
        return kind(empty, empty)

    def step(
        self,
        queries: tf.Tensor,
        cache: pairs_lib.KeysValues,
        *,
        start: int | tf.Tensor,
        kernel: tf.Tensor | None = None,
        pairs: pairs_lib.Pairs | None = None,
    ) -> tuple[tf.Tensor, pairs_lib.KeysValues]:
        """Attends from new positions; returns `[B, Q, F]` and the new cache.

        Args:
            queries: `[B, Q, F]`: a prompt or one position, without padding.
            cache: The result of `init_cache`, or of the step before.
            start: int or scalar tensor: the number of positions so far, which
                a growing cache knows.
            kernel: None or `step_kernel()`, if many steps are to share it.
            pairs: None or `step_pairs` of any layer, if a stack shares them.

        Raises:
            UserError: a fixed cache has no room, as far as the graph knows.
        """
        number = pairs_lib.size(queries, 1)
        pairs = pairs or self.step_pairs(number, cache, start)
        q, new = self._project_all(queries, pairs.first(), kernel)
        cache = cache.extend(new, pairs.first())
        return self._attend(queries, q, cache, pairs)[0], cache

    def step_pairs(
        self,
        number: int | tf.Tensor,
        cache: pairs_lib.KeysValues,
        start: int | tf.Tensor,
    ) -> pairs_lib.Pairs:
        """Returns the pairs of a number of new positions, in `step`."""
        keys = pairs_lib.size(cache.keys, 2)
        if isinstance(cache, pairs_lib.FixedCache):
            return pairs_lib.Pairs(number, keys, start, causal=True)
        return pairs_lib.Pairs(number, keys + number, causal=True)

    def step_kernel(self) -> tf.Tensor:
        """Returns the kernel `[F, 3 F]` of queries, keys and values."""
        return self.fuse(self.q, self.k, self.v)

    def _project_all(self, x, start, kernel=None):
        """Projects `[B, Q, F]` at the positions from `start`."""
        kernel = self.step_kernel() if kernel is None else kernel
        q, k, v = self.to_heads(x, kernel)
        keys_values = pairs_lib.KeysValues(self._rotate(k, start), v)
        return self._rotate(q, start), keys_values

    def _project_queries(self, queries, keys_values):
        """Projects `[B, Q, F]` at the last positions of the keys."""
        (q,) = self.to_heads(queries, self.fuse(self.q))
        start = tf.shape(keys_values.keys)[2] - tf.shape(q)[2]
        return self._rotate(q, start)

    def _schemes(self, hook):
        """Returns the schemes that have a hook."""
        return [one for one in self.positions if one.overrides(hook)]

    def _rotate(self, x, start):
        """Rotates `[B, H, L, D]` at the positions from `start`."""
        for one in self._schemes("rotate"):
            x = one.rotate(x, start + tf.range(tf.shape(x)[2]))
        return x

    def _attend(self, x, q, keys_values, pairs, training=False):
        """Returns `[B, Q, F]`, and the weights before dropout."""
        bias = pairs.bias()
        for one in self._schemes("bias"):
            more = one.bias(x, keys_values.keys, pairs)
            more = pairs_lib.finite(more, self.compute_dtype)
            bias = more if bias is None else more + tf.cast(bias, more.dtype)
        if replacing := self._schemes("attend"):
            heads, weights = replacing[0].attend(
                self, q, keys_values, pairs, bias, training
            )
        else:
            logits = tf.matmul(q, keys_values.keys, transpose_b=True)
            logits = self.logits(logits, q, pairs)  # [B, H, Q, K]
            weights = pairs_lib.softmax(logits, bias, self.compute_dtype)
            values = keys_values.values
            heads = self.weighted_values(weights, values, pairs, training)
        return self.from_heads(heads, q), weights

    def logits(
        self, logits: tf.Tensor, q: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        """Adds what the schemes add to logits `[B, H, Q, K]`."""
        for one in self._schemes("logits"):
            logits = one.logits(logits, q, pairs)
        return logits

    def weighted_values(
        self,
        weights: tf.Tensor,
        values: tf.Tensor,
        pairs: pairs_lib.Pairs,
        training: bool,
        others: Sequence[scheme_lib.Scheme] = (),
    ) -> tf.Tensor:
        """Drops weights, and multiplies them with values and schemes' vectors.

        `others` are schemes besides those of the layer.
        """
        sums_to_one = not self._schemes("attend")
        if training and self.dropout > 0:
            weights = self.weights_dropout(weights, training=True)
            sums_to_one = False
        summands = []
        for one in (*self._schemes("output"), *others):
            weights, summand = one.output(weights, pairs, sums_to_one)
            summands.append(summand)
            sums_to_one = False  # the hook may have changed them
        return sum(summands, tf.matmul(weights, values))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "positions": scheme_lib.serialized(self.positions)
        }


def _check_causal(queries, keys):
    """Refuses a causal mask that leaves queries without any key."""
    if None not in (queries, keys) and queries > keys:
        raise errors.UserError(
            "With `use_causal_mask`, the memory must be at least as long as "
            "the queries, which are its last positions; "
            "`RelativeMultiHeadAttention` counts from the first. Received: "
            f"{queries} queries and {keys} keys."
        )
