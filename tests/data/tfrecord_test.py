"""Tests of the bytes of records against TensorFlow's writer."""

import pathlib
import random
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from relpos_tf.data import pieces
from relpos_tf.data import records
from relpos_tf.data import tfrecord

_MARKS = 0, 5, 127, 128, 2**31, 2**32 - 1


def rows(number, longest, seed):
    """Returns random ids of one to three bytes, without EOS."""
    generator = random.Random(seed)
    return [
        [
            generator.choice((3, 90, 127, 128, 8000, 16383, 16384, 250_000))
            for _ in range(generator.randint(0, longest))
        ]
        for _ in range(number)
    ]


def packed(ids):
    """Returns packed ids, from TensorFlow's protocol buffer."""
    values = tf.train.Int64List(value=ids).SerializeToString()
    whole = tf.io.decode_raw(values, tf.uint8).numpy().tobytes()
    # Behind the field's number stands the size, of up to three bytes.
    start = 1
    while start < len(whole) and whole[start] & 0x80:
        start += 1
    return whole[start + 1 :]


class TfrecordTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "x.tfrecord")

    def test_varints_are_those_of_protocol_buffers(self):
        for number in (0, 1, 127, 128, 300, 2**14, 2**21 - 1, 2**32 - 1):
            self.assertEqual(pieces.varint(number), packed([number]))

    def test_files_are_byte_for_byte_those_of_tensorflow(self):
        for longest, mark in ((7, 5), (400, 2**32 - 3), (3000, 4_000_000_000)):
            sides = rows(31, longest, 1), rows(31, longest, 2)
            pairs = [([*i, 1], [*t, 1]) for i, t in zip(*sides, strict=True)]
            serialized = [
                tfrecord.serialize(packed(inputs), packed(targets))
                for inputs, targets in zip(*sides, strict=True)
            ]
            self.assertEqual(
                serialized, [records.serialize(*pair) for pair in pairs]
            )
            framed = tfrecord.Framed(serialized, tfrecord.mark(mark))
            for write, heads, feet, end in (
                (lambda: None, framed.headers, framed.footers, b""),
                (
                    lambda mark=mark: records.mark(self.path, mark),
                    framed.marked_headers,
                    framed.marked_footers,
                    tfrecord.mark(mark),
                ),
            ):
                records.write(pairs, [self.path])
                write()
                made = b"".join(
                    head.tobytes() + record + end + foot.tobytes()
                    for head, record, foot in zip(
                        heads, serialized, feet, strict=True
                    )
                )
                self.assertEqual(made, self.path.read_bytes())

    def test_marks_are_read_by_tensorflow(self):
        for mark in _MARKS:
            record = tfrecord.serialize(b"\x03", b"\x04") + tfrecord.mark(mark)
            pair = records.parse(tf.constant(record))
            self.assertEqual(int(pair["tokenizer"]), mark)
            self.assertEqual(pair["inputs"].numpy().tolist(), [3, 1])

    def test_ids_are_counted_with_eos(self):
        made = rows(50, 9, 3)
        np.testing.assert_array_equal(
            tfrecord.number_of_ids([packed(ids) for ids in made]),
            [len(ids) + 1 for ids in made],
        )


if __name__ == "__main__":
    absltest.main()
