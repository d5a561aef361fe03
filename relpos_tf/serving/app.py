"""The web application: what each address answers.

    POST /translate   lines in, translations out; LibreTranslate's texts as well
    GET  /models      what each model can do, and the server's limits
    GET  /health      whether the models are warm
    GET  /metrics     counters, for Prometheus
    GET  /            the page
    GET  /openapi.json  all of this for programs

and, as LibreTranslate does, GET /languages and POST /detect.

Errors are JSON objects, {"error": "a sentence"}.
"""

import asyncio
import dataclasses
import functools
import json
import logging
import pathlib
import re
import time
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from urllib import parse as urls

import python_multipart  # noqa: F401  # for Starlette's forms
from starlette import applications
from starlette import exceptions
from starlette import middleware
from starlette import requests
from starlette import responses
from starlette import routing
from starlette.middleware import cors

import relpos_tf
from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.serving import batching
from relpos_tf.serving import libretranslate
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import prometheus
from relpos_tf.serving import queries
from relpos_tf.serving import served

_log = logging.getLogger("relpos_tf")
# Not a standard code; nobody reads it but the metrics.
_HUNG_UP = 499
# Seconds after which to try again.
_RETRY_AFTER = {429: "5", 503: "5", 504: "10"}
# Of python_multipart: a line without a name for each bad form.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
# A codec that a client chooses may take minutes, or fail.
_CODEC = re.compile(rb"charset", re.IGNORECASE)
_MOST_FIELDS = 100
# Characters from which on a request is long.
_LONG = 10_000
_LOCALHOST = r"|127(\.\d+){3}|\[[0:]*:0*1\]"
_FOREIGN = "Unknown host. Start the server with --allowed_hosts=HOST to add it."
_PAGE = pathlib.Path(__file__).parent / "page"
_PAGE_FILES = {"/": "index.html"} | {
    f"/{x}": x for x in ("page.css", "page.js", "openapi.json")
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def make_app(
    workers: Mapping[str, batching.Worker],
    limits: limits_lib.Limits,
    metrics: prometheus.Metrics,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = ("*",),
) -> Any:
    """Returns the application, an ASGI callable.

    Args:
        workers: By the names of their models; the first is the default.
        limits: What the server takes on.
        metrics: What `/metrics` shows.
        cors_origins: The origins, as "https://example.org", whose pages may
            read answers.
        allowed_hosts: The names that requests may give to the server, without
            ports; "*": any; "localhost": loopback addresses as well. A page
            whose name was bound to this machine's address (DNS rebinding) may
            read answers to its own name.
    """
    answers = _Answers(dict(workers), limits, metrics, cors_origins)
    routes = [
        routing.Route("/translate", answers.translate, methods=["POST"]),
        routing.Route("/detect", answers.detect, methods=["POST"]),
        routing.Route("/languages", answers.languages),
        routing.Route("/models", answers.models),
        routing.Route("/health", answers.health),
        routing.Route("/metrics", answers.metrics),
        *(
            routing.Route(path, functools.partial(_page_file, name))
            for path, name in _PAGE_FILES.items()
        ),
    ]
    app: Any = applications.Starlette(
        routes=routes,
        middleware=[middleware.Middleware(_for_hosts, allowed_hosts)],
        exception_handlers={exceptions.HTTPException: _http_error},
    )
    # A redirect would name the host of the request, and no proxy's prefix.
    app.router.redirect_slashes = False
    # Pages of others may not read answers: each must be allowed by name.
    # Around everything, so that they may read of faults as well.
    return cors.CORSMiddleware(
        app,
        allow_origins=list(cors_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-requested-with"],
    )


def _for_hosts(app, allowed_hosts):
    """Returns an application that answers to the names of some hosts alone.

    Browsers always name one, and nobody can bind an address as a name.
    """
    names = "|".join(map(re.escape, allowed_hosts)).replace(r"\*", ".*")
    own = _LOCALHOST if "localhost" in allowed_hosts else ""
    known = re.compile(rf"(?i)({names}{own})\.?(:\d*)?")

    async def answer(scope, receive, send):
        host = dict(scope["headers"]).get(b"host", b"localhost")
        is_known = known.fullmatch(host.decode("latin-1"))
        found = app if is_known else _json({"error": _FOREIGN}, 400)
        await found(scope, receive, send)

    return answer


class _Answers:
    """The functions behind the addresses."""

    def __init__(self, workers, limits, metrics, cors_origins):
        self._cors_origins = {*cors_origins}
        # Long texts wait for one another, and short ones for none of them.
        self._long = futures.ThreadPoolExecutor(1)
        self._workers = workers
        self._limits = limits
        self._metrics = metrics

    async def health(self, _: requests.Request):
        is_warm = all(worker.is_warm for worker in self._workers.values())
        status = 200 if is_warm else 503
        text = "ok" if is_warm else "warming up"
        return _json({"status": text, "models": list(self._workers)}, status)

    async def models(self, _: requests.Request):
        return _json(
            {
                "version": relpos_tf.__version__,
                "models": [
                    w.model.describe() | {"max_line_ids": w.line_ids}
                    for w in self._workers.values()
                ],
                "limits": dataclasses.asdict(self._limits),
            }
        )

    async def metrics(self, _: requests.Request):
        text = self._metrics.text()
        return responses.Response(text, media_type=prometheus.CONTENT_TYPE)

    async def languages(self, _: requests.Request):
        return _json(libretranslate.languages(self._workers.values()))

    async def detect(self, request: requests.Request):
        return await self._in_time(request, self._detect(request))

    async def translate(self, request: requests.Request):
        response = await self._in_time(request, self._translate(request))
        self._metrics.requests.labels(str(response.status_code)).inc()
        return response

    async def _in_time(self, request, answer):
        """Returns a response, whatever comes of an answer."""
        timeout = self._limits.timeout_s
        request.state.what = "A request whose body has not arrived"
        try:
            return await asyncio.wait_for(answer, timeout)
        except asyncio.TimeoutError:
            text = f"Not answered within {timeout:.0f} s."
            _log.warning("%s: %s", request.state.what, text)
            return await _refusal(request, limits_lib.RefusedError(504, text))
        except errors.UserError as error:
            return await _refusal(request, error)
        except asyncio.CancelledError:  # the server does not wait any longer
            refused = limits_lib.RefusedError(503, limits_lib.STOPPING)
            return await _refusal(request, refused)
        except requests.ClientDisconnect:
            return responses.Response(status_code=_HUNG_UP)
        except exceptions.HTTPException as error:
            return await _http_error(request, error)
        except Exception as error:
            return await _refusal(request, limits_lib.failed(error))

    async def _detect(self, request):
        request.state.statuses = libretranslate.STATUSES
        libretranslate.texts_of(await self._read(request))
        known = libretranslate.languages(self._workers.values())
        sources = [one["code"] for one in known if one["targets"]]
        return _json(libretranslate.detect(sources))

    async def _translate(self, request):
        begun = time.monotonic()
        values = await self._read(request)
        if libretranslate.is_request(values):
            request.state.statuses = libretranslate.STATUSES
            return await self._answer_texts(request, values, begun)
        query = queries.parse(values)
        name = query.model or next(iter(self._workers))
        fields.check_names([name], self._workers, "models")
        worker = self._workers[name]
        lines = await self._lines(request, worker, query, begun)
        # Attention weights take seconds, in which others are answered.
        return _response(await asyncio.to_thread(served.answer, name, lines))

    async def _answer_texts(self, request, values, begun):
        """Answers a request of LibreTranslate's API."""
        wanted = libretranslate.parse(values)
        workers = self._workers.values()
        worker = libretranslate.find(workers, wanted.source, wanted.target)
        model = worker.model
        most = min(model.beam_size, self._limits.max_beam_size)
        query = wanted.query(model.name, most)
        lines = await self._lines(request, worker, query, begun)
        return _json(wanted.answer(lines, model.languages[0]))

    async def _lines(self, request, worker, query, begun):
        """Returns what the answer says of each line."""
        model, texts = worker.model, []
        queries.check_sizes(query, self._limits)
        size = sum(map(len, query.lines))
        request.state.what = f"A request of {size} characters"
        threads = self._long if size > _LONG else None
        run = asyncio.get_running_loop().run_in_executor
        if query.split_sentences:
            texts = await run(
                threads, model.split, query, self._limits.max_lines
            )
            parts = tuple(part for text in texts for part in text.texts)
            query = dataclasses.replace(query, lines=parts)
            queries.check_sizes(query, self._limits)
        sizes = tuple(await run(threads, model.sizes, query.lines))
        request.state.what = f"A request of {sum(sizes)} ids"
        query = dataclasses.replace(query, sizes=sizes)
        lines = await _result(request, worker.submit(query))
        seconds = time.monotonic() - begun
        self._metrics.request_seconds.labels(model.name).observe(seconds)
        self._metrics.lines.labels(model.name).inc(len(query.lines))
        if query.split_sentences:
            return served.group(texts, lines, model.languages[1])
        return lines

    async def _read(self, request):
        """Returns the fields of a request: a JSON object, or a form.

        JSON has its own type, which the page of another origin cannot send
        unless `cors_origins` allows it; a form, which it can, is refused if
        the browser says whose it is. The fields of the address belong to the
        body.
        """
        header, most = request.headers.get, self._limits.max_body_bytes
        size = 0
        kind = header("content-type", "").partition(";")[0].strip().lower()
        is_foreign = header("sec-fetch-site") in ("cross-site", "same-site")
        if is_foreign and not self._cors_origins & {"*", header("origin")}:
            text = "Pages of other origins need --cors_origin of this server."
            raise limits_lib.RefusedError(403, text)
        text = f"The body may have at most {most} bytes."
        too_large = limits_lib.RefusedError(413, text)
        if int(header("content-length", 0)) > most:
            raise too_large

        async def receive():
            nonlocal size
            message = await request.receive()
            size += len(message.get("body", b""))
            if size > most:
                raise too_large
            return message

        headers = [
            (key, _CODEC.sub(b"x", value) if key == b"content-type" else value)
            for key, value in request.scope["headers"]
        ]
        sent = requests.Request(request.scope | {"headers": headers}, receive)
        body = await sent.body()
        if kind == "application/json":
            return {**request.query_params, **queries.read(body)}
        if kind == "application/x-www-form-urlencoded":
            # Starlette's parser takes long, and does not read bare UTF-8.
            if body.count(b"&") >= _MOST_FIELDS:
                text = f"A form may have at most {_MOST_FIELDS} fields."
                raise limits_lib.RefusedError(400, text)
            text = body.decode(errors="replace")
            form = urls.parse_qsl(text, keep_blank_values=True)
        else:
            read = await sent.form(
                max_files=0, max_fields=_MOST_FIELDS, max_part_size=most
            )
            form = read.multi_items()
        pairs = [*request.query_params.multi_items(), *form]
        values = dict(pairs)
        if "q" not in values or len(values) < len(pairs):
            text = f"{queries.EXPECTED} Each field of a form comes once."
            raise limits_lib.RefusedError(400, text)
        return values


async def _result(request, job):
    """Waits for the translations of a job, and gives it up if cancelled.

    Raises:
        UserError: the job's own.
        ClientDisconnect: the client hung up.
    """
    future = asyncio.wrap_future(job.future)
    # After the whole body, only the end of the connection can arrive.
    end = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({future, end}, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise requests.ClientDisconnect
        return future.result()
    finally:
        end.cancel()
        future.cancel()  # and the job with it, unless it is done


async def _page_file(name, _: requests.Request):
    return responses.FileResponse(_PAGE / name, headers=_HEADERS)


def _json(values, status=200):
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return _response(text, status)


def _response(text, status=200):
    """Returns a response of JSON."""
    headers = {"cache-control": "no-store"}
    if status in _RETRY_AFTER:
        headers["retry-after"] = _RETRY_AFTER[status]
    return responses.Response(text, status, headers, "application/json")


async def _refusal(request, error: errors.UserError):
    """Answers with the status that the API of the request has for an error."""
    status = getattr(error, "status", 422)
    statuses = getattr(request.state, "statuses", {})
    # The task that raised it refers to it: a cycle that holds the request.
    error.__traceback__ = None
    return _json({"error": str(error)}, statuses.get(status, status))


async def _http_error(request, error):
    """Answers an unknown address, or one with another method."""
    # Not of `request.url`, which is made of the host that the client names.
    text = f"{request.method} {request.scope['path']}: {error.detail}"
    response = _json({"error": text}, error.status_code)
    response.headers.update(error.headers or {})
    return response
