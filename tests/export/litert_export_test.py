"""LiteRT computes what the run computes, or the model is refused.

Conversions are slow, so the exporter, its engine and the example are tested
here, with one export for all.

Shapes: S source length.
"""

import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf import errors
from relpos_tf.bin import decoder
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import litert_engine
from relpos_tf.export import litert_export
from tests import ctranslate2_runs
from tests import folders
from tests import tiny_run
from tests import without_tensorflow
from tests.bin import calls

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "litert_translate.py"
LINES = (
    *("twenty-one days", "", "Where is the station?", " \t"),
    "It is raining, and it will rain tomorrow as well. " * 3,
    *("a\u2028b \u6f22", "twenty-one days", "7"),
)
SETTINGS = decode_hparam.DecodeHParams(3, 0.6, 7)
# Runs the example in a process that has neither TensorFlow nor this package.
ALONE = """
import runpy, sys
sys.modules["tensorflow"] = sys.modules["relpos_tf"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Runs where there is no TensorFlow.
LIGHT = """
import json, sys
from relpos_tf import Translator

translator = Translator.load(sys.argv[1])
for n_best in 1, 3:
    print(json.dumps(translator.translate(sys.argv[2:], n_best=n_best)))
"""
# Beside the tiny run, which has sinusoids and tables for each head.
KINDS = {
    "shared_tables_rotary_and_localness_in_two_layers": {
        "pos": "emb",
        "max_length": 5,
        "heads_share_relative_embedding": True,
        "max_relative_position_right": 1,
        "decoder_self_attention_type": "dot_product_rotary",
        "localness": "query",
        "localness_layers": 0,
        "num_decoder_layers": 2,
        "layer_preprocess_sequence": "n",
        "layer_postprocess_sequence": "da",
    },
    "kerple_and_fire": {
        "pos": "none",
        "self_attention_type": "dot_product_fire",
        "decoder_self_attention_type": "dot_product_kerple",
    },
    "transformer_xl": {
        "pos": "none",
        "self_attention_type": "dot_product_transformer_xl",
    },
    "bias_and_alibi": {
        "filter_size": 4000,
        "pos": "none",
        "self_attention_type": "dot_product_relative_bias",
        "decoder_self_attention_type": "dot_product_alibi",
    },
}


def setUpModule():
    ctranslate2_runs.skip_without_library(litert_engine.package)


@functools.cache
def exported(quantization="none"):
    """Exports the tiny run."""
    return litert_export.export_litert(
        tiny_run.path(),
        tiny_run.path() / f"litert_{quantization}",
        quantization=quantization,
    )


@functools.cache
def ours():
    """Returns the run's own translator."""
    return relpos_tf.Translator.load(tiny_run.path())


@functools.cache
def translator():
    return relpos_tf.Translator.load(exported())


@functools.cache
def module_of(kind):
    """Returns a module with few layers and one beam, quick to convert."""
    hparams = tiny_run.HPARAMS.replace(
        vocab_size=61,
        num_hidden_layers=1,
        relative_attention_implementation="reshape",
    )
    model = tiny_run.random_model(hparams.replace(**KINDS[kind]))
    settings = decode_hparam.DecodeHParams(1, 0.6, 7)
    return litert_export.IdTranslator(model, settings)


@functools.cache
def converted(kind, quantization="none"):
    """Converts a module."""
    return litert_export.convert(module_of(kind), quantization)


class NoOperation(tf.Module):
    """A module with an operation that LiteRT does not have."""

    @tf.function(input_signature=[tf.TensorSpec([2, 2], tf.float32, "x")])
    def diagonal(self, x):
        return {"y": tf.linalg.diag_part(x, k=1)}

    def signatures(self):
        return {litert_engine.BEST: self.diagonal}


class EngineTest(parameterized.TestCase):
    def assert_equal(self, found, want):
        for one, other in zip(found, want, strict=True):
            self.assertEqual(one.texts, other.texts)
            np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
            self.assertEqual(one.is_complete, other.is_complete)
            # A search alone in its batch has fewer zeros at the end.
            for a, b in zip(one.ids, other.ids, strict=True):
                self.assertEqual(a, b[: len(a)])
                self.assertFalse(any(b[len(a) :]))

    def test_translations_are_those_of_the_run(self):
        of_three = dataclasses.replace(SETTINGS, n_best=3)
        want = list(ours().translations(LINES, of_three))
        of_three = decode_hparam.DecodeHParams(n_best=3)
        found = list(translator().translations(LINES, of_three))
        self.assert_equal(found, want)
        self.assertGreater(len({one.texts[0] for one in found}), 4)
        # The best is found by a graph of its own.
        best = translator().translations(LINES)
        for one, other in zip(best, found, strict=True):
            self.assertEqual(one.texts, other.texts[:1])
            np.testing.assert_allclose(
                one.scores, other.scores[:1], rtol=1e-5, atol=1e-5
            )

    def test_each_line_has_its_own_limit(self):
        engine = translator().engine
        settings = decode_hparam.DecodeHParams(extra_length=0, n_best=3)
        settings = engine.complete(settings)
        items = engine.items([line for line in LINES if line.strip()])
        # Nothing but EOS is left of the last.
        items.append(engine.truncate(items[-1], 1))
        want = ours().engine.translate(items, settings)
        found = engine.translate(items, settings)
        self.assert_equal(found, want)
        self.assertLen({one.is_complete for one in found}, 2)

    def test_what_is_part_of_the_model_cannot_be_changed(self):
        engine = translator().engine
        for wanted, message in (
            ({"beam_size": 2}, "has beam_size=3. Received: beam_size=2"),
            ({"alpha": 1.0}, "has alpha=0.6. Received: alpha=1.0"),
            ({"min_length": 3}, "has min_length=0. Received: min_length=3"),
        ):
            with self.assertRaisesRegex(errors.UserError, message):
                engine.complete(decode_hparam.DecodeHParams(**wanted))
        with self.assertRaisesRegex(errors.UserError, "takes no prefix"):
            translator().translate(["7"], prefix=["7"])
        with self.assertRaisesRegex(errors.UserError, "for runs .*for LiteRT"):
            relpos_tf.Translator.load(exported(), jit_compile=True)


class ExportTest(folders.TestCase):
    def test_folder_says_what_it_is(self):
        folder = exported()
        info = json.loads((folder / "export_info.json").read_text())
        self.assertEqual(info["format"], "litert")
        self.assertEqual(translator().engine.longest_source, 256)
        self.assertEqual(info["decode_hparams"], SETTINGS.search_settings())
        self.assertCountEqual(
            info["files"], ["model.tflite", "tokenizer.model"]
        )
        self.assertIn("ai-edge-litert", info["versions"])
        # What the export was told to do, not what it was trained with.
        self.assertEqual(
            info["hparams"]["relative_attention_implementation"], "auto"
        )

    def test_the_export_translates_without_tensorflow(self):
        without_tensorflow.skip_without_packages(self)
        done = without_tensorflow.run("-c", LIGHT, exported(), *LINES)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts, n_best = map(json.loads, done.stdout.splitlines())
        self.assertEqual(texts, translator().translate(LINES))
        self.assertEqual(n_best, translator().translate(LINES, n_best=3))
        self.assertGreater(len(set(texts)), 3)

    def test_the_example_and_the_decoder_print_the_same(self):
        source = self.write("source", *LINES)
        code, out, err = calls.execute(
            decoder.main,
            f"--export_dir={exported()}",
            f"--decode_from_file={source}",
            f"--decode_to_file={self.folder / 'target'}",
        )
        self.assertEqual((code, out), (0, b""), err)
        flag = f"--export_dir={exported()}"
        done = subprocess.run(
            [sys.executable, "-c", ALONE, EXAMPLE, flag],
            input=source.read_bytes(),
            capture_output=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        target = (self.folder / "target").read_bytes()
        self.assertEqual(done.stdout, target)
        self.assertLen(target.split(b"\n"), len(LINES) + 1)

    def test_quantised_weights_are_small_and_translate(self):
        kind = "bias_and_alibi"
        size = len(converted(kind))
        source = [7, 1]
        want, _ = litert_engine.Program(converted(kind)).translate(source, 9)
        for quantization, share in (("int8", 0.45), ("float16", 0.65)):
            content = converted(kind, quantization)
            self.assertLess(len(content), share * size)
            program = litert_engine.Program(content)
            found, scores = program.translate(source, 9)
            np.testing.assert_array_equal(found, want)
            self.assertLess(scores[0], 0)

    @parameterized.parameters(*KINDS)
    def test_other_positions_compute_the_same(self, kind):
        program = litert_engine.Program(converted(kind))
        random = np.random.default_rng(1)
        lengths = set()
        for size in (1, 4, 9, 23):
            source = [*random.integers(2, 61, size - 1).tolist(), 1]  # [S]
            want = module_of(kind).best(
                tf.constant([source]), tf.constant([size + 7])
            )
            ids, scores = program.translate(source, size + 7)
            np.testing.assert_array_equal(ids, want["ids"][0])
            np.testing.assert_allclose(
                scores, want["scores"][0], rtol=1e-4, atol=1e-5
            )
            lengths.add(ids.shape)
        self.assertGreater(len(lengths), 1)

    def test_models_without_operations_are_refused(self):
        with self.assertRaisesRegex(
            errors.UserError,
            "no builtin operation .*MatrixDiagPartV3.*SavedModel",
        ) as caught:
            litert_export.convert(NoOperation())
        self.assertNotIn("\n", str(caught.exception))

    def test_a_model_that_computes_something_else_is_refused(self):
        content = (exported() / "model.tflite").read_bytes()
        model = litert_export.with_lookups(ours().engine.model)
        module = litert_export.IdTranslator(model, SETTINGS)
        litert_export.check_equal(module, content, 340)
        weight = model.decoder_blocks[0].ffn.conv2.bias
        weight.assign_add(tf.linspace(0.0, 0.5, weight.shape[0]))
        with self.assertRaisesRegex(
            errors.UserError, "something else: .*score"
        ):
            litert_export.check_equal(module, content, 340)

    def test_refusal_leaves_nothing_behind(self):
        target = self.folder / "new"
        export = litert_export.export_litert, tiny_run.path()
        missing = {"ai_edge_litert": None}
        refuses = functools.partial(self.assertRaisesRegex, errors.UserError)
        refuses("one of none, int8, float16", *export, target, quantization="x")
        with mock.patch.dict(sys.modules, missing):
            refuses(r"relpos_tf\[litert\]", *export, target)
        with mock.patch.object(litert_export, "convert", return_value=b"x" * 9):
            refuses("a model for LiteRT", *export, target)
        self.assertEqual(list(self.folder.iterdir()), [])
        self.write("letter.txt", "mine")
        refuses("something else", *export, self.folder)
