"""The hosts of a job, as TF_CONFIG lists them, and their rendezvous.

TensorFlow waits an hour for a missing host, says nothing, and does not react
to Ctrl-C. So all hosts connect to the chief first, at the port that TensorFlow
uses afterwards, and missing ones are named. A host sends its index on a line;
once all are there, the chief answers each of them with a line.
"""

import contextlib
import dataclasses
import json
import logging
import os
import re
import socket
import time

import tensorflow as tf

from relpos_tf import errors

_log = logging.getLogger("relpos_tf")
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
TIMEOUT_VARIABLE = "RELPOS_TF_HOSTS_TIMEOUT"
# A part of a name has up to 63 letters; an IPv6 address stands in brackets.
_ADDRESS = re.compile(
    r"(\[[\w:.%]+\]|[\w-]{1,63}(?:\.[\w-]{1,63})*\.?):(\d{1,5})", re.ASCII
)
_MESSAGE_SECONDS, _POLL_SECONDS = 5.0, 0.2
_START = b"start\n"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The hosts of a job, and which of them this one is.

    Attributes:
        addresses: tuple of str, HOST:PORT of each host. The first is the
            chief, which alone writes the run's directory.
        index: int. This host's place in `addresses`.
    """

    addresses: tuple[str, ...]
    index: int

    def name(self, index: int) -> str:
        """Returns a host's name in messages: "host 1 (ADDRESS)"."""
        title = "the chief" if index == 0 else f"host {index}"
        return f"{title} ({self.addresses[index]})"


def from_environment() -> Cluster | None:
    """Reads TF_CONFIG.

    Returns:
        The cluster; None if TF_CONFIG is not set, or names one host or none.

    Raises:
        UserError: TF_CONFIG is not valid, or does not name this host.
    """
    if not (config := os.environ.get("TF_CONFIG", "").strip()):
        return None
    try:
        if json.loads(config).get("cluster", {}) == {}:
            return None
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        chief, workers = jobs.get("chief", []), jobs.get("worker", [])
        offset = {"chief": 0, "worker": len(chief)}[resolver.task_type]
        range(len(jobs[resolver.task_type])).index(resolver.task_id)  # is there
        hosts = [split(address) for address in [*chief, *workers]]
        if len({*hosts}) < len(hosts):
            raise ValueError("an address comes twice")
    except Exception as error:  # A mistake shows as errors of many classes.
        raise errors.UserError(
            f"TF_CONFIG is not valid ({error!r}). Expected for example "
            f"{_EXAMPLE}. Received: {' '.join(config.split())}."
        ) from error
    if len(chief) + len(workers) == 1:
        return None
    return Cluster((*chief, *workers), offset + resolver.task_id)


def split(address: str) -> tuple[str, int]:
    """Returns the host and the port of an address.

    Raises:
        ValueError: it is not HOST:PORT.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or not 0 < int(match[2]) < 2**16:
        raise ValueError(f"{address} is not HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def await_hosts(cluster: Cluster) -> None:
    """Returns once all hosts are here; call it on each of them.

    The environment variable RELPOS_TF_HOSTS_TIMEOUT says for how many seconds
    they wait for each other; default: 600.

    Args:
        cluster: `cluster.Cluster`.

    Raises:
        UserError: a host did not come, or the chief's port is in use.
    """
    # The machines of the other hosts may not be free yet.
    value = os.environ.get(TIMEOUT_VARIABLE) or "600"
    if not re.fullmatch(r"\d{1,7}(\.\d+)?", value, re.ASCII):
        raise errors.UserError(
            f"{TIMEOUT_VARIABLE} must be a number of seconds, up to 9999999. "
            f"Received: {value!r}."
        )
    (_report if cluster.index else _gather)(cluster, float(value))


def _gather(cluster: Cluster, timeout: float) -> None:
    """Waits until every host is connected, then answers all of them."""
    _log.info("Waiting for the other hosts.")
    deadline = time.monotonic() + timeout
    connections: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listen(cluster))
        server.settimeout(_POLL_SECONDS)
        while missing := [
            cluster.name(index)
            for index in range(1, len(cluster.addresses))
            if index not in connections or not _is_open(connections[index])
        ]:
            if time.monotonic() > deadline:
                raise errors.UserError(
                    f"Waited {timeout:g} s for {', '.join(missing)}."
                )
            # Others may connect to the port, and send anything or nothing.
            with contextlib.suppress(OSError, ValueError):
                connection, _ = server.accept()
                stack.enter_context(connection)
                connection.settimeout(_MESSAGE_SECONDS)
                connections[int(connection.recv(10))] = connection
        for connection in connections.values():
            connection.sendall(_START)


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except OSError as error:
        return isinstance(error, BlockingIOError)


def _report(cluster: Cluster, timeout: float) -> None:
    """Connects to the chief, again and again, until it answers."""
    deadline, reason = time.monotonic() + timeout, "no answer"
    address = split(cluster.addresses[0])
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, _MESSAGE_SECONDS) as chief:
                chief.sendall(f"{cluster.index}\n".encode())
                chief.settimeout(timeout)
                if chief.recv(10) == _START:
                    return
        except OSError as error:  # It has not started, or has ended.
            reason = error.strerror or str(error)
        time.sleep(_POLL_SECONDS)
    raise errors.UserError(
        f"Waited {timeout:g} s for {cluster.name(0)}: {reason}."
    )


def _listen(cluster: Cluster) -> socket.socket:
    """Listens on the chief's port, which TensorFlow gets afterwards."""
    _, port = split(cluster.addresses[0])
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, dualstack_ipv6=dual
        )
    except OSError as error:
        raise errors.UserError(
            f"Port {port} of {cluster.name(0)} in TF_CONFIG, this host, cannot "
            f"be opened ({error.strerror}). Stop the training that uses it, or "
            "name another port."
        ) from error
