"""Tests of training pairs of several corpora in given shares."""

import collections
import functools
import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.data import batching
from relpos_tf.data import mixing
from relpos_tf.data import records

_SIZES = 700, 300, 2000
_MANY = 10_000


def setUpModule():
    global _folder, _files
    _folder = tempfile.TemporaryDirectory()
    _files, first = [], 3
    for number, size in enumerate(_SIZES):
        files = [
            os.path.join(_folder.name, f"{number}-{i}.tfrecord")
            for i in range(2)
        ]
        # The first id tells the pair, and so its corpus.
        records.write(
            [([first + i, 1], [first + i, 1]) for i in range(size)], files
        )
        first += size
        _files.append(tuple(files))


def tearDownModule():
    _folder.cleanup()


def mixture(*weights, pairs=_SIZES):
    """Returns a mixture of the first corpora, one for each weight."""
    number = len(weights)
    return mixing.Mixture(tuple(_files[:number]), pairs[:number], weights)


@functools.cache
def batches(*weights, count=400, **arguments):
    """Returns the first batches of training, as arrays."""
    settings = {"batch_size": 40, "max_length": 4, "seed": 11, **arguments}
    dataset = batching.training_batches(mixture(*weights), **settings)
    return list(dataset.take(count).as_numpy_iterator())


def drawn(found, epoch=None):
    """Returns the numbers of the pairs in batches."""
    wanted = [b for b in found if epoch is None or b["epoch"] == epoch]
    return np.concatenate([b["inputs"][:, 0] for b in wanted]) - 3


def corpora(pairs):
    """Returns the corpus of each pair."""
    return np.searchsorted(np.cumsum(_SIZES), pairs, side="right")


class MixingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((1, 4), (3, 1), (1, 1, 1), (0.2, 5, 1.3))
    def test_ten_thousand_draws_are_within_chance(self, *weights):
        # Enough pairs that one epoch has all draws.
        sizes = (_MANY // len(weights) + 1,) * len(weights)
        draws = mixture(*weights, pairs=sizes)._draws(
            tf.constant([5, 2], tf.int64)
        )
        found = np.bincount(
            list(draws.take(_MANY).as_numpy_iterator()), minlength=len(weights)
        )
        self.assertEqual(found.sum(), _MANY)
        expected = _MANY * np.array(weights) / np.sum(weights)
        statistic = ((found - expected) ** 2 / expected).sum()
        # The chi-squared distribution of one or two degrees of freedom is
        # above this in one case of a thousand.
        self.assertLess(statistic, {2: 10.8, 3: 13.8}[len(weights)])

    def test_pairs_of_an_epoch_are_drawn_by_weight(self):
        found = drawn(batches(1, 4), epoch=0)
        self.assertLen(found, 1000)  # as many as both corpora have
        counts = np.bincount(corpora(found))
        self.assertAllClose(counts, [200, 800], atol=40)  # 3 deviations
        # The small corpus comes more than twice, each time as a whole.
        times = collections.Counter(found[found >= 700].tolist())
        self.assertLen(times, 300)
        self.assertBetween(min(times.values()), 2, 3)
        self.assertEqual(
            max(collections.Counter(found[found < 700]).values()), 1
        )

    def test_draws_are_not_in_blocks(self):
        found = corpora(drawn(batches(1, 1), epoch=0))
        for part in np.split(found, 10):
            self.assertBetween(part.sum(), 25, 75)

    def test_epochs_go_on_in_a_large_corpus(self):
        found = batches(1, 30, 3, count=1500)
        last = max(int(b["epoch"]) for b in found)
        self.assertGreater(last, 2)
        # A tenth of 3,000 draws: about six epochs to see all 2,000 pairs.
        seen = [
            set(drawn(found, epoch)[corpora(drawn(found, epoch)) == 2].tolist())
            for epoch in range(3)
        ]
        for first, second in zip(seen, seen[1:], strict=False):
            # Epochs begin where the ones before ended on average.
            self.assertLess(len(first & second), 60)

    def test_a_restart_gives_the_batches_that_would_have_followed(self):
        whole = batches(1, 4)
        size = max(int(b["position"]) for b in whole if b["epoch"] == 0)
        for done in (1, 29, size - 1, size, size + 5):
            last = whole[done - 1]
            rest = batches(
                1,
                4,
                count=31,
                epoch=int(last["epoch"]),
                position=int(last["position"]),
            )
            for ours, expected in zip(rest, whole[done:], strict=False):
                for name, value in expected.items():
                    self.assertAllEqual(ours[name], value)

    def test_seeds_and_epochs_give_other_orders(self):
        first, second = (drawn(batches(1, 4), epoch) for epoch in range(2))
        other = drawn(batches(1, 4, seed=12), epoch=0)
        for one, two in ((first, second), (first, other)):
            self.assertNotEqual(one.tolist(), two.tolist())

    def test_one_corpus_of_a_mixture_has_each_pair_once(self):
        found = drawn(batches(2.5), epoch=0)
        self.assertCountEqual(found.tolist(), range(_SIZES[0]))


if __name__ == "__main__":
    tf.test.main()
