"""Scores a translated file against its reference with sacreBLEU.

    relpos-bleu --translation=out.de --reference=test.de
    relpos-bleu --translation=out.de --reference=test.de --score_json=score.json

Both files are plain text, one sentence a line. Every score comes with the
signature that says how it was computed.
"""

from absl import flags

from relpos_tf import errors
from relpos_tf.bin import command

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "translation", None, "File that a model wrote.", flag_values=FLAGS
)
flags.DEFINE_string(
    "reference",
    None,
    "File of reference translations, with as many lines.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "source",
    None,
    "File that was translated; only checked for having as many lines.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "score_json",
    None,
    "File to write the scores to, as one JSON object.",
    flag_values=FLAGS,
)


def main():
    """Prints the scores."""
    command.require(FLAGS, "translation", "reference")
    from relpos_tf import metrics  # sacreBLEU is slow to import.
    from relpos_tf import text

    translation = list(text.read_lines(FLAGS.translation))
    if FLAGS.source:
        check_source(len(translation), text.count_lines(FLAGS.source))
    scores = metrics.corpus_bleu(
        translation, list(text.read_lines(FLAGS.reference))
    )
    for warning in scores.warnings:
        command.logger().warning("%s", warning)
    if FLAGS.score_json:
        with open(FLAGS.score_json, "w", encoding="utf-8") as file:
            file.write(scores.to_json() + "\n")
    command.write(
        f"BLEU = {scores.bleu:.2f}\n"
        f"chrF = {scores.chrf:.2f}\n"
        f"exact match = {scores.exact_match:.2f} %\n"
        f"lines = {scores.lines}, empty = {scores.empty_lines}\n"
        f"BLEU signature: {scores.bleu_signature}\n"
        f"chrF signature: {scores.chrf_signature}\n"
    )


def check_source(num_translations: int, num_sources: int):
    """Raises UserError unless there is a translation for each line."""
    if num_translations != num_sources:
        raise errors.UserError(
            "Expected one translation for each line of the source. Received: "
            f"{num_translations} lines in {FLAGS.translation} and "
            f"{num_sources} in {FLAGS.source}."
        )


def run():
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
