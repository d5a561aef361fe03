"""Large matrices a block of rows at a time.

The matrix of all pairs of positions, and that of all tokens and the whole
vocabulary, grow beyond any memory with the length of a line. Where no gradient
needs the whole matrix, its rows are computed, used and freed block by block.
"""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util  # nothing public says it

# Most numbers of one matrix: 64 MiB in float32. Some five of that size are in
# use at once. No batch of training is near it with lines of usual length.
MOST_NUMBERS = 2**24


def fits(rows, numbers_per_row):
    """Says whether a matrix is to be computed as a whole.

    So it is under XLA, which compiles only what has one size in all turns of a
    loop, and decides itself what is in memory.

    Args:
        rows: int or int64 scalar tensor.
        numbers_per_row: int or int64 scalar tensor.

    Returns:
        A bool where both are ints, or else a bool scalar tensor.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph and control_flow_util.GraphOrParentsInXlaContext(graph):
        return True
    return rows * numbers_per_row <= MOST_NUMBERS


def size(tensor, axis):
    """Returns an axis's length: an int, or an int64 scalar if not known."""
    known = tensor.shape[axis]
    return tf.shape(tensor, tf.int64)[axis] if known is None else known


def cond(condition, if_true, if_false):
    """Returns `tf.cond`, or one branch alone where it is known which."""
    if isinstance(condition, bool):
        return if_true() if condition else if_false()
    return tf.cond(condition, if_true, if_false)


def by_blocks(compute, rows, numbers_per_row, dtypes):
    """Computes a block of rows after another, and joins what comes out.

    Args:
        compute: Function of the first row of a block and the one behind its
            last, int32 scalars, that returns a tensor for each dtype, each
            with as many rows as the block.
        rows: int32 scalar tensor.
        numbers_per_row: int or int64 scalar tensor. How large the matrix is
            that `compute` makes.
        dtypes: tuple of the results' dtypes.

    Returns:
        A tuple of tensors `[rows, ...]`, whose static shape is unknown.

    Example:

    >>> squares, = by_blocks(
    ...     lambda start, end: [tf.range(start, end) ** 2],
    ...     tf.constant(3), MOST_NUMBERS // 2, (tf.int32,),
    ... )
    >>> squares.numpy().tolist()
    [0, 1, 4]
    """
    each = tf.maximum(tf.cast(numbers_per_row, tf.int64), 1)
    size = tf.cast(tf.maximum(MOST_NUMBERS // each, 1), tf.int32)
    number = tf.maximum(-(-rows // size), 1)  # one empty block of no rows

    def turn(i, arrays):
        start = i * size
        found = compute(start, tf.minimum(start + size, rows))
        return i + 1, tuple(
            array.write(i, part)
            for array, part in zip(arrays, found, strict=True)
        )

    arrays = tuple(
        tf.TensorArray(dtype, number, infer_shape=False) for dtype in dtypes
    )
    _, arrays = tf.while_loop(
        lambda i, _: i < number,
        turn,
        (0, arrays),
        parallel_iterations=1,  # or several blocks would be there at once
        maximum_iterations=number,
    )
    return tuple(array.concat() for array in arrays)
