"""Tests of token files: what is written is read, at any place."""

import os
import random

import numpy as np
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import token_files
from tests import folders


def rows_of(texts):
    """Returns `Rows` of lists of ids."""
    return token_files.Rows(
        np.array([i for ids in texts for i in ids], np.int64),
        np.array([len(ids) for ids in texts], np.int64),
    )


def write(folder, pairs, vocab_size=71, cuts=(), split="train"):
    """Writes pairs of ids in parts; returns the `TokenFile`."""
    with token_files.writer(folder, split, vocab_size) as add:
        limits = [0, *cuts, len(pairs)]
        for first, end in zip(limits, limits[1:], strict=False):
            part = pairs[first:end]
            add(*(rows_of([pair[i] for pair in part]) for i in (0, 1)))
    return token_files.TokenFile(folder, split, vocab_size)


def random_pairs(number, most, largest=70, seed=3):
    """Returns random pairs of ids that end in EOS."""
    draw = random.Random(seed)
    return [
        tuple(
            [*draw.choices(range(2, largest), k=draw.randrange(most)), 1]
            for _ in range(2)
        )
        for _ in range(number)
    ]


class TokenFilesTest(folders.TestCase):
    def read(self, tokens, numbers):
        """Returns pairs of ids by their numbers."""
        starts = tokens.starts(np.array(numbers))
        sizes = tokens.lengths[numbers].astype(np.int64)
        sides = []
        for side in range(2):
            texts = tokens.rows(starts[:, side], sizes[:, side])
            ends = np.cumsum(texts.lengths)[:-1]
            sides.append([ids.tolist() for ids in np.split(texts.ids, ends)])
        return list(zip(*sides, strict=True))

    # Across the limits of blocks of 64 pairs, too.
    @parameterized.parameters(1, 63, 64, 65, 211)
    def test_pairs_are_read_as_written_in_any_order(self, number):
        pairs = random_pairs(number, most=13)
        tokens = write(self.folder, pairs, cuts=[number // 3])
        self.assertLen(tokens, number)
        order = random.Random(1).sample(range(number), number)
        self.assertEqual(self.read(tokens, order), [pairs[i] for i in order])

    @parameterized.parameters((1 << 16, 2), ((1 << 16) + 1, 4))
    def test_ids_of_large_vocabularies_have_four_bytes(self, size, width):
        pairs = [([size - 1, 1], [5, 6, 1])]
        tokens = write(self.folder, pairs, vocab_size=size)
        self.assertEqual(self.read(tokens, [0]), pairs)
        self.assertEqual((self.folder / "train.ids").stat().st_size, 5 * width)

    def test_the_layout_is_the_documented_one(self):
        write(self.folder, [([9, 1], [8, 7, 1]), ([1], [6, 1])])
        ids = np.fromfile(self.folder / "train.ids", "<u2")
        self.assertEqual(ids.tolist(), [9, 1, 8, 7, 1, 1, 6, 1])
        lengths = np.fromfile(self.folder / "train.lengths", "<u4")
        self.assertEqual(lengths.tolist(), [2, 3, 1, 2])

    def test_a_split_without_pairs_can_be_opened(self):
        self.assertEmpty(write(self.folder, []))

    def test_a_file_that_is_cut_while_it_is_read_is_named(self):
        pairs = random_pairs(999, most=13)
        tokens = write(self.folder, pairs)
        path = self.folder / "train.ids"
        os.truncate(path, path.stat().st_size - 1)
        self.assertEqual(self.read(tokens, [5]), [pairs[5]])
        with self.assertRaisesRegex(errors.UserError, f"{path} .*shorter"):
            self.read(tokens, [5, 998])
