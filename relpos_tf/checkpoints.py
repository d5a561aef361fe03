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
import shutil
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf import errors

_log = logging.getLogger("relpos_tf")
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_UNREADABLE = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
Variables = Mapping[str, tf.Variable]


class CheckpointManager:
    """The checkpoints `ckpt-STEP` of a directory.

    Args:
        directory: str or path. Made if need be.
        groups: {group: {name: variable}}. All that is saved.
        keep_max: int. The oldest beyond that many are removed; 0: none is.

    Raises:
        ValueError: `keep_max` is negative.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        groups: Mapping[str, Variables],
        keep_max: int = 20,
    ):
        if keep_max < 0:
            raise ValueError(
                f"`keep_max` must be at least 0. Received: keep_max={keep_max}."
            )
        self._directory = pathlib.Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._groups = {name: dict(group) for name, group in groups.items()}
        self._keep_max = keep_max
        self._protected = set()
        self._checkpoint = tf.train.Checkpoint(**self._groups)
        _remove_left_overs(self._directory)

    def all_steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, ascending."""
        return all_steps(self._directory)

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, or None."""
        steps = self.all_steps()
        return str(self._directory / f"ckpt-{steps[-1]}") if steps else None

    def protect(self, *steps: int) -> None:
        """Keeps these checkpoints, and only these, whatever their age.

        They do not count towards `keep_max`.
        """
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
            _move(f"{prefix}_temp", prefix)
            self._prune(step)
            _write_state(self._directory)
        except (tf.errors.OpError, OSError) as error:
            raise errors.UserError(
                f"Cannot write checkpoint {prefix}: "
                f"{str(error).splitlines()[0]} Make room and run again: the "
                "run goes on from its last checkpoint."
            ) from error
        finally:
            for left_over in self._directory.glob(f"ckpt-{step}_temp*"):
                _remove(left_over)
        return prefix

    def _check_written(self, prefix: str) -> None:
        """Compares names: a variable that is not saved goes unnoticed else."""
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

    def _prune(self, step: int) -> None:
        """Removes the oldest checkpoints, never the one just written."""
        if not self._keep_max:
            return
        kept = {step} | self._protected
        others = [old for old in self.all_steps() if old not in kept]
        for old in others[: max(len(others) - self._keep_max + 1, 0)]:
            _remove_checkpoint(str(self._directory / f"ckpt-{old}"))

    def restore(self, path: str | pathlib.Path | None = None) -> str:
        """Restores every group, or, if the checkpoint does not fit, none.

        Args:
            path: The checkpoint's prefix. None: the newest that is readable.
                Newer ones that are not are set aside, `.index.damaged`, so
                that they count as checkpoints no longer.

        Returns:
            The prefix of the checkpoint.

        Raises:
            UserError: it is not readable, or does not fit the variables.
        """
        prefix = resolve(self._directory if path is None else path)
        reader = _open(prefix)
        _assign(reader, prefix, self._groups, _names(reader))
        if path is None:
            restored = all_steps(self._directory).index(_step(prefix))
            for step in all_steps(self._directory)[restored + 1 :]:
                index = self._directory / f"ckpt-{step}.index"
                os.replace(index, f"{index}.damaged")
            _write_state(self._directory)
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
    folder = os.path.dirname(prefix) or "."
    there = [f"ckpt-{step}" for step in all_steps(folder)]
    raise errors.UserError(
        "Expected a run's directory or a checkpoint such as runs/demo/ckpt-100."
        f" Received: {path}, which does not exist. Checkpoints in {folder}: "
        f"{', '.join(there) or 'none'}."
    )


def restore_model(prefix: str, variables: Variables) -> None:
    """Restores a model's variables, and nothing else, from a checkpoint.

    Raises:
        UserError: the checkpoint is damaged or not of this model.
    """
    reader = _open(prefix)
    names = {n: k for n, k in _names(reader).items() if n.startswith("model/")}
    _assign(reader, prefix, {"model": variables}, names)


def average(prefixes: Sequence[str], output: str) -> None:
    """Writes the mean of the model variables of several checkpoints.

    The result has no optimizer: training does not go on from it. It has the
    last step, `training/step`, where the names tell. A JSON file beside it
    says what was averaged. Sums are in float64.

    Args:
        prefixes: The checkpoints, each once.
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
    sums, steps = {}, [_step(prefix) for prefix in prefixes]
    for number, prefix in enumerate(prefixes):
        values = _model_values(prefix)
        if number == 0:
            first = values
        if _kinds(values) != _kinds(first):
            raise errors.UserError(
                f"Expected checkpoints of one model. Received: {prefixes[0]} "
                f"and {prefix}, whose variables differ."
            )
        for name, value in values.items():
            value = value.astype(np.float64)
            # 0.0 + -0.0 is 0.0: the mean of one must be that one, bit for bit.
            sums[name] = sums[name] + value if name in sums else value
    mean = {
        name: tf.Variable((sums[name] / len(prefixes)).astype(value.dtype))
        for name, value in first.items()
    }
    groups = {"model": mean}
    record = {"average_of": [os.path.basename(p) for p in prefixes]}
    if None not in steps:
        record["step"] = max(steps)
        groups["training"] = {"step": tf.Variable(max(steps), dtype=tf.int64)}
    tf.train.Checkpoint(**groups).write(f"{output}_temp")
    _move(f"{output}_temp", output)
    with open(f"{output}.json", "w", encoding="utf-8") as file:
        json.dump(record, file)


def _model_values(prefix: str) -> dict[str, np.ndarray]:
    reader = _open(prefix)
    try:
        values = {
            name.removeprefix("model/"): reader.get_tensor(key)
            for name, key in _names(reader).items()
            if name.startswith("model/")
        }
    except _UNREADABLE as error:
        raise errors.UserError(f"Checkpoint {prefix} is damaged.") from error
    if not values:
        raise errors.UserError(
            f"Expected a checkpoint with a model. Received: {prefix}, which "
            "has no variable model/..."
        )
    return values


def _kinds(values: Mapping[str, np.ndarray]) -> dict:
    return {name: (v.shape, v.dtype) for name, v in values.items()}


def _step(prefix: str) -> int | None:
    match = re.fullmatch(r"ckpt-(\d+)", os.path.basename(prefix))
    return int(match.group(1)) if match else None


def _open(prefix: str):
    try:
        return tf.train.load_checkpoint(prefix)
    except _UNREADABLE as error:
        raise errors.UserError(
            f"Checkpoint {prefix} is damaged or not there."
        ) from error


def _names(reader) -> dict[str, str]:
    """Returns {group/name: key in the file}.

    In the file "/" is ".S" and "." is "..", to be read from the left.
    """
    return {
        re.sub(
            r"\.(.)",
            lambda match: "/" if match[1] == "S" else match[1],
            key.removesuffix(_SUFFIX),
        ): key
        for key in reader.get_variable_to_shape_map()
        if key.endswith(_SUFFIX) and not key.startswith("save_counter")
    }


def _assign(
    reader,
    prefix: str,
    groups: Mapping[str, Variables],
    names: Mapping[str, str],
) -> None:
    """Sets variables from a checkpoint that has exactly them.

    Everything is compared before anything is set.
    """
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    expected = {
        f"{group}/{name}": variable
        for group, variables in groups.items()
        for name, variable in variables.items()
    }
    problems = [f"{n} is missing" for n in expected.keys() - names.keys()]
    problems += [f"{n} is not wanted" for n in names.keys() - expected.keys()]
    for name in expected.keys() & names.keys():
        key, variable = names[name], expected[name]
        there, here = shapes[key], variable.shape.as_list()
        if list(there) != here:
            problems.append(f"{name} has shape {there} and not {here}")
        elif dtypes[key] != variable.dtype:
            problems.append(
                f"{name} is {dtypes[key].name} and not {variable.dtype.name}"
            )
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: "
            f"{'; '.join(sorted(problems)[:5])}{more}."
        )
    try:
        for name, variable in expected.items():
            variable.assign(reader.get_tensor(names[name]))
    except _UNREADABLE as error:
        raise errors.UserError(f"Checkpoint {prefix} is damaged.") from error


def _move(source: str, target: str) -> None:
    """Renames a checkpoint; the index, which makes it one, goes last."""
    _remove_checkpoint(target)
    folder, name = os.path.split(source)
    for path in pathlib.Path(folder).glob(f"{name}.data-*"):
        os.replace(path, f"{target}{path.name.removeprefix(name)}")
    os.replace(f"{source}.index", f"{target}.index")


def _remove_checkpoint(prefix: str) -> None:
    """Removes the files of a checkpoint; the index goes first."""
    folder, name = os.path.split(prefix)
    pathlib.Path(f"{prefix}.index").unlink(missing_ok=True)
    for path in pathlib.Path(folder).glob(f"{name}.*"):
        path.unlink()


def _remove_left_overs(directory: pathlib.Path) -> None:
    """Removes what kills have left: parts, and data without an index."""
    for path in directory.glob("ckpt-*_temp*"):
        _remove(path)
    for path in directory.glob("ckpt-*.data-*"):
        if not list(directory.glob(f"{path.name.split('.')[0]}.index*")):
            _remove(path)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _write_state(directory: pathlib.Path) -> None:
    """Writes `checkpoint`, where TensorFlow's own tools look."""
    names = [f"ckpt-{step}" for step in all_steps(directory)]
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    partial = directory / ".checkpoint.part"
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(partial, directory / "checkpoint")
