"""Runs: their names, their progress and their final models."""

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import runs
from relpos_tf.comparison import variants
from relpos_tf.models import run_dir
from tests import folders

HPARAMS = hparam.HParams(vocab_size=40)
DEV = {"split": "dev", "loss": 2.0, "bleu": 1.0}


class RunsTestCase(folders.TestCase):
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

    def test_final_model_is_the_result_or_that_of_the_step(self):
        run = self.run_of(9, 10, average=(9,))
        self.assertEqual(runs.final_checkpoint(run), f"{run.path}/ckpt-10")
        averaged = f"{run.path}/average/ckpt-9"
        self.assertEqual(runs.final_checkpoint(run, 9), averaged)
        with self.assertRaisesRegex(errors.UserError, "ckpt-8, .*: 9, 10."):
            runs.final_checkpoint(run, 8)

    def test_finished_run_is_trained_and_evaluated(self):
        none = runs.Run("b", 1, self.folder / "none")
        run = self.run_of(9, 10)
        found = [
            runs.is_finished(*x) for x in ((run, 10), (run, 11), (none, 10))
        ]
        self.assertEqual(found, [True, False, False])
        (run.path / "metrics.jsonl").write_text("")
        run.files.append_metrics({"step": 10, **DEV, "split": "test"})
        self.assertFalse(runs.is_finished(run, 10))

    @parameterized.product(
        field=("average_checkpoints", "average_epochs"),
        case=(((9, 10), (), False), ((9, 10), (10,), True), ((10,), (), True)),
    )
    def test_finished_run_has_its_average(self, field, case):
        steps, average, expected = case
        hparams = HPARAMS.replace(**{field: 5})
        run = self.run_of(*steps, hparams=hparams, average=average)
        for step in steps:  # ends of epochs
            run.files.mark(run_dir.EPOCH, step)
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
        return runs.of_variants(made, seeds, self.folder, flags, steps)

    @parameterized.parameters(
        ({"alpha": 0.5}, "alpha=0.6 .now 0.5."),
        ({"hidden_size": 8}, "hidden_size=512 .now 8."),
        ({"flags": {"problem": "q"}}, "--problem=p .now q."),
        ({"flags": {"train_weights": "1,4"}}, "--train_weights=1,1 .now 1,4."),
        ({"seeds": [3]}, "--random_seed=2 .now 3."),
        ({"steps": 3}, "gone on to step 4 .*no result of step 3"),
    )
    def test_run_with_other_hparams_is_refused(self, changes, message):
        flags = "--random_seed=2\n--problem=p\n--train_weights=1,1\n"
        self.make("k=1-seed2", 4, flags=flags)
        self.make("k=1-seed3", 4, flags=flags)
        with self.assertRaisesRegex(
            errors.UserError, rf"k=1-seed\d .*{message}"
        ):
            self.plan(**changes)

    def test_run_that_went_on_without_this_average_is_refused(self):
        changes = {"average_checkpoints": 2}
        kwargs = {"hparams": HPARAMS.replace(**changes), "average": [4]}
        self.make("k=1-seed2", 2, 3, 4, **kwargs, flags="--random_seed=2\n")
        with self.assertRaisesRegex(errors.UserError, "no result of step 3"):
            self.plan(steps=3, **changes)
        self.assertLen(self.plan(steps=4, **changes), 4)

    def test_a_run_without_a_checkpoint_may_begin_anew(self):
        self.make("k=1-seed2", flags="--problem=p\n")
        self.assertLen(self.plan(hidden_size=8, flags={"problem": "q"}), 4)
        self.make("k=1-seed2", average=[4])
        with self.assertRaisesRegex(errors.UserError, "hidden_size=512 .now 8"):
            self.plan(hidden_size=8)

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
