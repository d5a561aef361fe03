"""Tests of the choice of devices; two logical CPUs stand for GPUs."""

import json
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.training import cluster
from relpos_tf.training import devices
from relpos_tf.training import rendezvous
from tests import testing

testing.use_two_cpus()


def config(*addresses):
    return {
        "TF_CONFIG": json.dumps(
            {
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": 0},
            }
        )
    }


class DevicesTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("no_config", {}, {}),
        ("one_host", config("one:1"), {}),
        # As for an evaluation, which needs one host.
        ("several_hosts_not_asked_for", config("one:1", "two:2"), None),
    )
    def test_strategy_of_this_host(self, environment, launch_config):
        with mock.patch.dict("os.environ", environment):
            strategy = devices.strategy(0, launch_config)
        self.assertIs(type(strategy), tf.distribute.MirroredStrategy)
        self.assertEqual(strategy.num_replicas_in_sync, 2)

    def test_bad_config_is_always_an_error(self):
        # TensorFlow reads it even for the devices of one host.
        with mock.patch.dict("os.environ", {"TF_CONFIG": "{"}):
            for launch_config in (None, {}):
                with self.assertRaisesRegex(errors.UserError, "TF_CONFIG: "):
                    devices.strategy(0, launch_config)

    def test_more_gpus_than_there_are(self):
        for environment in ({}, config("one:1", "two:2")):
            with mock.patch.dict("os.environ", environment):
                with self.assertRaisesRegex(errors.UserError, "at most 0"):
                    devices.strategy(2, {})

    def test_logical_cpus_are_for_one_host(self):
        with mock.patch.dict("os.environ", config("one:1", "two:2")):
            with self.assertRaisesRegex(errors.UserError, "--num_logical_cpus"):
                devices.strategy(0, {})

    def test_rendezvous_comes_before_tensorflow_connects(self):
        calls = []

        def await_hosts(hosts, launch_config):
            calls.append((hosts, dict(launch_config)))

        def connect():
            calls.append("connected")
            raise tf.errors.UnknownError(None, None, "No server.\nMore.")

        with (
            mock.patch.dict("os.environ", config("one:1", "two:2")),
            mock.patch.object(rendezvous, "await_hosts", await_hosts),
            mock.patch.object(
                tf.distribute, "MultiWorkerMirroredStrategy", connect
            ),
            mock.patch.object(
                tf.config, "get_logical_device_configuration", return_value=None
            ),
        ):
            with self.assertRaisesRegex(
                errors.UserError, r"connect the chief \(one:1\).*: No server\."
            ):
                devices.strategy(0, {"--a": "b"})
        self.assertEqual(
            calls,
            [
                (
                    cluster.Cluster(("one:1", "two:2"), 0),
                    {"--a": "b", "the number of GPUs": "0"},
                ),
                "connected",
            ],
        )


if __name__ == "__main__":
    absltest.main()
