"""Checkpoints of named variables: save, restore, average.

A checkpoint holds an explicit dictionary {group: {name: variable}}, because
TensorFlow does not find all variables of a Keras 3 model by itself: it skips
layers in lists, and no restore reports that.

Beside the weights, in the group `model`, a checkpoint may have their moving
averages, in the group `moving_average`. Training goes on with the weights, by
`CheckpointManager.restore`. All other readers use the averages where they are,
by `restore_model` and `average`.

The checkpoint `ckpt-7` consists of `ckpt-7.index` and its data files. It is
written as `ckpt-7_temp`, which may be incomplete, then renamed to
`ckpt-7_new`, which is complete, and last to `ckpt-7`. A kill between any two
operations loses no checkpoint.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.models import checkpoint_index
from relpos_tf.models import run_dir
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import signals
from relpos_tf.utils import system_errors

_log = logging.getLogger("relpos_tf")
Variables = Mapping[str, tf.Variable]
# The errors of a damaged or missing checkpoint.
UNREADABLE = (tf.errors.OpError, OSError, ValueError, RuntimeError, IndexError)
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_MODEL = "model/"
_MOVING_AVERAGE = "moving_average/"
# This variable marks an average: the steps of its checkpoints.
_AVERAGE_OF = "training/average_of"
_NEW = "_new"
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
        self._groups = {name: dict(group) for name, group in groups.items()}
        self._keep_max = keep_max
        self._protected = set()
        self._checkpoint = tf.train.Checkpoint(**self._groups)
        if writes:
            self._directory.mkdir(parents=True, exist_ok=True)
            remove_left_overs(self._directory)

    def all_steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, ascending."""
        return run_dir.all_steps(self._directory)

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, or None."""
        steps = self.all_steps()
        return str(self._directory / f"ckpt-{steps[-1]}") if steps else None

    def protect(self, *steps: int) -> None:
        """Keeps the checkpoints of these steps in addition to `keep_max`."""
        self._protected = set(steps)

    def save(self, step: int, is_stop: bool = False) -> str:
        """Writes `ckpt-STEP` and returns its prefix.

        The checkpoint gets its name once it is complete and checked. Signals
        are held until then.

        Args:
            step: int. The number of updates made.
            is_stop: bool. A run that never stopped would not save this step:
                the checkpoint, if it is new, is one of `run_dir.stops`.

        Raises:
            UserError: it cannot be written, as on a full disk.
            RuntimeError: not every variable is in the checkpoint.
        """
        prefix = str(self._directory / f"ckpt-{step}")
        with signals.held(), _writing(prefix):
            try:
                self._checkpoint.write(f"{prefix}_temp")
                self._check_written(f"{prefix}_temp")
                self._mark(step, is_stop)
                move(f"{prefix}_temp", prefix)
                self._prune(step)
                run_dir.write_checkpoint_state(self._directory)
            finally:
                remove_left_overs(self._directory)
            _warn_of_little_room(self._directory, _size(prefix))
        return prefix

    def _check_written(self, prefix: str) -> None:
        """Compares names: TensorFlow does not report an omitted variable."""
        written = _keys(open_checkpoint(prefix)).keys()
        wrong = sorted(written ^ _flat(self._groups).keys())
        if wrong:
            raise RuntimeError(f"{prefix} has too much or too little: {wrong}.")

    def _mark(self, step: int, is_stop: bool) -> None:
        run = run_dir.RunDir(self._directory)
        if not is_stop:
            run.unmark_stop(step)
        elif step not in self.all_steps():
            run.mark_stop(step)

    def _prune(self, step: int) -> None:
        """Removes the oldest checkpoints, never the one just written.

        Stops do not count, so that the others are those of a run that never
        stopped. They go once `keep_max` others, or other stops, are newer.
        """
        if self._keep_max < 1:
            return
        kept = {step} | self._protected
        others = [old for old in self.all_steps() if old not in kept]
        marked = run_dir.stops(self._directory)
        stops = [old for old in others if old in marked]
        regular = [n for n in [*others, step] if n not in marked]
        gone = {*regular[: -self._keep_max], *stops[: -self._keep_max]}
        if len(regular) >= self._keep_max:
            oldest = min(regular[-self._keep_max :])
            gone.update(old for old in stops if old < oldest)
        for old in sorted(gone):
            run_dir.remove_checkpoint(str(self._directory / f"ckpt-{old}"))

    def restore(self, path: str | pathlib.Path | None = None) -> str:
        """Restores all groups, or none if one does not fit; returns the prefix.

        A run may begin or end to keep moving averages: those that are missing
        stay unchanged, and those without a variable are passed over.

        Args:
            path: A prefix, or None for the newest readable checkpoint. The
                indices of newer, unreadable ones are renamed to
                `.index.damaged`.

        Raises:
            UserError: it is not readable, or does not fit the variables.
        """
        prefix = resolve(self._directory if path is None else path)
        own = _flat(self._groups)
        with _opened(prefix) as (reader, keys):
            keys = {
                name: key
                for name, key in keys.items()
                if name in own or not name.startswith(_MOVING_AVERAGE)
            }
            _assign(reader, prefix, self._groups, keys)
        if path is None:
            restored = run_dir.checkpoint_step(prefix)
            for step in filter(lambda n: n > restored, self.all_steps()):
                index = self._directory / f"ckpt-{step}.index"
                os.replace(index, f"{index}.damaged")
            run_dir.write_checkpoint_state(self._directory)
        return prefix


def newest_readable(directory: str | pathlib.Path) -> str:
    """Returns the prefix of the newest checkpoint that can be read.

    Damaged checkpoints are skipped with a warning.

    Raises:
        UserError: no checkpoint can be read.
    """
    _warn_of_lost_indices(directory)
    for step in reversed(run_dir.all_steps(directory)):
        prefix = str(pathlib.Path(directory) / f"ckpt-{step}")
        if is_readable(prefix):
            return prefix
        _log.warning("Checkpoint %s is damaged; trying an older.", prefix)
    raise errors.UserError(
        f"Expected a checkpoint ckpt-STEP in {directory}. Received: "
        f"{sorted(p.name for p in pathlib.Path(directory).glob('*'))}."
    )


def resolve(path: str | pathlib.Path) -> str:
    """Returns the prefix of a checkpoint that a user names.

    Args:
        path: A checkpoint's prefix, with or without `.index`, or a directory
            for its newest checkpoint.

    Raises:
        UserError: there is none; the message lists the steps that exist.
    """
    prefix = str(path).removesuffix(".index")
    if os.path.isfile(prefix + ".index"):
        return prefix
    if os.path.isdir(prefix):
        return newest_readable(prefix)
    steps = run_dir.all_steps(os.path.dirname(prefix) or ".")
    there = f" The steps there: {', '.join(map(str, steps))}." if steps else ""
    raise errors.UserError(
        "Expected a run's directory or a checkpoint such as runs/demo/ckpt-100."
        f" Received: {path}, which does not exist.{there}"
    )


def restore_model(prefix: str, variables: Variables) -> None:
    """Restores a model's variables, and nothing else, from a checkpoint.

    They get the moving averages of the weights if the checkpoint has them.

    Raises:
        UserError: the checkpoint is damaged or not of this model.
    """
    with _opened(prefix) as (reader, keys):
        keys = {_MODEL + path: key for path, key in _of_model(keys).items()}
        _assign(reader, prefix, {"model": variables}, keys)


def model_shapes(prefix: str) -> dict[str, list[int]]:
    """Returns the shape of each of a checkpoint's model variables, by path.

    Raises:
        UserError: the checkpoint is damaged.
    """
    with _opened(prefix) as (reader, keys):
        shapes = reader.get_variable_to_shape_map()
        return {name: shapes[key] for name, key in _of_model(keys).items()}


def average(prefixes: Sequence[str], output: str) -> None:
    """Writes the mean of the model variables of several checkpoints.

    Where a checkpoint has moving averages, they count and not the weights. Sums
    are in float64. The result has no optimizer, but the last step, as
    `training/step`, and the averaged steps, as `training/average_of`. A JSON
    file beside it names the averaged checkpoints.

    Args:
        prefixes: The checkpoints `ckpt-STEP`, each once.
        output: Prefix of the result.

    Raises:
        UserError: no checkpoints, the same one twice, an average, or
            different models; or the result cannot be written.
    """
    prefixes = [str(p).removesuffix(".index") for p in prefixes]
    different = set(map(os.path.realpath, prefixes))
    if not prefixes or len(different) < len(prefixes):
        raise errors.UserError(
            f"Expected checkpoints, each once. Received: {prefixes}."
        )
    steps = [run_dir.checkpoint_step(prefix) for prefix in prefixes]

    def kinds(values):
        return {name: (v.shape, v.dtype) for name, v in values.items()}

    first = _model_values(prefixes[0])
    # The sum starts from the first value: 0.0 + -0.0 is 0.0, and the mean of
    # one checkpoint would differ from it.
    sums = {name: value.astype(np.float64) for name, value in first.items()}
    for prefix in prefixes[1:]:
        values = _model_values(prefix)
        if kinds(values) != kinds(first):
            raise errors.UserError(
                f"Expected checkpoints of one model. Received: {prefixes[0]} "
                f"and {prefix}, whose variables differ."
            )
        for name, value in values.items():
            sums[name] = sums[name] + value.astype(np.float64)
    mean = {
        name: (sums[name] / len(prefixes)).astype(value.dtype)
        for name, value in first.items()
    }
    write_model(output, mean, max(steps), average_of=steps)
    names = [os.path.basename(prefix) for prefix in prefixes]
    with _writing(output):
        files.write(f"{output}.json", json.dumps({"average_of": names}))


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
        UserError: it cannot be written, as on a full disk.
    """
    model = {name: tf.Variable(value) for name, value in values.items()}
    training = {"step": tf.Variable(step, dtype=tf.int64)}
    if average_of:
        training["average_of"] = tf.Variable(average_of, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, training=training)
    folder = os.path.dirname(prefix) or "."
    with signals.held(), _writing(prefix):
        # First, files with the names that TensorFlow is about to use.
        remove_left_overs(folder)
        try:
            checkpoint.write(f"{prefix}_temp")
            move(f"{prefix}_temp", prefix)
        finally:
            remove_left_overs(folder)


def _model_values(prefix: str) -> dict[str, np.ndarray]:
    """Returns the model variables of a checkpoint that training wrote."""
    with _opened(prefix) as (reader, keys):
        values = {
            name: reader.get_tensor(key)
            for name, key in _of_model(keys).items()
        }
    if not values:
        raise errors.UserError(f"Checkpoint {prefix} has no model/... in it.")
    if _AVERAGE_OF in keys:
        raise errors.UserError(
            "Expected checkpoints that training wrote: an average of averages "
            f"counts some of them twice. Received: {prefix}, an average."
        )
    return values


def open_checkpoint(prefix: str):
    """Returns TensorFlow's reader of a checkpoint.

    Raises:
        ValueError: the index is damaged. TensorFlow raises other errors, all
            in `UNREADABLE`.
    """
    checkpoint_index.check(prefix)
    return tf.train.load_checkpoint(paths.plain(prefix))


@contextlib.contextmanager
def reading(prefix: str) -> Iterator[None]:
    """Raises a UserError if the block cannot read a checkpoint."""
    try:
        yield
    except errors.UserError:
        raise
    except UNREADABLE as error:
        message = f"Checkpoint {prefix} is damaged or not there."
        raise errors.UserError(message) from error


@contextlib.contextmanager
def _opened(prefix: str):
    """Yields TensorFlow's reader and the keys of the variables; `reading`."""
    with reading(prefix):
        reader = open_checkpoint(prefix)
        yield reader, _keys(reader)


def is_readable(prefix: str) -> bool:
    """Says whether every tensor of a checkpoint can be read."""
    try:
        reader = open_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except UNREADABLE:
        return False
    return True


def _keys(reader) -> dict[str, str]:
    """Returns {group/name: key}; in a key "/" is ".S" and "." is ".."."""
    return {
        re.sub(
            r"\.[.S]", lambda m: "./"[m[0] == ".S"], key.removesuffix(_SUFFIX)
        ): key
        for key in reader.get_variable_to_shape_map()
        if key.endswith(_SUFFIX) and not key.startswith("save_counter")
    }


def _of_model(keys: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys of the model's variables, by path.

    They are the keys of the moving averages of the variables that have one.
    """
    paths = [n.removeprefix(_MODEL) for n in keys if n.startswith(_MODEL)]
    return {
        path: keys.get(_MOVING_AVERAGE + path, keys[_MODEL + path])
        for path in paths
    }


def _flat(groups: Mapping[str, Variables]) -> dict[str, tf.Variable]:
    return {f"{g}/{n}": v for g, vs in groups.items() for n, v in vs.items()}


def _assign(
    reader,
    prefix: str,
    groups: Mapping[str, Variables],
    keys: Mapping[str, str],
) -> None:
    """Sets variables; compares and reads everything before it sets anything.

    Args:
        reader: The result of `open_checkpoint`.
        prefix: str. The checkpoint, for messages.
        groups: {group: {name: variable}}.
        keys: {group/name: key} of the checkpoint; each must have a variable.
            Moving averages may have no key.

    Raises:
        UserError: a variable is missing, unexpected, or of another kind.
    """
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    expected = {
        name: variable
        for name, variable in _flat(groups).items()
        if name in keys or not name.startswith(_MOVING_AVERAGE)
    }
    other_dtypes = {
        name: f"{name} is {dtypes[key].name} and not {variable.dtype.name}"
        for name, key in keys.items()
        if (variable := expected.get(name)) is not None
        and dtypes[key] != variable.dtype
    }
    check_shapes(
        prefix,
        {name: variable.shape for name, variable in expected.items()},
        {name: shapes[key] for name, key in keys.items()},
        other_dtypes,
    )
    # TensorFlow finds damage when it reads a tensor, so all are read first.
    values = {name: reader.get_tensor(keys[name]) for name in expected}
    for name, variable in expected.items():
        variable.assign(values[name])


def check_shapes(
    prefix: str,
    expected: Mapping[str, Sequence[int]],
    found: Mapping[str, Sequence[int]],
    others: Mapping[str, str] | None = None,
) -> None:
    """Compares the variables of a model with those of a checkpoint.

    Args:
        prefix: str. The checkpoint, for messages.
        expected: {name: shape} of the model.
        found: {name: shape} of the checkpoint.
        others: {name: problem}, other problems to report.

    Raises:
        UserError: a variable is missing, unexpected, or of another shape.
    """
    problems = dict(others or {})
    for name in expected.keys() | found.keys():
        if name not in found:
            problems[name] = f"{name} is missing"
        elif name not in expected:
            problems[name] = f"{name} is not wanted"
        elif list(found[name]) != list(expected[name]):
            there, here = list(found[name]), list(expected[name])
            problems[name] = f"{name} has shape {there} and not {here}"
    if problems:
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: "
            f"{abridged(sorted(problems.values()))}."
        )


def abridged(items: Sequence[str]) -> str:
    """Returns the first items of a list, and how many more there are.

    Example:

    >>> abridged(list("abcdefg"))
    'a; b; c; d; e and 2 more'
    """
    more = len(items) - _LISTED
    return "; ".join(items[:_LISTED]) + (f" and {more} more" * (more > 0))


def move(source: str, target: str) -> None:
    """Renames a complete checkpoint, and replaces another of the new name.

    After a kill, one of the two is there, or `remove_left_overs` completes
    the new one.

    Args:
        source: str. Its prefix.
        target: str. Its new prefix.
    """
    run_dir.remove_checkpoint(target + _NEW)
    _rename(source, target + _NEW)
    pathlib.Path(f"{target}.index").unlink(missing_ok=True)
    pathlib.Path(f"{target}.index.damaged").unlink(missing_ok=True)
    _rename(target + _NEW, target)


def _rename(source: str, target: str) -> None:
    """Renames the data files, then the index, which completes a checkpoint."""
    folder, name = os.path.split(source)
    for path in sorted(pathlib.Path(folder).glob(f"{name}.data-*")):
        os.replace(path, f"{target}{path.name.removeprefix(name)}")
    os.replace(f"{source}.index", f"{target}.index")


def remove_left_overs(directory: str | pathlib.Path) -> None:
    """Completes checkpoints that a kill interrupted, or removes their files."""
    directory = pathlib.Path(directory)
    for path in directory.glob(f"ckpt-*{_NEW}.index"):
        prefix = str(path).removesuffix(".index")
        target = prefix.removesuffix(_NEW)
        pathlib.Path(f"{target}.index").unlink(missing_ok=True)
        _rename(prefix, target)
    _warn_of_lost_indices(directory)
    for path in directory.glob("ckpt-*_temp*"):
        is_folder = path.is_dir() and not path.is_symlink()
        shutil.rmtree(path) if is_folder else path.unlink()
    for path in directory.glob("ckpt-*.data-*"):
        if not any(directory.glob(f"{path.name.split('.')[0]}.index*")):
            path.unlink()
    run_dir.remove_left_overs(directory)


def _warn_of_lost_indices(directory: str | pathlib.Path) -> None:
    """Names data files without an index that are newer than any checkpoint.

    No kill causes that; someone removed the index.
    """
    newest = max(run_dir.all_steps(directory), default=-1)
    for path in sorted(pathlib.Path(directory).glob("ckpt-*.data-*")):
        name = path.name.split(".")[0]
        is_known = (path.parent / f"{name}.index.damaged").exists()
        step = name.removeprefix("ckpt-")
        if step.isdecimal() and int(step) > newest and not is_known:
            _log.warning(
                "Checkpoint %s has lost its index; trying an older.",
                path.parent / name,
            )


@contextlib.contextmanager
def _writing(prefix: str) -> Iterator[None]:
    """Raises a UserError with the cause if a checkpoint cannot be written."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise errors.UserError(
            f"Cannot write checkpoint {prefix}: {system_errors.cause(error)} "
            f"{system_errors.RESUME_ADVICE}"
        ) from error


def check_room(directory: str | pathlib.Path, needed: int) -> None:
    """Refuses a directory without room for a checkpoint.

    Args:
        directory: The directory of the checkpoints; may be missing.
        needed: int. Bytes of one checkpoint.

    Raises:
        UserError: fewer bytes are free.
    """
    free = _free(directory)
    if free < needed:
        raise errors.UserError(
            f"Expected room for a checkpoint in {directory}, "
            f"{_megabytes(needed)}. Received: {_megabytes(free)} free. Make "
            "room, or name another --output_dir."
        )


def _warn_of_little_room(directory: pathlib.Path, needed: int) -> None:
    """Warns if the next checkpoint will not fit."""
    free = _free(directory)
    if free < needed:
        _log.warning(
            "%s has %s left; the next checkpoint needs %s. Make room now.",
            directory,
            _megabytes(free),
            _megabytes(needed),
        )


def _size(prefix: str) -> int:
    """Returns the bytes of a checkpoint's files."""
    folder, name = os.path.split(prefix)
    return sum(
        path.stat().st_size for path in pathlib.Path(folder).glob(f"{name}.*")
    )


def _free(directory: str | pathlib.Path) -> int:
    path = pathlib.Path(directory).absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"
