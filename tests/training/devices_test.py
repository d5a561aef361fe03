"""Tests of the choice of devices; two logical CPUs stand for GPUs."""

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
        ({"compute_capability": (7, 5)}, "amx_bf16", True),
        ({"compute_capability": (8, 0)}, "sse2", False),
        ({}, "sse2", False),  # unknown
        (None, "flags : sse2 avx512_bf16", False),
        (None, "flags : sse2", True),
        (None, "", False),  # unknown
    )
    def test_what_lacks_bfloat16(self, gpu, cpuinfo, expected):
        gpus = [] if gpu is None else ["gpu"]
        file = self.create_tempfile(content=cpuinfo).full_path
        with (
            mock.patch.multiple(
                tf.config,
                list_logical_devices=lambda kind: gpus,
                list_physical_devices=lambda kind: gpus,
            ),
            mock.patch.object(
                tf.config.experimental, "get_device_details", return_value=gpu
            ),
        ):
            self.assertEqual(devices.lacks_bfloat16(file), expected)

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
