"""The example of composed tunes: its rule, and its steps with a cache."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import shaw
from tests import examples

TUNES = examples.load("tunes")


def phrases_of(tune):
    """Returns the notes of each phrase, a list of lists."""
    phrases = [[]]
    for token in tune:
        if TUNES.NAMES[token] == "|":
            phrases.append([])
        else:
            phrases[-1].append(token)
    return phrases[:-1]


def recompute(model, prompts, length, seed):
    """Composes without cache: each note from a call with all before it."""
    ids, rows = prompts, []
    while ids.shape[1] < length:
        logits = model(ids)
        rows = logits  # all rows so far
        note = TUNES.draw(logits[:, -1], [seed, ids.shape[1]])
        ids = np.concatenate([ids, note[:, None]], 1)
    return ids, rows


class DataTest(absltest.TestCase):
    def test_tunes_repeat_a_motif_at_other_heights(self):
        tunes = TUNES.tunes(300, 5, seed=3)
        self.assertEqual(tunes.shape, (300, 45))
        heights, leaps, notes = set(), set(), set()
        for tune in tunes:
            first, *others = phrases_of(tune)
            leaps |= {b - a for a, b in zip(first, first[1:], strict=False)}
            for phrase in others:
                self.assertLen(phrase, 8)
                height = phrase[0] - first[0]
                self.assertEqual([note + height for note in first], phrase)
                heights.add(height)
                notes |= set(phrase)
        self.assertEqual(heights, set(range(-8, 9)))
        self.assertEqual(leaps, set(range(-2, 3)))
        self.assertEqual(notes, set(range(15)))
        np.testing.assert_array_equal(TUNES.tunes(300, 5, seed=3), tunes)

    def test_a_wrong_note_is_counted_where_it_is(self):
        tunes = TUNES.tunes(2, 4, seed=3)
        obeyed = TUNES.obeys(tunes)
        self.assertEqual(obeyed.shape, (2, 3, 8))
        self.assertTrue(obeyed.all())
        phrases = tunes.reshape(2, 4, 9)
        phrases[0, 2, 5] += 1
        phrases[1, 1, 8] = 0  # in the place of a bar line
        phrases[1, 3, 0] += 1  # seven notes do not follow it
        wrong = np.argwhere(~TUNES.obeys(tunes)).tolist()
        others = [[1, 2, i] for i in range(7)]
        self.assertEqual(wrong, [[0, 1, 4], [1, 0, 7], *others])

    def test_tunes_are_shown_as_notes(self):
        self.assertEqual(TUNES.show([0, 7, 14, 15]), "C c c' |")

    def test_the_score_counts_notes_that_are_not_free(self):
        def bars(ids):
            return np.eye(16)[np.full(ids.shape, TUNES.BAR)]

        self.assertEqual(TUNES.score(bars, 3, seed=1), 1 / 8)


class ComposerTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        tf.config.run_functions_eagerly(True)  # quicker than a graph
        self.addCleanup(tf.config.run_functions_eagerly, False)

    def test_a_short_training_lowers_the_loss_of_new_tunes(self):
        def loss(model):
            ids = TUNES.tunes(20, 2, seed=2)
            losses = keras.losses.sparse_categorical_crossentropy(
                ids[:, 1:], model(ids[:, :-1]), from_logits=True
            )
            return np.mean(losses)

        with mock.patch.multiple(TUNES, SHORT=2, UPDATES=8):
            model = TUNES.train(1, seed=1)
        uniform = np.log(len(TUNES.NAMES))
        self.assertLess(loss(model), uniform - 0.1)
        self.assertGreater(loss(TUNES.Composer()), uniform)

    def test_composing_with_a_cache_equals_recomputing_everything(self):
        tf.config.run_functions_eagerly(False)  # as the example does
        model = TUNES.Composer()
        prompts = TUNES.tunes(3, 1, seed=5)[:, :1]
        model(prompts)  # builds
        tunes, logits = model.compose(prompts, 15, seed=7)
        expected, rows = recompute(model, prompts, 15, seed=7)
        np.testing.assert_array_equal(tunes, expected)
        self.assertGreater(np.abs(logits).max(), 1.0)
        np.testing.assert_allclose(logits, rows, rtol=1e-5, atol=1e-5)

    @parameterized.parameters(shaw.Shaw(4), rotary.Rotary())
    def test_steps_are_exact_in_float64_with_any_positions(self, scheme):
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy("float64")
        self.addCleanup(keras.config.set_dtype_policy, policy)
        model = TUNES.Composer([scheme])
        prompts = TUNES.tunes(3, 1, seed=5)
        model(prompts)  # builds
        tunes, logits = model.compose(prompts, 15, seed=7)
        np.testing.assert_allclose(
            logits, model(tunes[:, :-1]), rtol=0, atol=1e-12
        )


if __name__ == "__main__":
    absltest.main()
