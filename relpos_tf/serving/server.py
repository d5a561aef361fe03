"""Runs an application until a signal ends it."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

from relpos_tf import errors
from relpos_tf.utils import extras

with extras.imports("serve", "relpos-serve"):
    import uvicorn

_log = logging.getLogger("relpos_tf")
# Connections that wait to be accepted.
_BACKLOG = 1024
# Seconds between two looks for a second signal.
_POLL_S = 0.1


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket with an address, which `listen` lets others connect to.

    Args:
        host: str. A name or an address of this machine.
        port: int. 0: any that is free.

    Raises:
        UserError: the address is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        with _errors_explained(host, port):
            # As `socket.create_server` does, which listens as well.
            if os.name == "posix":  # or a new start waits for minutes
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener


def listen(listener: socket.socket) -> None:
    """Lets others connect to a socket of `bind`.

    Raises:
        UserError: another process has begun to listen at the address.
    """
    with _errors_explained(*listener.getsockname()[:2]):
        listener.listen(_BACKLOG)


@contextlib.contextmanager
def _errors_explained(host: str, port: int) -> Iterator[None]:
    try:
        yield
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
    """Returns the address of a socket, for a browser."""
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
        """Stops to listen, and waits for what is under way.

        After a second SIGINT it does not wait, not even for connections to
        close, as uvicorn does from Python 3.12 on.
        """
        _log.info(
            "Stopping: %d requests are under way.",
            len(self.server_state.tasks),
        )
        stopping = asyncio.ensure_future(super().shutdown(sockets))
        while not stopping.done() and not self.force_exit:
            await asyncio.wait({stopping}, timeout=_POLL_S)
        if not self.force_exit:
            return stopping.result()
        # What is under way is cancelled, which is no fault to be logged.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        stopping.cancel()


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
