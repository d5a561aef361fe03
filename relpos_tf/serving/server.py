"""Runs an application until a signal ends it."""

import errno
import ipaddress
import logging
import resource
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http import h11_impl

from relpos_tf import errors
from relpos_tf.serving import limits as limits_lib
from relpos_tf.utils import signals

_log = logging.getLogger("relpos_tf")
# Connections that wait to be accepted; asyncio accepts so many at a time.
_BACKLOG = 128
# Most open connections, if the process may open so many files, besides those of
# a backlog and of the models.
_MOST_CONNECTIONS, _OTHER_FILES = 1000, _BACKLOG + 64
# Seconds for the head of a request, and for the rest of a refused body.
_HEAD_S = 10
# Seconds beyond a request's time that answers under way have at the end.
_GRACE_S = 5


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


def own_hosts(listener: socket.socket) -> list[str]:
    """Returns the hosts that requests to a socket may name; "*": any.

    Of this machine's own address, no other machine knows a name.
    """
    host = ipaddress.ip_address(listener.getsockname()[0])
    return ["localhost"] if host.is_loopback else ["*"]


class _Connection(h11_impl.H11Protocol):
    """A connection that nobody can hold without a request under way.

    It closes where a head does not arrive in time, or the rest of a body whose
    answer was sent before its end. Of too many connections, the one that has
    waited longest makes room. It closes also where an answer is not read in the
    time that a request has.
    """

    most: int  # set by `Server`
    timeout_s: float

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)
        self.head = self.loop.call_later(_HEAD_S, transport.abort)
        if len(self.connections) > self.most:
            last = min(self.connections, key=_Connection.order)
            self.connections.discard(last)
            last.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_busy:
            self.head.cancel()
        elif self.head.cancelled():
            self.head = self.loop.call_later(_HEAD_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Closes the connection unless the client reads what was written."""
        super().pause_writing()
        self.unread = self.loop.call_later(self.timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.cancel()

    def shutdown(self) -> None:
        """Has an answer under way say that it is the last one."""
        if self.cycle:
            headers = [*self.cycle.default_headers, h11_impl.CLOSE_HEADER]
            self.cycle.default_headers = headers
        super().shutdown()

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def order(self):
        """Returns what is least for the first one to close."""
        is_whole = self.is_busy and not self.cycle.more_body
        return is_whole, self.head.when()


class Server(uvicorn.Server):
    """A server that `run(sockets)` runs until a signal or `should_exit`.

    A signal lets it finish the requests under way; after a second one, if that
    is SIGINT, they are refused.

    Args:
        app: The application.
        limits: `keep_alive_s`, and `timeout_s` for the requests under way at
            the end and some more seconds.

    Attributes:
        stopped: `signals.Stopped` of the first signal.
    """

    stopped: signals.Stopped

    def __init__(self, app: Any, limits: limits_lib.Limits):
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] % 2**63  # -1: any
        _Connection.most = max(1, min(_MOST_CONNECTIONS, files - _OTHER_FILES))
        _Connection.timeout_s = limits.timeout_s
        config = uvicorn.Config(
            app,
            # Whatever else is installed.
            http=_Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=limits.keep_alive_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=round(limits.timeout_s + _GRACE_S),
        )
        super().__init__(config)

    def capture_signals(self) -> Any:
        """Handles every signal that ends a command; uvicorn handles two."""
        return signals.caught(self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Notes a signal; a second SIGINT has the requests refused."""
        del frame
        if not self.should_exit:
            self.stopped = signals.Stopped(sig)
        elif sig == signal.SIGINT:
            for task in list(self.server_state.tasks):
                task.get_loop().call_soon_threadsafe(task.cancel)
        self.should_exit = True

    async def shutdown(
        self, sockets: list[socket.socket] | None = None
    ) -> None:
        """Stops listening, and waits for the requests under way."""
        tasks = self.server_state.tasks
        _log.info("Stopping: %d requests are under way.", len(tasks))
        await super().shutdown(sockets)
