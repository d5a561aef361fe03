"""Lines for which a real model finds nothing, with their attention.

Shapes: L layers, H heads, S source length.
"""

import logging

import tensorflow as tf

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


if __name__ == "__main__":
    tf.test.main()
