"""Tests of the rendezvous: threads on the loopback stand for hosts."""

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
from relpos_tf.training import rendezvous


def free_addresses(number):
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(number)
        ]
        return tuple(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)


def outcomes(*hosts, timeout=20.0):
    """Has hosts await each other; returns each one's error message, or "".

    Args:
        *hosts: pairs of a `Cluster` and the host's launch configuration.
        timeout: float.
    """

    def one(hosts_, launch_config):
        try:
            rendezvous.await_hosts(hosts_, launch_config, timeout)
        except errors.UserError as error:
            return str(error)
        return ""

    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(one, *zip(*hosts, strict=True)))


class RendezvousTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.addresses = free_addresses(3)
        self.hosts = [cluster.Cluster(self.addresses, i) for i in range(3)]

    def test_hosts_may_start_in_any_order(self):
        same = {"--train_steps": "10"}
        self.assertEqual(
            outcomes(*((h, same) for h in reversed(self.hosts))), ["", "", ""]
        )
        # The ports are free for TensorFlow.
        for address in self.addresses:
            socket.create_server(cluster.split(address)).close()

    def test_chief_names_the_missing_host(self):
        chief, first = outcomes(*((h, {}) for h in self.hosts[:2]), timeout=0.7)
        self.assertEqual(
            chief,
            f"Host 2 ({self.addresses[2]}) did not connect within 0.7 s.",
        )
        self.assertEqual(first, chief)

    def test_host_names_the_chief(self):
        [message] = outcomes((self.hosts[1], {}), timeout=0.7)
        self.assertEqual(
            message,
            f"The chief ({self.addresses[0]}) did not answer within 0.7 s: "
            "Connection refused.",
        )

    def test_mismatch_is_sent_to_both(self):
        two = [cluster.Cluster(self.addresses[:2], i) for i in range(2)]
        messages = outcomes(
            (two[0], {"--a": "1", "--b": "2", "c": "3"}),
            (two[1], {"--a": "1", "--b": "5", "c": "3"}),
        )
        self.assertEqual(messages[0], messages[1])
        self.assertIn(
            f"On host 1 ({self.addresses[1]}), --b is '5'", messages[0]
        )
        self.assertIn(f"on the chief ({self.addresses[0]}), '2'", messages[0])

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
            messages = outcomes((chief, {}), (host, {}), timeout=1.2)
        reason = f"cannot connect to host 1 ({nobody}), from which it received"
        self.assertEqual(
            messages[0], f"Host 1 ({nobody}) did not connect within 1.2 s."
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
                    b'{"index": 7, "launch_config": {}}\n',
                    b'{"index": true, "launch_config": {}, "token": "x"}\n',
                    b'{"index": 1}\n',
                    b'{"index": 1, "launch_config": {"--a": 7}}\n',
                    b'{"index": 1, "launch_config": {}}\n',
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

    def test_stranger_who_claims_to_be_a_host_is_refused_in_one_plain_line(
        self,
    ):
        message = {"\x1b[2J\nerror: forged": "\x1b]0;title\x07"}
        message = {"index": 1, "launch_config": message, "token": "\x1b[31m"}
        data = json.dumps(message).encode() + b"\n"

        def stand_in():
            with self.host_that_answers({"is_own": False}):
                answer = self.connect_to_chief()
                answer.sendall(data)
                self.assertIn(b"did not send this", answer.recv(1000))

        [line] = self.while_waiting(stand_in)
        self.assertRegex(
            line,
            r"\ARefused a connection from 127\.0\.0\.1: it claims to be host 1 "
            rf"\({self.addresses[1]}\), which did not send this message\.\Z",
        )

    def test_silent_connections_delay_no_host(self):
        with mock.patch.object(rendezvous, "_MESSAGE_SECONDS", 30.0):
            started = time.monotonic()
            self.while_waiting(
                lambda: [self.connect_to_chief() for _ in range(7)]
            )
            self.assertLess(time.monotonic() - started, 15.0)

    def test_oldest_connection_is_closed_when_there_are_too_many(self):
        def come():
            first, *others = [self.connect_to_chief() for _ in range(4)]
            first.settimeout(5.0)
            self.assertEqual(first.recv(1), b"")
            for other in others:
                other.settimeout(0.05)
                with self.assertRaises(TimeoutError):
                    other.recv(1)

        with mock.patch.object(rendezvous, "_MAX_CONNECTIONS", 3):
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
            listener = rendezvous._Listener(self.hosts[0], None)
            for number in range(99):
                listener._log_refusal(f"10.0.0.{number}", ValueError("no"))
        self.assertLen(logs.output, 11)
        self.assertIn("not logged", logs.output[-1])

    def test_problem_of_a_chief_is_shown_without_controls_and_in_bounds(self):
        problem = "\x1b[2Jspoken\nerror: forged" + "x" * 20_000
        with self.chief_that_answers({"problem": problem}):
            [message] = outcomes((self.hosts[1], {}))
        self.assertStartsWith(message, "\\x1b[2Jspoken\\nerror: forgedxx")
        self.assertLess(len(message), 1100)

    def test_answer_without_a_problem_starts_nothing(self):
        with self.chief_that_answers({"hello": 1}):
            [message] = outcomes((self.hosts[1], {}), timeout=0.7)
        self.assertIn("no message of this job", message)

    def test_stranger_does_not_learn_a_host_s_token(self):
        heard = []

        def ask():
            connection = self.connect_to(self.addresses[1])
            connection.sendall(b'{"token": "guess"}\n')
            heard.append(connection.recv(1000))

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            outcomes((self.hosts[1], {}), timeout=1.0)
            asked.result()
        self.assertEqual(heard, [b'{"is_own": false}\n'])

    def test_host_that_disconnected_is_missing_again(self):
        def leave():
            # Host 1 comes and is killed; host 2 comes later, and waits.
            connection = self.connect_to_chief()
            connection.sendall(
                b'{"index": 1, "launch_config": {}, "token": "x"}\n'
            )
            time.sleep(0.5)
            connection.close()
            return outcomes((self.hosts[2], {}), timeout=1.5)[0]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with self.host_that_answers({"is_own": True}):
                other = pool.submit(leave)
                [message] = outcomes((self.hosts[0], {}), timeout=1.5)
        self.assertStartsWith(message, "Host 1 ")
        self.assertEqual(other.result(), message)

    def test_timeout_of_the_environment(self):
        for value, expected in (
            ("0.2", "within 0.2 s"),
            ("soon", "above 0 and at most 1000000. Received: 'soon'"),
            ("nan", "Received: 'nan'"),
            ("inf", "Received: 'inf'"),
            ("-1", "Received: '-1'"),
        ):
            with mock.patch.dict(
                "os.environ", {rendezvous.TIMEOUT_VARIABLE: value}
            ):
                with self.assertRaisesRegex(errors.UserError, expected):
                    rendezvous.await_hosts(self.hosts[0], {})

    def test_name_that_is_the_loopback_here_listens_on_all_addresses(self):
        # As where /etc/hosts gives a machine's own name to 127.0.1.1.
        port = cluster.split(self.addresses[0])[1]
        infos = [(socket.AF_INET, 1, 6, "", ("127.0.1.1", port))]
        host = cluster.Cluster((f"one:{port}", "two:2222"), 0)
        with mock.patch.object(socket, "getaddrinfo", return_value=infos):
            with self.assertLogs("relpos_tf") as logs:
                [server] = rendezvous._listen(host)
        with server:
            self.assertIn(server.getsockname()[0], ("::", "0.0.0.0"))
        self.assertIn(
            "one, this host in TF_CONFIG, is the loopback", logs.output[0]
        )

    def while_waiting(self, disturb):
        """Has two hosts connect after a disturbance; returns the log.

        Args:
            disturb: function without arguments, called while the chief waits.
        """
        two = [cluster.Cluster(self.addresses[:2], i) for i in range(2)]

        def other():
            disturb()
            return outcomes((two[1], {}))[0]

        with self.assertLogs("relpos_tf") as logs:
            rendezvous._log.info("begin")
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
