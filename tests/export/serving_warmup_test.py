"""The warm-up requests of TensorFlow Serving, decoded again."""

import os
import pathlib

import tensorflow as tf
from absl.testing import absltest
from tensorflow.core.framework import tensor_pb2

from relpos_tf import errors
from relpos_tf.decoding import loading
from relpos_tf.export import serving_warmup
from tests import tiny_run

# tensorflow-serving-api 2.21.0 writes this for ["a", "ü" * 100].
PREDICTION_LOG = (
    b"2\x86\x02\n\x83\x02\n\x1d\n\ntranslator\x1a\x0fserving_default\x12\xe1"
    b"\x01\n\x06inputs\x12\xd6\x01\x08\x07\x12\x04\x12\x02\x08\x02B\x01aB\xc8"
    b"\x01" + "ü".encode() * 100
)


def fields(message):
    """Yields (number, content) of a message of strings and messages."""
    while message:
        assert message[0] & 7 == 2, "not a field with a length"
        size, shift, start = 0, 0, 1
        while True:
            size |= (message[start] & 127) << shift
            shift, start = shift + 7, start + 1
            if message[start - 1] < 128:
                break
        yield message[0] >> 3, message[start : start + size]
        message = message[start + size :]


def requests(folder):
    """Returns the lines of each warm-up request of an export."""
    lines = []
    path = str(folder / "assets.extra" / "tf_serving_warmup_requests")
    for record in tf.data.TFRecordDataset(path):
        ((_, predict_log),) = fields(record.numpy())
        ((_, request),) = fields(predict_log)
        entry = dict(fields(dict(fields(request))[2]))
        tensor = tensor_pb2.TensorProto.FromString(entry[2])
        lines.append(tf.make_ndarray(tensor).tolist())
    return lines


class WarmupTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def test_request_equals_that_of_the_package_of_tensorflow_serving(self):
        log = serving_warmup.prediction_log(["a", "ü" * 100])
        self.assertEqual(log, PREDICTION_LOG)

    def test_lengths_about_the_limit_of_one_byte_are_read_back(self):
        lines = ["x" * size for size in range(50, 140)]
        serving_warmup.write(self.folder, lines)
        self.assertEqual(
            requests(self.folder)[:-1], [[line.encode()] for line in lines]
        )

    def test_each_line_is_a_request_and_all_are_another(self):
        serving_warmup.write(self.folder, ["a", "", "\ud800ü"])
        lines = [b"a", b"", "?ü".encode()]
        self.assertEqual(requests(self.folder), [*([x] for x in lines), lines])

    def test_one_line_is_one_request_and_none_no_file(self):
        serving_warmup.write(self.folder, [])
        self.assertEqual(os.listdir(self.folder), [])
        serving_warmup.write(self.folder, ["a"])
        self.assertEqual(requests(self.folder), [[b"a"]])

    def test_more_requests_than_a_server_takes_are_refused(self):
        serving_warmup.write(self.folder, ["a"] * 999)
        self.assertLen(requests(self.folder), 1000)
        with self.assertRaisesRegex(errors.UserError, "at most 999 lines"):
            serving_warmup.write(self.folder, ["a"] * 1000)

    def test_lines_are_made_of_the_letters_of_the_vocabulary(self):
        tokens = loading.load_tokenizer(tiny_run.path())
        lines = serving_warmup.sample_lines(tokens)
        letters = {x for x in "".join(tiny_run.TEXT) if x.isalpha()}
        self.assertLen(lines, 3)
        for line, size in zip(lines, (8, 24, 64), strict=True):
            self.assertLessEqual({*line}, letters | {" "})
            self.assertAlmostEqual(
                len(tokens.encode(line)), size, delta=size / 4
            )


if __name__ == "__main__":
    absltest.main()
