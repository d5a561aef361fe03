"""Checkpoints of named variables: save, restore, average.

A checkpoint holds an explicit dictionary {group: {name: variable}}, because
what TensorFlow finds by itself in a Keras 3 model is not complete: layers held
in lists are left out, and no restore notices.
"""

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

_log = logging.getLogger("relpos_tf")
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
Variables = Mapping[str, tf.Variable]


class CheckpointManager:
    """The checkpoints `ckpt-STEP` of a directory.

    Args:
        directory: str or path. Made if need be.
        groups: {group: {name: variable}}. All that is saved.
        keep_max: int. The oldest beyond that many are removed.
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
        self._checkpoint = tf.train.Checkpoint(**self._groups)
        for left_over in self._directory.glob("ckpt-*_temp*"):
            _remove(left_over)

    def all_steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, ascending."""
        return all_steps(self._directory)

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, None if there is none."""
        steps = self.all_steps()
        return str(self._directory / f"ckpt-{steps[-1]}") if steps else None

    def save(self, step: int) -> str:
        """Writes `ckpt-STEP` and returns its prefix.

        Raises:
            RuntimeError: not every variable is in what was written.
        """
        prefix = str(self._directory / f"ckpt-{step}")
        self._checkpoint.write(prefix)
        written = set(_names(tf.train.load_checkpoint(prefix)))
        expected = {
            f"{group}/{name}"
            for group, variables in self._groups.items()
            for name in variables
        }
        if written != expected:
            raise RuntimeError(
                f"Checkpoint {prefix} does not hold what it should: "
                f"{sorted(written ^ expected)}."
            )
        for old in self.all_steps()[: -self._keep_max]:
            for path in self._directory.glob(f"ckpt-{old}.*"):
                path.unlink()
        return prefix

    def restore(self) -> str:
        """Restores every group from the newest checkpoint that is readable.

        Returns:
            The prefix of that checkpoint.

        Raises:
            UserError: none is readable, or it does not fit the variables.
        """
        prefix = newest_readable(self._directory)
        reader = tf.train.load_checkpoint(prefix)
        for group, variables in self._groups.items():
            _assign(reader, prefix, group, variables)
        return prefix


def all_steps(directory: str | pathlib.Path) -> list[int]:
    """Returns the steps of the checkpoints in a directory, ascending."""
    found = []
    for path in pathlib.Path(directory).glob("ckpt-*.index"):
        match = re.fullmatch(r"ckpt-(\d+)\.index", path.name)
        if match:
            found.append(int(match.group(1)))
    return sorted(found)


def newest_readable(directory: str | pathlib.Path) -> str:
    """Returns the prefix of the newest checkpoint that can be read.

    One that cannot, because a kill or a full disk cut it short, is passed
    over with a warning.

    Raises:
        UserError: there is none.
    """
    for step in reversed(all_steps(directory)):
        prefix = str(pathlib.Path(directory) / f"ckpt-{step}")
        try:
            reader = tf.train.load_checkpoint(prefix)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except (tf.errors.OpError, ValueError, RuntimeError, IndexError):
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
        UserError: there is none.
    """
    prefix = str(path).removesuffix(".index")
    if os.path.isfile(prefix + ".index"):
        return prefix
    if os.path.isdir(prefix):
        return newest_readable(prefix)
    raise errors.UserError(
        "Expected a run's directory or a checkpoint such as runs/demo/ckpt-100."
        f" Received: {path}, which does not exist."
    )


def restore_model(prefix: str, variables: Variables) -> None:
    """Restores a model's variables, and nothing else, from a checkpoint.

    Raises:
        UserError: the checkpoint is damaged or not of this model.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        _assign(reader, prefix, "model", variables)
    except (tf.errors.OpError, IndexError) as error:
        raise errors.UserError(f"Checkpoint {prefix} is damaged.") from error


def average(prefixes: Sequence[str], output: str) -> None:
    """Writes the mean of the model variables of several checkpoints.

    The result has no optimizer: training does not go on from it. A JSON file
    beside it names what was averaged.

    Args:
        prefixes: The checkpoints, each once.
        output: Prefix of the result.

    Raises:
        UserError: no checkpoints, the same one twice, or different models.
    """
    prefixes = [str(p).removesuffix(".index") for p in prefixes]
    if not prefixes or len(set(map(os.path.realpath, prefixes))) < len(prefixes):
        raise errors.UserError(
            f"Expected checkpoints, each once. Received: {prefixes}."
        )
    sums = {}
    for number, prefix in enumerate(prefixes):
        values = _model_values(prefix)
        if number == 0:
            first = values
        if {n: v.shape for n, v in values.items()} != {
            n: v.shape for n, v in first.items()
        }:
            raise errors.UserError(
                f"Expected checkpoints of one model. Received: {prefixes[0]} "
                f"and {prefix}, whose variables differ."
            )
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
    mean = {
        name: tf.Variable((sums[name] / len(prefixes)).astype(value.dtype))
        for name, value in first.items()
    }
    tf.train.Checkpoint(model=mean).write(output)
    with open(f"{output}.json", "w", encoding="utf-8") as file:
        json.dump({"average_of": [os.path.basename(p) for p in prefixes]}, file)


def _model_values(prefix: str) -> dict[str, np.ndarray]:
    try:
        reader = tf.train.load_checkpoint(prefix)
        return {
            name.removeprefix("model/"): reader.get_tensor(key)
            for name, key in _names(reader).items()
            if name.startswith("model/")
        }
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise errors.UserError(f"Cannot read checkpoint {prefix}.") from error


def _names(reader) -> dict[str, str]:
    """Returns `{group/name: key in the file}`; "/" is escaped in the file."""
    return {
        key.removesuffix(_SUFFIX).replace(".S", "/").replace("..", "."): key
        for key in reader.get_variable_to_shape_map()
        if key.endswith(_SUFFIX) and not key.startswith("save_counter")
    }


def _assign(reader, prefix: str, group: str, variables: Variables) -> None:
    """Sets a group's variables from a checkpoint that has exactly them."""
    names = _names(reader)
    shapes = reader.get_variable_to_shape_map()
    found = {n for n in names if n.startswith(f"{group}/")}
    expected = {f"{group}/{name}": v for name, v in variables.items()}
    problems = [f"{name} is missing" for name in expected.keys() - found]
    problems += [f"{name} is not wanted" for name in found - expected.keys()]
    for name in expected.keys() & found:
        there, here = shapes[names[name]], expected[name].shape.as_list()
        if list(there) != here:
            problems.append(f"{name} has shape {there} and not {here}")
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: "
            f"{'; '.join(sorted(problems)[:5])}{more}."
        )
    for name, variable in expected.items():
        variable.assign(reader.get_tensor(names[name]))


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        tf.io.gfile.rmtree(str(path))
    else:
        path.unlink()
