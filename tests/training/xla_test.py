"""Training with XLA: by default on GPUs, with few shapes and full batches."""

import os
import re
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import trainer as command
from relpos_tf.data import plan
from relpos_tf.utils import graphs
from tests.training import tiny_runs


class XlaTest(tiny_runs.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (False, True, False),
    )
    def test_each_shape_is_told_once_where_xla_is_used(
        self, asked, on_gpu, is_used
    ):
        with (
            mock.patch.object(graphs, "have_gpu", return_value=on_gpu),
            tiny_runs.untraced(),
            self.assertLogs("relpos_tf") as logs,
        ):
            name = f"run-{asked}-{on_gpu}"
            trainer = self.trainer(
                name,
                20,
                "optimizer_multistep_accumulate_steps=2,"
                "self_attention_type=dot_product_relative,"
                "relative_attention_implementation=reshape",
                xla_compile=asked,
            )
            trainer.train()
        self.assertEqual(trainer._reader().plan.fills_batches, is_used)
        self.assertEqual("reshape has no effect" in f"{logs.output}", is_used)
        told = [line for line in logs.output if "XLA compiled batches" in line]
        shapes = re.findall(r"(\d+) x (\d+)", "\n".join(told))
        self.assertLess(len(told), len(shapes) or 1)
        self.assertLen(set(shapes), len(shapes))
        self.assertEqual(len(shapes) > 2, is_used)
        limits, rows = plan.buckets(128, 32, length_bucket_step=1.25)
        known = {
            (f"{n}", f"{limit}") for n, limit in zip(rows, limits, strict=True)
        }
        self.assertContainsSubset(shapes, known)

    def test_what_xla_cannot_compile_has_a_way_out(self):
        def fail(model, batch):
            raise tf.errors.InternalError(None, None, "no ptxas.\nmore")

        for asked, kind in (
            (True, errors.UserError),
            (False, tf.errors.InternalError),
        ):
            run = self.trainer(f"fails-{asked}", 3, xla_compile=asked)
            with tiny_runs.untraced(fail), self.assertRaises(kind) as raised:
                run.train()
            is_advised = "no ptxas. Train without it, with --noxla" in str(
                raised.exception
            )
            self.assertEqual(is_advised, asked)

    @mock.patch.dict(os.environ)
    def test_programs_are_kept_in_the_run_unless_the_user_has_own_flags(self):
        for name in ("XLA_FLAGS", "TF_XLA_FLAGS"):
            os.environ.pop(name, None)
        command.prepare_xla('my "runs"/xla')  # quoted, as TensorFlow reads it
        own = os.environ["TF_XLA_FLAGS"]
        self.assertRegex(own, r'="my \\\"runs\\\"/xla/[0-9a-f]{8}"$')
        self.assertIn("autotune_level=0", os.environ["XLA_FLAGS"])
        os.environ["XLA_FLAGS"] = "--mine"
        command.prepare_xla("runs/b/xla")
        found = os.environ["XLA_FLAGS"], os.environ["TF_XLA_FLAGS"]
        self.assertEqual(found, ("--mine", own))
