"""The work between the flags and the first update: data and run directory.

With several hosts the chief prepares and writes; the others only read.
"""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import loading
from relpos_tf.models import arguments
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import problem as problem_lib
from relpos_tf.training import devices
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.utils import files

_log = logging.getLogger("relpos_tf")
# Each host may see the shared file system under another path.
_FOLDERS = frozenset({"data_dir", "tmp_dir", "output_dir", "usr_dir"})
# A vocabulary of another language needs more ids for a word, by a factor.
_POOR_FIT, _USUAL_FIT = 2.0, 1.5
_MOST_MEASURED = 1000  # pairs


def check_same_start(
    hosts: hosts_lib.Hosts, flags: Mapping[str, Any], hparams: hparam.HParams
) -> None:
    """Raises UserError on a host that was not started as the chief was.

    Args:
        hosts: `hosts.Hosts`. Each of them calls it.
        flags: Values by name.
        hparams: `hparam.HParams`.
    """
    versions = run_dir.versions()
    # With equal code, all hosts have the names that are compared next.
    names = "relpos_tf", "relpos_tf sources", "tensorflow"
    hosts.check_same({name: versions[name] for name in names})
    values = {f"--{n}": v for n, v in flags.items() if n not in _FOLDERS}
    values |= {"the devices": len(tf.config.list_logical_devices())}
    values |= hparams.to_dict()
    hosts.check_same({name: str(value) for name, value in values.items()})


def with_tokenizer_of(
    problem: problem_lib.Problem, data_dir: str, start: str
) -> problem_lib.Problem:
    """Returns the problem with the tokenizer of the weights it starts from.

    Embeddings fit no other tokenizer.

    Args:
        problem: a `Problem`.
        data_dir: str. The folder of its prepared data.
        start: str. A run or a checkpoint in one, or "". Without a tokenizer
            there, the problem is returned unchanged.

    Raises:
        UserError: the tokenizer there is damaged.
    """
    path = run_dir.run_of(start).tokenizer_path if start else ""
    if not pathlib.Path(path).is_file():
        return problem
    size = loading.load_tokenizer(start).vocab_size
    if problem.is_prepared(data_dir):
        own = problem.tokenizer_path(data_dir)
        if pathlib.Path(own).read_bytes() == pathlib.Path(path).read_bytes():
            return problem
    _log.info("The vocabulary is that of %s.", start)
    return dataclasses.replace(problem, tokenizer_file=path, vocab_size=size)


def check_same_model(start: str, hparams: hparam.HParams) -> None:
    """Raises UserError unless a model is that of `--warm_start_from`.

    Other weights would be refused one by one, after the data are prepared; and
    other positions, where they have the same weights, not at all. Embeddings of
    an unknown tokenizer have no meaning.
    """
    loading.load_tokenizer(start)
    old = run_dir.run_of(start).read_hparams()
    new = hparams.replace(vocab_size=old.vocab_size)  # It keeps its tokenizer.
    if changes := run_dir.changes_of_model(old, new):
        raise errors.UserError(
            f"{start} has {', '.join(changes)}. Give its --hparams_set and "
            "--hparams."
        )


def share_data(
    hosts: hosts_lib.Hosts,
    problem: problem_lib.Problem,
    data_dir: str,
    tmp_dir: str,
    anew: bool,
) -> None:
    """Has the chief prepare the data, see `Problem.prepare`; the others wait.

    Raises:
        UserError: the data cannot be prepared; or a host does not see the
            chief's data, or sees other data.
    """
    if not hosts.is_chief:
        _log.info("This is %s. The chief logs the progress.", hosts.name)
        _log.setLevel(logging.WARNING)
    hosts.chief_writes(
        lambda: problem.prepare(data_dir, tmp_dir, num_processes=0, anew=anew),
        lambda: problem.is_prepared(data_dir),
        f"--data_dir={data_dir}",
    )
    manifest = json.dumps(problem.manifest(data_dir), sort_keys=True)
    hosts.check_same({f"the data in --data_dir={data_dir}": manifest})


def _check_augmentation(path, hparams):
    """Raises UserError if the tokenizer does not allow what hparams ask."""
    for name in ("bpe_dropout", "pair_concatenation"):
        if getattr(hparams, name) and not path.endswith(".model"):
            raise errors.UserError(
                f"`{name}` needs a SentencePiece model: other vocabularies "
                "segment a text in one way only, and put no blank between two "
                f"sentences. Received: {path}. Set {name}=0."
            )


def write_run(
    run: run_dir.RunDir,
    hparams: hparam.HParams,
    problem: problem_lib.Problem,
    data_dir: str,
    flags_text: str,
) -> None:
    """Checks what training needs, and creates or reopens the run's directory.

    Args:
        run: The directory.
        hparams: `hparam.HParams`, with the tokenizer's `vocab_size`.
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        flags_text: str. All flags, for the record. "": the record stays as
            it is.

    Raises:
        UserError: the run has a different architecture, tokenizer or training
            data, or checkpoints without hparams.json; no training pair is short
            enough; evaluations would have more beams than pieces; or the
            tokenizer allows no augmentation.
    """
    tokenizer_path = problem.tokenizer_path(data_dir)
    longest = _longest_source(problem.tokens(data_dir, "train"), hparams)
    _check_augmentation(tokenizer_path, hparams)
    searched = decode_hparam.DecodeHParams().fill(hparams)
    searched.check_beam_size(hparams.vocab_size)
    if run.is_trained():
        check_same_run(run, hparams, problem, data_dir)
        if not run_dir.all_steps(run.path):
            raise errors.UserError(
                f"The run {run.path} has an average, but no checkpoint to go "
                "on from. To start from it, name another --output_dir and "
                f"--warm_start_from={run.path}."
            )
    elif run_dir.all_steps(run.path):
        raise errors.UserError(
            f"{run.path} has checkpoints, but no {run_dir.HPARAMS} that says "
            "of which model. Put the file back, or name another --output_dir."
        )
    run.copy_tokenizer(tokenizer_path)
    run.write_problem(
        {
            "problem": problem.name,
            "source_language": problem.source_language,
            "target_language": problem.target_language,
            "tokenizer_sha256": files.sha256(tokenizer_path),
            "longest_source": longest,
            "train_pairs": problem.manifest(data_dir)["counts"]["train"],
            "data": manifest_lib.fingerprints(problem.manifest(data_dir)),
            "vocabulary_fit": list(_vocabulary_fit(problem, data_dir)),
        }
    )
    if flags_text:
        run.write_flags(flags_text)
    run.write_versions(devices.description())
    run.write_hparams(hparams)  # last: it makes the folder a run


def _longest_source(tokens, hparams):
    """Returns the most ids of a source, and logs how many pairs are too long.

    Raises:
        UserError: all of them are.
    """
    is_short = (tokens.lengths <= hparams.max_length).all(axis=1)  # [pairs]
    longer = int((~is_short).sum())
    line = (
        f"{longer:,} of {len(tokens):,} training pairs are left out: they have "
        f"more than max_length={hparams.max_length} tokens on a side."
    )
    if longer == len(tokens):
        raise errors.UserError(f"{line} Raise it: --hparams=max_length=...")
    if longer:
        _log.info("%s", line)
    if hparams.pair_concatenation:
        return hparams.max_length  # of joined pairs
    return int(tokens.lengths[is_short, 0].max())


def check_same_run(
    run: run_dir.RunDir,
    hparams: hparam.HParams,
    problem: problem_lib.Problem,
    data_dir: str,
) -> None:
    """Compares a run with the model and the data to resume or score it with.

    Logs a warning for each difference that does not prevent resuming.

    Args:
        run: The run.
        hparams: `hparam.HParams`, with the tokenizer's `vocab_size`.
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.

    Raises:
        UserError: a different architecture, tokenizer or training data,
            in which the position of the last batch has no meaning.
    """
    warnings = run_dir.check_same_architecture(run.read_hparams(), hparams)
    data = manifest_lib.fingerprints(problem.manifest(data_dir))
    known = run.read_problem().get("data", {})
    changed = [s for s in data if s in known and known[s] != data[s]]
    if "train" in changed:
        raise errors.UserError(
            f"The run {run.path} was trained on other training data than "
            "those prepared now, so it cannot be resumed. Prepare "
            "the data as they were; or, to train on the new ones, name "
            f"another --output_dir and --warm_start_from={run.path}."
        )
    warnings += [
        f"The {split} set has changed: the run's earlier scores are of "
        "another one."
        for split in changed
    ]
    for warning in warnings:
        _log.warning("%s", warning)


def describe(problem: problem_lib.Problem, data_dir: str, trainer: Any) -> None:
    """Logs the model, and what is about to be trained, and on what.

    Args:
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        trainer: `trainer.Trainer`.
    """
    hparams, step, path = trainer.hparams, trainer.step, trainer.run.path
    encoder, decoder = hparams.encoder_layers, hparams.decoder_layers
    size = f"{encoder} + {decoder} layers of {hparams.hidden_size}"
    positions = arguments.positions_summary(hparams)
    weights = f"{trainer.model.count_params():,} weights"
    line = f"{size}, {hparams.vocab_size:,} pieces, positions: {positions}"
    _log.info("Model: %s; %s.", line, weights)
    if trainer.config.schedule == "evaluate":
        return
    if step >= (steps := trainer.total_steps):
        line = f"{path} has made {step} steps, and {steps} are asked for"
        _log.info("%s: nothing is left to train.", line)
        return
    languages = f"{problem.source_language} to {problem.target_language}"
    tokens = f"{trainer.batches_per_update} x {hparams.batch_size} tokens each"
    line = f"Training {languages} in {path}: steps {step} to {steps}, {tokens}"
    _log.info("%s.", line)
    is_half = hparams.activation_dtype == "bfloat16"
    if is_half and not devices.is_bfloat16_faster():
        _log.warning("activation_dtype=bfloat16 is not faster here.")
    corpora = problem.corpora(data_dir)
    total = sum(corpus.pairs for corpus in corpora)
    tags = problem.train_tags or [""] * len(corpora)
    for number, (corpus, tag) in enumerate(zip(corpora, tags, strict=True), 1):
        name = f"{number}, tag {tag}" if tag else f"{number}"
        line = f"Corpus {name}: {corpus.pairs:,} pairs"
        if corpus.share is not None:
            times = corpus.share * total / corpus.pairs
            line += f", {100 * corpus.share:.3g} % of the training pairs, "
            line += f"read {times:.3g} times in an epoch"
        if tag or corpus.share is not None:
            _log.info("%s.", line)
    if not step and (start := trainer.config.warm_start_from):
        _describe_vocabulary(problem, data_dir, start)


def _describe_vocabulary(problem, data_dir, start):
    """Logs how well the vocabulary of another run fits the new text."""
    new = _vocabulary_fit(problem, data_dir)
    known = run_dir.run_of(start).read_problem().get("vocabulary_fit")
    line = f"{new.ids_per_word:.2f} ids a word, {new.byte_share:.1%} bytes"
    if known:
        line += f"; on the text of {start}: {known[0]:.2f} and {known[1]:.1%}"
    if new.ids_per_word <= _POOR_FIT * (known or [_USUAL_FIT])[0]:
        _log.info("The vocabulary of %s on the new text: %s.", start, line)
    else:
        _log.warning(
            "The vocabulary of %s does not fit the new text: %s. Sequences are "
            "long, and training slow. Train without --warm_start_from, to "
            "learn a vocabulary of this text.",
            start,
            line,
        )


def _vocabulary_fit(problem, data_dir):
    """Returns how well the vocabulary fits the training text, by a sample."""
    tokens = problem.tokens(data_dir, "train")
    vocabulary = tokenizer_lib.load(problem.tokenizer_path(data_dir))
    pairs = np.arange(0, len(tokens), -(-len(tokens) // _MOST_MEASURED))
    starts, sizes = tokens.starts(pairs), tokens.lengths[pairs]
    rows = tokens.rows(starts.ravel(), sizes.ravel())
    texts = np.split(rows.ids, np.cumsum(rows.lengths)[:-1])
    return tokenizer_lib.fit(vocabulary, map(vocabulary.decode, texts))
