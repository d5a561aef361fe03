"""Tests of BPE-dropout: unchanged text, and probabilities enumerated exactly.

`algorithm_1` enumerates every outcome of Algorithm 1 of Provilkov et al. (2020)
on a small table of merges.
"""

import collections
import itertools
import pathlib
import random
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
from sentencepiece import sentencepiece_model_pb2

from relpos_tf.data import pieces
from relpos_tf.data import tokenizer
from relpos_tf.utils import text as text_lib

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
    "Ein Mann steht vor einem Haus.",
    "\U0001f468\u200d\U0001f469 \u00e9 \ufb01",
    "</s> <pad> <unk> <0x41>",
    "\u65e5\u672c\u8a9e \u0627\u0644\u0639",
    "nul\0inside \x01\x7f\ufffd\U0010ffff",
    "Haus" * 100,
)
_DRAWS = 20_000


def setUpModule():
    global _tokens, _small
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer.model")
        pieces.learn(pieces.count_words(_TEXT), path, 400)
        _tokens = tokenizer.Tokenizer(path)
        path.write_bytes(with_merges(_tokens.model_bytes))
        _small = tokenizer.Tokenizer(path)


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
    known = [(i, p) for i, p in enumerate(joined) if p in _MERGES]
    ranked = [(_MERGES.index(p), i) for i, p in known]
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


def segmented(tokens, rows, p, seed):
    """Returns ids of the same texts, segmented anew."""
    draws, segment = random.Random(seed), tokens.segmenter.segment
    return [segment(ids, p, draws) for ids in rows]


def drawn(text, number, p, seed):
    """Returns segmentations of a text with the small table of merges."""
    names = [piece.replace("\u2581", "_") for piece in _small.pieces()]
    rows = segmented(_small, [_small.encode(text)] * number, p, seed)
    return [tuple(names[i] for i in ids[:-1]) for ids in rows]


class ProbabilitiesTest(parameterized.TestCase):
    @parameterized.product(text=("ababcd", "efg cd", "bcbab"), p=(0.1, 0.5))
    def test_segmentations_have_the_probabilities_of_the_paper(self, text, p):
        # The algorithm segments each word by itself.
        expected = {(): 1.0}
        for word in text.split():
            expected = product(expected, algorithm_1(("_", *word), p))
        self.assertAlmostEqual(sum(expected.values()), 1.0)
        self.assertGreater(len(expected), 3)
        found = collections.Counter(drawn(text, _DRAWS, p, seed=13))
        self.assertContainsSubset(found, expected)
        for key, probability in expected.items():
            sigma = (probability * (1 - probability) / _DRAWS) ** 0.5
            self.assertAlmostEqual(
                found[key] / _DRAWS, probability, delta=4.5 * sigma, msg=key
            )


class TextTest(parameterized.TestCase):
    @parameterized.parameters(*_STRINGS)
    def test_text_comes_back_from_every_segmentation(self, string):
        for p, seed in itertools.product((0.1, 0.7, 1.0), range(5)):
            rows = [_tokens.encode(string)] * 5
            for ids in segmented(_tokens, rows, p, seed):
                self.assertEqual(ids[-1], text_lib.EOS_ID)
                self.assertTrue(all(i > text_lib.UNKNOWN_ID for i in ids[:-1]))
                self.assertEqual(_tokens.decode(ids), string)

    def test_no_dropout_merges_as_sentencepiece_does(self):
        plain = list(map(_tokens.encode, (*_STRINGS, *_TEXT)))
        characters = segmented(_tokens, plain, 1.0, 5)
        self.assertGreater(sum(map(len, characters)), 2 * sum(map(len, plain)))
        for rows in (plain, characters):
            for p in (0.0, 1e-12, 1e-320):
                self.assertEqual(segmented(_tokens, rows, p, 5), plain)


class SeedTest(absltest.TestCase):
    def test_other_processes_and_versions_draw_the_same(self):
        self.assertEqual(
            list(map(" ".join, drawn("abcd efg", 4, 0.5, seed=7))),
            ["_ab c d _ e f g", "_ab c d _ ef g"]
            + ["_ abcd _ efg", "_ abc d _ efg"],
        )
