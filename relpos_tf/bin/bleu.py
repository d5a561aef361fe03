"""Scores translations against their reference with sacreBLEU.

    relpos-bleu --translation=out.de --reference=test.de
    relpos-bleu --translation=out.de --reference=test.de --score_json=score.json

or one translation after the other, as relpos-translate_all writes them:

    relpos-bleu --translations_dir=runs/mine/translations \\
        --translation_name=dev --reference=dev.de

That prints a table of all checkpoints with the best marked, and writes the
scores and a plot of BLEU against steps into the folder: NAME.bleu.json and
NAME.bleu.png. All files are plain text, one sentence a line. Every score comes
with the signature that says how it was computed.
"""

import pathlib

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.utils import files
from relpos_tf.utils import paths

FLAGS = command.Flags()
FLAGS.define_string("translation", None, "File that a model wrote.")
FLAGS.define_string(
    "reference", None, "File of reference translations, with as many lines."
)
FLAGS.define_string(
    "source",
    None,
    "File that was translated; only checked for having as many lines.",
)
FLAGS.define_string(
    "score_json",
    None,
    "File to write the scores to, as one JSON object. Default: none, and for "
    "a folder NAME.bleu.json in it.",
)
FLAGS.define_string(
    "translations_dir",
    None,
    "Folder of translations by the checkpoints of a run: NAME-STEP, and "
    "NAME-average-STEP.",
)
FLAGS.define_string(
    "translation_name",
    None,
    "The NAME, where the folder has translations of several texts.",
)
FLAGS.define_string(
    "plot_file",
    None,
    "File for the plot, .png, .pdf or .svg. Default: NAME.bleu.png in the "
    "folder.",
)
FLAGS.define_string("event_dir", None, "Folder for TensorBoard's events.")
FLAGS.define_integer(
    "min_steps",
    0,
    "Leave out the translations by earlier checkpoints.",
    lower_bound=0,
)
FLAGS.define_float(
    "wait_minutes",
    0,
    "How long to wait for another translation.",
    lower_bound=0,
)

_OF_A_FOLDER = (
    "translation_name",
    "plot_file",
    "event_dir",
    "min_steps",
    "wait_minutes",
)


def main():
    """Prints the scores."""
    check_flags()
    command.check_outputs(
        FLAGS,
        outputs=["score_json", "plot_file"],
        inputs=["translation", "reference", "source"],
    )
    if FLAGS.translations_dir:
        score_folder()
    else:
        score_file()


def check_flags():
    """Refuses flags that contradict one another."""
    if FLAGS.translation and FLAGS.translations_dir:
        raise command.UsageError(
            "--translation and --translations_dir exclude each other."
        )
    if not FLAGS.translations_dir:
        command.require(FLAGS, "translation")
        for name in _OF_A_FOLDER:
            if FLAGS[name].value:
                raise command.UsageError(f"--{name} needs --translations_dir.")
    command.require(FLAGS, "reference")
    from relpos_tf.comparison import plots

    ending = pathlib.Path(FLAGS.plot_file or ".png").suffix
    if FLAGS.plot_file and ending.removeprefix(".") not in plots.FORMATS:
        raise command.UsageError(
            f"--plot_file must end in one of {', '.join(plots.FORMATS)}. "
            f"Received: {FLAGS.plot_file}."
        )


def score_file():
    """Scores --translation."""
    from relpos_tf.training import metrics  # sacreBLEU is slow to import.
    from relpos_tf.utils import text

    translation = list(text.read_lines(FLAGS.translation))
    if FLAGS.source:
        check_source(len(translation), FLAGS.translation)
    scores = metrics.corpus_bleu(
        translation, list(text.read_lines(FLAGS.reference))
    )
    for warning in scores.warnings:
        command.logger().warning("%s", warning)
    if FLAGS.score_json:
        files.write(FLAGS.score_json, scores.to_json() + "\n")
    command.write(
        f"BLEU = {scores.bleu:.2f}\n"
        f"chrF = {scores.chrf:.2f}\n"
        f"exact match = {scores.exact_match:.2f} %\n"
        f"lines = {scores.lines}, empty = {scores.empty_lines}\n"
        f"BLEU signature: {scores.bleu_signature}\n"
        f"chrF signature: {scores.chrf_signature}\n"
    )


def check_source(num_translations: int, translation: str):
    """Raises UserError unless there is a translation for each line."""
    from relpos_tf.utils import text

    num_sources = text.count_lines(FLAGS.source)
    if num_translations != num_sources:
        raise errors.UserError(
            "Expected one translation for each line of the source. Received: "
            f"{num_translations} lines in {translation} and "
            f"{num_sources} in {FLAGS.source}."
        )


def score_folder():
    """Scores everything in --translations_dir."""
    from relpos_tf.comparison import checkpoint_scores  # It brings sacreBLEU.
    from relpos_tf.training import metrics
    from relpos_tf.utils import text

    # Now, not when a translation has come.
    metrics.check_references(list(text.read_lines(FLAGS.reference)))
    if FLAGS.source:
        check_source(text.count_lines(FLAGS.reference), FLAGS.reference)
    if FLAGS.event_dir:
        with command.flag_value("event_dir"):
            paths.check_folder(FLAGS.event_dir)
        command.import_tensorflow()

    def find():
        with command.flag_value("translation_name"):
            return checkpoint_scores.find_translations(
                FLAGS.translations_dir,
                FLAGS.translation_name or "",
                FLAGS.min_steps,
            )

    report = None
    for translation in checkpoint_scores.as_they_come(find, FLAGS.wait_minutes):
        if report is None:
            start = f"{FLAGS.translations_dir}/{translation.name}.bleu"
            report = checkpoint_scores.Report(
                translation.name,
                FLAGS.reference,
                FLAGS.score_json or f"{start}.json",
                FLAGS.plot_file or f"{start}.png",
                FLAGS.event_dir,
            )
        report.add(translation)
        if FLAGS.wait_minutes:
            report.save()  # Whoever waits may leave at any time.
    if report is None:
        raise errors.UserError(nothing_found())
    command.write(report.table())
    report.save()
    command.logger().info("Wrote %s.", " and ".join(map(str, report.paths())))


def nothing_found() -> str:
    """Returns the message for a folder without translations."""
    name = FLAGS.translation_name or "NAME"
    least = f" of step {FLAGS.min_steps} or later" if FLAGS.min_steps else ""
    is_there = pathlib.Path(FLAGS.translations_dir).is_dir()
    return (
        f"Expected translations {name}-STEP{least}. Received: "
        f"{FLAGS.translations_dir}, which "
        f"{'has none' if is_there else 'does not exist'}."
    )


def run():
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
