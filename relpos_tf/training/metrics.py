"""Scores of translations against references: sacreBLEU, chrF, exact match.

Only for translations that a model made without seeing the reference: with
teacher forcing, the same formula is no BLEU score.

Vocabularies write each text in one Unicode form (see `data.spelling`). Every
score compares `comparable` lines, so the form of a reference does not count.
"""

import dataclasses
import functools
import importlib.metadata
import itertools
import logging
import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.data import spelling
from relpos_tf.utils import extras
from relpos_tf.utils import languages

with extras.imports("translate", "scoring"):
    import sacrebleu
    import sacremoses
    from sacrebleu import metrics as sacrebleu_metrics

_log = logging.getLogger("relpos_tf")
# sacreBLEU's tokenizers of languages that put no blanks between words, or few.
_TOKENIZERS = {"zh": "zh", "yue": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_TOKENIZERS |= dict.fromkeys(("th", "km", "lo", "my", "bo"), "char")
_OTHER_LANGUAGES = "13a"
# Scripts without blanks between words: those of Thai, Lao, Tibetan, Burmese and
# Khmer, kana and Chinese characters.
_WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff\U00020000-\U0003ffff]"
)
# A line of plain text may hold a sign by chance; 4 % of tokenized captions have
# a hyphen. A broken character is never meant.
_BROKEN, _CHANCE = "\ufffd", 0.02
# Signs that lines are not plain text. The second: commas and hyphens of Moses'
# tokenizer, the pieces of BPE and those of SentencePiece.
_SIGNS = {
    r"(?i)</?(refset|srcset|tstset|mteval|doc|seg|hl)\b": "they are markup; "
    "score the plain text.",
    " , | @-@ |@@( |$)|\u2581": "they look tokenized; score detokenized text.",
    "\t": "they have columns; score the first, as by cut -f1.",
    _BROKEN: "they are broken UTF-8; convert Latin-1 by iconv, unless a model "
    "chose these bytes.",
}
# For others, Moses' tokenizer takes the rules of English without a word.
MOSES_LANGUAGES = "cs", "de", "en", "es", "fr", "it", "nl", "pl", "pt", "sv"


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of a set of translations.

    Attributes:
        bleu: Corpus BLEU, 0 to 100: cased, sacreBLEU's tokenization.
        bleu_signature: sacreBLEU's description of the computation.
        chrf: Corpus chrF2, 0 to 100.
        chrf_signature: sacreBLEU's description for chrF.
        brevity_penalty: BLEU's factor for short output, 0 to 1.
        exact_match: Percentage of lines equal to their reference, without
            blanks at both ends.
        empty_lines: Number of hypotheses without text.
        lines: Number of hypotheses.
        warnings: One line for each reason to distrust the scores.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    brevity_penalty: float
    exact_match: float
    empty_lines: int
    lines: int
    warnings: tuple[str, ...] = ()


# By scale of published papers, the part of sacreBLEU's signature that says how
# tokens are made. Papers on multimodal translation: the `lc.norm.tok` files of
# Elliott et al. (2016). English to German of WMT14: tensor2tensor's
# get_ende_bleu.sh, the scale of Vaswani et al. (2017) and Shaw et al. (2018).
MULTI30K = "multi30k"
SCALES = {
    MULTI30K: "case:lc|eff:no|norm:moses|tok:moses-{}",
    "wmt14": "case:mixed|eff:no|norm:unicode-punctuation|tok:moses-{}-atat",
}


@functools.cache  # says once in a process which packages are missing
def tokenizer_of(language: str, asked: str = "") -> str:
    """Returns the name of sacreBLEU's tokenizer for a language.

    Where its packages are not installed, it is "char", and a warning is logged.

    Args:
        language: str. Code of the target language, such as "zh" or "zh-TW".
            Any other text: the language is not known.
        asked: str. The tokenizer that the user asks for, if not "".

    Example:
    >>> tokenizer_of("zh"), tokenizer_of("de"), tokenizer_of("de", "intl")
    ('zh', '13a', 'intl')
    """
    if asked:
        return asked
    name = _TOKENIZERS.get(languages.base(language), _OTHER_LANGUAGES)
    try:
        bleu(name)
    except errors.UserError as error:
        _log.warning("BLEU counts characters, tok:char. %s", error)
        return "char"
    return name


def corpus_bleu(
    hypotheses: Iterable[str],
    references: Iterable[Any],
    tokenize: str = _OTHER_LANGUAGES,
) -> Scores:
    """Scores translations with one reference each, or with several.

    Both sides are plain text: detokenized and cased, without markup.

    Args:
        hypotheses: The model's translations.
        references: Of each, a reference or a tuple of several.
        tokenize: str. sacreBLEU's tokenizer for BLEU, see `tokenizer_of`.

    Returns:
        `Scores`. Hypotheses without any text score 0, with a warning.

    Raises:
        UserError: there are no references, or not one for each hypothesis; or
            see `bleu`.
    """
    hypotheses, references = list(hypotheses), list(references)
    sides = comparable(hypotheses, references)
    bleu_score = bleu(tokenize).corpus_score(*sides)
    chrf_score = chrf().corpus_score(*sides)
    equal = exact_matches(hypotheses, references)
    empty_lines = sides[0].count("")
    warnings = reference_warnings(references, tokenize)
    warnings += doubts(hypotheses, references, tokenize)
    return Scores(
        bleu=bleu_score.score,
        bleu_signature=str(bleu(tokenize).get_signature()),
        chrf=chrf_score.score,
        chrf_signature=str(chrf().get_signature()),
        brevity_penalty=float(bleu_score.bp),
        exact_match=100 * sum(equal) / len(equal),
        empty_lines=empty_lines,
        lines=len(hypotheses),
        warnings=tuple(warnings),
    )


def comparable(
    hypotheses: Sequence[str], references: Sequence[Any]
) -> tuple[list[str], list[list[str]]]:
    """Returns both sides as they are scored: composed, see `spelling.compose`.

    Args:
        hypotheses: The model's translations.
        references: A reference for each, or a tuple of several.

    Returns:
        The hypotheses, and the references in lists, as sacreBLEU takes them.

    Raises:
        UserError: there are no references, or not one for each hypothesis.
    """
    check_references(references)
    if len(hypotheses) != len(references):
        raise errors.UserError(
            "Expected one reference line for each line. Received: "
            f"{len(hypotheses)} hypotheses and {len(references)} references. "
            "Lines are paired by number; check that both files are complete."
        )
    streams = [[*map(spelling.compose, c)] for c in _columns(references)]
    return list(map(spelling.compose, hypotheses)), streams


def exact_matches(
    hypotheses: Sequence[str], references: Sequence[Any]
) -> list[bool]:
    """Returns of each hypothesis whether it equals a reference."""
    lines, streams = comparable(hypotheses, references)
    return [
        # A blank one beside others is none.
        one in (list(filter(None, own)) or own)
        for one, *own in zip(lines, *streams, strict=True)
    ]


def tokenized_signature(language: str, scale: str) -> str:
    """Returns the signature of the last computation with `tokenized`."""
    return (
        f"nrefs:{tokenized().num_refs}|"
        f"{SCALES[scale].format(language)}|smooth:none|"
        f"sacremoses:{importlib.metadata.version('sacremoses')}|"
        f"version:{sacrebleu.__version__}"
    )


def check_moses_language(language: str) -> None:
    """Raises UserError unless Moses' tokenizer knows a language."""
    if languages.base(language) not in MOSES_LANGUAGES:
        raise errors.UserError(
            "Expected a language that Moses' tokenizer knows, one of "
            f"{', '.join(MOSES_LANGUAGES)}. Received: {language!r}."
        )


def moses_tokens(
    hypotheses: Sequence[str],
    references: Sequence[Any],
    language: str,
    scale: str = MULTI30K,
) -> tuple[list[str], list[list[str]]]:
    """Returns both sides as the tokens of a scale.

    Args:
        hypotheses: Plain text.
        references: See `comparable`, as for the result.
        language: str. ISO 639-1 code, such as "de".
        scale: str. A key of `SCALES`.

    Raises:
        UserError: see `comparable`.
    """
    normalizer = sacremoses.MosesPunctNormalizer(language)
    tokenizer = sacremoses.MosesTokenizer(language)

    def tokens(line):
        if scale == MULTI30K:
            line = normalizer.normalize(line.lower())
            return tokenizer.tokenize(line, return_str=True)
        line = normalizer.replace_unicode_punct(line)
        line = tokenizer.tokenize(line, return_str=True)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)

    lines, streams = comparable(hypotheses, references)
    return list(map(tokens, lines)), [list(map(tokens, s)) for s in streams]


@functools.cache
def tokenized() -> sacrebleu_metrics.BLEU:
    """Returns sacreBLEU's BLEU of lines that are tokens already."""
    return sacrebleu_metrics.BLEU(
        tokenize="none", smooth_method="none", force=True
    )


@functools.cache
def bleu(tokenize: str = _OTHER_LANGUAGES) -> sacrebleu_metrics.BLEU:
    """Returns sacreBLEU's BLEU with this project's settings.

    Args:
        tokenize: str. sacreBLEU's name of a tokenizer.

    Raises:
        UserError: sacreBLEU has no such tokenizer, or cannot load it.
    """
    known = sacrebleu_metrics.BLEU.TOKENIZERS
    if tokenize not in known:
        raise errors.UserError(
            f"Expected a tokenizer of sacreBLEU: {', '.join(known)}. "
            f"Received: {tokenize!r}."
        )
    try:
        return sacrebleu_metrics.BLEU(
            lowercase=False,
            tokenize=tokenize,
            smooth_method="exp",
            force=True,  # no warning of its own about tokenized text
        )
    # It raises errors of many classes, for packages and for downloads.
    except (Exception, SystemExit) as error:
        raise errors.UserError(
            f"sacreBLEU cannot load its tokenizer {tokenize}: "
            f"{' '.join(str(error).split())}"
        ) from error


@functools.cache
def chrf() -> sacrebleu_metrics.CHRF:
    """Returns sacreBLEU's chrF2."""
    return sacrebleu_metrics.CHRF()


@functools.cache
def further(asian: bool = False) -> dict[str, Any]:
    """Returns the metrics that only whole test sets are scored with.

    Args:
        asian: bool. Whether each Chinese character is a word of TER. If not, a
            sentence without blanks is one word.

    Returns:
        sacreBLEU's objects by name. Of TER, edits for 100 words, less is
        better.
    """
    return {
        "chrF++": sacrebleu_metrics.CHRF(word_order=2),
        "TER": sacrebleu_metrics.TER(normalized=asian, asian_support=asian),
    }


def field(name: str) -> str:
    """Returns the name of a metric in JSON.

    Example:
    >>> field("chrF++"), field("tokenized BLEU")
    ('chrfpp', 'tokenized_bleu')
    """
    return name.lower().replace(" ", "_").replace("+", "p")


def check_references(references: Sequence[Any]) -> None:
    """Raises UserError unless there is text to score against."""
    if not any(map(str.strip, itertools.chain(*_columns(references)))):
        raise errors.UserError(
            "Expected reference lines to score against. Received: "
            f"{len(references)} references without any text. Give the file "
            "that holds the reference translations."
        )


def doubts(
    hypotheses: Sequence[str], references: Sequence[Any], tokenize: str
) -> list[str]:
    """Returns a warning for each reason to distrust scores of translations.

    Reasons that the references alone give are those of `reference_warnings`.
    """
    warnings = _format_warnings("hypotheses", hypotheses)
    sides = comparable(hypotheses, references)
    as_it_is = list(hypotheses), list(map(list, _columns(references)))
    if as_it_is != sides:
        ours, raw = (
            bleu(tokenize).corpus_score(*x).score for x in (sides, as_it_is)
        )
        if abs(raw - ours) >= 0.005:  # of what is shown
            warnings.append(f"The text as it is would have BLEU {raw:.2f}.")
    if not any(map(spelling.compose, hypotheses)):
        warnings.append(f"All {len(hypotheses)} hypotheses are empty.")
    return warnings


def reference_warnings(references: Sequence[Any], tokenize: str) -> list[str]:
    """Returns a warning for each reason to distrust scores against lines.

    Args:
        references: The lines; of each, one or a tuple of several.
        tokenize: str. The tokenizer for BLEU.
    """
    columns = _columns(references)
    references = list(itertools.chain(*columns))
    warnings = _format_warnings("references", references)
    is_text = [[bool(spelling.compose(x)) for x in own] for own in columns]
    if number := sum(len({*row}) > 1 for row in zip(*is_text, strict=True)):
        warnings.append(
            f"{number} of {len(columns[0])} lines have a blank reference "
            "beside others. sacreBLEU takes it for one without words, so it "
            "hardly penalises short output."
        )
    text = "".join(references)
    number = len(_WITHOUT_BLANKS.findall(text))
    if tokenize == _OTHER_LANGUAGES and 4 * number > len(text):
        warnings.append(
            f"{number:,} of {len(text):,} characters of the references are of "
            "scripts without blanks between words, which BLEU with tok:13a "
            "needs. Name another tokenizer, as with --bleu_tokenize=zh or char."
        )
    return warnings


def _columns(references: Iterable[Any]) -> list[tuple[str, ...]]:
    """Returns the first reference of each line, then the second, and so on."""
    rows = [(row,) if isinstance(row, str) else row for row in references]
    return list(zip(*rows, strict=True))


def _format_warnings(side: str, lines: Sequence[str]) -> list[str]:
    """Returns a warning for each sign that lines are not plain text."""
    warnings = []
    for sign, advice in _SIGNS.items():
        found = [m[0] for m in map(re.compile(sign).search, lines) if m]
        by_chance = 0 if sign == _BROKEN else _CHANCE * len(lines)
        if len(found) > by_chance:
            shown = found[0].replace("\t", "\\t")
            line = f'{len(found)} lines of the {side} hold "{shown}"'
            warnings.append(f"{line}: {advice}")
    return warnings
