"""The compare command: its flags, its output, its files and its errors."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.bin import compare
from relpos_tf.bin import trainer
from relpos_tf.comparison import attention_maps
from relpos_tf.comparison import child_process
from relpos_tf.comparison import train_runs
from relpos_tf.comparison.report import html
from relpos_tf.decoding import engines
from relpos_tf.models import run_dir
from relpos_tf.training import evaluation
from tests.comparison import examples

TINY = "transformer_relative_tiny"
SETS = f"--hparams_sets={TINY},transformer_tiny"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def execute(*arguments):
    """Returns (exit code, standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.execute(compare.main, arguments)
    return code, out.getvalue(), err.getvalue()


class DiffTest(parameterized.TestCase):
    def test_prints_what_differs_and_nothing_else(self):
        code, out, err = execute(
            "--diff", "--preset=table3", "--hparams=alpha=1;keys:beam_size=2"
        )
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            out.split("\n"),
            [
                "                        keys+values  keys   values  neither",
                "add_relative_to_keys    true         true   false   false",
                "add_relative_to_values  true         false  true    false",
                "beam_size               4            2      4       4",
                "",
            ],
        )

    def test_of_runs(self):
        found = {}
        folder = pathlib.Path(self.create_tempdir().full_path)
        for name, alpha in (("a", 0.5), ("b", 1.0)):
            found[name] = run_dir.RunDir(folder / name)
            hparams = examples.tiny_run.HPARAMS.replace(alpha=alpha)
            found[name].write_hparams(hparams)
        code, out, _ = execute("--diff", f"--runs={folder}/a,c={folder}/b")
        self.assertEqual((code, out), (0, "       a    c\nalpha  0.5  1.0\n"))

    def test_is_quick(self):
        code = (
            "import sys\n"
            "from relpos_tf.bin import compare\n"
            "try:\n"
            "    compare.run()\n"
            "finally:\n"
            "    heavy = {'tensorflow', 'keras', 'sacrebleu', 'numpy'}\n"
            "    sys.stderr.write(str(sorted(heavy & set(sys.modules))))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "--diff", SETS],
            capture_output=True,
            check=False,
            cwd=ROOT,
            text=True,
        )
        self.assertEqual((done.returncode, done.stderr), (0, "[]"))
        self.assertIn("self_attention_type", done.stdout)


class MistakeTest(parameterized.TestCase):
    def test_report_that_cannot_be_written_is_refused_before_training(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "report.json").mkdir()
        code, _, err = execute(
            f"--output_dir={folder}", SETS, "--problem=algorithmic_reverse"
        )
        self.assertEqual(code, 2)
        self.assertRegex(err, "--output_dir: .*report.json, a folder")
        self.assertEqual(os.listdir(folder), ["report.json"])

    @parameterized.parameters(
        ((), "one of --hparams_sets, --preset and --runs is required"),
        (("--hparams_sets=nothing",), "--hparams_sets: Unknown hparams set"),
        (("--hparams_sets=" + 2 * f",{TINY}",), "--hparams_sets: Unknown"),
        ((f"--hparams_sets={TINY},{TINY}",), "--hparams_sets: .* twice: tr"),
        (("--preset=table9",), "flag --preset=table9: .*"),
        (("--preset=table1", SETS), "--preset derives all from one set"),
        (
            ("--preset=table1", "--hparams_sets=transformer_tiny"),
            "--hparams: A preset derives from a set with relative positions",
        ),
        (("--preset=length",), "--preset=length needs --train_max_length"),
        (("--preset=table1", "--runs=a"), "--preset is for training"),
        ((SETS, "--runs=a"), "--hparams_sets is for training"),
        (("--runs=a", "--train_steps=4"), "--train_steps is for training"),
        (("--runs=none", "--output_dir=HERE"), "--runs: .*has no run"),
        ((SETS,), "--output_dir is required"),
        ((SETS, "--output_dir=HERE"), "--problem is required"),
        ((SETS, "--problem=nothing"), "--problem: Unknown problem `nothing`"),
        ((SETS, "--hparams=x:alpha=1"), "--hparams: .*labels transformer_re"),
        ((SETS, "--jobs=1000"), "--jobs: Expected at most one job for each "),
        ((SETS, "--hparams=alpha"), "--hparams: .*Received: 'alpha'"),
        ((SETS, "--problem=translate_files"), "--train_source is required"),
        ((SETS, "--train_source=x"), "--train_source goes with --problem=tr"),
        (
            (SETS, "--length_buckets=3,x"),
            "--length_buckets must be whole .*3,x",
        ),
        (
            (
                SETS,
                "--problem=algorithmic_copy",
                "--output_dir=HERE",
                "--seeds=1,3000000000",
            ),
            "--seeds must be at most 2147483647. Received: 3000000000",
        ),
        (
            (
                SETS,
                "--problem=algorithmic_copy",
                "--output_dir=HERE",
                "--seeds=",
            ),
            "--seeds must be whole numbers",
        ),
        (
            (
                SETS,
                "--problem=algorithmic_copy",
                "--output_dir=HERE",
                "--hparams=transformer_tiny:train_steps=7",
            ),
            "--train_steps is required, because the sets differ in it: 7, 1",
        ),
    )
    def test_flags(self, arguments, message):
        here = self.create_tempdir().full_path
        with mock.patch.object(train_runs, "train", side_effect=ValueError):
            code, out, err = execute(
                *(text.replace("HERE", here) for text in arguments)
            )
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, rf"\Arelpos-compare: {message}[^\n]*\n\Z")

    def test_one_set_has_no_differences(self):
        code, _, err = execute("--diff", f"--hparams_sets={TINY}")
        self.assertEqual(code, 1)
        self.assertEqual(
            err,
            "relpos-compare: Expected two or more labels to compare. Received: "
            f"{TINY}.\n",
        )


class RunsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path) / "all"
        examples.copy(self.folder)
        patches = [
            examples.in_this_process(),
            mock.patch.object(
                engines.ModelEngine, "translate", examples.quick_search
            ),
            mock.patch.object(
                evaluation, "teacher_forced", examples.quick_loss
            ),
            mock.patch.object(
                attention_maps, "describe", return_value={"x": float("nan")}
            ),
            # It has tests of its own.
            mock.patch.object(html, "render", return_value=""),
        ]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def compare(self, runs, *more):
        return execute(
            f"--runs={runs.replace('HERE', str(self.folder))}",
            f"--data_dir={self.folder / 'data'}",
            f"--output_dir={self.folder / 'out'}",
            *more,
        )

    def report(self):
        return json.loads((self.folder / "out" / "report.json").read_text())

    def test_runs_of_two_seeds_become_a_report(self):
        examples.add_run(self.folder, "b-seed1")
        examples.add_run(self.folder, "b-seed2", 2, shift=2)
        code, out, err = self.compare(
            "b=HERE/b-seed*,HERE/a-seed1", "--num_samples=2"
        )
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"(?m)^b .* 2\.5000 ± 0\.0000 +0\.00 ")
        report = self.report()
        self.assertEqual(report["labels"], ["b", "a"])
        self.assertEqual(
            [(row["label"], row["seed"]) for row in report["runs"]],
            [("b", 1), ("b", 2), ("a", 1)],
        )
        self.assertEqual(
            report["attention"], {"b": {"x": None}, "a": {"x": None}}
        )
        self.assertEqual(report["split"], "test")
        self.assertLen(report["samples"], 2)
        self.assertEqual(report["runs"][2]["target_tokens"], 40)
        self.assertEqual(report["runs"][2]["steps_per_second"], 2.5)
        self.assertIn("Not all labels have the same seeds.", report["warnings"])
        self.assertIn("b and a have equal hparams.", report["warnings"])
        self.assertIn("warning: b and a have equal hparams.\n", err)
        text = (self.folder / "out" / "report.md").read_text("utf-8")
        self.assertIn(f"**{report['verdict']}**", text)
        html.render.assert_called_once_with(report)

    def test_dev_split_if_asked_for(self):
        code, _, err = self.compare("HERE/a-seed1", "--nouse_test_set")
        self.assertEqual(code, 0, err)
        self.assertEqual(self.report()["split"], "dev")
        self.assertEqual(self.report()["warnings"], [])

    @parameterized.parameters(
        ("problem", "other", "problem differs .pairs, other."),
        ("data", {"train": "0" * 64}, "train set differs .*, 00000000."),
    )
    def test_runs_of_another_problem_are_refused(self, name, value, message):
        path = examples.add_run(self.folder, "b-seed1")
        record = json.loads((path / "problem.json").read_text())
        del record["sha256"]
        run_dir.RunDir(path).write_problem(record | {name: value})
        code, _, err = self.compare("HERE/a-seed1,HERE/b-seed1")
        self.assertEqual(code, 1)
        self.assertRegex(err, rf"b-seed1, whose {message}\.\n\Z")
        self.assertEqual(err.count("\n"), 1)

    def test_other_tokenizer_is_refused(self):
        path = examples.add_run(self.folder, "b-seed1")
        (path / "tokenizer.model").write_bytes(b"else")
        code, _, err = self.compare("HERE/a-seed1,HERE/b-seed1")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"b-seed1, whose vocabulary differs .*\)\.\n\Z")

    def test_seeds_of_a_label_have_the_same_hparams(self):
        path = examples.add_run(self.folder, "a-seed2", 2)
        run = run_dir.RunDir(path)
        run.write_hparams(run.read_hparams().replace(alpha=0.9))
        code, _, err = self.compare("HERE/a-*")
        self.assertEqual(code, 1)
        self.assertRegex(err, "same hparams for all runs of a. .* alpha.\n")

    def test_interrupted_command_says_how_to_go_on(self):
        with mock.patch.object(
            engines.ModelEngine, "translate", side_effect=KeyboardInterrupt
        ):
            code, out, err = self.compare("HERE/a-seed1")
        self.assertEqual((code, out), (0, ""))
        self.assertRegex(
            err,
            r"Stopped\. The same command goes on from there:\n  \S[^\n]+\n\Z",
        )
        self.assertFalse((self.folder / "out" / "report.json").exists())


class TrainTest(absltest.TestCase):
    """The command line of the trainer; tests/campaigns/compare.py trains."""

    def test_trainer_understands_its_command_line(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        given = []

        def run(arguments, log, task, watch):
            self.assertEqual(log, folder / "logs" / "k=0-seed3.log")
            self.assertEqual(task, "Training of k=0 seed 3")
            self.assertEqual(arguments[:2], ["-m", "relpos_tf.bin.trainer"])
            watch()
            given.extend(arguments[2:])

        with mock.patch.object(child_process, "run", run):
            code, _, err = execute(
                "--preset=table2",
                "--problem=translate_files",
                "--train_source=s",
                "--train_target=t",
                "--dev_source=s",
                "--dev_target=t",
                "--vocab_size=300",
                "--hparams=hidden_size=64",
                "--seeds=3,5",
                "--train_steps=40",
                "--train_max_length=9",
                "--local_eval_frequency=20",
                f"--output_dir={folder}",
            )
        self.assertEqual(code, 1)
        self.assertIn("k=0 seed 3 ended before step 40", err)
        command.parse(trainer.FLAGS, given)
        self.assertEqual(
            trainer.make_hparams(),
            registry.hparams(TINY).override(
                "hidden_size=64,max_relative_position=0,max_length=9"
            ),
        )
        for name, value in {
            "problem": "translate_files",
            "train_source": "s",
            "dev_target": "t",
            "vocab_size": 300,
            "random_seed": 3,
            "train_steps": 40,
            "local_eval_frequency": 20,
            "log_step_count_steps": 4,
            "output_dir": f"{folder}/runs/k=0-seed3",
        }.items():
            self.assertEqual(trainer.FLAGS[name].value, value, name)


if __name__ == "__main__":
    absltest.main()
