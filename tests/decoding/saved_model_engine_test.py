"""An export is used as it was written, or an error names the file."""

import json
import shutil

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import saved_model_engine
from relpos_tf.export import saved_model
from relpos_tf.utils import checked_json
from tests import folders
from tests import tiny_run

SETTINGS = {"beam_size": 3, "alpha": 0.6, "extra_length": 7}


class SavedModelEngineTest(folders.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = tiny_run.path() / "checked_export"
        saved_model.export_saved_model(tiny_run.path(), cls.whole)

    def setUp(self):
        super().setUp()
        self.folder /= "export"
        shutil.copytree(self.whole, self.folder)
        self.info = self.folder / "export_info.json"

    def test_a_length_to_cut_lines_to_is_refused_before_any_line(self):
        engine = saved_model_engine.SavedModelEngine(self.folder)
        self.assertEqual(engine.items([]), [])
        with self.assertRaisesRegex(errors.UserError, "has max_input_size=0"):
            engine.complete(decode_hparam.DecodeHParams(max_input_size=3))

    def test_every_file_is_described(self):
        expected = folders.checksums(self.folder)
        del expected["export_info.json"]
        self.assertEqual(
            checked_json.loads(self.info.read_bytes())["files"], expected
        )

    @parameterized.parameters(
        {"files": {"saved_model.pb": 7}},
        {"decode_hparams": [4]},
        {"decode_hparams": SETTINGS | {"beam_size": 2.5}},
        {"decode_hparams": {"no_such": 1}},
        {"format": 3},
    )
    def test_words_of_another_type_are_refused(self, **fields):
        info = checked_json.loads(self.info.read_bytes()) | fields
        self.info.write_text(json.dumps(info))
        with self.assertRaisesRegex(
            errors.UserError, "must be of type|Unknown hparams"
        ):
            saved_model_engine.SavedModelEngine(self.folder)

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
            saved_model_engine.SavedModelEngine(self.folder)
        path.unlink()
        with self.assertRaisesRegex(errors.UserError, f"{path} is missing"):
            saved_model_engine.SavedModelEngine(self.folder)

    def test_damaged_words_about_it_are_refused(self):
        text = self.info.read_text()
        self.info.write_text(text.replace('"alpha": 0.6', '"alpha": 0.5'))
        with self.assertRaisesRegex(errors.UserError, "checksum"):
            saved_model_engine.SavedModelEngine(self.folder)
        for text in ("{", "[]", '{"decode_hparams": []}', "{}"):
            self.info.write_text(text)
            with self.assertRaisesRegex(errors.UserError, str(self.folder)):
                saved_model_engine.SavedModelEngine(self.folder)
        self.info.unlink()
        with self.assertRaisesRegex(errors.UserError, "without export_info"):
            saved_model_engine.SavedModelEngine(self.folder)
