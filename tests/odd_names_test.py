"""Runs, data and exports work in folders of any name."""

import contextlib
import functools
import io
import os
import pathlib
import shutil
import time
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import average
from relpos_tf.bin import bleu
from relpos_tf.bin import command
from relpos_tf.bin import datagen
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import loading
from relpos_tf.decoding import saved_model_engine
from relpos_tf.export import ctranslate2_export
from relpos_tf.export import saved_model
from relpos_tf.models import checkpoints
from relpos_tf.t2t import t2t_import
from tests import ctranslate2_runs
from tests import tiny_run
from tests.problems import problem_test

NAMES = (
    "model[v2]",
    "[",
    "a*b?c\\d",
    "\"double\" and 'single'",
    " line\nfeed ",
    "-a,b=c",
    "größe-漢字",
    "x" * 255,
    # An undecodable byte, as Python spells it.
    "latin-\udce9",
)
ALL_AT_ONCE = "-[v2]*?\\\"'\n ,=ü"


@functools.cache
def values_of(path):
    """Returns the variables of the model of a run or a checkpoint."""
    return [v.numpy() for v in loading.load_model(path).variables]


class OddNamesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def copied(self, source, name):
        """Returns a copy of a folder under an odd name."""
        return pathlib.Path(shutil.copytree(source, self.folder / name))

    @parameterized.parameters(*NAMES)
    def test_a_run_is_loaded(self, name):
        run = self.folder / name
        run.mkdir()
        for path in tiny_run.path().iterdir():
            if path.is_file():
                shutil.copy(path, run)
        # A run leads to the same name of a checkpoint as the checkpoint itself.
        for path in (run, run / "ckpt-7") if name == NAMES[0] else (run,):
            for one, two in zip(
                values_of(path), values_of(tiny_run.path()), strict=True
            ):
                np.testing.assert_array_equal(one, two)
        loading.load_tokenizer(run)

    @parameterized.parameters(*NAMES[:-1])
    def test_checkpoints_are_written_restored_and_averaged(self, name):
        run = self.folder / name
        variables = {"a": tf.Variable([2.0, 3.0])}
        manager = checkpoints.CheckpointManager(run, {"model": variables})
        manager.save(1)
        variables["a"].assign([4.0, 7.0])
        manager.save(2)
        (run / "average").mkdir()
        average = str(run / "average" / "ckpt-2")
        checkpoints.average([str(run / f"ckpt-{n}") for n in (1, 2)], average)
        variables["a"].assign([0.0, 0.0])
        self.assertEqual(manager.restore(), str(run / "ckpt-2"))
        self.assertEqual(variables["a"].numpy().tolist(), [4.0, 7.0])
        checkpoints.restore_model(average, variables)
        self.assertEqual(variables["a"].numpy().tolist(), [3.0, 5.0])

    @parameterized.parameters(*NAMES[:-1])
    def test_data_are_prepared_and_read(self, name):
        pets, folder = problem_test.make(), self.folder / name
        pets.prepare(folder)
        pets.prepare(folder, anew=True)
        self.assertLen(pets.tokens(folder, "train"), len(problem_test.TRAIN))
        self.assertLen(pets.lines(folder, "dev")[0], len(problem_test.DEV))

    def test_an_export_is_written_and_loaded(self):
        folder = self.folder / ALL_AT_ONCE / "run"
        folder.mkdir(parents=True)
        for path in tiny_run.path().iterdir():
            if path.is_file():
                shutil.copy(path, folder)
        target = self.folder / ALL_AT_ONCE / ALL_AT_ONCE
        with self.assertLogs("relpos_tf") as logs:
            saved_model.export_saved_model(folder, target)
        self.assertIn("before other programs load it", logs.output[-1])
        self.assertCountEqual(os.listdir(target.parent), ["run", ALL_AT_ONCE])
        lines = ["A line.", "Zwei Zeilen"]
        engine = saved_model_engine.SavedModelEngine(target)
        found = engine.translate(engine.items(lines), None, 1)
        self.assertLen(found, 2)

    @parameterized.parameters(
        ("latin-\udce9", "in UTF-8. Received: .*udce9"),
        ("file/in/a/file", "not a directory"),
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
            with self.assertRaisesRegex(errors.UserError, message):
                write("there is no run to read", self.folder / name)

    @parameterized.parameters(
        ("latin-\udce9", "in UTF-8. Received: .*udce9"),
        ("file/in/a/file", "not a directory"),
    )
    def test_commands_refuse_it_before_they_begin(self, name, message):
        (self.folder / "file").touch()
        for main, flags in (
            (datagen.main, ["--problem=algorithmic_reverse", "--data_dir"]),
            (average.main, ["--output_dir"]),
            (
                bleu.main,
                [
                    f"--translations_dir={self.folder}",
                    f"--reference={__file__}",
                    "--wait_minutes=1",
                    "--event_dir",
                ],
            ),
        ):
            err = io.StringIO()
            with (
                contextlib.redirect_stderr(err),
                mock.patch.object(time, "sleep", side_effect=AssertionError),
            ):
                arguments = [*flags[:-1], f"{flags[-1]}={self.folder / name}"]
                code = command.execute(main, arguments)
            self.assertEqual(code, 2, err.getvalue())
            self.assertRegex(err.getvalue(), f"{flags[-1]}: .*{message}")
        self.assertEqual(os.listdir(self.folder), ["file"])

    @parameterized.parameters(*NAMES)
    def test_an_export_for_ctranslate2_is_loaded(self, name):
        ctranslate2_runs.skip_without_library()
        folder = self.copied(ctranslate2_runs.export_of(), name)
        engine = ctranslate2_engine.CTranslate2Engine(folder)
        settings = engine.complete(decode_hparam.DecodeHParams())
        self.assertLen(engine.translate(engine.items(["7"]), settings, 1), 1)


if __name__ == "__main__":
    absltest.main()
