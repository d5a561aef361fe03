"""Engines in several processes, behind the interface of one.

Each process has an engine of its own, on a device of its own or on its part of
the cores. This process loads none: lines and batches go to the others, and
translations come back. `translator` decides which lines form a batch, as for a
single engine, so the translations are the same.
"""

import operator
from collections.abc import Callable
from typing import Any

from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.utils import processes
from relpos_tf.utils import system_errors


class WorkerEngine:
    """An `engines.ParallelEngine`.

    Args:
        load: Function of a module, without arguments, that returns the engine,
            the same one at every call in a process.
        workers: Where the engines work.

    Attributes:
        number: int. How many engines there are.
    """

    def __init__(
        self,
        load: Callable[[], engines.Engine],
        workers: processes.Workers,
    ):
        self.number = workers.number
        self._load = load
        self._workers = workers

    def call(
        self, function: Callable[..., Any], *arguments: Any
    ) -> Callable[[], Any]:
        """Begins a call with the first engine that is free.

        Args:
            function: A function of a module; its first argument is the engine.
            *arguments: Its other arguments.

        Returns:
            A function without arguments that waits for the result.
        """
        return self._workers.call(_call, self._load, function, arguments)

    def _method(self, name, *arguments):
        """Calls a method of an engine and waits for its result."""
        return self.call(operator.methodcaller(name, *arguments))()

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Replaces None by the engine's own values."""
        return self._method("complete", decode_hparams)

    def items(self, lines: list[str]) -> list[engines.Item]:
        """Prepares lines, without the blanks around them."""
        return self._method("items", lines)

    def truncate(self, item: engines.Item, size: int) -> engines.Item:
        """Returns a line cut to `size` ids."""
        return self._method("truncate", item, size)

    def translate(
        self,
        items: list[engines.Item],
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[engines.Translation]:
        """Translates lines in one batch."""
        return self._method("translate", items, decode_hparams, n_best)


class SteerableWorkerEngine(WorkerEngine):
    """A `WorkerEngine` of engines that are an `engines.SteerableEngine`."""

    def with_prefixes(
        self, items: list[engines.Item], prefixes: list[str]
    ) -> list[engines.Item]:
        """Adds the beginnings of the translations."""
        return self._method("with_prefixes", items, prefixes)

    def with_attention(
        self, items: list[engines.Item], translations: list[engines.Translation]
    ) -> list[engines.Translation]:
        """Adds the attention of each translation of each line."""
        return self._method("with_attention", items, translations)


def start(
    load: Callable[[], engines.Engine], workers: processes.Workers
) -> WorkerEngine:
    """Loads an engine in each process.

    Args:
        load: See `WorkerEngine`.
        workers: Where the engines are to work.

    Raises:
        UserError: what `load` raised, or a process was killed.
    """
    waits = [
        workers.call(_call, load, _is_steerable, ())
        for _ in range(workers.number)
    ]
    is_steerable = all([wait() for wait in waits])
    kind = SteerableWorkerEngine if is_steerable else WorkerEngine
    return kind(load, workers)


def _call(load, function, arguments):
    """Calls a function with the engine of this process."""
    # The first process may have no TensorFlow to read its errors with.
    with system_errors.explained("Take a smaller batch_size or fewer workers."):
        return function(load(), *arguments)


def _is_steerable(engine):
    return isinstance(engine, engines.SteerableEngine)
