"""Prepared data, and runs of the tiny model that was trained on them."""

import atexit
import contextlib
import functools
import pathlib
import shutil
import tempfile
from unittest import mock

import numpy as np

from relpos_tf.comparison import jobs
from relpos_tf.comparison import report
from relpos_tf.comparison import score_process
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import model_engine
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.training import evaluation
from relpos_tf.utils import files
from tests import tiny_run
from tests.problems import problem_test

PAIRS = list(zip(tiny_run.TEXT[::2], tiny_run.TEXT[1::2], strict=True))
TEST = [*PAIRS, ("days", "Tage"), ("", "Nichts")]


@functools.cache
def made() -> pathlib.Path:
    """Makes, once in a process, a folder with `data` and `a-seed1`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="compared."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run = run_dir.RunDir(folder / "a-seed1")
    shutil.copytree(tiny_run.path(), run.path)
    splits = {"train": PAIRS, "dev": PAIRS[1:], "test": TEST}
    problem = problem_test.make(
        name="pairs",
        splits={x: lambda tmp_dir, x=x: splits[x] for x in splits},
        tokenizer_file=run.tokenizer_path,
    )
    manifest = problem.prepare(folder / "data")
    checksum = files.sha256(run.tokenizer_path)
    run.write_problem(
        {
            **tiny_run.PROBLEM,
            "target_language": "de",
            "tokenizer_sha256": checksum,
            "data": manifest_lib.fingerprints(manifest),
        }
    )
    run.write_versions()
    run.write_flags("--random_seed=1\n--hparams_set=tiny\n--hparams=a=1\n")
    for step, rate in ((4, 2.0), (7, 3.0)):
        run.append_metrics(
            {
                "step": step,
                "split": "train",
                "loss": 9.0 - step,
                "steps_per_second": rate,
                "tokens_per_second": 5 * rate,
                "target_tokens": 20.0,
                "peak_memory_mb": 100.0 + step,
            }
        )
    run.append_metrics({"step": 7, "split": "dev", "loss": 3.0, "bleu": 1.0})
    return folder


def copy(folder: pathlib.Path) -> pathlib.Path:
    """Copies `made()` to a folder."""
    return shutil.copytree(made(), folder, dirs_exist_ok=True)


def add_run(folder: pathlib.Path, name: str, seed: int = 1, shift: int = 1):
    """Adds a run with other weights to a copy."""
    path = shutil.copytree(folder / "a-seed1", folder / name)
    model = loading.load_model(path)
    values = {
        v.path: np.roll(v.numpy(), shift, axis=0) * 1.5 for v in model.variables
    }
    run_dir.remove_checkpoint(str(path / "ckpt-7"))
    checkpoints.write_model(str(path / "ckpt-7"), values, 7)
    run_dir.RunDir(path).write_flags(f"--random_seed={seed}\n")
    return path


def quick_search(engine, items, settings):
    """Stands in for a search: its output depends on weights and settings."""
    total = sum(np.abs(v.numpy()).sum() for v in engine.model.variables)
    search = settings.beam_size, settings.alpha, settings.extra_length
    return [
        engines.Translation(
            [f"{total:.3f} {item.content} {search}"], [0.0], True
        )
        for item in items
    ]


def quick_loss(model, dataset):
    """Stands in for `evaluation.teacher_forced`, which is slow to trace."""
    del model
    return {
        "loss": 2.5,
        "teacher_forced_accuracy": 0.25,
        "target_tokens": sum(1 for _ in dataset),
    }


@contextlib.contextmanager
def quick(search=quick_search):
    """Replaces what is slow: search, loss and page, which have tests."""
    with (
        mock.patch.object(model_engine.ModelEngine, "translate", search),
        mock.patch.object(evaluation, "teacher_forced", quick_loss),
        mock.patch.object(report, "page", return_value=""),
    ):
        yield


def work_in_this_process(work):
    """Returns a patch that runs the work of child processes in this one.

    Args:
        work: Function that does it, given the arguments of Python; it returns
            the exit code.
    """

    def start(arguments, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        code = work(list(arguments))
        return mock.Mock(**{"wait.return_value": code})

    return mock.patch.object(jobs, "start", side_effect=start)


def scores_in_this_process():
    """Returns a patch that scores models in this process.

    That saves the import of TensorFlow. The mock of the patch counts calls.
    """
    return work_in_this_process(
        lambda arguments: score_process.main(arguments[-1])
    )
