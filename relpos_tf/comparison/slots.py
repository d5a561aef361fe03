"""Parts of the machine for processes that run at once.

A slot is a GPU, or some of the cores.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.problems import processes

_GPUS = "CUDA_VISIBLE_DEVICES"


class Slot(NamedTuple):
    """A part of the machine.

    Attributes:
        environment: Variables for its process.
        cores: The cores of its process; none: all.
    """

    environment: Mapping[str, str] = {}
    cores: tuple[int, ...] = ()


class Slots(NamedTuple):
    """The parts that a machine is divided into.

    Attributes:
        parts: The slots.
        cores: int. The cores that several slots share.
        gpus: int. The GPUs that they share, one each; 0 if none is used.
    """

    parts: tuple[Slot, ...]
    cores: int
    gpus: int

    @property
    def sharing(self) -> dict[str, int] | None:
        """The record of `runs.Run.write_sharing`; None if nothing is shared."""
        jobs = len(self.parts)
        record = {"jobs": jobs, "cores": self.cores, "gpus": self.gpus}
        return record if jobs > 1 else None


def divide(number: int) -> Slots:
    """Divides the machine into slots.

    One slot is the whole machine. Of several, each gets a GPU if there are
    GPUs, else an equal number of cores.

    Raises:
        UserError: there are too few GPUs or cores.
    """
    if number == 1:
        return Slots((Slot(),), 0, 0)
    cores, gpus = processes.usable_cores(), _gpus()
    if gpus:
        if number > len(gpus):
            raise errors.UserError(
                f"Expected at most one process for each GPU, {len(gpus)} here. "
                f"Received: {number}. Name the GPUs to use in {_GPUS}; an "
                "empty one leaves the cores."
            )
        parts = tuple(Slot({_GPUS: gpu}) for gpu in gpus[:number])
        return Slots(parts, len(cores), number)
    if number > len(cores):
        raise errors.UserError(
            f"Expected at most one process for each core, {len(cores)} here. "
            f"Received: {number}."
        )
    each = len(cores) // number
    if not hasattr(os, "sched_setaffinity"):  # not Linux
        each = 0
    parts = tuple(
        Slot(cores=tuple(cores[index * each : (index + 1) * each]))
        for index in range(number)
    )
    return Slots(parts, len(cores), 0)


def _gpus() -> list[str]:
    """Returns the names of the GPUs that this process may use."""
    if _GPUS not in os.environ:
        devices = pathlib.Path("/dev").glob("nvidia[0-9]*")
        return [str(number) for number, _ in enumerate(devices)]
    names = [name.strip() for name in os.environ[_GPUS].split(",")]
    # CUDA itself stops at the first name that no device has.
    return [name for name in names if name and not name.startswith("-")]
