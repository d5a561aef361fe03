"""The export command: its flags and its folder."""

import contextlib
import importlib.util
import io
import json
import pathlib
import shutil
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from relpos_tf.bin import command
from relpos_tf.bin import decoder
from relpos_tf.bin import export
from relpos_tf.decoding import loading
from relpos_tf.export import saved_model
from relpos_tf.models import checkpoints
from tests import ctranslate2_runs
from tests import tiny_run

NO_LIBRARY = importlib.util.find_spec("ctranslate2") is None


def execute(main, *arguments):
    """Returns (exit code, standard output, standard error)."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.execute(main, arguments)
    out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


class ExportTest(absltest.TestCase):
    def assert_error(self, code, message, *arguments):
        found, out, err = execute(export.main, *arguments)
        self.assertEqual((found, out), (code, ""))
        self.assertLen(err.splitlines(), 1)
        self.assertIn(message, err)

    def test_contradictions_are_refused(self):
        run = f"--output_dir={tiny_run.path()}"
        self.assert_error(
            2,
            "--quantization needs --format=ctranslate2",
            run,
            "--quantization=int8",
        )
        self.assert_error(
            2, "exclude each other", run, "--checkpoint_path=ckpt-7"
        )
        self.assert_error(
            2, "--decode_hparams", run, "--decode_hparams=batch_size=2"
        )

    def test_flags_are_passed_to_the_exporter(self):
        run = tiny_run.path()
        with mock.patch.object(saved_model, "export_saved_model") as exporter:
            code, _, err = execute(
                export.main,
                f"--output_dir={run}",
                "--export_dir=exported",
                "--decode_hparams=beam_size=2,alpha=1",
            )
        self.assertEqual(code, 0, err)
        exporter.assert_called_once_with(
            str(run), "exported", beam_size=2, alpha=1.0, extra_length=None
        )

    def test_a_ruined_model_is_not_exported(self):
        run = pathlib.Path(self.create_tempdir().full_path, "run")
        shutil.copytree(tiny_run.path(), run)
        values = {
            variable.path: np.full(variable.shape, 1e30, np.float32)
            for variable in loading.load_model(run).variables
        }
        checkpoints.write_model(str(run / "ckpt-30"), values, 30)
        folder = run.parent / "new"
        self.assert_error(
            1,
            f"NaN logits. The weights of {run}/ckpt-30 are ruined",
            f"--output_dir={run}",
            f"--export_dir={folder}",
        )
        self.assertFalse(folder.exists())

    @unittest.skipIf(NO_LIBRARY, "ctranslate2 is not installed")
    def test_what_ctranslate2_cannot_do_is_one_line(self):
        self.assert_error(
            1,
            "leaves out absolute positions",
            f"--output_dir={tiny_run.path()}",
            "--format=ctranslate2",
        )
        self.assertFalse((tiny_run.path() / "export_ctranslate2").exists())

    @unittest.skipIf(NO_LIBRARY, "ctranslate2 is not installed")
    def test_decoder_translates_with_the_folder(self):
        run = ctranslate2_runs.run_of()
        code, _, err = execute(
            export.main,
            f"--output_dir={run}",
            "--format=ctranslate2",
            "--quantization=int8",
            "--decode_hparams=beam_size=2",
        )
        self.assertEqual(code, 0, err)
        folder = run / "export_ctranslate2"
        info = json.loads((folder / "export_info.json").read_text())
        self.assertEqual(info["quantization"], "int8")
        self.assertEqual(info["decode_hparams"]["beam_size"], 2)
        source = folder / "source"
        source.write_text("\n".join(ctranslate2_runs.LINES), encoding="utf-8")
        code, _, err = execute(
            decoder.main,
            f"--export_dir={folder}",
            f"--decode_from_file={source}",
            f"--decode_to_file={folder / 'target'}",
        )
        self.assertEqual(code, 0, err)
        lines = (folder / "target").read_text(encoding="utf-8").split("\n")
        self.assertLen(lines, len(ctranslate2_runs.LINES) + 1)
        self.assertEqual((lines[0], lines[1]), (lines[6], ""))
        self.assertNotEqual(lines[0], "")


if __name__ == "__main__":
    absltest.main()
