"""Tests of BPE-dropout: unchanged text, and probabilities enumerated exactly.

`algorithm_1` enumerates every outcome of Algorithm 1 of Provilkov et al. (2020)
on a small table of merges.
"""

import collections
import functools
import itertools
import pathlib
import random
import tempfile

import hypothesis
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import strategies
from sentencepiece import sentencepiece_model_pb2

from relpos_tf.data import bpe_dropout
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer

_TEXT = [
    "Ein Mann mit einem roten Hut steht vor einem Haus.",
    "A man with a red hat is standing in front of a house.",
    "Zwei Hunde laufen über eine grüne Wiese, während es regnet.",
] * 5
# "_" is SentencePiece's sign for a blank. The first merge has priority.
_MERGES = ("ab", "cd", "bc", "abc", "abcd", "_a", "_ab", "_abcd", "ef", "efg")
_CHARACTERS = "_abcdefg"
_STRINGS = (
    "",
    " ",
    "  two  in front, two behind  ",
    "Ein Mann steht vor einem Haus.",
    "tab\tand\u00a0no-break\u2028",
    "\U0001f468\u200d\U0001f469 e\u0301 \u00e9 \ufb01",
    "</s> <pad> <unk> <0x41>",
    "\u65e5\u672c\u8a9e \u0627\u0644\u0639",
    "nul\0inside \x01\x7f\ufffd\U0010ffff",
)
_DRAWS = 20_000


def setUpModule():
    global _folder, _tokens, _small
    _folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(_folder.name, "tokenizer.model")
    pieces.train(_TEXT, path, 400)
    _tokens = tokenizer.Tokenizer(path)
    path.write_bytes(with_merges(_tokens.model_bytes))
    _small = tokenizer.Tokenizer(path)


def tearDownModule():
    _folder.cleanup()


def with_merges(model_bytes):
    """Returns the model with the pieces of `_MERGES` and `_CHARACTERS`."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    del proto.pieces[3 + 256 :]
    for i, piece in enumerate((*_MERGES, *_CHARACTERS)):
        proto.pieces.add(piece=piece.replace("_", "\u2581"), score=-i)
    return proto.SerializeToString()


def possible(pieces):
    """Returns the indices of pairs that may merge, the first one in rank 1."""
    joined = map("".join, zip(pieces, pieces[1:], strict=False))
    ranked = [
        (_MERGES.index(p), i) for i, p in enumerate(joined) if p in _MERGES
    ]
    return [i for _, i in sorted(ranked)]


def merged(pieces, i):
    return (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])


def mixture(*parts):
    """Returns the mixture of (weight, distribution) parts."""
    total = collections.Counter()
    for weight, distribution in parts:
        for key, probability in distribution.items():
            total[key] += weight * probability
    return total


def product(first, second):
    """Returns the distribution of a segmentation followed by another."""
    return {
        a + b: first[a] * second[b] for a, b in itertools.product(first, second)
    }


def algorithm_1(pieces, p):
    """Returns {segmentation: probability} by Algorithm 1 of the paper."""
    candidates = possible(pieces)
    parts = [(p ** len(candidates), {pieces: 1.0})]
    for rank, i in enumerate(candidates):
        first_kept = p**rank * (1 - p)
        parts.append((first_kept, algorithm_1(merged(pieces, i), p)))
    return mixture(*parts)


def encode(texts, p, seed):
    """Returns ids of texts, segmented anew."""
    return _tokens.segment_anew(_tokens.encode_batch(texts), p, seed)


@functools.cache
def frequencies(word, p):
    """Returns the shares of the segmentations that the tokenizer draws."""
    names = [piece.replace("\u2581", "_") for piece in _small.pieces()]
    drawn = _small.segment_anew([_small.encode(word)] * _DRAWS, p, seed=13)
    counts = collections.Counter(
        tuple(names[i] for i in ids[:-1]) for ids in drawn
    )
    return {key: count / _DRAWS for key, count in counts.items()}


class ProbabilitiesTest(parameterized.TestCase):
    @parameterized.product(
        text=("abcd", "ababcd", "efg cd", "bcbab"), p=(0.1, 0.5, 0.9)
    )
    def test_segmentations_have_the_probabilities_of_the_paper(self, text, p):
        # The algorithm segments each word by itself.
        expected = {(): 1.0}
        for word in text.split():
            expected = product(expected, algorithm_1(("_", *word), p))
        self.assertAlmostEqual(sum(expected.values()), 1.0)
        self.assertGreater(len(expected), 3)
        found = frequencies(text, p)
        self.assertContainsSubset(found, expected)
        for key, probability in expected.items():
            sigma = (probability * (1 - probability) / _DRAWS) ** 0.5
            self.assertAlmostEqual(
                found.get(key, 0), probability, delta=4.5 * sigma, msg=key
            )

    def test_merges_across_words_are_possible_if_a_piece_asks_for_them(self):
        pieces = ("a\u2581b", "\u2581b", "a", "\u2581", "b")
        segmenter = bpe_dropout.Segmenter(
            {i: (piece, -float(i)) for i, piece in enumerate(pieces)}
        )
        for p, expected in ((0.0, [3, 0, 9]), (1.0, [3, 2, 3, 4, 9])):
            self.assertEqual(
                segmenter.segment([3, 2, 3, 4, 9], p, random.Random(1)),
                expected,
            )

    def test_pieces_of_characters_that_are_no_pieces_stay(self):
        segmenter = bpe_dropout.Segmenter({3: ("ab", 0.0), 4: ("a", -1.0)})
        self.assertEqual(
            segmenter.segment([3, 4, 4], 1.0, random.Random(1)), [3, 4, 4]
        )


class TextTest(parameterized.TestCase):
    @parameterized.product(string=_STRINGS, p=(0.1, 0.7, 1.0))
    def test_text_comes_back_from_every_segmentation(self, string, p):
        for seed in range(5):
            for ids in encode([string] * 5, p, seed):
                self.assert_sentence(ids, string)

    @hypothesis.settings(
        max_examples=100, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(
        strategies.text(
            strategies.one_of(
                strategies.sampled_from("Einem Hausgrü"),
                strategies.characters(
                    exclude_categories=["Cs"], exclude_characters="\u2581"
                ),
            ),
            max_size=20,
        )
    )
    def test_any_text_comes_back(self, string):
        for ids in encode([string] * 5, 0.4, 3):
            self.assert_sentence(ids, string)
        self.assertEqual(encode([string], 0.0, 3), [_tokens.encode(string)])

    def assert_sentence(self, ids, string):
        self.assertEqual(ids[-1], tokenizer.EOS_ID)
        self.assertTrue(all(i > tokenizer.UNKNOWN_ID for i in ids[:-1]))
        self.assertEqual(_tokens.decode(ids), string)

    def test_no_dropout_merges_as_sentencepiece_does(self):
        plain = _tokens.encode_batch((*_STRINGS, *_TEXT))
        characters = _tokens.segment_anew(plain, 1.0, 5)
        self.assertGreater(sum(map(len, characters)), 2 * sum(map(len, plain)))
        for rows in (plain, characters):
            for p in (0.0, 1e-12, 1e-320):
                self.assertEqual(_tokens.segment_anew(rows, p, 5), plain)

    def test_full_dropout_leaves_characters_and_bytes(self):
        (ids,) = encode(["Ein Öl"], 1.0, 5)
        pieces = [_tokens.pieces()[i] for i in ids]
        self.assertEqual(
            pieces,
            [*"\u2581Ein\u2581", "<0xC3>", "<0x96>", "l", "</s>"],
        )

    def test_long_words_take_no_long_time(self):
        text = "Haus" * 400
        (ids,) = encode([text], 0.1, 5)
        self.assert_sentence(ids, text)


class SeedTest(absltest.TestCase):
    def test_the_result_depends_on_the_seed_alone(self):
        rows = {seed: encode(_TEXT, 0.1, seed) for seed in (0, 1, 2**31 - 1)}
        self.assertLen({str(row) for row in rows.values()}, 3)
        for seed, expected in rows.items():
            self.assertEqual(encode(_TEXT, 0.1, seed), expected)
        # A sentence is not segmented alike each time.
        self.assertNotEqual(rows[1][0], rows[1][3])

    def test_other_processes_and_versions_draw_the_same(self):
        rows = _small.segment_anew([_small.encode("abcd efg")] * 4, 0.5, 7)
        names = [piece.replace("\u2581", "_") for piece in _small.pieces()]
        self.assertEqual(
            [" ".join(names[i] for i in ids[:-1]) for ids in rows],
            [
                "_ab c d _ e f g",
                "_ab c d _ ef g",
                "_ abcd _ efg",
                "_ abc d _ efg",
            ],
        )


if __name__ == "__main__":
    absltest.main()
