"""The server's addresses, over a socket: answers, refusals, limits, an end."""

import concurrent.futures
import contextlib
import functools
import http.client
import json
import signal
import socket
import threading
import time
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

import relpos_tf
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import sentences
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import queries
from relpos_tf.serving import served as served_lib
from relpos_tf.serving import server as server_lib
from relpos_tf.utils import signals
from tests import tiny_run
from tests.serving import servers

SPLIT = sentences.Sentences(["a"], ["", ""])
QUEUE = 'relpos_queue_lines{model="first"}'


def head_of(method, path, length=0):
    """Returns the head of a request."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


class AppTest(parameterized.TestCase):
    def serve(self, *translators, **limits):
        """Starts a server of fake translators."""
        self.fakes = translators or (servers.FakeTranslator(),)
        names = ("first", "second")[: len(self.fakes)]
        served = servers.Served(
            dict(zip(names, self.fakes, strict=True)), **limits
        )
        self.enter_context(served)
        for fake in self.fakes:  # the server waits for it at its end
            self.addCleanup(fake.gate.set)
        return served

    def hold(self, **limits):
        """Starts a server that translates once the gate of its fake is set."""
        served = self.serve(**limits)
        (fake,) = self.fakes
        fake.gate.clear()
        return served, fake

    def wait_for_queue(self, served, number):
        self.assertTrue(
            servers.wait_until(lambda: served.metric(QUEUE) == number)
        )

    def test_translations_with_scores(self):
        served = self.serve()
        status, headers, answer = served.post(
            {"lines": ["abc", "x" * 100], "n_best": 4}
        )
        self.assertEqual(status, 200)
        self.assertEqual(headers["content-type"], "application/json")
        first, second = answer["translations"]
        self.assertEqual(answer["model"], "first")
        self.assertEqual(
            first,
            {
                "complete": True,
                # The fourth was not found.
                "hypotheses": [
                    {"text": "CBA", "score": -1.5},
                    {"text": "CBA'", "score": -2.5},
                    {"text": "CBA''", "score": -3.5},
                ],
            },
        )
        self.assertFalse(second["complete"])
        self.assertIs(second["long"], True)
        _, _, answer = served.post({"lines": ["abc"], "n_best": 2})
        self.assertLen(answer["translations"][0]["hypotheses"], 2)
        self.assertEqual(
            served.post({"lines": []})[2],
            {"model": "first", "translations": []},
        )

    def test_answers_with_too_many_weights_are_refused(self):
        # A line of one word has 2 layers x 3 heads x 2 x 2 weights.
        served = self.serve(max_attention_weights=50, max_batch_lines=1)
        for status, number, n_best in ((200, 2, 1), (422, 3, 1), (422, 1, 3)):
            lines = [f"{i}" for i in range(number)]
            content = {"lines": lines, "n_best": n_best, "attention": True}
            found, _, answer = served.post(content)
            self.assertEqual(found, status, content)
        self.assertIn("at most 50 attention weights", answer["error"])
        # The rest of what is refused is not translated.
        (fake,) = self.fakes
        fake.batches.clear()
        content = {"lines": ["a"] * 100, "attention": True}
        self.assertEqual(served.post(content)[0], 422)
        self.assertEqual(served.translate("b"), ["B"])
        self.assertLessEqual(len(fake.batches), 5)

    def test_models_by_name_and_what_they_can_do(self):
        served = self.serve(
            servers.FakeTranslator(), servers.FakeTranslator(False)
        )
        served.translate("a", model="second")
        served.translate("b")
        self.assertEqual(
            [fake.batches for fake in self.fakes], [[["b"]], [["a"]]]
        )
        status, _, answer = served.post({"lines": ["a"], "model": "secnd"})
        self.assertEqual(status, 422)
        self.assertIn("Did you mean second?", answer["error"])
        wrong = {"lines": ["a"], "model": "second", "attention": True}
        status, _, answer = served.post(wrong)
        self.assertEqual(status, 422)
        self.assertIn("no attention", answer["error"])
        models = json.loads(served.ask("GET", "/models")[2])
        self.assertEqual(models["version"], relpos_tf.__version__)
        self.assertEqual(models["limits"]["max_lines"], 512)
        known = {"kind": "fake", "beam_size": 4, "alpha": 0.6}
        known |= {"extra_length": 5, "max_line_ids": 1000}
        self.assertEqual(
            models["models"],
            [
                {"name": "first", "attention": True} | known,
                {"name": "second", "attention": False} | known,
            ],
        )

    def test_a_model_has_a_name_of_any_length(self):
        # As the folder of a run without --output_dir.
        name = "translate_ende_phrases-transformer_relative_tiny"
        names = name, name[:40]
        models = {name: servers.FakeTranslator() for name in names}
        with servers.Served(models) as served:
            for model in (None, *names):
                self.assertEqual(served.translate("ab", model=model), ["BA"])
            status, _, _ = served.post({"lines": ["a"], "model": f"{name}x"})
            self.assertEqual(status, 422)

    def test_health_is_ok_once_every_kind_of_request_was_tried(self):
        fakes = servers.FakeTranslator(), servers.FakeTranslator(False)
        fakes[0].gate.clear()
        models = dict(zip(("one", "two"), fakes, strict=True))
        with servers.Served(models, is_cold=True) as served:
            status, headers, body = served.ask("GET", "/health")
            self.assertEqual(
                (status, headers["retry-after"], json.loads(body)["status"]),
                (503, "5", "warming up"),
            )
            fakes[0].gate.set()
            ask = functools.partial(served.ask, "GET", "/health")
            self.assertTrue(servers.wait_until(lambda: ask()[0] == 200))
            self.assertEqual(json.loads(ask()[2])["status"], "ok")

    def test_refusals_have_the_usual_codes(self):
        served = self.serve(max_body_bytes=100)
        for status, *request in (
            (400, "POST", "/translate", "{"),
            (413, "POST", "/translate", " " * 101),
            (422, "POST", "/translate", '{"lines": "a"}'),
            (422, "POST", "/translate", '{"lines": ["a"], "n_best": 5}'),
            (422, "POST", "/translate", '{"lines": ["a"], "min_length": 13}'),
            (422, "POST", "/translate", '{"lines": ["bad"]}'),
            (422, "POST", "/translate?n_best=3", '{"lines": ["a"]}'),
            (404, "GET", "/none", None),
            (405, "GET", "/translate", None),
            (405, "POST", "/health", "{}"),
        ):
            found, headers, body = served.ask(*request)
            self.assertEqual(found, status, request)
            self.assertEqual(headers["content-type"], "application/json")
            self.assertIn("error", json.loads(body))
        self.assertEqual(served.translate("ab"), ["BA"])
        counted = [
            served.metric(f'relpos_requests_total{{status="{status}"}}')
            for status in (200, 400, 413, 422)
        ]
        self.assertEqual(counted, [1, 1, 1, 5])

    def test_lines_are_limited_in_ids(self):
        served = self.serve(max_line_ids=10)
        self.assertEqual(served.translate("x" * 40), ["X" * 40])
        for fields in {}, {"split_sentences": True}:
            lines = {"lines": ["a", "x" * 41]} | fields
            status, _, answer = served.post(lines)
            self.assertEqual(status, 422)
            self.assertRegex(answer["error"], "most 10 ids.* Received: 11.")
        self.assertLen(self.fakes[0].batches, 1)

    @parameterized.parameters(
        # None: of HTTP/1.0; browsers send one.
        *((x, 200) for x in ("127.0.0.1:80", "127.0.0.2", "[::1]:9", None)),
        *((x, 200) for x in ("localhost", "LOCALHOST.:80", "my.example.org")),
        ("[0:0:0:0:0:0:0:1]", 200),
        *((x, 400) for x in ("evil.example", "example.org", "[::2]", "")),
        *((f"{x}.evil.example", 400) for x in ("127.0.0.1", "localhost")),
        ("127.evil:127.0.0.1", 400),
    )
    def test_names_bound_to_this_machine_by_others_are_refused(
        self, host, expected
    ):
        with server_lib.listen("127.0.0.5", 0) as listener:
            hosts = server_lib.own_hosts(listener)
        with server_lib.listen("0.0.0.0", 0) as listener:
            self.assertEqual(server_lib.own_hosts(listener), ["*"])
        served = self.serve(allowed_hosts=[*hosts, "*.example.org"])
        head = "" if host is None else f"Host: {host}\r\n"
        with socket.create_connection(("127.0.0.1", served.port), 20) as one:
            one.sendall(f"GET /models HTTP/1.0\r\n{head}\r\n".encode())
            response = http.client.HTTPResponse(one)
            response.begin()
            answer = json.load(response)
        self.assertEqual(response.status, expected)
        if expected == 400:
            self.assertRegex(answer["error"], "--allowed_hosts=HOST")

    def test_nothing_repeats_the_host_of_a_request(self):
        served = self.serve(allowed_hosts=["*"])
        names = {"host": "h.example", "x-forwarded-host": "f"}
        for path in "/translate/", "/models/", "/none":
            _, headers, body = served.ask("GET", path, None, names)
            self.assertNotIn("location", headers)
            self.assertNotIn("h.example", body.decode())

    def test_a_bug_is_500_and_logged(self):
        served = self.serve()
        with self.assertLogs("relpos_tf", "ERROR") as logs:
            status, _, answer = served.post({"lines": ["bug"]})
        self.assertEqual(
            (status, answer["error"]),
            (500, "The server failed; its log says why."),
        )
        self.assertRegex(logs.output[0], "_translations(.|\n)*'a bug'.$")
        self.assertEqual(served.translate("ab"), ["BA"])

    def test_a_client_that_still_sends_sees_the_refusal(self):
        served = self.serve(max_body_bytes=100)
        with served.connect() as connection:
            large, in_parts = b"x" * 3_000_000, iter([b"x" * 101])
            for body, expected in (large, 413), (in_parts, 413), (b"{", 400):
                connection.request("POST", "/translate", body, servers.JSON)
                response = connection.getresponse()
                response.read()
                self.assertEqual(response.status, expected)

    @parameterized.product(
        path=("/translate", "/detect"), body=((b"{", 99, 504), (b"", 101, 413))
    )
    def test_a_body_that_does_not_end_is_refused(self, path, body):
        start, size, status = body
        start = head_of("POST", path, size) + start
        self.enter_context(self.assertNoLogs("uvicorn", "ERROR"))
        served = self.serve(max_body_bytes=100, timeout_s=2)
        address = "127.0.0.1", served.port
        with socket.create_connection(address) as hangs_up:
            hangs_up.sendall(start)
        with socket.create_connection(address, 20) as one:
            one.sendall(start)
            with mock.patch.object(server_lib, "_HEAD_S", 0.3):
                self.assertStartsWith(
                    one.recv(999).decode(), f"HTTP/1.1 {status}"
                )
                with self.assertRaises(ConnectionError):  # it is not read on
                    for _ in range(400):
                        one.sendall(b"x" * 1000)
                        time.sleep(0.05)
        self.assertEqual(served.translate("ab"), ["BA"])

    @parameterized.parameters(b"", b"GET / HTTP/1.1\r\nX: ")
    def test_a_connection_without_a_head_is_closed(self, start):
        with mock.patch.object(server_lib, "_HEAD_S", 0.5):
            served = self.serve()
            with socket.create_connection(("127.0.0.1", served.port)) as one:
                one.settimeout(0.1)
                with self.assertRaises(ConnectionError):
                    one.sendall(start)
                    for _ in range(100):  # neither does a trickle help
                        with contextlib.suppress(TimeoutError):
                            if not one.recv(9):
                                raise ConnectionError
                        if start:
                            one.sendall(b"x")

    @parameterized.parameters(b"", head_of("POST", "/translate", 9) + b"{")
    def test_what_waits_for_its_client_makes_room_for_others(self, start):
        with mock.patch.object(server_lib, "_MOST_CONNECTIONS", 5):
            served, fake = self.hold()
        with (
            contextlib.ExitStack() as stack,
            concurrent.futures.ThreadPoolExecutor(1) as pool,
        ):
            first = pool.submit(served.translate, "ab")
            servers.wait_until(lambda: fake.batches)
            silent = [
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", served.port), 20)
                )
                for _ in range(20)
            ]
            for one in silent:
                with contextlib.suppress(ConnectionError):
                    one.sendall(start)
            time.sleep(0.3)  # until the server has read them
            self.assertEqual(served.ask("GET", "/health")[0], 200)
            with contextlib.suppress(ConnectionError):
                self.assertEqual(silent[0].recv(9), b"")
            fake.gate.set()  # the one under way was kept
            self.assertEqual(first.result(20), ["BA"])

    def test_an_answer_that_is_not_read_is_given_up(self):
        served = self.serve(timeout_s=8, max_body_bytes=2_000_000)
        lines = json.dumps({"lines": ["x" * 1999] * 512, "n_best": 3}).encode()
        opened = served.server.server_state.connections
        for seconds in 1, 30:
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.connect(("127.0.0.1", served.port))
                one.sendall(head_of("POST", "/translate", len(lines)) + lines)
                self.assertTrue(servers.wait_until(lambda: opened))
                is_closed = servers.wait_until(lambda: not opened, seconds)
                self.assertEqual(is_closed, seconds > 1)
                if not is_closed:  # it is late, but reads all of it
                    response = http.client.HTTPResponse(one)
                    response.begin()
                    self.assertLen(json.load(response)["translations"], 512)
            self.assertTrue(servers.wait_until(lambda: not opened))

    @parameterized.parameters(
        (sentences, "split", SPLIT, "POST", "/translate", '{"lines": ["a"]}'),
        (served_lib, "answer", "{}", "GET", "/health"),
    )
    def test_long_texts_and_answers_hold_up_none_but_themselves(
        self, module, name, result, *short
    ):
        served = self.serve()
        begun, may_end = threading.Event(), threading.Event()
        self.addCleanup(may_end.set)

        def slow(*_):
            begun.set()
            may_end.wait(20)
            return result

        long = {"lines": ["x" * 1999] * 6, "split_sentences": True}
        with (
            mock.patch.object(module, name, slow),
            concurrent.futures.ThreadPoolExecutor(40) as pool,
        ):
            answers = [pool.submit(served.post, long) for _ in range(40)]
            self.assertTrue(begun.wait(20))
            time.sleep(0.3)  # until all are read
            self.assertEqual(served.ask(*short)[0], 200)
            may_end.set()
            self.assertEqual({one.result(20)[0] for one in answers}, {200})

    def test_a_connection_stays_open_between_two_requests(self):
        self.assertGreater(limits_lib.Limits().keep_alive_s, 60)  # a proxy's
        with mock.patch.object(server_lib, "_HEAD_S", 0.2):
            served = self.serve(keep_alive_s=4)
            with served.connect() as connection:
                for seconds in (0, 0.7, 0):
                    time.sleep(seconds)
                    connection.request("GET", "/health")
                    self.assertEqual(connection.getresponse().read()[:1], b"{")
                self.assertEqual(connection.sock.recv(9), b"")  # after 4 s

    def test_what_takes_too_long_is_504_and_given_up(self):
        served, fake = self.hold(timeout_s=2)
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            status, headers, _ = served.post({"lines": ["ab", "c" * 9]})
        self.assertIn("A request of 4 ids", logs.output[0])
        self.assertEqual(status, 504)
        self.assertGreater(int(headers["retry-after"]), 0)
        self.assertEqual(served.post({"lines": ["waits"]})[0], 504)
        fake.gate.set()
        self.assertEqual(served.translate("cd"), ["DC"])
        self.assertEqual(fake.batches, [["c" * 9, "ab"], ["cd"]])
        model = served_lib.ServedModel
        slow = mock.patch.object(model, "sizes", lambda *_: time.sleep(3))
        with slow, self.assertLogs("relpos_tf", "WARNING") as logs:
            served.post({"lines": ["cd"]})
        self.assertIn("A request of 2 characters", logs.output[0])

    def test_a_full_queue_is_503_and_others_are_answered(self):
        served, fake = self.hold(max_queue_lines=3)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(served.translate, "a")]
            servers.wait_until(lambda: fake.batches)
            answers += [pool.submit(served.translate, f"{i}") for i in range(3)]
            self.wait_for_queue(served, 3)
            status, headers, answer = served.post({"lines": ["more"]})
            self.assertEqual(status, 503)
            self.assertRegex(headers["retry-after"], r"\A[1-9]\d?\Z")
            self.assertIn("Too busy: 3 lines wait", answer["error"])
            fake.gate.set()
            self.assertEqual(
                [one.result(20) for one in answers],
                [["A"], ["0"], ["1"], ["2"]],
            )

    def test_a_client_that_hangs_up_frees_its_place(self):
        served, fake = self.hold()
        body = json.dumps({"lines": ["ab", "cd"]})
        with served.connect() as first, served.connect() as second:
            first.request("POST", "/translate", body, servers.JSON)
            servers.wait_until(lambda: fake.batches)
            second.request("POST", "/translate", body, servers.JSON)
            self.wait_for_queue(served, 2)
        self.wait_for_queue(served, 0)
        fake.gate.set()
        self.assertEqual(served.translate("ef"), ["FE"])
        self.assertEqual(fake.batches, [["ab", "cd"], ["ef"]])
        self.assertEqual(
            served.metric('relpos_requests_total{status="499"}'), 2
        )

    def test_metrics_count_lines_and_batches(self):
        served = self.serve()
        served.translate("ab", "cd")
        served.translate("ef")
        for name, value in (
            ("relpos_lines_total", 3),
            ("relpos_batch_lines_count", 2),
            ("relpos_batch_lines_sum", 3),
            ("relpos_batch_seconds_count", 2),
            ("relpos_request_seconds_count", 2),
            ("relpos_queue_lines", 0),
        ):
            found = served.metric(f'{name}{{model="first"}}')
            self.assertEqual(found, value, name)
        self.assertGreater(served.metric("process_resident_memory_bytes"), 2e6)

    def test_requests_under_way_are_finished_at_the_end(self):
        served, fake = self.hold()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(served.translate, "0", "x")]
            servers.wait_until(lambda: fake.batches)
            for i in (1, 2):
                lines = {"lines": [f"{i}", "x"]}
                answers.append(pool.submit(served.post, lines))
            self.wait_for_queue(served, 4)
            served.server.should_exit = True
            servers.wait_until(lambda: served.listener.fileno() < 0)
            with self.assertRaises(ConnectionError):
                served.translate("too late")
            self.assertTrue(served.thread.is_alive())
            fake.gate.set()
            self.assertEqual(answers[0].result(20), ["0", "X"])
            for answer in answers[1:]:
                status, headers, _ = answer.result(20)
                self.assertEqual(
                    (status, headers["connection"]), (200, "close")
                )
        served.thread.join(20)
        self.assertFalse(served.thread.is_alive())

    def test_after_a_second_signal_waiting_clients_are_refused(self):
        with (
            self.assertNoLogs("relpos_tf", "ERROR"),
            self.assertNoLogs("uvicorn", "ERROR"),
            concurrent.futures.ThreadPoolExecutor(2) as pool,
        ):
            served, fake = self.hold()
            answers = [pool.submit(served.post, {"lines": ["in a batch"]})]
            servers.wait_until(lambda: fake.batches)
            answers.append(pool.submit(served.post, {"lines": ["waits"]}))
            self.wait_for_queue(served, 1)
            served.server.handle_exit(signal.SIGINT, None)
            time.sleep(0.2)
            served.server.handle_exit(signal.SIGINT, None)
            for answer in answers:
                status, headers, content = answer.result(20)
                self.assertEqual(status, 503)
                self.assertEqual(headers["content-type"], "application/json")
                self.assertIn("retry-after", headers)
                self.assertEqual(content, {"error": "The server stops."})
            served.thread.join(20)
            self.assertFalse(served.thread.is_alive())

    def test_every_signal_that_ends_a_command_stops_it(self):
        for number in signals.NUMBERS:
            before = signal.signal(number, signal.default_int_handler)
            self.addCleanup(signal.signal, number, before)
            server = server_lib.Server(None, limits_lib.Limits())
            with server.capture_signals():
                signal.raise_signal(number)
            self.assertTrue(server.should_exit)
            self.assertEqual(server.stopped.exit_code, 128 + number)

    def test_the_page_may_ask_its_server_alone(self):
        served = self.serve()
        for path in "/", "/page.css", "/page.js":
            policy = served.ask("GET", path)[1]["content-security-policy"]
            self.assertStartsWith(policy, "default-src 'none'; script-src 's")


class RunTest(absltest.TestCase):
    """A model of random weights."""

    def test_answers_are_those_of_the_translator(self):
        translator = relpos_tf.Translator.load(tiny_run.path())
        lines = [*tiny_run.TEXT, "", "\u00e9\u2028x"]
        how = decode_hparam.DecodeHParams(n_best=2)
        query = queries.Query(tuple(lines), how, "", 2, True)
        # Everything in one search, because each kind takes seconds to trace.
        expected = [
            json.loads(served_lib.answer("", [served_lib.line_of(query, one)]))
            for one in translator.translations(lines, how, with_attention=True)
        ]
        contents = [
            {"lines": [line], "n_best": 2, "attention": True} for line in lines
        ]
        with servers.Served({"tiny": translator}, max_batch_lines=5) as served:
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                answers = list(pool.map(served.post, contents))
            joined = served.metric('relpos_batch_lines_count{model="tiny"}')
        self.assertLess(joined, len(lines))
        for (status, _, answer), wanted in zip(answers, expected, strict=True):
            self.assertEqual(status, 200)
            found, wanted = (
                tf.nest.flatten(one["translations"]) for one in (answer, wanted)
            )
            for one, other in zip(found, wanted, strict=True):
                if isinstance(other, float):
                    self.assertAlmostEqual(one, other, delta=1e-3)
                else:
                    self.assertEqual(one, other)
