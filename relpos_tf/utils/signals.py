"""Ctrl-C and SIGTERM: they end a command, but never half-way through a write.

Batch systems, containers and machines that shut down send SIGTERM.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_WAIT = b"\nStopping; once more to stop without waiting for it.\n"


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Whatever handles Ctrl-C handles it."""


class _State:
    """What the handler and the blocks below tell one another."""

    holds = 0  # blocks that no signal may break
    pending = None  # the signal that came in one of them
    count = 0  # signals since they were first caught


@contextlib.contextmanager
def caught() -> Iterator[None]:
    """Turns SIGINT and SIGTERM into exceptions within the block.

    They are `KeyboardInterrupt` and `Terminated`. A second signal is
    answered, and otherwise ignored: a launcher may send both, and a hurried
    user the same twice, while the first one's checkpoint is being written.
    From the third on, each raises again.

    A signal that the process was started to ignore stays ignored. Outside the
    main thread the block changes nothing.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):
                before[number] = handler
        _State.holds, _State.pending, _State.count = 0, None, 0
        for number in before:
            signal.signal(number, _handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Has signals that `caught` handles wait until the end of the block.

    Where the block fails by itself, its error goes first: the command ends
    anyway.
    """
    _State.holds += 1
    try:
        yield
    except BaseException:
        _State.holds -= 1
        _State.pending = None
        raise
    _State.holds -= 1
    if not _State.holds and _State.pending is not None:
        number, _State.pending = _State.pending, None
        _raise(number)


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Within `held`, has signals end the block, also one that waits."""
    holds, _State.holds = _State.holds, 0
    try:
        if _State.pending is not None:
            _raise(_State.pending)
        yield
    finally:
        _State.holds = holds


def is_pending() -> bool:
    """Says whether a signal waits for the end of `held`."""
    return _State.pending is not None


def take_back() -> None:
    """Sets the handlers again where another has put its own.

    TensorFlow takes SIGTERM, and does nothing with it, when it connects hosts.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _NUMBERS:
        handler = signal.getsignal(number)
        if handler is not None:
            signal.signal(number, handler)


def _handle(number, frame):
    del frame
    _State.count += 1
    if _State.count == 2:
        # Not through the logger: it may be what was interrupted.
        os.write(2, _WAIT)
    if _State.holds:
        _State.pending = number if _State.pending is None else _State.pending
    elif _State.count != 2:
        _raise(number)


def _raise(number):
    if number == signal.SIGTERM:
        raise Terminated
    raise KeyboardInterrupt
