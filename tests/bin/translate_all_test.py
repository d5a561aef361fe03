"""A file translated with every checkpoint: which, how often, and how well."""

import functools
import json
import os
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import numpy as np
from absl.testing import parameterized

from relpos_tf.bin import translate_all
from relpos_tf.comparison import figures
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.utils import files
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.problems import problem_test

LINES = ("twenty-one days", "Where is the station?", "", "seven")
# A search as short as can be.
QUICK = "--decode_hparams=beam_size=1,extra_length=1"


def make_run(folder):
    """Copies the tiny run and adds step 30 and the average of both."""
    shutil.copytree(tiny_run.path(), folder)
    model = loading.load_model(folder)
    values = {
        v.path: np.roll(v.numpy(), 1, axis=0) * 1.5 for v in model.variables
    }
    checkpoints.write_model(str(folder / "ckpt-30"), values, 30)
    (folder / "average").mkdir()
    checkpoints.average(
        [str(folder / "ckpt-7"), str(folder / "ckpt-30")],
        str(folder / "average" / "ckpt-30"),
    )


def say_weights(engine, items, settings, n_best):
    """Translates quickly, and not the same with other weights."""
    del settings, n_best
    total = sum(np.abs(v.numpy()).sum() for v in engine.model.variables)
    return [
        engines.Translation(
            [f"{total:.3f} b c d {len(item.content)}"], [0.0], True
        )
        for item in items
    ]


@functools.cache
def made_run():
    """Returns the folder of `make_run`, made once."""
    place = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(place.cleanup)
    folder = pathlib.Path(place.name) / "run"
    make_run(folder)
    return folder


def translate_alone(*names):
    """Returns what checkpoints make of the text, by its file's end."""
    outputs = {}
    for name in names:
        translator = translator_lib.Translator.load(made_run() / name)
        lines = translator.translate(
            list(LINES), beam_size=1, alpha=0.6, extra_length=1
        )
        step = name.replace("ckpt-", "").replace("/", "-")
        outputs[step] = "".join(f"{line}\n" for line in lines)
    assert len(set(outputs.values())) == len(names)
    return outputs


class TranslateAllTestCase(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.run_dir = self.folder / "run"
        shutil.copytree(made_run(), self.run_dir)
        self.there = self.folder / "there"
        self.source = self.write("text.en", *LINES)

    def write_problem(self, data, **more):
        checksum = files.sha256(self.run_dir / "tokenizer.model")
        fields = {"problem": "mine", "data": data, "tokenizer_sha256": checksum}
        run_dir.RunDir(self.run_dir).write_problem(
            tiny_run.PROBLEM | fields | more
        )

    def execute(self, *arguments):
        """Returns (exit code, standard output, standard error)."""
        names = [word.partition("=")[0] for word in arguments]
        defaults = [
            f"--output_dir={self.run_dir}",
            f"--translations_dir={self.there}",
            QUICK,
        ]
        if "--decode_from_file" not in names:
            defaults.append(f"--data_dir={self.folder / 'data'}")
        code, out, err = calls.execute(
            translate_all.main,
            *[one for one in defaults if one.partition("=")[0] not in names],
            *arguments,
        )
        return code, out.decode(), err

    def translate(self, *arguments):
        return self.execute(f"--decode_from_file={self.source}", *arguments)

    def found(self, name="text.en"):
        """Returns the translations by what follows the name."""
        return {
            path.name.removeprefix(f"{name}-"): path.read_text("utf-8")
            for path in self.there.glob(f"{name}-*")
        }


class TokenizerTest(TranslateAllTestCase):
    def test_bleu_has_the_tokenizer_of_the_language(self):
        self.write_problem({}, target_language="zh")
        reference = self.write("text.zh", *"一二三四")
        words = [f"--decode_reference={reference}"]
        with mock.patch.object(
            model_engine.ModelEngine, "translate", say_weights
        ):
            for more, name in (([], "zh"), (["--bleu_tokenize=char"], "char")):
                code, out, err = self.translate(*words, *more)
                self.assertEqual(code, 0, err)
                self.assertIn(f"|tok:{name}|", out)


class SearchTest(TranslateAllTestCase):
    """With the true search."""

    def test_translations_of_one_graph_are_those_of_each_checkpoint(self):
        traced = []
        encode = transformer.Transformer.encode

        def counted_encode(model, *arguments, **settings):
            traced.append(1)
            return encode(model, *arguments, **settings)

        with mock.patch.object(
            transformer.Transformer, "encode", counted_encode
        ):
            # The one that is translated last.
            expected = translate_alone("average/ckpt-30")
            num_traced = len(traced)
            code, out, err = self.translate()
        self.assertEqual((code, out), (0, ""))
        self.assertContainsSubset(expected.items(), self.found().items())
        self.assertLen(set(self.found().values()), 3)
        self.assertIn("3 translated, 0 were already translated", err)
        self.assertGreater(num_traced, 0)
        self.assertLen(traced, 2 * num_traced)


class FilesTest(TranslateAllTestCase):
    """The files, and when they are written."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        quick = mock.patch.object(
            model_engine.ModelEngine, "translate", say_weights
        )
        quick.start()
        cls.addClassCleanup(quick.stop)
        names = "ckpt-7", "ckpt-30", "average/ckpt-30"
        cls.expected = translate_alone(*names)

    def test_what_is_there_stays_and_what_is_older_is_made_again(self):
        self.translate()
        self.write("there/text.en-7", "kept")
        self.write("there/text.en-30", "old")
        os.utime(self.there / "text.en-30", (1, 1))
        (self.there / "text.en-average-30").unlink()
        code, _, err = self.translate()
        self.assertEqual(code, 0)
        self.assertEqual(self.found(), self.expected | {"7": "kept\n"})
        self.assertIn("2 translated, 1 were already translated", err)

    def test_interrupt_leaves_whole_files_and_the_rest_is_made_later(self):
        seen = []

        def interrupted(engine, items, settings, n_best):
            seen.append(items)
            if len(seen) == 2:
                raise KeyboardInterrupt
            return say_weights(engine, items, settings, n_best)

        with mock.patch.object(
            model_engine.ModelEngine, "translate", interrupted
        ):
            code, _, err = self.translate()
        self.assertEqual(code, 130)
        self.assertEndsWith(err, "relpos-translate_all: interrupted.\n")
        self.assertEqual(self.found(), {"7": self.expected["7"]})
        self.assertEqual(self.translate()[0], 0)
        self.assertEqual(self.found(), self.expected)

    def test_reference_gives_the_table_and_the_files(self):
        lines = self.expected["30"].splitlines()
        reference = self.write("reference", *lines)
        code, out, _ = self.translate(f"--decode_reference={reference}")
        self.assertEqual(code, 0)
        rows = [x for x in out.splitlines()[1:] if "signature" not in x]
        self.assertLen(rows, 3)
        self.assertRegex(rows[1], r"^ +30 .* 100\.00 +best$")
        record = json.loads((self.there / "text.en.bleu.json").read_text())
        self.assertEqual(record["best"], {"step": 30, "is_average": False})
        plot = self.there / "text.en.bleu.png"
        self.assertEqual(plot.is_file(), figures.is_available())

    def test_sets_of_the_problem_are_found_with_their_references(self):
        self.write_problem({})
        pairs = [(line, line) for line in LINES]
        tokenizer = self.run_dir / "tokenizer.model"
        problem_test.make(
            dev=pairs, name="mine", tokenizer_file=tokenizer
        ).prepare(self.folder / "data")
        code, out, _ = self.execute("--translations_dir=", "--min_steps=30")
        self.assertEqual(code, 0)
        self.assertIn("best", out)
        self.there = self.run_dir / "translations"
        self.assertEqual(self.found("dev")["30"], self.expected["30"])
        code, _, err = self.execute("--eval_use_test_set")
        self.assertEqual(code, 1)
        self.assertIn("Expected a set of mine", err)

    def test_damaged_checkpoint_is_passed_over(self):
        (self.run_dir / "ckpt-7.npz").write_bytes(b"x")
        code, _, err = self.translate()
        self.assertEqual(code, 1)
        self.assertIn("ckpt-7 is damaged", err)
        self.assertIn("2 translated, 0 were already translated, 1 failed", err)
        self.assertCountEqual(self.found(), ["30", "average-30"])

    def test_without_a_translation_nothing_is_scored(self):
        for path in self.run_dir.rglob("ckpt-*.npz"):
            path.write_bytes(b"x")
        reference = self.write("reference", *LINES)
        code, out, err = self.translate(f"--decode_reference={reference}")
        self.assertEqual((code, out), (1, ""), err)
        self.assertIn("0 were already translated, 3 failed", err)

    def test_translation_of_a_checkpoint_that_has_gone_is_scored(self):
        reference = self.write("reference", *LINES)
        self.translate()
        run_dir.remove_checkpoint(self.run_dir / "ckpt-7")
        code, out, _ = self.translate(f"--decode_reference={reference}")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?m)^ +7 ")

    def test_other_settings_need_another_folder(self):
        self.translate("--min_steps=30")
        code, _, err = self.translate("--decode_hparams=beam_size=2")
        self.assertEqual(code, 2)
        self.assertRegex(err, r"made with beam_size=1, .*Received: beam_size=2")
        self.write("text.en", *LINES, "more")
        code, _, err = self.translate()
        self.assertEqual(code, 2)
        self.assertIn("were made with source_sha256=", err)
        self.assertEqual(self.translate("--translations_dir=")[0], 0)

    def test_run_moved_with_its_translations_is_the_same(self):
        self.there = self.run_dir / "translations"
        self.translate()
        self.run_dir = self.run_dir.rename(self.folder / "moved")
        self.there = self.run_dir / "translations"
        code, _, err = self.translate()
        self.assertEqual(code, 0)
        self.assertIn("0 translated, 3 were already translated", err)

    @parameterized.parameters(
        ([], "checkpoints, ckpt-STEP.npz"),
        (["--min_steps=31"], "of step 31 or later. Received: "),
    )
    def test_no_checkpoints_is_one_line(self, arguments, message):
        if not arguments:
            shutil.rmtree(self.run_dir / "average")
            for path in self.run_dir.glob("ckpt-*"):
                path.unlink()
        code, out, err = self.translate(*arguments)
        self.assertEqual((code, out), (1, ""))
        self.assertIn(message, err)
        self.assertLen(err.splitlines(), 1)
