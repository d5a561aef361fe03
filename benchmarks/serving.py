"""Loads `relpos-serve` with many clients, some of which misbehave.

    python benchmarks/serving.py --model=runs/mine --lines_file=test.en

translates the lines in this process first, as the decoder does, and then starts
a server in another one. Each of `--clients` sends a line and waits for its
translation, which is compared, before it sends the next, `--sentences` in all.
Requests of this server's API and of LibreTranslate's are mixed, if the model
knows its languages. They begin once `/health` says that the server is ready, as
behind a proxy. A first round has nobody else; in a second one, `--bad_clients`
send long lines of bytes, forms that are none, huge bodies and rubbish, hang up,
and hold connections without a request. All traffic stays on 127.0.0.1. Prints
one JSON line, in which `[a, b]` are the values of the two rounds:

`requests` counts those of each of `KINDS`; `sentences_per_second`, `p50_ms` and
`p99_ms` are those of the good clients;
`warm_up_s` is the time from when the server listens until it is ready;
`decoder` is the speed of this process, with all lines sorted by length, in
batches of 64; `cpu_ms` is the server's processor time for a sentence;
`batch_lines` is the mean number of lines that the server joined; `different`
counts translations that rounding changed, with the same score, and `wrong` all
others; `memory_mb` is the server's before, and after each round.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import http.client
import itertools
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple
from urllib import parse as urls

import common

import relpos_tf
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engine_kinds
from relpos_tf.decoding import sentences

HOST = "127.0.0.1"
# Seconds between two misdeeds, so that refusals are not all that is measured.
BAD_PAUSE = 0.1
HEALTH_PAUSE = 0.2  # seconds between two requests for /health
# The same score, as far as rounding allows.
SAME_SCORE = 2e-3
# Requests to translate a line: the first of this server's API, the others of
# LibreTranslate's.
TYPES = "application/json", "application/x-www-form-urlencoded"
KINDS = ("lines", "text", "list", "form", "alternatives")
TEXT = (
    "The train leaves at seven.",
    "Where is the station?",
    "It is raining, and it will rain tomorrow as well.",
    "twenty-one days",
)


class Expected(NamedTuple):
    """What the translator makes of a line."""

    best: str
    texts: list[str]  # all beams, best first
    scores: list[float]

    def outcome(self, kind, found):
        """Returns what translations of an answer are, best first."""
        wanted = self.texts[:2] if kind == "alternatives" else [self.best]
        if found == wanted:
            return "right"
        known = dict(zip(self.texts, self.scores, strict=True))
        is_same = len(found) == len(wanted) and all(
            abs(known.get(text, float("inf")) - score) < SAME_SCORE
            for text, score in zip(found, self.scores, strict=False)
        )
        return "different" if is_same else "wrong"


class Load:
    """Good and bad clients of one server.

    Args:
        port: int.
        lines: list of str.
        expected: list of `Expected`, one for each line.
        sentences: int. How many to send; the lines are repeated.
        languages: Codes of source and target; "" where unknown.
    """

    def __init__(self, port, lines, expected, sentences, languages):
        self.port = port
        self.languages = dict(zip(("source", "target"), languages, strict=True))
        self.requests = collections.Counter()  # by their kind
        self.seconds = []  # of each answer
        self.outcomes = collections.Counter()
        self.bad = collections.Counter()  # answers to the bad clients
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._choose = random.Random(0)
        self._work = itertools.islice(
            itertools.cycle(zip(lines, expected, strict=True)), sentences
        )

    def run(self, clients, bad_clients):
        """Runs all clients; returns the seconds that the good ones took."""
        with concurrent.futures.ThreadPoolExecutor(
            clients + bad_clients
        ) as pool:
            begun = time.perf_counter()
            for seed in range(bad_clients):
                pool.submit(self._bad, seed)
            good = [pool.submit(self._good) for _ in range(clients)]
            concurrent.futures.wait(good)
            seconds = time.perf_counter() - begun
            self._is_done.set()
            for one in good:
                one.result()  # raises what a client failed with
            return seconds

    def _good(self):
        kinds = KINDS if all(self.languages.values()) else KINDS[:1]
        with contextlib.closing(self._connect()) as connection:
            while True:
                with self._lock:
                    line, expected = next(self._work, (None, None))
                    kind = self._choose.choice(kinds)
                if line is None:
                    return
                begun = time.perf_counter()
                try:
                    outcome = self._ask(connection, kind, line, expected)
                except (OSError, http.client.HTTPException) as error:
                    outcome = type(error).__name__
                with self._lock:
                    self.seconds.append(time.perf_counter() - begun)
                    self.outcomes[outcome] += 1
                    self.requests[kind] += 1

    def _connect(self):
        return http.client.HTTPConnection(HOST, self.port, timeout=120)

    def _ask(self, connection, kind, line, expected):
        """Sends a line; returns what its answer is."""
        content = content_of(kind, line, self.languages)
        content_type = TYPES[1 if kind == "form" else 0]
        headers = {"content-type": content_type}
        connection.request("POST", "/translate", content, headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            return str(response.status)
        return expected.outcome(kind, texts_in(kind, body))

    def _bad(self, seed):
        """Misbehaves in turn, until the good clients are done."""
        choose = random.Random(seed)
        with contextlib.ExitStack() as held:
            while not self._is_done.wait(BAD_PAUSE):
                with contextlib.suppress(OSError):
                    self._misbehave(choose.choice(BAD_REQUESTS), held)

    def _misbehave(self, request, held):
        one = socket.create_connection((HOST, self.port), 20)
        if request in SILENT:
            held.enter_context(one)
            one.sendall(request)
            return
        with one:
            one.sendall(request)
            if request not in HANG_UPS:
                status = re.match(rb"HTTP/1.1 (\d+)", one.recv(99))
                with self._lock:
                    self.bad[status[1].decode() if status else "none"] += 1

    def wait_until_ready(self):
        """Waits until `/health` answers 200; returns the seconds it took."""
        begun = time.perf_counter()
        while self._get("/health").status != 200:
            time.sleep(HEALTH_PAUSE)
        return time.perf_counter() - begun

    def _get(self, path):
        """Returns the response to a request, whose body is read."""
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            response.text = response.read().decode()
            return response

    def metric(self, name):
        """Returns the value of the first metric of a name."""
        pattern = rf"^{name}(?:\{{.*\}})? (\S+)$"
        text = self._get("/metrics").text
        return float(re.search(pattern, text, re.MULTILINE)[1])


def content_of(kind, line, languages):
    """Returns the body of a request to translate a line."""
    if kind == "lines":
        return json.dumps({"lines": [line]})
    values = {"q": ["", line] if kind == "list" else line, **languages}
    if kind == "alternatives":
        values["alternatives"] = 1
    return urls.urlencode(values) if kind == "form" else json.dumps(values)


def texts_in(kind, body):
    """Returns the translations in an answer, best first."""
    if kind == "lines":
        (line,) = body["translations"]
        return [one["text"] for one in line["hypotheses"]]
    if kind == "list":
        blank, text = body["translatedText"]
        return [text] if not blank else []
    return [body["translatedText"], *body.get("alternatives", [])]


def post(body, length=None, content_type=TYPES[0]):
    """Returns a request to translate, which may state another length."""
    head = (
        f"POST /translate HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: "
        f"{content_type}\r\nContent-Length: {length or len(body)}\r\n\r\n"
    )
    return head.encode() + body


FORM = "multipart/form-data; boundary=x"
PART = b"--x\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
BAD_REQUESTS = (
    post(json.dumps({"lines": ["\U0001f600" * 2000]}).encode()),
    post(json.dumps(dict.fromkeys(map(str, range(80_000)))).encode()),
    post(b'{"lines": [' + b'"", ' * 200_000 + b'""]}'),
    post(PART * 18_000, content_type=FORM),
    post(b"&" * 999_000, content_type=TYPES[1]),
    bytes(range(256)) * 40 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000,  # a huge head
    post(b"{'lines': ["),
    post(b'{"lines": ["a"], "beam_size": 1000000000}'),
    post(json.dumps({"lines": ["a"] * 10_000}).encode()),
    post(b"x" * 3_000_000),
    post(b"x" * 100_000, length=10**12),
    # Clients that hang up, the last one in the middle of its body.
    post(b'{"lines": ["Nobody waits for this."], "n_best": 2}'),
    post(b'{"lines": ["', length=1000),
    # Clients that hold their connections, with half a head or none.
    b"GET / HTTP/1.1\r\nX: ",
    b"",
)
HANG_UPS, SILENT = BAD_REQUESTS[-4:-2], BAD_REQUESTS[-2:]


@contextlib.contextmanager
def server_of(path):
    """Starts a server; yields its port. It must end well."""
    command = [sys.executable, "-m", "relpos_tf.bin.serve", f"--model={path}"]
    with (
        tempfile.TemporaryFile("a+") as messages,
        subprocess.Popen(
            [*command, "--port=0"], cwd=common.HERE.parent, stderr=messages
        ) as process,
    ):

        def said():
            messages.seek(0)
            return messages.read()

        try:
            while not (found := re.search(r"Listening at .*:(\d+)/", said())):
                if process.poll() is not None:
                    raise SystemExit(said())
                time.sleep(HEALTH_PAUSE)
            yield int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)
        if process.wait(60) != 128 + signal.SIGTERM:
            raise SystemExit(said())


def decode(path, lines):
    """Translates as the decoder does.

    Returns:
        `Expected` of each line, and lines a second.
    """
    if engine_kinds.of(path).needs_tensorflow:
        common.import_tensorflow()
    translator = relpos_tf.Translator.load(path)
    translator.translate(lines[:64])
    begun = time.perf_counter()
    best = translator.translate(lines, batch_size=64)
    speed = len(lines) / (time.perf_counter() - begun)
    how = translator.engine.complete(decode_hparam.DecodeHParams())
    how = dataclasses.replace(how, n_best=how.beam_size)
    found = translator.translations(lines, how)
    expected = [
        Expected(text, one.texts, one.scores)
        for text, one in zip(best, found, strict=True)
    ]
    return expected, speed


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--model", required=True, help="a run, a checkpoint or an export")
    add("--lines_file", default="", help="lines to send, which are repeated")
    add("--sentences", type=int, default=10_000)
    add("--clients", type=int, default=64)
    add("--bad_clients", type=int, default=10)
    args = parser.parse_args()
    path = pathlib.Path(args.model).resolve()
    languages = list(engine_kinds.languages(path).values())
    lines = list(TEXT)
    if args.lines_file:
        text = pathlib.Path(args.lines_file).read_text(encoding="utf-8")
        # LibreTranslate's API translates each sentence alone.
        lines = [
            line
            for line in text.split("\n")
            if sentences.split(line, languages[0]).texts == [line]
        ]
    expected, decoder = decode(path, lines)
    with server_of(path) as port:
        loads = [
            Load(port, lines, expected, args.sentences, languages)
            for _ in range(2)
        ]
        metric = loads[0].metric
        warm_up_seconds = loads[0].wait_until_ready()
        cpu_seconds = [metric("process_cpu_seconds_total")]
        memory = [metric("process_resident_memory_bytes")]
        seconds = []
        for load, bad_clients in zip(loads, (0, args.bad_clients), strict=True):
            seconds.append(load.run(args.clients, bad_clients))
            cpu_seconds.append(metric("process_cpu_seconds_total"))
            memory.append(metric("process_resident_memory_bytes"))
        batch_lines = metric("relpos_batch_lines_sum")
        batch_lines /= metric("relpos_batch_lines_count")

    def milliseconds(share):
        """Returns the latency of a share of the requests, of each round."""
        times = [sorted(load.seconds) for load in loads]
        return [round(1000 * each[int(share * len(each))]) for each in times]

    outcomes = dict.fromkeys(("right", "different", "wrong"), 0)
    result = {
        "clients": args.clients,
        "sentences": args.sentences,
        "requests": dict(loads[0].requests + loads[1].requests),
        **outcomes | (loads[0].outcomes + loads[1].outcomes),
        "sentences_per_second": [
            round(args.sentences / each, 1) for each in seconds
        ],
        "decoder": round(decoder, 1),
        "warm_up_s": round(warm_up_seconds, 1),
        "p50_ms": milliseconds(0.5),
        "p99_ms": milliseconds(0.99),
        "cpu_ms": [
            round(1000 * (after - before) / args.sentences, 1)
            for before, after in itertools.pairwise(cpu_seconds)
        ],
        "batch_lines": round(batch_lines, 1),
        "memory_mb": [round(each / 2**20) for each in memory],
        "bad_answers": dict(sorted(loads[1].bad.items())),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
