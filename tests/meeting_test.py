"""Tests of how hosts meet: threads stand for them, on the loopback."""

import concurrent.futures
import contextlib
import socket
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf import cluster
from relpos_tf import errors
from relpos_tf import meeting


def free_addresses(number):
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(number)
        ]
        return tuple(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)


def outcomes(*hosts, patience=20.0):
    """Has hosts meet; returns the message of each, "" where all is well.

    Args:
        *hosts: pairs of a `Cluster` and what the host was started with.
        patience: float.
    """

    def one(hosts_, started_with):
        try:
            meeting.meet(hosts_, started_with, patience)
        except errors.UserError as error:
            return str(error)
        return ""

    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(one, *zip(*hosts, strict=True)))


class MeetingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.addresses = free_addresses(3)
        self.hosts = [cluster.Cluster(self.addresses, i) for i in range(3)]

    def test_all_come_in_any_order(self):
        same = {"--train_steps": "10"}
        self.assertEqual(
            outcomes(*((h, same) for h in reversed(self.hosts))), ["", "", ""]
        )
        # The ports are free again, for TensorFlow.
        for address in self.addresses:
            socket.create_server(cluster.split(address)).close()

    def test_chief_names_who_is_missing(self):
        chief, first = outcomes(
            *((h, {}) for h in self.hosts[:2]), patience=0.7
        )
        self.assertEqual(
            chief,
            f"After 1 seconds without host 2 ({self.addresses[2]}).",
        )
        self.assertEqual(first, chief)

    def test_host_names_the_chief(self):
        [message] = outcomes((self.hosts[1], {}), patience=0.7)
        self.assertIn(f"without the chief ({self.addresses[0]})", message)
        self.assertIn("refused", message)

    def test_difference_is_told_to_both(self):
        two = [cluster.Cluster(self.addresses[:2], i) for i in range(2)]
        messages = outcomes(
            (two[0], {"--a": "1", "--b": "2", "c": "3"}),
            (two[1], {"--a": "1", "--b": "5", "c": "3"}),
        )
        self.assertEqual(messages[0], messages[1])
        self.assertIn(f"host 1 ({self.addresses[1]}), --b is '5'", messages[0])
        self.assertIn(f"the chief ({self.addresses[0]}), '2'", messages[0])

    def test_port_in_use(self):
        with socket.create_server(cluster.split(self.addresses[1])):
            [message] = outcomes((self.hosts[1], {}))
        self.assertIn(f"Port {self.addresses[1][10:]} of this host", message)
        self.assertIn("is in use", message)

    def test_host_that_the_chief_cannot_reach(self):
        # The chief knows the host by another address, where nobody listens.
        [nobody] = free_addresses(1)
        chief = cluster.Cluster((self.addresses[0], nobody), 0)
        host = cluster.Cluster(self.addresses[:2], 1)
        messages = outcomes((chief, {}), (host, {}))
        self.assertIn(f"cannot connect to host 1 ({nobody})", messages[0])
        self.assertEqual(messages[1], messages[0])

    def test_strangers_do_not_matter(self):
        two = [cluster.Cluster(self.addresses[:2], i) for i in range(2)]

        def disturb():
            for data in (
                b"GET / HTTP/1.1\r\n\r\n",
                b'{"index": 7, "started_with": {}}\n',
                b'{"index": 1}\n',
                b"[" * 100_000 + b"\n",
                b"\xff\xfe\n",
                b"",
            ):
                self.connect_to_chief().sendall(data)
            time.sleep(0.3)
            return outcomes((two[1], {}))[0]

        with mock.patch.object(meeting, "_SECONDS", 0.5):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                other = pool.submit(disturb)
                self.assertEqual(outcomes((two[0], {})), [""])
                self.assertEqual(other.result(), "")

    def test_host_that_left_while_waiting_is_missing_again(self):
        def leave():
            # Host 1 comes and is killed; host 2 comes later, and waits.
            connection = self.connect_to_chief()
            connection.sendall(b'{"index": 1, "started_with": {}}\n')
            time.sleep(0.2)
            connection.close()
            return outcomes((self.hosts[2], {}), patience=3.0)[0]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with socket.create_server(cluster.split(self.addresses[1])):
                other = pool.submit(leave)
                [message] = outcomes((self.hosts[0], {}), patience=3.0)
        self.assertIn("without host 1", message)
        self.assertEqual(other.result(), message)

    def test_patience_of_the_environment(self):
        for value, expected in (("0.2", "After 0 seconds"), ("soon", "soon")):
            with mock.patch.dict(
                "os.environ", {meeting.PATIENCE_VARIABLE: value}
            ):
                with self.assertRaisesRegex(errors.UserError, expected):
                    meeting.meet(self.hosts[0], {})

    def connect_to_chief(self):
        """Returns a connection to the chief, once it listens."""
        for _ in range(100):
            try:
                connection = socket.create_connection(
                    cluster.split(self.addresses[0])
                )
            except OSError:
                time.sleep(0.05)
            else:
                self.addCleanup(connection.close)
                return connection
        raise TimeoutError


if __name__ == "__main__":
    absltest.main()
