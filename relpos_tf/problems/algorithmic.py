"""Algorithmic problems: copy or reverse a line of syllables.

Every syllable becomes one id, so that a tiny model learns them in a minute.
They serve tests and the first try of a new model; nothing is downloaded.
"""

import itertools
import random
from collections.abc import Iterator

from relpos_tf import registry
from relpos_tf.problems import problem
from relpos_tf.problems import translate

_SYLLABLES = ["".join(pair) for pair in itertools.product("bdgkmt", "aeiou")]
_LENGTHS = 2, 9
_SIZES = {"train": 3000, "dev": 100, "test": 100}
# 3 special ids, 256 bytes, and the pieces that syllables are joined from.
_VOCAB_SIZE = 340


@registry.register_problem
def algorithmic_copy() -> problem.Problem:
    """Repeat the line: "ba do mi" becomes "ba do mi"."""
    return _algorithmic("algorithmic_copy", step=1)


@registry.register_problem
def algorithmic_reverse() -> problem.Problem:
    """Repeat the line backwards: "ba do mi" becomes "mi do ba"."""
    return _algorithmic("algorithmic_reverse", step=-1)


def _algorithmic(name: str, step: int) -> problem.Problem:
    """Returns the problem whose target is its source in steps of `step`."""
    return translate.generated_problem(
        name,
        lambda split: _pairs(split, step),
        _VOCAB_SIZE,
        ("syllables", "syllables"),
    )


def _pairs(split: str, step: int) -> Iterator[tuple[str, str]]:
    """Yields a split's pairs; the splits have no line in common."""
    # One stream of different lines, cut into the splits.
    generator = random.Random(2018)
    seen: set[tuple[str, ...]] = set()
    for name, size in _SIZES.items():
        end = len(seen) + size
        while len(seen) < end:
            length = generator.randint(*_LENGTHS)
            line = tuple(generator.choices(_SYLLABLES, k=length))
            if line not in seen and name == split:
                yield " ".join(line), " ".join(line[::step])
            seen.add(line)
