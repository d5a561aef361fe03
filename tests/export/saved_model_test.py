"""The SavedModel says what the decoder says, without this package."""

import json
import math
import os
import pathlib
import subprocess
import sys

import tensorflow as tf

import relpos_tf
from relpos_tf import errors
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.export import saved_model
from relpos_tf.models import run_dir
from tests import tiny_run
from tests.decoding import translator_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What is left of broken UTF-8 and line ends when a file is read.
LINES = (*translator_test.LINES, "\ufffd7\ufffd", "nul \0 here")
RAW = b"7\xff\xfe"
# Runs in a process without this package.
ALONE = """
import json, sys
import tensorflow as tf
import tensorflow_text
folder, raw = sys.argv[1], json.load(sys.stdin)
lines = tf.constant([line.encode("utf-8") for line in raw])
module = tf.saved_model.load(folder)
found = module.signatures["serving_default"](inputs=lines)
empty = module.signatures["serving_default"](inputs=tf.zeros([0], tf.string))
blank = module.signatures["serving_default"](inputs=tf.constant([b"", b" "]))
broken = module.signatures["serving_default"](
    inputs=tf.constant([b"7\\xff\\xfe", "7\\ufffd\\ufffd".encode()])
)
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
    signature = meta.signature_def["serving_default"]
    old = session.run(
        signature.outputs["outputs"].name,
        {signature.inputs["inputs"].name: lines.numpy()[:2]},
    )
json.dump({
    "ours": [name for name in sys.modules if name.startswith("relpos_tf")],
    "outputs": [t.decode() for t in found["outputs"].numpy()],
    "scores": found["scores"].numpy().tolist(),
    "beam_outputs": [
        [t.decode() for t in row] for row in found["beam_outputs"].numpy()
    ],
    "beam_scores": found["beam_scores"].numpy().tolist(),
    "empty": {name: value.shape.as_list() for name, value in empty.items()},
    "blank": [t.decode() for t in blank["outputs"].numpy()],
    "padded": module.signatures["serving_default"](
        inputs=tf.constant(["\t 7\u3000".encode(), b"7\x1f", b"7"])
    )["scores"].numpy().tolist(),
    "broken": [t.decode() for t in broken["outputs"].numpy()],
    "old": [t.decode() for t in old],
}, sys.stdout)
"""
NO_TEXT = """
import runpy, sys
sys.modules["tensorflow_text"] = None
sys.argv[1:] = ["--export_dir=nowhere"]
runpy.run_path("examples/load_export.py", run_name="__main__")
"""


def execute(*arguments, **kwargs):
    """Runs Python in a place from which this package cannot be imported."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        check=False,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONSAFEPATH": "1"},
        **kwargs,
    )


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tiny_run.path() / "export"
        saved_model.export_saved_model(tiny_run.path(), cls.folder)
        cls.translator = relpos_tf.Translator.load(tiny_run.path())

    def test_export_alone_equals_the_translator(self):
        done = execute(
            "-c",
            ALONE,
            str(self.folder),
            input=json.dumps(LINES).encode(),
            cwd="/",
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        found = json.loads(done.stdout)
        best = self.translator.translate(LINES, return_scores=True)
        texts, scores = zip(*best, strict=True)
        beams = self.translator.translate(LINES, n_best=3, return_scores=True)
        beam_texts, beam_scores = zip(*beams, strict=True)
        self.assertEqual(found["ours"], [])
        self.assertEqual(found["outputs"], list(texts))
        self.assertAllClose(found["scores"], scores, atol=1e-4)
        self.assertEqual(found["beam_outputs"], list(beam_texts))
        self.assertAllClose(found["beam_scores"], beam_scores, atol=1e-4)
        self.assertEqual(
            found["empty"],
            {
                "outputs": [0],
                "scores": [0],
                "beam_outputs": [0, 3],
                "beam_scores": [0, 3],
            },
        )
        self.assertEqual(found["blank"], ["", ""])
        self.assertEqual(found["broken"][0], found["broken"][1])
        self.assertAllClose(
            found["padded"], found["padded"][-1:] * 3, rtol=0, atol=1e-5
        )
        self.assertEqual(found["old"], list(texts[:2]))

    def test_example_script_writes_the_translations(self):
        content = "".join(f"{line}\r\n" for line in LINES).encode()
        done = execute(
            str(ROOT / "examples" / "load_export.py"),
            f"--export_dir={self.folder}",
            input=content + RAW,
            cwd="/",
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        expected = self.translator.translate([*LINES, "7\ufffd\ufffd"])
        self.assertEqual(done.stdout.decode().split("\n"), [*expected, ""])

    def test_example_script_needs_tensorflow_text_and_says_so(self):
        done = execute("-c", NO_TEXT, cwd=ROOT)
        self.assertEqual(done.returncode, 1)
        lines = done.stderr.decode().strip().split("\n")
        self.assertLen(lines, 1)
        self.assertIn("tensorflow and tensorflow_text", lines[0])
        self.assertNotIn("Traceback", done.stderr.decode())

    def test_translator_loads_an_export(self):
        translator = relpos_tf.Translator.load(self.folder)
        self.assertEqual(
            translator.translate(LINES), self.translator.translate(LINES)
        )
        self.assertEqual(
            translator.translate(LINES, 3, 0.6, n_best=2),
            self.translator.translate(LINES, n_best=2),
        )
        with self.assertRaisesRegex(ValueError, "made with beam_size=3"):
            translator.translate(LINES, beam_size=2)

    def test_info_says_what_it_was_made_of(self):
        info = json.loads((self.folder / "export_info.json").read_text())
        tokens = loading.load_tokenizer(tiny_run.path())
        self.assertEqual(info["requires"], ["tensorflow", "tensorflow_text"])
        self.assertEqual(
            info["decode_hparams"],
            {"beam_size": 3, "alpha": 0.6, "extra_length": 7},
        )
        self.assertEqual(info["tokenizer_sha256"], tokens.fingerprint)
        self.assertEndsWith(info["checkpoint"], "ckpt-7")
        self.assertEqual(info["hparams"]["hidden_size"], 16)
        self.assertEqual(info["versions"]["tensorflow"], tf.__version__)
        self.assertEqual(info["tokenizer"], "tokenizer.model")
        reader = tf.train.load_checkpoint(info["checkpoint"])
        sizes = [
            math.prod(shape)
            for name, shape in reader.get_variable_to_shape_map().items()
            if name.startswith("model/")
        ]
        self.assertEqual(info["parameters"], sum(sizes))

    def test_info_says_how_to_use_the_folder(self):
        info = json.loads((self.folder / "export_info.json").read_text())
        done = execute(
            "-c",
            "\n".join([f"folder = {str(self.folder)!r}", *info["usage"]]),
            cwd="/",
        )
        (expected,) = self.translator.translate(["A line."])
        self.assertEqual(done.stdout.decode(), f"[{expected.encode()!r}]\n")

    def test_info_describes_the_signatures_as_they_are(self):
        info = json.loads((self.folder / "export_info.json").read_text())
        signatures = tf.saved_model.load(str(self.folder)).signatures
        letters = {None: "N", 3: "B"}
        for name, said in info["signatures"].items():
            (_, inputs), outputs = (
                signatures[name].structured_input_signature,
                signatures[name].structured_outputs,
            )
            for found, texts in ((inputs, "inputs"), (outputs, "outputs")):
                specs = {
                    key: f"{spec.dtype.name} "
                    f"[{', '.join(letters[n] for n in spec.shape)}]"
                    for key, spec in found.items()
                }
                beginnings = {
                    key: text.split(":")[0] for key, text in said[texts].items()
                }
                self.assertEqual(beginnings, specs)
        self.assertEqual(set(info["signatures"]), set(signatures))

    def test_info_says_what_is_known_of_the_problem(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        run = run_dir.RunDir(folder)
        run.write_hparams(tiny_run.HPARAMS)
        engine = self.translator.engine
        settings = engine.settings(engines.decode_hparam.DecodeHParams())
        names = ("problem", "source_language", "target_language")
        info = saved_model.describe(engine, settings, folder / "ckpt-3")
        self.assertEqual([info[name] for name in names], [None] * 3)
        values = "translate_ende_phrases", "en", "de"
        run.write_problem(dict(zip(names, values, strict=True)))
        info = saved_model.describe(engine, settings, folder / "ckpt-3")
        self.assertEqual(tuple(info[name] for name in names), values)

    def test_only_an_export_is_replaced(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        saved_model.check_replaceable(folder / "new")
        saved_model.check_replaceable(folder)
        (folder / "letter.txt").write_text("mine")
        with self.assertRaisesRegex(errors.UserError, "something else"):
            saved_model.export_saved_model(tiny_run.path(), folder)
        self.assertEqual((folder / "letter.txt").read_text(), "mine")

    def test_replacing_leaves_nothing_behind(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        for name in ("target", "source"):
            (folder / name).mkdir()
            (folder / name / name).write_text(name)
        saved_model.replace_folder(folder / "target", folder / "source")
        self.assertEqual(os.listdir(folder), ["target"])
        self.assertEqual(os.listdir(folder / "target"), ["source"])


if __name__ == "__main__":
    tf.test.main()
