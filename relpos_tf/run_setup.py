"""What happens between the flags and the first training step."""

import dataclasses
import logging
import pathlib
import shutil

from relpos_tf import hparam
from relpos_tf import loading
from relpos_tf import run_dir

_log = logging.getLogger("relpos_tf")


def prepare_data(problem, data_dir: str, tmp_dir: str, anew: bool) -> None:
    """Prepares a problem's data unless they are there, and says what it did.

    Args:
        problem: a `Problem`.
        data_dir: str. Gets the folder of the prepared data.
        tmp_dir: str. Has, or gets, the raw files.
        anew: bool. Whether to prepare even what is there.
    """
    if anew:
        shutil.rmtree(problem.folder(data_dir), ignore_errors=True)
    if not problem.is_prepared(data_dir):
        _log.info("Preparing %s in %s.", problem.name, data_dir)
        manifest = problem.prepare(data_dir, tmp_dir)
        dropped = dict(manifest["cleaning"])
        read = dropped.pop("read")
        _log.info(
            "Training text: %s pairs read; %s dropped in cleaning.",
            f"{read:,}",
            ", ".join(f"{n:,} ({rule})" for rule, n in dropped.items() if n)
            or "none",
        )
    counts = problem.manifest(data_dir)["counts"]
    _log.info(
        "Data: %s, %s.",
        problem.name,
        ", ".join(f"{counts[s]:,} {s}" for s in sorted(counts, reverse=True)),
    )


def with_tokenizer_of(problem, data_dir: str, start: str):
    """Returns the problem with the tokenizer of the weights to start from.

    Embeddings mean nothing with any other.

    Args:
        problem: a `Problem`.
        data_dir: str. Where it is prepared.
        start: str. A run or a checkpoint; "" for none. The problem stays as
            it is where no tokenizer lies by the checkpoint.
    """
    path = loading.tokenizer_path_of(start) if start else None
    if path is None:
        return problem
    if problem.is_prepared(data_dir):
        own = problem.tokenizer_path(data_dir)
        if pathlib.Path(own).read_bytes() == pathlib.Path(path).read_bytes():
            return problem
    _log.info("The vocabulary is that of %s.", start)
    return dataclasses.replace(problem, tokenizer_file=path)


def open_run(
    output_dir: str,
    problem,
    data_dir: str,
    hparams: hparam.HParams,
    flags_text: str,
) -> tuple[run_dir.RunDir, hparam.HParams]:
    """Makes or reopens a run's directory.

    Args:
        output_dir: str. The directory.
        problem: a prepared `Problem`.
        data_dir: str. Where it was prepared.
        hparams: `hparam.HParams` asked for.
        flags_text: str. All flags, for the record.

    Returns:
        The directory, and the hparams with the tokenizer's vocabulary size.

    Raises:
        UserError: the run there has another architecture or tokenizer.
    """
    vocab_size = problem.manifest(data_dir)["vocab_size"]
    hparams = hparams.replace(vocab_size=vocab_size)
    run = run_dir.RunDir(output_dir)
    if run.has_hparams():
        warnings = run_dir.check_same_architecture(run.read_hparams(), hparams)
        for warning in warnings:
            _log.warning("%s", warning)
    run.copy_tokenizer(problem.tokenizer_path(data_dir))
    run.write_problem(
        {
            "problem": problem.name,
            "source_language": problem.source_language,
            "target_language": problem.target_language,
        }
    )
    run.write_flags(flags_text)
    run.write_versions()
    run.write_hparams(hparams)  # last: it makes the folder a run
    return run, hparams


def describe(trainer, problem, strategy) -> None:
    """Says what is about to be trained, and with what."""
    hparams = trainer.hparams
    replicas = strategy.num_replicas_in_sync
    positions = [] if hparams.pos == "none" else [hparams.pos]
    if hparams.is_relative:
        positions.append(f"relative k={hparams.max_relative_position}")
    _log.info(
        "Model: %d layers of %d, positions: %s; %s weights.",
        hparams.num_hidden_layers,
        hparams.hidden_size,
        " and ".join(positions) or "none",
        f"{trainer.model.count_params():,}",
    )
    _log.info(
        "Training %s to %s in %s: steps %d to %d, %d x %d tokens each.",
        problem.source_language,
        problem.target_language,
        trainer.run.path,
        trainer.step,
        trainer.total_steps,
        replicas,
        hparams.batch_size,
    )
