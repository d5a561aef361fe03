"""Labels and vectors of the edges between queries and keys.

To pick numbers by label and to add up weights by label is all that attention
needs of a table of R rows; no vector is laid out for a pair. Each of the two
is the other's gradient. Vectors of the caller's own are multiplied as they
are.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R labels, X any
number of columns. Rows: G = Q groups of N = B*H columns if all examples have
the same labels, else G = B*Q of N = H.
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

    def pick(self, numbers):
        """Gives each pair the number of its label, or 0 without a label.

        Args:
            numbers: `[B, H, Q, R]` tensor.

        Returns:
            A `[B, H, Q, K]` tensor.
        """
        none = [[0, 0], [0, 0], [0, 0], [0, 1]]  # a zero for no label
        picked = _gather(self._rows(tf.pad(numbers, none)), self._places())
        return self._from_rows(picked, tf.shape(numbers))

    def add_up(self, weights):
        """Adds up the weights of the pairs of each label.

        Args:
            weights: `[B, H, Q, K]` tensor.

        Returns:
            A `[B, H, Q, R]` tensor. Pairs without a label are left out.
        """
        shape = tf.shape(weights)
        groups = tf.reduce_prod(tf.shape(self.ids)[:-1])
        count = groups * (self.number + 1)
        sums = _add_up(self._rows(weights), self._places(), count)
        return self._from_rows(sums, shape)[..., : self.number]

    def _places(self):
        """Returns where in `[G * (R+1), N]` each pair's label is: `[G * K]`."""
        ids = tf.reshape(self.ids, [-1, tf.shape(self.ids)[-1]])  # [G, K]
        first = tf.range(tf.shape(ids)[0]) * (self.number + 1)
        return tf.reshape(ids + first[:, tf.newaxis], [-1])

    def _rows(self, x):
        """Lays out `[B, H, Q, X]` as `[G * X, N]`."""
        b, h, q, width = tf.unstack(tf.shape(x))
        if self.ids.shape.rank == 2:
            x = tf.transpose(x, [2, 3, 0, 1])  # [Q, X, B, H]
            return tf.reshape(x, [q * width, b * h])
        x = tf.transpose(x, [0, 2, 3, 1])  # [B, Q, X, H]
        return tf.reshape(x, [b * q * width, h])

    def _from_rows(self, rows, shape):
        """Undoes `_rows`, for a tensor whose first three sizes are given."""
        b, h, q, _ = tf.unstack(shape)
        if self.ids.shape.rank == 2:
            return tf.transpose(tf.reshape(rows, [q, -1, b, h]), [2, 3, 0, 1])
        return tf.transpose(tf.reshape(rows, [b, q, -1, h]), [0, 3, 1, 2])


def labels_of(relations, number, missing) -> Labels:
    """Checks the labels of a caller.

    Args:
        relations: int32 or int64 `[Q, K]` or `[B, Q, K]` tensor.
        number: int, R. Labels are 0 to R-1.
        missing: None or int. The label of pairs without a label.

    Returns:
        `Labels`, in which unknown labels are as missing ones, where they
        cannot be refused: XLA drops checks.

    Raises:
        UserError: not integers, or in eager code an unknown label.
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
    """Multiplies queries with a vector of every pair.

    Args:
        q: `[B, H, Q, D]` tensor.
        vectors: `[Q, K, D]`, `[B, Q, K, D]` or `[B, H, Q, K, D]` tensor.

    Returns:
        A `[B, H, Q, K]` tensor.
    """
    pairs = _PAIRS[vectors.shape.rank]
    return tf.einsum(f"bhqd,{pairs}->bhqk", q, vectors)


def vector_outputs(weights, vectors):
    """Adds up the vectors of every pair by their weights.

    Args:
        weights: `[B, H, Q, K]` tensor.
        vectors: As in `vector_logits`.

    Returns:
        A `[B, H, Q, D]` tensor.
    """
    pairs = _PAIRS[vectors.shape.rank]
    return tf.einsum(f"bhqk,{pairs}->bhqd", weights, vectors)


def size_of(tensor, axis):
    """Returns the size of an axis: an int where it is known, else a tensor."""
    size = tensor.shape[axis]
    return tf.shape(tensor)[axis] if size is None else size


def with_shape(name, tensor, expected):
    """Returns a tensor if it has one of the `expected` shapes.

    Args:
        name: str, for the message.
        tensor: The tensor.
        expected: Shapes of different ranks, of what `size_of` returns.

    Raises:
        UserError: it has none of them.
        tf.errors.InvalidArgumentError: the same, when a graph runs. XLA drops
            the sentence, and compiles no other number of elements.
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
    """Refuses labels where `known` is False, now or when the graph runs."""
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
def _gather(x, places):
    """Takes rows of a matrix. The gradient is dense, not as `tf.gather`'s."""

    def gradient(dy):
        return _add_up(dy, places, tf.shape(x)[0]), None

    return tf.gather(x, places), gradient


@tf.custom_gradient
def _add_up(x, places, count):
    """Adds rows of a matrix that belong to the same place of `count`."""

    def gradient(dy):
        return _gather(dy, places), None, None

    # In float32, because a long sum of bfloat16 numbers stops growing.
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    sums = tf.math.unsorted_segment_sum(tf.cast(x, dtype), places, count)
    return tf.cast(sums, x.dtype), gradient
