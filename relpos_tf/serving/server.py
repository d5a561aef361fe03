"""Runs an application until a signal ends it."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn

from relpos_tf import errors
from relpos_tf.utils import signals

_log = logging.getLogger("relpos_tf")
# Connections that wait to be accepted.
_BACKLOG = 1024
# Seconds between two looks for a second signal.
_POLL_S = 0.1


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; clients wait until `Server` runs.

    Args:
        host: str. A name or an address of this machine.
        port: int. 0: any that is free.

    Raises:
        UserError: the address is taken, or this machine does not have it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=_BACKLOG
        )
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


class Server(uvicorn.Server):
    """A server that `run(sockets)` runs until a signal or `should_exit`.

    A signal lets it finish the requests under way; after a second one, if that
    is SIGINT, they are refused.

    Args:
        app: The application.
        timeout_s: float. How long to wait for requests under way at the end.

    Attributes:
        stopped: `signals.Stopped` of the first signal; None before.
    """

    stopped: signals.Stopped | None = None

    def __init__(self, app: Any, timeout_s: float):
        config = uvicorn.Config(
            app,
            # Whatever else is installed.
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(timeout_s)),
        )
        super().__init__(config)

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:
        """Handles every signal that ends a command; uvicorn handles two."""
        return signals.caught(self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Notes a signal."""
        del frame
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self.stopped = self.stopped or signals.Stopped(sig)

    async def shutdown(self, sockets: list[socket.socket] | None = None):
        """Stops listening, and waits for the requests under way.

        A second SIGINT ends the wait, and with it the loop, which cancels the
        requests; the application answers them with 503. uvicorn would still
        wait for connections to close, from Python 3.12 on.
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
        stopping.cancel()
