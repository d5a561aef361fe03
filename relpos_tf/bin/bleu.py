r"""Scores translations against their reference with sacreBLEU.

    relpos-bleu --translation=out.de --reference=test.de
    relpos-bleu --translation=out.de --reference=test.de --score_json=score.json

The reference may be that of a test set that sacreBLEU knows:

    relpos-bleu --translation=out.de --test_set=multi30k/2016 \
        --language_pair=en-de

All texts are plain, one sentence a line. Every score has the signature that
says how it was computed.
"""

import json

from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.problems import test_sets
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import text

FLAGS = command.Flags()
FLAGS.define_strings(
    translation="File of translations.",
    reference="File of reference translations, a line for each line; or "
    "several files, separated by commas.",
    test_set="sacreBLEU's name of a test set, such as multi30k/2016, in place "
    "of --reference.",
    score_json="File to write the scores to, as one JSON object.",
)
scores.define_language_pair(
    FLAGS,
    "Source and target, as en-de, of --test_set and for the tokens of BLEU. "
    "For targets that Moses' tokenizer knows, the tokenized BLEU of papers is "
    "printed, too, see --scale, which is higher.",
)
scores.define_tokenizer(FLAGS)
scores.define_scale(FLAGS)
FLAGS.exclusive("reference", "test_set")
FLAGS.needs("language_pair", "test_set")
FLAGS.needs("language_pair", "scale")


def main() -> None:
    """Prints the scores."""
    command.check_outputs(FLAGS, ["score_json"], ["translation", "reference"])
    command.require(FLAGS, "translation")
    target = FLAGS.language_pair.partition("-")[2]
    scores.check_scale(FLAGS.scale, target)
    translations = list(text.read_nonempty(FLAGS.translation))
    if FLAGS.test_set:
        found = scores.sacrebleu_set_of(FLAGS.test_set, FLAGS.language_pair)
        references = found.references
    else:
        command.require(FLAGS, "reference")
        given = paths.listed(FLAGS.reference)
        references = test_sets.paired_lines(given, len(translations))
    found, lines = scores.score(
        translations, references, target, FLAGS.bleu_tokenize, FLAGS.scale
    )
    if FLAGS.score_json:
        written = json.dumps(found, ensure_ascii=False)
        files.write(FLAGS.score_json, written + "\n")
    command.write(lines)


run = command.program(main)
