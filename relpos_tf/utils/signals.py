"""Ctrl-C and SIGTERM end a command, but never in the middle of a write.

Batch systems, containers and machines that shut down send SIGTERM.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_WAIT = b"\nStopping; once more to stop without waiting for it.\n"


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Code that handles Ctrl-C also handles it."""


_RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


class _State:
    """The state that the handler shares with the blocks below."""

    holds = 0  # depth of `held` blocks
    pending = None  # what the first signal in such a block is to raise
    count = 0  # signals since they were first caught


@contextlib.contextmanager
def caught() -> Iterator[None]:
    """Turns SIGINT and SIGTERM into exceptions within the block.

    They are `KeyboardInterrupt` and `Terminated`. The second signal is only
    answered by a message: a launcher may send both signals, and a hurried user
    the same one twice, while a checkpoint is written because of the first. From
    the third on, each signal raises again.

    A signal that the process was started to ignore stays ignored. Outside the
    main thread the block changes nothing.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        _State.holds, _State.pending, _State.count = 0, None, 0
        before = {number: signal.getsignal(number) for number in _RAISED}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def is_pending() -> bool:
    """Returns whether a signal waits for the end of `held`."""
    return _State.pending is not None


def take_back() -> None:
    """Sets the handlers again after other code has replaced them.

    TensorFlow replaces the handler of SIGTERM by one that does nothing when it
    connects hosts.
    """
    for number in _RAISED:
        signal.signal(number, signal.getsignal(number))


def _handle(number, frame):
    del frame
    _State.count += 1
    if _State.count == 2:
        # Not through the logger, which the signal may have interrupted.
        os.write(2, _WAIT)
    if _State.holds:
        _State.pending = _State.pending or _RAISED[number]
    elif _State.count != 2:
        raise _RAISED[number]
