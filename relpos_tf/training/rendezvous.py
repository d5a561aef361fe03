"""The rendezvous of a job's hosts, before TensorFlow connects them.

TensorFlow waits an hour for a missing host, says nothing, and does not react
to Ctrl-C. So hosts connect here first, on the same ports, and a missing host
is named. A message is one line of JSON. Every host sends the chief its index,
its launch configuration and a random token. Once all have registered, the
chief answers each of them: with a problem, or with "" to start.

Nothing here is secret, and no password is asked for. But the chief verifies an
index: it connects to that host's address in TF_CONFIG and asks whether the
token is the host's own. So a stranger can neither replace a host nor end the
job. The size of a message, its time and the number of connections are bounded.
"""

import asyncio
import contextlib
import errno
import functools
import hmac
import ipaddress
import json
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf.training import cluster as cluster_lib
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")
# Seconds to wait for the other hosts; their machines may not be free yet.
DEFAULT_TIMEOUT = 600.0
TIMEOUT_VARIABLE = "RELPOS_TF_HOSTS_TIMEOUT"
_MAX_TIMEOUT = 1e6
_MAX_BYTES = 1 << 16  # of a message
_MAX_CONNECTIONS = 64  # that have not been verified
_MAX_REFUSALS = 10  # that are logged
_MAX_CHARACTERS = 1000  # of another host's text that are shown
_MESSAGE_SECONDS = 5.0  # to connect, and to send a message
_POLL_SECONDS = 0.1
# What a connection to another host may raise.
_FAILURES = (OSError, ValueError, RecursionError)


def await_hosts(
    cluster: cluster_lib.Cluster,
    launch_config: Mapping[str, str],
    timeout: float | None = None,
) -> None:
    """Returns once all hosts are here and agree; call it on each of them.

    Args:
        cluster: `cluster.Cluster`.
        launch_config: Values by name that must be equal on all hosts.
        timeout: float. Seconds to wait for the others. None: the environment
            variable RELPOS_TF_HOSTS_TIMEOUT, or else 600.

    Raises:
        UserError: a host did not connect or has another configuration, or
            this host's port is in use.
    """
    if timeout is None:
        timeout = _timeout()
    role = _Coordinator if cluster.is_chief else _Worker
    asyncio.run(role(cluster, dict(launch_config)).await_hosts(timeout))


def _timeout() -> float:
    value = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    try:
        seconds = float(value) if value else DEFAULT_TIMEOUT
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MAX_TIMEOUT:
        raise errors.UserError(
            f"{TIMEOUT_VARIABLE} must be a number of seconds, above 0 and at "
            f"most {_MAX_TIMEOUT:.0f}. Received: {value!r}."
        )
    return seconds


class _Coordinator:
    """The chief's part: registers every host, then answers all of them."""

    def __init__(self, cluster, launch_config):
        self._cluster = cluster
        self._launch_config = launch_config
        # The open connection of each registered host, by its index.
        self._streams: dict[
            int, tuple[asyncio.StreamReader, asyncio.StreamWriter]
        ] = {}
        self._problem = ""

    async def await_hosts(self, timeout: float) -> None:
        try:
            async with _Listener(self._cluster, self._register):
                problem = await self._gather(timeout)
                for _, writer in list(self._streams.values()):
                    with contextlib.suppress(OSError):
                        await _send(writer, {"problem": problem})
        finally:
            for _, writer in self._streams.values():
                writer.close()
        if problem:
            raise errors.UserError(problem)

    async def _gather(self, timeout: float) -> str:
        """Waits until every host is registered; returns a problem, or ""."""
        hosts = set(range(1, len(self._cluster.addresses)))
        started, is_reported = time.monotonic(), False
        while True:
            self._drop_disconnected()
            missing = sorted(hosts - self._streams.keys())
            if self._problem or not missing:
                return self._problem
            names = ", ".join(map(self._cluster.name, missing))
            seconds = time.monotonic() - started
            if seconds > timeout:
                names = cluster_lib.capitalized(names)
                return f"{names} did not connect within {timeout:g} s."
            if seconds > _MESSAGE_SECONDS and not is_reported:
                is_reported = True
                _log.info("Waiting for %s.", names)
            await asyncio.sleep(_POLL_SECONDS)

    def _drop_disconnected(self) -> None:
        """Removes hosts that have disconnected; they may register again."""
        for index, (reader, writer) in list(self._streams.items()):
            if reader.at_eof():
                writer.close()
                del self._streams[index]

    async def _register(self, reader, writer, message) -> bool:
        """Registers a host that answers at its address in TF_CONFIG."""
        index, token = message.get("index"), message.get("token")
        config = message.get("launch_config")
        if type(index) is not int or not (
            0 < index < len(self._cluster.addresses)
        ):
            raise ValueError("its index is none of this job's hosts")
        if not isinstance(config, dict) or not all(
            isinstance(value, str) for value in config.values()
        ):
            raise ValueError("its message has no launch configuration")
        if not isinstance(token, str):
            raise ValueError("its message has no token")
        if reason := await self._verify(index, token):
            with contextlib.suppress(OSError):
                await _send(writer, {"refused": reason})
            raise ValueError(reason)
        if index in self._streams:
            self._streams[index][1].close()
        self._streams[index] = reader, writer
        self._problem = self._problem or self._mismatch(index, config)
        return True

    async def _verify(self, index: int, token: str) -> str:
        """Asks a host at its address if a token is its own; "" if it is."""
        name = self._cluster.name(index)
        try:
            answer = await _request(
                self._cluster.addresses[index], {"token": token}
            )
        except _FAILURES as error:
            return (
                f"{self._cluster.name(0)} cannot connect to {name}, from which "
                f"it received a message: {_reason(error)}. Hosts must reach "
                "each other's ports"
            )
        if answer.get("is_own") is not True:
            return f"it claims to be {name}, which did not send this message"
        return ""

    def _mismatch(self, index: int, config: Mapping[str, str]) -> str:
        """Names a value that differs between a host and the chief, or ""."""
        own = self._launch_config
        for name in sorted(own.keys() | config.keys()):
            if own.get(name) != config.get(name):
                return (
                    "All hosts must be started in the same way. On "
                    f"{self._cluster.name(index)}, {_printable(name)} is "
                    f"{_printable(repr(config.get(name)))}; on "
                    f"{self._cluster.name(0)}, {own.get(name)!r}."
                )
        return ""


class _Worker:
    """The part of every other host: registers, and waits for the answer."""

    def __init__(self, cluster, launch_config):
        self._cluster = cluster
        self._token = secrets.token_hex(16)
        self._message = {
            "index": cluster.index,
            "launch_config": launch_config,
            "token": self._token,
        }

    async def await_hosts(self, timeout: float) -> None:
        chief = self._cluster.name(0)
        started, is_reported, reason = time.monotonic(), False, "no answer"
        async with _Listener(self._cluster, self._confirm):
            while (seconds := time.monotonic() - started) <= timeout:
                if seconds > _MESSAGE_SECONDS and not is_reported:
                    is_reported = True
                    _log.info("Waiting for %s (%s).", chief, reason)
                try:
                    problem = await self._register(timeout)
                except _FAILURES as error:
                    # The chief has not started yet, or was started again.
                    reason = _reason(error)
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                if problem:
                    raise errors.UserError(problem)
                return
        raise errors.UserError(
            f"{cluster_lib.capitalized(chief)} did not answer within "
            f"{timeout:g} s: {reason}."
        )

    async def _register(self, timeout: float) -> str:
        """Returns the chief's problem, or ""; raises if it gave no answer."""
        answer = await _request(
            self._cluster.addresses[0],
            self._message,
            # The chief's own timeout ends first, and names a missing host.
            timeout + 2 * _MESSAGE_SECONDS,
        )
        if "refused" in answer:
            raise ValueError(_printable(answer["refused"]))
        if "problem" not in answer:
            raise ValueError("its answer is no message of this job")
        return answer["problem"] and _printable(answer["problem"])

    async def _confirm(self, reader, writer, message) -> bool:
        """Tells the chief whether a token is this host's own."""
        del reader
        token = message.get("token")
        if not isinstance(token, str):
            raise ValueError("it is not the chief of this job")
        is_own = hmac.compare_digest(token.encode(), self._token.encode())
        await _send(writer, {"is_own": is_own})
        return False


class _Listener:
    """Serves many connections at the same time, each for a short time.

    When too many are open, the oldest one is closed.

    Args:
        cluster: `cluster.Cluster`. Listens at this host's address.
        handle: coroutine function of a connection's reader and writer, and
            its message. Returns whether the connection stays open; raises
            ValueError to refuse it.
    """

    def __init__(
        self,
        cluster: cluster_lib.Cluster,
        handle: Callable[..., Awaitable[bool]],
    ):
        self._cluster = cluster
        self._handle = handle
        self._servers: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task, None] = {}  # the oldest first
        self._refusals: set[str] = set()

    async def __aenter__(self) -> None:
        for one in _listen(self._cluster):
            self._servers.append(
                await asyncio.start_server(
                    self._accept, sock=one, limit=_MAX_BYTES
                )
            )

    async def __aexit__(self, *error) -> None:
        """Stops, and frees the port for TensorFlow."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader, writer) -> None:
        if len(self._tasks) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(functools.partial(self._finish, writer))

    def _finish(self, writer, task) -> None:
        """Closes a connection, also of a task cancelled before it began."""
        self._tasks.pop(task, None)
        if task.cancelled() or not task.result():
            writer.close()

    async def _serve(self, reader, writer) -> bool:
        try:
            message = await _receive(reader)
            return await self._handle(reader, writer, message)
        except _EmptyConnectionError:
            pass  # as a scan for open ports makes it
        except _FAILURES as error:
            self._log_refusal(writer.get_extra_info("peername")[0], error)
        return False

    def _log_refusal(self, address: str, error: Exception) -> None:
        """Logs each refusal once, and only the first of many."""
        line = f"Refused a connection from {address}: {_printable(error)}."
        if line in self._refusals or len(self._refusals) > _MAX_REFUSALS:
            return
        self._refusals.add(line)
        if len(self._refusals) > _MAX_REFUSALS:
            line = "Refused more connections, which are not logged."
        _log.warning("%s", line)


def _listen(cluster: cluster_lib.Cluster) -> list[socket.socket]:
    """Listens on this host's port, which TensorFlow gets afterwards.

    Only at its address in TF_CONFIG, if this machine has that address.
    """
    host, port = cluster_lib.split(cluster.addresses[cluster.index])
    servers: list[socket.socket] = []
    try:
        for family, address in _local_addresses(host, port):
            servers.append(
                socket.create_server(address, family=family, backlog=128)
            )
        if not servers:
            dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if dual else socket.AF_INET
            servers.append(
                socket.create_server(
                    ("", port), family=family, dualstack_ipv6=dual, backlog=128
                )
            )
    except OSError as error:
        for server in servers:
            server.close()
        reason = f"cannot be opened ({error.strerror})"
        if error.errno == errno.EADDRINUSE:
            reason = "is in use, perhaps by another training"
        raise errors.UserError(
            f"Port {port} of this host, {cluster.name(cluster.index)} in "
            f"TF_CONFIG, {reason}. Stop that process, or name another port."
        ) from error
    return servers


def _local_addresses(host: str, port: int) -> list[tuple[int, tuple]]:
    """Returns the addresses of this machine that a name stands for.

    Returns:
        Pairs of a family and an address to bind to. Empty where other hosts
        must use an address that this machine does not know: behind address
        translation, or where /etc/hosts maps its name to the loopback.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        infos = []
    pairs = dict.fromkeys((family, address) for family, *_, address in infos)
    local = [pair for pair in pairs if _is_local(*pair)]
    is_loopback = all(
        ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        for _, address in local
    )
    is_meant = host == "localhost" or _is_ip_address(host)
    if local and (is_meant or not is_loopback):
        return local
    _log.warning(
        "%s, this host in TF_CONFIG, is %s: listening on all addresses of "
        "this machine until all hosts are connected.",
        host,
        "the loopback here" if local else "no address of this machine",
    )
    return []


def _is_local(family: int, address: tuple) -> bool:
    """Says whether an address is one of this machine's."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _printable(value: object) -> str:
    """Returns another host's text as one short line without controls."""
    line = str(value)[:_MAX_CHARACTERS].replace("\n", "\\n")
    return terminal.printable(line)


def _reason(error: Exception) -> str:
    """Returns the cause of a failed connection, without its address."""
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else _printable(error)


class _EmptyConnectionError(ValueError):
    """A connection was closed before anything was sent."""


async def _request(
    address: str, message: Mapping[str, Any], seconds: float | None = None
) -> dict[str, Any]:
    """Sends a message to a host and returns its answer."""
    host, port = cluster_lib.split(address)
    reader, writer = await _within(
        _MESSAGE_SECONDS, asyncio.open_connection(host, port, limit=_MAX_BYTES)
    )
    try:
        await _send(writer, message)
        return await _receive(reader, seconds)
    finally:
        writer.close()


async def _send(writer, message: Mapping[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await _within(_MESSAGE_SECONDS, writer.drain())


async def _receive(reader, seconds: float | None = None) -> dict[str, Any]:
    """Returns a message; raises ValueError or OSError if there is none."""
    try:
        line = await _within(
            seconds or _MESSAGE_SECONDS, reader.readuntil(b"\n")
        )
    except asyncio.IncompleteReadError as error:
        kind = ValueError if error.partial else _EmptyConnectionError
        raise kind("the connection was closed") from error
    except asyncio.LimitOverrunError as error:
        raise ValueError(f"it sent more than {_MAX_BYTES} bytes") from error
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("its message is not JSON") from error
    if not isinstance(message, dict):
        raise ValueError("its message is not a JSON object")
    return message


async def _within(seconds: float, awaitable: Awaitable) -> Any:
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except asyncio.TimeoutError as error:  # Python 3.10 has two of them.
        raise TimeoutError("timed out") from error
