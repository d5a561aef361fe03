"""Large matrices, computed one block of rows after another.

The matrix of all pairs of positions, and the matrix of all tokens and the
vocabulary, outgrow any memory with the length of a line. If no gradient needs
the whole matrix, its rows are computed, used and freed block by block.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator

import tensorflow as tf

from relpos_tf.utils import graphs

# The most numbers of one matrix: 64 MiB in float32. About five such matrices
# are in use at once. With lines of usual length, no batch comes near it.
MOST_NUMBERS = 2**24

_is_whole = contextvars.ContextVar("is_whole", default=False)


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Has graphs that are built in the block compute each matrix as a whole.

    For LiteRT, which has no operation that concatenates blocks. Memory then
    grows with the square of a line's length.
    """
    token = _is_whole.set(True)
    try:
        yield
    finally:
        _is_whole.reset(token)


def at_once(rows: int | tf.Tensor, numbers_per_row: int | tf.Tensor) -> bool:
    """Returns whether to compute a matrix as a whole, without `by_blocks`.

    True if the graph knows that it is small, in `whole`, and under XLA, which
    needs one size in all iterations of a loop, and manages the memory itself.
    """
    if _is_whole.get() or graphs.are_for_xla():
        return True
    if tf.is_tensor(rows) or tf.is_tensor(numbers_per_row):
        return False
    return rows * numbers_per_row <= MOST_NUMBERS


def by_blocks(
    compute: Callable,
    rows: tf.Tensor,
    numbers_per_row: int | tf.Tensor,
    dtypes: tuple,
) -> tuple[tf.Tensor, ...]:
    """Computes one block of rows after another, and concatenates the results.

    Args:
        compute: Function of two int32 scalars, the first row of a block and
            the row after its last. It returns a tensor for each dtype, each
            with as many rows as the block.
        rows: int32 scalar tensor.
        numbers_per_row: int or int64 scalar tensor: the width of the matrix
            in `compute`.
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

    def body(i, *arrays):
        start = i * size
        results = compute(start, tf.minimum(start + size, rows))
        pairs = zip(arrays, results, strict=True)
        return i + 1, *(array.write(i, result) for array, result in pairs)

    _, *arrays = tf.while_loop(
        lambda i, *_: i < number,
        body,
        (0, *(tf.TensorArray(t, number, infer_shape=False) for t in dtypes)),
        parallel_iterations=1,  # one block in memory at a time
        maximum_iterations=number,
    )
    return tuple(array.concat() for array in arrays)
