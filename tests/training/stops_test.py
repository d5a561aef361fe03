"""A run that is stopped and resumed ends as one that was never stopped."""

from unittest import mock

from absl.testing import absltest

from relpos_tf import hparam
from relpos_tf.models import run_dir
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import trainer as trainer_lib
from relpos_tf.utils import signals
from tests.training import tiny_runs


class StopsTest(tiny_runs.TestCase):
    hparams = hparam.HParams(
        hidden_size=8,
        filter_size=12,
        num_heads=2,
        num_hidden_layers=1,
        batch_size=128,
        max_length=32,
        average_checkpoints=3,
    )
    config = {"local_eval_frequency": 5, "keep_checkpoint_max": 3}

    def train_to(self, name, *stops, hosts=1):
        """Trains with a signal after the update of each stop; averages.

        The other hosts are this one once more: they always agree with it.
        """
        report = trainer_lib.Trainer._report_progress

        def stopping(trainer, throughput, step):
            report(trainer, throughput, step)
            if step in stops:
                signals._handle(2, None)

        with mock.patch.object(
            trainer_lib.Trainer, "_report_progress", stopping
        ):
            for stop in stops:
                trainer = self.trainer(name, 20)
                trainer._hosts.number = hosts
                with self.assertRaises(KeyboardInterrupt), signals.caught():
                    trainer.train()
                self.assertEqual(trainer.step, stop)
            trainer = self.trainer(name, 20)
            trainer.train()
        return trainer.average()

    @mock.patch.object(hosts_lib.Hosts, "_sum", lambda _, values: list(values))
    @mock.patch.object(hosts_lib.Hosts, "from_last", lambda _, *values: values)
    def test_stops_do_not_change_the_average(self):
        averages = []
        # With a signal at step 10, which is saved in any case.
        for name, stops, hosts in (
            ("whole", (), 1),
            ("stopped", (7, 10, 12, 13, 18), 1),
            ("several_hosts", (10, 18), 2),
        ):
            averages.append(self.train_to(name, *stops, hosts=hosts))
            steps = run_dir.regular_steps(self.folder / name)
            self.assertEqual(steps, [10, 15, 20], name)
        self.assertGreater(len(self.values_in(averages[0])), 10)
        for average in averages[1:]:
            self.assert_same_values(averages[0], average)

    def test_too_few_kept_checkpoints_are_a_warning_at_the_start(self):
        for keep, number in ((2, 1), (3, 0), (0, 0)):
            trainer = self.trainer("few", 1, keep_checkpoint_max=keep)
            with self.assertLogs("relpos_tf") as logs:
                trainer._check_evaluation()
                trainer_lib._log.info("The end.")
            self.assertLen(logs.output, number + 1)
            if number:
                self.assertIn(
                    "--keep_checkpoint_max=2 keeps fewer checkpoints than "
                    "average_checkpoints=3 asks for: the average will be of 2.",
                    logs.output[0],
                )


if __name__ == "__main__":
    absltest.main()
