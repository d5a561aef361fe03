r"""Translates with a trained model, one line of output for each line of input.

  python decoder.py < test.en > test.de
      translates standard input with the newest run in runs/

  python decoder.py --output_dir=runs/mine --decode_from_file=test.en \
      --decode_to_file=test.de --decode_reference=reference.de
      writes a file and scores it

  python decoder.py --decode_interactive
      asks for a line at a time; :help lists what else can be typed

  python decoder.py --score_file=pairs.tsv
      says how probable given translations are

A line ends at a line feed and nowhere else. A blank line gives a blank line.
Messages go to standard error; standard output has the translations or, where
they go to a file, the scores.
"""

import contextlib
import io
import json
import os
import sys
import time

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import output_lines
from relpos_tf.training import reporting
from relpos_tf.utils import files
from relpos_tf.utils import signals
from relpos_tf.utils import terminal
from relpos_tf.utils import text

FLAGS = command.Flags()

FLAGS.define_string(
    "output_dir", "", "The run's directory. Default: the newest run in runs/."
)
FLAGS.define_string(
    "checkpoint_path",
    "",
    "One checkpoint instead of the newest, as in runs/mine/ckpt-1000.",
)
FLAGS.define_string(
    "export_dir",
    "",
    "An export, of any format, instead of a run. A SavedModel is a program: "
    "one with operations that exports do not have is refused.",
)
FLAGS.define_string(
    "decode_from_file",
    "",
    "Text to translate, one sentence a line. Default: standard input.",
)
FLAGS.define_string(
    "decode_to_file",
    "",
    "Where the translations go. Default: standard output. The file appears "
    "when it is complete. If the command is stopped, the N lines that were "
    "finished are kept in DECODE_TO_FILE.first-N-lines.",
)
FLAGS.define_string(
    "decode_reference",
    "",
    "Reference translations. Prints BLEU with its signature, chrF and the "
    "share of exact matches: on standard output if the translations go to a "
    "file, else on standard error.",
)
FLAGS.define_string(
    "score_json",
    "",
    "With --decode_reference: a JSON file for scores and settings.",
)
FLAGS.define_bool(
    "decode_interactive",
    False,
    "Ask for a line at a time. Without a terminal: answer every line of "
    "standard input at once, for programs that wait for the answer.",
)
FLAGS.define_string(
    "decode_hparams",
    "",
    "name=value,name=value: beam_size, alpha, extra_length (default: the run's "
    "own), batch_size (lines at once), return_beams, write_beam_scores, "
    "max_input_size (ids kept of a line), min_length, no_repeat_ngram_size; to "
    "draw and not search: sampling_method=random, sampling_temp, "
    "sampling_keep_top_k, sampling_top_p, random_seed.",
)
FLAGS.define_string("prefix_file", "", "What each translation begins with.")
FLAGS.define_string(
    "attention_to_file", "", "JSON lines of what was attended to."
)
FLAGS.define_string(
    "score_file",
    "",
    "Lines of input<TAB>target. For each, the natural logarithm of the "
    "target's probability is written.",
)

_PLACES = "output_dir", "checkpoint_path", "export_dir"
_OUTPUTS = "decode_to_file", "attention_to_file", "score_json"
_FILES_TO_READ = (
    "decode_from_file",
    "decode_reference",
    "prefix_file",
    "score_file",
)
_INPUTS = "decode_from_file", "decode_interactive", "score_file"


def main() -> None:
    with command.flag_value("decode_hparams"):
        settings = decode_hparam.DecodeHParams.parse(FLAGS.decode_hparams)
    check_flags(settings)
    command.check_outputs(FLAGS, _OUTPUTS, _FILES_TO_READ)
    lines = source_lines()
    prefix = prefix_lines(lines)
    pairs = pairs_to_score() if FLAGS.score_file else []
    command.import_tensorflow()
    from relpos_tf.decoding import translator as translator_lib
    from relpos_tf.models import run_dir  # these bring TensorFlow

    load, path = translator_lib.Translator.load_run, first_given(*_PLACES)
    if FLAGS.export_dir:
        load = translator_lib.Translator.load_export
    translator = load(
        path or run_dir.latest_run("runs"),
        batch_size=settings.batch_size,
        max_input_size=settings.max_input_size,
    )
    command.logger().info("Using %s.", translator.name)
    with command.flag_value("decode_hparams"):
        settings = translator.engine.complete(settings)
    if is_conversation():
        converse(translator, settings)
    elif FLAGS.score_file:
        score_pairs(translator, pairs)
    else:
        decode(translator, settings, lines, prefix)


def check_flags(settings: decode_hparam.DecodeHParams) -> None:
    """Refuses flags that contradict one another."""
    for names in (_PLACES, _INPUTS):
        given = [name for name in names if getattr(FLAGS, name)]
        if len(given) > 1:
            raise command.UsageError(
                f"--{given[0]} and --{given[1]} exclude each other."
            )
    if FLAGS.score_json and not FLAGS.decode_reference:
        raise command.UsageError("--score_json needs --decode_reference.")
    if FLAGS.decode_reference and first_given(*_INPUTS[1:]):
        raise command.UsageError("--decode_reference needs text to translate.")
    if is_conversation() and FLAGS.decode_to_file:
        raise command.UsageError(
            "--decode_interactive at a terminal answers there, not in "
            "--decode_to_file."
        )
    if FLAGS.score_file and FLAGS.export_dir:
        raise command.UsageError("--score_file needs a run, not an export.")
    if settings.write_beam_scores and not settings.return_beams:
        raise command.UsageError(
            "--decode_hparams: write_beam_scores needs return_beams=true."
        )


def first_given(*names: str) -> str:
    """Returns the value of the first of these flags that has one, or ""."""
    return next((value for n in names if (value := getattr(FLAGS, n))), "")


def source_lines():
    """Returns the lines to translate; None if the input is of another kind.

    Raises:
        UserError: a named file is empty, or the reference has another number
            of lines.
    """
    if is_conversation() or FLAGS.score_file:
        return None
    lines = text.stream_lines(sys.stdin.buffer)
    if FLAGS.decode_from_file:
        lines = text.read_nonempty(FLAGS.decode_from_file)
    if not FLAGS.decode_reference:
        return lines
    from relpos_tf.training import metrics  # brings sacreBLEU

    lines = list(lines)
    references = list(text.read_lines(FLAGS.decode_reference))
    check_count("decode_reference", len(references), len(lines))
    metrics.check_references(references)
    return lines


def prefix_lines(lines):
    """Returns what the translations begin with; None for nothing.

    Raises:
        UserError: the source is a file with another number of lines.
    """
    if not FLAGS.prefix_file:
        return None
    prefix = list(text.read_nonempty(FLAGS.prefix_file))
    if isinstance(lines, list):
        check_count("prefix_file", len(prefix), len(lines))
    elif os.path.isfile(FLAGS.decode_from_file):
        count = text.count_lines(FLAGS.decode_from_file)
        check_count("prefix_file", len(prefix), count)
    return prefix


def check_count(name: str, count: int, expected: int) -> None:
    """Raises UserError unless a file has a line for each source line."""
    if count != expected:
        raise errors.UserError(
            f"--{name} must have one line for each of {expected} source lines. "
            f"Received: {FLAGS[name].value} with {count}."
        )


def decode(translator, settings, lines, prefix) -> None:
    """Translates lines, writes them, and scores them against a reference."""
    log = command.logger()
    hypotheses, count, started = [], 0, time.monotonic()
    with (
        # A batch system that ends the job sends SIGTERM.
        signals.caught() if FLAGS.decode_to_file else contextlib.nullcontext(),
        text.writer(
            FLAGS.decode_to_file, sys.stdout.buffer, tell_kept
        ) as write,
        text.writer(
            FLAGS.attention_to_file, io.BytesIO(), tell_kept_attention
        ) as write_look,
    ):
        for texts, scores, *looks in translations(
            translator, settings, lines, prefix
        ):
            write(output_lines.translation_line(settings, texts, scores))
            for look in looks:  # of all beams
                write_look(output_lines.attention_line(look[0]))
            count += 1
            if FLAGS.decode_reference:
                hypotheses.append(texts[0])
    seconds = time.monotonic() - started
    if not count:
        log.warning("There was no line to translate.")
    speed = reporting.rate(count / max(seconds, 1e-3), 1)
    log.info("Lines: %d, %s a second.", count, speed)
    if FLAGS.decode_reference:
        report_scores(translator, settings, hypotheses)


def tell_kept(path: str, number: int) -> None:
    """Says where the lines are that were translated before it was stopped."""
    command.logger().warning(
        "Stopped. The %s finished lines are in %s. To go on, translate the "
        "source from line %d on, as with tail -n +%d.",
        f"{number:,}",
        path,
        number + 1,
        number + 1,
    )


def tell_kept_attention(path: str, _: int) -> None:
    """Says where the attention of the finished lines is."""
    command.logger().warning(
        "Stopped. The attention of the finished lines is in %s.", path
    )


def translations(translator, settings, lines, prefix):
    """Yields lists of translations, of scores, perhaps of attention."""
    n_best = settings.beam_size if settings.return_beams else 1
    # Who types waits for each line; a file is sorted by length first.
    typed = FLAGS.decode_interactive or (
        not FLAGS.decode_from_file and sys.stdin.isatty()
    )
    for found in translator.translate_lines(
        lines,
        **settings.search_settings(),
        **settings.options(),
        n_best=n_best,
        return_scores=True,
        return_attention=bool(FLAGS.attention_to_file),
        prefix=prefix,
        progress=terminal.LineProgress(),
        **({"chunk_lines": 1} if typed else {}),
    ):
        yield found if n_best > 1 else [[part] for part in found]


def report_scores(translator, settings, hypotheses: list[str]) -> None:
    """Compares the translations with --decode_reference."""
    from relpos_tf.training import metrics  # brings sacreBLEU

    references = text.read_lines(FLAGS.decode_reference)
    scores = metrics.corpus_bleu(hypotheses, references)
    for warning in scores.warnings:
        command.logger().warning("%s", warning)
    lines = (
        f"BLEU = {scores.bleu:.2f} ({scores.bleu_signature})\n"
        f"chrF = {scores.chrf:.2f} ({scores.chrf_signature})\n"
        f"exact match = {scores.exact_match:.2f}% of {scores.lines} lines, "
        f"{scores.empty_lines} empty\n"
    )
    if FLAGS.decode_to_file:
        command.write(lines)
    else:
        command.logger().info("%s", lines.rstrip("\n"))
    if FLAGS.score_json:
        record = {
            "model": translator.name,
            "source": FLAGS.decode_from_file,
            "reference": FLAGS.decode_reference,
            **settings.search_settings(),
            **json.loads(scores.to_json()),
        }
        content = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        files.write(FLAGS.score_json, content)


def is_conversation() -> bool:
    """Says whether somebody types and can be asked."""
    return FLAGS.decode_interactive and sys.stdin.isatty()


def converse(translator, settings) -> None:
    """Translates what is typed until the user leaves."""
    from relpos_tf.decoding import interactive  # brings TensorFlow

    if interactive.converse(translator, settings):
        # TensorFlow is still at an abandoned translation: Python can neither
        # stop it nor end in good order.
        os._exit(0)


def pairs_to_score() -> list[tuple[str, str]]:
    """Returns the pairs in --score_file.

    Raises:
        UserError: the file is missing or empty, or a line is no pair.
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


def score_pairs(translator, pairs: list[tuple[str, str]]) -> None:
    """Writes the log-probability of each pair."""
    from relpos_tf.training import evaluation  # brings sacreBLEU

    found = evaluation.log_probabilities(translator, pairs)
    with text.writer(FLAGS.decode_to_file, sys.stdout.buffer) as write:
        for log_probability, _ in found:
            write(f"{log_probability:.6f}")
    total, count = (sum(column) for column in zip(*found, strict=True))
    command.logger().info(
        "Lines: %d, target tokens: %d, nats per token: %.4f.",
        len(found),
        count,
        -total / count,
    )


def run() -> None:
    command.run(main)


if __name__ == "__main__":
    run()
