"""Hosts that train together: what they agree on, and who goes first.

Every replica of every host makes the same updates, so hosts need to agree on
little else: when to save and to stop, and where to go on. One of them, the
chief, writes the run's directory; the others read it.

All methods but `connected` are for all hosts to call, in the same order. With
one host they return at once.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.training import cluster as cluster_lib
from relpos_tf.utils import signals

_log = logging.getLogger("relpos_tf")
# Seconds after which another host's file must be seen: network file systems
# look for changes every minute or so.
_LAG = 90.0
_PAUSE = 0.2
# What collectives end in when a host is gone, was restarted, or fails itself.
_LOST = (
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
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        several = isinstance(
            strategy, tf.distribute.MultiWorkerMirroredStrategy
        )
        self._cluster = cluster_lib.from_environment() if several else None

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._cluster.addresses) if self._cluster else 1

    @property
    def index(self) -> int:
        """Which of them this one is; 0 is the chief."""
        return self._cluster.index if self._cluster else 0

    @property
    def is_chief(self) -> bool:
        """Whether this host writes the run's directory."""
        return self.index == 0

    def name(self) -> str:
        """Returns how messages call this host."""
        return self._cluster.name(self.index) if self._cluster else "this host"

    def any(self, *flags: bool) -> list[bool]:
        """Says of each flag whether it is set on any host."""
        return [bool(total) for total in self._sum(map(int, flags))]

    def from_chief(self, *values: int) -> list[int]:
        """Returns the chief's values; those of other hosts do not count."""
        return self._sum(int(v) if self.is_chief else 0 for v in values)

    def from_last(self, *values: int) -> list[int]:
        """Returns the values of the last host."""
        is_last = self.index == self.number - 1
        return self._sum(v if is_last else 0 for v in values)

    def wait(self) -> None:
        """Returns once all hosts have called it."""
        self._sum([0])

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Has signals wait in the block, as only all hosts can stop.

        `signals.is_pending` says that one has come. With one host they do not
        wait.
        """
        with contextlib.ExitStack() as stack:
            if self.number > 1:
                stack.enter_context(signals.held())
                stack.enter_context(self.connected())
            yield

    @contextlib.contextmanager
    def chief_first(self) -> Iterator[None]:
        """Has the chief go through the block before the others enter it."""
        if not self.is_chief:
            self.wait()
        yield
        if self.is_chief:
            self.wait()

    def part(self) -> None:
        """The last call: waits for all hosts, which may then end."""
        self.wait()
        # A host leaves the first wait before its neighbour has what it needs
        # of it, but the second only when all have left the first.
        with contextlib.suppress(errors.UserError):
            self.wait()

    def check_same(self, text: str, what: str) -> None:
        """Raises if a host has another text than the chief.

        Args:
            text: str. What to compare.
            what: str. What it is, for the message: "The data in ... are".

        Raises:
            UserError: on the hosts whose text is another.
        """
        checksum = hashlib.sha256(text.encode()).digest()[:7]
        own = int.from_bytes(checksum, "big")
        if self.from_chief(own) != [own]:
            raise errors.UserError(
                f"{what} not the same on {self.name()} as on the chief."
            )

    def await_chief(self, is_there: Callable[[], bool], what: str) -> None:
        """Returns once this host sees what the chief has written.

        Args:
            is_there: function without arguments that says so.
            what: str. What it is, for the message: "--data_dir=data".

        Raises:
            UserError: it never does: the folder is another host's own.
        """
        deadline = time.monotonic() + _LAG
        while not is_there():
            if time.monotonic() > deadline:
                raise errors.UserError(
                    f"What the chief wrote is not seen on {self.name()} after "
                    f"{_LAG:.0f} seconds: {what} must be on a file system that "
                    "all hosts share."
                )
            time.sleep(_PAUSE)

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Says in one line that another host is gone.

        Raises:
            UserError: in place of TensorFlow's errors.
        """
        try:
            yield
        except _LOST as error:
            if self.number == 1:
                raise
            name = self._cluster.named_in(str(error)) or "Another host"
            raise errors.UserError(
                f"{name[0].upper()}{name[1:]} has ended or cannot be reached. "
                "See its messages, then run the same command on all hosts "
                "again: the run goes on from its last checkpoint."
            ) from error

    def _sum(self, values: Sequence[int]) -> list[int]:
        """Adds integers up over the hosts."""
        values = list(values)
        if self.number == 1:
            return values
        with self.connected():
            # A constant may lie on no host's device; its copy does not.
            own = tf.identity(tf.constant(values, tf.int64))
            total = self._strategy.reduce("SUM", own, axis=None)
            return total.numpy().tolist()


def own_batches(
    batches: tf.data.Dataset, context: tf.distribute.InputContext
) -> tf.data.Dataset:
    """Returns the batches for one host's replicas.

    A host deals batches to its replicas in turn, and several hosts do as one
    with all their replicas would. So it does not matter how replicas are
    spread over hosts.

    Args:
        batches: Endless, the same on every host.
        context: `tf.distribute.InputContext` of the host.

    Returns:
        A dataset like `batches`.
    """
    hosts = context.num_input_pipelines
    if hosts == 1:
        return batches
    replicas = context.num_replicas_in_sync // hosts
    own = batches.enumerate().filter(
        lambda number, _: (
            number // replicas % hosts == context.input_pipeline_id
        )
    )
    # Else the hosts would ask each other at every step if there is a next one.
    endless = tf.data.experimental.assert_cardinality(
        tf.data.INFINITE_CARDINALITY
    )
    own = own.map(lambda _, batch: batch).apply(endless)
    return own.prefetch(tf.data.AUTOTUNE)
