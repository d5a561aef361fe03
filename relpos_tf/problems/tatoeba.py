"""The English-German sentence pairs of manythings.org, and their split.

The file changes with every release of Tatoeba, so the split is a function of
the sentences: English sentences are sorted by a checksum of their normalised
form (without case, blanks and punctuation). The first `HELD_OUT` are the
development set, the next the test set, each with one translation. The training
set has every pair neither of whose normalised sides is in one of these sets.
"""

import hashlib
import pathlib

from relpos_tf import errors
from relpos_tf.problems import cleaning
from relpos_tf.problems import corpora
from relpos_tf.utils import text

# The file changes with every release, so its checksum is not known.
REMOTE = corpora.Remote("https://www.manythings.org/anki/deu-eng.zip")
MEMBER = "deu.txt"
HELD_OUT = 2000
SPLITS = "train", "dev", "test"


def read(split: str, tmp_dir: str | None) -> cleaning.LinePairs:
    """Returns the pairs of a split.

    The archive is in `tmp_dir` or its sub-folder, or is downloaded there.
    """
    raw = corpora.Side(MEMBER, REMOTE, MEMBER)
    path = corpora.locate(raw, ("tatoeba_ende",), tmp_dir)
    return split_pairs(path)[SPLITS.index(split)]


def split_pairs(
    path: pathlib.Path, held_out: int = HELD_OUT
) -> tuple[list[tuple[str, str]], ...]:
    """Splits the pairs of a manythings.org file.

    Args:
        path: Lines of English, German and attribution, separated by tabs.
        held_out: int. Sentences in the development set, and in the test set.

    Returns:
        Lists of (English, German): train, dev, test.

    Raises:
        UserError: there are too few sentences to split.
    """
    rows = (line.split("\t") for line in text.checked_lines(path))
    pairs = [(row[0], row[1]) for row in rows if len(row) >= 2]
    first = {normalized(pair[0]): pair for pair in reversed(pairs)}
    order = sorted(
        first, key=lambda key: hashlib.sha256(key.encode()).hexdigest()
    )
    if len(order) <= 2 * held_out:
        raise errors.UserError(
            f"Expected more than {2 * held_out} English sentences in {path}. "
            f"Received: {len(order)}."
        )
    dev = [first[key] for key in order[:held_out]]
    test = [first[key] for key in order[held_out : 2 * held_out]]
    held = {normalized(side) for pair in dev + test for side in pair}
    train = [
        pair
        for pair in pairs
        if not any(normalized(side) in held for side in pair)
    ]
    return train, dev, test


def normalized(sentence: str) -> str:
    """Returns the letters and digits of a sentence, case folded."""
    return "".join(c for c in sentence.casefold() if c.isalnum())
