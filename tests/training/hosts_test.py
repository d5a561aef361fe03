"""Tests of the collectives of hosts; a stand-in sums their values.

In tests/integration/hosts_test.py the hosts are processes.
"""

from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.training import hosts
from tests.training import cluster_test


class SeveralHosts(hosts.Hosts):
    """One of three hosts.

    Args:
        index: int.
        *others: the other hosts' part of each sum, or an exception.
    """

    def __init__(self, index, *others):
        jobs = {"worker": ["one:1", "two:2", "three:3"]}
        config = cluster_test.config_of(jobs, type="worker", index=index)
        strategy = mock.create_autospec(
            tf.distribute.MultiWorkerMirroredStrategy, instance=True
        )
        strategy.reduce.side_effect = self.reduce
        with mock.patch.dict("os.environ", {"TF_CONFIG": config}):
            super().__init__(strategy)
        self.others = list(others)
        self.sent = []

    def reduce(self, operation, value, axis):
        assert (operation, axis) == ("SUM", None)
        self.sent.append(value.numpy().tolist())
        other = self.others.pop(0)
        if isinstance(other, Exception):
            raise other
        return value + tf.constant(other, tf.int64)


def lost():
    return tf.errors.UnavailableError(
        None,
        None,
        "device_/job:worker/replica:0/task:0/: Collective ops is aborted by: "
        "Error reported from /job:worker/task:1: stopped.\nMore.",
    )


class HostsTest(absltest.TestCase):
    def test_lost_host_is_one_line(self):
        group = SeveralHosts(0, lost())
        with self.assertRaises(errors.UserError) as caught:
            group.barrier()
        self.assertEqual(
            str(caught.exception),
            "The connection is lost: host 1 (two:2) has ended or cannot be "
            "reached. See its messages, then run the same command on all "
            "hosts again: the run resumes from its last checkpoint.",
        )

    def test_other_values_are_named_on_the_host_that_has_them(self):
        values = {"--a": "1", "--b": "2", "c": "3"}
        chief = SeveralHosts(0, [0, 0, 0])
        chief.check_same(values)
        [sent] = chief.sent
        SeveralHosts(1, sent).check_same(values)
        with self.assertRaisesRegex(
            errors.UserError,
            r"host 1 \(two:2\), other than on the chief: --b, c\.$",
        ):
            SeveralHosts(1, sent).check_same(values | {"--b": "1", "c": ""})
