"""Signals end a command, but never in the middle of a write.

Ctrl-C sends SIGINT; containers, batch systems and machines that shut down send
SIGTERM; a terminal that closes sends SIGHUP. Slurm and submitit announce the
end of a job by SIGUSR1 or SIGUSR2.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterator

_WAIT = b"\nStopping; once more to stop without waiting for it.\n"
_NAMES = "SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"
# The signals that end a command. All are answered alike. Windows has two.
NUMBERS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):
    """A signal came. Code that handles Ctrl-C also handles it.

    Args:
        number: int. The signal.

    Attributes:
        number: int. The signal.
        exit_code: int. That of a command which the signal ended.
    """

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number
        self.exit_code = 128 + number


class _State:
    """The state that the handler shares with the blocks below."""

    holds = 0  # depth of `held` blocks
    pending: Stopped | None = None  # by the first signal in such a block
    count = 0  # signals since they were first caught
    raised: Stopped | None = None  # the last one, outside of such a block


@contextlib.contextmanager
def caught(handler: Callable[..., None] | None = None) -> Iterator[None]:
    """Raises `Stopped` in the block when a signal of `NUMBERS` comes.

    The second signal is only answered by a message: a launcher may send two
    signals, and a hurried user the same one twice, while a checkpoint is
    written because of the first. From the third on, each signal raises again.

    A signal that the process was started to ignore stays ignored. Outside the
    main thread the block changes nothing.

    Args:
        handler: Function of `signal.signal` to call instead.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        _State.holds, _State.pending, _State.count = 0, None, 0
        _State.raised = None
        before = {number: signal.getsignal(number) for number in NUMBERS}
    for number, old in before.items():
        if old != signal.SIG_IGN:
            signal.signal(number, handler or _handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Holds the signals of `caught` back until the end of the block.

    If the block raises, its error replaces the signal: the command ends anyway.
    """
    _State.holds += 1
    try:
        yield
    except BaseException:
        _State.pending = None
        raise
    finally:
        _State.holds -= 1
    if not _State.holds and _State.pending:
        raised, _State.pending = _State.pending, None
        raise raised


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Within `held`, lets signals interrupt the block, also a pending one."""
    holds, _State.holds = _State.holds, 0
    try:
        if _State.pending:
            raise _State.pending
        yield
    finally:
        _State.holds = holds


def pending() -> list[bool]:
    """Says of each of `NUMBERS` whether it waits for the end of `held`."""
    return [n == getattr(_State.pending, "number", 0) for n in NUMBERS]


def raised() -> Stopped | None:
    """Returns what a signal raised; C code may make another error of it."""
    return _State.raised


def of_exit(code: int) -> Stopped | None:
    """Returns the signal that ended another process, if one did.

    Args:
        code: int. Its exit code; -N if it died of signal N.
    """
    number = -code if code < 0 else code - 128
    return Stopped(number) if number in NUMBERS else None


def take_back() -> None:
    """Sets the handlers again after other code has replaced them.

    TensorFlow replaces the handler of SIGTERM by one that does nothing when it
    connects hosts.
    """
    for number in NUMBERS:
        signal.signal(number, signal.getsignal(number))


def _handle(number, frame):
    del frame
    _State.count += 1
    if _State.count == 2:
        # Not through the logger, which the signal may have interrupted.
        with contextlib.suppress(OSError):  # Nobody may read it.
            os.write(2, _WAIT)
    if _State.holds:
        _State.pending = _State.pending or Stopped(number)
    elif _State.count != 2:
        _State.raised = Stopped(number)
        raise _State.raised
