"""Translates a text with every checkpoint of a run, to find the best one.

    relpos-translate_all --output_dir=runs/mine
    relpos-translate_all --output_dir=runs/mine --decode_from_file=test.en \\
        --decode_reference=test.de --translations_dir=translations

The text is a file, or the development set of the run's problem. Translations
are written to TRANSLATIONS_DIR/NAME-STEP, and with the averages in RUN/average
to NAME-average-STEP. With a reference, a table of BLEU, chrF and exact matches
(and tokenized BLEU in languages that Moses' tokenizer knows) is printed, and
NAME.bleu.json and a plot, NAME.bleu.png, are written beside the translations;
relpos-bleu can do that later, too.

Each file is written whole or not at all, and existing translations are kept, so
the same command goes on after Ctrl-C or with new checkpoints.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
import time
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.decoding import decode_hparam
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest
from relpos_tf.utils import files
from relpos_tf.utils import terminal
from relpos_tf.utils import text

FLAGS = command.Flags()

FLAGS.define_string(
    "output_dir", "", "The run's directory. Default: the newest run in runs/."
)
FLAGS.define_string(
    "decode_from_file",
    "",
    "Text to translate, one sentence a line. Default: the development set of "
    "the run's problem.",
)
FLAGS.define_string(
    "decode_reference",
    "",
    "The reference translation. Default: none for a file, and the problem's "
    "own for its sets.",
)
FLAGS.define_bool(
    "eval_use_test_set",
    False,
    "Translate the problem's test set instead of its development set.",
)
FLAGS.define_string("data_dir", "data", "Folder of prepared data.")
FLAGS.define_string(
    "translations_dir",
    "",
    "Folder for the translations. Default: RUN/translations.",
)
FLAGS.define_string(
    "decode_hparams",
    "",
    "name=value,name=value, as for relpos-decoder: beam_size, alpha and "
    "extra_length (default: the run's own), batch_size, max_input_size.",
)
FLAGS.define_integer(
    "min_steps", 0, "Leave out earlier checkpoints.", lower_bound=0
)


class Text(NamedTuple):
    """A text to translate."""

    name: str
    source: pathlib.Path
    reference: pathlib.Path | None


def main() -> int:
    """Translates and scores; returns the exit code."""
    with command.flag_value("decode_hparams"):
        decode_hparams = decode_hparam.DecodeHParams.parse(FLAGS.decode_hparams)
    check_flags(decode_hparams)
    run = run_dir.RunDir(FLAGS.output_dir or run_dir.latest_run("runs"))
    hparams = run.read_hparams()
    decode_hparams = decode_hparams.fill(hparams)
    with command.flag_value("decode_hparams"):
        decode_hparams.check_beam_size(hparams.vocab_size)
    wanted = wanted_text(run)
    folder = (
        pathlib.Path(FLAGS.translations_dir)
        if FLAGS.translations_dir
        else run.make_folder("translations")
    )
    record = describe(run, wanted, decode_hparams, folder)
    prepare_folder(folder, record, wanted.name)
    command.import_tensorflow()
    from relpos_tf.comparison import checkpoint_scores

    worker = CheckpointTranslator(run.path, wanted.source, decode_hparams)
    report = None
    if wanted.reference:
        start = f"{folder / wanted.name}.bleu"
        report = checkpoint_scores.CheckpointScores(
            wanted.name,
            wanted.reference,
            f"{start}.json",
            f"{start}.png",
            moses_language(run),
        )
    for prefix, translation in find_checkpoints(run, folder, wanted.name):
        if worker.translate(prefix, translation.path) and report:
            report.add(translation)
    log_counts(run, worker)
    if report:
        # There may be translations whose checkpoints have been removed.
        for translation in checkpoint_scores.find_translations(
            folder, wanted.name, FLAGS.min_steps
        ):
            if translation not in report:
                report.add(translation)
        command.write(report.table())
        report.save()
        written = " and ".join(map(str, report.paths()))
        command.logger().info("Wrote %s.", written)
    return 1 if worker.num_failed else 0


class CheckpointTranslator:
    """Writes a translation of one text for each checkpoint.

    The model and its graph are built once. After that, only the weights
    change.

    Args:
        run: The run's directory.
        source: The text.
        decode_hparams: How to translate.

    Attributes:
        num_made: int. Translations written.
        num_kept: int. Translations that existed already.
        num_failed: int. Checkpoints that could not be read.

    Raises:
        UserError: there is no tokenizer.
    """

    def __init__(
        self,
        run: pathlib.Path,
        source: pathlib.Path,
        decode_hparams: decode_hparam.DecodeHParams,
    ):
        from relpos_tf.decoding import loading  # imports TensorFlow
        from relpos_tf.decoding import translator
        from relpos_tf.models import transformer

        self._source, self._decode_hparams = source, decode_hparams
        hparams = run_dir.RunDir(run).read_hparams()
        self._model = transformer.Transformer(hparams)
        self._translator = translator.Translator(
            self._model, loading.load_tokenizer(run)
        )
        self._restore = loading.restore
        self.num_made = self.num_kept = self.num_failed = 0

    def translate(self, prefix: str, path: pathlib.Path) -> bool:
        """Translates with a checkpoint, unless that is done already.

        Args:
            prefix: The checkpoint.
            path: The file, which appears when it is complete. A file newer
                than the checkpoint is kept.

        Returns:
            Whether the translation exists now. It does not if the checkpoint
            has been removed or cannot be read.
        """
        try:
            saved = os.stat(f"{prefix}{run_dir.CHECKPOINT}").st_mtime_ns
        except FileNotFoundError:  # a trainer keeps only the last few
            return False
        if path.is_file() and path.stat().st_mtime_ns >= saved:
            self.num_kept += 1
            return True
        started = time.monotonic()
        try:
            self._restore(prefix, self._model)
        except errors.UserError as error:
            command.logger().warning("%s", error)
            self.num_failed += 1
            return False
        self._translator.engine.name = prefix
        with text.writer(path, None) as write:
            for translation in self._translator.translations(
                text.read_nonempty(self._source),
                self._decode_hparams,
                progress=terminal.LineProgress(),
            ):
                write(translation.texts[0])
        self.num_made += 1
        seconds = time.monotonic() - started
        command.logger().info("Wrote %s, %.1f s.", path, seconds)
        return True


def check_flags(decode_hparams: decode_hparam.DecodeHParams) -> None:
    """Refuses flags that contradict one another."""
    if decode_hparams.return_beams or decode_hparams.write_beam_scores:
        raise command.UsageError(
            "--decode_hparams: only the best translation is written; "
            "return_beams and write_beam_scores are for relpos-decoder."
        )
    if FLAGS.eval_use_test_set and FLAGS.decode_from_file:
        raise command.UsageError(
            "--eval_use_test_set and --decode_from_file exclude each other."
        )


def wanted_text(run: run_dir.RunDir) -> Text:
    """Returns the text to translate.

    Raises:
        UserError: it is missing, or the reference has another number of lines.
    """
    if FLAGS.decode_from_file:
        source = pathlib.Path(FLAGS.decode_from_file)
        wanted = Text(source.name, source, None)
    else:
        wanted = text_of_problem(run)
    if FLAGS.decode_reference:
        wanted = wanted._replace(reference=pathlib.Path(FLAGS.decode_reference))
    count = sum(1 for _ in text.read_nonempty(wanted.source))
    number = text.survey(wanted.reference) if wanted.reference else count
    if number != count:
        raise errors.UserError(
            f"Expected a reference of {count} lines, as in {wanted.source}. "
            f"Received: {wanted.reference} with {number}."
        )
    return wanted


def text_of_problem(run: run_dir.RunDir) -> Text:
    """Returns a set of the problem that the run was trained on."""
    split = "test" if FLAGS.eval_use_test_set else "dev"
    problem = run.read_problem()
    if not problem:  # as in an imported run
        raise errors.UserError(
            f"Expected a run with problem.json. Received: {run.path}. Name "
            "the text with --decode_from_file."
        )
    name, known = problem["problem"], problem["data"].get(split)
    others = []
    for folder in manifest.folders(FLAGS.data_dir, name):
        stored = manifest.read_manifest(folder)
        fingerprint = manifest.fingerprints(stored).get(split)
        if fingerprint and known in (None, fingerprint):
            return Text(
                split,
                manifest.checked(folder, stored, f"{split}.source"),
                manifest.checked(folder, stored, f"{split}.target"),
            )
        if fingerprint:
            others.append(str(folder))
    received = f"others, in {', '.join(others)}" if others else "none"
    raise errors.UserError(
        f"Expected the {split} set of {name} under --data_dir={FLAGS.data_dir}."
        f" Received: {received}. Prepare it with relpos-datagen, or name a "
        "text with --decode_from_file."
    )


def moses_language(run: run_dir.RunDir) -> str:
    """Returns the target language if tokenized BLEU knows it, else ""."""
    from relpos_tf.training import metrics  # imports sacreBLEU

    language = run.read_problem().get("target_language", "")
    return language if metrics.has_moses_rules(language) else ""


def describe(
    run: run_dir.RunDir,
    wanted: Text,
    decode_hparams: decode_hparam.DecodeHParams,
    folder: pathlib.Path,
) -> dict:
    """Returns what all translations in a folder must have in common."""
    return {
        # Relative, so that run and translations can move together.
        "run": os.path.relpath(run.path.resolve(), folder.resolve()),
        "source_sha256": hashlib.sha256(wanted.source.read_bytes()).hexdigest(),
        **dataclasses.asdict(dataclasses.replace(decode_hparams, batch_size=0)),
    }


def prepare_folder(folder: pathlib.Path, record: dict, name: str) -> None:
    """Makes the folder and writes the record of its translations.

    Raises:
        UsageError: the folder has a record that differs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass  # Fails now, not after the first translation.
    path = folder / f"{name}.json"
    if not path.exists():
        content = json.dumps(record, indent=2) + "\n"
        files.write(path, content)
        return
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(old, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise errors.UserError(f"{path} is damaged. Remove it.") from error
    changed = [key for key in record if old.get(key) != record[key]]
    if changed:
        raise command.UsageError(
            f"the translations of {name} in {folder} were made with "
            + ", ".join(f"{key}={old.get(key)}" for key in changed)
            + ". Received: "
            + ", ".join(f"{key}={record[key]}" for key in changed)
            + f". Name another --translations_dir, or remove {path} and them."
        )


def find_checkpoints(
    run: run_dir.RunDir, folder: pathlib.Path, name: str
) -> list:
    """Returns a pair (prefix, translation) for each checkpoint, by step."""
    from relpos_tf.comparison import checkpoint_scores

    pairs = []
    for is_average in (False, True):
        parent = run.path / "average" if is_average else run.path
        for step in run_dir.all_steps(parent):
            if step >= FLAGS.min_steps:
                translation = checkpoint_scores.translation_of(
                    folder, name, step, is_average
                )
                pairs.append((str(parent / f"ckpt-{step}"), translation))
    return sorted(pairs, key=lambda pair: pair[1])


def log_counts(run: run_dir.RunDir, worker: CheckpointTranslator) -> None:
    """Logs the numbers of translations; raises UserError if there is none."""
    if not worker.num_made + worker.num_kept:
        least = f" of step {FLAGS.min_steps} or later" * bool(FLAGS.min_steps)
        raise errors.UserError(
            f"Expected a run with readable checkpoints, ckpt-STEP.npz{least}. "
            f"Received: {run.path}, which has none."
        )
    command.logger().info(
        "Checkpoints: %d translated, %d were already translated, %d failed.",
        worker.num_made,
        worker.num_kept,
        worker.num_failed,
    )


def run() -> None:
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
