"""Tests of the rules that clean training pairs."""

import collections

from absl.testing import absltest
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

    def test_every_rule_applied_is_counted(self):
        counts = collections.Counter()
        pairs = [
            ("a", "b"),
            ("", "b"),
            ("a", ""),
            ("a\0", "b"),
            ("\ufffd", "b"),
        ]
        kept = list(cleaning.clean_pairs(pairs, counts))
        self.assertEqual(kept, [("a", "b"), ("a", "b")])
        self.assertEqual(
            counts, {"read": 5, "blank": 2, "nul": 1, "undecodable": 1}
        )

    def test_blanks_collapse_and_escapes_are_undone(self):
        self.assertEqual(
            cleaning.collapse_blanks(" stone  &amp;\ttile\u2028. "),
            "stone & tile .",
        )


if __name__ == "__main__":
    absltest.main()
