"""The runs of a comparison: where they are, and how far. No TensorFlow."""

import dataclasses
import glob
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import variants as variants_lib
from relpos_tf.models import run_dir
from relpos_tf.utils import files

# What compare calls the directory of a run.
_WITH_SEED = re.compile(r"(.+)-seed(\d+)")
# Decided by how a run is carried out, or by its data, and not by its set.
_NOT_COMPARED = frozenset({"vocab_size", "train_steps"})


@dataclasses.dataclass(frozen=True)
class Run:
    """One training of one variant.

    Attributes:
        label: str. The variant.
        seed: int or None. `--random_seed`; None where it is not known.
        path: Its directory.
        hparams_set: str. "" where it is not known.
        overrides: str. Changes to the set.
    """

    label: str
    seed: int | None
    path: pathlib.Path
    hparams_set: str = ""
    overrides: str = ""

    @property
    def name(self) -> str:
        """What its files are called."""
        return file_name(self.label, self.seed)

    @property
    def title(self) -> str:
        """What messages call it."""
        return (
            self.label
            if self.seed is None
            else f"{self.label} seed {self.seed}"
        )

    @property
    def files(self) -> run_dir.RunDir:
        """Its directory."""
        return run_dir.RunDir(self.path)


def file_name(label: str, seed: int | None) -> str:
    """Returns a name for files, of a label and a seed.

    Example:

    >>> file_name("relative+query", 2), file_name("a/b c", None)
    ('relative+query-seed2', 'a_b_c')
    """
    safe = re.sub(r"[^\w.=+-]", "_", label).lstrip(".") or "_"
    return safe if seed is None else f"{safe}-seed{seed}"


def plan(
    variants: Sequence[variants_lib.Variant],
    seeds: Sequence[int],
    folder: pathlib.Path,
    problem: str,
    train_steps: int,
) -> list[Run]:
    """Returns the runs to train, seed by seed.

    Args:
        variants: What to train.
        seeds: A run of each variant for each.
        folder: Where the runs' directories are, or will be.
        problem: str. The problem's name.
        train_steps: int. The updates of each.

    Raises:
        UserError: a directory has another run.
    """
    found = []
    for seed in seeds:
        for one in variants:
            path = folder / file_name(one.label, seed)
            run = Run(one.label, seed, path, one.hparams_set, one.overrides)
            check_begun(run, one.hparams, problem, train_steps)
            found.append(run)
    if len({run.path for run in found}) < len(found):
        raise errors.UserError(
            "Expected labels that make different file names. Received: "
            f"{', '.join(one.label for one in variants)}."
        )
    return found


def find(text: str) -> list[Run]:
    """Returns finished runs that a user names.

    Args:
        text: str. Directories, separated by commas; `LABEL=DIR` to call one
            differently; `*` and `?` stand for anything. A name that ends in
            `-seedN` is one of several runs of a label.

    Raises:
        UserError: there is no such run, or the same label and seed twice.
    """
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        label, folders = _label_and_folders(item)
        found += [_read(folder, label) for folder in folders]
    names = [run.name for run in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.UserError(
            "Expected a label of its own for each run, or LABEL=DIR of runs "
            f"with different seeds. Received twice: {', '.join(twice)}."
        )
    return found


def final_checkpoint(run: Run, step: int = 0) -> str:
    """Returns the prefix of the model that a run has made.

    That is the average of its last checkpoints where the set asks for it and
    it is there, else the last checkpoint.

    Args:
        run: The run.
        step: int. The last update; 0: the newest there is.

    Raises:
        UserError: there is none.
    """
    steps = run_dir.all_steps(run.path)
    if not steps or (step and step not in steps):
        wanted = f"ckpt-{step}" if step else "a checkpoint"
        raise errors.UserError(
            f"Expected {wanted} in {run.path}. Received: "
            f"{', '.join(map(str, steps)) or 'none'}."
        )
    step = step or steps[-1]
    averaged = run.path / "average" / f"ckpt-{step}"
    if run.files.read_hparams().average_checkpoints > 1:
        if averaged.with_name(f"{averaged.name}.index").is_file():
            return str(averaged)
    return str(run.path / f"ckpt-{step}")


def is_finished(run: Run, train_steps: int) -> bool:
    """Says whether nothing is left to train, to evaluate or to average."""
    steps = run_dir.all_steps(run.path)
    if not run.files.has_hparams() or train_steps not in steps:
        return False
    if not any(
        event["step"] == train_steps and event["split"] == "dev"
        for event in run.files.read_metrics()
    ):
        return False
    averages = run.files.read_hparams().average_checkpoints
    if min(averages, len(steps)) < 2:
        return True
    return train_steps in run_dir.all_steps(run.path / "average")


def check_begun(
    run: Run, hparams: hparam.HParams, problem: str, train_steps: int
) -> None:
    """Looks at what is in a run's directory before training goes on there.

    Args:
        run: The run; its directory may be missing.
        hparams: What it is to be trained with.
        problem: str. The problem's name.
        train_steps: int. At which update it is to end.

    Raises:
        UserError: what is there is not the beginning of this run.
    """
    if not run.files.has_hparams():
        return
    differences = hparam.differences(run.files.read_hparams(), hparams)
    listed = [
        f"{name}={old} (now {new})"
        for name, (old, new) in differences.items()
        if name not in _NOT_COMPARED
    ]
    flags = run.files.read_flags()
    for name, now in (("random_seed", str(run.seed)), ("problem", problem)):
        if flags.get(name, now) != now:
            listed.append(f"--{name}={flags[name]} (now {now})")
    if listed:
        raise errors.UserError(
            f"The run {run.path} was begun with {', '.join(listed)}. Name "
            "another --output_dir, or remove that run."
        )
    steps = run_dir.all_steps(run.path)
    if steps and steps[-1] > train_steps and train_steps not in steps:
        raise errors.UserError(
            f"The run {run.path} has gone on to step {steps[-1]} and has no "
            f"checkpoint of step {train_steps}. Give --train_steps="
            f"{steps[-1]}, or name another --output_dir."
        )


def problem_of(run: Run) -> dict[str, Any]:
    """Returns what a run learns, and the tokenizer it learns with.

    Returns:
        What its problem.json says, with `tokenizer_sha256` in any case.

    Raises:
        UserError: it does not say, as in an imported run.
    """
    problem = run.files.read_problem()
    tokenizer = pathlib.Path(run.files.tokenizer_path)
    if not problem.get("problem") or not tokenizer.is_file():
        raise errors.UserError(
            "Expected a run with a tokenizer and a problem.json that names its "
            f"problem. Received: {run.path}. Train the run on a problem."
        )
    return problem | {"tokenizer_sha256": files.sha256(tokenizer)}


def _label_and_folders(item):
    """Returns the label, or None, and the directories of an item."""
    for place in [-1, *(m.start() for m in re.finditer("=", item))]:
        # A directory's name may hold "=" as well, as in k=2-seed1.
        folders = _folders(item[place + 1 :])
        if folders:
            return (item[:place] if place >= 0 else None), folders
    raise errors.UserError(
        "Expected the directories of finished runs, or LABEL=DIR. "
        f"Received: {item!r}, where no run is."
    )


def _folders(pattern):
    paths = [pattern]
    if not pathlib.Path(pattern).is_dir():
        # A bracket is a bracket.
        paths = glob.glob(pattern.replace("[", "[[]"))
    if not pattern:
        return []
    found = [pathlib.Path(path) for path in sorted(paths)]
    return [path for path in found if (path / run_dir.HPARAMS).is_file()]


def _read(folder, label):
    """Returns the run in a directory."""
    flags = run_dir.RunDir(folder).read_flags()
    match = _WITH_SEED.fullmatch(folder.resolve().name)
    seed = flags.get("random_seed", match[2] if match else "")
    own = match[1] if match else folder.resolve().name
    return Run(
        label=label or own,
        seed=int(seed) if seed.isdecimal() else None,
        path=folder,
        hparams_set=flags.get("hparams_set", ""),
        overrides=flags.get("hparams", ""),
    )
