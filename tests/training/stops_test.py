"""A run that is stopped and resumed ends as one that was never stopped."""

import signal
from unittest import mock

from absl.testing import parameterized

from relpos_tf.models import run_dir
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import trainer as trainer_lib
from relpos_tf.utils import signals
from tests.training import tiny_runs


class StopsTest(parameterized.TestCase, tiny_runs.TestCase):
    hparams = tiny_runs.HPARAMS.replace(average_checkpoints=3)
    # As many checkpoints stay as are averaged.
    config = {"local_eval_frequency": 2, "keep_checkpoint_max": 1}

    def setUp(self):
        super().setUp()
        self.enter_context(tiny_runs.untraced())

    def train_to(self, name, *stops, hosts=1):
        """Trains with a signal after the update of each stop; averages.

        The other hosts are this one once more: they always agree with it.
        """
        report = trainer_lib.Trainer._report

        def stopping(trainer, *arguments):
            report(trainer, *arguments)
            if trainer.step in stops:
                signals._handle(2, None)

        with mock.patch.object(trainer_lib.Trainer, "_report", stopping):
            for stop in stops:
                trainer = self.trainer(name, 8)
                trainer._hosts.number = hosts
                with self.assertRaises(KeyboardInterrupt), signals.caught():
                    trainer.train()
                self.assertEqual(trainer.step, stop)
            trainer = self.trainer(name, 8)
            trainer.train()
        return trainer.average()

    @parameterized.parameters(
        (4, [0, 0, 1, 0, 0, 0], signal.SIGTERM),  # another host has a signal
        (2, [0, 15], signal.SIGTERM),  # the chief, while it evaluates
    )
    def test_signal_to_another_host_ends_this_one_alike(
        self, step, others, number
    ):
        name = f"run{step}"
        trainer = self.trainer(name, 8, **tiny_runs.EVALUATES)
        trainer._hosts.number = 2

        def sums(_, values):
            values = list(values)
            if trainer.step == step and len(values) == len(others):
                return [a + b for a, b in zip(values, others, strict=True)]
            return values

        with (
            mock.patch.object(hosts_lib.Hosts, "_sum", sums),
            mock.patch.object(hosts_lib.Hosts, "from_last", lambda _, *v: v),
            mock.patch.object(trainer_lib.Trainer, "evaluate", dict),
            mock.patch.object(trainer._stopping, "is_over", lambda *_: False),
            self.assertRaises(signals.Stopped) as caught,
        ):
            trainer.train()
        self.assertEqual(caught.exception.number, number)
        self.assertIn(step, run_dir.all_steps(self.folder / name))

    @mock.patch.object(hosts_lib.Hosts, "_sum", lambda _, values: list(values))
    @mock.patch.object(hosts_lib.Hosts, "from_last", lambda _, *values: values)
    def test_stops_do_not_change_the_average(self):
        averages = []
        # With a signal at step 4, which is saved in any case.
        for name, stops, hosts in (
            ("whole", (), 1),
            ("stopped", (3, 4), 1),
            ("several_hosts", (4, 7), 2),
        ):
            averages.append(self.train_to(name, *stops, hosts=hosts))
            steps = run_dir.all_steps(self.folder / name)
            self.assertEqual(steps, [4, 6, 8], name)
        self.assertGreater(len(self.values_in(averages[0])), 10)
        for average in averages[1:]:
            self.assert_same_values(averages[0], average)
