"""The user's own parallel text: which files, which corpora, what they hold.

A corpus is one path, or one pattern of paths, on each side.
"""

import glob
import itertools
import os
import re
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.data import spelling
from relpos_tf.problems import corpora as corpora_lib
from relpos_tf.utils import files
from relpos_tf.utils import languages
from relpos_tf.utils import paths
from relpos_tf.utils import text

# The pairs of files of a corpus.
FilePairs = list[tuple[str, str]]
# A suffix: a language, perhaps with a script and a region. Other words that are
# codes as well (of Sardinian, Odia and Cornish) name sides.
_CODE = re.compile(r"\.(?!src|ori|cor)[a-z]{2,3}([-_]\w{2,4})*", re.I)
# The signs of a pattern, as of `glob`.
_SIGN = re.compile(r"\*+|\?|\[!?.[^]]*\]")


def corpora(sources: str, targets: str) -> list[FilePairs]:
    """Returns the pairs of files of each corpus.

    Args:
        sources: Paths or patterns, with commas between them.
        targets: As many.

    Raises:
        UserError: they are not as many, or one is empty, or a pattern fits no
            file, or the two patterns of a corpus fit other names.
    """
    found = []
    for pair in _pairs("train", sources, targets):
        first, second = map(_matching, pair)
        if lone := sorted(first.keys() ^ second.keys()):
            raise errors.UserError(
                f"Expected {pair[0]} and {pair[1]} to fit as many files, with "
                "the same in the places of `*`. Received: "
                f"{len(first)} and {len(second)} files, "
                f"{(first | second)[lone[0]]} without its other side."
            )
        found.append([(path, second[part]) for part, path in first.items()])
    return found


def weights(listed: str, number: int) -> tuple[float, ...]:
    """Returns the weight of each corpus; none if the text gives none.

    Args:
        listed: Numbers, with commas between them, or "".
        number: int. The number of corpora.

    Raises:
        UserError: they are not as many, or their shares are not positive.
    """
    if not listed:
        return ()
    words = listed.split(",")
    try:
        found = tuple(map(float, words))
    except ValueError:
        found = ()
    are_shares = all(w > 0 and w / sum(found) > 0 for w in found)
    if number == 1 or len(found) != number or not are_shares:
        raise errors.UserError(
            "Expected --train_weights of several corpora, a positive number "
            f"for each ({number}), with a finite sum. Received: {listed!r}."
        )
    return found


def tags(listed: str, number: int) -> tuple[str, ...]:
    """Returns the tag of each corpus; none if the text gives none.

    Args:
        listed: Words, which may be empty, with commas between them, or "".
        number: int. The number of corpora.

    Raises:
        UserError: they are not as many, or one has a blank or no visible sign.
    """
    if not listed.strip(","):
        return ()
    typed = listed.split(",")
    found = tuple(map(spelling.compose, typed))
    if len(found) != number or any(
        " " in tag or bool(tag) != bool(word.split())
        for tag, word in zip(found, typed, strict=True)
    ):
        raise errors.UserError(
            f"Expected --train_tags of {number} words, one for each corpus of "
            f"--train_source. Received: {listed!r}."
        )
    return found


def opened(
    found: Sequence[FilePairs], *checksums: Sequence[Sequence[str]]
) -> corpora_lib.ParallelText | tuple[corpora_lib.ParallelText, ...]:
    """Returns the text of corpora, which are kept apart if they are several.

    Args:
        found: The pairs of files of each corpus.
        *checksums: Those of both sides, as in `settings`.

    Raises:
        UserError: see `corpora.ParallelText`.
    """
    texts = tuple(
        corpora_lib.ParallelText(pairs, zip(*expected, strict=True))
        for pairs, *expected in zip(found, *checksums, strict=True)
    )
    return texts if texts[1:] else texts[0]


def settings(
    split: str, found: Sequence[FilePairs]
) -> dict[str, list[list[str]]]:
    """Returns the settings on which the prepared text of a split depends.

    Args:
        split: str. Its name.
        found: The pairs of files of each corpus.

    Returns:
        `SPLIT_source` and `SPLIT_target`: the checksums of the files of each
        corpus.

    Raises:
        OSError: there is no such file.
    """
    return {
        f"{split}_{side}": [
            [files.sha256(pair[number]) for pair in pairs] for pairs in found
        ]
        for number, side in enumerate(("source", "target"))
    }


def test_sets(sources: str, targets: str) -> dict[str, list[FilePairs]]:
    """Returns the only corpus of each test set, by split.

    Args:
        sources: Paths, with commas between them, or "".
        targets: As many.

    Raises:
        UserError: they are not as many, or one is empty.
    """
    pairs = enumerate(_pairs("test", sources, targets), start=1)
    return {f"test_{n}" if n > 1 else "test": [[pair]] for n, pair in pairs}


def language(path: str, otherwise: str) -> str:
    """Returns the language of a file's suffix, if that looks like a code.

    Of three letters, only codes of languages that have two as well.

    Example:
    >>> language("train.deu.GZ", "target"), language("german.txt", "target")
    ('de', 'target')
    """
    stem, suffix = os.path.splitext(path)
    if suffix.lower() in text.COMPRESSED:
        suffix = os.path.splitext(stem)[1]
    code = languages.base(suffix[1:])
    is_known = len(code) == 2 or not languages.has_blanks(code)
    return code if is_known and _CODE.fullmatch(suffix) else otherwise


def of_other_languages(texts: Mapping[str, Sequence[FilePairs]]) -> list[str]:
    """Returns a warning for each held-out text in other languages.

    Args:
        texts: The corpora of each split, `train` among them.
    """
    sides = zip(*itertools.chain.from_iterable(texts["train"]), strict=True)
    known = [{language(path, "?") for path in paths} for paths in sides]
    found = []
    for split, corpora in texts.items():
        for pair in itertools.chain.from_iterable(corpora):
            codes = [language(path, "?") for path in pair]
            if any(
                code != "?" and seen.isdisjoint((code, "?"))
                for code, seen in zip(codes, known, strict=True)
            ):
                wanted = " to ".join("/".join(sorted(one)) for one in known)
                found.append(
                    f"The {split} set, {pair[0]} and {pair[1]}, is named as "
                    f"{' to '.join(codes)}; training is {wanted}. Check that "
                    "its files are of these languages, the source first."
                )
    return found


def _matching(path: str) -> dict[tuple[str, ...], str]:
    """Returns the files that a pattern fits, by what its signs stand for."""
    if os.path.exists(path) or not glob.has_magic(path):
        return {(): path}
    path = re.sub("/+", "/", path)
    fits = re.compile("(.*)".join(map(re.escape, _SIGN.split(path))), re.S)
    names = map(fits.fullmatch, sorted(glob.glob(path)))
    found = {name.groups(): name[0] for name in names if name}
    if not found:
        raise errors.UserError(
            f"Expected a text file. Received: {path}, which no file fits."
        )
    return found


def _pairs(split: str, sources: str, targets: str) -> list[tuple[str, str]]:
    """Returns the pairs of paths that the two flags of a split name."""
    listed = [*map(paths.listed, (sources, targets))]
    if len(listed[0]) != len(listed[1]):
        raise errors.UserError(
            f"Expected as many files in --{split}_source as in "
            f"--{split}_target, in the same order. Received: {len(listed[0])}, "
            f"{sources!r}, and {len(listed[1])}, {targets!r}."
        )
    return list(zip(*listed, strict=True))
