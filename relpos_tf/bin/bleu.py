"""Scores translations against their reference with sacreBLEU.

    relpos-bleu --translation=out.de --reference=test.de
    relpos-bleu --translation=out.de --reference=test.de --score_json=score.json

The reference may be that of a test set that sacreBLEU knows:

    relpos-bleu --translation=out.de --test_set=multi30k/2016 \\
        --language_pair=en-de

This scores a folder that relpos-translate_all has written:

    relpos-bleu --translations_dir=runs/mine/translations \\
        --translation_name=dev --reference=dev.de

It prints a table of all checkpoints with the best marked, and writes the scores
and a plot into the folder, NAME.bleu.json and NAME.bleu.png. All texts are
plain, one sentence a line. Every score has the signature that says how it was
computed.
"""

import json

from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.utils import files
from relpos_tf.utils import text

FLAGS = command.Flags()
FLAGS.define_strings(
    translation="File of translations.",
    reference="File of reference translations, a line for each line.",
    test_set="sacreBLEU's name of a test set, such as multi30k/2016, in place "
    "of --reference.",
    score_json="File to write the scores to, as one JSON object.",
    tokenized_language="Language code, such as de: also print the "
    "lower-cased, tokenized BLEU of papers on multimodal translation, which "
    "is higher. Default: the target of --language_pair, if Moses' tokenizer "
    "knows it.",
    translations_dir="Folder of translations by the checkpoints of a run: "
    "NAME-STEP, and NAME-average-STEP.",
    translation_name="The NAME, if the folder has translations of several "
    "texts.",
)
FLAGS.define_integers(
    min_steps="Leave out translations by checkpoints of fewer steps.",
)
scores.define_language_pair(
    FLAGS,
    "Source and target, as en-de, of --test_set and for the tokens of BLEU.",
)
scores.define_tokenizer(FLAGS)
FLAGS.exclusive("translation", "translations_dir")
FLAGS.exclusive("reference", "test_set")
FLAGS.exclusive("score_json", "translations_dir")
FLAGS.needs("language_pair", "test_set")
FLAGS.needs("translations_dir", "translation_name", "min_steps")


def main() -> None:
    """Prints the scores."""
    command.check_outputs(FLAGS, ["score_json"], ["translation", "reference"])
    if not FLAGS.translations_dir:
        command.require(FLAGS, "translation")
    if not FLAGS.test_set:
        command.require(FLAGS, "reference")
    reference = FLAGS.reference
    if FLAGS.test_set:
        found = scores.sacrebleu_set_of(FLAGS.test_set, FLAGS.language_pair)
        reference = found.reference_path
    from relpos_tf.training import metrics  # imports sacreBLEU

    if FLAGS.tokenized_language:
        with command.flag_value("tokenized_language"):
            metrics.check_moses_language(FLAGS.tokenized_language)
    target = FLAGS.language_pair.partition("-")[2]
    language = FLAGS.tokenized_language or target
    tokenize = metrics.tokenizer_of(target, FLAGS.bleu_tokenize)
    if FLAGS.translations_dir:
        scores.report_checkpoints(
            FLAGS.translations_dir,
            FLAGS.translation_name,
            FLAGS.min_steps,
            reference,
            language,
            tokenize,
        )
        return
    found, lines = scores.score(
        list(text.checked_lines(FLAGS.translation)),
        list(text.checked_lines(reference)),
        language,
        tokenize,
    )
    if FLAGS.score_json:
        written = json.dumps(found, ensure_ascii=False)
        files.write(FLAGS.score_json, written + "\n")
    command.write(lines)


run = command.program(main)
