"""Splits text into sentences, and puts their translations together.

Training pairs are sentences: of a paragraph that is translated as one line,
whole sentences may be missing. `sentencex` is imported in this module only,
when it is needed.
"""

import collections
import itertools
import re
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import extras
from relpos_tf.utils import languages

# The rules of unknown languages.
DEFAULT_LANGUAGE = "en"
# Characters that are split at once. The time of sentencex grows with their
# square, and no sentence is longer.
WINDOW = 4000
# A line that is not blank, without its end; `str.splitlines` knows the ends.
_LINE = re.compile(r"\S[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")


class Sentences(NamedTuple):
    """The sentences of a text.

    Attributes:
        texts: The sentences, without the blanks around them.
        blanks: The blanks before, between and after them, line ends included:
            one more than sentences.
    """

    texts: list[str]
    blanks: list[str]

    def blanks_in(self, language: str) -> list[str]:
        """Returns the blanks around translations into a language.

        Line ends stay, and what is before the first and after the last one.
        """
        found = list(self.blanks)
        for i in range(1, len(self.texts)):
            if languages.has_blanks(language):
                found[i] = found[i] or " "
            elif not found[i].strip(" "):
                found[i] = ""
        return found

    def join(self, translations: Iterable[str], language: str) -> str:
        """Returns the text of the translations of all sentences.

        Args:
            translations: One for each sentence.
            language: str. Their language; "" where unknown.
        """
        first, *others = self.blanks_in(language)
        pairs = zip(translations, others, strict=True)
        return first + "".join(map("".join, pairs))


def package() -> Any:
    """Imports and returns `sentencex`.

    Raises:
        UserError: it is not installed.
    """
    with extras.imports("sentences", "splitting text into sentences"):
        import sentencex

    return sentencex


def check(decode_hparams: decode_hparam.DecodeHParams) -> None:
    """Refuses what lines of several sentences do not have.

    Raises:
        UserError: alternatives or alignments are wanted.
    """
    for name in ("return_beams", "return_alignments"):
        if getattr(decode_hparams, name):
            raise errors.UserError(
                f"{name}=true needs one sentence a line, without "
                "--split_sentences."
            )


def split(text: str, language: str = "") -> Sentences:
    """Splits a text, each of whose lines has one sentence or more.

    Args:
        text: str. Texts and blanks of the result put together are this text.
        language: str. The code of its language; "" where unknown.

    Raises:
        UserError: `sentencex` is not installed.

    Example:

    >>> split("Mr. Fox runs. He\'s late.\\n", "en")
    Sentences(texts=['Mr. Fox runs.', "He's late."], blanks=['', ' ', '\\n'])
    """
    segment = package().segment
    spans = []  # the start and the end of each sentence
    for line in _LINE.finditer(text):
        start = line.start()
        for part in _parts(line[0], language or DEFAULT_LANGUAGE, segment):
            if sentence := part.strip():
                first = start + part.index(sentence)
                spans.append((first, first + len(sentence)))
            start += len(part)
    ends = [0, *(end for _, end in spans)]
    starts = [*(first for first, _ in spans), len(text)]
    return Sentences(
        [text[first:end] for first, end in spans],
        [text[end:first] for end, first in zip(ends, starts, strict=True)],
    )


def _parts(line, language, segment):
    """Yields the sentences of a line with their blanks, a window at a time."""
    while line:
        window = line[:WINDOW]
        # Some blanks make sentencex fail; the parts have the same lengths.
        found = segment(language, re.sub(r"\s", " ", window))
        ends = list(itertools.accumulate(map(len, found), initial=0))
        parts = [window[a:b] for a, b in itertools.pairwise(ends)]
        if len(window) < len(line):
            # The last one may go on; without any end, a word ends the part.
            words = window.rpartition(" ")[0]
            parts = parts[:-1] or [words or window]
        yield from parts
        line = line[sum(map(len, parts)) :]


class SentenceTranslator:
    """Translates lines of several sentences, as `translator.Translator`.

    Args:
        translator: What translates the sentences.
        source_language: str. A code; "" where unknown.
        target_language: str.
    """

    def __init__(
        self,
        translator: translator_lib.Translator,
        source_language: str = "",
        target_language: str = "",
    ):
        self.engine = translator.engine
        self._translator = translator
        self._languages = source_language, target_language

    def translations(
        self,
        lines: Iterable[str],
        decode_hparams: decode_hparam.DecodeHParams | None = None,
        **options: Any,
    ) -> Iterator[engines.Translation]:
        """Yields an `engines.Translation` for each line, while reading lines.

        Args:
            lines: The lines.
            decode_hparams: How to translate a sentence; as for `check`.
            **options: Those of `Translator.translations`, which count
                sentences. Each line has one translation, without attention.

        Raises:
            UserError: alternatives or alignments are wanted.
        """
        if decode_hparams:
            check(decode_hparams)
        groups: collections.deque[Sentences] = collections.deque()
        found = self._translator.translations(
            self._sentences(lines, groups), decode_hparams, **options
        )
        return self._joined(iter(found), groups)

    def _sentences(self, lines, groups):
        """Yields the sentences of all lines, and adds each line to groups."""
        for line in lines:
            line = " ".join(line.splitlines()).strip()  # it stays one line
            group = split(line, self._languages[0])
            groups.append(group)
            yield from group.texts or [""]

    def _joined(self, found, groups):
        """Yields the translation of each line."""
        for first in found:
            group = groups.popleft()
            others = itertools.islice(found, max(0, len(group.texts) - 1))
            parts = [first, *others]
            texts = [part.texts[0] for part in parts[: len(group.texts)]]
            yield engines.Translation(
                [group.join(texts, self._languages[1])],
                [sum(part.scores[0] for part in parts)],
                all(part.is_complete for part in parts),
            )
