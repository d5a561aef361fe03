"""The scores of translations, as commands print and record them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from relpos_tf.bin import command
from relpos_tf.models import run_dir


def define_tokenizer(flag_values: command.Flags) -> None:
    """Defines --bleu_tokenize, and checks it before any work begins."""
    flag_values.define_string(
        "bleu_tokenize",
        "",
        "sacreBLEU's tokenizer for BLEU, such as zh, intl, char or none. "
        "Default: that of the target language: zh, ja-mecab, ko-mecab, char of "
        "Thai, Khmer, Lao, Burmese and Tibetan, and 13a for all others.",
    )
    flag_values.check("bleu_tokenize", _can_load, "must be a tokenizer")


def define_scale(flag_values: command.Flags) -> None:
    """Defines --scale."""
    flag_values.define_enum(
        "scale",
        None,
        ["multi30k", "wmt14"],
        "Scale of the tokenized BLEU. multi30k (default): lower-cased, as in "
        "papers on multimodal translation. wmt14: cased, compounds split at "
        "hyphens, as in Vaswani et al. (2017) and Shaw et al. (2018).",
    )


def check_scale(scale: str | None, language: str) -> None:
    """Raises UsageError, which names --scale, for a language without it.

    Raises:
        MissingPackageError: the packages of scoring are not installed.
    """
    from relpos_tf.training import metrics  # imports sacreBLEU

    if scale:
        with command.flag_value("scale"):
            metrics.check_moses_language(language)


def define_language_pair(flag_values: command.Flags, text: str) -> None:
    """Defines --language_pair."""
    flag_values.define_string("language_pair", "", text)
    flag_values.check(
        "language_pair",
        lambda pair: not pair or all(pair.partition("-")),
        "must be two codes, as in en-de",
    )


def sacrebleu_set_of(name: str, language_pair: str) -> Any:
    """Returns the set of --test_set that sacreBLEU knows by this name.

    Raises:
        UsageError: it is unknown, or not in these languages.
        UserError: it cannot be downloaded.
    """
    from relpos_tf.problems import sacrebleu_sets  # imports sacreBLEU

    with command.flag_value("test_set"):
        sacrebleu_sets.check(name, language_pair)
    return sacrebleu_sets.load(name, language_pair)


def _can_load(tokenize: str) -> bool:
    """Raises UsageError unless sacreBLEU has this tokenizer."""
    if tokenize:
        from relpos_tf.training import metrics  # imports sacreBLEU

        with command.flag_value("bleu_tokenize"):
            metrics.bleu(tokenize)
    return True


def asked_tokenizer(flag_values: command.Flags, run: run_dir.RunDir) -> str:
    """Returns --bleu_tokenize, or that of a run's training; "" without one."""
    of_run = run.read_flags().get("bleu_tokenize", "")
    return flag_values["bleu_tokenize"].value or of_run


def score(
    translations: Sequence[str],
    references: Sequence[Any],
    language: str,
    asked: str = "",
    scale: str = "",
) -> tuple[dict[str, Any], str]:
    """Scores translations; warns of what makes the scores doubtful.

    Args:
        translations: The translations.
        references: One for each, or a tuple of several.
        language: str. Code of their language, or "".
        asked: str. The tokenizer for BLEU, if not that of the language.
        scale: str. The scale of tokenized BLEU, if not the first of
            `metrics.SCALES`.

    Returns:
        A pair: the scores by name, and lines of text with their signatures.

    Raises:
        UserError: there are more of one than of the other, or no text.
    """
    from relpos_tf.comparison import corpus_measures  # imports sacreBLEU
    from relpos_tf.training import metrics

    tokenize = metrics.tokenizer_of(language, asked)
    found = metrics.corpus_bleu(translations, references, tokenize)
    for warning in found.warnings:
        command.logger().warning("%s", warning)
    record, lines = dataclasses.asdict(found), []
    for one in corpus_measures.of_language(language, tokenize, scale):
        counts = one.counts(translations, references)
        value, signature = float(one.score(counts.sum(0))), one.signature()
        record |= {one.field: value, f"{one.field}_signature": signature}
        lines.append(f"{one.name} = {value:.2f} ({signature})")
    lines.append(
        f"exact match = {found.exact_match:.2f}% of {found.lines} lines, "
        f"{found.empty_lines} empty"
    )
    return record, "\n".join(lines) + "\n"
