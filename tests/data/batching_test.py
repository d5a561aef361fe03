"""Tests of batching: tensor2tensor's buckets, and an order that can resume."""

import functools
import os
import pathlib
import random
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import batching
from relpos_tf.data import records

# Run with tensor2tensor 1.15.7, transformer_base, one replica.
_T2T_BOUNDARIES = [
    *(8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 26, 28, 30),
    *(33, 36, 39, 42, 46, 50, 55, 60, 66, 72, 79, 86, 94, 103, 113, 124, 136),
    *(149, 163, 179, 196, 215, 236),
]
_T2T_BATCH_SIZES = [
    *(420, 420, 315, 315, 315, 315, 252, 252, 252, 210, 210, 210, 180, 180),
    *(140, 140, 140, 126, 105, 105, 105, 90, 84, 70, 70, 63, 60, 45, 45, 45),
    *(42, 36, 36, 30, 30, 21, 21, 21, 20, 18, 15, 15),
]
_MAX_LENGTH = 29
_BATCH_SIZE = 101
_PAIRS = 467


def setUpModule():
    global _folder, _files, _pairs
    _folder = tempfile.TemporaryDirectory()
    _files = [os.path.join(_folder.name, f"{i}.tfrecord") for i in range(3)]
    draw = random.Random(7)
    # The first id says which pair it is.
    _pairs = [
        (
            [i + 10, *draw.choices(range(3, 9), k=draw.randint(0, 30)), 1],
            [i + 10, *draw.choices(range(3, 9), k=draw.randint(0, 30)), 1],
        )
        for i in range(_PAIRS)
    ]
    records.write(_pairs, _files)


def tearDownModule():
    _folder.cleanup()


@functools.cache
def training(count, **arguments):
    """Returns the first batches of training, as arrays."""
    settings = {
        "batch_size": _BATCH_SIZE,
        "max_length": _MAX_LENGTH,
        "seed": 11,
        **arguments,
    }
    dataset = batching.training_batches(_files, **settings)
    return list(dataset.take(count).as_numpy_iterator())


def epochs(count=300, **arguments):
    """Returns the batches of the first two epochs of training."""
    batches = training(count, **arguments)
    return [
        [batch for batch in batches if batch["epoch"] == epoch]
        for epoch in range(2)
    ]


def unpadded(batches):
    """Returns the pairs in batches, without padding."""
    return [
        (source[source != 0].tolist(), target[target != 0].tolist())
        for batch in batches
        for source, target in zip(
            batch["inputs"], batch["targets"], strict=True
        )
    ]


def longest(pair):
    return max(len(pair[0]), len(pair[1]))


class BucketsTest(parameterized.TestCase):
    def test_buckets_are_those_of_tensor2tensor(self):
        boundaries, sizes = batching.boundaries_and_batch_sizes(4096, 256)
        self.assertEqual(boundaries, _T2T_BOUNDARIES)
        self.assertEqual(sizes, _T2T_BATCH_SIZES)

    @parameterized.parameters((5, 8, 8, 1.1), (97, 31, 5, 1.0), (64, 3, 8, 2.0))
    def test_no_bucket_exceeds_the_budget(self, size, longest, first, step):
        boundaries, sizes = batching.boundaries_and_batch_sizes(
            size, longest, first, step
        )
        self.assertEqual(len(sizes), len(boundaries) + 1)
        limits = [*boundaries, longest]
        self.assertEqual(limits, sorted(set(limits)))
        for limit, rows in zip(limits, sizes, strict=True):
            self.assertBetween(rows, 1, max(1, size // limit))

    @parameterized.parameters((0, 8, 8, 1.1), (9, 0, 8, 1.1), (9, 9, 9, 0.9))
    def test_impossible_sizes_are_refused(self, *arguments):
        with self.assertRaisesRegex(ValueError, "Received"):
            batching.boundaries_and_batch_sizes(*arguments)


class TrainingBatchesTest(tf.test.TestCase, parameterized.TestCase):
    def test_an_epoch_has_every_short_pair_once(self):
        short = [pair for pair in _pairs if longest(pair) <= _MAX_LENGTH]
        self.assertBetween(len(short), 100, _PAIRS - 10)
        for batches in epochs():
            self.assertCountEqual(unpadded(batches), short)

    def test_batches_keep_to_the_budget_and_to_similar_lengths(self):
        limits, sizes = batching.boundaries_and_batch_sizes(
            _BATCH_SIZE, _MAX_LENGTH
        )
        batches, _ = epochs()
        buckets_seen = set()
        for batch in batches:
            self.assertEqual(batch["inputs"].dtype, np.int32)
            self.assertEqual(batch["targets"].dtype, np.int32)
            for side in ("inputs", "targets"):
                self.assertLessEqual(batch[side].size, _BATCH_SIZE)
                # No column is padding only.
                self.assertTrue((batch[side] != 0).any(axis=0).all())
            buckets = {
                int(np.searchsorted(limits, longest(pair), side="right"))
                for pair in unpadded([batch])
            }
            self.assertLen(buckets, 1)
            (bucket,) = buckets
            self.assertLessEqual(len(batch["inputs"]), sizes[bucket])
            buckets_seen.add(bucket)
        self.assertGreater(len(buckets_seen), 5)

    def test_epochs_and_seeds_give_other_orders(self):
        first, second = (unpadded(batches) for batches in epochs())
        other = unpadded(epochs(seed=12)[0])
        self.assertCountEqual(first, second)
        self.assertNotEqual(first, second)
        self.assertNotEqual(first, other)
        self.assertNotEqual(second, other)

    def test_positions_count_the_batches_of_each_epoch(self):
        for epoch, batches in enumerate(epochs()):
            self.assertEqual(
                [int(batch["position"]) for batch in batches],
                list(range(1, len(batches) + 1)),
            )
            self.assertEqual({int(b["epoch"]) for b in batches}, {epoch})

    def test_only_the_given_seed_counts(self):
        runs = []
        for program_seed in (None, 3, 5):
            if program_seed:
                tf.random.set_seed(program_seed)
            runs.append(training.__wrapped__(41))
        self.assertAllEqual(unpadded(runs[0]), unpadded(runs[1]))
        self.assertAllEqual(unpadded(runs[0]), unpadded(runs[2]))

    def test_a_restart_gives_the_batches_that_would_have_followed(self):
        whole = training(300)
        size = max(b["position"] for b in whole if b["epoch"] == 0)
        for done in (1, 17, size - 1, size, size + 3):
            last = whole[done - 1]
            rest = training(
                23, epoch=int(last["epoch"]), position=int(last["position"])
            )
            for ours, expected in zip(rest, whole[done:], strict=False):
                self.assertEqual(ours.keys(), expected.keys())
                for name, value in expected.items():
                    self.assertAllEqual(ours[name], value)
            self.assertLen(rest, 23)

    def test_padding_to_boundaries_leaves_few_shapes(self):
        limits, sizes = batching.boundaries_and_batch_sizes(
            _BATCH_SIZE, _MAX_LENGTH
        )
        shapes = set(zip(sizes, [*limits, _MAX_LENGTH], strict=True))
        plain = training(150)
        padded = training(150, pad_to_boundary=True)
        for batch, expected in zip(padded, plain, strict=True):
            self.assertIn(batch["inputs"].shape, shapes)
            self.assertEqual(batch["inputs"].shape, batch["targets"].shape)
            self.assertEqual(batch["position"], expected["position"])
            for side in ("inputs", "targets"):
                rows, length = expected[side].shape
                self.assertAllEqual(batch[side][:rows, :length], expected[side])
                self.assertEqual(
                    np.abs(batch[side]).sum(), np.abs(expected[side]).sum()
                )

    def test_no_short_pair_is_an_error_and_not_an_endless_loop(self):
        with self.assertRaisesRegex(errors.UserError, "max_length=1 "):
            training(1, max_length=1)

    def test_files_without_pairs_are_an_error_and_not_an_endless_loop(self):
        path = self.create_tempfile().full_path
        records.write([], [path])
        with self.assertRaisesRegex(errors.UserError, "No training pair"):
            batching.training_batches(
                [path], batch_size=64, max_length=32, seed=1
            )

    def test_a_pair_longer_than_the_budget_is_a_batch_by_itself(self):
        short = [pair for pair in _pairs if longest(pair) <= _MAX_LENGTH]
        batches = epochs(400, batch_size=13)[0]
        self.assertCountEqual(unpadded(batches), short)
        wide = [b for b in batches if longest(unpadded([b])[0]) > 13]
        self.assertGreater(len(wide), 10)
        self.assertEqual({len(batch["inputs"]) for batch in wide}, {1})

    def test_a_position_behind_the_end_begins_the_next_epoch(self):
        size = len(epochs()[0])
        for position in (size, size + 99):
            (batch,) = training(1, position=position)
            self.assertEqual((batch["epoch"], batch["position"]), (1, 1))

    @parameterized.parameters(
        ([[3, 1]], [[97, 1]], "the id 97"),
        ([[3, 1], []], [[5, 1], [1]], "`inputs` is empty"),
        ([[-3, 1]], [[5, 1]], "the id -3"),
        ([[2**33 + 3, 1]], [[5, 1]], "the id 8589934595"),
        ([[]], [[]], "`inputs` is empty"),
    )
    def test_rows_that_are_no_sentences_stop_the_reading(
        self, inputs, targets, expected
    ):
        path = self.create_tempfile().full_path
        records.write(zip(inputs, targets, strict=True), [path])
        arguments = {"batch_size": 64, "vocab_size": 97}
        batches = batching.evaluation_batches([path], **arguments)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            list(batches)
        endless = batching.training_batches(
            [path], max_length=32, seed=1, **arguments
        )
        with self.assertRaisesRegex(errors.UserError, expected):
            list(records.guarded(endless.take(9), [path], 97))

    def test_records_that_another_tokenizer_made_stop_the_reading(self):
        path = pathlib.Path(self.create_tempfile().full_path)
        other = pathlib.Path(self.create_tempfile().full_path)
        for number, file in enumerate((path, other)):
            records.write([([3, 1], [5, 1])] * 7, [file])
            records.mark(file, 100 + number)
        every = batching.evaluation_batches(
            [str(path)], batch_size=64, tokenizer=100
        )
        endless = batching.training_batches(
            [str(path)], batch_size=64, max_length=9, seed=1, tokenizer=100
        )
        following = records.guarded(endless, [path], tokenizer=100)
        self.assertEqual(next(following)["epoch"], 0)
        self.assertLen(list(every), 1)
        # As when the data are prepared anew while a run reads them.
        other.replace(path)
        with self.assertRaisesRegex(errors.UserError, "another tokenizer"):
            for batch in following:
                self.assertLess(batch["epoch"], 99)
        with self.assertRaisesRegex(errors.UserError, "another tokenizer"):
            list(records.guarded(every, [path], tokenizer=100))

    def test_damage_before_the_first_pair_is_named_at_once(self):
        path = pathlib.Path(self.create_tempfile().full_path)
        records.write([([3, 1], [3, 1])], [path])
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaisesRegex(errors.UserError, f"Record 1 of {path}"):
            batching.training_batches(
                [str(path)], batch_size=64, max_length=32, seed=1
            )

    def test_the_process_can_end_at_once(self):
        # The thread that tunes sleeps for up to a minute, and the iterator
        # waits for it before it goes.
        for dataset in (
            batching.evaluation_batches(_files, batch_size=_BATCH_SIZE),
            batching.training_batches(
                _files, batch_size=_BATCH_SIZE, max_length=_MAX_LENGTH, seed=1
            ),
        ):
            self.assertFalse(dataset.options().autotune.enabled)

    def test_one_trace_serves_every_batch(self):
        dataset = batching.training_batches(
            _files, batch_size=_BATCH_SIZE, max_length=_MAX_LENGTH, seed=1
        )
        count = tf.function(
            lambda batch: tf.reduce_sum(batch["inputs"]),
            input_signature=[dataset.element_spec],
        )
        for batch in dataset.take(20):
            self.assertGreater(count(batch), 0)
        self.assertEqual(count.experimental_get_tracing_count(), 1)


class EvaluationBatchesTest(tf.test.TestCase):
    def test_every_pair_comes_once_whatever_its_length(self):
        runs = [
            list(
                batching.evaluation_batches(
                    _files, batch_size=23
                ).as_numpy_iterator()
            )
            for _ in range(2)
        ]
        self.assertCountEqual(unpadded(runs[0]), _pairs)
        self.assertEqual(unpadded(runs[0]), unpadded(runs[1]))
        for batch in runs[0]:
            self.assertEqual(batch.keys(), {"inputs", "targets"})
            widest = max(batch["inputs"].shape[1], batch["targets"].shape[1])
            rows = len(batch["inputs"])
            self.assertTrue(rows == 1 or rows * widest <= 23)


if __name__ == "__main__":
    tf.test.main()
