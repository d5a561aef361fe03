"""Where the hosts of a job meet before they train. No TensorFlow.

TensorFlow waits for other hosts for an hour, without a word, and hears no
Ctrl-C meanwhile. So they meet here first, on the same ports, where a host that
is missing has a name. A message is one line of JSON: from each host to the
chief what it was started with, from the chief to each, once all have come, why
not to go on, or nothing.
"""

import contextlib
import errno
import json
import logging
import os
import select
import socket
import time
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from relpos_tf import cluster as cluster_lib
from relpos_tf import errors

_log = logging.getLogger("relpos_tf")
# Seconds to wait for the other hosts, which may come when their machines are
# free.
PATIENCE = 600.0
PATIENCE_VARIABLE = "RELPOS_TF_HOSTS_TIMEOUT"
_MOST_BYTES = 1 << 20  # of a message
_SECONDS = 5.0  # for a connection, and for a message once it has begun
_PAUSE = 0.3


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
    with _listening(cluster) as server:
        if cluster.is_chief:
            _gather(server, cluster, dict(started_with), deadline, patience)
        else:
            _report(cluster, dict(started_with), deadline, patience)


def _patience() -> float:
    text = os.environ.get(PATIENCE_VARIABLE, "").strip()
    try:
        return float(text) if text else PATIENCE
    except ValueError as error:
        raise errors.UserError(
            f"{PATIENCE_VARIABLE} must be a number of seconds. "
            f"Received: {text!r}."
        ) from error


@contextlib.contextmanager
def _listening(cluster: cluster_lib.Cluster) -> Iterator[socket.socket]:
    """Listens on this host's port, which TensorFlow gets afterwards."""
    address = cluster.addresses[cluster.index]
    _, port = cluster_lib.split(address)
    dual = socket.has_dualstack_ipv6()
    try:
        server = socket.create_server(
            ("", port),
            family=socket.AF_INET6 if dual else socket.AF_INET,
            dualstack_ipv6=dual,
            backlog=len(cluster.addresses) + 5,
        )
    except OSError as error:
        reason = f"cannot be opened ({error.strerror})"
        if error.errno == errno.EADDRINUSE:
            reason = "is in use, perhaps by another training"
        raise errors.UserError(
            f"Port {port} of this host, {cluster.name(cluster.index)} in "
            f"TF_CONFIG, {reason}. Stop what uses it, or name another port."
        ) from error
    with server:
        yield server


def _gather(server, cluster, started_with, deadline, patience) -> None:
    """The chief's part: hears every host, then tells all the same."""
    everybody = set(range(1, len(cluster.addresses)))
    connections: dict[int, socket.socket] = {}
    told, problem = False, ""
    server.settimeout(_PAUSE)
    with contextlib.ExitStack() as stack:
        while not problem and (missing := everybody - connections.keys()):
            names = ", ".join(cluster.name(i) for i in sorted(missing))
            left = deadline - time.monotonic()
            if left < 0:
                problem = f"After {patience:.0f} seconds without {names}."
                break
            if left < patience - _SECONDS and not told:
                told = True
                _log.info("Waiting for %s.", names)
            try:
                connection = stack.enter_context(server.accept()[0])
                index, theirs = _arrival(connection, cluster)
            except (OSError, ValueError, RecursionError):
                pass  # Nobody yet, or somebody who is not of the job.
            else:
                connections[index] = connection
                problem = _difference(cluster, index, started_with, theirs)
                problem = problem or _unreachable(cluster, index)
            # Who has left again will come anew.
            connections = {
                i: c for i, c in connections.items() if not _is_closed(c)
            }
        for connection in connections.values():
            with contextlib.suppress(OSError):
                _send(connection, {"problem": problem})
    if problem:
        raise errors.UserError(problem)


def _arrival(connection, cluster) -> tuple[int, dict[str, str]]:
    """Returns who has come, started with what; ValueError for a stranger."""
    message = _receive(connection, time.monotonic() + _SECONDS)
    index, theirs = message.get("index"), message.get("started_with")
    if index not in range(1, len(cluster.addresses)):
        raise ValueError("It is not one of us.")
    if not isinstance(theirs, dict):
        raise ValueError("It does not say what it was started with.")
    return index, theirs


def _report(cluster, started_with, deadline, patience) -> None:
    """The part of every other host: tells the chief, and waits for word."""
    message = {"index": cluster.index, "started_with": started_with}
    told = time.monotonic() + _SECONDS
    reason = "no answer"
    while (now := time.monotonic()) <= deadline:
        if told is not None and now > told:
            told = None
            _log.info("Waiting for %s (%s).", cluster.name(0), reason)
        try:
            with socket.create_connection(
                cluster_lib.split(cluster.addresses[0]), timeout=_SECONDS
            ) as connection:
                _send(connection, message)
                # The chief gives up before that, and says why.
                answer = _receive(connection, now + patience + 2 * _SECONDS)
        except (OSError, ValueError) as error:
            # It has not started yet, or started anew.
            reason = getattr(error, "strerror", None) or str(error)
            time.sleep(_PAUSE)
            continue
        if answer.get("problem"):
            raise errors.UserError(str(answer["problem"]))
        return
    raise errors.UserError(
        f"After {patience:.0f} seconds without {cluster.name(0)}: {reason}."
    )


def _difference(cluster, index, ours, theirs) -> str:
    """Says what a host was started with that the chief was not, or ""."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return (
                "All hosts must be started in the same way. Of "
                f"{cluster.name(index)}, {name} is {theirs.get(name)!r}; of "
                f"{cluster.name(0)}, {ours.get(name)!r}."
            )
    return ""


def _unreachable(cluster, index) -> str:
    """Says that the chief cannot connect to a host that has come, or ""."""
    try:
        # It listens, and need not answer.
        address = cluster_lib.split(cluster.addresses[index])
        socket.create_connection(address, timeout=_SECONDS).close()
    except OSError as error:
        return (
            f"{cluster.name(0)} cannot connect to {cluster.name(index)}, "
            f"which has come: {error.strerror or error}. Hosts must reach each "
            "other's ports."
        ).replace("the", "The", 1)
    return ""


def _is_closed(connection: socket.socket) -> bool:
    """Says so of a connection on which nothing more is expected."""
    return bool(select.select([connection], [], [], 0)[0])


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.settimeout(_SECONDS)
    connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """Returns a message; ValueError or OSError where there is none."""
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        received = connection.recv(1 << 16)
        data += received
        if not received or len(data) > _MOST_BYTES:
            raise ValueError("the connection was closed")
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("It is not a message.")
    return message
