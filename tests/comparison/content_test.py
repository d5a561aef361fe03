"""report.json, of runs whose numbers are known."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.comparison import content
from relpos_tf.comparison import outputs
from relpos_tf.comparison import report as report_lib
from relpos_tf.comparison import runs
from relpos_tf.comparison import scoring
from relpos_tf.problems import test_sets

SOURCES = ["a b", "a b c d e f", "one | <b>two</b>", "g"]
REFERENCES = [
    "the first small line",
    "the second line is long enough",
    "a | *line* of <b>signs</b>",
    "x",
]
LENGTHS = [3, 7, 4, 2]
RELATIVE = hparam.HParams(
    pos="none", self_attention_type="dot_product_relative"
)
# The fields that every run must have.
RUN_KEYS = (
    "hparams_set seed train_steps target_tokens parameters steps_per_second "
    "peak_memory_mb loss bleu bleu_signature chrf exact_match bleu_by_length "
    "output_dir"
).split()


def row_of(label, seed, train_steps, num_averaged=0, average_of=()):
    """Returns the fields of a run's row that tell its conditions."""
    return {
        "label": label,
        "seed": seed,
        "train_steps": train_steps,
        "target_tokens": train_steps,
        "num_averaged": num_averaged,
        "average_of": average_of,
    }


class ReportTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.test_set = test_sets.TestSet(
            "test", SOURCES, REFERENCES, self.folder, self.folder
        )

    def result(self, label, seed, wrong=0, loss=1.0, tokens=50.0, rate=2.0):
        """Returns a run that has the last lines wrong."""
        run = runs.Run(label, seed, self.folder / f"{label}-{seed}", "s", "o=1")
        hparams = RELATIVE if label == "rel" else hparam.HParams()
        run.files.write_hparams(hparams)
        run.files.write_versions()
        run.files.append_metrics(
            {
                "step": 5,
                "split": "train",
                "loss": 4.0,
                "steps_per_second": rate,
                "tokens_per_second": rate * 100,
                "target_tokens": tokens,
                "peak_memory_mb": 10.0 * seed,
            }
        )
        references = self.test_set.references
        right = len(references) - wrong
        return scoring.ModelResult(
            run,
            f"{run.path}/ckpt-5",
            {"test": references[:right] + [f"<i>{label}"] * wrong},
            {
                "loss": loss,
                "teacher_forced_accuracy": 0.5,
                "parameters": 100 if label == "rel" else 90,
                "source_lengths": LENGTHS,
            },
        )

    def make(self, *results, further=(), **kwargs):
        kwargs = {"problem": {"problem": "p_x"}, **kwargs}
        return content.make(results, [self.test_set, *further], **kwargs)

    def two(self, **kwargs):
        return self.make(
            self.result("rel", 1, 0, 1.0, rate=4.0),
            self.result("rel", 2, 1, 3.0, rate=2.0),
            self.result("abs", 1, 2, 4.0, rate=2.0),
            self.result("abs", 2, 3, 5.0, rate=1.0),
            **kwargs,
        )


class TestSetsTest(ReportTestCase):
    """Several test sets, and the scale of papers beside the cased one."""

    def setUp(self):
        super().setUp()
        self.more = test_sets.TestSet(
            "test_2",
            ["u", "v"],
            ["Ein Hund, der bellt", "Zwei Hunde und fünf Katzen"],
            self.folder,
            self.folder,
        )
        self.german = {"problem": "p_x", "target_language": "de"}

    def files(self, label, seed=None, **paths):
        """Returns the translations of another system."""
        for name, lines in paths.items():
            path = self.folder / f"{label}{seed}{name}"
            path.write_text("".join(f"{line}\n" for line in lines))
            paths[name] = path
        if "first" in paths:
            paths[""] = paths.pop("first")
        output = outputs.Output(label, seed, paths)
        return outputs.read(output, [self.test_set, self.more])

    def test_translations_of_others_have_scores_and_tests_but_no_training(self):
        theirs = self.files("x", first=["a", *REFERENCES[1:]])
        ours = self.result("rel", 1, 1), self.result("rel", 2, 2)
        alone, report = self.make(*ours), self.make(*ours, theirs)
        self.assertEqual(report["runs"][:2], alone["runs"])
        self.assertEqual(report["hparams_diff"], {})
        self.assertEqual(report["warnings"], alone["warnings"])
        first, others = report["summary"]
        self.assertEqual(first, alone["summary"][0])
        row = report["runs"][2]
        self.assertEqual(
            [row["bleu"], row["chrf"], row["exact_match"]],
            [others["bleu_mean"], others["chrf_mean"], 75.0],
        )
        self.assertEqual(
            [bucket["lines"] for bucket in row["bleu_by_length"]],
            [bucket["lines"] for bucket in report["runs"][0]["bleu_by_length"]],
        )
        for name in ("loss_mean", "parameters", "steps_ratio", "bleu_spread"):
            self.assertIsNone(others[name])
        for shown in ("Only translations are known of x", "x above rel"):
            self.assertIn(shown, report_lib.page(report))
        for pairs in (report["pairs"], report["pairs_by_measure"]["chrF"]):
            (pair,) = pairs
            self.assertEqual((pair["a"], pair["b"]), ("rel", "x"))
            self.assertIsNotNone(pair["p_value"])
            self.assertIsNone(pair["p_largest"])
        self.assertIn("which cannot be tested", report["verdict"])

    def test_files_of_another_set_stand_in_its_table_only(self):
        both = self.files("y", first=REFERENCES, test_2=self.more.references)
        report = self.make(
            self.result_with("rel", 1, "a", "b"),
            self.files("x", first=REFERENCES),
            both,
            further=[self.more],
        )
        (further,) = report["further_test_sets"]
        self.assertEqual(
            [row["label"] for row in further["summary"]], ["rel", "y"]
        )
        self.assertAlmostEqual(further["summary"][1]["bleu_mean"], 100)
        self.assertEqual(report["labels"], ["rel", "x", "y"])
        self.assertIn("test_2, 2 lines. Mean", report_lib.page(report))

    def test_several_files_are_compared_as_seeds_without_a_common_one(self):
        report = self.make(
            self.result("rel", 1, 1),
            self.result("rel", 2, 2),
            self.files("x", "file 1", first=["a", *REFERENCES[1:]]),
            self.files("x", "file 2", first=["b", "c", *REFERENCES[2:]]),
            self.files("x", "file 3", first=["b", "d", *REFERENCES[2:]]),
        )
        self.assertLen(report["summary"][1]["seeds"], 3)
        self.assertIsNotNone(report["summary"][1]["bleu_spread"])
        (pair,) = report["pairs"]
        self.assertEqual(pair["seeds"], [])
        for name in ("p_value", "p_value_seeds", "p_value_both", "p_largest"):
            self.assertIsNotNone(pair[name])
        self.assertEqual(report["warnings"], [])

    def result_with(self, label, seed, *translations, wrong=0):
        result = self.result(label, seed, wrong)
        result.translations["test_2"] = list(translations)
        return result

    def report(self, **kwargs):
        lower = [line.lower() for line in self.more.references]
        return self.make(
            self.result_with("rel", 1, *self.more.references),
            self.result_with("rel", 2, *lower),
            self.result_with("abs", 1, "a", "b"),
            self.result_with("abs", 2, lower[0], "b"),
            further=[self.more],
            **kwargs,
        )

    def test_each_set_has_its_own_scores(self):
        report = self.report(problem=self.german)
        (further,) = report["further_test_sets"]
        self.assertEqual((further["name"], further["lines"]), ("test_2", 2))
        rows = [run["further_test_sets"]["test_2"] for run in report["runs"]]
        # Lower case is right on one scale and not on the other.
        self.assertAlmostEqual(rows[0]["bleu"], 100)
        self.assertAlmostEqual(rows[0]["tokenized_bleu"], 100)
        self.assertLess(rows[1]["bleu"], 60)
        self.assertAlmostEqual(rows[1]["tokenized_bleu"], 100)
        self.assertLess(rows[2]["tokenized_bleu"], 1)
        self.assertIn("tok:13a", rows[0]["bleu_signature"])
        self.assertIn("tok:moses-de", rows[0]["tokenized_bleu_signature"])
        # Of two values, the deviation is their distance by the root of 2.
        rel, absolute = further["summary"]
        self.assertEqual(rel["label"], "rel")
        self.assertAlmostEqual(
            rel["bleu_mean"], (rows[0]["bleu"] + rows[1]["bleu"]) / 2
        )
        self.assertAlmostEqual(
            rel["bleu_spread"], (rows[0]["bleu"] - rows[1]["bleu"]) / 2**0.5
        )
        self.assertAlmostEqual(rel["tokenized_bleu_mean"], 100)
        self.assertLess(absolute["chrf_mean"], rel["chrf_mean"])
        # The first set, of which the last lines are right, has its own.
        self.assertAlmostEqual(report["runs"][2]["bleu"], 100)
        self.assertAlmostEqual(report["summary"][1]["bleu_mean"], 100)

    def test_each_set_has_a_table(self):
        report = self.report(problem=self.german)
        head = "BLEU +chrF +tokenized BLEU"
        lines = report_lib.table(report).split("\n")
        self.assertRegex(lines[0], f"^ +{head} +loss")
        self.assertRegex(lines[4], f"^test_2 +{head}$")
        self.assertRegex(lines[5], r"^rel +[\d.]+ ± .* 100\.00 ± 0\.00$")
        self.assertEqual(lines[-2], report["verdict"])
        page = report_lib.page(report)
        for shown in ("Further test sets", "test_2, 2 lines. Mean", "moses-de"):
            self.assertIn(shown, page)

    def test_language_without_rules_has_one_scale(self):
        for language in ({}, {"target_language": "syllables"}):
            report = self.report(problem={"problem": "p_x", **language})
            self.assertIsNone(report["runs"][0]["tokenized_bleu"])
            self.assertIsNone(report["summary"][0]["tokenized_bleu_mean"])
            self.assertNotIn("tokenized", report_lib.table(report))

    def test_each_set_has_its_own_differences(self):
        report = self.report()
        (further,) = report["further_test_sets"]
        (pair,) = further["pairs"]
        rows = [run["further_test_sets"]["test_2"] for run in report["runs"]]
        scores = [row["bleu"] for row in rows]
        self.assertAlmostEqual(pair["score_a"], sum(scores[:2]) / 2)
        self.assertAlmostEqual(pair["by_seed"][1], scores[1] - scores[3])
        self.assertEqual(pair["p_corrected"], pair["p_largest"])
        self.assertNotEqual(pair["p_value"], report["pairs"][0]["p_value"])

    def test_baseline_stands_first(self):
        x = self.files("x", first=REFERENCES)
        results = [self.result(label, 1) for label in "abcde"]
        report = self.make(*results, x, baseline="c")
        self.assertEqual("".join(report["labels"]), "cabdex")
        self.assertEqual(
            [(pair["a"], pair["b"]) for pair in report["pairs"]],
            [("c", label) for label in "abdex"],
        )
        self.assertEqual(report["summary"][0]["label"], "c")
        # A file has no lengths of its own.
        report = self.make(*results, x, baseline="x")
        self.assertEqual(report["labels"][0], "x")
        self.assertEqual(report["runs"][0]["bleu_by_length"][0]["up_to"], 2)

    def test_differences_are_of_the_first_set(self):
        alone = self.two()
        report = self.make(
            self.result_with("rel", 1, "a", "b"),
            self.result_with("rel", 2, "a", "b", wrong=1),
            self.result_with("abs", 1, "a", "b", wrong=2),
            self.result_with("abs", 2, "a", "b", wrong=3),
            further=[self.more],
        )
        for key in ("pairs", "verdict", "samples"):
            self.assertEqual(report[key], alone[key])


class MakeTest(ReportTestCase):
    def test_has_the_keys_of_the_contract(self):
        report = self.two(command="the command")
        for row in report["runs"]:
            self.assertContainsSubset(RUN_KEYS, row)
        for pair in report["pairs"]:
            self.assertContainsSubset(
                "a b bleu_a bleu_b p_value test".split(), pair
            )
        self.assertEqual(report["labels"], ["rel", "abs"])
        self.assertEqual(report["command"], "the command")
        self.assertEqual(
            report["hparams_diff"],
            {
                "pos": {"rel": "none", "abs": "timing"},
                "self_attention_type": {
                    "rel": "dot_product_relative",
                    "abs": "dot_product",
                },
            },
        )
        json.dumps(report, allow_nan=False)

    def test_nan_is_missing(self):
        report = self.make(
            self.result("rel", 1, loss=float("nan")), self.result("abs", 1)
        )
        self.assertIsNone(report["runs"][0]["loss"])
        self.assertIsNone(report["summary"][0]["loss_mean"])

    def test_run_has_its_scores_and_its_training(self):
        row = self.two(limits=[3, 4])["runs"][1]
        self.assertEqual(
            [row[k] for k in ("label", "seed", "hparams", "train_steps")],
            ["rel", 2, "o=1", 5],
        )
        self.assertEqual(row["exact_match"], 75.0)
        self.assertEqual(row["target_tokens"], 50)
        self.assertEqual(row["peak_memory_mb"], 20.0)
        self.assertEqual(row["learning_curve"]["train"], [[5, 4.0]])
        # Line 0 of 3 pieces and line 3 of 2, which is wrong; line 2 of 4;
        # line 1 of 7.
        self.assertEqual(
            [
                (b["up_to"], b["lines"], b["exact_match"])
                for b in row["bleu_by_length"]
            ],
            [(3, 2, 50.0), (4, 1, 100.0), (None, 1, 100.0)],
        )
        self.assertAlmostEqual(row["bleu_by_length"][1]["bleu"], 100.0)

    def test_bucket_without_lines_or_without_text_has_no_score(self):
        self.test_set = self.test_set._replace(references=["", *REFERENCES[1:]])
        buckets = self.two(limits=[1, 2, 3])["runs"][0]["bleu_by_length"]
        self.assertEqual([b["lines"] for b in buckets], [0, 1, 1, 2])
        self.assertEqual(
            [b["bleu"] is None for b in buckets], [True, True, True, False]
        )

    def test_bucket_without_four_grams_has_no_bleu(self):
        # BLEU counts 4-grams; without any it is 0 for the reference itself.
        short = ["x", "one two three", "a b c", "y z"]
        self.test_set = self.test_set._replace(references=short)
        report = self.two(limits=[4])
        buckets = report["runs"][0]["bleu_by_length"]
        self.assertEqual([b["bleu"] for b in buckets], [None, None])
        self.assertEqual([b["exact_match"] for b in buckets], [100.0, 100.0])

    def test_summary_is_over_seeds_and_against_the_first(self):
        rel, other = self.two()["summary"]
        self.assertEqual(rel["seeds"], [1, 2])
        self.assertEqual((rel["parameters"], other["parameters"]), (100, 90))
        self.assertEqual((rel["loss_mean"], rel["loss_spread"]), (2.0, 2**0.5))
        self.assertEqual(rel["exact_match_mean"], 87.5)
        self.assertEqual((rel["steps_ratio"], other["steps_ratio"]), (1.0, 0.5))
        self.assertEqual((other["steps_per_second"]), 1.5)
        self.assertEqual(other["tokens_ratio"], 0.5)
        self.assertEqual(other["peak_memory_mb"], 20.0)
        rates = {"a": 4.0, "b": 1.0, "c": 2.0}
        rows = self.make(*(self.result(x, 1, rate=y) for x, y in rates.items()))
        ratios = [row["steps_ratio"] for row in rows["summary"]]
        self.assertEqual(ratios, [1.0, 0.25, 0.5])

    def test_runs_that_shared_the_machine_say_so(self):
        first, second = self.result("rel", 1), self.result("abs", 1)
        sharing = {"jobs": 2, "cores": 4, "gpus": 0}
        first.run.write_sharing(sharing)
        report = self.make(first, second)
        self.assertEqual(
            [run["sharing"] for run in report["runs"]], [sharing, None]
        )
        self.assertIn("are not comparable.", "".join(report["warnings"]))
        self.assertIn("<td>2 at once on 4 cores</td>", report_lib.page(report))
        second.run.write_sharing(sharing)
        self.assertEqual(self.make(first, second)["warnings"], [])

    def test_other_measures_are_compared_alike(self):
        report = self.two()
        self.assertEqual(list(report["pairs_by_measure"]), ["chrF"])
        (pair,) = report["pairs_by_measure"]["chrF"]
        (bleu,) = report["pairs"]
        rows = report["runs"]
        for name, one in (("chrf", pair), ("bleu", bleu)):
            scores = [row[name] for row in rows]
            self.assertAlmostEqual(one["score_a"], sum(scores[:2]) / 2)
            self.assertAlmostEqual(one["by_seed"][1], scores[1] - scores[3])
            self.assertEqual(one["p_corrected"], one["p_largest"])
        self.assertEqual(bleu["bleu_b"], bleu["score_b"])

    def test_scale_of_papers_is_compared_in_known_languages(self):
        problem = {"problem": "p_x", "target_language": "de"}
        report = self.two(problem=problem)
        (pair,) = report["pairs_by_measure"]["tokenized BLEU"]
        scores = [row["tokenized_bleu"] for row in report["runs"]]
        self.assertAlmostEqual(pair["score_b"], sum(scores[2:]) / 2)

    def test_gaps_are_of_each_pair_in_both_directions(self):
        first, second = self.two()["gaps"]
        self.assertEqual((first["better"], first["worse"]), ("rel", "abs"))
        self.assertEqual((second["better"], second["worse"]), ("abs", "rel"))
        self.assertEmpty(second["sentences"])
        # Lines 1 and 2 are wrong in two and one more models of "abs"; line 3
        # is wrong in one more.
        sources = [one["source"] for one in first["sentences"]]
        self.assertCountEqual(sources, SOURCES[1:])
        (one,) = [x for x in first["sentences"] if x["source"] == SOURCES[2]]
        self.assertEqual(one["reference"], REFERENCES[2])
        self.assertEqual(
            one["translations"], {"rel": REFERENCES[2], "abs": "<i>abs"}
        )
        self.assertAlmostEqual(one["scores"]["rel"], 100.0)

    def test_samples_are_of_the_first_seed_from_short_to_long(self):
        samples = self.two(num_samples=2)["samples"]
        self.assertEqual([s["source"] for s in samples], ["a b", "a b c d e f"])
        self.assertEqual(
            samples[1],
            {
                "source": SOURCES[1],
                "reference": REFERENCES[1],
                "translations": {"rel": REFERENCES[1], "abs": REFERENCES[1]},
            },
        )

    def test_different_conditions_are_reported(self):
        self.assertEqual(self.two()["warnings"], [])
        report = self.make(
            self.result("rel", 3), self.result("abs", 3, tokens=51.0)
        )["warnings"]
        self.assertLen(report, 1)
        self.assertIn("seed 3, the runs have not been trained on", report[0])
        self.assertIn("rel 50, abs 51.", report[0])
        rows = [row_of("a", 1, 5), row_of("b", 2, 6)]
        self.assertEqual(
            content.check_conditions(rows),
            [
                "The runs have made different numbers of updates: a 5, b 6.",
                "Not all labels have the same seeds: two labels are compared "
                "over the seeds that both have, if these are two or more, "
                "else over all.",
            ],
        )

    @parameterized.parameters(
        ([2, 4, 6], "a seed 1 of 2, 4, 6; b seed 1 of 5, 6 are the first"),
        ([], "a seed 1 of none; b seed 1 of 5, 6 are the first"),
        ([5, 6], ""),
        (None, ""),  # unknown
    )
    def test_averages_of_other_steps_are_reported(self, steps, message):
        rows = [
            row_of("a", 1, 6, 3, steps),
            row_of("b", 1, 6, 3, [5, 6]),
            row_of("c", 1, 6, 2, [4, 6]),  # its set asks for another number
            row_of("d", 1, 6),
        ]
        warnings = content.check_conditions(rows)
        self.assertEqual(len(warnings), bool(message))
        for warning in warnings:
            self.assertStartsWith(warning, "The final models are averages of")
            self.assertIn(message, warning)

    def test_other_batches_software_and_equal_hparams_are_reported(self):
        first, second, same = (self.result(x, 1) for x in ("rel", "abs", "b"))
        hparams = second.run.hparams().replace(max_length=9)
        for one in (second, same):
            one.run.files.write_hparams(hparams)
        (second.run.path / "versions.json").write_text("{}")
        warnings = "".join(self.make(first, second, same)["warnings"])
        for words in (
            "differ in max_length: their updates",
            "different software versions: rel seed 1, abs seed 1 are",
            "abs and b have equal hparams.",
        ):
            self.assertIn(words, warnings)

    def test_learning_curve_is_the_mean_at_common_steps(self):
        first, second = self.result("rel", 1), self.result("rel", 2)
        for one, steps in ((first, (5,)), (second, (3, 5))):
            for step in steps:
                one.run.files.append_metrics(
                    {
                        "step": step,
                        "split": "dev",
                        "loss": 2.0 * one.run.seed,
                        "bleu": 10.0 * one.run.seed,
                    }
                )
        (row,) = self.make(first, second)["summary"]
        self.assertEqual(row["learning_curve"], [[5, 3.0, 15.0]])


if __name__ == "__main__":
    absltest.main()
