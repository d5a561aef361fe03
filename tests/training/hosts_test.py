"""Tests of the collectives of hosts; a stand-in sums their values.

In tests/integration/hosts_test.py the hosts are processes.
"""

from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.training import hosts
from tests.training import cluster_test


def host(index):
    """Returns one of three hosts."""
    jobs = {"worker": ["one:1", "two:2", "three:3"]}
    config = cluster_test.config_of(jobs, type="worker", index=index)
    strategy = mock.create_autospec(
        tf.distribute.MultiWorkerMirroredStrategy, instance=True
    )
    with mock.patch.dict("os.environ", {"TF_CONFIG": config}):
        return hosts.Hosts(strategy)


class HostsTest(absltest.TestCase):
    def test_other_values_are_named_on_the_host_that_has_them(self):
        values = {"--a": "1\udce9", "--b": "2", "c": "3"}
        chief, other = host(0), host(1)
        chief.strategy.reduce.side_effect = lambda _, value, axis: value
        chief.check_same(values)
        _, sent = chief.strategy.reduce.call_args.args
        other.strategy.reduce.side_effect = lambda _, value, axis: value + sent
        other.check_same(values)
        with self.assertRaisesRegex(
            errors.UserError,
            r"host 1 \(two:2\), other than on the chief: --b, c\.$",
        ):
            other.check_same(values | {"--b": "1", "c": ""})
