"""Checkpoints of named variables: save, restore, average.

A checkpoint holds an explicit dictionary {group: {name: variable}}, because
what TensorFlow finds by itself in a Keras 3 model is not complete: layers held
in lists are left out, and no restore notices.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import run_dir

_log = logging.getLogger("relpos_tf")
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_UNREADABLE = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
Variables = Mapping[str, tf.Variable]
all_steps = run_dir.all_steps


class CheckpointManager:
    """The checkpoints `ckpt-STEP` of a directory.

    Args:
        directory: str or path. Made if need be.
        groups: {group: {name: variable}}. All that is saved.
        keep_max: int. The oldest beyond that many are removed; 0: none is.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        groups: Mapping[str, Variables],
        keep_max: int = 20,
    ):
        self._directory = pathlib.Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._groups = {name: dict(group) for name, group in groups.items()}
        self._keep_max = keep_max
        self._protected = set()
        self._checkpoint = tf.train.Checkpoint(**self._groups)
        run_dir.remove_left_overs(self._directory)

    def all_steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, ascending."""
        return all_steps(self._directory)

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, or None."""
        steps = self.all_steps()
        return str(self._directory / f"ckpt-{steps[-1]}") if steps else None

    def protect(self, *steps: int) -> None:
        """Keeps these, whatever their age and beside `keep_max` others."""
        self._protected = set(steps)

    def save(self, step: int) -> str:
        """Writes `ckpt-STEP` and returns its prefix.

        It bears its name only once it is complete and checked.

        Raises:
            UserError: it cannot be written, as on a full disk.
            RuntimeError: not every variable is in what was written.
        """
        prefix = str(self._directory / f"ckpt-{step}")
        try:
            self._checkpoint.write(f"{prefix}_temp")
            self._check_written(f"{prefix}_temp")
            run_dir.move_checkpoint(f"{prefix}_temp", prefix)
            self._prune(step)
            run_dir.write_checkpoint_state(self._directory)
        except (tf.errors.OpError, OSError) as error:
            cause = str(error).partition("\n")[0]
            raise errors.UserError(
                f"Cannot write checkpoint {prefix}: {cause} Make room and run "
                "again: the run goes on from its last checkpoint."
            ) from error
        finally:
            run_dir.remove_left_overs(self._directory)
        return prefix

    def _check_written(self, prefix: str) -> None:
        """Compares names: a variable that is not saved goes unnoticed else."""
        written = _names(tf.train.load_checkpoint(prefix)).keys()
        wrong = sorted(written ^ _flat(self._groups).keys())
        if wrong:
            raise RuntimeError(f"{prefix} has too much or too little: {wrong}.")

    def _prune(self, step: int) -> None:
        """Removes the oldest checkpoints, never the one just written."""
        if self._keep_max < 1:
            return
        kept = {step} | self._protected
        others = [old for old in self.all_steps() if old not in kept]
        for old in others[: max(len(others) - self._keep_max + 1, 0)]:
            run_dir.remove_checkpoint(str(self._directory / f"ckpt-{old}"))

    def restore(self, path: str | pathlib.Path | None = None) -> str:
        """Restores all groups, or none if one does not fit; returns the prefix.

        Args:
            path: A prefix. None: the newest that is readable. Newer ones that
                are not no longer count: their index becomes `.index.damaged`.

        Raises:
            UserError: it is not readable, or does not fit the variables.
        """
        prefix = resolve(self._directory if path is None else path)
        with reading(prefix):
            reader = tf.train.load_checkpoint(prefix)
            _assign(reader, prefix, self._groups, _names(reader))
        if path is None:
            restored = run_dir.checkpoint_step(prefix)
            for step in filter(lambda n: n > restored, self.all_steps()):
                index = self._directory / f"ckpt-{step}.index"
                os.replace(index, f"{index}.damaged")
            run_dir.write_checkpoint_state(self._directory)
        return prefix


def newest_readable(directory: str | pathlib.Path) -> str:
    """Returns the prefix of the newest checkpoint that can be read.

    One that was cut short is passed over with a warning.

    Raises:
        UserError: there is none.
    """
    for step in reversed(all_steps(directory)):
        prefix = str(pathlib.Path(directory) / f"ckpt-{step}")
        try:
            reader = tf.train.load_checkpoint(prefix)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except _UNREADABLE:
            _log.warning("Checkpoint %s is damaged; trying an older.", prefix)
        else:
            return prefix
    raise errors.UserError(
        f"Expected a checkpoint ckpt-STEP in {directory}. Received: "
        f"{sorted(p.name for p in pathlib.Path(directory).glob('*'))}."
    )


def resolve(path: str | pathlib.Path) -> str:
    """Returns the prefix of the checkpoint that a path means.

    Args:
        path: A checkpoint's prefix, with or without `.index`, or a directory
            for the newest one in it.

    Raises:
        UserError: there is none; the message lists what is there.
    """
    prefix = str(path).removesuffix(".index")
    if os.path.isfile(prefix + ".index"):
        return prefix
    if os.path.isdir(prefix):
        return newest_readable(prefix)
    steps = all_steps(os.path.dirname(prefix) or ".")
    there = f" The steps there: {', '.join(map(str, steps))}." if steps else ""
    raise errors.UserError(
        "Expected a run's directory or a checkpoint such as runs/demo/ckpt-100."
        f" Received: {path}, which does not exist.{there}"
    )


def restore_model(prefix: str, variables: Variables) -> None:
    """Restores a model's variables, and nothing else, from a checkpoint.

    Raises:
        UserError: the checkpoint is damaged or not of this model.
    """
    with reading(prefix):
        reader = tf.train.load_checkpoint(prefix)
        names = _names(reader)
        names = {n: names[n] for n in names if n.startswith("model/")}
        _assign(reader, prefix, {"model": variables}, names)


def average(prefixes: Sequence[str], output: str) -> None:
    """Writes the mean of the model variables of several checkpoints.

    Sums are in float64. The result has no optimizer, but the last step, as
    `training/step`. A JSON file beside it says what was averaged.

    Args:
        prefixes: The checkpoints `ckpt-STEP`, each once.
        output: Prefix of the result.

    Raises:
        UserError: no checkpoints, the same one twice, or different models.
    """
    prefixes = [str(p).removesuffix(".index") for p in prefixes]
    different = set(map(os.path.realpath, prefixes))
    if not prefixes or len(different) < len(prefixes):
        raise errors.UserError(
            f"Expected checkpoints, each once. Received: {prefixes}."
        )
    step = max(run_dir.checkpoint_step(prefix) for prefix in prefixes)

    def kinds(values):
        return {name: (v.shape, v.dtype) for name, v in values.items()}

    first = _model_values(prefixes[0])
    # Not from 0.0 on: -0.0 would become 0.0, and the mean of one another.
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
    write_model(output, mean, step)
    names = [os.path.basename(prefix) for prefix in prefixes]
    record = json.dumps({"average_of": names})
    pathlib.Path(f"{output}.json").write_text(record, encoding="utf-8")


def write_model(
    prefix: str, values: Mapping[str, np.ndarray], step: int
) -> None:
    """Writes a checkpoint of a model alone, with its step."""
    model = {name: tf.Variable(value) for name, value in values.items()}
    training = {"step": tf.Variable(step, dtype=tf.int64)}
    tf.train.Checkpoint(model=model, training=training).write(f"{prefix}_temp")
    run_dir.move_checkpoint(f"{prefix}_temp", prefix)


def _model_values(prefix: str) -> dict[str, np.ndarray]:
    with reading(prefix):
        reader = tf.train.load_checkpoint(prefix)
        values = {
            name.removeprefix("model/"): reader.get_tensor(key)
            for name, key in _names(reader).items()
            if name.startswith("model/")
        }
    if not values:
        raise errors.UserError(f"Checkpoint {prefix} has no model/... in it.")
    return values


@contextlib.contextmanager
def reading(prefix: str):
    """Says of a checkpoint that cannot be read that it is damaged."""
    try:
        yield
    except errors.UserError:
        raise
    except _UNREADABLE as error:
        message = f"Checkpoint {prefix} is damaged or not there."
        raise errors.UserError(message) from error


def _names(reader) -> dict[str, str]:
    """Returns {group/name: key}; in a key "/" is ".S" and "." is ".."."""
    return {
        re.sub(
            r"\.[.S]", lambda m: "./"[m[0] == ".S"], key.removesuffix(_SUFFIX)
        ): key
        for key in reader.get_variable_to_shape_map()
        if key.endswith(_SUFFIX) and not key.startswith("save_counter")
    }


def _flat(groups: Mapping[str, Variables]) -> dict[str, tf.Variable]:
    return {f"{g}/{n}": v for g, vs in groups.items() for n, v in vs.items()}


def _assign(reader, prefix: str, groups: Mapping, names: Mapping) -> None:
    """Sets variables; compares everything before it sets anything."""
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    expected = _flat(groups)
    problems = [f"{n} is missing" for n in expected.keys() - names.keys()]
    problems += [f"{n} is not wanted" for n in names.keys() - expected.keys()]
    for name in expected.keys() & names.keys():
        key, variable = names[name], expected[name]
        there, here = shapes[key], variable.shape.as_list()
        if list(there) != here:
            problems.append(f"{name} has shape {there} and not {here}")
        elif dtypes[key] != variable.dtype:
            kind = variable.dtype.name
            problems.append(f"{name} is {dtypes[key].name} and not {kind}")
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: "
            f"{'; '.join(sorted(problems)[:5])}{more}."
        )
    for name, variable in expected.items():
        variable.assign(reader.get_tensor(names[name]))
