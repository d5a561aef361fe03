"""Tests of the choice of devices; two logical CPUs stand for GPUs."""

import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.training import cluster
from relpos_tf.training import devices
from tests.training import cluster_test


def config(*addresses):
    return {"TF_CONFIG": cluster_test.config_of({"worker": addresses})}


class DevicesTest(parameterized.TestCase):
    @parameterized.parameters(
        ({}, True),
        (config("one:1"), True),
        # As for an evaluation, which needs one host.
        (config("one:1", "two:2"), False),
        ({"TF_CONFIG": "{"}, False),
        ({"TF_CONFIG": '{"task": {"type": "evaluator"}}'}, False),
    )
    def test_strategy_of_this_host(self, environment, several_hosts):
        with mock.patch.dict("os.environ", environment):
            strategy = devices.strategy(0, several_hosts)
        self.assertIs(type(strategy), tf.distribute.MirroredStrategy)
        self.assertEqual(strategy.num_replicas_in_sync, 2)

    def test_more_gpus_than_there_are(self):
        for environment in ({}, config("one:1", "two:2")):
            with mock.patch.dict("os.environ", environment):
                with self.assertRaisesRegex(errors.UserError, "at most 0"):
                    devices.strategy(1, several_hosts=True)

    @parameterized.parameters(
        ({"compute_capability": (7, 5)}, 0, False),
        ({"compute_capability": (8, 0)}, 0.02, True),
        ({}, 0.02, True),  # unknown
        (None, 0, True),
        (None, 0.009, False),  # hardly faster
    )
    def test_whether_bfloat16_is_faster(self, gpu, seconds, expected):
        gpus = [] if gpu is None else ["gpu"]

        def matmul(x, _):
            time.sleep(seconds if x.dtype == tf.bfloat16 else 0.01)
            return x

        with (
            mock.patch.multiple(
                tf.config,
                list_logical_devices=lambda kind: gpus,
                list_physical_devices=lambda kind: gpus,
            ),
            mock.patch.object(
                tf.config.experimental, "get_device_details", return_value=gpu
            ),
            mock.patch.object(tf, "matmul", matmul),
        ):
            self.assertEqual(devices.is_bfloat16_faster(), expected)

    def test_rendezvous_comes_before_tensorflow_connects(self):
        calls = []

        def connect():
            calls.append("connected")
            raise tf.errors.UnknownError(None, None, "No server.\nMore.")

        with (
            mock.patch.dict("os.environ", config("one:1", "two:2")),
            mock.patch.object(cluster, "await_hosts", calls.append),
            mock.patch.object(
                tf.distribute, "MultiWorkerMirroredStrategy", connect
            ),
            self.assertRaisesRegex(
                errors.UserError, r"connect the chief \(one:1\).*: No server\."
            ),
        ):
            devices.strategy(several_hosts=True)
        self.assertEqual(
            calls, [cluster.Cluster(("one:1", "two:2"), 0), "connected"]
        )
