"""Scores translations against their reference with sacreBLEU.

    relpos-bleu --translation=out.de --reference=test.de
    relpos-bleu --translation=out.de --reference=test.de --score_json=score.json

or against the reference of a test set that sacreBLEU knows:

    relpos-bleu --translation=out.de --test_set=multi30k/2016 \\
        --language_pair=en-de

(several files and as many references or sets have commas between them),

or all translations of a folder, as relpos-translate_all writes them:

    relpos-bleu --translations_dir=runs/mine/translations \\
        --translation_name=dev --reference=dev.de

This prints a table of all checkpoints with the best marked, and writes the
scores into the folder: NAME.bleu.json. All texts are plain, one sentence a
line. Every score has the signature that says how it was computed.
"""

import dataclasses
import json
import pathlib

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.utils import files
from relpos_tf.utils import paths

FLAGS = command.Flags()
FLAGS.define_string(
    "translation",
    None,
    "File of translations by a model; several, with commas, are scored each.",
)
FLAGS.define_string(
    "reference",
    None,
    "File of reference translations, one for each translation; a file for "
    "each --translation.",
)
FLAGS.define_string(
    "test_set",
    None,
    "sacreBLEU's name of a test set, such as multi30k/2016, in place of "
    "--reference; a name for each --translation.",
)
FLAGS.define_string(
    "language_pair",
    None,
    "With --test_set: source and target, as en-de.",
)
FLAGS.define_string(
    "score_json",
    None,
    "File to write the scores to, as one JSON object. Default: none; with "
    "--translations_dir, NAME.bleu.json in that folder.",
)
FLAGS.define_string(
    "tokenized_language",
    None,
    "Language code, such as de: also print the lower-cased, tokenized BLEU of "
    "papers on multimodal translation, which is higher. Default: the target "
    "of --language_pair, if Moses' tokenizer knows it.",
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
    "The NAME, if the folder has translations of several texts.",
)
FLAGS.define_integer(
    "min_steps",
    0,
    "Leave out the translations by earlier checkpoints.",
    lower_bound=0,
)
_FOLDER_FLAGS = "translation_name", "min_steps"


def main():
    """Prints the scores."""
    check_flags()
    command.check_outputs(
        FLAGS,
        outputs=["score_json"],
        inputs=["translation", "reference"],
    )
    if FLAGS.translations_dir:
        score_folder()
    else:
        score_files()


def check_flags():
    """Raises UsageError for contradictory or missing flags."""
    if FLAGS.translation and FLAGS.translations_dir:
        raise command.UsageError(
            "--translation and --translations_dir exclude each other."
        )
    if not FLAGS.translations_dir:
        command.require(FLAGS, "translation")
        for name in _FOLDER_FLAGS:
            if FLAGS[name].value:
                raise command.UsageError(f"--{name} needs --translations_dir.")
    check_reference()


def check_reference():
    """Raises UsageError unless there is a reference for each translation."""
    if FLAGS.reference and FLAGS.test_set:
        raise command.UsageError(
            "--reference and --test_set exclude each other."
        )
    name = "test_set" if FLAGS.test_set else "reference"
    command.require(FLAGS, name)
    translations = paths.listed(FLAGS.translation) or [FLAGS.translations_dir]
    number = len(paths.listed(FLAGS[name].value))
    if number != len(translations):
        raise command.UsageError(
            f"--{name} must name one for each translation. Received: {number} "
            f"for {len(translations)}."
        )
    if FLAGS.language_pair and not FLAGS.test_set:
        raise command.UsageError("--language_pair needs --test_set.")
    if FLAGS.test_set:
        check_test_sets()


def check_test_sets():
    """Raises UsageError unless sacreBLEU knows the sets in these languages."""
    from relpos_tf.problems import sacrebleu_sets  # Imports sacreBLEU.

    names = paths.listed(FLAGS.test_set)
    with command.flag_value("test_set"):
        for name in names:
            sacrebleu_sets.check_name(name)
    command.require(FLAGS, "language_pair")
    with command.flag_value("language_pair"):
        for name in names:
            sacrebleu_sets.check_pair(name, FLAGS.language_pair)


def reference_paths() -> list[str]:
    """Returns the files of the references; some may be downloaded first."""
    if FLAGS.reference:
        return paths.listed(FLAGS.reference)
    from relpos_tf.problems import sacrebleu_sets  # Imports sacreBLEU.

    return [
        str(sacrebleu_sets.load(name, FLAGS.language_pair).reference_path)
        for name in paths.listed(FLAGS.test_set)
    ]


def tokenized_language() -> str:
    """Returns the language for tokenized BLEU, or ""."""
    from relpos_tf.training import metrics  # Imports sacreBLEU.

    if language := FLAGS.tokenized_language:
        with command.flag_value("tokenized_language"):
            metrics.check_moses_language(language)
        return language
    target = (FLAGS.language_pair or "").partition("-")[2]
    return target if metrics.has_moses_rules(target) else ""


def score_files():
    """Scores each --translation."""
    translations = paths.listed(FLAGS.translation)
    language = tokenized_language()
    records, blocks = [], []
    for path, reference in zip(translations, reference_paths(), strict=True):
        scores, block = score_file(path, reference, language)
        records.append({"translation": path, "reference": reference, **scores})
        blocks.append(f"{path}:\n{block}")
    content = {"scores": records}
    if len(blocks) == 1:
        content, blocks = scores, [block]
    if FLAGS.score_json:
        written = json.dumps(content, ensure_ascii=False)
        files.write(FLAGS.score_json, written + "\n")
    command.write("\n".join(blocks))


def score_file(translation: str, reference: str, language: str):
    """Returns the scores of a file, by name and as lines."""
    from relpos_tf.training import metrics  # sacreBLEU is slow to import.
    from relpos_tf.utils import text

    hypotheses = list(text.checked_lines(translation))
    references = list(text.checked_lines(reference))
    scores = metrics.corpus_bleu(hypotheses, references)
    for warning in scores.warnings:
        command.logger().warning("%s", warning)
    tokenized, more = "", {}
    if language:
        score = metrics.tokenized_bleu(hypotheses, references, language)
        more = score._asdict()
        tokenized = (
            f"tokenized BLEU = {score.tokenized_bleu:.2f}\n"
            f"tokenized BLEU signature: {score.tokenized_bleu_signature}\n"
        )
    return dataclasses.asdict(scores) | more, (
        f"BLEU = {scores.bleu:.2f}\n"
        f"chrF = {scores.chrf:.2f}\n"
        f"exact match = {scores.exact_match:.2f} %\n"
        f"lines = {scores.lines}, empty = {scores.empty_lines}\n"
        f"BLEU signature: {scores.bleu_signature}\n"
        f"chrF signature: {scores.chrf_signature}\n"
        f"{tokenized}"
    )


def score_folder():
    """Scores everything in --translations_dir."""
    from relpos_tf.comparison import checkpoint_scores  # Imports sacreBLEU.

    language, (reference,) = tokenized_language(), reference_paths()
    with command.flag_value("translation_name"):
        found = checkpoint_scores.find_translations(
            FLAGS.translations_dir,
            FLAGS.translation_name or "",
            FLAGS.min_steps,
        )
    if not found:
        raise errors.UserError(nothing_found())
    scores = checkpoint_scores.CheckpointScores(
        found[0].name,
        reference,
        FLAGS.score_json
        or f"{FLAGS.translations_dir}/{found[0].name}.bleu.json",
        language=language,
    )
    for translation in found:
        scores.add(translation)
    command.write(scores.table())
    scores.save()
    command.logger().info("Wrote %s.", " and ".join(map(str, scores.paths())))


def nothing_found() -> str:
    """Returns the message for a folder without translations."""
    name = FLAGS.translation_name or "NAME"
    least = f" of step {FLAGS.min_steps} or later" if FLAGS.min_steps else ""
    is_folder = pathlib.Path(FLAGS.translations_dir).is_dir()
    return (
        f"Expected translations {name}-STEP{least}. Received: "
        f"{FLAGS.translations_dir}, which "
        f"{'has none' if is_folder else 'does not exist'}."
    )


def run():
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
