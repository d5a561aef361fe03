"""Exports for CTranslate2 translate where there is no TensorFlow.

tests/export/litert_export_test.py has the same for LiteRT.
"""

import json
import pathlib
import shutil

import numpy as np
from absl.testing import parameterized

import relpos_tf
from relpos_tf.models import checkpoints
from relpos_tf.utils import checked_json
from tests import ctranslate2_runs
from tests import tiny_run
from tests import without_tensorflow
from tests.ctranslate2_runs import LINES
from tests.ctranslate2_runs import export_of

HEAVY = "tensorflow", "tensorflow_text", "keras"
# Which of these packages can be found.
FIND = f"""
import importlib.util
print([x for x in {HEAVY} if importlib.util.find_spec(x)])
"""
TRANSLATE = """
import json, sys
from relpos_tf import Translator

translator = Translator.load(sys.argv[1])
for arguments in {}, {"n_best": 3, "return_scores": True, "alpha": 1.0}:
    print(json.dumps(translator.translate(sys.argv[2:], **arguments)))
"""
GET = """
import sys
import relpos_tf
for name in sys.argv[1:]:
    try:
        getattr(relpos_tf, name)
    except ImportError as error:
        print(error)
"""
LOAD = """
import sys
import relpos_tf
for path in sys.argv[1:]:
    try:
        relpos_tf.Translator.load(path)
    except relpos_tf.errors.UserError as error:
        print(error)
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

    def test_the_environment_has_none(self):
        self.assertEqual(self.python("-c", FIND), "[]\n")

    def test_translations_are_those_of_a_process_with_tensorflow(self):
        folder = export_of(seed=7)
        found = self.python("-c", TRANSLATE, folder, *LINES).splitlines()
        plain, n_best = map(json.loads, found)
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
        self.assertIn("exact match = 100.00% of 7 lines", scores)
        self.assertEqual(
            (self.folder / "out").read_bytes(),
            (self.folder / "reference").read_bytes(),
        )
        for flags in ((), ("--decode_interactive",)):
            out = self.python(*decoder, *flags, input=f"{lines[0]}\n")
            self.assertEqual(out, f"{want[0]}\n")

    def test_a_run_and_a_saved_model_say_what_to_install(self):
        saved_model = self.folder / "saved_model"
        saved_model.mkdir()
        info = checked_json.dumps(
            {
                "format": "saved_model",
                "files": {},
                "decode_hparams": {},
                "tokenizer": "",
                "tokenizer_sha256": "",
                "longest_source": 0,
                "max_positions": None,
            }
        )
        (saved_model / "export_info.json").write_text(info)
        run = tiny_run.path()
        kinds = {run: "a run", run / "ckpt-7": "a run"}
        kinds[saved_model] = "a SavedModel"
        lines = self.python("-c", LOAD, *kinds).splitlines()
        for line, kind in zip(lines, kinds.values(), strict=True):
            self.assertRegex(
                line,
                r"\AExpected the package (tensorflow|keras), which "
                rf"{kind} needs\. {ADVICE.format('translate')}",
            )

    def test_names_of_the_package_say_what_to_install(self):
        names = {
            "RelativeMultiHeadAttention": ("layers", "layers"),
            "TransformerAttention": ("layers", "layers"),
            "relative_attention": ("layers", "layers"),
            "load_model": ("load_model", "translate"),
        }
        lines = self.python("-c", GET, *names).splitlines()
        for line, (task, extra) in zip(lines, names.values(), strict=True):
            self.assertRegex(
                line,
                rf"\AExpected the package keras, which relpos_tf\.{task} "
                r"needs\. " + ADVICE.format(extra),
            )

    def test_average_needs_no_tensorflow(self):
        run = shutil.copytree(tiny_run.path(), self.folder / "run")
        out = self.python(
            *("-m", "relpos_tf.bin.average", f"--output_dir={run}", "--n=1")
        )
        self.assertEqual(out, f"{run}/average/ckpt-7\n")
        whole, mean = (
            checkpoints.read(path, ("model/",))
            for path in (run / "ckpt-7", run / "average" / "ckpt-7")
        )
        self.assertEqual(whole.keys(), mean.keys())
        for name, value in whole.items():
            np.testing.assert_array_equal(mean[name], value)

    @parameterized.parameters("decoder", "trainer", "export")
    def test_other_commands_say_what_to_install(self, name):
        flag = f"--output_dir={tiny_run.path()}"
        done = without_tensorflow.run(
            *("-m", f"relpos_tf.bin.{name}", flag),
            cwd=self.folder,
            input="7\n",
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr.strip(),
            rf"\Arelpos-{name}: Expected the package (tensorflow|keras), which "
            r"(this command|a run) needs\. " + ADVICE.format("translate"),
        )
