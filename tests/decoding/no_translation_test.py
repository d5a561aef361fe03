"""Lines for which a real model finds nothing, with their attention.

Shapes: L layers, H heads, S source length.
"""

import logging

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf.models import transformer
from tests import testing

PIECES = ["<pad>", "</s>", "<unk>", "a", "b", "c", "d"]
HPARAMS = testing.HPARAMS.replace(
    vocab_size=len(PIECES), num_hidden_layers=1, extra_length=60
)
# There are fewer pieces than ids that a translation must have.
NOTHING = {"beam_size": 2, "min_length": 60, "no_repeat_ngram_size": 1}


class Letters:
    """A tokenizer whose pieces are letters."""

    vocab_size = len(PIECES)

    def encode(self, text):
        return [*map(PIECES.index, text), 1]

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    def decode(self, ids):
        return "".join(PIECES[i] for i in ids if i > 2)

    def pieces(self):
        return PIECES


class NoTranslationTest(tf.test.TestCase):
    def test_the_attention_of_no_piece_is_empty(self):
        model = transformer.Transformer(HPARAMS)
        translator = relpos_tf.Translator(testing.randomize(model), Letters())
        with self.assertLogs("relpos_tf", logging.WARNING) as logs:
            found = translator.translate(
                ["abc", "d"], **NOTHING, return_attention=True
            )
        for (text, attention), size in zip(found, (4, 2), strict=True):
            self.assertEqual((text, attention.target), ("", []))
            self.assertEqual(attention.weights.shape, (1, 2, 0, size))
        self.assertIn(
            "No translation was found for 2 lines (1, 2)", logs.output[-1]
        )


class NaNTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(1e30, np.nan)
    def test_logits_that_are_no_numbers_are_named(self, weight):
        model = transformer.Transformer(HPARAMS)
        for variable in model.variables:
            variable.assign(tf.fill(variable.shape, weight))
        translator = relpos_tf.Translator(model, Letters())
        translator.engine.name = "runs/mine/ckpt-7"
        with self.assertLogs("relpos_tf", logging.WARNING) as logs:
            found = translator.translate(["ab", "", "b"])
        self.assertEqual(found, ["", "", ""])
        self.assertLen(logs.output, 1)
        for words in ("2 lines (1, 3)", "NaN logits", "runs/mine/ckpt-7"):
            self.assertIn(words, logs.output[0])
