"""Checkpoints of named variables: save and restore.

The checkpoint `ckpt-7` is the file `ckpt-7.npz`: an uncompressed zip archive of
NumPy arrays, named by their group and their variable, as in
`model/transformer/softmax/embeddings`. Its prefix, the path without `.npz`, is
what users name. The file appears when it is complete; every array has a
checksum, which is compared when the array is read. Nothing here needs
TensorFlow but the variables.

A checkpoint holds an explicit dictionary {group: {name: variable}}, because
TensorFlow does not find all variables of a Keras 3 model by itself: it skips
layers in lists, and no restore reports that.

Beside the weights, in the group `model`, a checkpoint may have their moving
averages, in the group `moving_average`. Training resumes with the weights, by
`CheckpointManager.restore`. All other readers use the averages if there are
any, by `restore_model` and `averages.write`.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import pathlib
import zipfile
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import BinaryIO

import numpy as np

from relpos_tf import errors
from relpos_tf.models import run_dir
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import signals

if TYPE_CHECKING:
    import tensorflow as tf

    Variables = Mapping[str, tf.Variable]

_log = logging.getLogger("relpos_tf")
_MODEL = "model/"
_MOVING_AVERAGE = "moving_average/"
_GROUPS = _MODEL, _MOVING_AVERAGE, "optimizer/", "training/"
# This array marks an average: the steps of its checkpoints.
_AVERAGE_OF = "training/average_of"
_ARRAY = ".npy"  # the end of a name in the archive, as `numpy.load` expects
_LISTED = 5  # most items that a message lists


class CheckpointManager:
    """The checkpoints `ckpt-STEP` of a directory.

    Args:
        directory: str or path. Created if it is missing.
        groups: {group: {name: variable}}. All that is saved.
        keep_max: int. How many checkpoints are kept, the newest; 0: all.
        writes: bool. False leaves all files alone: another process may be
            writing them.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        groups: Mapping[str, Variables],
        keep_max: int = 20,
        writes: bool = True,
    ):
        self._directory = pathlib.Path(directory)
        self._run = run_dir.RunDir(directory)
        self._variables = {
            f"{group}/{name}": variable
            for group, variables in groups.items()
            for name, variable in variables.items()
        }
        self._keep_max = keep_max
        self._protected: set[int] = set()
        if writes:
            self._directory.mkdir(parents=True, exist_ok=True)
            run_dir.remove_left_overs(self._directory)

    def all_steps(self) -> list[int]:
        """Returns the steps of the checkpoints, ascending."""
        return run_dir.all_steps(self._directory)

    def protect(self, *steps: int) -> None:
        """Keeps the checkpoints of these steps in addition to `keep_max`.

        That of the best BLEU is kept in any case.
        """
        self._protected = set(steps)

    def save(self, step: int, is_stop: bool = False) -> str:
        """Writes `ckpt-STEP` and returns its prefix.

        Signals are held until it is there and older ones are removed.

        Args:
            step: int. The number of updates made.
            is_stop: bool. A run that never stopped would not save this step:
                the checkpoint, if it is new, goes when the next is saved.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        prefix = str(self._directory / f"ckpt-{step}")
        with signals.held():
            if not is_stop:
                self._run.unmark(run_dir.STOP, [step])
            elif step not in self.all_steps():
                self._run.mark(run_dir.STOP, step)
            _write(prefix, self._variables)
            self._prune(step)
        return prefix

    def _prune(self, step: int) -> None:
        """Removes stops and the oldest checkpoints, not that of `step`.

        The others are then those of a run that never stopped.
        """
        kept = {step, self._run.best()} | self._protected
        others = [old for old in self.all_steps() if old not in kept]
        stops = run_dir.steps_of(self._directory, run_dir.STOP)
        gone = [old for old in others if old in stops]
        if self._keep_max:
            regular = [n for n in [*others, step] if n not in stops]
            gone += regular[: -self._keep_max]
        for old in gone:
            run_dir.remove_checkpoint(self._directory / f"ckpt-{old}")

    def restore(self, path: str | None = None) -> str:
        """Restores all groups, or none if one does not fit; returns the prefix.

        A run may begin or end to keep moving averages: those that are missing
        stay unchanged, and those without a variable are passed over.

        Args:
            path: A prefix, or None for the newest checkpoint that is whole.
                Newer, damaged ones are renamed to `ckpt-STEP.npz.damaged`.

        Raises:
            OSError: it cannot be read.
            UserError: it is damaged, or does not fit the variables.
        """
        if path is None:
            steps = reversed(self.all_steps())
            prefixes = [str(self._directory / f"ckpt-{n}") for n in steps]
            prefix, values = _first_whole(self._directory, prefixes)
        else:
            prefix, values = path, read(path)
        variables = dict(self._variables)
        for name in variables.keys() ^ values.keys():
            if name.startswith(_MOVING_AVERAGE):
                variables.pop(name, None)
                values.pop(name, None)
        _assign(prefix, variables, values)
        if path is None:
            for step in self.all_steps():
                if step > run_dir.checkpoint_step(prefix):
                    damaged = self._directory / f"ckpt-{step}.npz"
                    os.replace(damaged, f"{damaged}.damaged")
        return prefix


def candidates(path: str | pathlib.Path) -> list[str]:
    """Returns the prefixes that a path may stand for, the first choice first.

    A run stands for its result: the average of its end, or else its newest
    checkpoint. So the largest step comes first, and of one step the average. A
    folder of averages stands for that of the largest step.

    Args:
        path: A checkpoint's prefix, with or without `.npz`; a directory; or
            `RUN/best`, unless there is a directory of this name.

    Raises:
        UserError: there is none; the message lists the steps that exist; or
            the path is an address.
    """
    paths.check_local("A model", path)
    path = pathlib.Path(str(path).removesuffix(run_dir.CHECKPOINT))
    if os.path.isfile(f"{path}{run_dir.CHECKPOINT}"):
        return [str(path)]
    folders = path / run_dir.AVERAGE, path
    found = [(step, f) for f in folders for step in run_dir.all_steps(f)]
    if path.name == "best" and not path.exists():
        best = run_dir.RunDir(path.parent).best()
        found = [] if best is None else [(best, path.parent)]
    if not found:
        steps = ", ".join(map(str, run_dir.all_steps(path.parent)))
        there = f" The steps there: {steps}." if steps else ""
        what = "is none of them" if path.exists() else "does not exist"
        raise errors.UserError(
            "Expected a trained run, its folder of averages, a checkpoint such "
            "as runs/demo/ckpt-100, an export, or, of a run with evaluations, "
            f"runs/demo/best. Received: {path}, which {what}.{there}"
        )
    found.sort(key=lambda one: one[0], reverse=True)
    return [str(folder / f"ckpt-{step}") for step, folder in found]


def resolve(path: str | pathlib.Path) -> str:
    """Returns the prefix of the checkpoint that a path stands for.

    Unless the path names one checkpoint, logs it, with others that the run has,
    and warns of a run that has not ended.

    Args:
        path: See `candidates`. Damaged ones are skipped with a warning.

    Raises:
        UserError: there is none, or none that is whole, or a directory is not
            of a run.
    """
    prefixes = candidates(path)
    named = pathlib.Path(str(path).removesuffix(run_dir.CHECKPOINT))
    if prefixes == [str(named)]:
        return prefixes[0]
    prefix, _ = _first_whole(named, prefixes)
    run = run_dir.run_of(prefix)
    best, averages = run.best(), run_dir.all_steps(run.path / run_dir.AVERAGE)
    others = ""
    if best is not None and prefix != str(run.path / f"ckpt-{best}"):
        others = f" (best: ckpt-{best})"
    if averages and averages[-1] < run_dir.checkpoint_step(prefix):
        others += f" (older: {run_dir.AVERAGE}/ckpt-{averages[-1]})"
    _log.info("%s stands for %s%s.", path, prefix, others)
    if unfinished := run.unfinished():
        _log.warning("%s", unfinished)
    return prefix


def _first_whole(directory, prefixes):
    """Returns the prefix and the arrays of the first whole checkpoint."""
    for prefix in prefixes:
        try:
            return prefix, read(prefix)
        except errors.UserError:
            _log.warning("Checkpoint %s is damaged; trying an older.", prefix)
        except OSError:
            if os.path.lexists(f"{prefix}{run_dir.CHECKPOINT}"):
                raise  # Else a trainer has removed it meanwhile.
    raise errors.UserError(
        f"Expected a checkpoint ckpt-STEP{run_dir.CHECKPOINT} in {directory}. "
        f"Received: {sorted(path.name for path in directory.glob('*'))}."
    )


def read(
    prefix: str | pathlib.Path, groups: tuple[str, ...] = ("",)
) -> dict[str, np.ndarray]:
    """Returns the arrays of a checkpoint by group and name.

    Args:
        prefix: The checkpoint.
        groups: The beginnings of the names to read, as in `("model/",)`.

    Raises:
        OSError: it is missing, or the system cannot read it: that is no damage.
        UserError: it is damaged.
    """
    path = f"{prefix}{run_dir.CHECKPOINT}"
    try:
        files.regular(path)
        with io.BufferedReader(io.FileIO(path)) as file:
            return _arrays(file, groups)
    except Exception as error:  # a damaged archive may raise a dozen kinds
        # `zipfile` makes damage of what the system cannot read.
        cause = error.__context__ or error
        number = getattr(cause, "errno", None)
        if isinstance(cause, MemoryError):
            number = errno.ENOMEM
        if number in (None, errno.EINVAL):  # of a place outside of the file
            raise errors.UserError(
                f"Checkpoint {prefix} is damaged."
            ) from error
        raise OSError(number, os.strerror(number), path) from error


def _arrays(file: BinaryIO, groups: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns the arrays in an archive whose names begin so."""
    values, size = {}, os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            # Reading what is damaged so may take more memory than there is.
            size -= max(member.file_size, member.compress_size)
            is_known = member.filename.startswith(_GROUPS)
            if member.compress_type or size < 0 or not is_known:
                raise zipfile.BadZipFile(member.filename)
            if member.filename.startswith(groups):
                # This compares the checksum, before anything is parsed.
                content = io.BytesIO(archive.read(member))
                name = member.filename.removesuffix(_ARRAY)
                values[name] = np.lib.format.read_array(content)
    return values


def read_model(prefix: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the model's arrays, or their moving averages if there are any."""
    values = read(prefix, (_MODEL, _MOVING_AVERAGE))
    paths = [n.removeprefix(_MODEL) for n in values if n.startswith(_MODEL)]
    return {
        path: values.get(_MOVING_AVERAGE + path, values[_MODEL + path])
        for path in paths
    }


def restore_model(prefix: str, variables: Variables) -> None:
    """Restores a model's variables, and nothing else, from a checkpoint.

    They get the moving averages of the weights if the checkpoint has them.

    Raises:
        UserError: the checkpoint is damaged or not of this model.
    """
    _assign(prefix, variables, read_model(prefix))


def _assign(prefix, variables, values):
    """Sets variables, after all names, shapes and dtypes were compared.

    Raises:
        UserError: an array is missing, unexpected, or of another kind.
    """
    problems = []
    for name in sorted(variables.keys() | values.keys()):
        if name not in values:
            problems.append(f"{name} is missing")
        elif name not in variables:
            problems.append(f"{name} is not wanted")
        elif (found := _kind(values[name])) != _kind(variables[name]):
            wanted = _kind(variables[name])
            problems.append(f"{name} is {found} and not {wanted}")
    if problems:
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: {abridged(problems)}."
        )
    for name, variable in variables.items():
        variable.assign(values[name])


def _kind(array: tf.Variable | np.ndarray) -> str:
    return f"{array.dtype.name} {list(array.shape)}"


def abridged(items: Sequence[str]) -> str:
    """Returns the first items of a list, and how many more there are.

    Example:
    >>> abridged(list("abcdefg"))
    'a; b; c; d; e and 2 more'
    """
    more = len(items) - _LISTED
    end = f" and {more} more" if more > 0 else ""
    return "; ".join(items[:_LISTED]) + end


def averaged_steps(prefix: str | pathlib.Path) -> list[int]:
    """Returns the steps whose mean a checkpoint is; [] if it is none.

    Raises:
        OSError: it is missing or cannot be read.
        UserError: it is damaged.
    """
    steps = read(prefix, (_AVERAGE_OF,)).get(_AVERAGE_OF)
    return [] if steps is None else steps.tolist()


def write_model(
    prefix: str,
    values: Mapping[str, np.ndarray],
    step: int,
    average_of: Sequence[int] = (),
) -> None:
    """Writes a checkpoint with a model and its step, and nothing else.

    Args:
        prefix: str. The prefix to write.
        values: The model's variables by name.
        step: int. The number of updates.
        average_of: The steps of the checkpoints of an average.

    Raises:
        OSError: it cannot be written, as on a full disk.
    """
    arrays = {_MODEL + name: value for name, value in values.items()}
    arrays["training/step"] = np.int64(step)
    if average_of:
        arrays[_AVERAGE_OF] = np.array(average_of, np.int64)
    with signals.held():
        _write(prefix, arrays)


def _write(prefix: str, values: Mapping[str, tf.Variable | np.ndarray]) -> None:
    """Writes a checkpoint, whole or not at all."""
    path = f"{prefix}{run_dir.CHECKPOINT}"
    with files.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, value in values.items():
            # `ZipInfo` has no date, so that equal values are equal files.
            info = zipfile.ZipInfo(name + _ARRAY)
            with archive.open(info, "w", force_zip64=True) as member:
                array = value.numpy() if hasattr(value, "numpy") else value
                np.lib.format.write_array(member, np.asarray(array))
