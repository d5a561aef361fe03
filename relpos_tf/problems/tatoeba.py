"""The English-German sentence pairs of manythings.org, and how they are split.

The file changes with every release of Tatoeba, so the split is a function of
the sentences: English sentences are put in the order of a checksum of their
normalised form (case, blanks and punctuation left out); the first ones are
the development set, the next ones the test set, each with one translation.
Training gets every pair that shares neither side with those, normalised.
"""

import hashlib
import pathlib
from collections.abc import Callable
from collections.abc import Iterator

from relpos_tf import errors
from relpos_tf.problems import download
from relpos_tf.problems import parallel
from relpos_tf.problems import problem
from relpos_tf.utils import text

# The file changes with every release, so its checksum is not known.
REMOTE = download.Remote("https://www.manythings.org/anki/deu-eng.zip")
MEMBER = "deu.txt"
HELD_OUT = 2000
_FOLDERS = "tatoeba_ende", "tatoeba"
_NAMES = {"train": 0, "dev": 1, "test": 2}


def opener(split: str) -> Callable[[str | None], problem.Pairs]:
    """Returns the function that opens a split, for `Problem.splits`.

    Files already split (`train.en`, `train.de`, `dev.en` and so on) are
    taken from `--tmp_dir` or its sub-folder `tatoeba_ende`; otherwise the
    archive is downloaded and split.
    """

    def opened(tmp_dir: str | None) -> problem.Pairs:
        corpus = parallel.Corpus(
            parallel.Side((f"{split}.en",)),
            parallel.Side((f"{split}.de",)),
            _FOLDERS,
        )
        if all(
            download.find(tmp_dir, [f"{name}.{language}"], _FOLDERS)
            for name in _NAMES
            for language in ("en", "de")
        ):
            return parallel.read([corpus], tmp_dir)
        return split_pairs(_raw_file(tmp_dir))[_NAMES[split]]

    return opened


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
    pairs = []
    for line in text.read_lines(path):
        fields = line.split("\t")
        if len(fields) >= 2:
            pairs.append((fields[0], fields[1]))
    first = {}
    for pair in pairs:
        first.setdefault(normalized(pair[0]), pair)
    order = sorted(first, key=_checksum)
    if len(order) <= 2 * held_out:
        raise errors.UserError(
            f"Expected more than {2 * held_out} English sentences in {path}. "
            f"Received: {len(order)}."
        )
    dev = [first[key] for key in order[:held_out]]
    test = [first[key] for key in order[held_out : 2 * held_out]]
    taken = {normalized(side) for pair in dev + test for side in pair}
    return list(_sharing_neither(pairs, taken)), dev, test


def normalized(sentence: str) -> str:
    """Returns the letters and digits of a sentence, case folded."""
    return "".join(c for c in sentence.casefold() if c.isalnum())


def _sharing_neither(
    pairs: list[tuple[str, str]], taken: set[str]
) -> Iterator[tuple[str, str]]:
    """Yields the pairs with no side in `taken`."""
    for pair in pairs:
        if not any(normalized(side) in taken for side in pair):
            yield pair


def _raw_file(tmp_dir: str | None) -> pathlib.Path:
    """Returns the path of the unsplit file."""
    side = parallel.Side((MEMBER,), REMOTE, MEMBER)
    return parallel.locate(side, _FOLDERS, tmp_dir)


def _checksum(key: str) -> str:
    """Returns the checksum that orders sentences."""
    return hashlib.sha256(key.encode("utf-8")).hexdigest()
