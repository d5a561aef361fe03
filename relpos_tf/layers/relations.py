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
R relations, X any number.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import band
from relpos_tf.utils import checks

_PAIRS = {3: "qkd", 4: "bqkd", 5: "bhqkd"}  # axes of vectors, by their number


@keras.saving.register_keras_serializable(package="relpos_tf")
class RelationAttention(attention.MultiHead):
    """Attention of several heads, by content and by the labels of edges.

    Label `relations[i, j]` is the relation of key j to query i; that of i to j
    may be another. A pair without a relation has vectors and a bias of zero:
    its attention is by content, unless `may_attend` forbids it. With
    `relative.relative_position_ids` as labels, this layer equals
    `attention.TransformerAttention`. The projections have no biases.

    Args:
        hidden_size: int, F. Size of the output, and of all heads together.
        num_heads: int, H. Divides `hidden_size`.
        num_relations: None or int, R. Labels are 0 to R-1. None: no labels,
            only vectors that the caller gives, if any.
        no_relation: None or int. The label of pairs without a relation. Its
            rows in the tables, if it is one of 0 to R-1, are not used. None:
            every pair has a relation.
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
        memory: `[B, K, F]` tensor to attend to; the queries by default.
        relations: int32 or int64 `[Q, K]` or `[B, Q, K]` tensor of labels.
            An unknown label is an error: at once in eager code, else when
            the graph runs. XLA drops such checks; there, an unknown label
            counts as no relation.
        key_vectors: None or `[Q, K, D]`, `[B, Q, K, D]` or `[B, H, Q, K, D]`
            tensor that is added to the keys of each pair.
        value_vectors: The same for the values.
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
        UserError: arguments or shapes that do not fit, or unknown labels.
        tf.errors.InvalidArgumentError: unknown labels, or shapes that do not
            fit, in a graph that did not know them.

    Example:

    >>> layer = RelationAttention(8, num_heads=2, num_relations=3)
    >>> edges = tf.constant([[-1, 0], [2, -1]])
    >>> tuple(layer(tf.ones([5, 2, 8]), relations=edges).shape)
    (5, 2, 8)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), sections 3.1
        and 5.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_relations: int | None = None,
        *,
        no_relation: int | None = -1,
        add_relations_to_keys: bool = True,
        add_relations_to_values: bool = True,
        add_relation_bias: bool = False,
        heads_share_relations: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(hidden_size, num_heads, dropout=dropout, **kwargs)
        if num_relations is not None:
            num_relations = checks.integer(
                "num_relations", num_relations, least=1
            )
        if no_relation is not None:
            no_relation = checks.integer("no_relation", no_relation)
        self.num_relations = num_relations
        self.no_relation = no_relation
        self.add_relations_to_keys = add_relations_to_keys
        self.add_relations_to_values = add_relations_to_values
        self.add_relation_bias = add_relation_bias
        self.heads_share_relations = heads_share_relations

    def build(
        self,
        queries_shape: Sequence[int | None],
        memory_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().build(queries_shape, memory_shape)
        self.key_table = self.value_table = self.bias_table = None
        if self.num_relations is None:
            return
        depth = self.depth
        # Glorot's, for each head's table.
        limit = (6 / (self.num_relations + depth)) ** 0.5
        uniform = keras.initializers.RandomUniform(-limit, limit)
        if self.add_relations_to_keys:
            self.key_table = self._add_table("relation_keys", uniform, depth)
        if self.add_relations_to_values:
            self.value_table = self._add_table(
                "relation_values", uniform, depth
            )
        if self.add_relation_bias:
            self.bias_table = self._add_table("relation_bias", "zeros")

    def _add_table(self, name, initializer, *depth):
        heads = () if self.heads_share_relations else (self.num_heads,)
        return self.add_weight(
            shape=(*heads, self.num_relations, *depth),
            initializer=initializer,
            name=name,
        )

    def call(
        self,
        queries: tf.Tensor,
        memory: tf.Tensor | None = None,
        *,
        relations: tf.Tensor | None = None,
        key_vectors: tf.Tensor | None = None,
        value_vectors: tf.Tensor | None = None,
        may_attend: tf.Tensor | None = None,
        return_weights: bool = False,
        training: bool = False,
        mask: tf.Tensor | None = None,
        queries_mask: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
    ) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
        padding = {
            "mask": mask,
            "queries_mask": queries_mask,
            "memory_mask": memory_mask,
        }
        may_attend = self.joined_mask(queries, memory, may_attend, padding)
        memory = queries if memory is None else memory
        sizes = [
            pairs_lib.size(x, axis)
            for x, axis in ((queries, 0), (queries, 1), (memory, 1))
        ]
        labels = self._labels(relations, sizes)
        key_vectors = self._vectors("key_vectors", key_vectors, sizes)
        value_vectors = self._vectors("value_vectors", value_vectors, sizes)
        (q,) = self.to_heads(queries, self.fuse(self.q))  # scaled
        k, v = self.to_heads(memory, self.fuse(self.k, self.v))  # [B, H, K, D]
        logits = tf.matmul(q, k, transpose_b=True)  # [B, H, Q, K]
        numbers = self._numbers(q)
        if numbers is not None:
            logits += labels.gather(numbers)
        if key_vectors is not None:
            pairs = _PAIRS[key_vectors.shape.rank]
            logits += tf.einsum(f"bhqd,{pairs}->bhqk", q, key_vectors)
        bias = None if may_attend is None else pairs_lib.to_bias(may_attend)
        weights = pairs_lib.softmax(logits, bias, v.dtype)
        dropped = self.weights_dropout(weights, training=training)
        output = tf.matmul(dropped, v)  # [B, H, Q, D]
        if self.value_table is not None:
            table = self.compute_value(self.value_table)
            output += band.multiply(labels.sum(dropped), table)
        if value_vectors is not None:
            pairs = _PAIRS[value_vectors.shape.rank]
            output += tf.einsum(f"bhqk,{pairs}->bhqd", dropped, value_vectors)
        output = self.from_heads(output, *sizes[:2])
        return (output, weights) if return_weights else output

    def _numbers(self, q):
        """Returns the logits of each label, `[B, H, Q, R]`, or None."""
        numbers = None
        if self.key_table is not None:
            table = self.compute_value(self.key_table)
            numbers = band.multiply(q, table, transpose=True)
        if self.bias_table is not None:
            bias = self.compute_value(self.bias_table)
            bias = tf.expand_dims(bias, -2)  # [1, R] or [H, 1, R]
            if numbers is None:
                numbers = tf.zeros([*tf.unstack(tf.shape(q)[:3]), 1], q.dtype)
            numbers += bias
        return numbers

    def _labels(self, relations, sizes):
        """Checks `relations`; returns `Labels`, or None."""
        if (relations is None) != (self.num_relations is None):
            received = "none" if relations is None else "some"
            raise errors.UserError(
                "Expected `relations` of a layer with `num_relations`, and of "
                f"no other, by that name: layer(x, relations=labels). "
                f"Received: num_relations={self.num_relations}, "
                f"and {received}."
            )
        if relations is None:
            return None
        relations = tf.convert_to_tensor(relations)
        relations = _fitted("relations", relations, sizes[1:], sizes)
        ids = label_ids(relations, self.num_relations, self.no_relation)
        return Labels(tf.broadcast_to(ids, sizes), self.num_relations)

    def _vectors(self, name, vectors, sizes):
        """Checks vectors that the caller gave; returns them or None."""
        if vectors is None:
            return None
        batch, *pairs = sizes
        vectors = tf.cast(vectors, self.compute_dtype)
        leading = (), (batch,), (batch, self.num_heads)
        shapes = ((*some, *pairs, self.depth) for some in leading)
        return _fitted(name, vectors, *shapes)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "num_relations": self.num_relations,
            "no_relation": self.no_relation,
            "add_relations_to_keys": self.add_relations_to_keys,
            "add_relations_to_values": self.add_relations_to_values,
            "add_relation_bias": self.add_relation_bias,
            "heads_share_relations": self.heads_share_relations,
        }


class Labels(NamedTuple):
    """The label of every pair of a query and a key.

    Attributes:
        ids: int32 `[B, Q, K]`, from 0 to `number`; `number` itself stands for
            a pair without a label.
        number: int, R.
    """

    ids: tf.Tensor
    number: int

    def gather(self, numbers: tf.Tensor) -> tf.Tensor:
        """Gathers `[B, H, Q, R]` by label: `[B, H, Q, K]`; 0 without one."""
        none = [[0, 0], [0, 0], [0, 0], [0, 1]]  # a zero for no label
        rows = tf.transpose(tf.pad(numbers, none), [0, 2, 3, 1])
        return tf.transpose(_gather(rows, self.ids), [0, 3, 1, 2])

    def sum(self, weights: tf.Tensor) -> tf.Tensor:
        """Sums `[B, H, Q, K]` by label: `[B, H, Q, R]`."""
        rows = tf.transpose(weights, [0, 2, 3, 1])  # [B, Q, K, H]
        sums = _segment_sum(rows, self.ids, self.number + 1)
        return tf.transpose(sums, [0, 3, 1, 2])[..., : self.number]


def label_ids(
    relations: tf.Tensor, number: int, missing: int | None
) -> tf.Tensor:
    """Checks the labels of a caller.

    Args:
        relations: int32 or int64 tensor.
        number: int, R. Labels are 0 to R-1.
        missing: None or int. Stands for a pair without a label.

    Returns:
        The `ids` of `Labels`. Under XLA, which drops the check, an unknown
        label counts as a missing one.

    Raises:
        UserError: another dtype, or in eager code an unknown label.
        tf.errors.InvalidArgumentError: an unknown label, when a graph runs.

    Example:

    >>> label_ids(tf.constant([[0, -1], [2, 9]]), 3, missing=9)
    Traceback (most recent call last):
    ...
    relpos_tf.errors.UserError: Expected labels from 0 to 2 or 9. Received: -1.
    """
    if relations.dtype not in (tf.int32, tf.int64):
        raise errors.UserError(
            "Expected `relations` of dtype int32 or int64. "
            f"Received: {relations.dtype.name}."
        )
    known = has_label = (relations >= 0) & (relations < number)
    expected = f"Expected labels from 0 to {number - 1}"
    if missing is not None:
        has_label &= relations != missing
        known |= relations == missing
        expected += "" if 0 <= missing < number else f" or {missing}"
    all_known = tf.reduce_all(known)
    first = tf.argmin(tf.cast(tf.reshape(known, [-1]), tf.int32))
    unknown = tf.reshape(relations, [-1])[first]
    if not tf.executing_eagerly():
        tf.debugging.Assert(all_known, [f"{expected}. Received:", unknown])
    elif not all_known:
        raise errors.UserError(f"{expected}. Received: {int(unknown)}.")
    return tf.where(has_label, tf.cast(relations, tf.int32), number)


def _fitted(name, tensor, *shapes):
    """Returns a tensor that has one of the shapes, of unlike ranks.

    In a graph that does not know all sizes, sizes of 1 are repeated, and
    others that differ are TensorFlow's error.
    """
    known = [[n if isinstance(n, int) else None for n in s] for s in shapes]
    fits = any(map(tensor.shape.is_compatible_with, known))
    if tensor.shape.rank is None or not fits:
        raise errors.UserError(
            f"Expected `{name}` of one of the shapes "
            f"{', '.join(map(str, known))}. Received: {tensor.shape}."
        )
    (shape,) = (s for s in shapes if len(s) == tensor.shape.rank)
    return tf.broadcast_to(tensor, shape)


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
