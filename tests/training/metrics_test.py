"""Tests of the scores: against sacreBLEU's command and by hand."""

import gzip
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from sacrebleu import metrics as sacrebleu_metrics

from relpos_tf import errors
from relpos_tf.training import metrics
from relpos_tf.training import run_config

MULTI30K = (
    pathlib.Path(__file__)
    .resolve()
    .parents[3]
    .joinpath("shared", "data", "multi30k", "test_2016_flickr.de.gz")
)
REFERENCES = (
    "The cat sat on the mat, and it did not move.",
    "Prices rose by 3.5% in 2018.",
    "Elle est partie hier à Genève.",
    "A well-known author wrote it.",
    "NASA's probe is gone!",
)
HYPOTHESES = (
    "the cat sat on the mat, and it didn't move.",
    "Prices rose by 3.5% in 2018.",
    "Elle est allée hier à Genève",
    "",
    "NASA's probe has gone!",
)


def command_scores(folder, hypotheses, references):
    """Returns the output of `sacrebleu -m bleu chrf`, as a list of dicts."""
    paths = pathlib.Path(folder, "hypotheses"), pathlib.Path(folder, "refs")
    for path, lines in zip(paths, (hypotheses, references), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", paths[1], "-i", paths[0]]
    command += ["-m", "bleu", "chrf", "-w", "9"]
    environment = os.environ | {"PYTHONUTF8": "1"}
    return json.loads(subprocess.check_output(command, env=environment))


class CorpusBleuTest(parameterized.TestCase):
    @parameterized.parameters(5, 3, 1)
    def test_scores_are_those_of_the_sacrebleu_command(self, lines):
        hypotheses, references = HYPOTHESES[:lines], REFERENCES[:lines]
        scores = metrics.corpus_bleu(hypotheses, references)
        with tempfile.TemporaryDirectory() as folder:
            bleu, chrf = command_scores(folder, hypotheses, references)
        self.assertGreater(scores.bleu, 0)
        self.assertAlmostEqual(scores.bleu, bleu["score"], places=7)
        self.assertAlmostEqual(scores.chrf, chrf["score"], places=7)
        self.assertEqual(scores.bleu_signature, bleu["signature"])
        self.assertEqual(scores.chrf_signature, chrf["signature"])
        self.assertIn(
            f"BP = {scores.brevity_penalty:.3f}", bleu["verbose_score"]
        )

    def test_bleu_is_the_mean_of_precisions_times_the_brevity_penalty(self):
        # 5 tokens against 6; matches of 1 to 4 grams: 5/5, 4/4, 3/3, 2/2.
        scores = metrics.corpus_bleu(["a b c d e"], ["a b c d e f"])
        penalty = math.exp(1 - 6 / 5)
        self.assertAlmostEqual(scores.brevity_penalty, penalty)
        self.assertAlmostEqual(scores.bleu, 100 * penalty)
        # With c replaced: 4/5, 2/4, and no longer match, smoothed to
        # 1/2 and 1/4 of a match: (1/2)/3 and (1/4)/2.
        scores = metrics.corpus_bleu(["a b x d e"], ["a b c d e"])
        precisions = (4 / 5) * (2 / 4) * (1 / 6) * (1 / 8)
        self.assertAlmostEqual(scores.bleu, 100 * precisions**0.25)

    def test_chrf_is_the_f2_of_character_grams(self):
        # Grams of "abc" in "abd": 2/3 of length 1, 1/2 of 2, 0/1 of 3; longer
        # ones do not exist. Precision and recall are alike, hence F as well.
        scores = metrics.corpus_bleu(["abc"], ["abd"])
        self.assertAlmostEqual(scores.chrf, 100 * (2 / 3 + 1 / 2 + 0) / 3)
        # "ab" in "abab": precision 1 and 1; recall 2/4 and 1/3; the reference
        # has longer grams, the hypothesis none, so two lengths count.
        precision, recall = 1.0, (2 / 4 + 1 / 3) / 2
        f2 = 5 * precision * recall / (4 * precision + recall)
        scores = metrics.corpus_bleu(["ab"], ["abab"])
        self.assertAlmostEqual(scores.chrf, 100 * f2)

    def test_case_counts(self):
        scores = metrics.corpus_bleu(["A B C D"], ["a b c d"])
        self.assertEqual(scores.bleu, 0)
        self.assertEqual(scores.exact_match, 0)

    def test_exact_match_is_a_percentage_of_lines(self):
        scores = metrics.corpus_bleu(
            ["one", " two ", "Three", "four", ""], ["one", "two", "x", "y", "z"]
        )
        self.assertEqual(scores.exact_match, 40)
        self.assertEqual(scores.lines, 5)
        self.assertEqual(scores.empty_lines, 1)

    def test_references_themselves_score_one_hundred_without_warning(self):
        scores = metrics.corpus_bleu(REFERENCES, REFERENCES)
        self.assertAlmostEqual(scores.bleu, 100)
        self.assertAlmostEqual(scores.chrf, 100)
        self.assertEqual(scores.exact_match, 100)
        self.assertEqual(scores.warnings, ())

    def test_empty_output_scores_zero_and_warns(self):
        scores = metrics.corpus_bleu(["", " ", ""], REFERENCES[:3])
        self.assertEqual(scores.bleu, 0)
        self.assertEqual(scores.chrf, 0)
        self.assertEqual(scores.brevity_penalty, 0)
        self.assertEqual(scores.empty_lines, 3)
        self.assertEqual(scores.warnings, ("All 3 hypotheses are empty.",))

    def test_iterators_are_read_once(self):
        scores = metrics.corpus_bleu(iter(HYPOTHESES), iter(REFERENCES))
        self.assertEqual(scores, metrics.corpus_bleu(HYPOTHESES, REFERENCES))

    @parameterized.parameters(
        ("<seg id='1'>Prices rose.</seg>", "1 lines of the {} hold .sgm"),
        ('<DOC docid="x">', "1 lines of the {} hold .sgm"),
        ("a well @-@ known one", '1 lines of the {} hold " @-@ "'),
        ("a , b , c , d, e", "3 of 4 commas in the {} follow a blank"),
    )
    def test_text_that_is_not_plain_warns_about_its_side(self, line, warning):
        for side in ("hypotheses", "references"):
            sides = {"hypotheses": ["plain"], "references": ["plain"]}
            sides[side] = [line]
            (found,) = metrics.corpus_bleu(**sides).warnings
            self.assertStartsWith(found, warning.format(side))

    def test_references_that_were_not_utf_8_are_warned_of(self):
        lines = ["a b c", "sch\ufffdn", "Gr\ufffd\ufffde"]
        (found,) = metrics.corpus_bleu(["a b c"] * 3, lines).warnings
        self.assertStartsWith(found, "2 of 3 references are not UTF-8")
        self.assertEqual(metrics.corpus_bleu(lines, ["a b c"] * 3).warnings, ())

    @parameterized.parameters(
        "x < y and a segment, a document", "a , b , c", "a , b , c , d, e, f, g"
    )
    def test_plain_text_does_not_warn(self, line):
        self.assertEqual(metrics.corpus_bleu([line], [line]).warnings, ())

    def test_different_line_counts_are_refused_with_both_counts(self):
        with self.assertRaisesRegex(
            errors.UserError, "Received: 5 hypotheses and 3 references"
        ):
            metrics.corpus_bleu(HYPOTHESES, REFERENCES[:3])

    @parameterized.parameters(([],), ([""],), (["", " "],))
    def test_no_reference_is_refused(self, references):
        with self.assertRaisesRegex(
            errors.UserError, f"Received: {len(references)} references"
        ):
            metrics.corpus_bleu(["text"] * len(references), references)

    def test_json_holds_every_attribute(self):
        scores = metrics.corpus_bleu(HYPOTHESES, REFERENCES)
        record = json.loads(scores.to_json())
        record["warnings"] = tuple(record["warnings"])
        self.assertEqual(metrics.Scores(**record), scores)
        self.assertNotIn("\n", scores.to_json())


class TokenizedBleuTest(absltest.TestCase):
    def test_counts_lower_case_tokens_of_moses_without_smoothing(self):
        # Ten tokens on each side, of which the ninth alone differs.
        score, signature = metrics.tokenized_bleu(
            ["Der Hund im T-Shirt rennt, und er schläft."],
            ["der hund im t-shirt rennt, und er ruht."],
            "de",
        )
        precisions = (9 / 10) * (7 / 9) * (6 / 8) * (5 / 7)
        self.assertAlmostEqual(score, 100 * precisions**0.25)
        self.assertStartsWith(signature, "nrefs:1|case:lc|")
        score, _ = metrics.tokenized_bleu(["a b c d"], ["a b c e"], "en")
        self.assertEqual(score, 0.0)

    def test_quotes_are_normalised_and_escaped(self):
        # As in Multi30k's lc.norm.tok files.
        score, _ = metrics.tokenized_bleu(
            ["Das \u201eBoot\u201c ist blau."], ['das "boot" ist blau.'], "de"
        )
        self.assertAlmostEqual(score, 100.0)

    @unittest.skipUnless(MULTI30K.is_file(), "Needs ../shared.")
    def test_references_have_as_many_tokens_as_published(self):
        with gzip.open(MULTI30K, "rt", encoding="utf-8") as file:
            lines = file.read().split("\n")[:-1]
        with mock.patch.object(
            sacrebleu_metrics.BLEU, "corpus_score"
        ) as corpus_score:
            metrics.tokenized_bleu(lines, lines, "de")
        _, (references,) = corpus_score.call_args.args
        # Wu et al. (2021): BLEU of 12,103 reference tokens.
        self.assertEqual(sum(len(r.split(" ")) for r in references), 12103)

    def test_unknown_language_and_line_counts_are_refused(self):
        with self.assertRaisesRegex(errors.UserError, "one of cs, de, .*'xx'"):
            metrics.tokenized_bleu(["a"], ["a"], "xx")
        with self.assertRaisesRegex(errors.UserError, "2 hypotheses and 1"):
            metrics.tokenized_bleu(["a", "b"], ["a"], "de")


class LogLineTest(absltest.TestCase):
    def test_evaluation_line(self):
        event = {
            "split": "dev",
            "step": 7,
            "loss": 1.25,
            "teacher_forced_accuracy": 0.5,
            "exact_match": 12.5,
            "chrf": 40.0,
            "bleu": 20.125,
            "bleu_signature": "nrefs:1|case:mixed",
        }
        self.assertEqual(
            run_config.log_line(event | {"averaged": 5}),
            "dev at step 7, 5 checkpoints averaged: loss 1.2500  "
            "teacher-forced accuracy 50.00%  exact match 12.50 %  chrF 40.00  "
            "BLEU 20.12 (nrefs:1|case:mixed)",
        )


if __name__ == "__main__":
    absltest.main()
