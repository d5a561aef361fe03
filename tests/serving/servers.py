"""Servers in a thread of the tests, a fake translator, and requests."""

import contextlib
import http.client
import json
import threading
import time
import types

import numpy as np

from relpos_tf import errors
from relpos_tf.decoding import engines
from relpos_tf.serving import app as app_lib
from relpos_tf.serving import batching
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import prometheus
from relpos_tf.serving import served
from relpos_tf.serving import server as server_lib

JSON = {"content-type": "application/json"}
DEFAULTS = types.SimpleNamespace(beam_size=4, alpha=0.6, extra_length=5)


def translation_of(line, rank=0):
    """Returns what `FakeTranslator` makes of a line."""
    return line[::-1].upper() + "'" * rank


def attention_of(line, text):
    """Returns attention in which the order of the words is reversed."""
    source, target = (
        [f"\u2581{word}" for word in words.split()] + ["</s>"]
        for words in (line, text)
    )
    weights = np.full([2, 3, len(target), len(source)], 0.125)
    for i in range(min(len(source), len(target)) - 1):
        weights[:, :, i, len(source) - 2 - i] = 0.75
    words = [*range(len(source) - 1)], [*range(len(target) - 1)]
    return engines.Attention(source, target, weights, *words)


class FakeTranslator:
    """Spells lines backwards; records batches and can be stopped.

    An id stands for four characters.

    Attributes:
        batches: list of lists of lines, in the order in which they came.
        gate: `threading.Event`. Nothing is translated while it is not set.
        has_attention: bool. Whether it shows attention.
        seconds: float. What a batch takes.
    """

    def __init__(self, has_attention=True, seconds=0.0):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.has_attention = has_attention
        self.seconds = seconds
        self.engine = types.SimpleNamespace(
            complete=self._complete,
            is_steerable=has_attention,
            warm_up_steps=list,
            longest_source=0,
            items=lambda lines: [
                engines.Item(line, -(-len(line) // 4)) for line in lines
            ],
        )

    def _complete(self, decode_hparams):
        if decode_hparams.min_length == 13:
            raise errors.UserError("13 is refused.")
        return decode_hparams.fill(DEFAULTS)

    def translations(self, lines, decode_hparams):
        if decode_hparams.return_alignments and not self.has_attention:
            raise errors.UserError("An export has no attention.")
        return self._translations(list(lines), decode_hparams)

    def _translations(self, lines, decode_hparams):
        n_best = decode_hparams.n_best
        self.batches.append(lines)
        self.gate.wait(60)
        time.sleep(self.seconds)
        if "bad" in lines:
            raise errors.UserError("bad cannot be translated.")
        if "bug" in lines:
            raise RuntimeError("a bug")
        for line in lines:
            attention = attention_of(line, translation_of(line))
            yield engines.Translation(
                [translation_of(line, i) for i in range(n_best)],
                [-1.5 - i if i < 3 else -1e7 for i in range(n_best)],
                len(line) < 100,
                is_long=len(line) > 99,
                attention=[attention] * n_best
                if decode_hparams.return_alignments
                else [],
            )


class Served:
    """A server in a thread.

    Args:
        translators: dict of translators by name.
        is_cold: bool. Whether they are warmed up.
        languages: dict of pairs of codes by name, for those that have any.
        cors_origins: Origins whose pages may read answers.
        allowed_hosts: Hosts that requests may name.
        **limits: Fields of `limits.Limits`.
    """

    def __init__(
        self,
        translators,
        is_cold=False,
        languages=None,
        cors_origins=(),
        allowed_hosts=("127.0.0.1",),
        **limits,
    ):
        self.limits = limits_lib.Limits(**limits)
        metrics = prometheus.Metrics()
        self.workers = {}
        for name, translator in translators.items():
            description = {"kind": "fake"}
            if pair := (languages or {}).get(name):
                keys = "source_language", "target_language"
                description |= dict(zip(keys, pair, strict=True))
            model = served.ServedModel(name, translator, description)
            steps = model.warm_up_steps() if is_cold else ()
            self.workers[name] = batching.Worker(
                model, self.limits, metrics, steps
            )
        app = app_lib.make_app(
            self.workers, self.limits, metrics, cors_origins, allowed_hosts
        )
        self.listener = server_lib.listen("127.0.0.1", 0)
        self.url = server_lib.url_of(self.listener)
        self.port = self.listener.getsockname()[1]
        self.server = server_lib.Server(app, self.limits)
        self.thread = threading.Thread(
            target=self.server.run, args=([self.listener],)
        )

    def __enter__(self):
        for worker in self.workers.values():
            worker.start()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(30)
        for worker in self.workers.values():
            worker.close(1)

    def connect(self, timeout=60):
        """Returns a connection that closes at the end of a block."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=timeout
        )
        return contextlib.closing(connection)

    def ask(self, method, path, body=None, headers=JSON):
        """Returns status, headers and body of an answer."""
        with self.connect() as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def post(self, content):
        """Posts JSON to /translate; returns status, headers and JSON."""
        if not isinstance(content, bytes | str):
            content = json.dumps(content)
        status, headers, body = self.ask("POST", "/translate", content)
        return status, headers, json.loads(body)

    def translate(self, *lines, **fields):
        """Returns the best translation of each line."""
        status, _, answer = self.post({"lines": lines, **fields})
        if status != 200:
            raise RuntimeError(f"{status}: {answer}")
        return [one["hypotheses"][0]["text"] for one in answer["translations"]]

    def metric(self, name):
        """Returns the value of a line of /metrics, or None."""
        _, _, body = self.ask("GET", "/metrics")
        for line in body.decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return None


def wait_until(condition, seconds=20):
    """Waits until a condition holds; returns whether it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False
