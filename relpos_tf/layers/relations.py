"""Attention with relations: the edges of a directed, labelled graph.

Section 3.1 of Shaw et al. (2018) gives each pair of a query i and a key j two
vectors. Here the vectors belong to the label r[i, j] of the edge between i and
j (a clipped distance is one kind of label); a label may also have a number s:

    e[i, j] = q[i] . (key[j] + a_key[r[i, j]]) + s[r[i, j]]
    z[i]    = sum_j softmax(e[i])[j] (value[j] + a_value[r[i, j]])

No vectors are laid out for pairs. A query is multiplied with the R rows of a
table, and each pair gathers its product; the weights of a query are summed by
label before the product with the other table. Each of these two operations is
the gradient of the other.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
R relations, X any number. The `ids` of labels are int32 `[B, Q, K]`, from 0 to
R; R itself stands for a pair without a label.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from relpos_tf.layers import attention
from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import band
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class RelationAttention(attention.MultiHead):
    """Attention of several heads, by content and by the labels of edges.

    Label `relations[i, j]` is the relation of key j to query i; that of i to j
    may be another. A pair with a negative label has no relation: its vectors
    and its bias are zero, so its attention is by content, unless `may_attend`
    forbids it. With `shaw.relative_position_ids` as labels, this layer equals
    `attention.TransformerAttention`. The projections have no biases.

    Args:
        hidden_size: int, F. Size of the output, and of all heads together.
        num_heads: int, H. Divides `hidden_size`.
        num_relations: int, R. Labels are 0 to R-1.
        add_relations_to_keys: bool. Whether the keys get vectors (equation 4).
        add_relations_to_values: bool. Whether the values get vectors
            (equation 3).
        add_relation_bias: bool. Whether each label has a number, 0 at first,
            that is added to the logits.
        heads_share_relations: bool. One set of tables for all heads, instead
            of one for each.
        dropout: float. Fraction of the attention weights to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        queries: `[B, Q, F]` tensor.
        relations: int `[Q, K]` or `[B, Q, K]` tensor of labels. One of R or
            more is an error; under XLA, which drops such checks, it counts as
            no relation.
        memory: `[B, K, F]` tensor to attend to; the queries by default.
        may_attend: None or a bool tensor that broadcasts to `[B, H, Q, K]`,
            True where attention is allowed. A query that may attend to nothing
            attends to all keys equally if its logits are below about 32, which
            float32 loses beside -1e9. Larger ones count, and in float64 all of
            them.
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
        UserError: arguments or shapes that do not fit.
        tf.errors.InvalidArgumentError: unknown labels, or shapes that do not
            fit, in a graph that did not know them.

    Example:
    >>> layer = RelationAttention(8, num_heads=2, num_relations=3)
    >>> edges = tf.constant([[-1, 0], [2, -1]])
    >>> tuple(layer(tf.ones([5, 2, 8]), edges).shape)
    (5, 2, 8)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), sections 3.1
        and 5.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_relations: int,
        *,
        add_relations_to_keys: bool = True,
        add_relations_to_values: bool = True,
        add_relation_bias: bool = False,
        heads_share_relations: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(hidden_size, num_heads, dropout=dropout, **kwargs)
        self.num_relations = checks.integer(
            "num_relations", num_relations, least=1
        )
        self.add_relations_to_keys = checks.flag(
            "add_relations_to_keys", add_relations_to_keys
        )
        self.add_relations_to_values = checks.flag(
            "add_relations_to_values", add_relations_to_values
        )
        self.add_relation_bias = checks.flag(
            "add_relation_bias", add_relation_bias
        )
        self.heads_share_relations = checks.flag(
            "heads_share_relations", heads_share_relations
        )

    def build(
        self,
        queries_shape: Sequence[int | None],
        memory_shape: Sequence[int | None] | None = None,
        relations_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().build(queries_shape, memory_shape)
        self.key_table = self.value_table = self.bias_table = None
        if self.add_relations_to_keys:
            self.key_table = self._add_table("relation_keys", self.depth)
        if self.add_relations_to_values:
            self.value_table = self._add_table("relation_values", self.depth)
        if self.add_relation_bias:
            self.bias_table = self._add_table("relation_bias")

    def _add_table(self, name, *depth):
        # For each head's table; one initializer for two would repeat itself.
        uniform = scheme.glorot_uniform(self.num_relations + sum(depth))
        heads = () if self.heads_share_relations else (self.num_heads,)
        return self.add_weight(
            shape=(*heads, self.num_relations, *depth),
            initializer=uniform if depth else "zeros",
            name=name,
        )

    def call(
        self,
        queries: tf.Tensor,
        relations: tf.Tensor,
        memory: tf.Tensor | None = None,
        *,
        may_attend: tf.Tensor | None = None,
        return_weights: bool = False,
        training: bool = False,
        mask: tf.Tensor | None = None,
        queries_mask: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
    ) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
        may_attend = self.joined_mask(
            queries, memory, may_attend, mask, queries_mask, memory_mask
        )
        memory = queries if memory is None else memory
        (q,) = self.to_heads(queries, self.fuse(self.q))  # scaled
        k, v = self.to_heads(memory, self.fuse(self.k, self.v))  # [B, H, K, D]
        logits = tf.matmul(q, k, transpose_b=True)  # [B, H, Q, K]
        ids = self._ids(relations, queries, memory)
        if self.key_table is not None or self.bias_table is not None:
            logits += gather(self._numbers(q), ids)
        bias = None if may_attend is None else pairs_lib.to_bias(may_attend)
        weights = pairs_lib.softmax(logits, bias, v.dtype)
        dropped = self.weights_dropout(weights, training=training)
        output = tf.matmul(dropped, v)  # [B, H, Q, D]
        if self.value_table is not None:
            table = self.compute_value(self.value_table)
            sums = sum_by_label(dropped, ids, self.num_relations)
            output += band.multiply(sums, table)
        output = self.from_heads(output, q)
        return (output, weights) if return_weights else output

    def _numbers(self, q):
        """Returns what each label adds to the logits: `[B, H, Q, R]`."""
        if self.key_table is None:
            shape = [*tf.unstack(tf.shape(q)[:3]), self.num_relations]
            numbers = tf.zeros(shape, q.dtype)
        else:
            table = self.compute_value(self.key_table)
            numbers = band.multiply(q, table, transpose=True)
        if self.bias_table is not None:
            bias = self.compute_value(self.bias_table)
            numbers += tf.expand_dims(bias, -2)  # [1, R] or [H, 1, R]
        return numbers

    def _ids(self, relations, queries, memory):
        """Returns the ids `[B, Q, K]` of checked labels."""
        sizes = *queries.shape[:2], memory.shape[1]
        expected = sizes if len(relations.shape) == 3 else sizes[1:]
        checks.sizes("relations", relations.shape, expected)
        ids = label_ids(relations, self.num_relations)
        # In a graph that does not know its sizes, others are refused here.
        shape = [*tf.unstack(tf.shape(queries)[:2]), tf.shape(memory)[1]]
        return tf.broadcast_to(ids, shape)


def label_ids(relations: tf.Tensor, number: int) -> tf.Tensor:
    """Returns the ids of labels: R for a negative label.

    Raises:
        tf.errors.InvalidArgumentError: a label of R or more. XLA drops the
            check; there, such a label counts as a negative one.
    """
    checks.ids("relations", relations)
    relations = tf.cast(relations, tf.int64)
    largest = tf.reduce_max(relations)
    message = f"Expected labels below {number}. Received:"
    tf.debugging.Assert(largest < number, [message, largest])
    has_label = (relations >= 0) & (relations < number)
    return tf.where(has_label, tf.cast(relations, tf.int32), number)


def gather(numbers: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Gathers `[B, H, Q, R]` by `ids`: `[B, H, Q, K]`; 0 without a label."""
    none = [[0, 0], [0, 0], [0, 0], [0, 1]]  # a zero for no label
    rows = tf.transpose(tf.pad(numbers, none), [0, 2, 3, 1])
    return tf.transpose(_gather(rows, ids), [0, 3, 1, 2])


def sum_by_label(weights: tf.Tensor, ids: tf.Tensor, number: int) -> tf.Tensor:
    """Sums `[B, H, Q, K]` by `ids`: `[B, H, Q, R]`."""
    rows = tf.transpose(weights, [0, 2, 3, 1])  # [B, Q, K, H]
    sums = _segment_sum(rows, ids, number + 1)
    return tf.transpose(sums, [0, 3, 1, 2])[..., :number]


@tf.custom_gradient
def _gather(x, ids):
    """Gathers `[B, Q, X, H]` by ids `[B, Q, K]`: `[B, Q, K, H]`."""

    def gradient(dy):
        return _segment_sum(dy, ids, tf.shape(x)[2]), None

    return tf.gather(x, ids, batch_dims=2), gradient


@tf.custom_gradient
def _segment_sum(x, ids, number):
    """Sums `[B, Q, K, H]` by ids `[B, Q, K]`: `[B, Q, number, H]`."""

    def gradient(dy):
        return _gather(dy, ids), None, None

    batch, queries, _, heads = tf.unstack(tf.shape(x))
    first = tf.range(batch * queries) * number  # of each query
    segments = ids + tf.reshape(first, [batch, queries, 1])
    # In float32, because a long sum of bfloat16 numbers stops growing.
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    sums = tf.math.unsorted_segment_sum(
        tf.cast(x, dtype), segments, batch * queries * number
    )
    shape = [batch, queries, number, heads]
    return tf.cast(tf.reshape(sums, shape), x.dtype), gradient
