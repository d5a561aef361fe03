"""Exports for CTranslate2 translate where there is no TensorFlow.

tests/export/litert_export_test.py has the same for LiteRT.
"""

import json
import pathlib

import numpy as np
from absl.testing import parameterized

import relpos_tf
from tests import ctranslate2_runs
from tests import tiny_run
from tests import without_tensorflow
from tests.ctranslate2_runs import LINES
from tests.ctranslate2_runs import export_of

TRANSLATE = """
import importlib.util, json, sys
heavy = "tensorflow", "tensorflow_text", "keras"
print(json.dumps([x for x in heavy if importlib.util.find_spec(x)]))
from relpos_tf import Translator

translator = Translator.load(sys.argv[1])
for arguments in {}, {"n_best": 3, "return_scores": True, "alpha": 1.0}:
    print(json.dumps(translator.translate(sys.argv[2:], **arguments)))
"""
ADVICE = (
    r"Received: none\. Install it: pip install 'relpos_tf\[{0}\]' "
    r"\(in a clone: '\.\[{0}\]'\)\Z"
)


class WithoutTensorFlowTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        ctranslate2_runs.skip_without_library()
        without_tensorflow.skip_without_packages(self)
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def python(self, *words, **kwargs):
        """Returns the standard output of Python without TensorFlow."""
        done = without_tensorflow.run(*words, cwd=self.folder, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_translations_are_those_of_a_process_with_tensorflow(self):
        folder = export_of(seed=7)
        found = self.python("-c", TRANSLATE, folder, *LINES).splitlines()
        heavy, plain, n_best = map(json.loads, found)
        self.assertEmpty(heavy)
        translator = relpos_tf.Translator.load(folder)
        self.assertEqual(plain, translator.translate(LINES))
        want = translator.translate(
            LINES, n_best=3, return_scores=True, alpha=1.0
        )
        for (texts, scores), (want_texts, want_scores) in zip(
            n_best, want, strict=True
        ):
            self.assertEqual(texts, want_texts)
            np.testing.assert_allclose(
                scores, want_scores, rtol=1e-5, atol=1e-5
            )
        self.assertGreater(len(set(plain)), 3)

    def test_decoder_translates_and_scores(self):
        export = f"--export_dir={export_of()}"
        lines = [line for line in LINES if "\u2028" not in line]
        want = relpos_tf.Translator.load(export_of()).translate(lines)
        for name, content in (("in", lines), ("reference", want)):
            text = "".join(f"{line}\n" for line in content)
            (self.folder / name).write_text(text, encoding="utf-8")
        decoder = "-m", "relpos_tf.bin.decoder", export
        scores = self.python(
            *decoder,
            *("--decode_from_file=in", "--decode_to_file=out"),
            "--decode_reference=reference",
        )
        self.assertIn("exact match = 100.00% of 8 lines", scores)
        self.assertEqual(
            (self.folder / "out").read_bytes(),
            (self.folder / "reference").read_bytes(),
        )
        for flags in ((), ("--decode_interactive",)):
            out = self.python(*decoder, *flags, input=f"{lines[0]}\n")
            self.assertEqual(out, f"{want[0]}\n")

    @parameterized.parameters("decoder", "trainer", "export")
    def test_other_commands_say_what_to_install(self, name):
        flag = f"--output_dir={tiny_run.path()}"
        done = without_tensorflow.run(
            *("-m", f"relpos_tf.bin.{name}", flag), cwd=self.folder, input="7\n"
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr.strip(),
            rf"\Arelpos-{name}: Expected the package (tensorflow|keras), which "
            r"(this command|a run) needs\. " + ADVICE.format("translate"),
        )
