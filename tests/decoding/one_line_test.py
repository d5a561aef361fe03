"""Programs of XLA for one line alone, against the usual search."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf.decoding import one_line
from relpos_tf.decoding import search
from tests import tiny_run
from tests.decoding import search_kinds_test
from tests.decoding import search_options_test
from tests.decoding import search_test

LINES = ["Where is the station?", "7", "It is raining.", "seven days"]
KINDS = search_options_test.KINDS | search_kinds_test.KINDS


class WithinTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("relative", "learned", "t5_bias")
    def test_a_search_with_little_room_says_so(self, kind):
        model = search_test.make_model(
            **({"num_hidden_layers": 1} | KINDS[kind])
        )
        line = tf.constant(search_test.INPUTS[:1])
        padded = tf.pad(line, [[0, 0], [0, 3]])
        options = {"beam_size": 3, "alpha": 0.6, "n_best": 3}
        ids, scores = search.search(model, line, [9], **options)
        self.assertGreater(ids.shape[2], 2)
        for room in (2, 11):
            found, found_scores, is_cut = search.search_within(
                model, padded, tf.constant([9]), max_length=room, **options
            )
            self.assertAllEqual(is_cut, [room == 2])
            if room == 2:
                self.assertEqual(found.shape[2], 2)
                continue
            self.assertAllEqual(found, ids)
            self.assertAllClose(found_scores, scores, atol=1e-5)


class EngineTest(tf.test.TestCase):
    @mock.patch.multiple(one_line, SIZES=(29,), LINES=2)
    def test_lines_alone_equal_lines_of_a_batch_which_compiles_nothing(self):
        options = {"return_scores": True, "alpha": 0.9}
        translator = relpos_tf.Translator.load(tiny_run.path())
        translate, engine = translator.translate, translator.engine
        expected = translate(LINES, **options)
        self.assertEqual(engine._programs, {})
        with mock.patch.object(engine, "_find") as usual:
            usual.side_effect = type(engine)._find.__get__(engine)
            alone = [translate([line], **options)[0] for line in LINES[:2]]
            self.assertEqual(usual.call_count, 2)
            (programs,) = engine._programs.values()
            programs.wait()
            self.assertTrue(programs._programs[29].is_ready)
            alone += [translate([line], **options)[0] for line in LINES]
            self.assertEqual(usual.call_count, 2)
            # A beginning, a constraint, another size, more translations.
            translate(["7"], prefix=["sie"])
            translate(["7"], min_length=2)
            translate([" ".join(LINES * 3)])
            translate(["7"], n_best=2)
            self.assertEqual(usual.call_count, 6)
        self.assertEqual(set(engine._programs), {(3, 1), (3, 3)})
        for (text, score), (want, want_score) in zip(
            alone, expected[:2] + expected, strict=True
        ):
            self.assertEqual(text, want)
            self.assertAllClose(score, want_score, atol=1e-5)


class ProgramsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        patch = mock.patch.multiple(one_line, SIZES=(4, 6), LINES=3)
        patch.start()
        self.addCleanup(patch.stop)
        self.calls = []
        self.is_cut = False

    def find(self, inputs, limits, places, alpha):
        """Stands in for a search: returns its arguments."""
        self.calls.append(inputs.shape[1])
        self.assertEqual(len(places), one_line.room(inputs.shape[1]))
        ids = tf.concat([inputs, limits[tf.newaxis]], 1)[tf.newaxis]
        return ids, alpha[tf.newaxis, tf.newaxis], tf.constant([self.is_cut])

    def test_a_size_is_compiled_once_when_it_has_come_often(self):
        programs = one_line.Programs(self.find)
        for ids in ([5, 1], [5, 1], [5, 6, 7, 8, 1]):
            self.assertIsNone(programs.translate(ids, 9, 0.6))
        self.assertEqual(self.calls, [])
        self.assertIsNone(programs.translate([5, 1], 9, 0.6))
        programs.wait()
        self.assertEqual(self.calls, [4])
        ids, scores = programs.translate([5, 1], 9, 0.6)
        self.assertAllEqual(ids, [[[5, 1, 0, 0, 9]]])
        self.assertAllClose(scores, [[0.6]])
        self.assertIsNone(programs.translate([5, 6, 7, 8, 1], 9, 0.6))
        self.assertIsNone(programs.translate([5] * 7, 9, 0.6))
        self.assertEqual(self.calls, [4, 4])

    def test_a_program_without_room_is_given_up(self):
        programs = one_line.Programs(self.find)
        for _ in range(3):
            programs.translate([1], 9, 0.6)
        programs.wait()
        self.is_cut = True
        for _ in range(20):
            self.assertIsNone(programs.translate([1], 9, 0.6))
        self.assertLess(len(self.calls), 8)

    def test_what_does_not_compile_is_tried_once(self):
        find = mock.Mock(
            side_effect=tf.errors.InvalidArgumentError(None, None, "")
        )
        programs = one_line.Programs(find)
        for size in (4, 6):
            for _ in range(9):
                ids = np.ones([size]).tolist()
                self.assertIsNone(programs.translate(ids, 9, 0.6))
                programs.wait()
        find.assert_called_once()


if __name__ == "__main__":
    tf.test.main()
