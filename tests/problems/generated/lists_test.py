"""Tests of the generated lists."""

import collections
import hashlib
import io
import itertools
import re

import sentencepiece
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import registry
from relpos_tf.problems.generated import lists

PAIRS = {split: list(lists.pairs(split)) for split in ("train", "dev", "test")}
SIZES = {"train": 20_000, "dev": 400, "test": 1000}
SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = frozenset(f"{SMALL} {TENS} hundred thousand million".split())


class ListsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("five days", 2),
        ("forty-seven", 3),
        ("five days and six days", 5),
        ("one, twenty-two, and three", 8),
    )
    def test_length_is_of_words_parts_and_marks(self, english, length):
        self.assertEqual(lists.length_of(english), length)

    @parameterized.parameters(*PAIRS)
    def test_every_length_is_there_equally_often(self, split):
        lengths = [
            len(english.replace("-", " - ").replace(",", " ,").split())
            for english, _ in PAIRS[split]
        ]
        self.assertLen(lengths, SIZES[split])
        counts = collections.Counter(lengths)
        self.assertEqual(
            counts, dict.fromkeys(range(3, 53), SIZES[split] // 50)
        )
        # In turn, so that any first part has all of them.
        self.assertEqual(lengths[:100], [*range(3, 53), *range(3, 53)])

    def test_splits_have_nothing_in_common(self):
        english = [e for split in SIZES for e, _ in PAIRS[split]]
        self.assertLen(set(english), sum(SIZES.values()))

    def test_split_is_by_sha256_of_the_english_side(self):
        for split in SIZES:
            for english, _ in PAIRS[split][:500]:
                digest = hashlib.sha256(english.encode()).hexdigest()
                rank = int(digest[:16], 16) % 1000
                expected = "train"
                if rank < 300:
                    expected = "dev" if rank < 100 else "test"
                self.assertEqual(expected, split)
                self.assertEqual(lists.split_of(english), split)

    def test_items_are_translated_one_by_one(self):
        known, ends = {}, []
        for english, translation in PAIRS["test"]:
            items = re.split(", and | and |, ", english)
            # The last two are joined by a word that numbers may have, too.
            *first, end = translation.split(", ")
            self.assertLen(first, max(0, len(items) - 2))
            ends.append((items[-2:], end))
            for item, words in zip(items, first, strict=False):
                self.assertEqual(known.setdefault(item, words), words)
        self.assertGreater(len(known), 1000)
        self.assertEqual(known["three apples"], "drei Äpfel")
        self.assertEqual(known["eighty-one"], "einundachtzig")
        checked = 0
        for items, end in ends:
            if all(item in known for item in items):
                expected = " und ".join(known[item] for item in items)
                self.assertEqual(end, expected)
                checked += 1
        self.assertGreater(checked, 50)

    def test_lists_of_numbers_are_never_of_two(self):
        # "one hundred and five" could be one number.
        counts = collections.Counter()
        for english, _ in PAIRS["test"]:
            items = re.split(", and | and |, ", english)
            nouns = {
                re.split("[ -]", item)[-1] for item in items
            } - NUMBER_WORDS
            counts[bool(nouns), len(items)] += 1
        self.assertEqual(counts[False, 2], 0)
        self.assertGreater(min(counts[False, n] for n in (1, 3, 5, 7)), 5)
        self.assertGreater(min(counts[True, n] for n in range(1, 10)), 5)

    def test_pairs_never_change(self):
        lines = [f"{e}\t{t}\n" for e, t in PAIRS["test"]]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        self.assertEqual(digest[:16], "d988cc66169dcb42")

    def test_pieces_are_as_even_as_words(self):
        made = registry.problem("translate_ende_lists")
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain(*PAIRS["train"][:3000]),
            model_writer=model,
            model_type="bpe",
            vocab_size=made.vocab_size,
            byte_fallback=True,
            minloglevel=2,
        )
        tokens = sentencepiece.SentencePieceProcessor(
            model_proto=model.getvalue()
        )
        lengths = [
            1 + max(map(len, tokens.encode(list(pair))))  # and the end
            for pair in PAIRS["test"]
        ]
        self.assertBetween(max(lengths), 53, 60)
        self.assertBetween(min(lengths), 3, 5)
        for low in range(5, 50, 5):
            found = sum(low <= length < low + 5 for length in lengths)
            self.assertBetween(found, 80, 120)  # 20 of each length

    def test_unknown_splits_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'dev'.*Received: 'eval'"):
            next(lists.pairs("eval"))

    def test_the_problem_has_these_pairs(self):
        made = registry.problem("translate_ende_lists")
        self.assertEqual(list(made.splits), ["train", "dev", "test"])
        self.assertEqual(list(made.pairs("test")), PAIRS["test"])


if __name__ == "__main__":
    absltest.main()
