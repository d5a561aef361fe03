"""Runs an application until a signal ends it."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Any

from relpos_tf import errors
from relpos_tf.utils import extras

with extras.imports("serve", "relpos-serve"):
    import uvicorn

_log = logging.getLogger("relpos_tf")


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Args:
        host: str. A name or an address of this machine.
        port: int. 0: any that is free.

    Raises:
        UserError: the address is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        is_foreign = error.errno == errno.EADDRNOTAVAIL
        is_foreign |= isinstance(error, socket.gaierror)  # no such name
        raise errors.UserError(
            f"Expected an address of this machine that is free. Received: "
            f"--host={host} --port={port} ({reason}). "
            f"Choose another {'host' if is_foreign else 'port'}."
        ) from error


def url_of(listener: socket.socket) -> str:
    """Returns the address of a listening socket, for a browser."""
    host, port = listener.getsockname()[:2]
    if listener.family == socket.AF_INET6:
        host = f"[{host}]"
    return f"http://{host}:{port}/"


def run(app: Any, listener: socket.socket, timeout_s: float) -> None:
    """Serves until SIGINT or SIGTERM, and finishes what is under way then.

    A second SIGINT ends without waiting.

    Args:
        app: The application.
        listener: A socket that listens; it is closed at the end.
        timeout_s: float. How long to wait for requests under way.
    """
    run_server(make_server(app, timeout_s), listener)


def make_server(app: Any, timeout_s: float) -> "Server":
    """Returns a server, which `run_server` runs. See `run`."""
    config = uvicorn.Config(
        app,
        # Whatever else is installed.
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(timeout_s)),
    )
    return Server(config)


def run_server(server: "Server", listener: socket.socket) -> None:
    """Runs a server until a signal or until its `should_exit` is set."""
    with listener, _signals_ignored(), _errors_logged():
        asyncio.run(server.serve([listener]))


class Server(uvicorn.Server):
    """Says when the server stops."""

    async def shutdown(self, sockets: list[socket.socket] | None = None):
        """Stops to listen, and waits for what is under way."""
        _log.info(
            "Stopping: %d requests are under way.",
            len(self.server_state.tasks),
        )
        await super().shutdown(sockets)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignores the signals that uvicorn raises again at its end.

    Within, uvicorn has handlers of its own.
    """
    before = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _errors_logged() -> Iterator[None]:
    """Sends the errors of uvicorn to our log, and drops its other messages.

    Rubbish that arrives is no news.
    """
    log = logging.getLogger("uvicorn")
    before = log.handlers[:], log.propagate, log.level
    log.handlers[:], log.propagate = _log.handlers, False
    log.setLevel(logging.ERROR)
    asyncio_log = logging.getLogger("asyncio")
    asyncio_before = asyncio_log.handlers[:], asyncio_log.propagate
    asyncio_log.handlers[:], asyncio_log.propagate = _log.handlers, False
    try:
        yield
    finally:
        log.handlers[:], log.propagate = before[:2]
        log.setLevel(before[2])
        asyncio_log.handlers[:], asyncio_log.propagate = asyncio_before
