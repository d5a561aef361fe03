"""Labels and vectors of the edges between queries and keys.

Attention needs two operations, gather and segment sum by label. Each is the
gradient of the other, and neither lays out a vector for a pair. Vectors that
the caller gives for pairs are multiplied as they are.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R labels, X any
number of columns. The operations work on rows: G * X rows of N numbers, with
G = Q and N = B * H if all examples have the same labels, else G = B * Q and
N = H.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf import errors

_PAIRS = {3: "qkd", 4: "bqkd", 5: "bhqkd"}  # axes of vectors, by their number


class Labels(NamedTuple):
    """The label of every pair of a query and a key.

    Attributes:
        ids: int32 `[Q, K]` or `[B, Q, K]`, from 0 to `number`; `number` itself
            stands for a pair without a label.
        number: int, R.
    """

    ids: tf.Tensor
    number: int

    def gather(self, numbers):
        """Gathers `[B, H, Q, R]` by label: `[B, H, Q, K]`; 0 without one."""
        none = [[0, 0], [0, 0], [0, 0], [0, 1]]  # a zero for no label
        rows = _gather(self._to_rows(tf.pad(numbers, none)), self._indices())
        return self._from_rows(rows, tf.shape(numbers))

    def sum(self, weights):
        """Sums `[B, H, Q, K]` by label: `[B, H, Q, R]`."""
        groups = tf.reduce_prod(tf.shape(self.ids)[:-1])
        count = groups * (self.number + 1)
        sums = _segment_sum(self._to_rows(weights), self._indices(), count)
        return self._from_rows(sums, tf.shape(weights))[..., : self.number]

    def _indices(self):
        """Returns the row of each pair's label: int32 `[G * K]`."""
        ids = tf.reshape(self.ids, [-1, tf.shape(self.ids)[-1]])  # [G, K]
        first = tf.range(tf.shape(ids)[0]) * (self.number + 1)  # row of label 0
        return tf.reshape(ids + first[:, tf.newaxis], [-1])

    def _to_rows(self, x):
        """Lays out `[B, H, Q, X]` as `[G * X, N]`."""
        b, h, q, width = tf.unstack(tf.shape(x))
        if self.ids.shape.rank == 2:
            x = tf.transpose(x, [2, 3, 0, 1])  # [Q, X, B, H]
            return tf.reshape(x, [q * width, b * h])
        x = tf.transpose(x, [0, 2, 3, 1])  # [B, Q, X, H]
        return tf.reshape(x, [b * q * width, h])

    def _from_rows(self, rows, shape):
        """Undoes `_to_rows`: `[B, H, Q, X]`, B, H and Q being in `shape`."""
        b, h, q, _ = tf.unstack(shape)
        if self.ids.shape.rank == 2:
            return tf.transpose(tf.reshape(rows, [q, -1, b, h]), [2, 3, 0, 1])
        return tf.transpose(tf.reshape(rows, [b, q, -1, h]), [0, 3, 1, 2])


def labels_of(relations, number, missing) -> Labels:
    """Checks the labels of a caller.

    Args:
        relations: int32 or int64 `[Q, K]` or `[B, Q, K]` tensor.
        number: int, R. Labels are 0 to R-1.
        missing: None or int. Stands for a pair without a label.

    Returns:
        `Labels`. Under XLA, which drops the check, an unknown label counts as
        a missing one.

    Raises:
        UserError: another dtype, or in eager code an unknown label.
        tf.errors.InvalidArgumentError: an unknown label, when a graph runs.

    Example:

    >>> labels_of(tf.constant([[0, -1], [2, 9]]), 3, missing=9).ids.numpy()
    Traceback (most recent call last):
    ...
    relpos_tf.errors.UserError: Expected labels from 0 to 2 or 9. Received: -1.
    """
    relations = tf.convert_to_tensor(relations)
    if relations.dtype not in (tf.int32, tf.int64):
        raise errors.UserError(
            "Expected `relations` of dtype int32 or int64. "
            f"Received: {relations.dtype.name}."
        )
    known = (relations >= 0) & (relations < number)
    has_label = known
    if missing is not None:
        has_label &= relations != missing
        known |= relations == missing
    _check(relations, known, number, missing)
    ids = tf.where(has_label, tf.cast(relations, tf.int32), number)
    return Labels(ids, number)


def vector_logits(q, vectors):
    """Multiplies `[B, H, Q, D]` with a vector of each pair: `[B, H, Q, K]`."""
    pairs = _PAIRS[vectors.shape.rank]
    return tf.einsum(f"bhqd,{pairs}->bhqk", q, vectors)


def vector_outputs(weights, vectors):
    """Sums vectors of pairs by weights `[B, H, Q, K]`: `[B, H, Q, D]`."""
    pairs = _PAIRS[vectors.shape.rank]
    return tf.einsum(f"bhqk,{pairs}->bhqd", weights, vectors)


def with_shape(name, tensor, expected):
    """Returns a tensor if it has one of the `expected` shapes.

    Args:
        name: str, for the message.
        tensor: The tensor.
        expected: Shapes of different ranks, with sizes from `row_blocks.size`.

    Raises:
        UserError: the tensor has none of the shapes.
        tf.errors.InvalidArgumentError: the same, when a graph runs. XLA drops
            the message, and refuses to compile another number of elements.
    """
    shapes = [[_known(size) for size in shape] for shape in expected]
    sentence = (
        f"Expected `{name}` of one of the shapes "
        f"{', '.join(map(str, shapes))}. Received:"
    )
    if tensor.shape.rank is None:
        raise errors.UserError(f"{sentence} a tensor of unknown rank.")
    if not any(map(tensor.shape.is_compatible_with, shapes)):
        raise errors.UserError(f"{sentence} {list(tensor.shape)}.")
    (shape,) = (s for s in expected if len(s) == tensor.shape.rank)
    if tensor.shape.is_fully_defined() and None not in map(_known, shape):
        return tensor
    right = tf.reduce_all(tf.equal(tf.shape(tensor), tf.stack(shape)))
    check = tf.debugging.Assert(right, [sentence, tf.shape(tensor)])
    with tf.control_dependencies([check]):
        return tf.reshape(tensor, tf.stack(shape))


def _known(size):
    return None if tf.is_tensor(size) else size


def _check(relations, known, number, missing):
    """Refuses labels that are not `known`, at once or when the graph runs."""
    expected = f"Expected labels from 0 to {number - 1}"
    if missing is not None and not 0 <= missing < number:
        expected += f" or {missing}"
    all_known = tf.reduce_all(known)
    first = tf.argmin(tf.cast(tf.reshape(known, [-1]), tf.int32))
    unknown = tf.reshape(relations, [-1])[first]
    if not tf.executing_eagerly():
        tf.debugging.Assert(all_known, [f"{expected}. Received:", unknown])
    elif not all_known:
        raise errors.UserError(f"{expected}. Received: {int(unknown)}.")


@tf.custom_gradient
def _gather(x, indices):
    """Gathers rows of a matrix; the gradient is dense, unlike `tf.gather`'s."""

    def gradient(dy):
        return _segment_sum(dy, indices, tf.shape(x)[0]), None

    return tf.gather(x, indices), gradient


@tf.custom_gradient
def _segment_sum(x, indices, count):
    """Sums the rows of a matrix that have the same index below `count`."""

    def gradient(dy):
        return _gather(dy, indices), None, None

    # In float32, because a long sum of bfloat16 numbers stops growing.
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    sums = tf.math.unsorted_segment_sum(tf.cast(x, dtype), indices, count)
    return tf.cast(sums, x.dtype), gradient
