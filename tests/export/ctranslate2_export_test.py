"""The folder for CTranslate2: its files, its checks, and refusals."""

import functools
import json
import re
import shutil
import sys
from unittest import mock

import numpy as np

import relpos_tf
from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import export_files
from relpos_tf.export import ctranslate2_export
from relpos_tf.export import formats
from relpos_tf.t2t import t2t_import
from tests import ctranslate2_runs
from tests import folders
from tests import t2t_checkpoint
from tests import tiny_run
from tests.ctranslate2_runs import LINES
from tests.ctranslate2_runs import export_of
from tests.ctranslate2_runs import run_of


def setUpModule():
    ctranslate2_runs.skip_without_library()


class ExportTest(folders.TestCase):
    def copy(self):
        shutil.copytree(export_of(), self.folder / "copy")
        return self.folder / "copy"

    def test_folder_works_alone_and_says_what_it_is(self):
        folder = self.copy()
        info = json.loads((folder / "export_info.json").read_text())
        self.assertEqual(info["format"], "ctranslate2")
        self.assertEqual(info["longest_source"], 256)
        self.assertEqual(folder.stat().st_mode & 0o777, 0o755)
        tokens = tokenizer_lib.load(folder / "tokenizer.model")
        pieces = tokens.pieces()
        source = [pieces[i] for i in tokens.encode(LINES[0])[:-1]]
        translator = ctranslate2_engine.package().Translator(str(folder))
        (result,) = translator.translate_batch([source], beam_size=1)
        ids = [pieces.index(token) for token in result.hypotheses[0]]
        loaded = relpos_tf.Translator.load(folder)
        (want,) = loaded.translate(LINES[:1], beam_size=1)
        self.assertStartsWith(
            re.sub(engines.LINE_END, " ", tokens.decode(ids)), want
        )

    def test_model_of_tensor2tensor(self):
        vocab = t2t_checkpoint.subtokens(59)
        vocab[5] = vocab[6]  # some vocabularies repeat a piece
        vocab[7] = ""
        hparams = t2t_checkpoint.hparams_dict(
            num_hidden_layers=1, use_target_space_embedding=True
        )
        variables = t2t_checkpoint.random_variables(hparams, 59, 5)
        for name, value in variables.items():
            if "target_space" in name:
                value *= 10.0  # its absence must change the scores
        t2t_dir, run = self.folder / "t2t", self.folder / "run"
        t2t_checkpoint.write(
            t2t_dir, variables, hparams, vocab=vocab, extra=False
        )
        t2t_import.import_run(t2t_dir, run)
        folder = ctranslate2_export.export_ctranslate2(
            run, run / "ct2", beam_size=1, extra_length=9
        )
        lines = ["a dog and a cat", "zwei katzen laufen", "b"]
        want = relpos_tf.Translator.load(run).translate(
            lines, beam_size=1, extra_length=9, return_scores=True
        )
        found = relpos_tf.Translator.load(folder).translate(
            lines, return_scores=True
        )
        self.assertEqual([t for t, _ in found], [t for t, _ in want])
        np.testing.assert_allclose(
            [s for _, s in found], [s for _, s in want], atol=1e-4
        )
        self.assertTrue((folder / "tokenizer.subwords").is_file())

    def test_every_quantization_that_is_offered_can_be_written(self):
        for name in formats.ALL["ctranslate2"].quantizations:
            folder = ctranslate2_export.export_ctranslate2(
                run_of(), self.folder / name, quantization=name
            )
            self.assertGreater((folder / "model.bin").stat().st_size, 0)

    def test_refusal_leaves_nothing_behind(self):
        target = self.folder / "new"
        export = ctranslate2_export.export_ctranslate2
        refuses = functools.partial(self.assertRaisesRegex, errors.UserError)
        refuses("leaves out absolute", export, tiny_run.path(), target)
        one_of = "must be one of none, "
        refuses(one_of, export, run_of(), target, quantization="int4")
        with mock.patch.object(export_files, "EXPORT_INFO", "no/such/folder"):
            self.assertRaises(OSError, export, run_of(), target)
        folder = export_of()
        with mock.patch.dict(sys.modules, {"ctranslate2": None}):
            extra = r"relpos_tf\[ctranslate2\]"
            refuses(extra, relpos_tf.Translator.load, folder)
            refuses(extra, export, run_of(), target)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_only_an_export_is_replaced(self):
        (self.folder / "letter.txt").write_text("mine")
        with self.assertRaisesRegex(errors.UserError, "something else"):
            ctranslate2_export.export_ctranslate2(run_of(), self.folder)
        with self.assertRaisesRegex(errors.UserError, "by its name"):
            ctranslate2_export.export_ctranslate2(run_of(), ".")
        folder = self.copy()
        (folder / "linked").symlink_to(self.folder)
        with self.assertRaisesRegex(errors.UserError, "something else: linked"):
            ctranslate2_export.export_ctranslate2(run_of(), folder)
        (folder / "linked").unlink()
        ctranslate2_export.export_ctranslate2(run_of(), folder, alpha=1.0)
        settings = relpos_tf.Translator.load(folder).engine.complete(
            decode_hparam.DecodeHParams()
        )
        self.assertEqual(settings.alpha, 1.0)

    def test_damaged_exports_are_named(self):
        folder = self.copy()
        pieces.learn(
            pieces.count_words(["another"] * 9), folder / "tokenizer.model", 300
        )
        with self.assertRaisesRegex(errors.UserError, "tokenizer.model is d"):
            relpos_tf.Translator.load(folder)
        # With the checksums of other files, as somebody else might write them.
        path = folder / "export_info.json"
        info = json.loads(path.read_text()) | {"files": {}}
        del info["sha256"]
        path.write_text(json.dumps(info))
        shutil.copy(export_of() / "tokenizer.model", folder)
        (folder / "model.bin").write_bytes(b"x")
        with self.assertRaisesRegex(errors.UserError, "complete export"):
            relpos_tf.Translator.load(folder)
