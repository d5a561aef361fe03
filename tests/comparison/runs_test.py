"""Runs: their names, their progress and their final models."""

import pathlib

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import runs
from relpos_tf.comparison import variants
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest
from relpos_tf.problems import own_files
from relpos_tf.problems import translate
from tests import tiny_run

HPARAMS = hparam.HParams(vocab_size=40)
DEV = {"split": "dev", "loss": 2.0, "bleu": 1.0}


class RunsTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def make(self, name, *steps, hparams=HPARAMS, flags="", average=()):
        """Makes the files of a run, and returns its directory."""
        run = run_dir.RunDir(self.folder / name)
        run.write_hparams(hparams)
        if flags:
            run.write_flags(flags)
        (run.path / "average").mkdir(exist_ok=True)
        for step in steps:
            (run.path / f"ckpt-{step}.npz").touch()
            run.append_metrics({"step": step, **DEV})
        for step in average:
            (run.path / "average" / f"ckpt-{step}.npz").touch()
        return run.path

    def find(self, text):
        return [
            (run.label, run.seed, run.path.name)
            for run in runs.find(text.replace("HERE", str(self.folder)))
        ]


class FindTest(RunsTestCase):
    def test_label_is_given_or_the_name_without_the_seed(self):
        self.make("one", 5, flags="--random_seed=7\n--hparams=a=1,b=2\n")
        self.make("k=2-seed3", 5)
        self.assertEqual(
            self.find("HERE/one,HERE/k=2-seed3/,x=HERE/one,k=9=HERE/k=2-seed3"),
            [
                ("one", 7, "one"),
                ("k=2", 3, "k=2-seed3"),
                ("x", 7, "one"),
                ("k=9", 3, "k=2-seed3"),
            ],
        )
        (run,) = runs.find(str(self.folder / "one"))
        self.assertEqual(run.overrides, "a=1,b=2")
        self.assertEqual((run.name, run.title), ("one-seed7", "one seed 7"))

    def test_patterns_take_runs_only(self):
        for name in ("b-seed1", "a[1]-seed2", "a[1]-seed1"):
            self.make(name, 5)
        (self.folder / "a-other").mkdir()
        (self.folder / "a-file").touch()
        expected = [("a[1]", n, f"a[1]-seed{n}") for n in (1, 2)]
        self.assertEqual(self.find("HERE/a*"), expected)
        self.assertEqual(self.find("HERE/a[1]-*"), expected)
        self.assertEqual(
            self.find("x=HERE/a*"), [("x", *rest) for _, *rest in expected]
        )


class ProgressTest(RunsTestCase):
    def run_of(self, *args, **kwargs):
        return runs.Run("a", 1, self.make("a-seed1", *args, **kwargs))

    def test_final_model_is_the_newest_checkpoint_or_the_one_of_the_step(self):
        run = self.run_of(9, 10, average=(10,))
        self.assertEqual(runs.final_checkpoint(run), f"{run.path}/ckpt-10")
        self.assertEqual(runs.final_checkpoint(run, 9), f"{run.path}/ckpt-9")
        with self.assertRaisesRegex(errors.UserError, "ckpt-8 in .*: 9, 10."):
            runs.final_checkpoint(run, 8)

    def test_steps_of_an_average_are_those_of_its_checkpoints(self):
        hparams = HPARAMS.replace(average_checkpoints=2)
        run = self.run_of(9, 10, hparams=hparams)
        prefixes = [f"{run.path}/ckpt-{step}" for step in (9, 10)]
        for prefix, step in zip(prefixes, (9, 10), strict=True):
            checkpoints.write_model(prefix, {"w": np.float32([step])}, step)
        averaged = f"{run.path}/average/ckpt-10"
        checkpoints.average(prefixes, averaged)
        self.assertEqual(runs.final_checkpoint(run), averaged)
        self.assertEqual(run.describe(averaged)["average_of"], [9, 10])
        self.assertEqual(run.describe(averaged)["num_averaged"], 2)
        self.assertEqual(run.describe(prefixes[1])["average_of"], [])

    def test_finished_run_is_trained_and_evaluated(self):
        run = self.run_of(9, 10)
        self.assertTrue(runs.is_finished(run, 10))
        self.assertFalse(runs.is_finished(run, 11))
        (run.path / "metrics.jsonl").write_text("")
        run.files.append_metrics({"step": 10, **DEV, "split": "test"})
        self.assertFalse(runs.is_finished(run, 10))
        self.assertFalse(
            runs.is_finished(runs.Run("b", 1, self.folder / "none"), 10)
        )

    @parameterized.product(
        field=("average_checkpoints", "average_epochs"),
        case=(((9, 10), (), False), ((9, 10), (10,), True), ((10,), (), True)),
    )
    def test_finished_run_has_its_average(self, field, case):
        steps, average, expected = case
        hparams = HPARAMS.replace(**{field: 5})
        run = self.run_of(*steps, hparams=hparams, average=average)
        for step in steps:  # ends of epochs
            run.files.mark_epoch_end(step, 1)
        self.assertEqual(runs.is_finished(run, 10), expected)
        folder = run.path / "average" if average else run.path
        self.assertEqual(runs.final_checkpoint(run), f"{folder}/ckpt-10")


class PlanTest(RunsTestCase):
    def plan(self, seeds=(1, 2), steps=10, flags=None, **changes):
        made = [
            variants.Variant(label, "set", "x", HPARAMS.replace(**changes))
            for label in ("a/b", "k=1")
        ]
        flags = {"problem": "p", "local_eval_frequency": 5, **(flags or {})}
        return runs.plan(made, seeds, self.folder, flags, steps)

    def test_runs_go_seed_by_seed(self):
        self.assertEqual(
            [(run.title, run.path.name) for run in self.plan()],
            [
                ("a/b seed 1", "a_b-seed1"),
                ("k=1 seed 1", "k=1-seed1"),
                ("a/b seed 2", "a_b-seed2"),
                ("k=1 seed 2", "k=1-seed2"),
            ],
        )

    @parameterized.parameters(
        ({"alpha": 0.5}, "alpha=0.6 .now 0.5."),
        ({"hidden_size": 8}, "hidden_size=512 .now 8."),
        ({"flags": {"problem": "q"}}, "--problem=p .now q."),
        ({"flags": {"train_weights": "1,4"}}, "--train_weights=1,1 .now 1,4."),
        ({"seeds": [3]}, "--random_seed=2 .now 3."),
        ({"steps": 3}, "gone on to step 4 .*no checkpoint of step 3"),
    )
    def test_run_with_other_hparams_is_refused(self, changes, message):
        flags = "--random_seed=2\n--problem=p\n--train_weights=1,1\n"
        self.make("k=1-seed2", 4, flags=flags)
        self.make("k=1-seed3", 4, flags=flags)
        with self.assertRaisesRegex(
            errors.UserError, rf"k=1-seed\d .*{message}"
        ):
            self.plan(**changes)

    def test_averages_of_checkpoints_at_other_steps_are_refused(self):
        flags = "--random_seed=2\n--problem=p\n--local_eval_frequency=7\n"
        # Other evaluations change nothing in a model without an average.
        self.make("k=1-seed2", 7, flags=flags)
        self.assertLen(self.plan(), 4)
        averaged = {"average_checkpoints": 3}
        hparams = HPARAMS.replace(**averaged)
        self.make("a_b-seed2", 7, flags=flags, hparams=hparams)
        self.make("k=1-seed2", 7, flags=flags, hparams=hparams)
        same = {"local_eval_frequency": 7}
        self.assertLen(self.plan(flags=same, **averaged), 4)
        with self.assertRaisesRegex(
            errors.UserError, r"a_b-seed2 .*--local_eval_frequency=7 .now 5."
        ):
            self.plan(**averaged)


TEXTS = {
    "train": "one two\nthree\nfour five six\n" * 7,
    "dev": "two three\nsix\n",
    "test": "five\nthree four\none\n",
    "more": "six five\nfour\none\n",
}


class TextTest(RunsTestCase):
    """Runs with text of one's own: whether the flags name that text."""

    def setUp(self):
        super().setUp()
        for name, text in TEXTS.items():
            for side in ("en", "de"):
                (self.folder / f"{name}.{side}").write_text(text)
        self.run_of_a = runs.Run("a", 1, self.folder / "a-seed1")

    def problem(self, test="test", vocab_size=300):
        train, dev, test = (
            [f"{self.folder}/{name}.{side}" for side in ("en", "de")]
            for name in ("train", "dev", test)
        )
        return translate.files_problem(
            own_files.Training(*train),
            own_files.Sides(*dev),
            own_files.Sides(*test),
            vocab_size,
        )

    def train(self, problem):
        """Leaves the files of a run that are checked."""
        found = problem.prepare(self.folder / "data")
        self.run_of_a.files.write_hparams(HPARAMS)
        data = manifest.fingerprints(found)
        self.run_of_a.files.write_problem(tiny_run.PROBLEM | {"data": data})

    def check(self, problem):
        runs.check_text([self.run_of_a], self.folder / "data", problem)

    def test_text_of_the_runs_is_found_in_any_place(self):
        self.check(self.problem())  # nothing has begun
        self.train(self.problem())
        self.check(self.problem())
        for path in self.folder.glob("test.*"):
            path.rename(path.with_stem("moved"))
        self.check(self.problem("moved"))
        (self.run_of_a.path / "problem.json").unlink()  # as in imported runs
        self.check(self.problem("more"))

    @parameterized.parameters({"test": "more"}, {"vocab_size": 275})
    def test_other_text_is_refused(self, **given):
        self.train(self.problem())
        other = self.problem(**given)
        for _ in range(2):  # whether it is prepared or not
            with self.assertRaisesRegex(
                errors.UserError, "The run .*/a-seed1 was made with other text"
            ):
                self.check(other)
            other.prepare(self.folder / "data")


if __name__ == "__main__":
    absltest.main()
