"""The benchmarks run, and count operations correctly."""

import contextlib
import dataclasses
import io
import json
import pathlib
import subprocess
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.data import plan
from relpos_tf.models import transformer
from tests import commands

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import common  # noqa: E402
import gpu  # noqa: E402
import made_up_pairs  # noqa: E402
import position_schemes  # noqa: E402
import resume  # noqa: E402
import summary  # noqa: E402
import train_step  # noqa: E402

TINY = ("--hidden=8", "--filter=12", "--heads=2", "--layers=1", "--vocab=17")
NAMES = ["sinusoids", "convolutional, 2D"]


def measure_schemes(run, *flags):
    """Measures two schemes at one size; returns the lines that are printed.

    Args:
        run: In the place of `common.run`.
        *flags: More flags of position_schemes.py.
    """
    flags = [*flags, "--sizes=2x3", "--schemes=convolutional, 2D"]
    out = io.StringIO()
    with (
        mock.patch.object(common, "run", run),
        mock.patch.object(sys, "argv", ["position_schemes.py", *flags]),
        contextlib.redirect_stdout(out),
    ):
        position_schemes.main()
    return out.getvalue().splitlines()


class ProductsTest(absltest.TestCase):
    def test_every_kernel_takes_six_operations_a_token_and_weight(self):
        size = {"hidden": 8, "filter": 12, "heads": 2, "layers": 3}
        model = transformer.Transformer(
            hparam.HParams().replace(
                vocab_size=17,
                hidden_size=8,
                filter_size=12,
                num_heads=2,
                num_hidden_layers=3,
            )
        )
        weights = sum(
            v.shape[0] * v.shape[1]
            for v in model.trainable_variables
            if v.path.endswith(("kernel", "embeddings"))
        )
        # Three attentions a layer: queries with keys, weights with values.
        pairs = 3 * 3 * 2 * (5 * 8)
        self.assertEqual(
            gpu.step_products(size, 17, 2, 5), 6 * 2 * 5 * (weights + pairs)
        )


class SummaryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.figures = summary.Figures(args=None)

    def test_a_figure_is_reached_up_to_its_bound(self):
        for measured, bound in (
            (1.02, {"at_most": 1.02}),
            (1.021, {"at_most": 1.02}),
            (1.5, {"at_least": 1.5}),
            (1.49, {"at_least": 1.5}),
            (7.0, {}),
            (None, {"at_most": 2}),
        ):
            self.figures.add("a", measured, **bound)
        self.assertEqual(
            [row["reached"] for row in self.figures.rows],
            ["reached", "not reached", "reached", "not reached", "-", "-"],
        )

    def test_table(self):
        self.figures.add("short", 0.1234, at_most=2, unit=" s")
        self.figures.add("long", 12345.6)
        self.figures.add("none", None, at_least=1.5)
        self.assertEqual(
            self.figures.table(),
            "| figure | measured | aim | result |\n|---|---|---|---|\n"
            "| short | 0.123 s | at most 2 s | reached |\n"
            "| long | 12,346 |  | - |\n"
            "| none | - | at least 1.5 | - |\n",
        )

    def test_missing_peers_are_named(self):
        done = subprocess.run(
            [sys.executable, FOLDER / "summary.py", "--peers=nowhere"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("Expected nowhere/opennmt/bin/python", done.stderr)


class RunTest(parameterized.TestCase):
    def run_script(self, name, *flags):
        """Runs a benchmark; returns the objects that it prints."""
        done = commands.run(
            [sys.executable, FOLDER / name, *flags],
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_models_take_turns(self):
        done = commands.run(
            [
                sys.executable,
                FOLDER / "compare_steps.py",
                *TINY,
                "--batch=2",
                "--len=3",
                "--steps=2",
                "--warmup=1",
                "relative=1",
                "relative=0",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(
            [row["model"] for row in rows], ["relative=1", "relative=0"]
        )
        self.assertEqual(rows[1]["ratio"], 1.0)
        self.assertGreater(rows[0]["median_ms"], 0)

    def test_every_kind_of_self_attention_is_measured(self):
        names = "pos", "self_attention_type", "attention_score", "localness"
        found = {field: set() for field in names}
        for changes in position_schemes.SCHEMES.values():
            hparams = hparam.HParams().override(changes)
            for field, values in found.items():
                values.add(getattr(hparams, field))
        kinds = found.pop("self_attention_type")
        self.assertSetEqual(kinds, set(hparam.SELF_ATTENTION_TYPES))
        for field in dataclasses.fields(hparam.HParams):
            if field.name in found:
                choices = field.metadata["limits"].choices
                self.assertSetEqual(found[field.name], set(choices))

    def test_schemes_take_turns_and_their_memory_is_measured_alone(self):
        alone = []

        def run(command):
            if command[1] == position_schemes.__file__:
                return common_run(command)
            # A process of its own for each scheme takes too long here.
            alone.append(command)
            return [{"peak_memory_mb": 100 + len(alone)}]

        common_run = common.run
        lines = measure_schemes(run, *TINY, "--steps=2", "--warmup=1")
        for command, name in zip(alone, NAMES, strict=True):
            self.assertEqual(command[1], FOLDER / "train_step.py")
            changes = position_schemes.SCHEMES[name]
            self.assertContainsSubset(
                [f"--hparams={changes}", "--batch=2", "--len=3", "--layers=1"],
                command,
            )
        *rows, empty, head, _, base, other = lines
        rows = [json.loads(row) for row in rows]
        self.assertEqual(empty, "")
        self.assertStartsWith(head, "| scheme | steps/s, 2 x 3 |")
        for row, cells in zip(rows, (base, other), strict=True):
            expected = [
                row["scheme"],
                f"{row['steps_per_second']:.2f}",
                f"{row['ratio']:.2f}",
                str(row["peak_memory_mb"]),
            ]
            self.assertEqual(cells, f"| {' | '.join(expected)} |")
        self.assertEqual([row["scheme"] for row in rows], NAMES)
        self.assertEqual([row["peak_memory_mb"] for row in rows], [101, 102])
        self.assertEqual(rows[0]["ratio"], 1.0)

    @parameterized.parameters(
        ("time", {"ratio", "steps_per_second"}, 3),
        ("memory", {"peak_memory_mb"}, 2),
    )
    def test_time_or_memory_of_schemes_alone(self, what, expected, columns):
        def run(command):
            if command[1] == position_schemes.__file__:
                figures = {"steps_per_second": 2.0, "ratio": 1.0}
                return [{"scheme": name} | figures for name in NAMES]
            return [{"peak_memory_mb": 100}]

        *rows, _, head, _, _, _ = measure_schemes(run, f"--what={what}")
        for row, name in zip(map(json.loads, rows), NAMES, strict=True):
            self.assertEqual(row.pop("scheme"), name)
            self.assertSetEqual(set(row), {"batch", "len"} | expected)
        self.assertEqual(head.count("|"), columns + 1)

    def test_preparation_is_measured_and_compared(self):
        one, two = self.run_script(
            "preparation.py", "--pairs=500", "--vocab=400"
        )
        self.assertEqual((one["num_processes"], two["num_processes"]), (1, 2))
        for row in one, two:
            self.assertEqual(row["pairs"], 500)
            self.assertGreater(row["pairs_per_second"], 0)
            self.assertIs(row["same_bytes"], True)

    def test_the_given_batch_is_updated_with(self):
        args = train_step.make_parser("Times.").parse_args(TINY)
        padding = {
            "inputs": tf.constant([[5, 1]]),
            "targets": tf.constant([[0, 0]]),
        }
        self.assertEqual(train_step.make_step(args, tf, padding)(), 0)
        self.assertGreater(train_step.make_step(args, tf)(), 0)

    def test_a_resume_is_measured_in_both_ways(self):
        alone, batch = self.run_script(
            "resume.py", "--pairs=1000", "--share=0.5"
        )
        self.assertEqual((alone["way"], batch["way"]), ("plan", "first batch"))
        self.assertBetween(alone["batches_before"], 3, 1000 // 2)
        self.assertEqual(batch["batches_before"], alone["batches_before"])
        # TensorFlow takes memory, and the plan is made without it.
        self.assertLess(2 * alone["peak_memory_mb"], batch["peak_memory_mb"])

    def test_a_plan_is_measured_from_lengths_alone(self):
        [alone] = self.run_script("resume.py", "--pairs=997", "--lengths_only")
        self.assertEqual(alone["way"], "plan")
        self.assertEqual(alone["pairs"], 997)

    def test_the_batches_of_an_epoch_are_counted_without_a_plan(self):
        lengths = np.concatenate(list(made_up_pairs.lengths(997)))
        epoch = plan.Plan(lengths, [plan.Corpus(997)], resume.buckets())
        self.assertEqual(
            resume.count_batches(lengths), len(list(epoch.epoch(2, 3)))
        )

    def test_padded_ids_are_counted(self):
        [row] = self.run_script(
            "input_pipeline.py", "--pairs=500", "--seconds=0.2"
        )
        for way in "numpy", "tf_data":
            pairs = row[f"{way}_pairs_per_second"]
            ids = row[f"{way}_padded_ids_per_second"]
            # 36 ids a side on average, and some padding.
            self.assertBetween(ids / pairs, 2 * 36, 4 * 36)

    def test_an_unknown_flag_is_named(self):
        done = subprocess.run(
            [sys.executable, FOLDER / "compare_steps.py", "relatif=1"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("Got: relatif=1", done.stderr)


if __name__ == "__main__":
    absltest.main()
