"""Tests of BPE-dropout: unchanged text, and probabilities enumerated exactly.

`considered_once` and `algorithm_1` enumerate every outcome of two rules on a
small table of merges. SentencePiece follows the first. The second is Algorithm
1 of Provilkov et al. (2020), which draws again for every possible merge after
each merge. They agree where at most one merge is possible at a time.
"""

import collections
import concurrent.futures
import functools
import pathlib
import tempfile

import hypothesis
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import strategies
from sentencepiece import sentencepiece_model_pb2

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
    tokenizer.train(_TEXT, path, 400)
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


def considered_once(pieces, p, dropped=frozenset()):
    """Returns {segmentation: probability} if a merge is considered once."""

    def key(i):
        return len("".join(pieces[:i])), pieces[i], pieces[i + 1]

    rest = [i for i in possible(pieces) if key(i) not in dropped]
    if not rest:
        return {pieces: 1.0}
    best = rest[0]
    return mixture(
        (p, considered_once(pieces, p, dropped | {key(best)})),
        (1 - p, considered_once(merged(pieces, best), p, dropped)),
    )


def algorithm_1(pieces, p):
    """Returns {segmentation: probability} by Algorithm 1 of the paper."""
    candidates = possible(pieces)
    parts = [(p ** len(candidates), {pieces: 1.0})]
    for rank, i in enumerate(candidates):
        first_kept = p**rank * (1 - p)
        parts.append((first_kept, algorithm_1(merged(pieces, i), p)))
    return mixture(*parts)


@functools.cache
def frequencies(word, p):
    """Returns the shares of the segmentations that the tokenizer draws."""
    names = [piece.replace("\u2581", "_") for piece in _small.pieces()]
    drawn = _small.encode_with_dropout([word] * _DRAWS, p, seed=13)
    counts = collections.Counter(
        tuple(names[i] for i in ids[:-1]) for ids in drawn
    )
    return {key: count / _DRAWS for key, count in counts.items()}


def distance(first, second):
    """Returns the total variation distance of two distributions."""
    keys = {*first, *second}
    return sum(abs(first.get(k, 0) - second.get(k, 0)) for k in keys) / 2


class ProbabilitiesTest(parameterized.TestCase):
    @parameterized.product(word=("abcd", "ababcd", "efg cd"), p=(0.1, 0.5, 0.9))
    def test_segmentations_have_the_enumerated_probabilities(self, word, p):
        start = tuple("_" + word.replace(" ", "_"))
        expected = considered_once(start, p)
        self.assertAlmostEqual(sum(expected.values()), 1.0)
        self.assertGreater(len(expected), 5)
        found = frequencies(word, p)
        self.assertContainsSubset(found, expected)
        for key, probability in expected.items():
            sigma = (probability * (1 - probability) / _DRAWS) ** 0.5
            self.assertAlmostEqual(
                found.get(key, 0), probability, delta=4.5 * sigma, msg=key
            )

    @parameterized.parameters(0.1, 0.5, 0.9)
    def test_chains_of_merges_have_the_probabilities_of_the_paper(self, p):
        start = tuple("_efg")
        expected = algorithm_1(start, p)
        self.assertEqual(expected, considered_once(start, p))
        self.assertEqual(
            set(expected),
            {("_", "e", "f", "g"), ("_", "ef", "g"), ("_", "efg")},
        )
        self.assertLess(distance(frequencies("efg", p), expected), 0.01)

    @parameterized.parameters((0.0, 0.0), (0.1, 0.03), (0.5, 0.17), (1.0, 0.0))
    def test_competing_merges_are_a_little_rarer_than_in_the_paper(
        self, p, most
    ):
        once, paper = (
            rule(tuple("_abcd"), p) for rule in (considered_once, algorithm_1)
        )
        self.assertBetween(distance(once, paper), most - 0.01, most)
        pieces = [
            sum(len(key) * share for key, share in rule.items())
            for rule in (once, paper)
        ]
        self.assertBetween(pieces[0], pieces[1], 1.1 * pieces[1])


class TextTest(parameterized.TestCase):
    @parameterized.product(string=_STRINGS, p=(0.1, 0.7, 1.0))
    def test_text_comes_back_from_every_segmentation(self, string, p):
        for seed in range(5):
            for ids in _tokens.encode_with_dropout([string] * 5, p, seed):
                self.assert_sentence(ids, string)

    @hypothesis.settings(
        max_examples=60, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(
        strategies.text(
            strategies.characters(
                exclude_categories=["Cs"], exclude_characters="\u2581"
            ),
            max_size=12,
        )
    )
    def test_any_text_comes_back(self, string):
        for ids in _tokens.encode_with_dropout([string] * 5, 0.4, 3):
            self.assert_sentence(ids, string)

    def assert_sentence(self, ids, string):
        self.assertEqual(ids[-1], tokenizer.EOS_ID)
        self.assertTrue(all(i > tokenizer.UNKNOWN_ID for i in ids[:-1]))
        self.assertEqual(_tokens.decode(ids), string)

    def test_no_dropout_merges_all(self):
        plain = _tokens.encode_batch(_STRINGS)
        for p in (0.0, 1e-12):
            self.assertEqual(_tokens.encode_with_dropout(_STRINGS, p, 5), plain)

    def test_full_dropout_leaves_characters_and_bytes(self):
        (ids,) = _tokens.encode_with_dropout(["Ein Öl"], 1.0, 5)
        pieces = [_tokens.pieces()[i] for i in ids]
        self.assertEqual(
            pieces,
            [*"\u2581Ein\u2581", "<0xC3>", "<0x96>", "l", "</s>"],
        )


class SeedTest(absltest.TestCase):
    def test_the_result_depends_on_the_seed_alone(self):
        def encode(seed):
            return _tokens.encode_with_dropout(_TEXT, 0.1, seed)

        expected = {seed: encode(seed) for seed in (0, 1, 7, 2**31 - 1)}
        self.assertLen({str(rows) for rows in expected.values()}, 4)
        # A sentence is not segmented alike each time.
        self.assertNotEqual(expected[1][0], expected[1][3])
        # The first string draws nothing, so that the others draw first.
        empty = _tokens.encode_with_dropout(["", *_TEXT], 0.1, 7)
        self.assertEqual(empty[1:], expected[7])
        seeds = [*expected] * 20
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            results = list(threads.map(encode, seeds))
        for seed, rows in zip(seeds, results, strict=True):
            self.assertEqual(rows, expected[seed])

    def test_other_encoding_stays_as_it_was(self):
        plain = _tokens.encode_batch(_TEXT)
        self.assertNotEqual(
            _tokens.encode_with_dropout(_TEXT, 0.5, seed=3), plain
        )
        self.assertEqual(_tokens.encode_batch(_TEXT), plain)


if __name__ == "__main__":
    absltest.main()
