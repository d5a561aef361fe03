"""Tests of WMT 2014: the members of its archives."""

import re

import sacrebleu.dataset
from absl.testing import parameterized

from relpos_tf.problems import wmt


class WmtTest(parameterized.TestCase):
    @parameterized.parameters(("de", 3), ("fr", 5))
    def test_training_names_both_sides_of_every_corpus(self, target, number):
        corpora = wmt.splits(target)["train"]
        self.assertLen(corpora, number)
        self.assertLen({corpus.source.member for corpus in corpora}, number)
        for corpus in corpora:
            self.assertRegex(corpus.source.member, r"\ben(\.gz)?$")
            self.assertEqual(
                re.sub(r"\ben(?=$|\.gz$)", target, corpus.source.member),
                corpus.target.member,
            )

    @parameterized.parameters("de", "fr")
    def test_test_sets_are_those_of_sacrebleu(self, target):
        for name, (corpus,) in (
            ("wmt13", wmt.splits(target)["dev"]),
            ("wmt14/full", wmt.splits(target)["test"]),
        ):
            known = sacrebleu.dataset.DATASETS[name]
            self.assertEqual(
                known.langpairs[f"en-{target}"],
                [corpus.source.member, corpus.target.member],
            )
            self.assertEqual(known.data, [corpus.source.remote.address])
            self.assertEqual(known.md5, [corpus.source.remote.checksum])
