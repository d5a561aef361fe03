"""Words by their frequency, by hand."""

from absl.testing import absltest

from relpos_tf.comparison import words
from relpos_tf.training import metrics

FREQUENCIES = {"a": 5000, "cat": 1000, "dog": 999, "sat": 9, "ran": 10}


class WordsTest(absltest.TestCase):
    def test_words_are_the_tokens_of_bleu(self):
        line = 'He said: "3.5% -- it\'s (very) good."'
        self.assertEqual(
            " ".join(metrics.words(line)),
            'He said : " 3.5 % -- it\'s ( very ) good . "',
        )
        self.assertEqual(metrics.words("  "), [])
        self.assertEqual(words.count(["a b a", "b."]), {"a": 2, "b": 2, ".": 1})

    def test_words_are_counted_by_hand(self):
        references = ["a cat sat on a mat", "a dog ran"]
        translations = ["a cat ran on on a a", "the dog ran sat"]
        found = words.by_frequency(translations, references, FREQUENCIES)
        self.assertEqual([b["up_to"] for b in found], [0, 9, 99, 999, None])
        # Never: on, mat of the references; on, on, the of the translations;
        # one "on" is right. Up to 9: sat; a wrong sat. Up to 99: ran; of two,
        # the second is right. Up to 999: dog. Over: a, cat, a, a; a, cat, a, a
        # of which three are right, because the second line lacks its "a".
        self.assertEqual([b["words"] for b in found], [2, 1, 1, 1, 4])
        self.assertEqual([b["recall"] for b in found], [50, 0, 100, 100, 75])
        expected = [2 / (2 + 3), 0, 2 / (1 + 2), 1, 6 / (4 + 4)]
        for bucket, f1 in zip(found, expected, strict=True):
            self.assertAlmostEqual(bucket["f1"], 100 * f1)

    def test_bucket_without_words_has_no_score(self):
        found = words.by_frequency(["x"], ["a"], FREQUENCIES)
        self.assertEqual(
            found[0], {"up_to": 0, "words": 0, "recall": None, "f1": None}
        )
        self.assertEqual(found[-1]["recall"], 0.0)


if __name__ == "__main__":
    absltest.main()
