"""Tests of TFRecord files of pairs."""

import pathlib
import tempfile

import tensorflow as tf

from relpos_tf import errors
from relpos_tf import records

_PAIRS = [([i + 3] * (i % 5) + [1], [i + 7] * (i % 3) + [1]) for i in range(23)]


def read(path):
    """Returns the pairs in a file."""
    return [
        tuple(pair[name].numpy().tolist() for name in ("inputs", "targets"))
        for pair in tf.data.TFRecordDataset(str(path)).map(records.parse)
    ]


class RecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.files = [
            pathlib.Path(folder.name, f"{i}.tfrecord") for i in range(3)
        ]

    def test_pairs_are_dealt_out_in_turn_and_come_back(self):
        self.assertEqual(records.write(iter(_PAIRS), self.files), 23)
        for i, path in enumerate(self.files):
            self.assertEqual(read(path), _PAIRS[i::3])
        self.assertEqual(records.count_records(self.files), 23)
        self.assertEqual(records.count_records(self.files[2:]), 7)

    def test_files_may_stay_empty(self):
        records.write(_PAIRS[:1], self.files)
        self.assertEqual(read(self.files[1]), [])
        self.assertEqual(records.count_records(self.files), 1)

    def test_shuffling_permutes_by_seed(self):
        orders = []
        for seed in (5, 5, 6):
            records.write(_PAIRS, self.files[:1])
            records.shuffle_file(self.files[0], seed)
            orders.append(read(self.files[0]))
        self.assertEqual(orders[0], orders[1])
        self.assertNotEqual(orders[0], orders[2])
        self.assertNotEqual(orders[0], _PAIRS)
        self.assertCountEqual(orders[0], _PAIRS)

    def test_a_file_cut_anywhere_is_named(self):
        path = self.files[0]
        records.write(_PAIRS[:2], [path])
        whole = path.read_bytes()
        first = 16 + int.from_bytes(whole[:8], "little")
        for length in range(1, len(whole)):
            path.write_bytes(whole[:length])
            if length == first:
                self.assertEqual(records.count_records([path]), 1)
                continue
            with self.assertRaisesRegex(errors.UserError, str(path)):
                records.count_records([path])

    def test_files_that_are_no_records_are_named(self):
        with self.assertRaisesRegex(errors.UserError, str(self.files[0])):
            records.count_records(self.files)
        self.files[0].write_text("Two dogs are running over a meadow.\n")
        with self.assertRaisesRegex(errors.UserError, "damaged"):
            records.count_records(self.files[:1])


if __name__ == "__main__":
    tf.test.main()
