"""Tests of reading TF_CONFIG."""

import json

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.training import cluster

TWO = {"worker": ["one:1111", "two:2222"]}


def config(jobs, **task):
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": task})}


class ClusterTest(parameterized.TestCase):
    @parameterized.parameters({}, {"TF_CONFIG": ""}, {"TF_CONFIG": " \n"})
    def test_no_config_is_no_cluster(self, **environment):
        self.assertIsNone(cluster.from_environment(environment))

    def test_one_host_is_no_cluster(self):
        environment = config({"worker": ["one:1111"]}, type="worker", index=0)
        self.assertIsNone(cluster.from_environment(environment))

    @parameterized.parameters((0, True), (1, False), ("1", False))
    def test_workers(self, index, is_chief):
        found = cluster.from_environment(
            config(TWO, type="worker", index=index)
        )
        self.assertEqual(found.addresses, ("one:1111", "two:2222"))
        self.assertEqual(found.index, int(index))
        self.assertEqual(found.is_chief, is_chief)

    def test_chief_comes_before_workers(self):
        jobs = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
        found = cluster.from_environment(config(jobs, type="worker", index=1))
        self.assertEqual(found.addresses, ("c:3", "a:1", "b:2"))
        self.assertEqual(found.index, 2)
        found = cluster.from_environment(config(jobs, type="chief", index=0))
        self.assertTrue(found.is_chief)

    @parameterized.named_parameters(
        ("not_json", {"TF_CONFIG": "{cluster"}, "not JSON"),
        ("not_an_object", {"TF_CONFIG": "[1]"}, '"cluster" is missing'),
        ("empty", {"TF_CONFIG": "{}"}, '"cluster" is missing'),
        (
            "no_task",
            {"TF_CONFIG": json.dumps({"cluster": TWO})},
            '"task" is missing',
        ),
        ("no_jobs", config({}, type="worker", index=0), "jobs besides"),
        (
            "parameter_servers",
            config(TWO | {"ps": ["three:3"]}, type="worker", index=0),
            "jobs besides",
        ),
        ("other_type", config(TWO, type="chief", index=0), '"type"'),
        ("no_type", config(TWO, index=0), '"type"'),
        (
            "type_is_a_list",
            config(TWO, type=["worker"], index=0),
            '"type" of "task" is no job of',
        ),
        (
            "index_is_huge",
            config(TWO, type="worker", index="1" * 5000),
            "from 0 to 1",
        ),
        (
            "port_is_huge",
            config({"worker": ["a:" + "1" * 5000]}, type="worker", index=0),
            "HOST:PORT",
        ),
        ("deep", {"TF_CONFIG": "[" * 100_000}, "not JSON"),
        ("no_index", config(TWO, type="worker"), "from 0 to 1"),
        ("index_too_high", config(TWO, type="worker", index=2), "from 0 to 1"),
        ("negative", config(TWO, type="worker", index=-1), "from 0 to 1"),
        ("no_list", config({"worker": "a:1"}, type="worker", index=0), "list"),
        (
            "no_port",
            config({"worker": ["a", "b:1"]}, type="worker", index=0),
            "HOST:PORT",
        ),
        (
            "high_port",
            config({"worker": ["a:70000", "b:1"]}, type="worker", index=0),
            "HOST:PORT",
        ),
        (
            "number",
            config({"worker": [1, "b:1"]}, type="worker", index=0),
            "HOST:PORT",
        ),
        (
            "twice",
            config({"worker": ["a:1", "a:1"]}, type="worker", index=0),
            "same address",
        ),
        (
            "two_chiefs",
            config({"chief": ["a:1", "b:1"]}, type="chief", index=0),
            "more than one",
        ),
    )
    def test_mistakes_are_named_in_one_line(self, environment, expected):
        with self.assertRaises(errors.UserError) as caught:
            cluster.from_environment(environment)
        message = str(caught.exception)
        self.assertIn(expected, message)
        self.assertStartsWith(message, "TF_CONFIG")
        self.assertIn("Received: ", message)
        self.assertNotIn("\n", message)

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


if __name__ == "__main__":
    absltest.main()
