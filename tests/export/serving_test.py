"""What serves an export: warm-up requests, sessions, the CLI, many threads."""

import concurrent.futures
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from tensorflow.core.framework import tensor_pb2

import relpos_tf
from relpos_tf import errors
from relpos_tf.decoding import loading
from relpos_tf.decoding import saved_model_engine
from relpos_tf.export import saved_model
from relpos_tf.export import serving_warmup
from relpos_tf.t2t import t2t_import
from tests import t2t_checkpoint
from tests import tiny_run
from tests.decoding import translator_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
T2T_VOCAB = 97
T2T_LINES = ("abc", "seven houses; and 9", "", "ein Haus? \u4e16")
# What tensorflow-serving-api 2.21.0 writes of ["a", "ü" * 100].
PREDICTION_LOG = (
    b"2\x86\x02\n\x83\x02\n\x1d\n\ntranslator\x1a\x0fserving_default\x12\xe1"
    b"\x01\n\x06inputs\x12\xd6\x01\x08\x07\x12\x04\x12\x02\x08\x02B\x01aB\xc8"
    b"\x01" + "ü".encode() * 100
)
BROKEN = (
    b"\xff 7",
    b"7 \xc3(",
    b"\xed\xa0\x80x",
    b"7 \xf0\x9f\x98",
    b"\xc0\x80",
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
    found = []
    path = str(folder / "assets.extra" / "tf_serving_warmup_requests")
    for record in tf.data.TFRecordDataset(path):
        ((_, predict_log),) = fields(record.numpy())
        ((_, request),) = fields(predict_log)
        entry = dict(fields(dict(fields(request))[2]))
        tensor = tensor_pb2.TensorProto.FromString(entry[2])
        found.append(tf.make_ndarray(tensor).tolist())
    return found


class WarmupTest(tf.test.TestCase):
    def test_request_is_what_the_package_of_tensorflow_serving_writes(self):
        found = serving_warmup.prediction_log(["a", "ü" * 100])
        self.assertEqual(found, PREDICTION_LOG)

    def test_lengths_about_the_limit_of_one_byte_are_read_back(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        lines = ["x" * size for size in range(50, 140)]
        serving_warmup.write(folder, lines)
        self.assertEqual(
            requests(folder)[:-1], [[line.encode()] for line in lines]
        )

    def test_each_line_is_a_request_and_all_are_another(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        serving_warmup.write(folder, ["a", "", "\ud800ü"])
        lines = [b"a", b"", "?ü".encode()]
        self.assertEqual(requests(folder), [*([x] for x in lines), lines])

    def test_one_line_is_one_request_and_none_no_file(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        serving_warmup.write(folder, [])
        self.assertEqual(os.listdir(folder), [])
        serving_warmup.write(folder, ["a"])
        self.assertEqual(requests(folder), [[b"a"]])

    def test_more_requests_than_a_server_takes_are_refused(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        serving_warmup.write(folder, ["a"] * 999)
        self.assertLen(requests(folder), 1000)
        with self.assertRaisesRegex(errors.UserError, "at most 999 lines"):
            serving_warmup.write(folder, ["a"] * 1000)

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


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tiny_run.path() / "served"
        saved_model.export_saved_model(tiny_run.path(), cls.folder)
        cls.module = tf.saved_model.load(str(cls.folder))
        cls.translate = cls.module.signatures["serving_default"]
        cls.translator = relpos_tf.Translator.load(tiny_run.path())

    def outputs(self, lines):
        found = self.translate(inputs=tf.constant(lines))["outputs"].numpy()
        return [text.decode() for text in found]

    def test_warm_up_requests_are_answered(self):
        sizes = [len(lines) for lines in requests(self.folder)]
        self.assertEqual(sizes, [1, 1, 1, 3])
        for lines in requests(self.folder):
            self.assertLen(self.outputs(lines), len(lines))
            self.assertTrue(all(lines))

    def test_long_lines_and_blank_ones_in_one_batch(self):
        words = (" ".join(tiny_run.TEXT) * 9)[:1000]
        lines = [words, "", "7", "x" * 1000]
        self.assertEqual(self.outputs(lines), self.translator.translate(lines))

    def test_bytes_that_are_not_utf8_are_read_as_in_python(self):
        lines = [line.decode(errors="replace") for line in BROKEN]
        self.assertEqual(self.outputs(BROKEN), self.translator.translate(lines))

    def test_eight_threads_get_what_one_gets(self):
        lines = [line for line in translator_test.LINES for _ in range(2)]
        batches = [lines[i : i + 1 + i % 5] for i in range(len(lines))]
        barrier = threading.Barrier(8)

        def translate_all(first):
            if first >= 0:
                barrier.wait()
            found = {}
            for i in range(len(batches)):
                at = (i + 2 * max(first, 0)) % len(batches)
                result = self.translate(inputs=tf.constant(batches[at]))
                found[at] = {k: v.numpy().tolist() for k, v in result.items()}
            return found

        expected = translate_all(-1)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for found in pool.map(translate_all, range(8)):
                self.assertEqual(found, expected)

    def test_details_say_what_was_cut_off(self):
        lines = [*translator_test.LINES, *tiny_run.TEXT]
        logs = []
        for path in (tiny_run.path(), self.folder):
            with self.assertLogs("relpos_tf", logging.WARNING) as found:
                relpos_tf.Translator.load(path).translate(lines)
            logs.append(found.output)
        self.assertEqual(logs[0], logs[1])
        details = self.module.signatures["details"](inputs=tf.constant(lines))
        plain = self.translate(inputs=tf.constant(lines))
        is_complete = details.pop("is_complete").numpy().tolist()
        self.assertIn(False, is_complete)
        self.assertIn(True, is_complete)
        self.assertTrue(is_complete[1])  # a blank line
        numbers = [i + 1 for i, good in enumerate(is_complete) if not good]
        said = re.search(r"(\d+) lines \(([\d, ]+)", logs[0][0])
        self.assertEqual(int(said[1]), len(numbers))
        self.assertStartsWith(
            ", ".join(map(str, numbers)), said[2].rstrip(", ")
        )
        self.assertEqual(
            {k: v.numpy().tolist() for k, v in details.items()},
            {k: v.numpy().tolist() for k, v in plain.items()},
        )

    def test_saved_model_cli_runs_as_documented(self):
        text = (ROOT / "docs" / "serving.md").read_text("utf-8")
        (command,) = re.findall(r"^    python -c (?:.*\\\n)*.*$", text, re.M)
        folder = self.create_tempdir().full_path
        for old, new in (
            ("python -c", f"{sys.executable} -c"),
            ("--dir exported", f"--dir {self.folder}"),
            ("--outdir found", f"--outdir {folder}"),
        ):
            self.assertIn(old, command)
            command = command.replace(old, new)
        subprocess.run(command, shell=True, check=True, capture_output=True)
        expected = self.translator.translate(["A dog runs.", "Two men talk."])
        found = np.load(f"{folder}/outputs.npy", allow_pickle=True)
        self.assertEqual([text.decode() for text in found], expected)
        scores = np.load(f"{folder}/beam_scores.npy")
        self.assertEqual(scores.shape, (2, 3))


class SubwordsTest(parameterized.TestCase):
    """A model of tensor2tensor with a vocabulary of its kind."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="t2t_export."))
        cls.addClassCleanup(shutil.rmtree, folder)
        hparams = t2t_checkpoint.hparams_dict()
        variables = t2t_checkpoint.random_variables(hparams, T2T_VOCAB, 5)
        t2t_checkpoint.write(
            folder / "t2t",
            variables,
            hparams,
            vocab=t2t_checkpoint.subtokens(T2T_VOCAB),
            extra=False,
        )
        cls.run_dir = folder / "run"
        cls.folder = folder / "export"
        t2t_import.import_run(folder / "t2t", cls.run_dir)
        saved_model.export_saved_model(
            cls.run_dir,
            cls.folder,
            beam_size=2,
            extra_length=5,
            warmup_lines=T2T_LINES[:2],
        )
        found = relpos_tf.Translator.load(cls.run_dir).translate(
            T2T_LINES, beam_size=2, extra_length=5, return_scores=True
        )
        cls.expected, cls.scores = map(list, zip(*found, strict=True))

    def test_translations_are_those_of_the_run(self):
        module = tf.saved_model.load(str(self.folder))
        found = module.signatures["serving_default"](
            inputs=tf.constant(T2T_LINES)
        )
        texts = [text.decode() for text in found["outputs"].numpy()]
        self.assertEqual(texts, self.expected)
        self.assertLen(set(texts), 4)
        np.testing.assert_allclose(found["scores"], self.scores, atol=1e-4)

    def test_its_operations_are_known(self):
        saved_model_engine.check_operations(self.folder)

    def test_session_fills_the_table_of_pieces(self):
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            meta = v1.saved_model.load(session, ["serve"], str(self.folder))
            signature = meta.signature_def["serving_default"]
            found = session.run(
                signature.outputs["outputs"].name,
                {signature.inputs["inputs"].name: T2T_LINES},
            )
        self.assertEqual([text.decode() for text in found], self.expected)

    def test_lines_to_warm_up_with_may_be_chosen(self):
        lines = [line.encode() for line in T2T_LINES[:2]]
        self.assertEqual(requests(self.folder), [lines[:1], lines[1:], lines])

    def test_lines_are_made_of_subwords_too(self):
        tokens = loading.load_tokenizer(self.run_dir)
        lines = serving_warmup.sample_lines(tokens)
        self.assertEqual(lines[0], "abcdefgh")


if __name__ == "__main__":
    tf.test.main()
