"""Tests of `batch_size=auto`, on a CPU: the device's memory is simulated."""

import pathlib
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import run_dir
from relpos_tf.training import batch_size
from relpos_tf.training import hosts
from relpos_tf.training import run_config
from relpos_tf.training import train_step
from tests import testing
from tests.campaigns import replicas

testing.use_two_cpus()

SIZES = [2**n for n in range(8, 20)] + [3 * 2**n for n in range(7, 18)]


class LargestTest(parameterized.TestCase):
    @parameterized.parameters(256, 383, 384, 511, 5000, 6144, 2**19, 10**7)
    def test_it_is_the_largest_of_all_sizes_that_fit(self, room):
        tried = []

        def fits(tokens):
            tried.append(tokens)
            return tokens <= room

        found = batch_size.largest(fits)
        self.assertEqual(found, max(s for s in SIZES if s <= room))
        self.assertLen(set(tried), len(tried))
        self.assertLessEqual(max(tried), 2 * room)  # of a doubling, at most

    def test_too_little_memory_for_the_least_is_refused(self):
        with self.assertRaisesRegex(errors.UserError, "not even 256 tokens"):
            batch_size.largest(lambda tokens: False)


class RunTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.new_run = run_dir.RunDir(folder / "run")
        self.hosts = hosts.Hosts(tf.distribute.get_strategy())

    def test_a_run_that_goes_on_keeps_its_size_without_a_trial(self):
        fits = mock.Mock(side_effect=lambda tokens: tokens <= 1000)
        hparams = hparam.HParams()
        with self.assertLogs("relpos_tf", "INFO") as logs:
            first = batch_size.resolve(self.hosts, self.new_run, hparams, fits)
        self.assertIn("768 tokens fit", logs.output[-1])
        self.assertEqual(first, hparams.replace(batch_size=768))
        self.new_run.write_hparams(first)
        again = batch_size.resolve(self.hosts, self.new_run, hparams, self.fail)
        self.assertEqual(again, first)

    def test_a_cpu_is_refused_unless_the_run_has_its_size(self):
        with self.assertRaisesRegex(errors.UserError, "needs a GPU.*a number"):
            batch_size.check_device(self.new_run)
        self.new_run.write_hparams(hparam.HParams())
        batch_size.check_device(self.new_run)


class TrialTest(parameterized.TestCase):
    def test_an_update_of_the_longest_sentences_is_tried(self):
        hparams = replicas.HPARAMS.replace(
            max_length=32, optimizer_multistep_accumulate_steps=2
        )
        trial = batch_size.Trial(hparams, run_config.RunConfig())
        compile_step, shapes = train_step.compile_step, []

        def compile_for_small_memory(*args, **kwargs):
            step = compile_step(*args, **kwargs)

            def limited(*batches):
                shapes.append([b["inputs"].shape.as_list() for b in batches])
                if shapes[-1][0][0] > 12:
                    raise tf.errors.ResourceExhaustedError(None, None, "OOM")
                return step(*batches)

            return limited

        with mock.patch.object(
            train_step, "compile_step", side_effect=compile_for_small_memory
        ) as compiled:
            found = [trial(tokens) for tokens in (256, 512, 320)]
        self.assertEqual(found, [True, False, True])
        # An eighth more than was asked for: 288, 576 and 360 tokens.
        self.assertEqual(shapes, [[[n, 32]] * 2 for n in (9, 18, 11)])
        compiled.assert_called_once()


if __name__ == "__main__":
    absltest.main()
