"""The work between the flags and the first update: data and run directory.

With several hosts the chief prepares and writes; the others only read.
"""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import batches
from relpos_tf.data import plan as plan_lib
from relpos_tf.data import token_files
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import loading
from relpos_tf.models import arguments
from relpos_tf.models import run_dir
from relpos_tf.problems import cleaning
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.utils import files
from relpos_tf.utils import processes

_log = logging.getLogger("relpos_tf")
# Each host may see the shared file system under another path.
_FOLDERS = frozenset({"data_dir", "tmp_dir", "output_dir", "usr_dir"})
_NEEDS_SENTENCEPIECE = {
    "bpe_dropout": "others segment a text in one way only",
    "pair_concatenation": "others put no blank between two sentences",
}
# A vocabulary of another language needs more ids for a word, by a factor.
_POOR_FIT, _USUAL_FIT = 2.0, 1.5
_VERSIONS = ("relpos_tf", "tensorflow", "keras")


def launch_config(
    flags: Mapping[str, Any], hparams: hparam.HParams
) -> dict[str, str]:
    """Returns the values that must be equal on all hosts, by name.

    Args:
        flags: Values by name.
        hparams: `hparam.HParams`.
    """
    versions = run_dir.versions()
    config = {name: versions[name] for name in _VERSIONS}
    config |= {f"--{n}": str(v) for n, v in flags.items() if n not in _FOLDERS}
    return config | {n: str(v) for n, v in dataclasses.asdict(hparams).items()}


def with_tokenizer_of(problem, data_dir: str, start: str):
    """Returns the problem with the tokenizer of the weights to start from.

    Embeddings fit no other tokenizer.

    Args:
        problem: a `Problem`.
        data_dir: str. The folder of its prepared data.
        start: str. A run or a checkpoint, or "". Without a tokenizer there,
            the problem is returned unchanged.
    """
    path = run_dir.tokenizer_path_of(start) if start else None
    if path is None:
        return problem
    if problem.is_prepared(data_dir):
        own = problem.tokenizer_path(data_dir)
        if pathlib.Path(own).read_bytes() == pathlib.Path(path).read_bytes():
            return problem
    _log.info("The vocabulary is that of %s.", start)
    return dataclasses.replace(problem, tokenizer_file=path)


def prepare_data(
    hosts: hosts_lib.Hosts,
    problem,
    data_dir: str,
    tmp_dir: str,
    regenerate: bool,
) -> None:
    """Prepares a problem's data unless they are there.

    Args:
        hosts: `hosts.Hosts`. The chief prepares; the others wait.
        problem: a `Problem`.
        data_dir: str. Receives the folder of the prepared data.
        tmp_dir: str. The folder of the raw files.
        regenerate: bool. Whether to prepare the data even if they are there.

    Raises:
        UserError: the data cannot be prepared; or a host does not see the
            chief's data, or sees other data.
    """
    if not hosts.is_chief:
        _log.info("This is %s. The chief logs the progress.", hosts.name)
        _log.setLevel(logging.WARNING)
    with hosts.chief_first():
        if hosts.is_chief:
            _prepare(problem, data_dir, tmp_dir, regenerate)
        else:
            hosts.await_file(
                lambda: problem.is_prepared(data_dir), f"--data_dir={data_dir}"
            )
    hosts.check_same(
        json.dumps(problem.manifest(data_dir), sort_keys=True),
        f"The data of {problem.name} in --data_dir={data_dir} are",
    )


def _prepare(problem, data_dir, tmp_dir, regenerate):
    if regenerate or not problem.is_prepared(data_dir):
        _log.info("Preparing %s.", problem.folder(data_dir))
        manifest = problem.prepare(
            data_dir, tmp_dir, processes.available(), anew=regenerate
        )
        _log_cleaning(manifest["cleaning"])
    for warning in problem.overlong_lines(data_dir):
        _log.warning("%s", warning)
    counts = problem.manifest(data_dir)["counts"]
    _log.info(
        "Data: %s, %s.",
        problem.name,
        ", ".join(f"{counts[s]:,} {s}" for s in sorted(counts, reverse=True)),
    )


def _log_cleaning(counts: dict[str, int]) -> None:
    """Logs how many training pairs were dropped or changed, and why."""
    dropped = cleaning.dropped(counts)
    changed = counts.get("nul", 0)
    _log.info(
        "Training text: %s pairs read; %s dropped in cleaning%s.",
        f"{counts['read']:,}",
        ", ".join(f"{n:,} ({rule})" for rule, n in dropped.items()) or "none",
        f"; NUL characters removed from {changed:,}" if changed else "",
    )


def open_run(
    hosts: hosts_lib.Hosts,
    output_dir: str,
    problem,
    data_dir: str,
    hparams: hparam.HParams,
    flags_text: str,
) -> tuple[run_dir.RunDir, hparam.HParams]:
    """Creates or reopens a run's directory.

    Args:
        hosts: `hosts.Hosts`. The chief writes; the others wait and read.
        output_dir: str. The directory.
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        hparams: `hparam.HParams` of the flags.
        flags_text: str. All flags, for the record. "": the record stays as
            it is.

    Returns:
        The directory, and the hparams with the tokenizer's vocabulary size.

    Raises:
        UserError: the run has another architecture, tokenizer or training
            data; no training pair is short enough; evaluations would have
            more beams than pieces; the tokenizer allows no augmentation; or a
            host does not see the directory.
    """
    manifest = problem.manifest(data_dir)
    asked = hparams.vocab_size
    hparams = hparams.replace(vocab_size=manifest["vocab_size"])
    run = run_dir.RunDir(output_dir)
    with hosts.chief_first():
        if hosts.is_chief:
            _compare_vocab_size(asked, hparams.vocab_size)
            _check_lengths(problem.tokens(data_dir, "train"), hparams)
            _check_beams(hparams)
            _check_augmentation(
                hparams, tokenizer_lib.load(problem.tokenizer_path(data_dir))
            )
            _write_run(run, problem, data_dir, hparams, flags_text)
        else:
            hosts.await_file(run.has_hparams, f"--output_dir={output_dir}")
    return run, hparams


def open_trained_run(
    output_dir: str, problem, data_dir: str, hparams: hparam.HParams
) -> tuple[run_dir.RunDir, hparam.HParams]:
    """Opens a run to score it, and writes nothing.

    Args:
        output_dir: str. The directory; see `check_is_trained`.
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        hparams: `hparam.HParams` of the flags.

    Returns:
        The directory, and the hparams with the tokenizer's vocabulary size and
        with the run's moving averages, which are scored if it has any.

    Raises:
        UserError: the run has another architecture, tokenizer or training
            data, or evaluations would have more beams than pieces.
    """
    manifest = problem.manifest(data_dir)
    run = run_dir.RunDir(output_dir)
    hparams = hparams.replace(
        vocab_size=manifest["vocab_size"],
        moving_average_decay=run.read_hparams().moving_average_decay,
    )
    _check_beams(hparams)
    data = manifest_lib.fingerprints(manifest)
    tokenizer_path = problem.tokenizer_path(data_dir)
    for warning in _check_same_run(run, hparams, tokenizer_path, data):
        _log.warning("%s", warning)
    return run, hparams


def check_is_trained(output_dir: str) -> None:
    """Raises UserError if a directory has no run with checkpoints."""
    run = run_dir.RunDir(output_dir)
    if run.has_hparams() and run_dir.all_steps(output_dir):
        return
    raise errors.UserError(
        "Expected a run with checkpoints to score. Received: --output_dir="
        f"{output_dir}, which has none. Train it first, or name another."
    )


def _check_augmentation(
    hparams: hparam.HParams, tokenizer: tokenizer_lib.AnyTokenizer
) -> None:
    """Raises UserError if the tokenizer does not allow what the hparams ask."""
    for name, reason in _NEEDS_SENTENCEPIECE.items():
        value = getattr(hparams, name)
        if value and not isinstance(tokenizer, tokenizer_lib.Tokenizer):
            raise errors.UserError(
                f"`{name}` needs a SentencePiece model: {reason}. Received: "
                f"{name}={value} and another vocabulary, as of tensor2tensor. "
                f"Set {name}=0."
            )


def _write_run(run, problem, data_dir, hparams, flags_text):
    tokenizer_path = problem.tokenizer_path(data_dir)
    data = manifest_lib.fingerprints(problem.manifest(data_dir))
    if run.has_hparams():
        warnings = _check_same_run(run, hparams, tokenizer_path, data)
        warnings += _changed_order(run, run_dir.parse_flags(flags_text))
        for warning in warnings:
            _log.warning("%s", warning)
    run.copy_tokenizer(tokenizer_path)
    run.write_problem(
        {
            "problem": problem.name,
            "source_language": problem.source_language,
            "target_language": problem.target_language,
            "tokenizer_sha256": files.sha256(tokenizer_path),
            "data": data,
            "vocabulary_fit": list(_vocabulary_fit(problem, data_dir)),
        }
    )
    if flags_text:
        run.write_flags(flags_text)
    run.write_versions()
    run.write_hparams(hparams)  # last: it makes the folder a run


def _compare_vocab_size(asked: int, found: int) -> None:
    """Warns of a vocab_size of the hparams that has no effect.

    Args:
        asked: int. That of the hparams; the default says nothing.
        found: int. That of the prepared data.
    """
    if asked not in (found, hparam.HParams().vocab_size):
        _log.warning(
            "vocab_size=%d of the hparams has no effect: the vocabulary of "
            "the prepared data has %d pieces. With "
            "--problem=translate_files, --vocab_size sets its size.",
            asked,
            found,
        )


def _check_lengths(
    tokens: token_files.TokenFile, hparams: hparam.HParams
) -> None:
    """Logs the number of training pairs that are too long.

    Raises:
        UserError: all of them are.
    """
    count = len(tokens)
    longer = int((tokens.lengths > hparams.max_length).any(axis=1).sum())
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


def _check_beams(hparams: hparam.HParams) -> None:
    """Raises UserError if evaluations would have more beams than pieces."""
    if hparams.beam_size > hparams.vocab_size:
        raise errors.UserError(
            f"Expected at most as many beams as pieces. Received: beam_size="
            f"{hparams.beam_size}, and a vocabulary of {hparams.vocab_size} "
            f"pieces. Lower it: --hparams=beam_size={hparams.vocab_size}."
        )


def _check_same_run(
    run: run_dir.RunDir,
    hparams: hparam.HParams,
    tokenizer_path: str,
    data: dict[str, str],
) -> list[str]:
    """Compares a run with the model and the data to resume it with.

    Args:
        run: the run.
        hparams: `hparam.HParams` of the flags.
        tokenizer_path: str. The tokenizer of the prepared data.
        data: fingerprints of the prepared data, by split.

    Returns:
        A warning for each difference that does not prevent resuming.

    Raises:
        UserError: another architecture or tokenizer; or other training data,
            in which the position of the last batch has no meaning.
    """
    warnings = run_dir.check_same_architecture(run.read_hparams(), hparams)
    if pathlib.Path(run.tokenizer_path).is_file():
        loading.load_tokenizer(run.path)  # raises if it is damaged
        run.copy_tokenizer(tokenizer_path)  # raises if it is another one
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
        f"The {split} set has changed: the run's earlier scores are of "
        "another one."
        for split in changed
    ]


def _changed_order(run: run_dir.RunDir, flags: Mapping[str, str]) -> list[str]:
    """Returns a warning for each flag that changes the order of the data.

    A run's weights come from the first seed, and the position of its last batch
    is one in the first order.

    Args:
        run: the run.
        flags: the new values by name.
    """
    if not run_dir.all_steps(run.path):
        return []
    before = run.read_flags()
    return [
        f"{name} was {before[name]} in this run so far and is now "
        f"{flags[name]}: the pairs come in another order, so that some of this "
        "epoch come twice and others not at all, and the result is that of "
        f"neither. With --{name}={before[name]} the run goes on as it was "
        "started."
        for name in ("random_seed", "train_weights")
        if name in before and flags.get(name, before[name]) != before[name]
    ]


def reader_of(
    problem, data_dir: str, hparams: hparam.HParams, pad_to_boundary: bool
) -> batches.Reader:
    """Returns what reads the training batches that the hparams ask for.

    Args:
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        hparams: `hparam.HParams`.
        pad_to_boundary: bool. See `batches.Reader`.

    Raises:
        UserError: a file of the data is damaged.
    """
    tokens = problem.tokens(data_dir, "train")
    plan = plan_lib.Plan(
        tokens.lengths,
        problem.corpora(data_dir),
        plan_lib.buckets(
            hparams.batch_size,
            hparams.max_length,
            hparams.min_length_bucket,
            hparams.length_bucket_step,
        ),
        hparams.pair_concatenation,
    )
    return batches.Reader(
        tokens,
        plan,
        tokenizer_lib.load(problem.tokenizer_path(data_dir)),
        hparams.bpe_dropout,
        pad_to_boundary,
    )


def describe_data(problem, data_dir: str, start: str) -> None:
    """Logs the shares of corpora with weights, and how the vocabulary fits.

    Args:
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        start: str. A run or a checkpoint whose vocabulary is used; or "".
    """
    _describe_corpora(problem, data_dir)
    _describe_vocabulary(problem, data_dir, start)


def _describe_corpora(problem, data_dir: str) -> None:
    """Logs the share of each corpus, if the corpora have weights."""
    corpora = problem.corpora(data_dir)
    total = sum(corpus.pairs for corpus in corpora)
    for number, corpus in enumerate(corpora):
        if corpus.share is None:
            return
        tag = problem.train_tags[number] if problem.train_tags else ""
        _log.info(
            "Corpus %d%s: %s pairs, %.3g %% of the training pairs, read "
            "%.3g times in an epoch.",
            number + 1,
            f", tag {tag}" if tag else "",
            f"{corpus.pairs:,}",
            100 * corpus.share,
            corpus.share * total / corpus.pairs,
        )


def _describe_vocabulary(problem, data_dir: str, start: str) -> None:
    """Logs how well the vocabulary of another run fits the new text."""
    path = run_dir.tokenizer_path_of(start) if start else None
    if path is None:
        return
    new = _vocabulary_fit(problem, data_dir)
    old = run_dir.RunDir(pathlib.Path(path).parent).read_problem()
    known = old.get("vocabulary_fit")
    line = f"{new.ids_per_word:.2f} ids a word, {new.byte_share:.1%} bytes"
    if known:
        line += f"; on the text of {start}: {known[0]:.2f} and {known[1]:.1%}"
    if new.ids_per_word > _POOR_FIT * (known or [_USUAL_FIT])[0]:
        _log.warning(
            "The vocabulary of %s does not fit the new text: %s. Sequences are "
            "long, and training slow. Train without --warm_start_from, to "
            "learn a vocabulary of this text.",
            start,
            line,
        )
    else:
        _log.info("The vocabulary of %s on the new text: %s.", start, line)


def _vocabulary_fit(problem, data_dir: str) -> tokenizer_lib.Fit:
    """Returns how well the vocabulary fits the development set."""
    source, target = problem.lines(data_dir, "dev")
    tokens = tokenizer_lib.load(problem.tokenizer_path(data_dir))
    return tokenizer_lib.fit(tokens, source + target)


def describe_model(trainer) -> None:
    """Logs the model's size and its positions."""
    hparams = trainer.hparams
    _log.info(
        "Model: %d layers of %d, positions: %s; %s weights.",
        hparams.num_hidden_layers,
        hparams.hidden_size,
        arguments.positions_summary(hparams),
        f"{trainer.model.count_params():,}",
    )


def describe_training(trainer, problem, strategy) -> None:
    """Logs the steps to come and the size of their batches."""
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
