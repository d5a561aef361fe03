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
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.models import checkpoint_files
from relpos_tf.models import checkpoint_reader
from relpos_tf.models import run_dir
from relpos_tf.utils import files
from relpos_tf.utils import signals
from relpos_tf.utils import system_errors

_log = logging.getLogger("relpos_tf")
Variables = checkpoint_reader.Variables
all_steps = run_dir.all_steps
reading = checkpoint_reader.reading
# The variable by which an average is known: the steps it is made of.
_AVERAGE_OF = "training/average_of"


class CheckpointManager:
    """The checkpoints `ckpt-STEP` of a directory.

    Args:
        directory: str or path. Made if need be.
        groups: {group: {name: variable}}. All that is saved.
        keep_max: int. The oldest beyond that many are removed; 0: none is.
        writes: bool. False for who only restores: it leaves alone what another
            process may be writing.
        optional: Names, `group/name`, of what older checkpoints do not hold;
            restored from one of them, it stays as it is.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        groups: Mapping[str, Variables],
        keep_max: int = 20,
        writes: bool = True,
        optional: Sequence[str] = (),
    ):
        self._directory = pathlib.Path(directory)
        self._groups = {name: dict(group) for name, group in groups.items()}
        self._keep_max = keep_max
        self._optional = frozenset(optional)
        self._protected = set()
        self._checkpoint = tf.train.Checkpoint(**self._groups)
        if writes:
            self._directory.mkdir(parents=True, exist_ok=True)
            checkpoint_files.remove_left_overs(self._directory)

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

        It bears its name only once it is complete and checked. Signals wait
        until it does.

        Raises:
            UserError: it cannot be written, as on a full disk.
            RuntimeError: not every variable is in what was written.
        """
        prefix = str(self._directory / f"ckpt-{step}")
        with signals.held(), _writing(prefix):
            try:
                self._checkpoint.write(f"{prefix}_temp")
                self._check_written(f"{prefix}_temp")
                checkpoint_files.move(f"{prefix}_temp", prefix)
                self._prune(step)
                run_dir.write_checkpoint_state(self._directory)
            finally:
                checkpoint_files.remove_left_overs(self._directory)
            checkpoint_files.warn_of_little_room(
                self._directory, checkpoint_files.size(prefix)
            )
        return prefix

    def _check_written(self, prefix: str) -> None:
        """Compares names: a variable that is not saved goes unnoticed else."""
        reader = checkpoint_reader.open_checkpoint(prefix)
        written = checkpoint_reader.names(reader).keys()
        wrong = sorted(written ^ checkpoint_reader.flat(self._groups).keys())
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
            reader = checkpoint_reader.open_checkpoint(prefix)
            names = checkpoint_reader.names(reader)
            checkpoint_reader.assign(
                reader, prefix, self._groups, names, self._optional
            )
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
    checkpoint_files.warn_of_lost_indices(directory)
    for step in reversed(all_steps(directory)):
        prefix = str(pathlib.Path(directory) / f"ckpt-{step}")
        if checkpoint_reader.is_readable(prefix):
            return prefix
        _log.warning("Checkpoint %s is damaged; trying an older.", prefix)
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
        reader = checkpoint_reader.open_checkpoint(prefix)
        names = checkpoint_reader.names(reader)
        names = {n: names[n] for n in names if n.startswith("model/")}
        checkpoint_reader.assign(reader, prefix, {"model": variables}, names)


def model_shapes(prefix: str) -> dict[str, list[int]]:
    """Returns the shape of each of a checkpoint's model variables, by path.

    Raises:
        UserError: the checkpoint is damaged.
    """
    with reading(prefix):
        reader = checkpoint_reader.open_checkpoint(prefix)
        all_shapes = reader.get_variable_to_shape_map()
        return {
            name.removeprefix("model/"): all_shapes[key]
            for name, key in checkpoint_reader.names(reader).items()
            if name.startswith("model/")
        }


def average(prefixes: Sequence[str], output: str) -> None:
    """Writes the mean of the model variables of several checkpoints.

    Sums are in float64. The result has no optimizer, but the last step, as
    `training/step`, and the steps it is made of, as `training/average_of`. A
    JSON file beside it says so, too.

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
    write_model(output, mean, max(steps), average_of=steps)
    names = [os.path.basename(prefix) for prefix in prefixes]
    record = json.dumps({"average_of": names})
    with _writing(output):
        files.write(f"{output}.json", record)


def write_model(
    prefix: str,
    values: Mapping[str, np.ndarray],
    step: int,
    average_of: Sequence[int] = (),
) -> None:
    """Writes a checkpoint of a model alone, with its step.

    Args:
        prefix: str. Where it goes.
        values: The model's variables by name.
        step: int. After how many updates.
        average_of: The steps that were averaged, if any were.

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
        # Whatever has the names that TensorFlow is about to write to.
        checkpoint_files.remove_left_overs(folder)
        try:
            checkpoint.write(f"{prefix}_temp")
            checkpoint_files.move(f"{prefix}_temp", prefix)
        finally:
            checkpoint_files.remove_left_overs(folder)


def _model_values(prefix: str) -> dict[str, np.ndarray]:
    """Returns the model of a checkpoint that training wrote, by name."""
    with reading(prefix):
        reader = checkpoint_reader.open_checkpoint(prefix)
        names = checkpoint_reader.names(reader)
        values = {
            name.removeprefix("model/"): reader.get_tensor(key)
            for name, key in names.items()
            if name.startswith("model/")
        }
    if not values:
        raise errors.UserError(f"Checkpoint {prefix} has no model/... in it.")
    # Averages of earlier versions have the file only.
    if _AVERAGE_OF in names or os.path.isfile(f"{prefix}.json"):
        raise errors.UserError(
            "Expected checkpoints that training wrote: an average of averages "
            f"counts some of them twice. Received: {prefix}, an average."
        )
    return values


@contextlib.contextmanager
def _writing(prefix: str) -> Iterator[None]:
    """Says of a checkpoint that it cannot be written, and why."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise errors.UserError(
            f"Cannot write checkpoint {prefix}: {system_errors.cause(error)} "
            f"{system_errors.RESUME_ADVICE}"
        ) from error
