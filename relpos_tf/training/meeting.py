"""Where the hosts of a job meet before they train. No TensorFlow.

TensorFlow waits for other hosts for an hour, without a word, and hears no
Ctrl-C meanwhile. So they meet here first, on the same ports, where a host that
is missing has a name. A message is one line of JSON: from each host to the
chief what it was started with, from the chief to each, once all have come, why
not to go on, or nothing.

Nothing here is secret, and nobody is asked for a password. But whoever says
that it is host 1 must be found at host 1's address in TF_CONFIG: the chief
connects to that address and asks whether the message was its own. So a
stranger can neither stand in for a host nor end the job. Bytes, seconds and
the number of connections are bounded, and all are heard at the same time.
"""

import contextlib
import errno
import hmac
import ipaddress
import json
import logging
import math
import os
import queue
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.training import cluster as cluster_lib
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")
# Seconds to wait for the other hosts, which may come when their machines are
# free.
PATIENCE = 600.0
PATIENCE_VARIABLE = "RELPOS_TF_HOSTS_TIMEOUT"
_MOST_PATIENCE = 1e6
_MOST_BYTES = 1 << 16  # of a message
_MOST_CONNECTIONS = 64  # of those who have not shown yet that they are hosts
_MOST_REFUSALS = 10  # that are reported
_MOST_CHARACTERS = 1000  # of another host's words that are shown
_SECONDS = 5.0  # for a connection, and for a message once it has begun
_PAUSE = 0.3


class _Arrival(NamedTuple):
    """A host that has come, found at its own address."""

    index: int
    started_with: dict[str, str]
    connection: socket.socket


def meet(
    cluster: cluster_lib.Cluster,
    started_with: Mapping[str, str],
    patience: float | None = None,
) -> None:
    """Returns once all hosts have come and agree; call it on each of them.

    Args:
        cluster: `cluster.Cluster`.
        started_with: What must be the same on all hosts, by name.
        patience: float. Seconds to wait for the others. None: what the
            environment variable RELPOS_TF_HOSTS_TIMEOUT says, or else 600.

    Raises:
        UserError: a host did not come or was started with something else, or
            this host's port is in use.
    """
    if patience is None:
        patience = _patience()
    deadline = time.monotonic() + patience
    part = _Chief if cluster.is_chief else _Host
    part(cluster, dict(started_with)).meet(deadline, patience)


def _patience() -> float:
    value = os.environ.get(PATIENCE_VARIABLE, "").strip()
    try:
        seconds = float(value) if value else PATIENCE
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MOST_PATIENCE:
        raise errors.UserError(
            f"{PATIENCE_VARIABLE} must be a number of seconds, above 0 and at "
            f"most {_MOST_PATIENCE:.0f}. Received: {value!r}."
        )
    return seconds


class _Door:
    """Hears many connections at the same time, each for a short time.

    Whoever says nothing, or nothing that makes sense, holds nobody up. Where
    too many wait, the one that has waited longest has to go.

    Args:
        cluster: `cluster.Cluster`. Listens at this host's address.
        hear: function of a connection and its message, called in a thread.
            Returns whether the connection stays open; raises ValueError to
            refuse it.
    """

    def __init__(
        self,
        cluster: cluster_lib.Cluster,
        hear: Callable[[socket.socket, dict[str, Any]], bool],
    ):
        self._hear = hear
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # the oldest first
        self._talking = 0
        self._refusals: set[str] = set()
        self._is_over = threading.Event()
        self._servers = _listen(cluster)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "_Door":
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        """Stops, so that TensorFlow can have the port."""
        self._is_over.set()
        self._thread.join()
        for server in self._servers:
            server.close()
        with self._lock:
            for connection in self._waiting:
                _shut(connection)

    def _serve(self) -> None:
        while not self._is_over.is_set():
            for server in select.select(self._servers, [], [], _PAUSE)[0]:
                with contextlib.suppress(OSError):
                    self._admit(*server.accept())

    def _admit(self, connection, place) -> None:
        with self._lock:
            if len(self._waiting) >= _MOST_CONNECTIONS:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                _shut(oldest)
            # What was shut may still be on its way out.
            if self._talking >= 2 * _MOST_CONNECTIONS:
                connection.close()
                return
            self._talking += 1
            self._waiting[connection] = None
        arguments = connection, str(place[0])
        threading.Thread(target=self._talk, args=arguments, daemon=True).start()

    def _talk(self, connection, place) -> None:
        stays = False
        try:
            message = _receive(connection, time.monotonic() + _SECONDS)
            stays = self._hear(connection, message)
        except _Silence:
            pass  # Somebody who looks whether there is anybody.
        except (OSError, ValueError, RecursionError) as error:
            self._refuse(place, error)
        finally:
            with self._lock:
                self._waiting.pop(connection, None)
                self._talking -= 1
            if not stays:
                connection.close()

    def _refuse(self, place: str, error: Exception) -> None:
        """Reports a stranger in one line; many of them in a few."""
        line = f"Refused a connection from {place}: {_shown(error)}."
        with self._lock:
            is_new = line not in self._refusals
            if not is_new or len(self._refusals) > _MOST_REFUSALS:
                return
            self._refusals.add(line)
            if len(self._refusals) > _MOST_REFUSALS:
                line = "Refused more connections; the rest is not reported."
        _log.warning("%s", line)


class _Chief:
    """The chief's part: hears every host, then tells all the same."""

    def __init__(self, cluster, started_with):
        self._cluster = cluster
        self._started_with = started_with
        self._arrivals: queue.SimpleQueue[_Arrival] = queue.SimpleQueue()

    def meet(self, deadline: float, patience: float) -> None:
        come: dict[int, _Arrival] = {}
        try:
            with _Door(self._cluster, self._hear):
                problem = self._gather(come, deadline, patience)
                for arrival in come.values():
                    with contextlib.suppress(OSError):
                        _send(arrival.connection, {"problem": problem})
        finally:
            for arrival in come.values():
                arrival.connection.close()
            while not self._arrivals.empty():
                self._arrivals.get().connection.close()
        if problem:
            raise errors.UserError(problem)

    def _gather(self, come, deadline, patience) -> str:
        """Waits until all have come; returns why not to go on, or ""."""
        cluster, told = self._cluster, False
        everybody = set(range(1, len(cluster.addresses)))
        while missing := everybody - come.keys():
            names = ", ".join(cluster.name(i) for i in sorted(missing))
            left = deadline - time.monotonic()
            if left < 0:
                return f"After {patience:.0f} seconds without {names}."
            if left < patience - _SECONDS and not told:
                told = True
                _log.info("Waiting for %s.", names)
            with contextlib.suppress(queue.Empty):
                arrival = self._arrivals.get(timeout=_PAUSE)
                if arrival.index in come:
                    come[arrival.index].connection.close()
                come[arrival.index] = arrival
                if problem := self._difference(arrival):
                    return problem
            # Who has left again will come anew.
            for index, arrival in list(come.items()):
                if _is_closed(arrival.connection):
                    come.pop(index).connection.close()
        return ""

    def _hear(self, connection, message) -> bool:
        """Takes in a host that is found where TF_CONFIG says it is."""
        index, theirs = message.get("index"), message.get("started_with")
        token, number = message.get("token"), len(self._cluster.addresses)
        if type(index) is not int or not 0 < index < number:
            raise ValueError("it is no host of this job")
        if not isinstance(theirs, dict) or not all(
            isinstance(value, str) for value in theirs.values()
        ):
            raise ValueError("it does not say what it was started with")
        if not isinstance(token, str):
            raise ValueError("its message has no token")
        if reason := self._why_not(index, token):
            with contextlib.suppress(OSError):
                _send(connection, {"again": reason})
            raise ValueError(reason)
        self._arrivals.put(_Arrival(index, theirs, connection))
        return True

    def _why_not(self, index: int, token: str) -> str:
        """Asks a host, at its own address, if a message was its own."""
        name = self._cluster.name(index)
        try:
            with _connected(self._cluster.addresses[index]) as connection:
                _send(connection, {"token": token})
                deadline = time.monotonic() + _SECONDS
                answer = _receive(connection, deadline)
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return (
                f"{self._cluster.name(0)} cannot connect to {name}, which "
                f"seems to have come: {reason}. Hosts must reach each other's "
                "ports"
            )
        if answer.get("is_mine") is not True:
            return f"it says that it is {name}, which is somebody else"
        return ""

    def _difference(self, arrival: _Arrival) -> str:
        """Says what a host was started with that the chief was not, or ""."""
        ours, theirs = self._started_with, arrival.started_with
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                return (
                    "All hosts must be started in the same way. Of "
                    f"{self._cluster.name(arrival.index)}, {_shown(name)} is "
                    f"{_shown(repr(theirs.get(name)))}; of "
                    f"{self._cluster.name(0)}, {ours.get(name)!r}."
                )
        return ""


class _Host:
    """The part of every other host: tells the chief, and waits for word."""

    def __init__(self, cluster, started_with):
        self._cluster = cluster
        self._token = secrets.token_hex(16)
        self._message = {
            "index": cluster.index,
            "started_with": started_with,
            "token": self._token,
        }

    def meet(self, deadline: float, patience: float) -> None:
        chief = self._cluster.name(0)
        told = time.monotonic() + _SECONDS
        reason = "no answer"
        with _Door(self._cluster, self._hear):
            while (now := time.monotonic()) <= deadline:
                if told is not None and now > told:
                    told = None
                    _log.info("Waiting for %s (%s).", chief, reason)
                try:
                    # The chief gives up before that, and says why.
                    answer = self._ask_chief(now + patience + 2 * _SECONDS)
                except (OSError, ValueError, RecursionError) as error:
                    # It has not started yet, or started anew.
                    reason = getattr(error, "strerror", None) or str(error)
                    time.sleep(_PAUSE)
                    continue
                if problem := answer.get("problem"):
                    raise errors.UserError(_shown(problem))
                return
        raise errors.UserError(
            f"After {patience:.0f} seconds without {chief}: {reason}."
        )

    def _ask_chief(self, deadline: float) -> dict[str, Any]:
        """Returns the chief's last word; ValueError for any other."""
        with _connected(self._cluster.addresses[0]) as connection:
            _send(connection, self._message)
            answer = _receive(connection, deadline)
        if "again" in answer:
            raise ValueError(_shown(answer["again"]))
        if "problem" not in answer:
            raise ValueError("what it answers is no message of this job's")
        return answer

    def _hear(self, connection, message) -> bool:
        """Tells the chief if a message was this host's own."""
        token = message.get("token")
        if not isinstance(token, str):
            raise ValueError("it is not the chief of this job")
        is_mine = hmac.compare_digest(token.encode(), self._token.encode())
        _send(connection, {"is_mine": is_mine})
        return False


def _listen(cluster: cluster_lib.Cluster) -> list[socket.socket]:
    """Listens on this host's port, which TensorFlow gets afterwards.

    Nowhere but at its address in TF_CONFIG, if that is one of this machine's.
    """
    host, port = cluster_lib.split(cluster.addresses[cluster.index])
    servers: list[socket.socket] = []
    try:
        for family, place in _places(host, port):
            servers.append(
                socket.create_server(place, family=family, backlog=128)
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
            f"TF_CONFIG, {reason}. Stop what uses it, or name another port."
        ) from error
    return servers


def _places(host: str, port: int) -> list[tuple[int, tuple]]:
    """Returns the addresses that a name of this machine's has here.

    Returns:
        Pairs of a family and what to bind to. None where others must know the
        machine by another address than it does itself: behind a translation
        of addresses, or where /etc/hosts gives its name to the loopback.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    places = dict.fromkeys((family, place) for family, *_, place in found)
    own = [one for one in places if _is_own(*one)]
    is_known_to_others = host == "localhost" or not all(
        ipaddress.ip_address(place[0].partition("%")[0]).is_loopback
        for _, place in own
    )
    if own and (is_known_to_others or _is_number(host)):
        return own
    _log.warning(
        "%s, this host in TF_CONFIG, is %s: listening on all of its addresses "
        "until all hosts have come.",
        host,
        "the loopback here" if own else "no address of this machine",
    )
    return []


def _is_own(family: int, place: tuple) -> bool:
    """Says whether an address is one of this machine's."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.bind((place[0], 0, *place[2:]))
    except OSError:
        return False
    return True


def _is_number(host: str) -> bool:
    """Says whether a host is named by its address."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _shown(value: object) -> str:
    """Returns what another host said as a line that can be shown."""
    line = str(value)[:_MOST_CHARACTERS].replace("\n", "\\n")
    return terminal.printable(line)


def _connected(address: str) -> socket.socket:
    return socket.create_connection(
        cluster_lib.split(address), timeout=_SECONDS
    )


def _is_closed(connection: socket.socket) -> bool:
    """Says so of a connection on which nothing more is expected."""
    return bool(select.select([connection], [], [], 0)[0])


def _shut(connection: socket.socket) -> None:
    """Ends a connection that another thread waits on, and closes."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.settimeout(_SECONDS)
    connection.sendall(json.dumps(message).encode() + b"\n")


class _Silence(ValueError):
    """A connection was closed before anything was said."""


def _receive(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """Returns a message; ValueError or OSError where there is none."""
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        received = connection.recv(1 << 16)
        data += received
        if not data:
            raise _Silence("the connection was closed")
        if not received:
            raise ValueError("the connection was closed")
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it sent more than {_MOST_BYTES} bytes")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("what it sent is no message") from error
    if not isinstance(message, dict):
        raise ValueError("what it sent is no message")
    return message
