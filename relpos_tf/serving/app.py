"""The web application: what each address answers.

    POST /translate   lines in, translations out
    GET  /models      what each model can do, and the server's limits
    GET  /health      whether every kind of request is answered at once
    GET  /metrics     counters, for Prometheus
    GET  /            the page

Errors are JSON objects, {"error": "a sentence"}.
"""

import asyncio
import contextlib
import dataclasses
import functools
import http
import json
import pathlib
import time
from collections.abc import Mapping

import relpos_tf
from relpos_tf import errors
from relpos_tf.serving import batching
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import metrics as metrics_lib
from relpos_tf.serving import queries
from relpos_tf.serving import served
from relpos_tf.utils import extras

with extras.imports("serve", "relpos-serve"):
    from starlette import applications
    from starlette import exceptions
    from starlette import requests
    from starlette import responses
    from starlette import routing

# Of a body that is too large, so much is read before the refusal, which a
# client that is still sending would not see.
_DRAINED_BYTES = 2**24
# At the end, for the thread of a model.
_LAST_WAIT_S = 1.0
# Not a standard code; nobody reads it but the metrics.
_HUNG_UP = 499
_PAGE = pathlib.Path(__file__).parent / "page"
_PAGE_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
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
    metrics: metrics_lib.Metrics,
) -> applications.Starlette:
    """Returns the application. It starts the workers, and ends them.

    Args:
        workers: By the names of their models; the first is the default.
        limits: What the server takes on.
        metrics: What `/metrics` shows.
    """
    answers = _Answers(dict(workers), limits, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_):
        for worker in workers.values():
            worker.start()
        yield
        # Every request has been answered, or given up. A batch for nobody is
        # not waited for.
        for worker in workers.values():
            await asyncio.to_thread(worker.close, True, _LAST_WAIT_S)

    routes = [
        routing.Route("/translate", answers.translate, methods=["POST"]),
        routing.Route("/models", answers.models),
        routing.Route("/health", answers.health),
        routing.Route("/metrics", answers.metrics),
        *(
            routing.Route(path, functools.partial(_page_file, *file))
            for path, file in _PAGE_FILES.items()
        ),
    ]
    return applications.Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            limits_lib.RefusedError: _refusal,
            exceptions.HTTPException: _http_error,
            Exception: _bug,
        },
    )


class _Answers:
    """The functions behind the addresses."""

    def __init__(self, workers, limits, metrics):
        self._workers = workers
        self._limits = limits
        self._metrics = metrics

    async def health(self, request: requests.Request):
        del request
        content = {"status": "ok", "models": list(self._workers)}
        if all(worker.is_warm for worker in self._workers.values()):
            return _json(content)
        content["status"] = "warming up"
        return _json(content, 503, {"retry-after": "1"})

    async def models(self, request: requests.Request):
        del request
        models = [w.model.describe() for w in self._workers.values()]
        return _json(
            {
                "version": relpos_tf.__version__,
                "models": models,
                "limits": dataclasses.asdict(self._limits),
            }
        )

    async def metrics(self, request: requests.Request):
        del request
        return responses.Response(
            self._metrics.text(),
            headers={"content-type": metrics_lib.CONTENT_TYPE},
        )

    async def translate(self, request: requests.Request):
        begun = time.monotonic()
        status = 500
        try:
            response = await self._translate(request, begun)
            status = response.status_code
        except limits_lib.RefusedError as error:
            status = error.status
            raise
        except requests.ClientDisconnect:
            status = _HUNG_UP
            return responses.Response(status_code=_HUNG_UP)
        finally:
            self._metrics.count_request(status)
        return response

    async def _translate(self, request, begun):
        try:
            body = await asyncio.wait_for(
                self._read_body(request), self._limits.timeout_s
            )
        except asyncio.TimeoutError:
            raise limits_lib.RefusedError(
                408, "The body did not arrive in time.", closes=True
            ) from None
        query = queries.parse(body, self._limits)
        worker = self._worker(query.model)
        job = worker.submit(query)
        left = begun + self._limits.timeout_s - time.monotonic()
        translations = await _result(request, job, left)
        seconds = time.monotonic() - begun
        name = worker.model.name
        self._metrics.count_translation(name, len(query.lines), seconds)
        answer = functools.partial(served.answer, query, name, translations)
        # Weights take seconds, in which others are answered.
        text = await asyncio.to_thread(answer) if query.attention else answer()
        return _response(text)

    def _worker(self, name):
        """Returns the worker of a model; "": the first."""
        name = name or next(iter(self._workers))
        if name not in self._workers:
            known = list(self._workers)
            raise limits_lib.RefusedError(
                422,
                f"Unknown model {name[:40]!r}."
                f"{errors.did_you_mean(name[:40], known)} Known: {known}.",
            )
        return self._workers[name]

    async def _read_body(self, request):
        """Reads a request's body.

        Raises:
            RefusedError: it is too large.
        """
        most = self._limits.max_body_bytes
        refusal = f"The body may have {most} bytes."
        announced = request.headers.get("content-length", "")
        drained = most + _DRAINED_BYTES
        if announced.isdecimal() and int(announced) > drained:
            raise limits_lib.RefusedError(413, refusal, closes=True)
        body, size = bytearray(), 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > drained:
                raise limits_lib.RefusedError(413, refusal, closes=True)
            if size <= most:
                body += chunk
        if size > most:
            raise limits_lib.RefusedError(413, refusal)
        return bytes(body)


async def _result(request, job, timeout):
    """Waits for the translations of a job.

    Raises:
        RefusedError: 504 after `timeout` seconds, or the job's own.
        ClientDisconnect: the client hung up.
    """
    future = asyncio.wrap_future(job.future)
    # After the whole body, only the end of the connection can arrive.
    end = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait(
            {future, end},
            timeout=timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if future.done():
            return future.result()
        if end.done():
            raise requests.ClientDisconnect
        raise limits_lib.RefusedError(
            504, f"Not translated within {timeout:.0f} s.", retry_after=10
        )
    finally:
        end.cancel()
        job.future.cancel()  # nothing, if it is done
        future.cancel()


async def _page_file(name, media_type, request: requests.Request):
    del request
    return responses.Response(
        await asyncio.to_thread((_PAGE / name).read_bytes),
        media_type=media_type,
        headers=_HEADERS,
    )


def _json(values, status=200, headers=None):
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return _response(text, status, headers)


def _response(text, status=200, headers=None):
    """Returns a response of JSON."""
    return responses.Response(
        text,
        status,
        {"cache-control": "no-store", **(headers or {})},
        "application/json",
    )


async def _refusal(request, error: limits_lib.RefusedError):
    del request
    headers = {}
    if error.retry_after:
        headers["retry-after"] = str(error.retry_after)
    if error.closes:
        headers["connection"] = "close"
    return _json({"error": str(error)}, error.status, headers)


async def _http_error(request, error: exceptions.HTTPException):
    """Answers an unknown address, or one with another method."""
    text = f"{request.method} {request.url.path}: {error.detail}."
    return _json({"error": text}, error.status_code, error.headers)


async def _bug(request, error: Exception):
    del request, error
    status = http.HTTPStatus.INTERNAL_SERVER_ERROR
    return _json({"error": f"{status.phrase}."}, status)
