"""Hosts that train together: their collective operations.

Every replica of every host makes the same updates, so hosts only need to agree
when to save, when to stop, and where to resume. One of them, the chief, writes
the run's directory; the others read it.

All methods but `explain_failures` are collective: every host calls them, in
the same order. With one host they return immediately.
"""

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import batches
from relpos_tf.training import cluster as cluster_lib

_log = logging.getLogger("relpos_tf")
# A network file system shows another host's file within a minute or so.
_FILE_TIMEOUT = 90.0
_POLL_SECONDS = 0.2
# Errors of collectives when a host has ended, was restarted, or fails itself.
_HOST_FAILURES = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


class Hosts:
    """The hosts that a strategy spans.

    Args:
        strategy: `tf.distribute.Strategy`.

    Attributes:
        strategy: the strategy.
        number: int. The number of hosts.
        index: int. This host's index; 0 is the chief.
        is_chief: bool. Whether this host writes the run's directory.
        name: str. This host's name in messages.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy = strategy
        several = isinstance(
            strategy, tf.distribute.MultiWorkerMirroredStrategy
        )
        cluster = cluster_lib.from_environment() if several else None
        self._cluster = cluster or cluster_lib.Cluster(("this host",), index=0)
        self.number = len(self._cluster.addresses)
        self.index = self._cluster.index
        self.is_chief = self.index == 0
        self.name = self._cluster.name(self.index)

    def any(self, *flags: bool) -> list[bool]:
        """Says of each flag whether it is set on any host."""
        return [bool(total) for total in self._sum(map(int, flags))]

    def from_chief(self, *values: int) -> list[int]:
        """Returns the chief's values, on every host."""
        return self._sum(int(v) if self.is_chief else 0 for v in values)

    def from_last(self, *values: int) -> list[int]:
        """Returns the last host's values, on every host."""
        is_last = self.index == self.number - 1
        return self._sum(v if is_last else 0 for v in values)

    def barrier(self) -> None:
        """Returns once all hosts have called it."""
        self._sum([0])

    def final_barrier(self) -> None:
        """Returns once no host needs this one any more; the last call."""
        self.barrier()
        # A host may leave the first barrier while others still need it; the
        # second is passed only once all have left the first.
        with contextlib.suppress(errors.UserError):
            self.barrier()

    def chief_writes(
        self,
        write: Callable[[], object],
        is_there: Callable[[], bool],
        flag: str,
    ) -> None:
        """Has the chief write files, which the other hosts then see.

        Args:
            write: function without arguments, for the chief alone.
            is_there: see `await_file`.
            flag: see `await_file`.
        """
        if self.is_chief:
            write()
        self.barrier()
        self.await_file(is_there, flag)

    def check_same(self, values: Mapping[str, str]) -> None:
        """Raises if this host has other values than the chief.

        Args:
            values: str by name. All hosts have the same names.

        Raises:
            UserError: on the hosts with other values. It names them.
        """
        own = [
            int.from_bytes(hashlib.sha256(os.fsencode(v)).digest()[:7], "big")
            for v in values.values()
        ]
        pairs = zip(values, own, self.from_chief(*own), strict=True)
        if others := [name for name, here, chief in pairs if here != chief]:
            raise errors.UserError(
                "Expected all hosts to be started in the same way. On "
                f"{self.name}, other than on the chief: {', '.join(others)}."
            )

    def await_file(self, is_there: Callable[[], bool], flag: str) -> None:
        """Returns once this host sees a file that the chief has written.

        Args:
            is_there: function without arguments.
            flag: str. The folder's flag and value: "--data_dir=data".

        Raises:
            UserError: the file does not appear; the hosts do not share the
                folder.
        """
        deadline = time.monotonic() + _FILE_TIMEOUT
        while not is_there():
            if time.monotonic() > deadline:
                raise errors.UserError(
                    f"The chief's files do not appear on {self.name} within "
                    f"{_FILE_TIMEOUT:.0f} s: {flag} must be on a file system "
                    "that all hosts share."
                )
            time.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Says in one line that another host has ended.

        Raises:
            UserError: in place of TensorFlow's errors.
        """
        try:
            yield
        except _HOST_FAILURES as error:
            if self.number == 1:
                raise
            raise errors.UserError(
                "The connection is lost: another host has ended or cannot be "
                "reached. See its messages, then run the same command on all "
                "hosts again: the run resumes from its last checkpoint."
            ) from error

    def _sum(self, values: Iterable[int]) -> list[int]:
        """Returns the sums of integers over the hosts."""
        values = list(values)
        if self.number == 1:
            return values
        with self.explain_failures():
            # A constant may be on no host's device; its copy is on this one's.
            own = tf.identity(tf.constant(values, tf.int64))
            return self.strategy.reduce("SUM", own, axis=None).numpy().tolist()


def host_of(context: tf.distribute.InputContext) -> batches.Host:
    """Returns the host that gets batches."""
    hosts = context.num_input_pipelines
    replicas = context.num_replicas_in_sync // hosts
    return batches.Host(context.input_pipeline_id, hosts, replicas)
