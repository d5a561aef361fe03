"""The export command: its flags and its folder."""

import importlib.util
import json
import pathlib
import shutil
import signal
import sys
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from relpos_tf.bin import command
from relpos_tf.bin import export
from relpos_tf.bin import import_t2t
from relpos_tf.decoding import loading
from relpos_tf.export import formats
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.t2t import t2t_import
from tests import ctranslate2_runs
from tests import tiny_run
from tests.bin import calls


def terminate(*arguments, **options):
    del arguments, options
    signal.raise_signal(signal.SIGTERM)


NO_LIBRARY = importlib.util.find_spec("ctranslate2") is None


class ExportTest(absltest.TestCase):
    def test_a_ruined_model_is_not_exported(self):
        run = pathlib.Path(self.create_tempdir().full_path, "run")
        shutil.copytree(tiny_run.path(), run)
        values = {
            variable.path: np.full(variable.shape, 1e30, np.float32)
            for variable in loading.load_model(run).variables
        }
        checkpoints.write_model(str(run / "ckpt-30"), values, 30)
        folder = run.parent / "new"
        code, out, err = calls.execute(
            export.main, f"--output_dir={run}", f"--export_dir={folder}"
        )
        self.assertEqual((code, out), (1, b""))
        self.assertIn(f"The weights of {run}/ckpt-30 are ruined", err)
        self.assertFalse(folder.exists())

    def test_a_missing_package_is_named_before_tensorflow_loads(self):
        for name, package, extra in (
            ("ctranslate2", "ctranslate2", "ctranslate2"),
            ("argos", "ctranslate2", "ctranslate2"),
            ("litert", "ai_edge_litert", "litert"),
        ):
            with (
                mock.patch.dict(sys.modules, {package: None}),
                mock.patch.object(command, "import_tensorflow") as loaded,
            ):
                code, _, err = calls.execute(export.main, f"--format={name}")
            self.assertEqual((code, loaded.call_count), (1, 0))
            words = rf"the package {package}, .*relpos_tf\[{extra}\]"
            self.assertRegex(err, words)

    def test_a_stop_is_told(self):
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        for main, module, flags in (
            (export.main, formats, ["--output_dir=a", "--export_dir=b"]),
            (import_t2t.main, t2t_import, ["--output_dir=a", "--t2t_dir=b"]),
        ):
            name = "export" if module is formats else "import_run"
            with mock.patch.object(module, name, side_effect=terminate):
                code, _, err = calls.execute(main, *flags)
            self.assertEqual(code, 143)
            self.assertEndsWith(err, ": stopped by SIGTERM.\n")

    @unittest.skipIf(NO_LIBRARY, "ctranslate2 is not installed")
    def test_the_export_has_the_settings_of_the_flags(self):
        run = pathlib.Path(self.create_tempdir().full_path, "run")
        shutil.copytree(ctranslate2_runs.run_of(), run)
        [step] = run_dir.all_steps(run)
        (run / "average").mkdir()
        result = f"average/ckpt-{step}"
        shutil.copy(run / f"ckpt-{step}.npz", f"{run}/{result}.npz")
        run_dir.RunDir(run).mark(run_dir.BEST, step)
        code, _, err = calls.execute(
            export.main,
            f"--output_dir={run}",
            "--format=ctranslate2",
            "--quantization=int8",
            "--decode_hparams=beam_size=2",
        )
        self.assertEqual(code, 0, err)
        folder = run / "export_ctranslate2"
        self.assertIn(f"{run}/{result} (best: ckpt-{step}).\n", err)
        self.assertIn(f"Exported {run} to {folder}.", err)
        self.assertEndsWith(err, f"  relpos-decoder --export_dir={folder}\n")
        info = json.loads((folder / "export_info.json").read_text())
        self.assertEqual(info["checkpoint"], f"{run}/{result}")
        self.assertEqual(info["quantization"], "int8")
        self.assertEqual(info["decode_hparams"]["beam_size"], 2)
