"""The compare command: its flags, its output, its files and its errors."""

import json
import pathlib
import shlex
import shutil
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.bin import compare
from relpos_tf.bin import trainer
from relpos_tf.comparison import report as report_lib
from relpos_tf.comparison import runs
from relpos_tf.comparison import score_process
from relpos_tf.decoding import engines
from relpos_tf.decoding import model_engine
from relpos_tf.models import averages
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import translate
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.comparison import examples
from tests.problems import problem_test

TINY = "transformer_relative_tiny"
SIDES = "source", "target"


def execute(*arguments):
    """Returns (exit code, standard output, standard error)."""
    code, out, err = calls.execute(compare.main, *arguments)
    return code, out.decode(), err


def flags_of(commands):
    """Returns the flags of each of the printed commands of the trainer."""
    return [
        [word for word in shlex.split(line) if word.startswith("--")]
        for line in commands.split("\n")[:-1]
    ]


class DiffTest(folders.TestCase):
    def test_prints_what_differs_and_nothing_else(self):
        code, out, err = execute(
            "--diff", "--preset=table3", "--hparams=alpha=1;keys:beam_size=2"
        )
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            [line.split() for line in out.splitlines()],
            [
                ["keys+values", "keys", "values", "neither"],
                ["add_relative_to_keys", "true", "true", "false", "false"],
                ["add_relative_to_values", "true", "false", "true", "false"],
                ["beam_size", "4", "2", "4", "4"],
            ],
        )

    def test_prints_what_differs_between_runs(self):
        for name, alpha in (("a", 0.5), ("b", 1.0)):
            run = run_dir.RunDir(self.folder / name)
            run.write_hparams(tiny_run.HPARAMS.replace(alpha=alpha))
        code, out, _ = execute("--diff", f"--runs={self.folder}/a,c={run.path}")
        self.assertEqual((code, out), (0, "       a    c\nalpha  0.5  1.0\n"))


class RunsTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        examples.copy(self.folder)
        self.process = self.enter_context(examples.scores_in_this_process())
        self.enter_context(examples.quick())

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
        averages.write(examples.add_run(self.folder, "b-seed1"), [7], 7)
        examples.add_run(self.folder, "b-seed2", 2, shift=2)
        code, out, err = self.compare("b=HERE/b-seed*,HERE/a-seed1")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"(?m)^b .* 2\.500±0\.000 +0\.00$")
        report = self.report()
        self.assertEqual(report["labels"], ["b", "a"])
        self.assertEqual(
            [(row["label"], row["seed"]) for row in report["runs"]],
            [("b", 1), ("b", 2), ("a", 1)],
        )
        self.assertEqual(report["split"], "test")
        self.assertLen(report["samples"], min(10, report["lines"]))
        self.assertEqual(report["runs"][2]["target_tokens"], 40)
        self.assertEqual(report["runs"][2]["steps_per_second"], 2.5)
        self.assertIn("Not all labels have the same seeds: ", err)
        self.assertIn("checkpoints: 7 (b seed 1); none (b seed 2).", err)
        self.assertIn("b-seed2 has not ended: it has 7 of 100,000 upd", err)
        self.assertIn(report["verdict"], out)
        report_lib.page.assert_called_once_with(report)

    def test_a_scale_of_a_language_without_it_is_refused_first(self):
        run = run_dir.RunDir(self.folder / "a-seed1")
        run.write_problem(run.read_problem() | {"target_language": "zh"})
        code, out, err = self.compare("HERE/a-seed1", "--scale=wmt14")
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, "--scale: .*Moses.*Received: 'zh'")
        self.process.assert_not_called()

    def test_files_of_others_stand_beside_the_runs(self):
        examples.add_run(self.folder, "b-seed1", 2)
        references = [target for _, target in examples.TEST]
        path = self.write("theirs.txt", *references)
        code, out, err = self.compare(
            "HERE/a-seed1,b=HERE/b-seed1", f"--outputs=theirs={path}"
        )
        self.assertEqual(code, 0, err)
        report = self.report()
        self.assertEqual(report["labels"], ["a", "b", "theirs"])
        row = report["runs"][2]
        self.assertAlmostEqual(row["bleu"], 100.0)
        self.assertEqual(row["output_dir"], str(path))
        for name in ("loss", "parameters", "train_steps", "seed", "minutes"):
            self.assertIsNone(row[name], name)
        self.assertLen(report["pairs"], 3)
        self.assertRegex(out, r"(?m)^theirs( +100\.00){3} +1\.000 +– +100")

    def test_bleu_has_the_tokenizer_of_the_flag_or_of_the_runs(self):
        run = run_dir.RunDir(self.folder / "a-seed1")
        run.write_flags("--random_seed=1\n--bleu_tokenize=intl\n")
        for more, name in (([], "intl"), (["--bleu_tokenize=char"], "char")):
            code, _, err = self.compare("HERE/a-seed1", *more)
            self.assertEqual(code, 0, err)
            (row,) = self.report()["runs"]
            self.assertIn(f"|tok:{name}|", row["bleu_signature"])

    def test_runs_that_cannot_be_scored_are_named_beside_the_others(self):
        path = examples.add_run(self.folder, "b-seed1")
        (path / "ckpt-7.npz").write_bytes(b"")
        code, out, err = self.compare("HERE/a-seed1,HERE/b-seed1")
        self.assertEqual(code, 1)
        self.assertRegex(out, r"(?m)^a ")
        report = self.report()
        self.assertEqual([row["label"] for row in report["runs"]], ["a"])
        self.assertEqual(report["missing"], ["b seed 1"])
        self.assertIn("b seed 1", report["warnings"][0])
        self.assertRegex(err, "failed for 1 of 2: b seed 1 .*b-seed1.score")
        code, _, err = self.compare("HERE/b-seed1")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"compare: .*b seed 1\.\n\Z")

    @parameterized.parameters(
        ("problem", "other", "problem differs .pairs, other."),
        ("data", {"train": "0" * 64}, "train set differs .*, 00000000."),
        ("tokenizer", b"else", "vocabulary differs .*"),
        ("hparams", {"alpha": 0.9, "train_steps": 7}, "differ in alpha"),
        ("weights", "1,9", "differ in train_weights"),
    )
    def test_runs_that_cannot_be_compared_are_refused(self, name, value, words):
        path = examples.add_run(self.folder, "a-seed2", 2)
        run = run_dir.RunDir(path)
        if name == "tokenizer":
            (path / "tokenizer.model").write_bytes(value)
        elif name == "hparams":
            run.write_hparams(run.read_hparams().replace(**value))
        elif name == "weights":
            run.write_flags(f"--random_seed=2\n--train_weights={value}\n")
        else:
            run.write_problem(run.read_problem() | {name: value})
        code, _, err = self.compare("HERE/a-*")
        self.assertEqual(code, 2 if "differ in" in words else 1)
        self.assertRegex(err, rf"a-seed2, \w+ {words}\.\n\Z")
        self.assertEqual(err.count("\n"), 1)

    def test_interrupted_command_says_how_to_go_on(self):
        with mock.patch.object(
            model_engine.ModelEngine, "translate", side_effect=KeyboardInterrupt
        ):
            code, out, err = self.compare("HERE/a-seed1")
        self.assertEqual((code, out), (130, ""))
        self.assertRegex(
            err,
            r"Stopped\. The same command resumes:\n  \S[^\n]+\n"
            r"relpos-compare: stopped by SIGINT\.\n\Z",
        )
        self.assertFalse((self.folder / "out" / "report.json").exists())


class GridTest(folders.TestCase):
    """Tuning, with a trainer that copies a trained run."""

    # By alpha, which tells the labels apart: the rate that is best.
    BEST = {0.6: 0.5, 0.9: 2.0}

    def setUp(self):
        super().setUp()
        examples.copy(self.folder)
        self.trained, self.scored = [], []
        self.fails = ""

        def grid_tiny():
            return examples.tiny_run.HPARAMS.replace(num_hidden_layers=1)

        def pairs():
            return problem_test.make(name="pairs")

        registry.register_hparams(grid_tiny)
        registry.register_problem(pairs)
        for makers, name in (
            (registry._hparams._makers, "grid_tiny"),
            (registry._problems._makers, "pairs"),
        ):
            self.addCleanup(makers.pop, name)
        self.enter_context(examples.work_in_this_process(self.run_child))
        self.enter_context(
            examples.quick(lambda *arguments: self.search(*arguments))
        )

    def run_child(self, arguments):
        """Stands in for the trainer, and runs the scorer in this process."""
        if arguments[1] == "relpos_tf.comparison.score_process":
            request = json.loads(arguments[-1])
            name = pathlib.Path(request["path"]).stem
            self.scored += [(split, name) for split in request["sources"]]
            return score_process.main(arguments[-1])
        flags = dict(x.removeprefix("--").split("=", 1) for x in arguments[2:])
        path = pathlib.Path(flags["output_dir"])
        if path.name == self.fails:
            return 1
        self.trained.append(path.name)
        shutil.copytree(self.folder / "a-seed1", path)
        run = run_dir.RunDir(path)
        hparams = registry.hparams("grid_tiny").override(flags["hparams"])
        size = run.read_hparams().vocab_size
        run.write_hparams(hparams.replace(vocab_size=size))
        run.write_flags(
            f"--random_seed={flags['random_seed']}\n--problem=pairs\n"
        )
        return 0

    def search(self, engine, items, settings):
        """Is right in some lines, if the rate is the best one."""
        del settings
        hparams = engine.model.hparams
        is_best = hparams.learning_rate_constant == self.BEST[hparams.alpha]
        text = examples.PAIRS[-1][1] if is_best else "x"
        return [engines.Translation([text], [0.0], True) for _ in items]

    def compare(self, grid, *more):
        self.trained.clear()
        self.scored.clear()
        return execute(
            "--problem=pairs",
            "--hparams_sets=a=grid_tiny,b=grid_tiny",
            "--hparams=b:alpha=0.9",
            f"--grid=learning_rate_constant={grid}",
            "--train_steps=7",
            f"--data_dir={self.folder / 'data'}",
            f"--output_dir={self.folder / 'out'}",
            *more,
        )

    def test_best_points_alone_are_trained_further_and_tested(self):
        code, out, err = self.compare("0.5,1,2", "--seeds=1,2")
        self.assertEqual(code, 0, err)
        rate = "learning_rate_constant"
        tried = [f"{x}+{rate}={y}-seed1" for x in "ab" for y in ("0.5", 1, 2)]
        further = [f"a+{rate}=0.5-seed2", f"b+{rate}=2-seed2"]
        self.assertEqual(self.trained, [*tried, *further])
        tested = [tried[0], tried[5], *further]
        self.assertCountEqual(
            self.scored,
            [("dev", name) for name in tried]
            + [("test", name) for name in tested],
        )
        path = self.folder / "out" / "report.json"
        report = json.loads(path.read_text())
        self.assertEqual(
            [(one["label"], one["chosen"]) for one in report["tuning"]],
            [("a", f"{rate}=0.5"), ("b", f"{rate}=2")],
        )
        self.assertEqual(
            [(one["label"], one["seed"]) for one in report["runs"]],
            [("a", 1), ("a", 2), ("b", 1), ("b", 2)],
        )
        self.assertEqual(report["hparams_diff"][rate], {"a": 0.5, "b": 2.0})
        self.assertIn(
            f"At the edge of the grid: the best {rate} of a, b. A better one "
            "may lie beyond.",
            report["warnings"],
        )
        # The same command has nothing left to do.
        before = path.read_bytes()
        code, _, err = self.compare("0.5,1,2", "--seeds=1,2")
        self.assertEqual(code, 0, err)
        self.assertEqual((self.trained, self.scored), ([], []))
        self.assertIn("a learning_rate_constant=0.5 seed 2 is trained.", err)
        self.assertEqual(path.read_bytes(), before)
        # The first of the seeds, not the least, is that of the points.
        code, _, err = self.compare("0.5,1,2", "--seeds=1,2,0")
        self.assertEqual(code, 0, err)
        self.assertEqual(
            self.trained, [f"a+{rate}=0.5-seed0", f"b+{rate}=2-seed0"]
        )

    def test_printed_commands_train_the_runs_of_the_report(self):
        line = "0.5,2", "--seeds=1,2"
        for expected in (4, 2):  # all points, then the best two
            code, out, err = self.compare(*line, "--print_commands")
            self.assertEqual((code, self.trained), (0, []), err)
            commands = flags_of(out)
            self.assertLen(commands, expected)
            for flags in commands:
                self.run_child(["-m", "relpos_tf.bin.trainer", *flags])
        code, out, err = self.compare(*line, "--print_commands")
        self.assertEqual((code, out), (0, ""))
        self.assertIn("All runs are finished.", err)
        self.assertFalse((self.folder / "out" / "report.json").exists())
        code, out, err = self.compare(*line)
        self.assertEqual((code, self.trained), (0, []), err)
        self.assertRegex(out, "(?m)^b ")

    def test_failed_point_is_trained_again_and_a_failed_run_is_named(self):
        self.fails = "a+learning_rate_constant=2-seed1"
        code, _, err = self.compare("0.5,2")
        self.assertEqual(code, 1)
        self.assertIn(
            "learning_rate_constant=2 seed 1 failed with code 1.", err
        )
        self.assertEqual(self.scored, [])
        self.fails = "b+learning_rate_constant=2-seed2"  # after the choice
        code, _, err = self.compare("0.5,2", "--seeds=1,2")
        self.assertEqual(code, 1, err)
        self.assertNotIn("a+learning_rate_constant=0.5-seed1", self.trained)
        path = self.folder / "out" / "report.json"
        report = json.loads(path.read_text())
        self.assertEqual(
            [(one["label"], one["seed"]) for one in report["runs"]],
            [("a", 1), ("a", 2), ("b", 1)],
        )
        (name,) = report["missing"]
        self.assertRegex(name, "^b .* seed 2$")
        self.assertIn(name, report["warnings"][0])

    def test_dev_split_that_also_chose_is_reported(self):
        flags = "--nouse_test_set", "--bleu_tokenize=char"
        code, _, err = self.compare("0.5,2", *flags)
        self.assertEqual(code, 0, err)
        self.assertIn("which also chose the points of the grid", err)
        self.assertNotIn("test", [split for split, _ in self.scored])
        # The points are scored as the runs are.
        report = json.loads((self.folder / "out/report.json").read_text())
        for entry, run in zip(report["tuning"], report["runs"], strict=True):
            (bleu,) = (x["bleu"] for x in entry["points"] if x["is_chosen"])
            self.assertAlmostEqual(bleu, run["bleu"])
            self.assertIn("|tok:char|", run["bleu_signature"])


class TrainTest(folders.TestCase):
    """The command line of the trainer that a comparison starts."""

    def test_trainer_understands_its_command_line(self):
        given = []

        def work(arguments):
            self.assertEqual(arguments[:2], ["-m", "relpos_tf.bin.trainer"])
            given.append(arguments[2:])
            return 3

        line = (
            *("--preset=table2", "--problem=translate_files", "--seeds=3,5"),
            *("--train_source=s", "--train_target=t", "--dev_source=it's s"),
            *("--dev_target=t", "--vocab_size=300", "--hparams=hidden_size=64"),
            *("--train_steps=40", "--train_max_length=9"),
            "--local_eval_frequency=20",
            f"--output_dir={self.folder}",
        )
        with (
            examples.work_in_this_process(work),
            mock.patch.object(registry, "usr_dirs", ["own"]),
        ):
            code, _, err = execute(*line)
            printed = execute(*line, "--print_commands")
        self.assertEqual(code, 1)
        self.assertIn(f"(see {self.folder}/logs/k=0-seed3.log)", err)
        self.assertRegex(err, r"failed.* k=0 seed 3, .*, k=256 seed 5\.\n\Z")
        self.assertEqual((printed[0], printed[2]), (0, ""))
        self.assertEqual(flags_of(printed[1]), given)
        self.assertEqual(given[0][-1], "--usr_dir=own")
        command.parse(trainer.FLAGS, given[0])
        self.assertEqual(
            trainer.make_hparams(),
            registry.hparams(TINY).override(
                "hidden_size=64,max_relative_position=0,max_length=9"
            ),
        )
        for name, value in {
            "problem": "translate_files",
            "train_source": "s",
            "random_seed": 3,
            "local_eval_frequency": 20,
            "log_step_count_steps": 4,
            "output_dir": f"{self.folder}/runs/k=0-seed3",
        }.items():
            self.assertEqual(trainer.FLAGS[name].value, value, name)

    def test_other_files_than_those_of_the_runs_are_refused(self):
        folder, files = self.folder, {}
        names = "train", "dev", "test"
        for name, text in zip((*names, "moved", "other"), "abccd", strict=True):
            for side in SIDES:
                path = self.write(f"{name}.{side}", f"{text} b", f"c {text}")
                if name in names:
                    files[f"{name}_{side}"] = str(path)
        problem = translate.files_problem(files, 270)
        data = manifest_lib.fingerprints(problem.prepare(folder / "data"))
        run = run_dir.RunDir(folder / "runs" / f"{TINY}-seed1")
        run.write_problem(
            tiny_run.PROBLEM | {"problem": "translate_files", "data": data}
        )
        run.write_hparams(registry.hparams(TINY))
        (run.path / "ckpt-7.npz").touch()

        def compare_with(**changed):
            given = {**files, "vocab_size": 270, **changed}
            with mock.patch.object(
                runs, "train", side_effect=errors.UserError("Trained.")
            ):
                return execute(
                    f"--hparams_sets={TINY}",
                    "--problem=translate_files",
                    *(f"--{name}={value}" for name, value in given.items()),
                    f"--data_dir={folder / 'data'}",
                    f"--output_dir={folder}",
                )

        moved = {f"test_{s}": f"{folder}/moved.{s}" for s in SIDES}
        for changed in ({}, moved):
            err = compare_with(**changed)[2]
            self.assertEqual(err, "relpos-compare: Trained.\n")
        other = {"test_source": f"{folder}/other.source"}
        for changed in (other, {"vocab_size": 271}):
            code, _, err = compare_with(**changed)
            self.assertEqual(code, 1)
            self.assertRegex(err, "-seed1 was made with other text")
        (run.path / "ckpt-7.npz").unlink()  # then it begins anew
        err = compare_with(vocab_size=271)[2]
        self.assertEqual(err, "relpos-compare: Trained.\n")
