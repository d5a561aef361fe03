"""Tests of reading TF_CONFIG."""

import json
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.training import cluster

TWO = {"worker": ["one:1111", "two:2222"]}


def cluster_of(jobs, **task):
    """Returns the cluster of a TF_CONFIG."""
    return read(json.dumps({"cluster": jobs, "task": task}))


def read(config):
    with mock.patch.dict("os.environ", {"TF_CONFIG": config}):
        return cluster.from_environment()


class ClusterTest(parameterized.TestCase):
    def test_no_config_and_one_host_are_no_cluster(self):
        self.assertIsNone(read(""))
        one = {"worker": ["one:1111"]}
        self.assertIsNone(cluster_of(one, type="worker", index=0))

    @parameterized.parameters((0, True), (1, False), ("1", False))
    def test_workers(self, index, is_chief):
        found = cluster_of(TWO, type="worker", index=index)
        self.assertEqual(found.addresses, ("one:1111", "two:2222"))
        self.assertEqual(found.index, int(index))
        self.assertEqual(found.is_chief, is_chief)

    def test_chief_comes_before_workers(self):
        jobs = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
        found = cluster_of(jobs, type="worker", index=1)
        self.assertEqual(found.addresses, ("c:3", "a:1", "b:2"))
        self.assertEqual(found.index, 2)
        self.assertTrue(cluster_of(jobs, type="chief", index=0).is_chief)

    @parameterized.parameters(
        "{cluster",
        "[1]",
        "{}",
        json.dumps({"cluster": TWO}),
        json.dumps({"cluster": TWO, "task": {"type": "chief", "index": 0}}),
        json.dumps({"cluster": TWO, "task": {"type": "ps", "index": 0}}),
        json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 2}}),
        json.dumps(
            {
                "cluster": {"worker": ["a", "b:1"]},
                "task": {"type": "worker", "index": 0},
            }
        ),
    )
    def test_mistakes_are_named_in_one_line(self, config):
        with self.assertRaisesRegex(
            errors.UserError, r"\ATF_CONFIG .*Expected.*Received: .*\.\Z"
        ):
            read(config)

    def test_failed_host_is_named(self):
        two = cluster.Cluster(("a:1", "b:2", "c:3"), index=0)
        own = "on /job:worker/replica:0/task:0: Collective ops is aborted by"
        self.assertEqual(
            two.failed_host(f"{own}: /job:worker/replica:0/task:2 is down"),
            "host 2 (c:3)",
        )
        self.assertEqual(two.failed_host(f"{own}: Socket closed"), "")
        self.assertEqual(two.failed_host(f"{own}: /job:worker/task:7"), "")
        chief = cluster.Cluster(("a:1", "b:2"), index=1, first_worker=1)
        self.assertEqual(
            chief.failed_host(f"{own}: /job:chief/task:0"), "the chief (a:1)"
        )
        self.assertEqual(chief.failed_host(f"{own}: /job:worker/task:0"), "")
        other = cluster.Cluster(("a:1", "b:2"), index=0, first_worker=1)
        self.assertEqual(
            other.failed_host(f"{own}: /job:worker/task:0"), "host 1 (b:2)"
        )
