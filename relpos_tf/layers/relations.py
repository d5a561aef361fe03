"""Attention with relations: the edges of a directed, labelled graph.

Section 3.1 of Shaw et al. (2018) gives each pair of a query i and a key j two
vectors. Here the vectors belong to the label r[i, j] of the edge between i and
j (a clipped distance is one kind of label); a label may also have a number s:

    e[i, j] = q[i] . (key[j] + a_key[r[i, j]]) + s[r[i, j]]
    z[i]    = sum_j softmax(e[i])[j] (value[j] + a_value[r[i, j]])

No vectors are laid out for pairs. A query is multiplied with the R rows of a
table, and each pair gathers its product; the weights of a query are summed by
label before the product with the other table.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
R relations, X any number of columns.
"""

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import edges
from relpos_tf.layers import heads as heads_lib
from relpos_tf.layers import masks
from relpos_tf.layers import row_blocks
from relpos_tf.layers.positions import tables


@keras.saving.register_keras_serializable(package="relpos_tf")
class RelationAttention(heads_lib.Heads):
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
        **kwargs,
    ):
        super().__init__(hidden_size, num_heads, dropout=dropout, **kwargs)
        if num_relations is not None:
            checks.integer("num_relations", num_relations, least=1)
        if no_relation is not None:
            checks.integer("no_relation", no_relation)
        for name, value in (
            ("add_relations_to_keys", add_relations_to_keys),
            ("add_relations_to_values", add_relations_to_values),
            ("add_relation_bias", add_relation_bias),
            ("heads_share_relations", heads_share_relations),
        ):
            checks.flag(name, value)
        self.num_relations, self.no_relation = (
            None if number is None else int(number)
            for number in (num_relations, no_relation)
        )
        self.add_relations_to_keys = add_relations_to_keys
        self.add_relations_to_values = add_relations_to_values
        self.add_relation_bias = add_relation_bias
        self.heads_share_relations = heads_share_relations

    def build(self, queries_shape, memory_shape=None):
        super().build(queries_shape, memory_shape)
        self.key_table = self.value_table = self.bias_table = None
        if self.num_relations is None:
            return
        rows, depth = self.num_relations, self.depth
        limit = (6 / (rows + depth)) ** 0.5  # Glorot's, for each head's table
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
        queries,
        memory=None,
        *,
        relations=None,
        key_vectors=None,
        value_vectors=None,
        may_attend=None,
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
        memory = queries if memory is None else memory
        sizes = [
            row_blocks.size(x, axis, tf.int32)
            for x, axis in ((queries, 0), (queries, 1), (memory, 1))
        ]
        labels = self._labels(relations, sizes)
        key_vectors = self._vectors("key_vectors", key_vectors, sizes)
        value_vectors = self._vectors("value_vectors", value_vectors, sizes)
        q, k, v = self._project(queries, memory)
        logits = tf.matmul(q, k, transpose_b=True)  # [B, H, Q, K]
        numbers = self._numbers(q)
        if numbers is not None:
            logits += labels.gather(numbers)
        if key_vectors is not None:
            logits += edges.vector_logits(q, key_vectors)
        bias = None if may_attend is None else masks.to_bias(may_attend)
        weights = masks.softmax(logits, bias, v.dtype)
        dropped = self.weights_dropout(weights, training=training)
        output = tf.matmul(dropped, v)  # [B, H, Q, D]
        if self.value_table is not None:
            sums = labels.sum(dropped)  # [B, H, Q, R]
            table = self.compute_value(self.value_table)
            output += tables.multiply(sums, table)
        if value_vectors is not None:
            output += edges.vector_outputs(dropped, value_vectors)
        batch, _, length, _ = tf.unstack(tf.shape(output))
        shape = [batch, length, self.hidden_size]
        output = self.output_transform(heads_lib.join_heads(output, shape))
        return (output, weights) if return_weights else output

    def _project(self, queries, memory):
        """Returns scaled queries, keys and values, `[B, H, Q or K, D]`."""
        if memory is queries:
            return self.to_heads(queries, self.q, self.k, self.v)
        return (
            *self.to_heads(queries, self.q),
            *self.to_heads(memory, self.k, self.v),
        )

    def _numbers(self, q):
        """Returns the logits of each label, `[B, H, Q, R]`, or None."""
        numbers = None
        if self.key_table is not None:
            table = self.compute_value(self.key_table)
            numbers = tables.multiply(q, table, transpose=True)
        if self.bias_table is not None:
            bias = self.compute_value(self.bias_table)
            bias = tf.expand_dims(bias, -2)  # [1, R] or [H, 1, R]
            if numbers is None:
                numbers = tf.zeros([*tf.unstack(tf.shape(q)[:3]), 1], q.dtype)
            numbers += bias
        return numbers

    def _labels(self, relations, sizes):
        """Checks `relations`; returns `edges.Labels`, or None."""
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
        relations = edges.with_shape("relations", relations, [sizes[1:], sizes])
        return edges.labels_of(relations, self.num_relations, self.no_relation)

    def _vectors(self, name, vectors, sizes):
        """Checks vectors that the caller gave; returns them or None."""
        if vectors is None:
            return None
        batch, *pairs = sizes
        shapes = (), (batch,), (batch, self.num_heads)
        vectors = tf.cast(vectors, self.compute_dtype)
        return edges.with_shape(
            name, vectors, [(*s, *pairs, self.depth) for s in shapes]
        )

    def get_config(self):
        return super().get_config() | {
            "num_relations": self.num_relations,
            "no_relation": self.no_relation,
            "add_relations_to_keys": self.add_relations_to_keys,
            "add_relations_to_values": self.add_relations_to_values,
            "add_relation_bias": self.add_relation_bias,
            "heads_share_relations": self.heads_share_relations,
        }
