"""Searches for one line alone, in programs that XLA compiles in the background.

A search for one line spends most of its time on starting some 500 small
operations for each id. A program of XLA has none of them, takes half of the
time, and seconds to compile, for one length of the source. So lines are padded
to a few sizes, and a size is compiled when it has come often; until then, and
where there is no room for a translation, the usual search is used.

Shapes: S source length with padding, N beams, T target length.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import search
from relpos_tf.models import transformer
from relpos_tf.utils import graphs

_log = logging.getLogger("relpos_tf")

# Numbers of ids to which sources are padded. Longer lines take the usual
# search, in which the products outweigh the starting of operations.
SIZES = (16, 24, 32, 48, 64)
# Lines of a size before its program is compiled.
LINES = 32
# A program that has no room for more than one line in so many is given up.
LINES_WITHOUT_ROOM = 8


def room(size: int) -> int:
    """Returns the most ids of a translation for which a program has room.

    Each step attends to all of them. Of 100 captions of Multi30k none needs
    more.
    """
    return size + size // 2 + 4


def make_function(
    model: transformer.Transformer, beam_size: int, n_best: int
) -> Callable:
    """Returns a `tf.function` for XLA, traced once for all sizes.

    Its arguments are ids, int32 `[1, S]`; limits, int32 `[1]`; an int32 tensor
    as long as there is room; and alpha. It returns `search.search_within`.
    """

    def find(inputs, limits, places, alpha):
        return search.search_within(
            model,
            inputs,
            limits,
            max_length=tf.shape(places)[0],
            beam_size=beam_size,
            alpha=alpha,
            n_best=n_best,
        )

    return graphs.function(
        find,
        jit_compile=True,
        input_signature=[
            tf.TensorSpec([1, None], tf.int32),
            tf.TensorSpec([1], tf.int32),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([]),
        ],
    )


def is_possible() -> bool:
    """Returns whether programs are made: on CPUs only."""
    return not tf.config.list_logical_devices("GPU")


class _Program:
    """The state of one size."""

    def __init__(self):
        self.lines = 0  # that have come
        self.is_ready = False
        self.without_room = 0  # of these lines


class Programs:
    """The programs of a search, one for each size.

    Args:
        function: What `make_function` returned.
    """

    def __init__(self, function: Callable):
        self._function = function
        self._programs = {size: _Program() for size in SIZES}
        self._lock = threading.Lock()
        self._compiling: threading.Thread | None = None

    def translate(
        self, ids: list[int], limit: int, alpha: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Searches for the translations of a line.

        Args:
            ids: Of the source, EOS last.
            limit: int. Most ids of a translation.
            alpha: float. Of the length penalty.

        Returns:
            None if the usual search must be used. Otherwise ids, int32
            `[1, N, T]`, best first, EOS last and then zeros; and scores,
            float32 `[1, N]`.
        """
        size = next((size for size in SIZES if len(ids) <= size), None)
        if size is None or not self._is_ready(size):
            return None
        found, scores, is_cut = self._run(size, ids, limit, alpha)
        if is_cut.numpy()[0]:
            with self._lock:
                self._programs[size].without_room += 1
            return None
        return found.numpy(), scores.numpy()

    def _run(self, size: int, ids: list[int], limit: int, alpha: float) -> Any:
        inputs = np.zeros([1, size], np.int32)
        inputs[0, : len(ids)] = ids
        return self._function(
            tf.constant(inputs),
            tf.constant([limit], tf.int32),
            tf.zeros([room(size)], tf.int32),
            tf.constant(alpha, tf.float32),
        )

    def _is_ready(self, size: int) -> bool:
        """Counts a line; starts the compiler when enough have come."""
        with self._lock:
            program = self._programs[size]
            program.lines += 1
            most = 1 + program.lines // LINES_WITHOUT_ROOM
            if program.is_ready:
                return program.without_room <= most
            if program.lines >= LINES and self._compiling is None:
                # Not a daemon: the compiler cannot be ended by force, so the
                # process waits for it.
                self._compiling = threading.Thread(
                    target=self._compile, args=[size], name="one_line"
                )
                self._compiling.start()
            return False

    def _compile(self, size: int) -> None:
        """Makes the program of a size; without one if XLA fails."""
        try:
            self._run(size, [tokenizer_lib.EOS_ID], 1, 1.0)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            _log.debug("XLA does not compile this search: %s", error)
            return  # and tries no other size
        with self._lock:
            self._programs[size].is_ready = True
            self._compiling = None

    def wait(self) -> None:
        """Waits for the compiler."""
        compiling = self._compiling
        if compiling is not None:
            compiling.join()
