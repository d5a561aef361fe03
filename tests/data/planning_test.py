"""Tests of planned batches, against the order in which tf.data reads pairs."""

import itertools
import os
import random
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.data import augmentation
from relpos_tf.data import batching
from relpos_tf.data import mixing
from relpos_tf.data import planning
from relpos_tf.data import record_index
from relpos_tf.data import records
from relpos_tf.data import tokenizer

_COUNTS = 97, 0, 160, 33, 16, 61, 208
_MAX_LENGTH = 29
_NONE = augmentation.Augmentation()
_SETTINGS = {"batch_size": 303, "max_length": _MAX_LENGTH, "seed": 11}


def setUpModule():
    global _folder, _files, _pairs
    _folder = tempfile.TemporaryDirectory()
    draw, _files, _pairs, number = random.Random(7), [], [], itertools.count(10)

    def side():
        return [next(number), *draw.choices(range(3, 9), k=draw.randint(0, 30))]

    for file, count in enumerate(_COUNTS):
        path = os.path.join(_folder.name, f"{file}.tfrecord")
        pairs = [([*side(), 1], [*side(), 1]) for _ in range(count)]
        records.write(pairs, [path])
        _files.append(path)
        _pairs.append(pairs)


def tearDownModule():
    _folder.cleanup()


def corpora(*weights):
    """Returns a mixture of all files but the empty one, in corpora of two."""
    files = [_files[0], *_files[2:]]
    pairs = [_COUNTS[0], *_COUNTS[2:]]
    return mixing.Mixture(
        tuple(tuple(files[2 * i : 2 * i + 2]) for i in range(len(weights))),
        tuple(sum(pairs[2 * i : 2 * i + 2]) for i in range(len(weights))),
        weights,
    )


def joining(share):
    """Returns an augmentation that joins pairs."""
    return augmentation.Augmentation(
        pair_concatenation=share,
        tokenizer=mock.create_autospec(tokenizer.Tokenizer, instance=True),
    )


def planned(files, count, epoch=0, position=0, **options):
    """Returns the first planned batches."""
    dataset = batching.training_batches(
        files, epoch=epoch, position=position, **_SETTINGS | options
    )
    return list(dataset.take(count).as_numpy_iterator())


def read(files, count, epoch=0, position=0, how=_NONE):
    """Returns the first batches as earlier versions made them: by reading."""
    buckets = batching.boundaries_and_batch_sizes(303, _MAX_LENGTH)
    dataset = batching._read(
        files,
        _MAX_LENGTH,
        buckets,
        (_SETTINGS["seed"], epoch, position),
        how,
        lambda batch: records.checked(batch, None, None),
    )
    dataset = batching._finish(dataset)
    return list(dataset.take(count).as_numpy_iterator())


def pairs_of(batches):
    """Returns the pairs in batches, without padding."""
    return [
        (source[source != 0].tolist(), target[target != 0].tolist())
        for batch in batches
        for source, target in zip(
            batch["inputs"], batch["targets"], strict=True
        )
        if source.any()
    ]


class PlanTest(tf.test.TestCase, parameterized.TestCase):
    def assert_same(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for ours, batch in zip(found, expected, strict=True):
            self.assertEqual(ours.keys(), batch.keys())
            for name, value in batch.items():
                self.assertAllEqual(ours[name], value)
                self.assertEqual(ours[name].dtype, value.dtype)

    @parameterized.parameters(
        dict(spans=[(0, 5)]),
        dict(spans=[(0, 32), (50, 50), (60, 75), (100, 149), (7, 7)]),
        dict(spans=[(i * 100, i * 100 + i % 40) for i in range(50)]),
        dict(spans=[(0, 0)]),
    )
    def test_files_are_read_in_turn_as_tf_data_does(self, spans):
        limits = np.int64(spans)
        expected = tf.data.Dataset.from_tensor_slices(
            (limits[:, 0], limits[:, 1])
        ).interleave(
            tf.data.Dataset.range,
            cycle_length=min(len(spans), 16),
            block_length=16,
        )
        with mock.patch.object(planning, "_CHUNK", 64):
            found = list(planning.interleaved(spans, 16, 16))
        self.assertAllEqual(
            np.concatenate(found), list(expected.as_numpy_iterator())
        )

    @parameterized.parameters((10**6, 0.0), (100, 0.6))
    def test_batches_are_those_of_earlier_versions(self, window, share):
        how = joining(share)
        with (
            mock.patch.object(planning, "SHUFFLE_RECORDS", window),
            # Chunks whose limits lie within an epoch.
            mock.patch.object(planning, "_CHUNK", 2 * augmentation.BLOCK),
        ):
            expected = read(_files, 150, how=how)
            found = planned(_files, 150, augmentation=how)
            self.assertGreater(expected[-1]["epoch"], 1)
            self.assert_same(found, expected)
            # After most of an epoch, and after all of it.
            size = max(b["position"] for b in expected if b["epoch"] == 0)
            for done in (size * 2 // 3, size):
                last = expected[done - 1]
                place = int(last["epoch"]), int(last["position"])
                rest = planned(_files, 30, *place, augmentation=how)
                self.assert_same(rest, expected[done : done + 30])

    def test_mixtures_are_those_of_earlier_versions(self):
        weights = 0.2, 5, 1.3
        with mock.patch.object(planning, "SHUFFLE_RECORDS", 50):
            expected = read(corpora(*weights), 90, epoch=1, how=joining(0.4))
            options = {"epoch": 1, "augmentation": joining(0.4)}
            found = planned(corpora(*weights), 90, **options)
            self.assert_same(found, expected)
            options["position"] = 23
            found = planned(corpora(*weights), 50, **options)
            self.assert_same(found, expected[23:73])

    def test_a_resumed_epoch_reads_no_pair_before_its_position(self):
        whole = planned(_files, 100)
        size = max(b["position"] for b in whole if b["epoch"] == 0)
        asked, reading = [], record_index.Reader.read

        def counting(reader, numbers):
            asked.append(len(numbers))
            return reading(reader, numbers)

        position = int(size) * 4 // 5
        with mock.patch.object(record_index.Reader, "read", counting):
            dataset = batching.training_batches(
                _files, position=position, **_SETTINGS
            )
            batch = next(dataset.as_numpy_iterator())
        self.assertEqual(batch["position"], position + 1)
        self.assertEqual(
            asked, [len(b["inputs"]) for b in whole[position:]][: len(asked)]
        )

    @parameterized.parameters(2, 3)
    def test_hosts_share_the_pairs_of_an_epoch(self, number):
        runs = [
            planned(_files, 99, host=planning.Host(i, number))
            for i in range(number)
        ]
        for epoch in range(2):
            of_epoch = [[b for b in r if b["epoch"] == epoch] for r in runs]
            # All hosts begin each epoch at the same update.
            [size] = {len(batches) for batches in of_epoch}
            for host, batches in enumerate(of_epoch):
                self.assertEqual(
                    [int(b["position"]) for b in batches],
                    [number * i + host + 1 for i in range(size)],
                )
                own = [
                    pair
                    for pairs in _pairs[host::number]
                    for pair in pairs
                    if max(map(len, pair)) <= _MAX_LENGTH
                ]
                self.assertCountEqual(pairs_of(batches), own)
        # Some have batches without pairs, a row of padding.
        empty = [b for r in runs for b in r if not b["inputs"].any()]
        self.assertNotEmpty(empty)
        for batch in empty:
            self.assertEqual(batch["inputs"].shape, (1, 1))
            self.assertEqual(batch["targets"].shape, (1, 1))
        for host, run in enumerate(runs):
            last = int(runs[-1][26]["epoch"]), int(runs[-1][26]["position"])
            options = {"host": planning.Host(host, number)}
            self.assert_same(planned(_files, 40, *last, **options), run[27:67])

    def test_hosts_share_each_corpus_of_a_mixture(self):
        runs = [
            planned(corpora(1, 3), 60, host=planning.Host(i, 2, 1))
            for i in range(2)
        ]
        files = corpora(1, 3).files
        for host, run in enumerate(runs):
            found = [pair[0][0] for pair in pairs_of(run)]
            for corpus, of_corpus in enumerate(files):
                pairs = _pairs[_files.index(of_corpus[host])]
                count = sum(found.count(pair[0][0]) for pair in pairs)
                # A quarter of the first corpus, three of the second.
                share = (0.25, 0.75)[corpus]
                self.assertNear(count / len(found), share, 0.08)

    def test_a_host_opens_its_own_files_only(self):
        opened = []
        opening = os.open

        def recorded(path, *arguments, **options):
            opened.append(path)
            return opening(path, *arguments, **options)

        planned(_files, 1)  # makes the index
        for host in range(2):
            opened.clear()
            with mock.patch.object(os, "open", recorded):
                planned(_files, 60, host=planning.Host(host, 2))
            found = {path for path in opened if str(path).endswith("tfrecord")}
            own = {p for p in _files[host::2] if os.path.getsize(p)}
            self.assertEqual(found, own)

    @parameterized.parameters((2, 1), (2, 2))
    def test_few_files_are_dealt_as_by_one_host(self, number, replicas):
        files = _files[1:3]  # One of the two files is empty.
        whole = planned(files, 40)
        for index in range(number):
            host = planning.Host(index, number, replicas)
            found = planned(files, 9, host=host)
            expected = [
                batch
                for i, batch in enumerate(whole)
                if i // replicas % number == index
            ]
            self.assert_same(found, expected[:9])


if __name__ == "__main__":
    tf.test.main()
