r"""Translates with a trained model, one line of output for each line of input.

  relpos-decoder < test.en > test.de
      translates standard input with the newest run in runs/

  relpos-decoder --output_dir=runs/mine --decode_from_file=test.en \
      --decode_to_file=test.de --decode_reference=reference.de
      writes a file and scores it

  relpos-decoder --output_dir=runs/mine --test_set=all \
      --decode_to_file=out.de
      translates and scores all test sets of the run's problem; sacreBLEU's
      names of sets, such as multi30k/2016, work as well

  relpos-decoder --decode_interactive
      asks for a line at a time

  relpos-decoder --score_file=pairs.tsv
      scores given translations by their probability

A run stands for its result: the average of its end, else its newest checkpoint.

A line ends at a line feed and nowhere else. A blank line gives a blank line.
Messages go to standard error; standard output has the translations or, if they
go to a file, the scores.
"""

import contextlib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.decoding import decode_hparam
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import signals
from relpos_tf.utils import terminal
from relpos_tf.utils import text

FLAGS = command.Flags()

FLAGS.define_strings(
    output_dir="The run's directory. Default: the newest run in runs/.",
    checkpoint_path="A checkpoint, such as runs/mine/ckpt-1000 or, that of the "
    "best BLEU in training, runs/mine/best; or a folder of averages.",
    export_dir="An export, but Argos', in place of a run. A SavedModel is a "
    "program: load only those whose maker you trust.",
    decode_from_file="Text to translate, one sentence a line. Default: "
    "standard input.",
    decode_to_file="File for the translations. Default: standard output. The "
    "file appears when it is complete. If the command is stopped, or "
    "the disk is full, the N finished lines are kept in "
    "DECODE_TO_FILE.first-N-lines. Lines are finished in groups of similar "
    "lengths: 1,024 at first, twice as many each time, 4,096 at most.",
    decode_reference="Reference translations; several files, separated by "
    "commas, translate each line several times. Prints BLEU with its "
    "signature, chrF, chrF++, TER, exact matches and, for languages that "
    "Moses' tokenizer knows, the tokenized BLEU of papers, see --scale, which "
    "is higher: on standard output if the translations go to a file, else on "
    "standard error.",
    data_dir="Folder of prepared data, for --test_set. Default: the run's own.",
    score_json="With --decode_reference or --test_set: a JSON file for scores "
    "and settings.",
    decode_hparams="name=value,name=value: beam_size, alpha, extra_length "
    "(default: the run's own), batch_size (lines at once), n_best, "
    "write_beam_scores, return_alignments (pairs of words, as 0-0 1-2), "
    "max_input_size (ids kept of a line), min_length, no_repeat_ngram_size; to "
    "draw at random: sampling_method=random, sampling_temp, "
    "sampling_keep_top_k, sampling_top_p, random_seed.",
    prefix_file="For each line, the beginning of its translation.",
    score_file="Lines of input<TAB>target. For each, the natural logarithm of "
    "the target's probability is written.",
)
FLAGS.define_bools(
    decode_interactive="Ask for a line at a time. Without a terminal: answer "
    "each line of standard input immediately, for programs that wait for the "
    "answer.",
    split_sentences="Split each line into sentences, translate each of them, "
    "and put them together again. Warnings then count sentences. Needs the "
    "package sentencex, of the extra `sentences`.",
)
FLAGS.define_lists(
    test_set="Sets to translate and to score like --decode_reference: all (the "
    "test sets of the run's problem), one of them by its name (test, "
    "test_2017_flickr), dev, or sacreBLEU's name of a set (multi30k/2016). "
    "With several sets, the files are DECODE_TO_FILE.NAME.",
)
command.define_usr_dir(FLAGS)
scores.define_language_pair(
    FLAGS,
    "Source and target, as en-de, for sacreBLEU's sets and for the tokens of "
    "BLEU. Default: the run's own.",
)
scores.define_tokenizer(FLAGS)
scores.define_scale(FLAGS)

_OUTPUTS = "decode_to_file", "score_json"
_FILES_TO_READ = (
    "decode_from_file",
    "decode_reference",
    "prefix_file",
    "score_file",
)
FLAGS.join(",", "decode_hparams")
FLAGS.exclusive("output_dir", "checkpoint_path", "export_dir")
FLAGS.exclusive(
    "decode_from_file", "decode_interactive", "score_file", "test_set"
)
for _other in ("decode_interactive", "score_file", "test_set"):
    for _name in ("decode_reference", "prefix_file"):
        FLAGS.exclusive(_name, _other)
for _other in ("score_file", "prefix_file"):
    FLAGS.exclusive("split_sentences", _other)
FLAGS.exclusive("decode_to_file", "decode_interactive")
FLAGS.exclusive("score_file", "export_dir")
FLAGS.exclusive("score_file", "decode_hparams")
FLAGS.needs("decode_reference|test_set", "score_json", "bleu_tokenize", "scale")
FLAGS.needs("decode_reference|test_set|split_sentences", "language_pair")
FLAGS.needs("test_set", "data_dir")


def main() -> None:
    """Translates, or scores."""
    with command.flag_value("decode_hparams"):
        decode_hparams = decode_hparam.DecodeHParams.parse(FLAGS.decode_hparams)
        if FLAGS.split_sentences:
            from relpos_tf.decoding import sentences  # imports SentencePiece

            sentences.check(decode_hparams)
            sentences.package()
    command.check_outputs(FLAGS, _OUTPUTS, _FILES_TO_READ)
    lines: Any = source_lines()
    prefix, references = (
        test_sets.paired_lines(given, len(list(lines))) if any(given) else None
        for given in ([FLAGS.prefix_file], paths.listed(FLAGS.decode_reference))
    )
    if references:
        from relpos_tf.training import metrics  # imports sacreBLEU

        metrics.check_references(references)
    pairs = pairs_to_score() if FLAGS.score_file else []
    path = FLAGS.output_dir or FLAGS.checkpoint_path or FLAGS.export_dir
    path = path or run_dir.latest_run("runs")
    if FLAGS.scale:
        scores.check_scale(FLAGS.scale, languages_of(path)[1])
    sets = open_test_sets(path)
    translator = load(path)
    command.logger().info("Using %s.", translator.engine.name)
    if FLAGS.split_sentences:
        translator = sentences.SentenceTranslator(
            translator, *languages_of(path)
        )
    with command.flag_value("decode_hparams"):
        decode_hparams = translator.engine.complete(decode_hparams)
    if is_prompt():
        from relpos_tf.decoding import interactive  # imports SentencePiece

        interactive.run(translator, decode_hparams)
    elif FLAGS.score_file:
        score_pairs(translator, pairs)
    else:
        own = FLAGS.decode_from_file, FLAGS.decode_reference
        sets = sets or [test_sets.TestSet("", lines, references or [], *own)]
        decode_all(translator, decode_hparams, sets, prefix, path)


def load(path: str | pathlib.Path) -> Any:
    """Returns the `translator.Translator` of a run or of an export.

    TensorFlow is imported only where it is needed.

    Raises:
        UserError: the path is neither; or an export where a run was named,
            since a SavedModel is a program, or the reverse.
    """
    from relpos_tf.decoding import engine_kinds  # imports SentencePiece
    from relpos_tf.decoding import translator as translator_lib

    kind = engine_kinds.of(path)
    if (kind is engine_kinds.RUN) == bool(FLAGS.export_dir):
        flag = "output_dir" if FLAGS.export_dir else "export_dir"
        raise command.UsageError(
            f"{path} is {kind.folder}. Name it with --{flag}."
        )
    if kind.needs_tensorflow:
        command.import_tensorflow(task=kind.folder)
    return translator_lib.Translator.load(path)


def source_lines() -> Iterable[str]:
    """Returns the lines to translate, a list if something belongs to each.

    Raises:
        UserError: a named file is missing or empty.
    """
    if is_prompt() or FLAGS.score_file or FLAGS.test_set:
        return []
    lines = text.stream_lines(text.bounded(sys.stdin.buffer))
    if FLAGS.decode_from_file:
        lines = text.read_nonempty(FLAGS.decode_from_file)
    return list(lines) if FLAGS.decode_reference or FLAGS.prefix_file else lines


def open_test_sets(path: str | pathlib.Path) -> list:
    """Returns the sets that --test_set names, each once.

    Args:
        path: The run, the checkpoint or the export that is to translate.

    Raises:
        UserError: a set is unknown or not at hand.
    """
    found: dict[str, Any] = {}
    for name in FLAGS.test_set:
        if test_sets.is_split(name):
            if FLAGS.export_dir:
                raise command.UsageError(
                    f"--test_set={name} is of a run, with --output_dir. For an "
                    "export, name a set of sacreBLEU, or --decode_from_file "
                    "and --decode_reference."
                )
            of_name = sets_of_run(name, path)
        else:
            languages = "-".join(languages_of(path))
            of_name = [scores.sacrebleu_set_of(name, languages)]
        found |= {one.name: one for one in of_name}
    if FLAGS.decode_to_file:
        with command.flag_value("decode_to_file"):
            for name in found:
                paths.check_file(output_path(name, len(found)))
    return list(found.values())


def sets_of_run(name: str, path: str | pathlib.Path) -> list:
    """Returns the set of this name of the run's problem, or all of them."""
    run = run_dir.run_of(path)
    data_dir = FLAGS.data_dir or run.read_flags().get("data_dir", "data")
    problem = test_sets.problem_of(run)
    found = test_sets.of_problem(data_dir, problem, [name])
    if not found:
        raise errors.UserError(
            f"Expected a problem with a test set. Received: {run.path}, a run "
            f"of {problem['problem']}, which has none in {data_dir}. Name "
            "another set, as with --test_set=dev."
        )
    return found


def languages_of(path: str | pathlib.Path) -> list[str]:
    """Returns the codes of source and target; "" where unknown."""
    from relpos_tf.decoding import engine_kinds  # imports SentencePiece

    if FLAGS.language_pair:
        return FLAGS.language_pair.split("-", 1)
    return list(engine_kinds.languages(path).values())


def output_path(name: str, number: int) -> str:
    """Returns the file for the translations of one of `number` sets."""
    if number == 1 or not FLAGS.decode_to_file:
        return FLAGS.decode_to_file
    return f"{FLAGS.decode_to_file}.{name.replace('/', '_')}"


def decode(
    translator: Any,
    decode_hparams: decode_hparam.DecodeHParams,
    lines: Iterable[str],
    prefix: list[str] | None,
    to_file: str,
) -> list[str]:
    """Translates lines and writes them.

    Returns:
        The best translation of each, if they are to be scored.
    """
    best_texts, count, started = [], 0, time.monotonic()
    is_scored = bool(FLAGS.decode_reference or FLAGS.test_set)
    name = "sentence" if FLAGS.split_sentences else "line"
    # Typed lines are answered one by one; a file is sorted by length first.
    typed = FLAGS.decode_interactive or (
        not (FLAGS.decode_from_file or FLAGS.test_set) and sys.stdin.isatty()
    )
    progress = terminal.counting(name, number_of(lines))
    if not typed:
        progress(0)  # The first lines take long.
    translations = translator.translations(
        lines,
        decode_hparams,
        prefix=prefix,
        progress=progress,
        **({"chunk_lines": 1} if typed else {"first_lines": 1024}),
    )
    with (
        # A batch system that ends the job sends SIGTERM.
        signals.caught() if to_file else contextlib.nullcontext(),
        text.writer(to_file, sys.stdout.buffer, tell_kept) as write,
    ):
        for translation in translations:
            write(translation_line(translation, decode_hparams))
            count += 1
            if is_scored:
                best_texts.append(translation.texts[0])
    speed = terminal.rate(count / max(time.monotonic() - started, 1e-3))
    where = f" {to_file} is written." if to_file else ""
    command.logger().info("Lines: %d, %s a second.%s", count, speed, where)
    return best_texts


def number_of(lines: Iterable[str]) -> int:
    """Returns how many lines there are to translate; 0 if that is unknown."""
    if FLAGS.split_sentences:
        return 0  # Sentences are counted.
    if isinstance(lines, list):
        return len(lines)
    path = FLAGS.decode_from_file
    return sum(1 for _ in text.read_lines(path)) if os.path.isfile(path) else 0


def decode_all(
    translator: Any,
    decode_hparams: decode_hparam.DecodeHParams,
    sets: list,
    prefix: list[str] | None,
    path: str | pathlib.Path,
) -> None:
    """Translates texts, one after the other; scores those with references.

    Args:
        translator: The `translator.Translator`.
        decode_hparams: How to translate.
        sets: `test_sets.TestSet`; the text of the flags has no name.
        prefix: For each line, the beginning of its translation.
        path: The run, the checkpoint or the export.
    """
    records = []
    for one in sets:
        if one.name:
            command.logger().info("%s: %d lines.", one.name, len(one.sources))
        to_file = output_path(one.name, len(sets))
        texts = decode(translator, decode_hparams, one.sources, prefix, to_file)
        if one.references:
            record = {
                "source": str(one.source_path),
                "reference": str(one.reference_path),
                **show_scores(texts, one.references, path, one.name),
            }
            named = {"test_set": one.name} if one.name else {}
            records.append(named | record)
    if FLAGS.score_json:
        how = vars(decode_hparams)
        content = {
            "model": translator.engine.name,
            **({"test_sets": records} if FLAGS.test_set else records[0]),
            "split_sentences": FLAGS.split_sentences,
            **{n: how[n] for n in filter(decode_hparams.has_effect, how)},
        }
        written = json.dumps(content, indent=2, ensure_ascii=False)
        files.write(FLAGS.score_json, f"{written}\n")


def translation_line(
    translation: Any, decode_hparams: decode_hparam.DecodeHParams
) -> str:
    """Returns the output line of an `engines.Translation`."""
    is_aligned = decode_hparams.return_alignments
    is_scored = decode_hparams.write_beam_scores
    if decode_hparams.n_best == 1 and not is_aligned and not is_scored:
        return translation.texts[0]
    fields = []
    for i, line in enumerate(translation.texts):
        fields.append(line.replace("\t", " "))
        if is_scored:
            fields.append(f"{translation.scores[i]:.4f}")
        if is_aligned:
            fields.append(translation.alignment(i))
    return "\t".join(fields)


def tell_kept(path: str, number: int) -> None:
    """Names the file of the lines that were translated before a stop."""
    command.logger().warning(
        "Stopped. The %s finished lines are in %s. To resume, translate the "
        "source from line %d on, as with tail -n +%d.",
        f"{number:,}",
        path,
        number + 1,
        number + 1,
    )


def show_scores(
    texts: list[str], references: list[str], path: str | pathlib.Path, name: str
) -> dict[str, Any]:
    """Prints the scores of a model's texts behind a name; returns them."""
    asked = FLAGS.bleu_tokenize
    if not FLAGS.export_dir:
        asked = scores.asked_tokenizer(FLAGS, run_dir.run_of(path))
    record, lines = scores.score(
        texts, references, languages_of(path)[1], asked, FLAGS.scale
    )
    start = f"{name}:\n" if name else ""
    if FLAGS.decode_to_file:
        command.write(start + lines)
    else:  # Standard output has the translations.
        command.logger().info("%s%s", start, lines.rstrip("\n"))
    return record


def is_prompt() -> bool:
    """Returns whether a person types at a terminal."""
    return FLAGS.decode_interactive and sys.stdin.isatty()


def pairs_to_score() -> list[tuple[str, str]]:
    """Returns the pairs in --score_file.

    Raises:
        UserError: the file is missing or empty, or a line has no tab.
    """
    pairs = []
    lines = text.read_nonempty(FLAGS.score_file)
    for number, line in enumerate(lines, start=1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise errors.UserError(
                f"Line {number} of {FLAGS.score_file} must read "
                f"input<TAB>target. Received: {line[:40]!r}."
            )
        pairs.append((source, target))
    return pairs


def score_pairs(translator: Any, pairs: list[tuple[str, str]]) -> None:
    """Writes the log-probability of each pair."""
    found = translator.engine.log_probabilities(pairs)
    with text.writer(FLAGS.decode_to_file, sys.stdout.buffer) as write:
        for log_probability, _ in found:
            write(f"{log_probability:.6f}")
    total, count = (sum(column) for column in zip(*found, strict=True))
    if math.isnan(total):
        from relpos_tf.decoding import engines  # imports SentencePiece

        message = engines.nan_logits(translator.engine.name)
        command.logger().warning("%s", message)
    command.logger().info(
        "Lines: %d, target tokens: %d, nats per token: %.4f.",
        len(found),
        count,
        -total / count,
    )


run = command.program(main)
