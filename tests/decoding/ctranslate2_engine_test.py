"""What CTranslate2 finds is what the run's own search finds.

Shapes: N beams.
"""

import concurrent.futures
import dataclasses
import os
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf import errors
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import decode_hparam
from tests import ctranslate2_runs
from tests.ctranslate2_runs import ABSOLUTE
from tests.ctranslate2_runs import LINES
from tests.ctranslate2_runs import PRE_NORM
from tests.ctranslate2_runs import export_of
from tests.ctranslate2_runs import ours

# More threads than processors wait for one another.
ONE_THREAD = mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"})


def setUpModule():
    ctranslate2_runs.skip_without_library()
    ONE_THREAD.start()


def tearDownModule():  # pytest calls no addModuleCleanup.
    ONE_THREAD.stop()


class EngineTest(parameterized.TestCase):
    def outputs(self, translator, lines, **kwargs):
        found = translator.translate(lines, return_scores=True, **kwargs)
        return [text for text, _ in found], [score for _, score in found]

    # With these seeds, no two of the best translations are nearly as good.
    @parameterized.named_parameters(
        ("relative", {"seed": 7}),
        ("one_beam", {"seed": 7}, {"beam_size": 1}),
        ("pre_norm", PRE_NORM | {"seed": 2}),
        ("absolute", ABSOLUTE | {"seed": 7}),
    )
    def test_translations_are_those_of_the_run(
        self, changes, settings=types.MappingProxyType({})
    ):
        translator = relpos_tf.Translator.load(export_of(**changes))
        texts, scores = self.outputs(translator, LINES, **settings)
        want, want_scores = self.outputs(ours(**changes), LINES, **settings)
        self.assertEqual(texts, want)
        np.testing.assert_allclose(scores, want_scores, atol=1e-4)
        self.assertGreater(len(set(texts)), 3)

    def test_n_best_are_found_and_the_first_is_the_best(self):
        translator = relpos_tf.Translator.load(export_of())
        best, scores = self.outputs(translator, LINES)
        all_texts, all_scores = self.outputs(translator, LINES, n_best=3)
        self.assertEqual([texts[0] for texts in all_texts], best)
        np.testing.assert_allclose(
            [one[0] for one in all_scores], scores, rtol=1e-6, atol=1e-5
        )
        for line, texts, some in zip(LINES, all_texts, all_scores, strict=True):
            self.assertEqual(some, sorted(some, reverse=True))
            self.assertLen(set(texts), 3 if line.strip() else 1)

    def test_padding_is_in_no_translation(self):
        changes = {"seed": 7, "padding": 30.0}
        translator = relpos_tf.Translator.load(export_of(**changes))
        engine = translator.engine
        tokens = [engine._tokens[i] for i in engine.items(["7"])[0].content]
        (plain,) = engine.translator.translate_batch([tokens[:-1]])
        self.assertIn(engine._tokens[0], plain.hypotheses[0])
        for n_best in (1, 3):
            settings = decode_hparam.DecodeHParams(n_best=n_best)
            for one in translator.translations(LINES, settings):
                self.assertNotIn(0, [i for ids in one.ids for i in ids])
        # One beam: the best of the other ids, whatever the probabilities.
        texts, _ = self.outputs(translator, LINES, beam_size=1)
        want, _ = self.outputs(ours(**changes), LINES, beam_size=1)
        self.assertEqual(texts, want)
        self.assertGreater(len(set(texts)), 3)

    @parameterized.parameters(1, 2)
    def test_no_n_gram_comes_twice(self, size):
        translator = relpos_tf.Translator.load(export_of(seed=7))
        settings = decode_hparam.DecodeHParams(
            no_repeat_ngram_size=size, n_best=3
        )
        for found in translator.translations(LINES, settings):
            for ids in found.ids:
                grams = [tuple(ids[i : i + size]) for i in range(len(ids))]
                grams = grams[: len(ids) - size + 1]
                self.assertLen(set(grams), len(grams))

    def test_neighbours_and_their_limits_do_not_matter(self):
        changes = ABSOLUTE | {"seed": 5}
        engine = ctranslate2_engine.CTranslate2Engine(export_of(**changes))
        # Limits from 2 on: many translations are cut off.
        settings = engine.complete(decode_hparam.DecodeHParams(extra_length=0))
        items = engine.items([line for line in LINES if line.strip()])
        want = ours(**changes).engine.translate(items, settings)
        for n_best in (3, 1):
            how = dataclasses.replace(settings, n_best=n_best)
            together = engine.translate(items, how)
            alone = [engine.translate([item], how)[0] for item in items]
            for one, other in zip(together, alone, strict=True):
                self.assertEqual(one.texts, other.texts)
                self.assertEqual(one.is_complete, other.is_complete)
                np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
        for one, other in zip(alone, want, strict=True):
            self.assertEqual(one.texts, other.texts)
            self.assertEqual(one.is_complete, other.is_complete)
            np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
        self.assertLen({one.is_complete for one in alone}, 2)

    def test_eight_threads_get_what_one_gets(self):
        translator = relpos_tf.Translator.load(export_of())
        want = translator.translate(LINES)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for found in pool.map(translator.translate, [LINES] * 8):
                self.assertEqual(found, want)

    @parameterized.parameters(
        ("none", 1.0, 1e-4), ("int8", 0.6, 0.5), ("float16", 0.6, 0.1)
    )
    def test_quantised_weights_are_small_and_keep_probabilities(
        self, quantization, size, tolerance
    ):
        # Of given ids: two searches may part where two ids are nearly equal.
        # Most are close, not all: without VNNI, processors add products of
        # int8 in 16 bits, which are too few for some.
        engine = ctranslate2_engine.CTranslate2Engine(
            export_of(quantization, seed=7)
        )
        lines = [line for line in LINES if line.strip()]
        sources = [item.content for item in engine.items(lines)]
        targets = np.random.default_rng(1).integers(
            3, len(engine._tokens), [len(lines), 7]
        )
        tokens = [
            [[engine._tokens[i] for i in ids] for ids in side]
            for side in ([ids[:-1] for ids in sources], targets)  # no EOS
        ]
        found = engine.translator.score_batch(*tokens)
        all_found, all_expected = [], []
        model = ours(seed=7).engine.model
        for source, target, one in zip(sources, targets, found, strict=True):
            ids = np.int32([[*target, 1]])  # [1, T]
            logits = model(tf.constant([source]), tf.constant(ids))
            expected = tf.gather(
                tf.nn.log_softmax(logits), ids, axis=2, batch_dims=2
            )[0]  # [T]
            all_found += one.log_probs
            all_expected += expected.numpy().tolist()
        differences = np.abs(np.subtract(all_found, all_expected))
        self.assertLess(np.median(differences), tolerance)
        self.assertGreater(np.std(all_expected), 10 * tolerance)
        model, whole = (
            (folder / "model.bin").stat().st_size
            for folder in (export_of(quantization, seed=7), export_of(seed=7))
        )
        self.assertLessEqual(model, size * whole)

    def test_lines_beyond_the_positions_are_refused(self):
        translator = relpos_tf.Translator.load(export_of(**ABSOLUTE))
        line = "7 " * 3000
        with self.assertRaisesRegex(errors.UserError, "knows 4096 positions"):
            translator.translate([line])
        self.assertLen(
            relpos_tf.Translator.load(export_of()).engine.items([line]), 1
        )
        self.assertEqual(
            translator.translate([line], max_input_size=4),
            translator.translate(["7 7 7"]),
        )
        # Nothing but EOS is left.
        engine = translator.engine
        item = engine.truncate(*engine.items(["7"]), 1)
        (found,) = engine.translate(
            [item], engine.complete(decode_hparam.DecodeHParams())
        )
        self.assertEqual(found[:3], ([""], [0.0], True))

    @parameterized.parameters(
        (RuntimeError("libcublas.so.12 is not found"), errors.UserError),
        (RuntimeError("out of memory"), MemoryError),
        (MemoryError(), MemoryError),
    )
    def test_faults_of_the_library_get_a_name(self, fault, expected):
        engine = ctranslate2_engine.CTranslate2Engine(export_of())
        engine.translator = mock.Mock()
        engine.translator.translate_batch.side_effect = fault
        settings = engine.complete(decode_hparam.DecodeHParams())
        with self.assertRaises(expected):
            engine.translate(engine.items(["7"]), settings)

    def test_what_ends_stands_before_what_was_cut_off(self):
        engine = ctranslate2_engine.CTranslate2Engine(export_of())
        ids = [[7] * 7, [1], [5] * 6 + [1]]
        result = types.SimpleNamespace(
            hypotheses=[[engine._tokens[i] for i in row] for row in ids],
            scores=[-2.0, -6.0, -8.0],
        )
        self.assertEqual(
            engine._ranked(result, 1.0),
            [(ids[2], -4.0), (ids[1], -6.0), (ids[0], -1.0)],
        )

    def test_only_what_the_search_knows_may_be_set(self):
        engine = ctranslate2_engine.CTranslate2Engine(export_of())
        for wanted, message in (
            ({"beam_size": 10**6}, "at most the number of pieces"),
            ({"min_length": 3}, "has min_length=0. Received: min_length=3"),
        ):
            with self.assertRaisesRegex(errors.UserError, message):
                engine.complete(decode_hparam.DecodeHParams(**wanted))
