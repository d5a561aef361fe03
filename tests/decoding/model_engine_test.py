"""Lines alone, whose search XLA compiles, against lines of a batch."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf.decoding import model_engine
from tests import tiny_run

LINES = ["Where is the station?", "7", "It is raining.", "seven days"]


class CompiledTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        patch = mock.patch.object(model_engine, "SIZES", (29,))
        patch.start()
        cls.addClassCleanup(patch.stop)
        cls.translator = relpos_tf.Translator.load(
            tiny_run.path(), jit_compile=True
        )

    def setUp(self):
        super().setUp()
        engine = self.translator.engine
        patch = mock.patch.object(engine, "function", wraps=engine.function)
        self.function = patch.start()
        self.addCleanup(patch.stop)

    def sizes(self):
        """Returns the sizes of the programs that were run; 0: not compiled."""
        return [call.args[2] for call in self.function.call_args_list]

    def test_a_line_alone_has_the_translation_that_it_has_in_a_batch(self):
        options = {"return_scores": True, "alpha": 0.9}
        expected = self.translator.translate(LINES, **options)
        self.assertEqual(self.sizes(), [0])
        for line, (text, score) in zip(LINES, expected, strict=True):
            ((found, found_score),) = self.translator.translate(
                [line], **options
            )
            self.assertEqual(found, text)
            self.assertNear(found_score, score, 1e-5)
        self.assertEqual(self.sizes(), [0] + [29] * 4)
        self.assertLen({text for text, _ in expected}, 4)

    @parameterized.parameters(
        {"prefix": ["sie"]},
        {"min_length": 2},
        {"no_repeat_ngram_size": 2},
        {"sampling_method": "random"},
        {"n_best": 2},
        {"lines": [" ".join(LINES * 3)]},
    )
    def test_other_searches_are_not_compiled(self, lines=("7",), **options):
        class Found(Exception):
            pass

        self.function.side_effect = Found
        with self.assertRaises(Found):
            self.translator.translate(lines, **options)
        self.assertEqual(self.sizes(), [0])

    def test_a_search_that_needs_more_room_is_done_in_the_usual_way(self):
        options = {"return_scores": True, "alpha": 0.9, "extra_length": 60}
        expected = self.translator.translate(LINES[:2], **options)[0]
        with mock.patch.object(model_engine, "SIZES", (14,)):
            (found,) = self.translator.translate(LINES[:1], **options)
        self.assertEqual(self.sizes(), [0, 14, 0])
        self.assertEqual(found[0], expected[0])
        self.assertNear(found[1], expected[1], 1e-5)

    def test_all_sizes_can_be_compiled_before_the_first_line(self):
        found = tf.ones([1, 1, 1], tf.int32), tf.zeros([1, 1])
        function = self.function.return_value.get_concrete_function
        function.return_value.return_value = found
        self.function.side_effect = lambda *_: mock.DEFAULT
        with mock.patch.object(model_engine, "SIZES", (2, 3)):
            for step in self.translator.engine.warm_up_steps():
                step()
        self.assertEqual(self.sizes(), [2, 3])
