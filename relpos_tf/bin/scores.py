"""The scores of translations, as commands print and record them."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.models import run_dir


def define_tokenizer(flag_values: command.Flags) -> None:
    """Defines --bleu_tokenize, and checks it before any work begins."""
    flag_values.define_string(
        "bleu_tokenize",
        "",
        "sacreBLEU's tokenizer for BLEU, such as zh, intl, char or none. "
        "Default: that of the target language, zh, ja-mecab or ko-mecab, and "
        "13a for all others.",
    )
    flags.register_validator(
        "bleu_tokenize", _can_load, flag_values=flag_values
    )


def _can_load(tokenize: str) -> bool:
    if not tokenize:
        return True
    from relpos_tf.training import metrics  # imports sacreBLEU

    try:
        metrics.bleu(tokenize)
    except errors.UserError as error:
        raise flags.ValidationError(str(error)) from error
    return True


def asked_tokenizer(flag_values: command.Flags, run: run_dir.RunDir) -> str:
    """Returns --bleu_tokenize, or that of a run's training; "" without one."""
    of_run = run.read_flags().get("bleu_tokenize", "")
    return flag_values["bleu_tokenize"].value or of_run


def score(
    translations: Sequence[str],
    references: Sequence[str],
    language: str,
    asked: str = "",
) -> tuple[dict[str, Any], str]:
    """Scores translations; warns of what makes the scores doubtful.

    Args:
        translations: The translations.
        references: One for each.
        language: str. Code of their language, or "".
        asked: str. The tokenizer for BLEU, if not that of the language.

    Returns:
        A pair: the scores by name, and lines of text with their signatures.

    Raises:
        UserError: there are more of one than of the other, or no text.
    """
    from relpos_tf.training import metrics  # imports sacreBLEU

    found = metrics.corpus_bleu(
        translations, references, metrics.tokenizer_of(language, asked)
    )
    for warning in found.warnings:
        command.logger().warning("%s", warning)
    record = dataclasses.asdict(found)
    lines = [
        f"BLEU = {found.bleu:.2f} ({found.bleu_signature})",
        f"chrF = {found.chrf:.2f} ({found.chrf_signature})",
    ]
    if metrics.has_moses_rules(language):
        value, signature = metrics.tokenized_bleu(
            translations, references, language
        )
        record["tokenized_bleu"] = value
        record["tokenized_bleu_signature"] = signature
        lines.append(f"tokenized BLEU = {value:.2f} ({signature})")
    lines.append(
        f"exact match = {found.exact_match:.2f}% of {found.lines} lines, "
        f"{found.empty_lines} empty"
    )
    return record, "\n".join(lines) + "\n"


def report_checkpoints(
    translations: Sequence[Any],
    reference: str | pathlib.Path,
    language: str,
    tokenize: str,
    *paths: str | pathlib.Path,
) -> None:
    """Scores a text's translations by checkpoints: a table and files.

    Args:
        translations: `checkpoint_scores.TranslationFile` of each.
        reference: The reference translation.
        language: str. Code for tokenized BLEU as well; "" for none.
        tokenize: str. The tokenizer for BLEU.
        *paths: The JSON file of the scores, and that of the plot.
    """
    from relpos_tf.comparison import checkpoint_scores  # imports sacreBLEU

    report = checkpoint_scores.CheckpointScores(
        translations[0].name,
        reference,
        *paths,
        language=language,
        tokenize=tokenize,
    )
    for translation in translations:
        report.add(translation)
    command.write(report.table())
    report.save()
    command.logger().info("Wrote %s.", " and ".join(map(str, report.paths())))
