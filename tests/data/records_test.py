"""Tests of TFRecord files of pairs."""

import pathlib
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import records

_PAIRS = [([i + 3] * (i % 5) + [1], [i + 7] * (i % 3) + [1]) for i in range(23)]


def read(path):
    """Returns the pairs in a file."""
    return [
        tuple(pair[name].numpy().tolist() for name in ("inputs", "targets"))
        for pair in tf.data.TFRecordDataset(str(path)).map(records.parse)
    ]


def example(**features):
    """Returns a serialized `tf.train.Example` of lists of any kind."""
    lists = {}
    for name, values in features.items():
        feature = lists[name] = tf.train.Feature()
        for value in values:
            kind = {int: "int64", float: "float", bytes: "bytes"}[type(value)]
            getattr(feature, f"{kind}_list").value.append(value)
        if not values:
            feature.int64_list.SetInParent()
    return tf.train.Example(
        features=tf.train.Features(feature=lists)
    ).SerializeToString()


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
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

    def test_sound_files_pass(self):
        records.write(_PAIRS, self.files)
        records.check(self.files, vocab_size=40)
        records.check(self.files)

    def test_records_of_another_tokenizer_are_named(self):
        records.write(_PAIRS, self.files)
        records.mark(self.files[1], 2**32 - 5)
        self.assertEqual(read(self.files[1]), _PAIRS[1::3])
        for path in self.files[:2]:  # records without a mark pass
            records.check([path], tokenizer=2**32 - 5)
        records.check(self.files)
        with self.assertRaisesRegex(
            errors.UserError, f"Record 1 of {self.files[1]} .*another tokenizer"
        ):
            records.check(self.files, tokenizer=2**32 - 6)

    @parameterized.named_parameters(
        ("noise", b"\xff\xfe\xfd noise", "no tf.train.Example"),
        ("text", b"Two dogs.", "no tf.train.Example"),
        ("nothing", b"", "no `inputs`"),
        ("a side", example(inputs=[3, 1]), "no `targets`"),
        ("floats", example(inputs=[3.0], targets=[1]), "`inputs` is no list"),
        ("bytes", example(inputs=[1], targets=[b"3"]), "`targets` is no list"),
        ("no ids", example(inputs=[], targets=[1]), "`inputs` is empty"),
        ("padding", example(inputs=[3, 0], targets=[1]), "the id 0,"),
        ("negative", example(inputs=[3], targets=[-7, 1]), "the id -7,"),
        ("beyond", example(inputs=[40, 1], targets=[1]), "the id 40, .* to 39"),
        ("huge", example(inputs=[2**40 + 3], targets=[1]), "1099511627779"),
    )
    def test_a_record_of_something_else_is_named(self, record, expected):
        records.write(_PAIRS, self.files)
        with tf.io.TFRecordWriter(str(self.files[1])) as writer:
            for pair in _PAIRS[:4]:
                writer.write(records.serialize(*pair))
            writer.write(record)
            writer.write(record)
        with self.assertRaisesRegex(
            errors.UserError, f"Record 5 of {self.files[1]} .*{expected}"
        ):
            records.check(self.files, vocab_size=40)

    def test_a_flipped_byte_is_noticed_and_its_record_named(self):
        path = self.files[0]
        records.write(_PAIRS[:3], [path])
        whole = path.read_bytes()
        for place in range(0, len(whole), 23):
            path.write_bytes(
                whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]
            )
            number, end = 0, 0
            while end <= place:
                end += 16 + int.from_bytes(whole[end : end + 8], "little")
                number += 1
            with self.assertRaisesRegex(
                errors.UserError, f"Record {number} of {path} .*checksum"
            ):
                records.check([path])

    def test_a_file_cut_within_a_record_names_it(self):
        records.write(_PAIRS, self.files)
        path = self.files[2]
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaisesRegex(errors.UserError, f"Record 7 of {path}"):
            records.check(self.files)
        path.unlink()
        with self.assertRaisesRegex(errors.UserError, f"{path}, which does"):
            records.check(self.files)

    def test_errors_of_other_causes_do_not_blame_the_files(self):
        records.write(_PAIRS, self.files)

        def batches(error):
            yield 1
            raise error

        fault = tf.errors.InvalidArgumentError(None, None, "of another kind")
        iterator = records.guarded(batches(fault), self.files)
        self.assertEqual(next(iterator), 1)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "another"):
            next(iterator)
        self.files[0].write_bytes(b"torn" * 5)
        with self.assertRaisesRegex(errors.UserError, "Record 1 of"):
            list(records.guarded(batches(fault), self.files))
        with self.assertRaises(KeyboardInterrupt):
            list(records.guarded(batches(KeyboardInterrupt()), self.files))


if __name__ == "__main__":
    tf.test.main()
