"""Tests of the index of training records."""

import os
import pathlib
import tracemalloc
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import record_index
from relpos_tf.data import records
from relpos_tf.utils import files

_COUNTS = 5, 0, 11


def number_of_open_files():
    return len(os.listdir("/proc/self/fd"))


class RecordIndexTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.pairs = [
            ([i + 3] * (i % 4 + 1) + [1], [7] * (3 * i) + [300 + i, 1])
            for i in range(sum(_COUNTS))
        ]
        self.files = []
        left = iter(self.pairs)
        for number, count in enumerate(_COUNTS):
            path = self.folder / f"{number}.tfrecord"
            records.write([next(left) for _ in range(count)], [path])
            if count:
                records.mark(path, 17)
            self.files.append(str(path))
        self.path = self.folder / files.INDEX

    def assert_is_right(self, index):
        """Checks lengths, and reads every record by its number."""
        self.assertAllEqual(index.starts, [0, 5, 5, 16])
        lengths = [[len(s), len(t)] for s, t in self.pairs]
        self.assertAllEqual(index.lengths, lengths)
        order = np.random.default_rng(3).permutation(len(self.pairs))
        with index.reader() as reader:
            for number, record in zip(order, reader.read(order), strict=True):
                pair = records.parse(record)
                self.assertAllEqual(pair["inputs"], self.pairs[number][0])
                self.assertAllEqual(pair["targets"], self.pairs[number][1])
                self.assertEqual(pair["tokenizer"], 17)

    def test_records_are_found_by_number_in_a_new_and_a_stored_index(
        self,
    ):
        self.assert_is_right(record_index.load(self.files))
        made = self.path.stat()
        self.assertBetween(made.st_size, 12 * len(self.pairs), 600)
        stored = record_index.load(self.files)
        self.assertIsInstance(stored.lengths, np.memmap)
        self.assert_is_right(stored)
        self.assertEqual(self.path.stat(), made)

    @parameterized.parameters(
        b"",
        b"no index",
        b"relpos-1" + bytes(8),
        b"relpos-1" + b"\xff" * 8,
        b"relpos-1\x02" + bytes(7) + b"{}",
        b"relpos-1\x02" + bytes(7) + b"[]",
    )
    def test_a_damaged_index_is_made_anew(self, content):
        record_index.load(self.files)
        good = self.path.read_bytes()
        flipped = good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]
        for damage in (content, good[:-1], good + b"0", flipped):
            self.path.write_bytes(damage)
            self.assert_is_right(record_index.load(self.files))
            self.assertEqual(self.path.read_bytes(), good)

    def test_an_index_of_other_files_is_made_anew(self):
        record_index.load(self.files[::2])
        self.assert_is_right(record_index.load(self.files))
        # The same size, written later.
        path = pathlib.Path(self.files[0])
        self.pairs[:5] = self.pairs[4::-1]
        records.write(self.pairs[:5], [path])
        records.mark(path, 17)
        later = self.path.stat().st_mtime_ns + 10**9
        os.utime(path, ns=(later, later))
        self.assert_is_right(record_index.load(self.files))

    def test_indexing_takes_little_memory_for_each_pair(self):
        path = self.folder / "long.tfrecord"
        number = 7919
        records.write([([3, 1], [4, 1])] * number, [path])
        guarded, before = records.guarded, []

        def traced(batches, files):
            for batch in guarded(batches, files):
                if not before:  # the graph is there
                    tracemalloc.reset_peak()
                    before.append(tracemalloc.get_traced_memory()[0])
                yield batch

        with (
            mock.patch.object(record_index, "_BATCH", 64),
            mock.patch.object(records, "guarded", traced),
        ):
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            _, offsets, lengths = record_index._scan([str(path)])
            _, peak = tracemalloc.get_traced_memory()
        self.assertLen(offsets, number + 1)
        self.assertAllEqual(lengths, np.full([number, 2], 2))
        self.assertBetween((peak - before[0]) / number, 12, 24)

    def test_data_that_cannot_be_written_are_indexed_in_memory(self):
        self.path.mkdir()  # A file cannot replace it, not even root's.
        self.assert_is_right(record_index.load(self.files))
        self.assertTrue(self.path.is_dir())

    def test_few_files_are_open_at_once_however_many_there_are(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        many = [str(folder / f"{i:03d}.tfrecord") for i in range(149)]
        pairs = [([i + 3, 1], [7, 1]) for i in range(149)]
        for path, pair in zip(many, pairs, strict=True):
            records.write([pair], [path])
        index = record_index.load(many)
        order = np.random.default_rng(3).integers(len(pairs), size=1009)
        before = number_of_open_files()
        with index.reader() as reader:
            for number in order:
                [record] = reader.read(np.array([number]))
                found = records.parse(record)["inputs"]
                self.assertAllEqual(found, pairs[number][0])
            self.assertLessEqual(number_of_open_files() - before, 128)
        self.assertEqual(number_of_open_files(), before)

    def test_the_file_that_was_not_read_for_longest_is_closed(self):
        index = record_index.load(self.files)
        with (
            mock.patch.object(record_index, "_MOST_OPEN", 1),
            mock.patch.object(os, "open", side_effect=os.open) as opened,
            index.reader() as reader,
        ):
            for number in (3, 4, 11, 12, 3):
                reader.read(np.array([number]))
        names = [call.args[0] for call in opened.call_args_list]
        self.assertEqual(names, [self.files[i] for i in (0, 2, 0)])

    def test_damaged_records_are_refused(self):
        index = record_index.load(self.files)
        path = pathlib.Path(self.files[2])
        good = path.read_bytes()
        [[_, start, size]] = index.places(np.array([7])).tolist()
        for place in (start, start + 9, start + 12, start + size - 1):
            path.write_bytes(
                good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
            )
            with index.reader() as reader:
                self.assertLen(reader.read(np.array([6, 8])), 2)
                with self.assertRaisesRegex(ValueError, "Damaged record"):
                    reader.read(np.array([6, 7, 8]))
        path.unlink()
        with index.reader() as reader:
            with self.assertRaisesRegex(ValueError, "No such file"):
                reader.read(np.array([6]))
        with self.assertRaisesRegex(errors.UserError, "does not exist"):
            record_index.load([self.files[0], str(path)])


if __name__ == "__main__":
    tf.test.main()
