"""Loads `relpos-serve` with many clients, some of which misbehave.

    python benchmarks/serving.py --model=runs/mine --lines_file=test.en

translates the lines in this process first, as the decoder does, and then starts
a server in another one. Each of `--clients` sends a line and waits for its
translation, which is compared, before it sends the next, `--sentences` in all.
They begin once `/health` says that the server is ready, as behind a proxy.
Meanwhile `--bad_clients` send rubbish and huge bodies, and hang up. All traffic
stays on 127.0.0.1. Prints one JSON line:

`sentences_per_second`, `p50_ms` and `p99_ms` are those of the good clients;
`warm_up_s` is the time from when the server listens until it is ready;
`decoder` is the speed of this process, with all lines sorted by length, in
batches of 64; `cpu_ms` is the time of the processor for a sentence, in the
server and in this process;
`batch_lines` is the mean number of lines that the server joined; `different`
counts translations that rounding changed, with the same score, and `wrong` all
others; `memory_mb` is the server's after a tenth, a half, and all of the
sentences.
"""

import collections
import contextlib
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
import threading
import time

import common

HOST = "127.0.0.1"
# Seconds between two misdeeds, so that refusals are not all that is measured.
BAD_PAUSE = 0.1
HEALTH_PAUSE = 0.2  # seconds between two requests for /health
# The same score, as far as the server writes it and rounding allows.
SAME_SCORE = 2e-3
TEXT = (
    "The train leaves at seven.",
    "Where is the station?",
    "It is raining, and it will rain tomorrow as well.",
    "twenty-one days",
)


class Load:
    """Good and bad clients of one server.

    Args:
        port: int.
        lines: list of str.
        expected: list of (translation, score), one for each line.
        sentences: int. How many to send; the lines are repeated.
        model: str. "": the first.
    """

    def __init__(self, port, lines, expected, sentences, model=""):
        self.port = port
        self.seconds = []  # of each answer
        self.outcomes = collections.Counter()
        self.bad = collections.Counter()  # answers to the bad clients
        self.memory_mb = []
        self._model = model
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._work = itertools.islice(
            itertools.cycle(zip(lines, expected, strict=True)), sentences
        )
        self._sentences = sentences

    def run(self, clients, bad_clients):
        """Runs all clients; returns the seconds that the good ones took."""
        good = [self._thread(self._good) for _ in range(clients)]
        bad = [self._thread(self._bad, seed) for seed in range(bad_clients)]
        begun = time.perf_counter()
        for share in (0.1, 0.5):
            while len(self.seconds) < share * self._sentences and any(
                thread.is_alive() for thread in good
            ):
                time.sleep(0.02)
            self.memory_mb.append(self.memory())
        for thread in good:
            thread.join()
        seconds = time.perf_counter() - begun
        self._is_done.set()
        for thread in bad:
            thread.join()
        self.memory_mb.append(self.memory())
        return seconds

    def _thread(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        return thread

    def _good(self):
        with contextlib.closing(self._connect()) as connection:
            while True:
                with self._lock:
                    line, expected = next(self._work, (None, None))
                if line is None:
                    return
                begun = time.perf_counter()
                try:
                    outcome = self._ask(connection, line, expected)
                except (OSError, http.client.HTTPException) as error:
                    outcome = type(error).__name__
                with self._lock:
                    self.seconds.append(time.perf_counter() - begun)
                    self.outcomes[outcome] += 1

    def _connect(self):
        return http.client.HTTPConnection(HOST, self.port, timeout=120)

    def _ask(self, connection, line, expected):
        """Sends a line; returns what its answer is."""
        content = {"lines": [line]} | (
            {"model": self._model} if self._model else {}
        )
        connection.request("POST", "/translate", json.dumps(content))
        response = connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            return str(response.status)
        (found,) = body["translations"][0]["hypotheses"]
        if found["text"] == expected[0]:
            return "right"
        is_same = abs(found["score"] - expected[1]) < SAME_SCORE
        return "different" if is_same else "wrong"

    def _bad(self, seed):
        """Misbehaves in turn, until the good clients are done."""
        choose = random.Random(seed)
        while not self._is_done.wait(BAD_PAUSE):
            behave = choose.choice(BEHAVIOURS)
            with contextlib.suppress(OSError):
                with socket.create_connection((HOST, self.port), 20) as one:
                    behave(one)
                    answer = one.recv(99)
                    status = re.match(rb"HTTP/1.1 (\d+)", answer)
                    with self._lock:
                        self.bad[status[1].decode() if status else "none"] += 1

    def wait_until_ready(self):
        """Waits until `/health` answers 200; returns the seconds it took."""
        begun = time.perf_counter()
        while self._health() != 200:
            time.sleep(HEALTH_PAUSE)
        return time.perf_counter() - begun

    def _health(self):
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().status

    def metric(self, name):
        """Returns the value of the first metric of a name."""
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        pattern = rf"^{name}(?:\{{.*\}})? (\S+)$"
        return float(re.search(pattern, text, re.MULTILINE)[1])

    def memory(self):
        """Returns the memory of the server, in MB."""
        return round(self.metric("process_resident_memory_bytes") / 2**20)


def head(length):
    """Returns the head of a request whose body has this length."""
    return (
        f"POST /translate HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def send(connection, body):
    """Sends a request to translate."""
    connection.sendall(head(len(body)) + body)


def rubbish(connection):
    connection.sendall(bytes(range(256)) * 40 + b"\r\n\r\n")


def no_json(connection):
    send(connection, b"{'lines': [")


def wrong_fields(connection):
    send(connection, b'{"lines": ["a"], "beam_size": 1000000000}')


def many_lines(connection):
    send(connection, json.dumps({"lines": ["a"] * 10_000}).encode())


def huge_body(connection):
    send(connection, b"x" * 3_000_000)


def endless_body(connection):
    connection.sendall(head(10**12) + b"x" * 100_000)


def huge_head(connection):
    connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000)


def hang_up(connection):
    send(connection, b'{"lines": ["Nobody waits for this."], "n_best": 2}')
    connection.close()


def half_a_body(connection):
    connection.sendall(head(1000) + b'{"lines": ["')
    connection.close()


BEHAVIOURS = (
    rubbish,
    no_json,
    wrong_fields,
    many_lines,
    huge_body,
    endless_body,
    huge_head,
    hang_up,
    half_a_body,
)


@contextlib.contextmanager
def server_of(path, *flags):
    """Starts a server; yields its port. It must end well."""
    command = [sys.executable, "-m", "relpos_tf.bin.serve", f"--model={path}"]
    process = subprocess.Popen(
        [*command, "--port=0", *flags],
        cwd=common.HERE.parent,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.match(r"Listening at .*:(\d+)/", line):
                break
        else:
            raise common.BenchmarkFailedError("".join(said))
        # Its messages must not fill the pipe.
        rest = threading.Thread(target=lambda: said.extend(process.stderr))
        rest.start()
        yield int(found[1])
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        rest.join()
        if code or said[-1] != "Stopped.\n":
            raise common.BenchmarkFailedError(f"{code}: {''.join(said)}")
    finally:
        process.kill()


def decode(path, lines):
    """Translates as the decoder does.

    Returns:
        Pairs of translation and score, lines a second, and milliseconds of
        the processor for each line.
    """
    from relpos_tf.bin import command
    from relpos_tf.decoding import engine_kinds
    from relpos_tf.decoding import translator as translator_lib

    if engine_kinds.of(path).needs_tensorflow:
        command.import_tensorflow()
    translator = translator_lib.Translator.load(path)
    translator.translate(lines[:64])
    begun = time.perf_counter(), time.process_time()
    pairs = translator.translate(lines, batch_size=64, return_scores=True)
    seconds = time.perf_counter() - begun[0]
    cpu_seconds = time.process_time() - begun[1]
    return pairs, len(lines) / seconds, 1000 * cpu_seconds / len(lines)


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
    lines = list(TEXT)
    if args.lines_file:
        text = pathlib.Path(args.lines_file).read_text(encoding="utf-8")
        lines = [line for line in text.split("\n") if line.strip()]
    pairs, decoder, decoder_cpu_ms = decode(path, lines)
    with server_of(path) as port:
        load = Load(port, lines, pairs, args.sentences)
        warm_up_seconds = load.wait_until_ready()
        before = load.metric("process_cpu_seconds_total")
        seconds = load.run(args.clients, args.bad_clients)
        cpu_seconds = load.metric("process_cpu_seconds_total") - before
        batch_lines = load.metric("relpos_batch_lines_sum")
        batch_lines /= load.metric("relpos_batch_lines_count")
    times = sorted(load.seconds)
    others = load.outcomes.copy()
    result = {
        "clients": args.clients,
        "sentences": args.sentences,
        "right": others.pop("right", 0),
        "different": others.pop("different", 0),
        "wrong": others.pop("wrong", 0),
        "not_answered": dict(others),
        "sentences_per_second": round(args.sentences / seconds, 1),
        "decoder": round(decoder, 1),
        "warm_up_s": round(warm_up_seconds, 1),
        "p50_ms": round(1000 * times[len(times) // 2]),
        "p99_ms": round(1000 * times[int(0.99 * len(times))]),
        "cpu_ms": round(1000 * cpu_seconds / args.sentences, 1),
        "decoder_cpu_ms": round(decoder_cpu_ms, 1),
        "batch_lines": round(batch_lines, 1),
        "memory_mb": load.memory_mb,
        "bad_answers": dict(sorted(load.bad.items())),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
