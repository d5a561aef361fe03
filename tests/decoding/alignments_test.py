"""Words that are aligned by attention."""

import pathlib

import numpy as np
from absl.testing import absltest

from relpos_tf.data import tokenizer
from relpos_tf.decoding import engines
from relpos_tf.utils import text as text_lib
from tests import t2t_checkpoint
from tests import tiny_run
from tests.decoding import translator_test


class WordNumbersTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.engine = translator_test.EchoEngine()
        self.engine.tokenizer = tokenizer.load(
            tiny_run.path() / "tokenizer.model"
        )

    def test_pieces_belong_to_the_words_that_they_spell(self):
        # Most of these words are a blank and bytes.
        text = "The train, \u6771\u4eac \U0001f600x qqq \u20ac 7"
        encode = self.engine.tokenizer.encode
        expected = [
            number
            for number, word in enumerate(text.split())
            for _ in encode(word)[:-1]
        ]
        self.assertGreater(len(expected), 20)
        for end in ([], [text_lib.EOS_ID], [text_lib.EOS_ID, 0, 9]):
            ids = encode(text)[:-1] + end
            self.assertEqual(self.engine.word_numbers(ids), expected)

    def test_blanks_at_the_end_belong_to_the_last_word(self):
        ids = self.engine.tokenizer.encode("a \u20ac")
        (blank,) = {i for i in ids if self.engine.text([9, i]).endswith(" ")}
        self.assertEqual(
            self.engine.word_numbers([*ids[:-1], blank]),
            [0] + [1] * (len(ids) - 1),
        )
        self.assertEqual(self.engine.word_numbers([blank, blank]), [])
        self.assertEqual(self.engine.word_numbers([]), [])

    def test_pieces_of_tensor2tensor(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / "vocab.subwords"
        pieces = t2t_checkpoint.subtokens(59)
        pieces[2:2] = ["dog_", ", _"]
        path.write_text("".join(f"'{piece}'\n" for piece in pieces))
        self.engine.tokenizer = tokenizer.load(path)
        ids = self.engine.tokenizer.encode("ab dog, dog c")
        found = [pieces[i] for i in ids[:-1]]
        self.assertEqual(
            found, ["a", "b", "_", "dog_", ", _", "dog_", "c", "_"]
        )
        self.assertEqual(
            self.engine.word_numbers(ids), [0, 0, 0, 1, 1, 2, 3, 3]
        )


class WordPairsTest(absltest.TestCase):
    def test_words_follow_their_pieces(self):
        """Two source words of 2 and 1 pieces, three target words."""
        first = [[0.1, 0.1, 0.6, 0.2], [0.5, 0.2, 0.2, 0.1]]
        weights = [
            first[0],  # -> word 1
            first[1],  # -> word 0
            [0.1, 0.7, 0.1, 0.1],  # -> word 0, by its other piece
            [0.0, 0.2, 0.1, 0.7],  # -> EOS: no word
            [0.4, 0.3, 0.2, 0.1],  # EOS itself
        ]
        # Of two layers and two heads, three have what turns the mean around.
        mean = np.asarray(weights, np.float32)
        far = np.full_like(mean, 0.25)
        heads = np.stack([[mean, far], [far, 2 * mean - far]])
        attention = engines.Attention(
            ["a", "b", "c", "</s>"],
            ["u", "v", "w", "x", "</s>"],
            heads,
            [0, 0, 1],
            [0, 0, 1, 2],
        )
        self.assertEqual(attention.word_pairs(), [(0, 0), (0, 1), (1, 0)])
        found = engines.Translation(
            ["uv w x", ""], [0.0, 0.0], True, [], [attention, None]
        )
        self.assertEqual(found.alignment(0), "0-0 0-1 1-0")
        self.assertEqual(found.alignment(1), "")
