"""Tests of the rules that clean training pairs."""

import collections

from absl.testing import parameterized

from relpos_tf.problems import cleaning


class CleaningTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("kept", " a  b ", "c", ("a  b", "c"), None),
        ("nul", "a\0b", "c", ("ab", "c"), "nul"),
        ("blank source", "", "c", None, "blank"),
        ("blank target", "a", " \t\u00a0", None, "blank"),
        ("only nul", "a", "\0", None, "blank"),
        ("broken bytes", "a", "b\ufffd", None, "undecodable"),
        ("longest", "a" * 4000, "b" * 4000, ("a" * 4000, "b" * 4000), None),
        ("too long", "a" * 4001, "b" * 4001, None, "long"),
        ("lopsided but short", "a", "b" * 59, ("a", "b" * 59), None),
        ("lopsided", "b" * 60, "a", None, "ratio"),
    )
    def test_pairs_are_kept_or_dropped_for_the_reason_stated(
        self, source, target, pair, rule
    ):
        self.assertEqual(cleaning.clean_pair(source, target), (pair, rule))

    def test_every_rule_applied_is_counted_and_so_are_hints(self):
        counts = collections.Counter()
        pairs = [
            ("a", "b"),
            ("", "b"),
            ("a", ""),
            ("a\0", "b"),
            ("\ufffd", "b"),
            (" c", "c "),
        ]
        kept = list(cleaning.clean_pairs(pairs, counts))
        self.assertEqual(kept, [("a", "b"), ("a", "b"), ("c", "c")])
        rules = {"blank": 2, "nul": 1, "undecodable": 1}
        self.assertEqual(counts, {"read": 6, "equal": 1, **rules})
        self.assertEqual(
            cleaning.dropped(counts), {"blank": 2, "undecodable": 1}
        )

    @parameterized.parameters(
        ({}, []),
        ({"blank": 3, "ratio": 2, "nul": 90, "equal": 5}, []),
        (
            {"blank": 4, "ratio": 23},
            [("27.0 %", "23 of 27", "far longer", "line N")],
        ),
        ({"undecodable": 6}, [("6.0 %", "not UTF-8", "iconv")]),
        ({"equal": 100}, [("100.0 %", "equal", "TSV", "TMX")]),
    )
    def test_more_than_one_in_twenty_is_worth_a_warning(self, counts, expected):
        found = cleaning.warnings({"read": 100, **counts}, "a.en")
        self.assertLen(found, len(expected))
        for line, words in zip(found, expected, strict=True):
            for word in ("a.en", *words):
                self.assertIn(word, line)

    @parameterized.parameters(
        ([("", "b"), ("", "c"), ("d", "e\ufffd")], "a side is empty"),
        ([("é".encode("latin1").decode(errors="replace"), "b")], "iconv"),
        ([("a" * 5000, "b" * 4000)], "a line feed"),
        ([], "none"),
    )
    def test_where_nothing_is_left_the_reason_is_given(self, pairs, word):
        counts = collections.Counter()
        self.assertEmpty(list(cleaning.clean_pairs(pairs, counts)))
        message = cleaning.nothing_left(counts, "a.en, a.de")
        self.assertIn("a.en, a.de", message)
        self.assertIn(word, message)
