"""Splits text into sentences, and puts their translations together.

Training pairs are sentences: of a paragraph that is translated as one line,
whole sentences may be missing. For a number or a dash alone, a model invents a
sentence: what has no letter is translated with its neighbour, or not at all.
`sentencex` is imported in this module only, when it is needed.
"""

import collections
import html
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
from relpos_tf.utils import text as text_lib

# The rules of unknown languages.
DEFAULT_LANGUAGE = "en"
# Characters that are split at once. The time of sentencex grows with their
# square, and no sentence is longer.
WINDOW = 2000
# HTML is read as browsers read it (html.spec.whatwg.org, 13.2.5): a quote
# counts after "=" alone. An attribute, and all those of a tag:
_ATTRIBUTE = re.compile(
    r"""[^\s/>][^\s/>=]*(?:\s*=\s*(?:"[^"]*"?|'[^']*'?|[^\s>]*))?""",
    re.ASCII,
)
_ATTRIBUTES = rf"(?:[\s/]+|{_ATTRIBUTE.pattern}){{0,999}}"
# A comment, a declaration, an element without tags in it, or a tag; without its
# last ">", if the text ends before. It fails at the first characters or not at
# all, in one pass; html.parser takes hours for a megabyte of "<a ".
_MARKUP = re.compile(
    r"(?ais)<(?=[!?/a-z])(?:!--(?:-?(?=>)|.*?(?:--!?(?=>)|\Z))|[!?][^>]*"
    rf"|(script|style|iframe|noembed|noframes|xmp)(?=[\s/>]){_ATTRIBUTES}"
    rf"(?:>.*?(?:</\1(?=[\s/>]){_ATTRIBUTES}|\Z))?"
    rf"|(/?)([a-z][^\s/>]*)({_ATTRIBUTES}))(>?)"
)
# Tags of elements without an end; "" of comments and the like.
_VOID = ["", *"area base br col embed hr image img input link meta".split()]
_VOID += "param source track wbr".split()
_TRANSLATE = re.compile(r"""(?ai)translate(?:\s*=\s*["']?(no|yes|)["']?)?""")
# Line ends are blanks in HTML, but not in these elements.
_BLANKS = re.compile(r"(?<=\S)[ \t\n\r\f]+(?=\S)")
_KEEPS_LINES = "pre", "textarea"
# Most tags for each sentence that is allowed.
_TAGS = 32
# A line that is not blank, without its end; `str.splitlines` knows the ends.
_LINE = re.compile(r"\S[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")


class Sentences(NamedTuple):
    """The sentences of a text.

    Attributes:
        texts: The sentences, each with a letter, without the blanks around
            them.
        gaps: What stays as it is before, between and after them: blanks, line
            ends, lines without a letter, tags. One more than sentences.
    """

    texts: list[str]
    gaps: list[str]

    def gaps_in(self, language: str) -> list[str]:
        """Returns the gaps around translations into a language.

        Single blanks between two sentences are those of the language.
        """
        found = list(self.gaps)
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
        first, *others = self.gaps_in(language)
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
    for name, plain in ("n_best", 1), ("return_alignments", False):
        value = getattr(decode_hparams, name)
        if value != plain:
            raise errors.UserError(
                f"{name}={value} needs one sentence a line, without "
                "--split_sentences."
            )


def check_number(number: int, most: int) -> None:
    """Refuses a text of more sentences than are allowed.

    Raises:
        UserError: there are more.
    """
    if number > most:
        raise errors.UserError(
            f"Expected at most {most} sentences, and {_TAGS} tags for each of "
            "these. Received more. Split the text."
        )


def split(text: str, language: str = "", most: int = 10**9) -> Sentences:
    r"""Splits a text, each of whose lines has one sentence or more.

    A fragment without a letter belongs to the next sentence of its line, or to
    the last one.

    Args:
        text: str. Sentences and gaps of the result put together are this text.
        language: str. The code of its language; "" where unknown.
        most: int. Sentences that are allowed.

    Raises:
        UserError: there are more, or `sentencex` is not installed.

    Example:
    >>> split("Mr. Fox runs. He's late.\n", "en")
    Sentences(texts=['Mr. Fox runs.', "He's late."], gaps=['', ' ', '\n'])
    """
    segment = package().segment
    language = re.split("[-_]", language.lower())[0] or DEFAULT_LANGUAGE
    spans = []  # the start and the end of each sentence, with blanks
    for line in _LINE.finditer(text):
        if not any(map(str.isalpha, line[0])):
            continue
        start = end = line.start()
        for part in _parts(line[0], language, segment):
            end += len(part)
            if has_letter := any(map(str.isalpha, part)):
                spans.append((start, end))
                check_number(len(spans), most)
            if has_letter or end - start > WINDOW:  # no sentence is near
                start = end
        if spans and spans[-1][1] == start:
            spans[-1] = spans[-1][0], end
    texts, gaps, last = [], [], 0
    for start, end in spans:
        texts.append(text[start:end].strip())
        start = text.index(texts[-1], start)
        gaps.append(text[last:start])
        last = start + len(texts[-1])
    return Sentences(texts, [*gaps, text[last:]])


def split_html(text: str, language: str = "", most: int = 10**9) -> Sentences:
    """Splits the text between tags, which are gaps of the result.

    Texts are plain; gaps are HTML. Elements with translate="no" stay as they
    are, and so do code, scripts and styles.

    Args:
        text: str. HTML.
        language: str. The code of its language; "" where unknown.
        most: int. Sentences that are allowed.

    Raises:
        UserError: there are more, far more tags, or something that is not
            translated has no end; or `sentencex` is not installed.

    Example:
    >>> split_html("<p>A &amp; B. <b>7</b></p>", "en")
    Sentences(texts=['A & B.'], gaps=['<p>', ' <b>7</b></p>'])
    """
    texts, gaps = [], [[""]]
    for i, (run, markup) in enumerate(_runs(text)):
        found = split(text_lib.unescape(run), language, most)
        texts += found.texts
        check_number(max(len(texts), i // _TAGS), most)
        escaped = [[html.escape(gap, False)] for gap in found.gaps]
        gaps[-1] += escaped[0] if found.texts else [run]
        gaps += escaped[1:]
        gaps[-1].append(markup)
    return Sentences(texts, ["".join(gap) for gap in gaps])


def _runs(text):
    """Yields each text to translate and the markup behind it; either may be "".

    Raises:
        UserError: something that stays as it is has no end.
    """
    # The elements that change whether text is translated, and those of the same
    # name in them: name, whether it is, and start tag.
    opened, end, has_lines = [("", True, "")], 0, False
    while found := _MARKUP.search(text, end):
        run, markup = text[end : found.start()], found[0]
        _, slash, name, attributes, last = found.groups("")
        end, name = found.end(), name.lower()
        outer, is_translated, _ = opened[-1]
        if is_translated and not has_lines:
            run = _BLANKS.sub(" ", run)
        yield (run, markup) if is_translated else ("", run + markup)
        if name in _KEEPS_LINES:
            has_lines = not slash
        given = _ATTRIBUTE.findall(attributes)
        # A slash may end an unquoted value instead.
        is_of_value = bool(given) and given[-1].endswith("/")
        is_empty = attributes.endswith("/") and not is_of_value
        if not last:
            opened.append((name, False, markup))
            break
        elif slash and name == outer:
            opened.pop()
        elif not (slash or name in _VOID or is_empty):
            inner = is_translated and name != "code"
            # The first one counts.
            for one in filter(None, map(_TRANSLATE.fullmatch, given[::-1])):
                inner = (one[1] or "yes").lower() != "no"
            if name == outer or inner != is_translated:
                opened.append((name, inner, markup))
    if opened[1:]:
        raise errors.UserError(
            f"Expected the end of {opened[-1][2][:40]!r}, which is not "
            "translated. Received the end of the text. Write &lt; for a "
            'character "<".'
        )
    yield text[end:] if has_lines else _BLANKS.sub(" ", text[end:]), ""


def _parts(line, language, segment):
    """Yields the sentences of a line with their blanks, a window at a time."""
    while line:
        window = line[:WINDOW]
        # Some blanks, and halves of characters, make sentencex fail; the parts
        # have the same lengths.
        found = segment(language, re.sub(r"[\s\ud800-\udfff]", " ", window))
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
