"""Augmentation of training pairs, drawn anew in every epoch.

Shapes: N pairs of a block, C couples of a block (N // 2), M pairs after
joining, S source positions, T target positions.

BPE-dropout (Provilkov et al., 2020, section 3) segments both sides anew, with
random merges left out. Concatenation (Varis and Bojar, 2021) joins two short
pairs to a longer one. Both work on blocks of consecutive pairs in the epoch's
shuffled order. A block is a function of (seed, epoch, its number) alone, so a
resumed run sees the pairs that would have followed. Which pairs are joined
depends on their lengths only, and `planning` decides it without BPE-dropout.

Text does not change, and no pair is lost: a segmentation or a joined pair that
would be too long is not used. Ids that are no text stay, and damaged pairs are
not joined, so that `records.checked` refuses them.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import planning
from relpos_tf.data import tokenizer as tokenizer_lib

# Pairs of a block: an even number, so that no couple is cut.
BLOCK = 256
_SIDES = "inputs", "targets"
# What a seed is drawn for; `batching` uses smaller numbers.
_DROPOUT_DRAW, _JOIN_DRAW = 101, 102
_REASONS = {
    "bpe_dropout": "others segment a text in one way only",
    "pair_concatenation": "others put no blank between two sentences",
}


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Changes of training pairs. By default, there are none.

    Args:
        bpe_dropout: float. The probability that a merge is left out. A side
            that would have more than `max_length` ids keeps those that it has.
        pair_concatenation: float. The probability that the pairs 2i and 2i + 1
            of an epoch become one. Without effect on two pairs that together
            have more than `max_length` ids on a side.
        tokenizer: The tokenizer of the records, `tokenizer.Tokenizer`. Not
            needed without augmentation.

    Raises:
        UserError: there is augmentation, and the tokenizer is of another kind.

    Reference:
        Provilkov et al. (2020), BPE-Dropout, section 3; Varis and Bojar
        (2021), Sequence Length is a Domain.
    """

    bpe_dropout: float = 0.0
    pair_concatenation: float = 0.0
    tokenizer: tokenizer_lib.AnyTokenizer | None = None

    def __post_init__(self):
        for name in ("bpe_dropout", "pair_concatenation"):
            value = getattr(self, name)
            if value and not isinstance(
                self.tokenizer, tokenizer_lib.Tokenizer
            ):
                raise errors.UserError(
                    f"`{name}` needs a SentencePiece model: {_REASONS[name]}. "
                    f"Received: {name}={value} and another vocabulary, as of "
                    f"tensor2tensor. Set {name}=0."
                )

    def apply(
        self, pairs: tf.data.Dataset, seeds: tf.Tensor, max_length: int
    ) -> tf.data.Dataset:
        """Returns the augmented pairs of one epoch.

        Args:
            pairs: The parsed pairs of `records.parse`, in the epoch's order.
            seeds: int64 [2]. (seed, epoch).
            max_length: int. Most ids on a side of an augmented pair.

        Returns:
            A dataset like `pairs`; without augmentation, `pairs` itself.
        """
        if not (self.bpe_dropout or self.pair_concatenation):
            return pairs

        def augment(number, block):
            if self.bpe_dropout:
                seed = _folded(seeds, _DROPOUT_DRAW, number)
                block = self._segmented_anew(block, seed, max_length)
            if self.pair_concatenation:
                seed = _folded(seeds, _JOIN_DRAW, number)
                draws = tf.random.stateless_uniform([BLOCK // 2], seed)
                block = join(block, draws < self.pair_concatenation, max_length)
            return block

        def dense(pair):
            sides = {n: tf.convert_to_tensor(pair[n]) for n in _SIDES}
            return {**sides, "tokenizer": pair["tokenizer"]}

        blocks = pairs.ragged_batch(BLOCK).enumerate().map(augment)
        return blocks.unbatch().map(dense)

    def joining(self) -> planning.Joining | None:
        """Returns which pairs a plan joins, without BPE-dropout."""
        if not self.pair_concatenation:
            return None
        return planning.Joining(self.pair_concatenation, _JOIN_DRAW, BLOCK)

    def _segmented_anew(self, block, seed, max_length):
        """Returns a block with dropped merges on both sides."""
        number = tf.random.stateless_uniform(
            [], seed, minval=0, maxval=2**31 - 1, dtype=tf.int64
        )
        arrays = []
        for name in _SIDES:
            arrays += [block[name].values, block[name].row_lengths()]
        function = functools.partial(
            segment_anew, self.tokenizer, self.bpe_dropout, max_length
        )
        # `stateful=False`: equal arguments give equal results.
        arrays = tf.numpy_function(
            function,
            [number, *arrays],
            [tf.int32, tf.int64] * 2,
            stateful=False,
        )
        sides = {}
        for i, name in enumerate(_SIDES):
            values, lengths = arrays[2 * i : 2 * i + 2]
            sides[name] = tf.RaggedTensor.from_row_lengths(
                tf.ensure_shape(values, [None]),
                tf.ensure_shape(lengths, [None]),
                validate=False,
            )  # [N, (S)] or [N, (T)]
        return {**block, **sides}


def segment_anew(
    tokenizer: tokenizer_lib.Tokenizer,
    dropout: float,
    max_length: int,
    seed: int,
    *arrays: np.ndarray,
) -> list[np.ndarray]:
    """Returns rows of ids for the same texts, with merges left out.

    A row stays as it is if it has or would have more than `max_length` ids.

    Args:
        tokenizer: `tokenizer.Tokenizer` that made the ids.
        dropout: float. The probability that a merge is left out.
        max_length: int. Most ids of a row.
        seed: int.
        *arrays: For each side int32 values of all rows in turn, and int64
            lengths of the rows.

    Returns:
        Arrays like `arrays`.
    """
    rows = []
    for values, lengths in zip(arrays[::2], arrays[1::2], strict=True):
        rows += [r.tolist() for r in np.split(values, np.cumsum(lengths)[:-1])]
    rows = [
        new if max(len(new), len(old)) <= max_length else old
        for old, new in zip(
            rows, tokenizer.segment_anew(rows, dropout, int(seed)), strict=True
        )
    ]
    results = []
    count = len(arrays[1])
    for side in (rows[i : i + count] for i in range(0, len(rows), count)):
        results.append(np.array([i for row in side for i in row], np.int32))
        results.append(np.array([len(row) for row in side], np.int64))
    return results


def join(
    block: dict[str, tf.Tensor], wanted: tf.Tensor, max_length: int
) -> dict[str, tf.Tensor]:
    """Joins the pairs 2i and 2i + 1 of a block where that is wanted.

    The joined ids are those of the first pair without EOS, then those of the
    second. The first piece of a sentence begins with a blank, so the text is
    both sentences with a blank between them. Pairs stay apart if the result
    would be too long, or if a side does not end in EOS.

    Args:
        block: `inputs` int32 [N, (S)] and `targets` int32 [N, (T)], ragged, and
            `tokenizer` int64 [N].
        wanted: bool, at least [C]. Which couples to join.
        max_length: int. Most ids on a side of a joined pair.

    Returns:
        A block of M pairs.
    """
    marks = block["tokenizer"]
    couples = tf.size(marks) // 2  # C
    joined = wanted[:couples] & (
        marks[: 2 * couples : 2] == marks[1 : 2 * couples : 2]
    )  # [C]
    for name in _SIDES:
        lengths = block[name].row_lengths()[: 2 * couples]  # [2 C]
        total = tf.reduce_sum(tf.reshape(lengths, [-1, 2]), axis=1)  # [C]
        joined &= total - 1 <= max_length
        ends = tf.reduce_any(
            block[name][: 2 * couples, -1:] == tokenizer_lib.EOS_ID, axis=1
        )  # [2 C]
        joined &= tf.reduce_all(tf.reshape(ends, [-1, 2]), axis=1)  # [C]
    none = tf.zeros_like(joined)
    rest = tf.size(marks) - 2 * couples  # 0 or 1

    def per_pair(firsts, seconds):
        both = tf.reshape(tf.stack([firsts, seconds], axis=1), [-1])  # [2 C]
        return tf.pad(both, [[0, rest]])  # [N]

    is_first, is_second = per_pair(joined, none), per_pair(none, joined)
    sides = {
        name: _rows_joined(block[name], is_first, is_second) for name in _SIDES
    }
    return {**sides, "tokenizer": tf.boolean_mask(marks, ~is_second)}  # [M]


def joined(
    pairs: dict[str, tf.Tensor], is_second: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Joins pairs as a plan says.

    Args:
        pairs: `inputs` int32 [N, (S)] and `targets` int32 [N, (T)], ragged.
        is_second: bool [N]. Which are to be joined with the pair before them.

    Returns:
        `inputs` int32 [M, (S)] and `targets` int32 [M, (T)], ragged.
    """
    is_first = tf.concat([is_second, [False]], axis=0)[1:]  # [N]
    return {
        name: _rows_joined(pairs[name], is_first, is_second) for name in _SIDES
    }


def _rows_joined(
    ids: tf.RaggedTensor, is_first: tf.Tensor, is_second: tf.Tensor
) -> tf.RaggedTensor:
    """Appends each second row to the row before it, whose EOS is dropped.

    Args:
        ids: int32 [N, (S)], ragged.
        is_first: bool [N].
        is_second: bool [N].

    Returns:
        int32 [M, (S)], ragged.
    """
    ends = tf.boolean_mask(ids.row_limits() - 1, is_first)
    is_kept = tf.tensor_scatter_nd_update(
        tf.ones_like(ids.values, tf.bool),
        ends[:, tf.newaxis],
        tf.zeros_like(ends, tf.bool),
    )
    rows = tf.cumsum(tf.cast(~is_second, tf.int32)) - 1  # [N], 0 to M - 1
    lengths = ids.row_lengths() - tf.cast(is_first, tf.int64)  # [N]
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(ids.values, is_kept),
        tf.math.segment_sum(lengths, rows),  # [M]
        validate=False,
    )


def _folded(seeds: tf.Tensor, use: int, number: tf.Tensor) -> tf.Tensor:
    """Returns the seed [2] of one block for one use."""
    folded = tf.random.experimental.stateless_fold_in(seeds, use)
    return tf.random.experimental.stateless_fold_in(folded, number)
