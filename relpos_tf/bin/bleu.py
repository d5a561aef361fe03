"""Scores translations against their reference with sacreBLEU.

    relpos-bleu --translation=out.de --reference=test.de
    relpos-bleu --translation=out.de --reference=test.de --score_json=score.json

The reference may be that of a test set that sacreBLEU knows:

    relpos-bleu --translation=out.de --test_set=multi30k/2016 \\
        --language_pair=en-de

Separate several files, and their references, by commas. This scores a folder
that relpos-translate_all has written:

    relpos-bleu --translations_dir=runs/mine/translations \\
        --translation_name=dev --reference=dev.de

It prints a table of all checkpoints with the best marked, and writes the scores
into the folder, as NAME.bleu.json. All texts are plain, one sentence a line.
Every score has the signature that says how it was computed.
"""

import json

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import text

FLAGS = command.Flags()
FLAGS.define_strings(
    translation="File of translations, or several files, separated by commas.",
    reference="File of reference translations, a line for each line; one file "
    "for each --translation.",
    test_set="sacreBLEU's name of a test set, such as multi30k/2016, in place "
    "of --reference; a name for each --translation.",
    language_pair="Source and target, as en-de, of --test_set and for the "
    "tokens of BLEU.",
    score_json="File to write the scores to, as one JSON object. Default: "
    "none; with --translations_dir, NAME.bleu.json in that folder.",
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
    0,
    min_steps=(0, "Leave out translations by checkpoints of fewer steps."),
)
FLAGS.exclusive("translation", "translations_dir")
FLAGS.exclusive("reference", "test_set")
FLAGS.needs("test_set", "language_pair")
FLAGS.check(
    "language_pair",
    lambda pair: not pair or all(pair.partition("-")),
    "must be two codes, as in en-de",
)
scores.define_tokenizer(FLAGS)
FLAGS.needs("translation_name", "translations_dir")
FLAGS.needs("min_steps", "translations_dir")


def main() -> None:
    """Prints the scores."""
    command.check_outputs(
        FLAGS, outputs=["score_json"], inputs=["translation", "reference"]
    )
    if not FLAGS.translations_dir:
        command.require(FLAGS, "translation")
    if not FLAGS.test_set:
        command.require(FLAGS, "reference")
    translations = paths.listed(FLAGS.translation or FLAGS.translations_dir)
    references = paths.listed(FLAGS.reference or FLAGS.test_set)
    if len(references) != len(translations):
        raise command.UsageError(
            "--reference or --test_set must name one for each translation. "
            f"Received: {len(references)} for {len(translations)}."
        )
    if FLAGS.test_set:
        references = downloaded(references)
    if FLAGS.translations_dir:
        score_folder(references[0], tokenized_language())
    else:
        score_files(translations, references, tokenized_language())


def downloaded(names: list[str]) -> list[str]:
    """Returns the files of the references of sacreBLEU's sets."""
    from relpos_tf.problems import sacrebleu_sets  # imports sacreBLEU

    for name in names:
        with command.flag_value("test_set"):
            sacrebleu_sets.check_name(name)
        with command.flag_value("language_pair"):
            sacrebleu_sets.check_pair(name, FLAGS.language_pair)
    return [
        str(sacrebleu_sets.load(name, FLAGS.language_pair).reference_path)
        for name in names
    ]


def tokenized_language() -> str:
    """Returns the language for tokenized BLEU, or ""."""
    from relpos_tf.training import metrics  # imports sacreBLEU

    if language := FLAGS.tokenized_language:
        with command.flag_value("tokenized_language"):
            metrics.check_moses_language(language)
        return language
    target = FLAGS.language_pair.partition("-")[2]
    return target if metrics.has_moses_rules(target) else ""


def tokenizer() -> str:
    """Returns the tokenizer for BLEU."""
    from relpos_tf.training import metrics  # imports sacreBLEU

    target = FLAGS.language_pair.partition("-")[2]
    return metrics.tokenizer_of(target, FLAGS.bleu_tokenize)


def score_files(
    translations: list[str], references: list[str], language: str
) -> None:
    """Scores each --translation."""
    records, blocks = [], []
    for path, reference in zip(translations, references, strict=True):
        found, block = scores.score(
            list(text.checked_lines(path)),
            list(text.checked_lines(reference)),
            language,
            tokenizer(),
        )
        records.append({"translation": path, "reference": reference, **found})
        blocks.append(f"{path}:\n{block}")
    content = {"scores": records}
    if len(blocks) == 1:
        content, blocks = found, [block]
    if FLAGS.score_json:
        written = json.dumps(content, ensure_ascii=False)
        files.write(FLAGS.score_json, written + "\n")
    command.write("\n".join(blocks))


def score_folder(reference: str, language: str) -> None:
    """Scores everything in --translations_dir."""
    from relpos_tf.comparison import checkpoint_scores  # imports sacreBLEU

    with command.flag_value("translation_name"):
        found = checkpoint_scores.find_translations(
            FLAGS.translations_dir,
            FLAGS.translation_name or "",
            FLAGS.min_steps,
        )
    if not found:
        name = FLAGS.translation_name or "NAME"
        raise errors.UserError(
            f"Expected translations {name}-STEP in {FLAGS.translations_dir}, "
            f"of step {FLAGS.min_steps} or later. Received: none."
        )
    path = f"{FLAGS.translations_dir}/{found[0].name}.bleu.json"
    path = FLAGS.score_json or path
    scores.report_checkpoints(found, reference, language, tokenizer(), path)


def run() -> None:
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
