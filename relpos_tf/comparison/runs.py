"""The runs of a comparison: directories and training. No TensorFlow."""

import dataclasses
import glob
import logging
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.comparison import jobs
from relpos_tf.comparison import measures
from relpos_tf.comparison import variants as variants_lib
from relpos_tf.models import averages
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest
from relpos_tf.problems import problem as problem_lib
from relpos_tf.utils import checked_json

_log = logging.getLogger("relpos_tf")
# How compare names the directory of a run.
_WITH_SEED = re.compile(r"(.+)-seed(\d+)")
# Flags of the trainer on which the final model depends, beside its hparams.
_COMPARED_FLAGS = "random_seed", "problem", "train_weights"


@dataclasses.dataclass(frozen=True)
class Run:
    """The training of one variant with one seed.

    Attributes:
        label: str. The variant.
        seed: int. `--random_seed`; None if unknown.
        path: Its directory.
        hparams_set: str. "" if unknown.
        overrides: str. Changes to the set.
        point: str. The last of them, those of a grid's point.
    """

    label: str
    seed: int | None
    path: pathlib.Path
    hparams_set: str = ""
    overrides: str = ""
    point: str = ""

    @property
    def name(self) -> str:
        """Its name in file names."""
        return file_name(self.label, self.seed, self.point)

    @property
    def title(self) -> str:
        """Its name in messages."""
        seed = "" if self.seed is None else f" seed {self.seed}"
        point = f" {self.point}" if self.point else ""
        return f"{self.label}{point}{seed}"

    @property
    def files(self) -> run_dir.RunDir:
        """Its directory."""
        return run_dir.RunDir(self.path)

    def versions(self) -> dict[str, str]:
        """Returns the content of versions.json."""
        return checked_json.read(self.path / run_dir.VERSIONS)

    def describe(self, checkpoint: str) -> dict[str, Any]:
        """Returns the facts of the training up to a checkpoint."""
        step = run_dir.checkpoint_step(checkpoint)
        hparams = self.files.read_hparams()
        return {
            "hparams_set": self.hparams_set,
            "hparams": self.overrides,
            "train_steps": step,
            "beam_size": hparams.beam_size,
            "alpha": hparams.alpha,
            "checkpoint": checkpoint,
            "output_dir": str(self.path),
            **measures.of_training(self.files.read_metrics(), step),
        }


def file_name(label: str, seed: int | None, point: str = "") -> str:
    """Returns a file name for a label, a seed and a grid's point.

    Example:
    >>> file_name("relative+query", 2), file_name("a/b c", None)
    ('relative+query-seed2', 'a_b_c')
    >>> file_name("rel", 1, "alpha=1,pos=emb")
    'rel+alpha=1+pos=emb-seed1'
    """
    label = "+".join([label, *filter(None, point.split(","))])
    safe = re.sub(r"[^\w.=+-]", "_", label).lstrip(".") or "_"
    return safe if seed is None else f"{safe}-seed{seed}"


def of_variants(
    variants: Sequence[variants_lib.Variant],
    seeds: Sequence[int],
    folder: pathlib.Path,
    flags: Mapping[str, object],
    train_steps: int,
) -> list[Run]:
    """Returns the runs of variants, seed by seed.

    Args:
        variants: The variants to train.
        seeds: The seeds, each for all variants.
        folder: Folder of the runs' directories, which may be missing.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. Updates of each run.

    Raises:
        UserError: a directory has another run.
    """
    runs = []
    for seed in seeds:
        for one in variants:
            path = folder / file_name(one.label, seed, one.point)
            of_set = one.hparams_set, one.overrides, one.point
            run = Run(one.label, seed, path, *of_set)
            check_resumable(run, one.hparams, flags, train_steps)
            runs.append(run)
    if len({run.path for run in runs}) < len(runs):
        raise errors.UserError(
            "Expected labels that make different file names. Received: "
            f"{', '.join(one.label for one in variants)}."
        )
    return runs


def find(text: str) -> list[Run]:
    """Returns the finished runs of `--runs`.

    Args:
        text: str. Directories, separated by commas. LABEL=DIR gives another
            label; `*` and `?` match as in a shell. A directory LABEL-seedN is
            one of several runs of a label.

    Raises:
        UserError: there is no such run, or the same label and seed twice, or
            runs of one label were trained otherwise.
    """
    runs = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        label, folders = _label_and_folders(item)
        runs += [_read(folder, label) for folder in folders]
    variants_lib.check_labels([run.name for run in runs])
    _check_alike(runs)
    return runs


def _check_alike(runs):
    """Raises UserError if runs of one label were trained otherwise."""
    firsts: dict[str, tuple[pathlib.Path, dict[str, Any]]] = {}
    for run in runs:
        own = run.files.read_hparams().to_dict()
        own["train_weights"] = run.files.read_flags().get("train_weights", "")
        for name in variants_lib.NOT_OF_SETS:
            del own[name]
        path, first = firsts.setdefault(run.label, (run.path, own))
        if changed := [name for name in own if own[name] != first[name]]:
            raise errors.UserError(
                "Expected the same hparams and weights for all runs of "
                f"{run.label}. Received: {path} and {run.path}, which differ "
                f"in {', '.join(changed)}."
            )


def final_checkpoint(run: Run, step: int = 0) -> str:
    """Returns the prefix of a run's final model.

    It is the first of `checkpoints.candidates`, of a step if one is given.

    Args:
        run: The run.
        step: int. The last step; 0: the newest.

    Raises:
        UserError: there is no such checkpoint.
    """
    for prefix in checkpoints.candidates(run.path):
        if step in (0, run_dir.checkpoint_step(prefix)):
            return prefix
    return checkpoints.candidates(run.path / f"ckpt-{step}")[0]  # raises


def is_finished(run: Run, train_steps: int) -> bool:
    """Says whether a run is trained, evaluated and averaged."""
    steps = run_dir.all_steps(run.path)
    if not run.files.has_hparams() or train_steps not in steps:
        return False
    if not any(
        event["step"] == train_steps and event["split"] == "dev"
        for event in run.files.read_metrics()
    ):
        return False
    hparams = run.files.read_hparams()
    return not averages.is_missing(run.path, hparams, train_steps)


def check_resumable(
    run: Run,
    hparams: hparam.HParams,
    flags: Mapping[str, object],
    train_steps: int,
) -> None:
    """Checks that a run can be trained in its directory, or resumed there.

    Args:
        run: The run; its directory may be missing, or have no checkpoint.
        hparams: The hparams to train it with.
        flags: Flags of the trainer, by name.
        train_steps: int. Its last step.

    Raises:
        UserError: the directory has another run.
    """
    if not run.files.is_trained():
        return
    changes = hparam.changes(run.files.read_hparams(), hparams)
    listed = [changes[n] for n in changes if n not in variants_lib.NOT_OF_SETS]
    names = [*_COMPARED_FLAGS]
    if hparams.average_checkpoints > 1:
        names.append("local_eval_frequency")  # which decides what there is
    now = dict(flags) | {"random_seed": run.seed}
    listed += [
        f"--{name}={old} (now {now[name]})"
        for name, old in run.files.read_flags().items()
        if name in names and name in now and old != str(now[name])
    ]
    if listed:
        raise errors.UserError(
            f"The run {run.path} was started with {', '.join(listed)}. Name "
            "another --output_dir, or remove that run."
        )
    steps = run_dir.all_steps(run.path)
    if steps and steps[-1] > train_steps and not is_finished(run, train_steps):
        raise errors.UserError(
            f"The run {run.path} has gone on to step {steps[-1]} and has no "
            f"result of step {train_steps}. Give --train_steps="
            f"{steps[-1]}, or name another --output_dir."
        )


def check_text(
    runs: Sequence[Run],
    data_dir: str | pathlib.Path,
    problem: problem_lib.Problem,
) -> None:
    """Checks that runs have the text of a problem, wherever its files lie.

    Without this, finished runs would be scored on the text that they know, and
    other files would be ignored.

    Args:
        runs: The runs. Those that have not begun, and those without
            problem.json, as imported runs, are not checked.
        data_dir: Folder of prepared data.
        problem: The problem, of `translate.files_problem`.

    Raises:
        UserError: a run has other text, or a vocabulary of another size.
    """
    data = None
    if problem.is_prepared(data_dir):
        data = manifest.fingerprints(problem.manifest(data_dir))
    for run in runs:
        known = run.files.is_trained() and run.files.read_problem().get("data")
        if known and known != data:
            raise errors.UserError(
                f"The run {run.path} was made with other text, or with another "
                f"--vocab_size, or its data are no longer in {data_dir}. Give "
                "the same text, or name another --output_dir."
            )


def train(
    runs: Sequence[Run],
    flags: Mapping[str, object],
    train_steps: int,
    log_folder: pathlib.Path,
) -> None:
    """Trains the runs that are not finished; resumes those that have begun.

    A run that fails is logged and does not stop the others.

    Args:
        runs: All runs, which have been checked.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. Updates of each run.
        log_folder: Gets a log file for each run.

    Raises:
        KeyboardInterrupt: a signal came; the run has saved its state.
    """
    own = [f"--usr_dir={path}" for path in registry.usr_dirs]
    waiting = []
    for run in runs:
        if is_finished(run, train_steps):
            _log.info("%s is trained.", run.title)
            continue
        words = ["-m", "relpos_tf.bin.trainer"]
        words += [*arguments(run, flags, train_steps), *own]
        log = log_folder / f"{run.name}.log"
        waiting.append(jobs.Job(run.title, words, log))
    jobs.run(waiting, "Training")


def arguments(
    run: Run, flags: Mapping[str, object], train_steps: int
) -> list[str]:
    """Returns the trainer's flags for a run, but --usr_dir."""
    own = {
        "hparams_set": run.hparams_set,
        "hparams": run.overrides,
        "random_seed": run.seed,
        "output_dir": run.path,
        "train_steps": train_steps,
        "log_step_count_steps": min(100, max(train_steps // 10, 1)),
    }
    values = {**flags, **own}
    return [f"--{k}={v}" for k, v in values.items() if v not in ("", None)]


def _label_and_folders(item):
    """Returns the label, or None, and the directories of an item."""
    for index in [-1, *(m.start() for m in re.finditer("=", item))]:
        # A directory's name may hold "=" as well, as in k=2-seed1.
        folders = _folders(item[index + 1 :])
        if folders:
            return (item[:index] if index >= 0 else None), folders
    raise errors.UserError(
        "Expected the directories of finished runs, or LABEL=DIR. "
        f"Received: {item!r}, which has no run."
    )


def _folders(pattern):
    """Returns the directories of runs that match a pattern, by name."""
    if not pattern:
        return []
    names = [pattern]
    if not pathlib.Path(pattern).is_dir():
        # Brackets stand for themselves.
        names = glob.glob(pattern.replace("[", "[[]"))
    paths = map(pathlib.Path, sorted(names))
    return [path for path in paths if (path / run_dir.HPARAMS).is_file()]


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
