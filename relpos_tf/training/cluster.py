"""The hosts of a job, as TF_CONFIG lists them. No TensorFlow."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping

from relpos_tf import errors

_JOBS = ("chief", "worker")  # in the order of TensorFlow's replicas
_MAX_DIGITS = 10  # of a port, or an index
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The hosts of a job, and which of them this one is.

    Attributes:
        addresses: tuple of str, HOST:PORT of each host. The first is the
            chief, which alone writes the run's directory.
        index: int. This host's place in `addresses`.
        first_worker: int. Number of hosts before the job "worker".
    """

    addresses: tuple[str, ...]
    index: int
    first_worker: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this host is the chief."""
        return self.index == 0

    def name(self, index: int) -> str:
        """Returns a host's name in messages: "host 1 (ADDRESS)"."""
        title = "the chief" if index == 0 else f"host {index}"
        return f"{title} ({self.addresses[index]})"

    def failed_host(self, report: str) -> str:
        """Returns the name of the host that TensorFlow reports, or ""."""
        match = re.search(
            r"/job:(worker|chief)/(?:replica:0/)?task:(\d+)",
            report.rpartition("aborted by")[2],
        )
        if match is None:
            return ""
        offset = self.first_worker if match[1] == "worker" else 0
        index = offset + int(match[2])
        is_other = index != self.index and index < len(self.addresses)
        return self.name(index) if is_other else ""


def from_environment(
    environment: Mapping[str, str] = os.environ,
) -> Cluster | None:
    """Reads TF_CONFIG.

    Args:
        environment: mapping of str to str.

    Returns:
        The cluster; None if TF_CONFIG is not set, or names one host.

    Raises:
        UserError: TF_CONFIG is invalid.
    """
    config = environment.get("TF_CONFIG", "").strip()
    if not config:
        return None
    try:
        value = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"it is not JSON ({error})", config) from error
    for name in ("cluster", "task"):
        if not isinstance(value, dict) or not isinstance(value.get(name), dict):
            raise _invalid(f'"{name}" is missing', config)
    jobs, task = value["cluster"], value["task"]
    if not jobs or not set(jobs) <= set(_JOBS):
        raise _invalid(
            '"cluster" has jobs besides "worker" and "chief"', config
        )
    if task.get("type") not in list(jobs):
        raise _invalid('"type" of "task" is no job of "cluster"', config)
    for name, addresses in jobs.items():
        if not isinstance(addresses, list) or not addresses:
            raise _invalid(f'"{name}" has no list of hosts', config)
    if len(jobs.get("chief", ())) > 1:
        raise _invalid('"chief" has more than one host', config)
    number, index = len(jobs[task["type"]]), str(task.get("index"))
    # Python refuses to read a number of thousands of digits.
    is_number = index.isdecimal() and len(index) < _MAX_DIGITS
    if not is_number or int(index) >= number:
        raise _invalid(f'"index" is not from 0 to {number - 1}', config)
    addresses = tuple(a for job in _JOBS for a in jobs.get(job, ()))
    for address in addresses:
        if not isinstance(address, str) or not _is_address(address):
            raise _invalid(f"{address!r} is not HOST:PORT", config)
    if len(set(addresses)) < len(addresses):
        raise _invalid("two hosts have the same address", config)
    if len(addresses) == 1:
        return None
    first_worker = len(jobs.get("chief", ()))
    offset = first_worker if task["type"] == "worker" else 0
    return Cluster(addresses, offset + int(index), first_worker)


def split(address: str) -> tuple[str, int]:
    """Returns the host and the port of an address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def capitalized(name: str) -> str:
    """Returns a host's name for the beginning of a sentence."""
    return name[:1].upper() + name[1:]


def _invalid(reason: str, received: str) -> errors.UserError:
    return errors.UserError(
        f"TF_CONFIG: {reason}. Expected for example {_EXAMPLE}. "
        f"Received: {' '.join(received.split())}."
    )


def _is_address(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    is_number = port.isdecimal() and len(port) < _MAX_DIGITS
    return bool(host and colon and is_number and 0 < int(port) < 1 << 16)
