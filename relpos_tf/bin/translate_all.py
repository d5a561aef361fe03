"""Translates a text with every checkpoint of a run, to find the best one.

    relpos-translate_all --output_dir=runs/mine
    relpos-translate_all --output_dir=runs/mine --decode_from_file=test.en \\
        --decode_reference=test.de --translations_dir=translations

The text is a file, or the development set of the run's problem. Translations
are written to TRANSLATIONS_DIR/NAME-STEP, and with the averages in RUN/average
to NAME-average-STEP. With a reference, a table of BLEU, chrF and exact matches
(and tokenized BLEU in languages that Moses' tokenizer knows) is printed, and
NAME.bleu.json and a plot, NAME.bleu.png, are written beside the translations.
relpos-bleu can print the table later.

Each file is written whole or not at all, and existing translations are kept, so
the same command resumes after Ctrl-C, and goes on with new checkpoints.
"""

import collections
import dataclasses
import os
import pathlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.decoding import decode_hparam
from relpos_tf.models import run_dir
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import system_errors
from relpos_tf.utils import terminal
from relpos_tf.utils import text

FLAGS = command.Flags()

FLAGS.define_strings(
    output_dir="The run's directory. Default: the newest run in runs/.",
    decode_from_file="Text to translate, one sentence a line. Default: the "
    "development set of the run's problem.",
    decode_reference="The reference translation. Default: none for a file, "
    "and the problem's own for its sets.",
    translations_dir="Folder for the translations. Default: RUN/translations.",
    decode_hparams="name=value,name=value, as for relpos-decoder: beam_size, "
    "alpha and extra_length (default: the run's own), batch_size, "
    "max_input_size.",
)
command.define_usr_dir(FLAGS)
FLAGS.define_bools(
    eval_use_test_set="Translate the problem's test set instead of its "
    "development set.",
)
FLAGS.define_integers(min_steps="Leave out checkpoints of fewer steps.")
FLAGS.define_string("data_dir", "data", "Folder of prepared data.")
scores.define_tokenizer(FLAGS)
FLAGS.join(",", "decode_hparams")
FLAGS.exclusive("eval_use_test_set", "decode_from_file")
FLAGS.needs("decode_from_file=", "data_dir")
FLAGS.needs("decode_reference or decode_from_file=", "bleu_tokenize")


class Text(NamedTuple):
    """A text to translate."""

    name: str
    source: pathlib.Path
    reference: pathlib.Path | None


def main() -> int:
    """Translates and scores; returns the exit code."""
    run = run_dir.RunDir(FLAGS.output_dir or run_dir.latest_run("runs"))
    decode_hparams = settings_of(run)
    wanted = wanted_text(run)
    folder = pathlib.Path(FLAGS.translations_dir or run.path / "translations")
    prepare_folder(folder, run, wanted, decode_hparams)
    command.import_tensorflow()
    counts = translate(run, wanted, decode_hparams, folder)
    command.logger().info(
        "Checkpoints: %d translated, %d were already translated, %d failed.",
        counts["made"],
        counts["kept"],
        counts["failed"],
    )
    if wanted.reference:
        scores.report_checkpoints(
            folder,
            wanted.name,
            FLAGS.min_steps,
            wanted.reference,
            run.read_problem().get("target_language", ""),
            scores.asked_tokenizer(FLAGS, run),
        )
    return int(counts["failed"] > 0)


def settings_of(run: run_dir.RunDir) -> decode_hparam.DecodeHParams:
    """Returns --decode_hparams, completed by the run's hparams."""
    hparams = run.read_hparams()
    with command.flag_value("decode_hparams"):
        decode_hparams = decode_hparam.DecodeHParams.parse(FLAGS.decode_hparams)
        if decode_hparams.return_beams or decode_hparams.return_alignments:
            raise errors.UserError(
                "only the best translation is written; return_beams and "
                "return_alignments are for relpos-decoder."
            )
        decode_hparams = decode_hparams.fill(hparams)
        decode_hparams.check_beam_size(hparams.vocab_size)
    return decode_hparams


def wanted_text(run: run_dir.RunDir) -> Text:
    """Returns the text to translate.

    Raises:
        UserError: it is missing, or the reference has another number of lines.
    """
    from relpos_tf.problems import test_sets

    if FLAGS.decode_from_file:
        source = pathlib.Path(FLAGS.decode_from_file)
        wanted = Text(source.name, source, None)
    else:
        name = "test" if FLAGS.eval_use_test_set else "dev"
        problem = test_sets.problem_of(run)
        (one,) = test_sets.of_problem(FLAGS.data_dir, problem, [name])
        wanted = Text(name, one.source_path, one.reference_path)
    if FLAGS.decode_reference:
        wanted = wanted._replace(reference=pathlib.Path(FLAGS.decode_reference))
    count = sum(1 for _ in text.read_nonempty(wanted.source))
    number = count
    if wanted.reference:
        number = sum(1 for _ in text.checked_lines(wanted.reference))
    if number != count:
        raise errors.UserError(
            f"Expected a reference of {count} lines, as in {wanted.source}. "
            f"Received: {wanted.reference} with {number}."
        )
    return wanted


def prepare_folder(
    folder: pathlib.Path,
    run: run_dir.RunDir,
    wanted: Text,
    decode_hparams: decode_hparam.DecodeHParams,
) -> None:
    """Makes the folder and records what its translations have in common.

    Raises:
        UsageError: the folder has a record that differs.
    """
    name = wanted.name
    record = {
        # Relative, so that run and translations can move together.
        "run": os.path.relpath(run.path.resolve(), folder.resolve()),
        "source_sha256": files.sha256(wanted.source),
        **dataclasses.asdict(dataclasses.replace(decode_hparams, batch_size=0)),
    }
    path = folder / f"{name}.json"
    with command.flag_value("translations_dir"):
        paths.check_folder(folder)  # now, not after the first translation
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            files.write(path, checked_json.dumps(record))
            return
        old = checked_json.loads(path.read_bytes())
    changed = [key for key in record if old.get(key) != record[key]]
    if changed:
        raise command.UsageError(
            f"the translations of {name} in {folder} were made with "
            + ", ".join(f"{key}={old.get(key)}" for key in changed)
            + ". Received: "
            + ", ".join(f"{key}={record[key]}" for key in changed)
            + f". Name another --translations_dir, or remove {path} and them."
        )


def translate(
    run: run_dir.RunDir,
    wanted: Text,
    decode_hparams: decode_hparam.DecodeHParams,
    folder: pathlib.Path,
) -> collections.Counter:
    """Writes a translation for each checkpoint, unless there is a newer one.

    Returns:
        The numbers of translations: "made", "kept" and "failed".

    Raises:
        UserError: there is no checkpoint, or no tokenizer.
    """
    from relpos_tf.decoding import loading  # imports TensorFlow
    from relpos_tf.decoding import translator as translator_lib
    from relpos_tf.models import transformer

    # Model and graph are made once: only the weights change.
    model = transformer.Transformer(run.read_hparams())
    translator = translator_lib.Translator(
        model, loading.load_tokenizer(run.path)
    )
    counts = collections.Counter()
    for prefix, path in checkpoints_of(run, folder, wanted.name):
        saved = pathlib.Path(f"{prefix}{run_dir.CHECKPOINT}")
        if path.is_file() and path.stat().st_mtime >= saved.stat().st_mtime:
            counts["kept"] += 1
            continue
        started = time.monotonic()
        try:
            loading.restore(prefix, model)
        except (errors.UserError, OSError) as error:
            command.logger().warning("%s", system_errors.explanation(error))
            counts["failed"] += 1
            continue
        translator.engine.name = prefix
        with text.writer(path) as write:
            for translation in translator.translations(
                text.read_nonempty(wanted.source),
                decode_hparams,
                progress=terminal.show_lines,
            ):
                write(translation.texts[0])
        counts["made"] += 1
        seconds = time.monotonic() - started
        command.logger().info("Wrote %s, %.1f s.", path, seconds)
    if not counts:
        raise errors.UserError(
            "Expected a run with checkpoints, ckpt-STEP.npz, of step "
            f"{FLAGS.min_steps} or later. Received: {run.path}."
        )
    return counts


def checkpoints_of(
    run: run_dir.RunDir, folder: pathlib.Path, name: str
) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields each checkpoint and the file for its translation, by step.

    A checkpoint that a trainer has removed meanwhile is left out.
    """
    from relpos_tf.comparison import checkpoint_scores

    found = []
    for parent in (run.path, run.path / run_dir.AVERAGE):
        for step in run_dir.all_steps(parent):
            one = checkpoint_scores.translation_of(
                folder, name, step, parent != run.path
            )
            found.append((one, f"{parent}/ckpt-{step}"))
    for one, prefix in sorted(found):
        is_there = os.path.exists(prefix + run_dir.CHECKPOINT)
        if is_there and one.step >= FLAGS.min_steps:
            yield prefix, one.path


run = command.program(main)
