"""Tests of the plan of an epoch: every pair, its share, its bucket."""

import collections
import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.data import plan as plan_lib
from tests import testing

T2T_CASES = {
    case: (settings, arrays)
    for case, settings, arrays in testing.t2t_cases(
        "batching", "t2t_training.npz"
    )
}
PAIRS, MAX_LENGTH, BATCH_SIZE = 467, 29, 101


def lengths(number=PAIRS, most=31, seed=5):
    """Returns random lengths, [N, 2]; some are beyond MAX_LENGTH."""
    draw = np.random.default_rng(seed)
    return draw.integers(1, most + 1, [number, 2]).astype(np.uint32)


def make(
    corpora=None, sizes=None, share=0.0, batch_size=BATCH_SIZE, fills=False
):
    """Returns a plan."""
    sizes = lengths() if sizes is None else sizes
    return plan_lib.Plan(
        sizes,
        corpora or [plan_lib.Corpus(len(sizes))],
        plan_lib.buckets(batch_size, MAX_LENGTH),
        share,
        fills,
    )


def pairs_of(batches):
    """Returns the numbers of all pairs of batches, in order."""
    flat = [n for rows in batches for n in rows.ravel().tolist()]
    return [n for n in flat if n != plan_lib.NO_PAIR]


class BucketsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("transformer_base_x1", 1), ("transformer_base_x2", 2)
    )
    def test_limits_and_rows_are_those_of_tensor2tensor(self, case, gpus):
        # tensor2tensor shares one batch among its GPUs; here each replica gets
        # a whole one.
        settings, arrays = T2T_CASES[case]
        limits, rows = plan_lib.buckets(
            settings["batch_size"],
            settings["max_length"],
            settings["min_length_bucket"],
            settings["length_bucket_step"],
        )
        self.assertEqual(limits[:-1], arrays["out/boundaries"].tolist())
        self.assertEqual(limits[-1], settings["max_length"])
        self.assertEqual(
            [gpus * size for size in rows], arrays["out/batch_sizes"].tolist()
        )


class PlanTest(parameterized.TestCase):
    def test_an_epoch_has_every_short_pair_once(self):
        plan = make()
        [short] = np.nonzero((plan.lengths <= MAX_LENGTH).all(axis=1))
        self.assertLess(len(short), PAIRS)
        for share, fills in (0.0, False), (0.4, False), (0.4, True):
            found = pairs_of(make(share=share, fills=fills).epoch(1, 0))
            self.assertCountEqual(found, short.tolist())

    def test_batches_have_one_bucket_and_its_rows(self):
        plan = make(share=0.3)
        limits, rows = plan.buckets
        sizes = collections.defaultdict(list)
        for batch in plan.epoch(1, 0):
            longest = plan.row_lengths(batch).max(axis=1)
            [bucket] = {
                next(i for i, b in enumerate([*limits[:-1], 999]) if n < b)
                for n in longest.tolist()
            }
            sizes[bucket].append(len(batch))
        self.assertGreater(len(sizes), 3)
        for bucket, found in sizes.items():
            # All are full but the last one of the epoch.
            self.assertLessEqual(sum(n != rows[bucket] for n in found), 1)
            self.assertLessEqual(max(found), rows[bucket])

    def test_filled_batches_are_full_but_for_the_last_one(self):
        plan = make(share=0.3, fills=True)
        kinds = list(
            zip(
                [*plan.buckets.limits[:-1], 999], plan.buckets.rows, strict=True
            )
        )
        smaller = []
        for batch in plan.epoch(1, 0):
            longest = plan.row_lengths(batch).max()
            if not any(longest < n and len(batch) == m for n, m in kinds):
                smaller.append(len(batch))
        self.assertLen(smaller, 1)
        self.assertLess(smaller[0], plan.buckets.rows[-1])

    def test_a_pair_longer_than_the_budget_is_a_batch_alone(self):
        sizes = np.array([[23, 5], [23, 7], [2, 2], [3, 2]], np.uint32)
        found = list(make(sizes=sizes, batch_size=17).epoch(1, 0))
        self.assertCountEqual(
            [sorted(pairs_of([rows])) for rows in found], [[0], [1], [2, 3]]
        )

    def test_the_order_is_random(self):
        found = pairs_of(make().epoch(1, 0))
        neighbours = [abs(a - b) for a, b in itertools.pairwise(found)]
        orders = {
            tuple(pairs_of(make().epoch(*key))) for key in np.ndindex(2, 2)
        }
        self.assertLen(orders, 4)
        # On average, two random numbers below N are N / 3 apart.
        self.assertAlmostEqual(np.mean(neighbours) / PAIRS, 1 / 3, delta=0.06)
        batches = make().epoch(1, 0)
        longest = [make().row_lengths(rows).max() for rows in batches]
        middle = len(longest) // 2
        self.assertAlmostEqual(
            np.mean(longest[:middle]) / np.mean(longest[middle:]), 1, delta=0.2
        )

    @parameterized.named_parameters(
        ("plain", {}),
        ("joined", {"share": 0.4}),
        (
            "weighted",
            {
                "corpora": [
                    plan_lib.Corpus(400, 0, 0.3),
                    plan_lib.Corpus(67, 1, 0.7),
                ]
            },
        ),
    )
    def test_a_resumed_run_gets_what_would_have_followed(self, options):
        with mock.patch.object(plan_lib, "_SLICE", 101):
            plan = make(**options)
            number = len(list(plan.epoch(7, 3)))
            expected = list(
                itertools.islice(plan.following(7, 3), number + number // 2)
            )
            for used in (1, 5, number - 1, number, number + 2):
                last = expected[used - 1]
                resumed = plan.following(7, last.epoch, last.position)
                for old, new in zip(expected[used:], resumed, strict=False):
                    self.assertEqual(old[:2], new[:2])
                    self.assertEqual(old.rows.tolist(), new.rows.tolist())
        self.assertEqual(expected[number][:2], (4, 1))

    def test_the_fingerprint_tells_all_that_batches_depend_on(self):
        sizes = lengths()
        sizes[7, 1] += 1
        parts = [plan_lib.Corpus(400), plan_lib.Corpus(67)]
        found = [
            plan.fingerprint(seed)
            for plan, seed in (
                (make(), 1),
                (make(), 2),
                (make(sizes=sizes), 1),
                (make(batch_size=BATCH_SIZE + 9), 1),
                (make(share=0.5), 1),
                (make(fills=True), 1),
                (make(parts), 1),
                (make([part._replace(share=0.5) for part in parts]), 1),
                (make([part._replace(share=0.2) for part in parts]), 1),
            )
        ]
        self.assertLen(set(found), len(found))
        self.assertEqual(make().fingerprint(1), found[0])
        for number in found:
            self.assertBetween(number, 1, 2**63 - 1)


class MixtureTest(absltest.TestCase):
    def test_every_epoch_has_the_pairs_of_its_share_and_goes_on(self):
        random = np.random.default_rng(11)
        cases = [([1] * 3, [1 / 3] * 3), ([5] * 3, [0.2, 0.1, 0.7])]
        cases += [([3, 2, 9, 1], [1e-300, 1e-3, 1.0, 7.0])]
        for _ in range(30):
            number = random.integers(1, 7)
            sizes = random.integers(1, 13, number).tolist()
            # From a thousandth of a pair to all pairs of an epoch.
            cases.append(
                (sizes, (10 ** random.uniform(-4, 0, number)).tolist())
            )
        for sizes, shares in cases:
            corpora = [
                plan_lib.Corpus(n, 0, share)
                for n, share in zip(sizes, shares, strict=True)
            ]
            total, ends = sum(sizes), np.cumsum(sizes)
            plan = make(corpora, sizes=np.full([total, 2], 2, np.uint32))
            read = np.zeros(total, int)
            for epoch in range(40):
                pairs = pairs_of(plan.epoch(3, epoch))
                self.assertLen(pairs, total)
                read += np.bincount(pairs, minlength=total)
                parts = np.split(read, ends[:-1])
                for part, share in zip(parts, shares, strict=True):
                    # In turn: no pair again before all others.
                    self.assertLessEqual(part.max() - part.min(), 1)
                    exact = (epoch + 1) * total * share / sum(shares)
                    self.assertLess(abs(part.sum() - exact), 1.5)


class JoiningTest(absltest.TestCase):
    def test_the_share_of_couples_that_are_joined(self):
        sizes = lengths(20011, most=9)
        rows = np.concatenate(list(make(sizes=sizes, share=0.3).epoch(1, 0)))
        joined = (rows[:, 1] != plan_lib.NO_PAIR).sum()
        # Three standard deviations of a binomial distribution.
        couples = 20011 // 2
        self.assertAlmostEqual(
            joined / couples, 0.3, delta=3 * (0.21 / couples) ** 0.5
        )

    def test_joined_rows_are_short_enough_and_lose_one_end(self):
        plan = make(share=1.0)
        rows = np.concatenate(list(plan.epoch(1, 0)))
        both = rows[rows[:, 1] != plan_lib.NO_PAIR]
        sums = plan.lengths[both].sum(axis=1).astype(int) - 1
        self.assertGreater(len(both), 20)
        self.assertEqual(plan.row_lengths(both).tolist(), sums.tolist())
        self.assertLessEqual(sums.max(), MAX_LENGTH)

    def test_only_pairs_of_one_tag_are_joined_and_have_it_once(self):
        # Odd, so that the last pair of the first corpus has no partner in it.
        corpora = [plan_lib.Corpus(201, 2), plan_lib.Corpus(266, 3)]
        plan = make(corpora, sizes=lengths(most=12), share=1.0)
        rows = np.concatenate(list(plan.epoch(1, 0)))
        both = rows[rows[:, 1] != plan_lib.NO_PAIR]
        self.assertGreater(len(both), 150)
        self.assertTrue(((both < 201).sum(axis=1) % 2 == 0).all())
        sums = plan.lengths[both].sum(axis=1).astype(int) - 1
        sums[:, 0] -= np.where(both[:, 0] < 201, 2, 3)
        self.assertEqual(plan.row_lengths(both).tolist(), sums.tolist())
