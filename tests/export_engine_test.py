"""An export is used as it was written, or an error names the file."""

import json
import pathlib
import shutil

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import checked_json
from relpos_tf import decode_hparam
from relpos_tf import errors
from relpos_tf import export
from relpos_tf import export_engine
from tests import tiny_run

LINES = ["A line.", "", "Zwei Zeilen"]


class ExportEngineTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = tiny_run.path() / "checked_export"
        export.export_saved_model(tiny_run.path(), cls.whole)

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.folder = folder / "export"
        shutil.copytree(self.whole, self.folder)
        self.info = self.folder / "export_info.json"

    def scores(self):
        """Returns what the export makes of some lines."""
        engine = export_engine.ExportEngine(self.folder)
        return engine.translate(engine.items(LINES), None, 2)

    def test_a_length_to_cut_lines_to_is_refused_before_any_line(self):
        engine = export_engine.ExportEngine(self.folder)
        with self.assertRaisesRegex(errors.UserError, "`max_input_size` does"):
            engine.settings(decode_hparam.DecodeHParams(max_input_size=3))

    def test_every_file_is_described(self):
        files = checked_json.loads(self.info.read_bytes())["files"]
        there = {
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        }
        self.assertEqual(files.keys(), there - {"export_info.json"})
        self.assertIn("assets.extra/tf_serving_warmup_requests", there)
        self.assertEqual(files, export_engine.file_checksums(self.folder))

    @parameterized.parameters(
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    )
    def test_a_damaged_file_is_named(self, name):
        path = self.folder / name
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 4
        path.write_bytes(content)
        with self.assertRaisesRegex(errors.UserError, f"{path} is damaged"):
            export_engine.ExportEngine(self.folder)
        path.unlink()
        with self.assertRaisesRegex(errors.UserError, f"{path} is missing"):
            export_engine.ExportEngine(self.folder)

    def test_damaged_words_about_it_are_refused(self):
        text = self.info.read_text()
        self.info.write_text(text.replace('"alpha": 0.6', '"alpha": 0.5'))
        with self.assertRaisesRegex(errors.UserError, "checksum"):
            export_engine.ExportEngine(self.folder)
        for text in ("{", "[]", '{"decode_hparams": []}', "{}"):
            self.info.write_text(text)
            with self.assertRaisesRegex(errors.UserError, str(self.folder)):
                export_engine.ExportEngine(self.folder)
        self.info.unlink()
        with self.assertRaisesRegex(errors.UserError, "without export_info"):
            export_engine.ExportEngine(self.folder)

    def test_exports_of_before_there_were_checksums_are_used(self):
        expected = self.scores()
        info = checked_json.loads(self.info.read_bytes())
        del info["files"]
        self.info.write_text(json.dumps(info))
        self.assertEqual(self.scores(), expected)
        # Damage to them is one line all the same, where TensorFlow sees it.
        for path in sorted(self.folder.rglob("variables*")):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:99])
                with self.assertRaisesRegex(
                    errors.UserError, "Expected a SavedModel"
                ):
                    export_engine.ExportEngine(self.folder)

    @parameterized.parameters(
        "../secret", "/etc/passwd", "variables/../../secret", "", ".."
    )
    def test_names_do_not_lead_out_of_the_folder(self, name):
        with self.assertRaisesRegex(errors.UserError, "in its folder"):
            export_engine.file_of(self.folder, name)
        with self.assertRaisesRegex(errors.UserError, "in its folder"):
            export_engine.check_files(self.folder, {"files": {name: "0" * 64}})

    def test_names_inside_the_folder_are_followed(self):
        self.assertEqual(
            export_engine.file_of(self.folder, "variables/..data"),
            self.folder / "variables" / "..data",
        )


if __name__ == "__main__":
    absltest.main()
