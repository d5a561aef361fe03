"""Tests of TF_CONFIG and of the rendezvous, with threads for hosts."""

import concurrent.futures
import contextlib
import json
import socket
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.training import cluster

TWO = {"worker": ["one:1111", "two:2222"]}
WITH_CHIEF = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}


def config_of(jobs, **task):
    """Returns a TF_CONFIG; this host is the first worker unless it is said."""
    task = task or {"type": "worker", "index": 0}
    return json.dumps({"cluster": jobs, "task": task})


def cluster_of(jobs, **task):
    return read(config_of(jobs, **task))


def read(config):
    with mock.patch.dict("os.environ", {"TF_CONFIG": config}):
        return cluster.from_environment()


# What follows `a:1 ` in a list of workers, and is no address.
_NO_ADDRESSES = (
    "a :1 a: a:0 a:-1 a:abc a:65536 a:99999 a:1:2 a..b:1 .a:1 a:² größe:1 "
    f"http://a:1 ::1:2222 []:1 {'x' * 64}.org:1 {'x' * 70}:2222"
)
_NO_TASKS = (
    *({}, None, {"type": "chief", "index": 0}, {"type": "ps", "index": 0}),
    *({"type": "worker", "index": index} for index in (-1, 2, 1e999)),
)


class ClusterTest(parameterized.TestCase):
    def test_no_config_and_one_host_are_no_cluster(self):
        for config in ("", "{}", '{"cluster": {}, "task": {}}'):
            self.assertIsNone(read(config))
        one = {"worker": ["one:1111"]}
        self.assertIsNone(cluster_of(one, type="worker", index=0))

    @parameterized.parameters(
        (TWO, "worker", 0, ("one:1111", "two:2222"), 0),
        (TWO, "worker", "1", ("one:1111", "two:2222"), 1),
        (WITH_CHIEF, "worker", 1, ("c:3", "a:1", "b:2"), 2),
        (WITH_CHIEF, "chief", 0, ("c:3", "a:1", "b:2"), 0),
    )
    def test_the_chief_comes_before_workers(
        self, jobs, kind, index, addresses, place
    ):
        found = cluster_of(jobs, type=kind, index=index)
        self.assertEqual((found.addresses, found.index), (addresses, place))

    @parameterized.parameters(
        *("{cluster", "[" * 100_000, "[1]", "[]", "null", '"cluster"'),
        *('{"cluster": null}', json.dumps({"cluster": TWO})),
        *(json.dumps({"cluster": TWO, "task": task}) for task in _NO_TASKS),
        *(
            config_of({"worker": ["a:1", one]})
            for one in (
                *(*_NO_ADDRESSES.split(), "a:1 ", "a b:1", "a\0:1", None, 7),
                *(["a:1"], "a:1", "a:01"),
            )
        ),
        config_of({"chief": ["a:1"], "worker": ["a:01"]}),
    )
    def test_mistakes_are_named_in_one_line(self, config):
        with self.assertRaisesRegex(
            errors.UserError, r"\ATF_CONFIG .*Expected.*Received: .*\.\Z"
        ):
            read(config)

    @parameterized.parameters(
        ("one:1", "one", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("relpos-0.relpos:2222", "relpos-0.relpos", 2222),
        ("my_host.example.org.:2222", "my_host.example.org.", 2222),
        ("[::1]:2222", "::1", 2222),
        ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
        (f"{'x' * 63}.org:1", f"{'x' * 63}.org", 1),
    )
    def test_addresses_have_a_host_and_a_port(self, address, host, port):
        self.assertEqual(cluster.split(address), (host, port))
        found = cluster_of({"worker": [address, "b:2"]}, type="worker", index=1)
        self.assertEqual(found.addresses[0], address)


def free_addresses(number):
    """Returns addresses of ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(number)
        ]
        return tuple(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)


def outcomes(*hosts):
    """Has hosts await each other; returns each one's error message, or ""."""

    def one(host):
        try:
            cluster.await_hosts(host)
        except errors.UserError as error:
            return str(error)
        return ""

    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(one, hosts))


class RendezvousTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.addresses = free_addresses(3)
        self.hosts = [cluster.Cluster(self.addresses, i) for i in range(3)]
        self.wait("20")

    def wait(self, seconds):
        """Sets the time that hosts wait for each other."""
        setting = {cluster.TIMEOUT_VARIABLE: seconds}
        self.enter_context(mock.patch.dict("os.environ", setting))

    def test_hosts_may_start_in_any_order(self):
        self.assertEqual(outcomes(*reversed(self.hosts)), ["", "", ""])
        # The port is free for TensorFlow.
        socket.create_server(cluster.split(self.addresses[0])).close()

    def test_the_missing_are_named(self):
        self.wait("0.5")
        chief, one, two = self.addresses
        for host, expected in (
            (0, f"host 1 ({one}), host 2 ({two})."),
            (1, f"the chief ({chief}): Connection refused."),
        ):
            (message,) = outcomes(self.hosts[host])
            self.assertEqual(message, f"Waited 0.5 s for {expected}")

    def test_a_timeout_is_a_number_of_seconds(self):
        for value in ("nan", "inf", "-1", "1e99", "99999999", "ten", " "):
            self.wait(value)
            for host in self.hosts:
                self.assertIn(f"Received: {value!r}.", *outcomes(host))

    def test_others_at_the_port_do_not_matter(self):
        def come():
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"-1\n", b"7\n", b""):
                with self.connected() as connection:
                    connection.sendall(data)
            return outcomes(*self.hosts[1:])

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            others = pool.submit(come)
            self.assertEqual(outcomes(self.hosts[0]), [""])
            self.assertEqual(others.result(), ["", ""])

    def test_a_port_in_use_is_named(self):
        with socket.create_server(cluster.split(self.addresses[0])):
            [message] = outcomes(self.hosts[0])
        port = self.addresses[0].partition(":")[2]
        self.assertRegex(message, f"Port {port} .*in use")

    def connected(self):
        """Returns a connection to the chief, once it listens."""
        address = cluster.split(self.addresses[0])
        for _ in range(100):
            with contextlib.suppress(OSError):
                return socket.create_connection(address)
            time.sleep(0.05)
        raise TimeoutError
