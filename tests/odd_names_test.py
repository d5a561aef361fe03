"""Runs, data and exports work in folders of any name.

tests/export/saved_model_test.py has SavedModels in such a folder.
"""

import os
import shutil

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import loading
from relpos_tf.export import ctranslate2_export
from relpos_tf.export import saved_model
from relpos_tf.models import averages
from relpos_tf.models import checkpoints
from relpos_tf.t2t import t2t_import
from tests import folders
from tests import tiny_run
from tests.problems import problem_test

ALL_AT_ONCE = "-\"'\n ,=ü漢字"
# The second has an undecodable byte, as Python spells it.
NAMES = ALL_AT_ONCE, "latin-\udce9", "x" * 255


class OddNamesTest(folders.TestCase):
    @parameterized.parameters(*NAMES)
    def test_a_run_is_loaded(self, name):
        run = self.folder / name
        run.mkdir()
        for path in tiny_run.path().iterdir():
            if path.is_file():
                shutil.copy(path, run)
        expected = loading.load_model(tiny_run.path()).get_weights()
        # A run leads to the same name of a checkpoint as the checkpoint itself.
        with self.assertLogs("relpos_tf", "INFO") as logs:  # only here
            models = list(map(loading.load_model, (run, run / "ckpt-7")))
        self.assertIn(name, logs.output[0])
        for model in models:
            found = model.get_weights()
            for one, two in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, two)
        loading.load_tokenizer(run)

    def test_checkpoints_are_written_restored_and_averaged(self):
        run = self.folder / ALL_AT_ONCE
        variables = {"a": tf.Variable([2.0, 3.0])}
        manager = checkpoints.CheckpointManager(run, {"model": variables})
        for step in (1, 2):
            manager.save(step)
            variables["a"].assign([4.0, 7.0])
        self.assertEqual(manager.restore(), str(run / "ckpt-2"))
        average = averages.write(run, [1, 2], 2)
        checkpoints.restore_model(average, variables)
        self.assertEqual(variables["a"].numpy().tolist(), [3.0, 5.0])

    def test_data_are_prepared_and_read(self):
        pets, folder = problem_test.make(), self.folder / ALL_AT_ONCE
        pets.prepare(folder)
        self.assertLen(pets.tokens(folder, "train"), len(problem_test.TRAIN))
        self.assertLen(pets.lines(folder, "dev")[0], len(problem_test.DEV))

    @parameterized.parameters(
        ("latin-\udce9", "in UTF-8, .*Received: .*udce9"),
        ("model[v2]", "pattern .*Received: .*v2"),
        ("file/in/a/file", "is a file"),
        ("x" * 256, "file name too long"),
    )
    def test_a_name_that_cannot_be_written_is_refused_first(
        self, name, message
    ):
        (self.folder / "file").touch()
        for write in (
            saved_model.export_saved_model,
            ctranslate2_export.export_ctranslate2,
            t2t_import.import_run,
        ):
            with self.assertRaisesRegex(
                (errors.UserError, OSError), f"(?i){message}"
            ):
                write("there is no run to read", self.folder / name)
        self.assertEqual(os.listdir(self.folder), ["file"])
