"""The SavedModel translates as the decoder does, without this package."""

import concurrent.futures
import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

import relpos_tf
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.export import saved_model
from relpos_tf.models import checkpoints
from relpos_tf.t2t import t2t_import
from tests import odd_names_test
from tests import t2t_checkpoint
from tests import tiny_run
from tests.data import spelling_test
from tests.decoding import translator_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "load_export.py"
# With remains of invalid UTF-8 and line ends, as in a file that was read.
LINES = (
    *(*translator_test.LINES, "\ufffd7\ufffd", "nul \0 here"),
    *("WHERE IS THE STATION?", "It Is Raining, And It Will Rain"),
)
T2T_VOCAB = 97
T2T_LINES = (
    "abc",
    "seven houses; and 9",
    "",
    "\u200b\u200d",
    "ein Haus? \u4e16",
)
# Runs in a process that cannot import this package.
ALONE = """
import contextlib, functools, io, json, runpy, sys
import tensorflow as tf

folder = sys.argv[1]
try:
    tf.saved_model.load(folder)
except Exception as error:
    missing = str(error)
import tensorflow_text

# The same arguments give the same signatures, which are slow to call first.
tf.saved_model.load = functools.cache(tf.saved_model.load)
given = json.load(sys.stdin)
lines = tf.constant([line.encode() for line in given["lines"]])
translate = tf.saved_model.load(folder).signatures["serving_default"]

def plain(outputs):
    arrays = {name: value.numpy().tolist() for name, value in outputs.items()}
    return json.loads(json.dumps(arrays, default=bytes.decode))

def run(code, arguments, content=b""):
    "Returns what a program writes to its standard output."
    out = io.TextIOWrapper(io.BytesIO())
    sys.argv, sys.stdin = arguments, io.TextIOWrapper(io.BytesIO(content))
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        code()
    out.flush()
    return out.buffer.getvalue().decode()

found = {
    "missing": missing,
    "translated": plain(translate(inputs=lines)),
    "empty": {
        name: value.shape.as_list()
        for name, value in translate(inputs=tf.zeros([0], tf.string)).items()
    },
    "blank": plain(translate(inputs=tf.constant([b"", b" "]))),
    "invalid": plain(translate(
        inputs=tf.constant([b"7\\xff\\xfe", "7\\ufffd\\ufffd".encode()])
    )),
    "stripped": plain(translate(
        inputs=tf.constant(["\\t 7\\u3000".encode(), b"7\\x1f", b"7"])
    )),
    "example": run(
        lambda: runpy.run_path(given["example"], run_name="__main__"),
        [given["example"], f"--export_dir={folder}"],
        "".join(f"{line}\\r\\n" for line in given["lines"]).encode()
        + b"7\\xff\\xfe",
    ),
}
# The documented command loads the export into a session.
run(lambda: exec(given["command"][2], {}), ["-c", *given["command"][3:]])
found["ours"] = [name for name in sys.modules if name.startswith("relpos_tf")]
json.dump(found, sys.stdout)
"""


def documented_command(**replacements):
    """Returns the arguments of the command line in docs/export.md."""
    text = (ROOT / "docs" / "export.md").read_text("utf-8")
    (command,) = re.findall(r"^    python -c (?:.*\\\n)*.*$", text, re.M)
    words = shlex.split(command.replace("\\\n", " "))
    for name, value in replacements.items():
        words[words.index(f"--{name}") + 1] = str(value)
    return words


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tiny_run.path() / odd_names_test.ALL_AT_ONCE
        saved_model.export_saved_model(tiny_run.path(), cls.folder)
        cls.info = json.loads((cls.folder / "export_info.json").read_text())
        cls.signatures = tf.saved_model.load(str(cls.folder)).signatures
        cls.translate = cls.signatures["serving_default"]
        cls.translator = relpos_tf.Translator.load(tiny_run.path())
        cls.loaded = relpos_tf.Translator.load(cls.folder)

    def test_export_alone_equals_the_translator(self):
        outdir = self.create_tempdir().full_path
        given = {
            "lines": LINES,
            "command": documented_command(dir=self.folder, outdir=outdir),
            "example": str(EXAMPLE),
        }
        done = subprocess.run(
            [sys.executable, "-c", ALONE, str(self.folder)],
            input=json.dumps(given).encode(),
            capture_output=True,
            cwd="/",
            env=os.environ
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONSAFEPATH": "1"}
            | {"LC_ALL": "tr_TR.UTF-8"},  # where I is not the capital of i
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        found = json.loads(done.stdout)
        self.assertEqual(self.loaded.engine.longest_source, 256)
        self.assertEqual(found["ours"], [])
        self.assertIn("Op type not registered", found["missing"])
        beams = self.translator.translate(LINES, n_best=3, return_scores=True)
        beam_texts, beam_scores = zip(*beams, strict=True)
        texts = [row[0] for row in beam_texts]
        outputs = found["translated"]
        self.assertEqual(outputs["outputs"], texts)
        self.assertAllClose(
            outputs["scores"], [row[0] for row in beam_scores], atol=1e-4
        )
        # The graph keeps texts that come twice.
        for found_texts, found_scores, want_texts, want_scores in zip(
            outputs["beam_outputs"],
            outputs["beam_scores"],
            beam_texts,
            beam_scores,
            strict=True,
        ):
            distinct = engines.translation(
                map(engines.Hypothesis, found_texts, found_scores), 3, True
            )
            self.assertEqual(distinct.texts, want_texts)
            self.assertAllClose(distinct.scores, want_scores, atol=1e-4)
        empty = {"outputs": [0], "scores": [0]}
        empty |= {"beam_outputs": [0, 3], "beam_scores": [0, 3]}
        self.assertEqual(found["empty"], empty)
        self.assertEqual(found["blank"]["outputs"], ["", ""])
        first, second = found["invalid"]["outputs"]
        self.assertEqual(first, second)
        scores = found["stripped"]["scores"]
        self.assertAllClose(scores, scores[-1:] * 3, rtol=1e-5, atol=1e-5)
        self.assertEqual(found["example"].split("\n"), [*texts, first, ""])
        two = [
            found[0]
            for found in self.translator.translate(
                ["A dog runs.", "Two men talk."], n_best=3
            )
        ]
        array = np.load(f"{outdir}/outputs.npy", allow_pickle=True)
        self.assertEqual([text.decode() for text in array], two)

    def test_example_script_requires_tensorflow_text_and_names_it(self):
        with (
            mock.patch.dict(sys.modules, {"tensorflow_text": None}),
            mock.patch.dict(os.environ),
            mock.patch.object(sys, "argv", ["", "--export_dir=nowhere"]),
            self.assertRaises(SystemExit) as caught,
        ):
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        message = caught.exception.code
        self.assertNotIn("\n", message)
        self.assertIn("tensorflow and tensorflow_text", message)

    def test_translator_loads_an_export(self):
        beams = self.translator.translate(LINES, n_best=3)
        self.assertEqual(self.loaded.translate(LINES), [x[0] for x in beams])
        self.assertEqual(
            self.loaded.translate(LINES, beam_size=3, alpha=0.6, n_best=3),
            beams,
        )
        with self.assertRaisesRegex(ValueError, "has beam_size=3"):
            self.loaded.translate(LINES, beam_size=2)

    def test_info_describes_the_run(self):
        info = self.info
        tokens = loading.load_tokenizer(tiny_run.path())
        settings = {"beam_size": 3, "alpha": 0.6, "extra_length": 7}
        self.assertEqual(info["decode_hparams"], settings)
        self.assertEqual(info["tokenizer_sha256"], tokens.fingerprint)
        self.assertEndsWith(info["checkpoint"], "ckpt-7")
        self.assertEqual(info["hparams"]["hidden_size"], 16)
        self.assertEqual(info["versions"]["tensorflow"], tf.__version__)
        model = checkpoints.read(info["checkpoint"], ("model/",))
        sizes = [value.size for value in model.values()]
        self.assertEqual(info["parameters"], sum(sizes))

    def test_a_line_that_shows_nothing_is_blank(self):
        lines = [*spelling_test.SHOW_NOTHING, "7"]
        outputs = self.translate(inputs=tf.constant(lines))
        columns = (outputs[name].numpy() for name in ("outputs", "scores"))
        in_graph = list(zip(*columns, strict=True))
        for found, nothing in (
            (in_graph, b""),
            (self.loaded.translate(lines, return_scores=True), ""),
        ):
            self.assertEqual(found[:-1], [(nothing, 0.0)] * (len(lines) - 1))
            self.assertNotEqual(found[-1][0], nothing)

    def test_eight_threads_get_the_results_of_one(self):
        lines = translator_test.LINES
        batches = [lines[i : i + 1 + i % 5] for i in (0, 2, 5, 7)] * 2

        def translate(batch):
            outputs = self.translate(inputs=tf.constant(batch))
            return {name: x.numpy().tolist() for name, x in outputs.items()}

        expected = list(map(translate, batches))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(translate, batches)), expected)

    def test_details_name_the_incomplete_translations(self):
        lines = [*translator_test.LINES, *tiny_run.TEXT]
        details = self.signatures["details"](inputs=tf.constant(lines))
        outputs = self.translate(inputs=tf.constant(lines))
        is_complete = details.pop("is_complete").numpy().tolist()
        self.assertLen(set(is_complete), 2)
        self.assertTrue(is_complete[1])  # a blank line
        # The graph of three translations is there already.
        for translator, n_best in ((self.translator, 3), (self.loaded, 1)):
            how = decode_hparam.DecodeHParams(n_best=n_best)
            found = translator.translations(lines, how)
            self.assertEqual([one.is_complete for one in found], is_complete)
        self.assertEqual(
            {k: v.numpy().tolist() for k, v in details.items()},
            {k: v.numpy().tolist() for k, v in outputs.items()},
        )


class SubwordsTest(tf.test.TestCase):
    """A model of tensor2tensor with a subword vocabulary."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="t2t_export."))
        cls.addClassCleanup(shutil.rmtree, folder)
        hparams = t2t_checkpoint.hparams_dict(num_hidden_layers=1)
        variables = t2t_checkpoint.random_variables(hparams, T2T_VOCAB, 5)
        t2t_checkpoint.write(
            folder / "t2t",
            variables,
            hparams,
            vocab=t2t_checkpoint.subtokens(T2T_VOCAB),
            extra=False,
        )
        cls.run_dir = folder / "run"
        cls.folder = folder / "export"
        t2t_import.import_run(folder / "t2t", cls.run_dir)
        search = {"beam_size": 2, "extra_length": 5}
        saved_model.export_saved_model(cls.run_dir, cls.folder, **search)
        translated = relpos_tf.Translator.load(cls.run_dir).translate(
            T2T_LINES, return_scores=True, **search
        )
        cls.expected, cls.scores = map(list, zip(*translated, strict=True))

    def test_translations_equal_those_of_the_run(self):
        module = tf.saved_model.load(str(self.folder))
        outputs = module.signatures["serving_default"](
            inputs=tf.constant(T2T_LINES)
        )
        texts = [text.decode() for text in outputs["outputs"].numpy()]
        self.assertEqual(texts, self.expected)
        self.assertLen(set(texts), 4)
        np.testing.assert_allclose(outputs["scores"], self.scores, atol=1e-4)

    def test_session_fills_the_table_of_pieces(self):
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            meta = v1.saved_model.load(session, ["serve"], str(self.folder))
            signature = meta.signature_def["serving_default"]
            texts = session.run(
                signature.outputs["outputs"].name,
                {signature.inputs["inputs"].name: T2T_LINES},
            )
        self.assertEqual([text.decode() for text in texts], self.expected)
