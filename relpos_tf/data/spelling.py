"""Rules that give spellings which look alike the same ids.

They are a table of SentencePiece, which every new vocabulary contains. Python,
graphs and exports thus read text alike:

* Letters and their marks are composed (Unicode's form NFC), Hangul included.
  Marks may stand in any order. A letter with three or more marks is composed
  only where Unicode has a character for all of them.
* Every blank of Unicode, a tabulator and the ends of lines and paragraphs
  become U+0020. (SentencePiece joins neighbouring blanks and removes those at
  both ends.)
* Soft hyphens, zero-width blanks, the word joiner, byte order marks and marks
  of direction are left out. The joiners U+200C and U+200D stay: they change
  what scripts of India and Persian look like, and the meaning of emoji.
* U+2581, SentencePiece's sign for a blank, becomes "_".

A table maps the longest sequence that it contains, once. So it lists each
sequence that composes, and cannot compose across a character that is left out.

Unicode adds characters, but never changes how an assigned one composes. The
versions that Python 3.10 to 3.13 contain give the same table.
"""

import functools
import itertools
import unicodedata
from collections.abc import Iterable
from collections.abc import Iterator

# Of SentencePiece models that contain the table.
NAME = "relpos_tf"

_LEFT_OUT = (
    "\u00ad"  # soft hyphen
    "\u200b\u2060\ufeff"  # zero-width blank, word joiner, byte order mark
    "\u061c\u200e\u200f"  # marks of direction
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_LEAVE_OUT = str.maketrans({**dict.fromkeys(_LEFT_OUT), "\u2581": "_"})
# What is removed at both ends of a line before it is encoded: also blanks,
# joiners, and signs that show nothing inside of words and formulas. A line of
# nothing else is blank.
BLANKS = _LEFT_OUT + "\u034f\u180e\u200c\u200d\u2061\u2062\u2063\u2064"
BLANKS += "".join(filter(str.isspace, map(chr, range(0x3001))))
# No character from here on has several spellings.
_END = 0x30000
# Of Latin, Greek and Cyrillic.
_MARKS = range(0x300, 0x370)
# Scripts whose vowels and consonants are marks, which people type in any order.
_POINTS = range(0x591, 0x5C8), range(0x610, 0x6EE)  # Hebrew, Arabic


def compose(line: str) -> str:
    """Returns a spelling that all spellings with the same ids have in common.

    Example:
    >>> compose("u\u0308ber\u00ad \u00a0 Bord") == "\u00fcber Bord"
    True
    """
    return " ".join(_nfc(line.translate(_LEAVE_OUT)).strip(BLANKS).split())


@functools.cache
def rules() -> str:
    """Returns the table, as SentencePiece reads it.

    Each line has a sequence of characters, a tabulator and what it becomes;
    characters are hexadecimal numbers.
    """
    table = {}
    for sequence in itertools.chain(_letters(), _points()):
        composed = _nfc(sequence)
        # The table may already say it of all but the last character.
        if composed != _nfc(sequence[:-1]) + sequence[-1]:
            table[sequence] = composed
    # Last: Unicode composes some blanks to others.
    table |= {c: " " for c in map(chr, range(_END)) if c.isspace() and c != " "}
    table |= dict.fromkeys(_LEFT_OUT, "")
    table["\u2581"] = "_"
    return "".join(
        f"{_hexadecimal(sequence)}\t{_hexadecimal(table[sequence])}\n"
        for sequence in sorted(table)
    )


def _letters() -> Iterator[str]:
    """Yields all spellings of letters with marks, and pairs of such marks."""
    characters = map(chr, range(_END))
    parts = {c: unicodedata.normalize("NFD", c) for c in characters}
    parts = {c: spelled for c, spelled in parts.items() if spelled != c}
    marks = sorted(c for c in set("".join(parts.values())) if ord(c) in _MARKS)
    yield from _pairs(marks)
    for character, spelled in parts.items():
        yield character
        base, own = spelled[0], spelled[1:]
        more = marks if own in marks else ()
        for added in ("", *more):
            for order in itertools.permutations([*own, *added]):
                for cut in range(len(order) + 1):
                    composed = _nfc(base + "".join(order[:cut]))
                    yield composed + "".join(order[cut:])


def _points() -> Iterator[str]:
    """Yields all pairs of the marks of a script."""
    for codes in _POINTS:
        yield from _pairs(filter(unicodedata.combining, map(chr, codes)))


def _pairs(marks: Iterable[str]) -> Iterator[str]:
    return map("".join, itertools.permutations(marks, 2))


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _hexadecimal(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)
