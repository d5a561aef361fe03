"""The best translations differ, or nothing is found: with real models.

Shapes: L layers, H heads, S source length.
"""

import logging

import numpy as np
import tensorflow as tf

import relpos_tf
from relpos_tf.decoding import engines
from relpos_tf.models import transformer
from tests import testing

# Three of them have the same text.
PIECES = ["<pad>", "</s>", "<unk>", "a", "b", "a", "a"]
HPARAMS = testing.HPARAMS.replace(
    vocab_size=len(PIECES),
    num_hidden_layers=1,
    extra_length=1,
    self_attention_type="dot_product",
    pos="timing",
)
# There are fewer pieces than ids that a translation must have.
NOTHING = {
    "beam_size": 2,
    "min_length": 9,
    "no_repeat_ngram_size": 1,
    "extra_length": 20,
}


class Letters:
    """A tokenizer whose pieces are letters."""

    vocab_size = len(PIECES)

    def encode(self, text):
        return [*map(PIECES.index, text), 1]

    def decode(self, ids):
        return "".join(PIECES[i] for i in ids if i > 2)

    def pieces(self):
        return PIECES


def made():
    """Returns a translator, and its model."""
    model = testing.randomize(transformer.Transformer(HPARAMS))
    return relpos_tf.Translator(model, Letters()), model


class TranslationsTest(tf.test.TestCase):
    def test_each_text_comes_once_with_its_best_score(self):
        translator, _ = made()
        settings = {"beam_size": 7, "return_scores": True}
        lines = ["a", "ab", "b"]
        best = translator.translate(lines, **settings)
        numbers = []
        for line, (text, score) in zip(lines, best, strict=True):
            ((texts, scores),) = translator.translate(
                [line], **settings, n_best=7
            )
            found = [s for s in scores if s > engines.NO_HYPOTHESIS]
            self.assertLen(set(texts[: len(found)]), len(found))
            numbers.append(len(found))
            self.assertEqual(texts[len(found) :], [""] * (7 - len(found)))
            self.assertEqual(texts[0], text)
            self.assertNear(scores[0], score, 1e-5)
        self.assertLess(min(numbers), 7)  # some hypotheses spell one text
        self.assertGreater(min(numbers), 1)

    def test_the_attention_of_no_piece_is_empty(self):
        translator, _ = made()
        with self.assertLogs("relpos_tf", logging.WARNING) as logs:
            found = translator.translate(
                ["aba", "b"], **NOTHING, return_attention=True
            )
        for (text, attention), size in zip(found, (4, 2), strict=True):
            self.assertEqual((text, attention.target), ("", []))
            self.assertEqual(attention.weights.shape, (1, 2, 0, size))
        self.assertIn(
            "No translation was found for 2 lines (1, 2)", logs.output[-1]
        )

    def test_logits_that_are_no_numbers_are_named(self):
        translator, model = made()
        translator.engine.name = "runs/mine/ckpt-7"
        for weight in (1e30, np.nan):
            for variable in model.variables:
                variable.assign(tf.fill(variable.shape, weight))
            with self.assertLogs("relpos_tf", logging.WARNING) as logs:
                found = translator.translate(["ab", "", "b"])
            self.assertEqual(found, ["", "", ""])
            self.assertLen(logs.output, 1)
            for words in ("2 lines (1, 3)", "NaN logits", "runs/mine/ckpt-7"):
                self.assertIn(words, logs.output[0])
