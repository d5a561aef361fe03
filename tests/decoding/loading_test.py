"""A model restored in a new process is the model that was saved."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.decoding import loading
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import translator
from relpos_tf.models import averages
from relpos_tf.models import run_dir
from tests import tiny_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUTS = [[5, 7, 3, 11, 1], [9, 2, 1, 0, 0]]
TARGETS = [[3, 8, 1], [12, 1, 0]]
CODE = f"""
import sys
import tensorflow as tf
import relpos_tf
model = relpos_tf.load_model(sys.argv[1])
logits = model(tf.constant({INPUTS}), tf.constant({TARGETS}))
sys.stdout.buffer.write(tf.io.serialize_tensor(logits).numpy())
"""


class LoadingTest(tf.test.TestCase, parameterized.TestCase):
    def copy_of_run(self):
        folder = pathlib.Path(self.create_tempdir().full_path, "run")
        return pathlib.Path(shutil.copytree(tiny_run.path(2), folder))

    def test_new_process_gets_the_same_logits_bit_for_bit(self):
        hparams = run_dir.RunDir(tiny_run.path(2)).read_hparams()
        model = tiny_run.random_model(hparams)  # as it was saved
        keras_home = pathlib.Path(self.create_tempdir().full_path)
        (keras_home / "keras.json").write_text(
            '{"floatx": "float16", "epsilon": 0.1, "backend": "tensorflow",'
            '"image_data_format": "channels_first"}'
        )
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(tiny_run.path(2))],
            stdout=subprocess.PIPE,
            check=True,
            cwd=ROOT,
            env=os.environ
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_HOME": str(keras_home)},
        )
        found = tf.io.parse_tensor(done.stdout, tf.float32)
        expected = model(tf.constant(INPUTS), tf.constant(TARGETS))
        self.assertAllEqual(found, expected)

    def test_average_in_its_folder_belongs_to_the_run(self):
        run = self.copy_of_run()
        prefix = averages.write(run, [7], 7)
        expected = loading.load_model(run)
        for path in (prefix, run / "average", f"{prefix}.npz"):
            for one, two in zip(
                loading.load_model(path).variables,
                expected.variables,
                strict=True,
            ):
                self.assertAllEqual(one, two)
        self.assertEqual(
            loading.load_tokenizer(prefix).fingerprint,
            loading.load_tokenizer(run).fingerprint,
        )

    def test_other_tokenizer_is_refused(self):
        run = self.copy_of_run()
        pieces.learn(
            pieces.count_words(["a b c"] * 9), run / "tokenizer.model", 300
        )
        with self.assertRaisesRegex(errors.UserError, "340 pieces.* of 2"):
            loading.load_tokenizer(run)

    def test_other_hparams_are_refused(self):
        run = self.copy_of_run()
        values = json.loads((run / "hparams.json").read_text())
        values["filter_size"] = 31
        (run / "hparams.json").write_text(json.dumps(values))
        with self.assertRaisesRegex(errors.UserError, "ckpt-7 does not fit"):
            loading.load_model(run)

    def test_a_tokenizer_is_compared_where_its_checksum_is_known(self):
        run = self.copy_of_run()
        known = loading.load_tokenizer(run).fingerprint
        record = run_dir.RunDir(run)
        record.write_problem(tiny_run.PROBLEM | {"tokenizer_sha256": known})
        loading.load_tokenizer(run)
        self.assertEqual(model_engine.load(run).longest_source, 64)
        path = run / "tokenizer.model"
        # Still a model of as many pieces.
        path.write_bytes(path.read_bytes() + b"\xa0\x06\x01")
        with self.assertRaisesRegex(errors.UserError, f"{path} is damaged or"):
            loading.load_tokenizer(run)
        (run / "problem.json").write_text("{")
        with self.assertRaisesRegex(errors.UserError, "problem.json is damag"):
            loading.load_tokenizer(run)
        (run / "problem.json").unlink()
        loading.load_tokenizer(run)
        self.assertEqual(model_engine.load(run).longest_source, 256)

    @parameterized.parameters("gs://b/run", pathlib.Path("hdfs://b/run"))
    def test_an_address_is_refused(self, path):
        for load in loading.load_model, translator.Translator.load:
            with self.assertRaisesRegex(
                errors.UserError, "must be local.*/run"
            ):
                load(path)
