"""Tests of the rendezvous: threads on the loopback stand for hosts."""

import concurrent.futures
import contextlib
import socket
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.training import cluster


def free_addresses(number):
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
        patched = mock.patch.dict(
            "os.environ", {cluster.TIMEOUT_VARIABLE: seconds}
        )
        patched.start()
        self.addCleanup(patched.stop)

    def test_hosts_may_start_in_any_order(self):
        self.assertEqual(outcomes(*reversed(self.hosts)), ["", "", ""])
        # The port is free for TensorFlow.
        socket.create_server(cluster.split(self.addresses[0])).close()

    def test_the_missing_are_named(self):
        self.wait("0.5")
        self.assertEqual(
            outcomes(self.hosts[0]),
            [
                f"Waited 0.5 s for host 1 ({self.addresses[1]}), "
                f"host 2 ({self.addresses[2]})."
            ],
        )
        self.assertEqual(
            outcomes(self.hosts[1]),
            [
                f"Waited 0.5 s for the chief ({self.addresses[0]}): "
                "Connection refused."
            ],
        )

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
