"""report.json, of runs whose numbers are known."""

import json
import unicodedata

import sacrebleu

from relpos_tf import hparam
from relpos_tf.comparison import content
from relpos_tf.comparison import outputs
from relpos_tf.comparison import report as report_lib
from relpos_tf.comparison import runs
from relpos_tf.comparison import scoring
from relpos_tf.comparison import tuning
from relpos_tf.problems import test_sets
from tests import chinese
from tests import folders
from tests.comparison import tuning_test

SOURCES = ["a b", "a b c d e f", "one | <b>two</b>", "g"]
REFERENCES = [
    "the first small line",
    "the second line is long enough",
    "a | *line* of <b>signs</b>",
    "x",
]
LENGTHS = [3, 7, 4, 2]
MORE = ["Ein Hund, der bellt", "Zwei Hunde und fünf Katzen"]
RELATIVE = hparam.HParams(
    pos="none", self_attention_type="dot_product_relative"
)
# What DESIGN promises of every run and pair.
RUN_KEYS = (
    "hparams_set seed train_steps target_tokens parameters steps_per_second "
    "peak_memory_mb loss bleu bleu_signature chrf exact_match bleu_by_length "
    "output_dir"
).split()
PAIR_KEYS = "a b bleu_a bleu_b p_value test".split()


class ContentTestCase(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.test_set = test_sets.TestSet(
            "test", SOURCES, REFERENCES, self.folder, self.folder
        )
        self.more = test_sets.TestSet(
            "test_2", ["u", "v"], MORE, self.folder, self.folder
        )

    def result(
        self, label, seed, wrong=0, loss=1.0, tokens=50.0, rate=2.0, averaged=()
    ):
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
        right = len(REFERENCES) - wrong
        lines = self.test_set.references[:right] + [f"<i>{label}"] * wrong
        record = {
            "loss": loss,
            "teacher_forced_accuracy": 0.5,
            "average_of": averaged,
            "parameters": 100 if label == "rel" else 90,
            "source_lengths": LENGTHS,
        }
        return scoring.ModelResult(
            run, f"{run.path}/ckpt-5", {"test": lines}, record
        )

    def with_more(self, label, seed, *translations):
        result = self.result(label, seed)
        result.translations["test_2"] = list(translations)
        return result

    def file(self, label, **lines_of):
        """Returns the translations of another system."""
        paths = {}
        for name, lines in lines_of.items():
            paths[name] = self.write(f"{label}.{name}", *lines)
        output = outputs.Output(label, None, paths)
        return outputs.read(output, [self.test_set, self.more])

    def make(self, *results, further=(), **kwargs):
        problem = {"problem": "p_x", "source_language": "source"}
        problem |= {"target_language": "target"} | kwargs.pop("problem", {})
        sets = [self.test_set, *further]
        return content.make(results, sets, problem, **kwargs)

    def four(self):
        """Returns runs of two labels and two seeds."""
        return (
            self.result("rel", 1, 0, 1.0, rate=4.0),
            self.result("rel", 2, 1, 3.0, rate=2.0),
            self.result("abs", 1, 2, 4.0, rate=2.0),
            self.result("abs", 2, 3, 5.0, rate=1.0),
        )

    def two(self, **kwargs):
        return self.make(*self.four(), **kwargs)

    def sample(self):
        """Returns a report that has all parts, for those who show it."""
        results = self.four()
        for one, bleu in zip(results, (1.0, 1.5, 0.5, 0.5), strict=True):
            event = {"split": "dev", "loss": 4.0 - bleu, "bleu": bleu}
            one.run.files.append_metrics({"step": 2, **event})
            event["bleu"] *= 10
            one.run.files.append_metrics({"step": 5, **event})
        _, tuned = tuning.choose(
            [
                tuning_test.score(f"alpha={alpha}", bleu, 2.25, label)
                for label in ("rel", "abs")
                for alpha, bleu in ((0.5, 20.25), (1, 21.5))
            ]
        )
        return self.make(
            *results,
            limits=[3],
            command="relpos-compare --seeds=1,2",
            warnings=["Seed 2 saw fewer tokens."],
            tuning=tuned,
        )


class OtherSystemsTest(ContentTestCase):
    def test_file_of_one_set_is_missing_in_the_table_of_another(self):
        report = self.make(
            self.with_more("rel", 1, "a", "b"),
            self.file("x", test=REFERENCES),
            self.file("y", test=REFERENCES, test_2=MORE),
            further=[self.more],
        )
        (further,) = report["further_test_sets"]
        labels = [row["label"] for row in further["summary"]]
        self.assertEqual(labels, ["rel", "y"])
        self.assertAlmostEqual(further["summary"][1]["bleu_mean"], 100)

    def test_baseline_stands_first(self):
        results = [self.result(label, 1) for label in "abcde"]
        results.append(self.file("x", test=REFERENCES))
        report = self.make(*results, baseline="x")
        self.assertEqual("".join(report["labels"]), "xabcde")
        self.assertEqual(
            [(pair["a"], pair["b"]) for pair in report["pairs"]],
            [("x", label) for label in "abcde"],
        )
        # A file has no lengths of its own.
        self.assertEqual(report["runs"][0]["bleu_by_length"][0]["up_to"], 2)

    def test_setup_names_each_value_of_the_runs(self):
        results = [self.result("rel", seed) for seed in (0, 20261127)]
        versions = results[0].run.path / "versions.json"
        known = json.loads(versions.read_text("utf-8"))
        del known["relpos_tf sources"]
        known["relpos_tf commit"] = "7"
        versions.write_text(json.dumps(known), "utf-8")
        first = hparam.HParams(
            batch_size=300, optimizer_multistep_accumulate_steps=4, beam_size=1
        )
        results[0].run.files.write_hparams(first)
        report = self.make(*results, further=[self.more])
        self.assertNotIn("commit", "".join(report["warnings"]))
        for words in (
            "seed 0 or 20261127;",
            *(" (commit 7 or ", ", sources unknown or "),
            "updates of 1,200 or 4,096 padded tokens",
            "Scored on test (4 lines), test_2 (2 lines), beam 1 or 4,",
        ):
            self.assertIn(words, report["setup"])


class TestSetsTest(ContentTestCase):
    def test_each_set_has_its_own_scores_on_both_scales(self):
        lower = [line.lower() for line in MORE]
        report = self.make(
            self.with_more("rel", 1, *MORE),
            self.with_more("rel", 2, *lower),
            self.with_more("abs", 1, "a", "b"),
            self.with_more("abs", 2, lower[0], "b"),
            further=[self.more],
            problem={"target_language": "de"},
        )
        (further,) = report["further_test_sets"]
        self.assertEqual((further["name"], further["lines"]), ("test_2", 2))
        rows = [run["further_test_sets"]["test_2"] for run in report["runs"]]
        # Lower case is right on one scale and not on the other.
        self.assertAlmostEqual(rows[0]["bleu"], 100)
        self.assertLess(rows[1]["bleu"], 60)
        self.assertAlmostEqual(rows[1]["tokenized_bleu"], 100)
        self.assertIn("tok:13a", rows[0]["bleu_signature"])
        self.assertIn("tok:moses-de", rows[0]["tokenized_bleu_signature"])
        (pair,) = further["pairs"]
        self.assertAlmostEqual(
            pair["by_seed"][1], rows[1]["bleu"] - rows[3]["bleu"]
        )
        # Of two values, the deviation is their distance by the root of 2.
        rel, absolute = further["summary"]
        self.assertAlmostEqual(
            rel["bleu_spread"], (rows[0]["bleu"] - rows[1]["bleu"]) / 2**0.5
        )
        self.assertLess(absolute["chrf_mean"], rel["chrf_mean"])
        self.assertIn("tokenized BLEU", report["pairs_by_measure"])
        lines = report_lib.table(report).split("\n")
        head = "BLEU +chrF +tokenized"
        self.assertRegex(lines[0], f"^ +{head} +length +loss +exact$")
        self.assertRegex(lines[5], f"^test_2 +{head}$")
        self.assertRegex(lines[7], r"^rel +[\d.]+±.* 100\.00±0\.00$")
        page = report_lib.page(report)
        for shown in ("Further test sets", "test_2, 2 lines. Mean", "moses-de"):
            self.assertIn(shown, page)


class TokenizerTest(ContentTestCase):
    def test_all_measures_of_bleu_have_the_tokenizer_of_the_language(self):
        lines = list(chinese.REFERENCES[:4])
        self.test_set = self.test_set._replace(references=lines)
        self.more = self.test_set._replace(name="test_2")
        better, worse = chinese.HYPOTHESES[:4], ["一二三四五"] * 4
        results = []
        for label, lines in (("rel", better), ("abs", worse)):
            result = self.with_more(label, 1, *lines)
            result.translations["test"] = list(lines)
            results.append(result)
        for problem, asked, name, expected in (
            ({"target_language": "zh"}, "", "zh", chinese.BLEU),
            ({"target_language": "target"}, "char", "char", chinese.BLEU),
            ({"target_language": "target"}, "", "13a", 0.0),
        ):
            report = self.make(
                *results, further=[self.more], problem=problem, tokenize=asked
            )
            row = report["runs"][0]
            self.assertAlmostEqual(row["bleu"], expected)
            self.assertIn(f"|tok:{name}|", row["bleu_signature"])
            (pair,) = report["pairs"]
            self.assertAlmostEqual(pair["bleu_a"], expected)
            self.assertEqual(pair["bleu_a"] > pair["bleu_b"], name != "13a")
            (further,) = report["further_test_sets"]
            self.assertAlmostEqual(further["pairs"][0]["score_a"], expected)
            by_length = [one["bleu"] for one in row["bleu_by_length"]]
            known = [bleu for bleu in by_length if bleu is not None]
            for bleu in known:
                self.assertAlmostEqual(bleu, expected)
            self.assertEqual(bool(known), name != "13a")
            self.assertIn(f"|tok:{name}|", report_lib.page(report))
            named = "--bleu_tokenize" in "".join(report["warnings"])
            self.assertEqual(named, name == "13a")


class MakeTest(ContentTestCase):
    def test_has_the_keys_of_the_contract(self):
        report = self.two()
        for row in report["runs"]:
            self.assertContainsSubset(RUN_KEYS, row)
        (bleu,), (chrf,) = report["pairs"], report["pairs_by_measure"]["chrF"]
        self.assertContainsSubset(PAIR_KEYS, bleu)
        for name, pair in (("bleu", bleu), ("chrf", chrf)):
            scores = [row[name] for row in report["runs"]]
            self.assertAlmostEqual(pair["score_a"], sum(scores[:2]) / 2)
            self.assertAlmostEqual(pair["by_seed"][1], scores[1] - scores[3])
        self.assertIn("hparams_diff", report)

    def test_run_has_its_scores_by_length_and_its_training(self):
        row = self.two(limits=[3, 4])["runs"][1]
        expected = {"hparams": "o=1", "exact_match": 75.0, "target_tokens": 50}
        self.assertEqual(row, row | expected)
        # Line 0 of 3 pieces and line 3 of 2, which is wrong; line 2 of 4;
        # line 1 of 7.
        self.assertEqual(
            [
                (b["up_to"], b["lines"], b["exact_match"])
                for b in row["bleu_by_length"]
            ],
            [(3, 2, 50.0), (4, 1, 100.0), (None, 1, 100.0)],
        )

    def test_bucket_without_lines_or_four_grams_has_no_bleu(self):
        # BLEU counts 4-grams; without any it is 0 for the reference itself.
        short = ["x", "one two three", "a b c", "y z"]
        self.test_set = self.test_set._replace(references=short)
        buckets = self.two(limits=[1, 4])["runs"][0]["bleu_by_length"]
        self.assertEqual([b["lines"] for b in buckets], [0, 3, 1])
        self.assertEqual([b["bleu"] for b in buckets], [None] * 3)
        self.assertEqual([b["exact_match"] for b in buckets], [None, 100, 100])

    def test_a_loss_of_nan_has_neither_mean_nor_spread(self):
        for loss in (float("nan"), float("inf")):
            report = self.make(
                self.result("rel", 1), self.result("rel", 2, loss=loss)
            )
            json.dumps(report, allow_nan=False)
            [row] = report["summary"]
            self.assertEqual(
                (row["loss_mean"], row["loss_spread"]), (None,) * 2
            )
            self.assertEqual(row["bleu_spread"], 0.0)
            self.assertIn("–", report_lib.table(report))

    def test_samples_are_of_the_first_seed_from_short_to_long(self):
        samples = {s["source"]: s for s in self.two()["samples"]}
        by_length = ["g", "a b", "one | <b>two</b>", "a b c d e f"]
        self.assertEqual(list(samples), by_length)
        translations = dict.fromkeys(("rel", "abs"), REFERENCES[1])
        self.assertEqual(samples["a b c d e f"]["translations"], translations)


class WarningsTest(ContentTestCase):
    def test_different_conditions_are_reported(self):
        self.assertEqual(self.two()["warnings"], [])
        (warning,) = self.make(
            self.result("rel", 3), self.result("abs", 3, tokens=51.0)
        )["warnings"]
        self.assertIn(
            "target tokens with seed 3: 50 (rel seed 3); 51 (abs seed 3).",
            warning,
        )
        first, second = self.result("rel", 1), self.result("abs", 2)
        second = second._replace(checkpoint=f"{second.run.path}/ckpt-6")
        updates, seeds = self.make(first, second)["warnings"]
        self.assertIn("in updates: 5 (rel seed 1); 6 (abs seed 2).", updates)
        self.assertIn("Not all labels have the same seeds", seeds)

    def test_references_are_doubted_once_and_scores_with_each_run(self):
        line = "ein Hügel @-@ ja"
        other = [unicodedata.normalize("NFD", line)] * 4
        self.test_set = self.test_set._replace(references=other)
        results = [self.result("rel", seed) for seed in (1, 2)]
        for one in results:
            one.translations["test"][:] = [line] * 4
        first, *found = self.make(*results)["warnings"]
        raw = sacrebleu.corpus_bleu([line] * 4, [other], force=True).score
        self.assertStartsWith(first, "test: 4 lines of the references hold")
        for own, seed in zip(found[1::2], (1, 2), strict=True):
            self.assertStartsWith(own, f"rel seed {seed}, test: ")
            self.assertEndsWith(own, f" would have BLEU {raw:.2f}.")

    def test_other_averages_are_reported(self):
        self.assertEmpty(
            self.make(
                self.result("rel", 1, averaged=[4, 5]),
                self.result("abs", 1, averaged=[4, 5]),
                self.file("x", test=REFERENCES),
            )["warnings"]
        )
        for steps, words in (([2, 5], "2, 5"), ([5], "5"), ([], "none")):
            (warning,) = self.make(
                self.result("rel", 1, averaged=[4, 5]),
                self.result("abs", 1, averaged=steps),
            )["warnings"]
            self.assertIn(f": 4, 5 (rel seed 1); {words} (abs seed 1)", warning)

    def test_other_software_and_equal_hparams_are_reported(self):
        first, second, same = (self.result(x, 1) for x in ("rel", "abs", "b"))
        for one in (second, same):
            hparams = one.run.files.read_hparams().replace(max_length=9)
            one.run.files.write_hparams(hparams)
        versions = second.run.path / "versions.json"
        versions.write_text(json.dumps({"keras": "2.0"}))
        for one, weights in ((first, ""), (second, "1,9")):
            one.run.files.write_flags(f"--train_weights={weights}\n")
        warnings = "".join(self.make(first, second, same)["warnings"])
        for words in (
            "; 2.0 (abs seed 1).",
            "train_weights: none (rel seed 1); 1,9 (abs seed 1).",
            "equal hparams: abs, b.",
        ):
            self.assertIn(words, warnings)
