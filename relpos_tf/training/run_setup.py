"""What happens between the flags and the first training step."""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.decoding import loading
from relpos_tf.models import arguments
from relpos_tf.models import run_dir
from relpos_tf.problems import cleaning
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.utils import files

_log = logging.getLogger("relpos_tf")


def prepare_data(problem, data_dir: str, tmp_dir: str, anew: bool) -> None:
    """Prepares a problem's data unless they are there, and says what it did.

    Args:
        problem: a `Problem`.
        data_dir: str. Gets the folder of the prepared data.
        tmp_dir: str. Has, or gets, the raw files.
        anew: bool. Whether to prepare even what is there.
    """
    if anew or not problem.is_prepared(data_dir):
        _log.info("Preparing %s.", problem.folder(data_dir))
        manifest = problem.prepare_anew(data_dir, tmp_dir)
        _log_cleaning(manifest["cleaning"])
    counts = problem.manifest(data_dir)["counts"]
    _log.info(
        "Data: %s, %s.",
        problem.name,
        ", ".join(f"{counts[s]:,} {s}" for s in sorted(counts, reverse=True)),
    )


def _log_cleaning(counts: dict[str, int]) -> None:
    """Says what became of the training pairs."""
    dropped = dict(counts)
    read, changed = dropped.pop("read"), dropped.pop(cleaning.KEEPING_RULE, 0)
    _log.info(
        "Training text: %s pairs read; %s dropped in cleaning%s.",
        f"{read:,}",
        ", ".join(f"{n:,} ({rule})" for rule, n in dropped.items() if n)
        or "none",
        f"; NUL characters taken out of {changed:,}" if changed else "",
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
        flags_text: str. All flags, for the record; "": the run is only to be
            scored, and its record stays as it is.

    Returns:
        The directory, and the hparams with the tokenizer's vocabulary size.

    Raises:
        UserError: the run there has another architecture or tokenizer, or
            was trained on other data; no training pair is short enough; or
            evaluations would have more beams than there are pieces.
    """
    manifest = problem.manifest(data_dir)
    hparams = hparams.replace(vocab_size=manifest["vocab_size"])
    check_lengths(manifest, hparams)
    check_beams(hparams)
    run = run_dir.RunDir(output_dir)
    tokenizer_path = problem.tokenizer_path(data_dir)
    data = manifest_lib.fingerprints(manifest)
    if run.has_hparams():
        for warning in check_same_run(run, hparams, tokenizer_path, data):
            _log.warning("%s", warning)
        if warning := changed_seed(run, run_dir.parse_flags(flags_text)):
            _log.warning("%s", warning)
    run.copy_tokenizer(tokenizer_path)
    run.write_problem(
        {
            "problem": problem.name,
            "source_language": problem.source_language,
            "target_language": problem.target_language,
            "tokenizer_sha256": files.sha256(tokenizer_path),
            "data": data,
        }
    )
    if flags_text:
        run.write_flags(flags_text)
    run.write_versions()
    run.write_hparams(hparams)  # last: it makes the folder a run
    return run, hparams


def check_lengths(manifest: dict[str, Any], hparams: hparam.HParams) -> None:
    """Says how many training pairs are too long to be trained on.

    Raises:
        UserError: all of them are.
    """
    count = manifest["counts"]["train"]
    longer = manifest_lib.longer_than(manifest, hparams.max_length)
    if longer == count:
        raise errors.UserError(
            f"Each of the {count:,} training pairs has more than "
            f"max_length={hparams.max_length} tokens on a side, so none is "
            f"left to train on. Raise it: --hparams=max_length=..."
        )
    if longer:
        _log.info(
            "%s of %s training pairs are left out: they have more than "
            "max_length=%d tokens on a side.",
            f"{longer:,}",
            f"{count:,}",
            hparams.max_length,
        )


def check_beams(hparams: hparam.HParams) -> None:
    """Raises UserError if evaluations would have more beams than pieces."""
    if hparams.beam_size > hparams.vocab_size:
        raise errors.UserError(
            f"Expected at most as many beams as pieces. Received: beam_size="
            f"{hparams.beam_size}, and a vocabulary of {hparams.vocab_size} "
            f"pieces. Lower it: --hparams=beam_size={hparams.vocab_size}."
        )


def check_same_run(
    run: run_dir.RunDir,
    hparams: hparam.HParams,
    tokenizer_path: str,
    data: dict[str, str],
) -> list[str]:
    """Compares a run with what it is to go on with.

    Args:
        run: the run.
        hparams: `hparam.HParams` asked for.
        tokenizer_path: str. The tokenizer of the prepared data.
        data: fingerprints of the prepared data, by split.

    Returns:
        A line for each difference that the run survives.

    Raises:
        UserError: another architecture, another tokenizer, or other training
            data: where a run stopped is a place in its own.
    """
    warnings = run_dir.check_same_architecture(run.read_hparams(), hparams)
    if pathlib.Path(run.tokenizer_path).is_file():
        loading.load_tokenizer(run.path)  # says so if it is damaged
        run.copy_tokenizer(tokenizer_path)  # refuses another one
    # Runs of earlier versions do not know their data.
    known = run.read_problem().get("data", {})
    changed = [s for s in data if s in known and known[s] != data[s]]
    if "train" in changed:
        raise errors.UserError(
            f"The run {run.path} was trained on other training data than "
            "those prepared now, so it cannot go on where it stopped. Prepare "
            "the data as they were; or, to train on the new ones, name "
            f"another --output_dir and --warm_start_from={run.path}."
        )
    return warnings + [
        f"The {split} set is not the one that the run's earlier scores are of."
        for split in changed
    ]


def changed_seed(run: run_dir.RunDir, flags: Mapping[str, str]) -> str:
    """Returns a warning if a run goes on with another seed, or "".

    Its weights are those of the first seed. The place where it stopped is one
    in the order of the first seed, and is another in the order of the second.

    Args:
        run: the run. One of an earlier version may not know its seed.
        flags: what it goes on with, by name.
    """
    name = "random_seed"
    before = run.read_flags().get(name)
    if not run_dir.all_steps(run.path) or before is None or name not in flags:
        return ""
    if flags[name] == before:
        return ""
    return (
        f"{name} was {before} in this run so far and is now {flags[name]}: the "
        "pairs come in another order, so that some of this epoch come twice "
        "and others not at all, and the result is that of neither seed. With "
        f"--{name}={before} the run goes on as it was begun."
    )


def describe_model(trainer) -> None:
    """Says what model is about to be trained or evaluated."""
    hparams = trainer.hparams
    _log.info(
        "Model: %d layers of %d, positions: %s; %s weights.",
        hparams.num_hidden_layers,
        hparams.hidden_size,
        arguments.positions_summary(hparams),
        f"{trainer.model.count_params():,}",
    )


def describe_training(trainer, problem, strategy) -> None:
    """Says which steps are about to be made, and of how much."""
    hparams = trainer.hparams
    if trainer.step >= trainer.total_steps:
        _log.info(
            "%s has made %d steps, and %d are asked for: nothing is left to "
            "train.",
            trainer.run.path,
            trainer.step,
            trainer.total_steps,
        )
        return
    batches = strategy.num_replicas_in_sync * max(
        hparams.optimizer_multistep_accumulate_steps, 1
    )
    _log.info(
        "Training %s to %s in %s: steps %d to %d, %d x %d tokens each.",
        problem.source_language,
        problem.target_language,
        trainer.run.path,
        trainer.step,
        trainer.total_steps,
        batches,
        hparams.batch_size,
    )
