"""Tests of how hosts meet: threads stand for them, on the loopback."""

import concurrent.futures
import contextlib
import json
import socket
import threading
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.training import cluster
from relpos_tf.training import meeting


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
        with self.assertLogs("relpos_tf") as logs:
            messages = outcomes((chief, {}), (host, {}), patience=1.2)
        reason = f"cannot connect to host 1 ({nobody}), which seems to have"
        self.assertEqual(
            messages[0], f"After 1 seconds without host 1 ({nobody})."
        )
        self.assertIn(reason, messages[1])
        [line] = logs.output
        self.assertIn(reason, line)
        self.assertIn("refused", line)

    def test_port_is_open_at_the_address_of_tf_config_alone(self):
        port = cluster.split(self.addresses[0])[1]

        def look():
            self.connect_to_chief()
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", port))

        self.while_waiting(look)

    def test_strangers_do_not_matter(self):
        lines = self.while_waiting(
            lambda: [
                self.connect_to_chief().sendall(data)
                for data in (
                    b"GET / HTTP/1.1\r\n\r\n",
                    b'{"index": 7, "started_with": {}}\n',
                    b'{"index": true, "started_with": {}, "token": "x"}\n',
                    b'{"index": 1}\n',
                    b'{"index": 1, "started_with": {"--a": 7}}\n',
                    b'{"index": 1, "started_with": {}}\n',
                    b"[" * 60_000 + b"\n",
                    b"1" * 5000 + b"\n",
                    b"\xff\xfe\n",
                    b"",
                )
            ]
        )
        self.assertLen(lines, 4)
        for line in lines:
            self.assertStartsWith(line, "Refused a connection from 127.0.0.1: ")

    def test_stranger_who_says_to_be_a_host_is_refused_in_one_plain_line(self):
        # Before, this ended the job and spoke to the terminal.
        message = {"\x1b[2J\nerror: forged": "\x1b]0;title\x07"}
        message = {"index": 1, "started_with": message, "token": "\x1b[31m"}
        data = json.dumps(message).encode() + b"\n"

        def stand_in():
            with self.host_that_answers({"is_mine": False}):
                answer = self.connect_to_chief()
                answer.sendall(data)
                self.assertIn(b"somebody else", answer.recv(1000))

        [line] = self.while_waiting(stand_in)
        self.assertRegex(
            line,
            r"\ARefused a connection from 127\.0\.0\.1: it says that it is "
            rf"host 1 \({self.addresses[1]}\), which is somebody else\.\Z",
        )

    def test_silent_connections_hold_nobody_up(self):
        with mock.patch.object(meeting, "_SECONDS", 30.0):
            started = time.monotonic()
            self.while_waiting(
                lambda: [self.connect_to_chief() for _ in range(7)]
            )
            self.assertLess(time.monotonic() - started, 15.0)

    def test_connection_that_waited_longest_goes_where_there_are_too_many(self):
        def come():
            first, *others = [self.connect_to_chief() for _ in range(4)]
            first.settimeout(5.0)
            self.assertEqual(first.recv(1), b"")
            for other in others:
                other.settimeout(0.05)
                with self.assertRaises(TimeoutError):
                    other.recv(1)

        with mock.patch.object(meeting, "_MOST_CONNECTIONS", 3):
            self.while_waiting(come)

    def test_messages_are_bounded(self):
        def pour():
            connection = self.connect_to_chief()
            with contextlib.suppress(ConnectionError):
                for _ in range(1000):
                    connection.sendall(b"x" * 5000)
                self.fail("The chief read five million bytes.")

        [line] = self.while_waiting(pour)
        self.assertIn("it sent more than 65536 bytes", line)

    def test_reports_of_strangers_are_bounded(self):
        with self.assertLogs("relpos_tf") as logs:
            door = meeting._Door(self.hosts[0], None)
            with door:
                for number in range(99):
                    door._refuse(f"10.0.0.{number}", ValueError("no"))
        self.assertLen(logs.output, 11)
        self.assertIn("not reported", logs.output[-1])

    def test_words_of_a_chief_are_shown_plainly_and_in_bounds(self):
        problem = "\x1b[2Jspoken\nerror: forged" + "x" * 20_000
        with self.chief_that_answers({"problem": problem}):
            [message] = outcomes((self.hosts[1], {}))
        self.assertStartsWith(message, "\\x1b[2Jspoken\\nerror: forgedxx")
        self.assertLess(len(message), 1100)

    def test_answer_that_is_no_verdict_lets_nobody_begin(self):
        with self.chief_that_answers({"hello": 1}):
            [message] = outcomes((self.hosts[1], {}), patience=0.7)
        self.assertIn("no message of this job's", message)

    def test_stranger_learns_from_a_host_no_token(self):
        heard = []

        def ask():
            connection = self.connect_to(self.addresses[1])
            connection.sendall(b'{"token": "guess"}\n')
            heard.append(connection.recv(1000))

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            outcomes((self.hosts[1], {}), patience=1.0)
            asked.result()
        self.assertEqual(heard, [b'{"is_mine": false}\n'])

    def test_host_that_left_while_waiting_is_missing_again(self):
        def leave():
            # Host 1 comes and is killed; host 2 comes later, and waits.
            connection = self.connect_to_chief()
            connection.sendall(
                b'{"index": 1, "started_with": {}, "token": "x"}\n'
            )
            time.sleep(0.5)
            connection.close()
            return outcomes((self.hosts[2], {}), patience=3.0)[0]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with self.host_that_answers({"is_mine": True}):
                other = pool.submit(leave)
                [message] = outcomes((self.hosts[0], {}), patience=3.0)
        self.assertIn("without host 1", message)
        self.assertEqual(other.result(), message)

    def test_patience_of_the_environment(self):
        for value, expected in (
            ("0.2", "After 0 seconds"),
            ("soon", "above 0 and at most 1000000. Received: 'soon'"),
            ("nan", "Received: 'nan'"),
            ("inf", "Received: 'inf'"),
            ("-1", "Received: '-1'"),
        ):
            with mock.patch.dict(
                "os.environ", {meeting.PATIENCE_VARIABLE: value}
            ):
                with self.assertRaisesRegex(errors.UserError, expected):
                    meeting.meet(self.hosts[0], {})

    def test_name_that_is_the_loopback_here_listens_on_all_addresses(self):
        # As where /etc/hosts gives a machine's own name to 127.0.1.1.
        port = cluster.split(self.addresses[0])[1]
        found = [(socket.AF_INET, 1, 6, "", ("127.0.1.1", port))]
        host = cluster.Cluster((f"one:{port}", "two:2222"), 0)
        with mock.patch.object(socket, "getaddrinfo", return_value=found):
            with self.assertLogs("relpos_tf") as logs:
                [server] = meeting._listen(host)
        with server:
            self.assertIn(server.getsockname()[0], ("::", "0.0.0.0"))
        self.assertIn(
            "one, this host in TF_CONFIG, is the loopback", logs.output[0]
        )

    def while_waiting(self, disturb):
        """Has two hosts meet, one after a disturbance; returns what was said.

        Args:
            disturb: function without arguments, called while the chief waits.
        """
        two = [cluster.Cluster(self.addresses[:2], i) for i in range(2)]

        def other():
            disturb()
            return outcomes((two[1], {}))[0]

        with self.assertLogs("relpos_tf") as logs:
            meeting._log.info("begin")
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                found = pool.submit(other)
                self.assertEqual(outcomes((two[0], {})), [""])
                self.assertEqual(found.result(), "")
        return [record.getMessage() for record in logs.records[1:]]

    def host_that_answers(self, answer):
        return _answering(self.addresses[1], answer)

    def chief_that_answers(self, answer):
        return _answering(self.addresses[0], answer)

    def connect_to_chief(self):
        return self.connect_to(self.addresses[0])

    def connect_to(self, address):
        """Returns a connection to a host, once it listens."""
        for _ in range(100):
            try:
                connection = socket.create_connection(cluster.split(address))
            except OSError:
                time.sleep(0.05)
            else:
                self.addCleanup(connection.close)
                return connection
        raise TimeoutError


@contextlib.contextmanager
def _answering(address, answer):
    """Listens at an address, and gives every message the same answer."""
    is_over = threading.Event()

    def serve():
        server.settimeout(0.05)
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                with server.accept()[0] as connection:
                    connection.settimeout(5.0)
                    if connection.recv(1 << 16):
                        connection.sendall(json.dumps(answer).encode() + b"\n")

    with socket.create_server(cluster.split(address)) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            serving = pool.submit(serve)
            try:
                yield
            finally:
                is_over.set()
                serving.result()


if __name__ == "__main__":
    absltest.main()
