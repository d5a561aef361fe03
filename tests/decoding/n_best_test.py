"""The best translations of a line have different texts."""

import tensorflow as tf

import relpos_tf
from relpos_tf.decoding import engines
from relpos_tf.models import transformer
from tests import testing

# Three of them have the same text.
PIECES = ["<pad>", "</s>", "<unk>", "a", "b", "a", "a"]
HPARAMS = testing.HPARAMS.replace(
    vocab_size=len(PIECES), num_hidden_layers=1, extra_length=1
)


class Letters:
    """A tokenizer whose pieces are letters."""

    vocab_size = len(PIECES)

    def encode_batch(self, texts):
        return [[*map(PIECES.index, text), 1] for text in texts]

    def decode(self, ids):
        return "".join(PIECES[i] for i in ids if i > 2)

    def pieces(self):
        return PIECES


def translator_of(model):
    return relpos_tf.Translator(testing.randomize(model), Letters())


class DistinctTest(tf.test.TestCase):
    def test_each_text_comes_once_with_its_best_score(self):
        translator = translator_of(transformer.Transformer(HPARAMS))
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
