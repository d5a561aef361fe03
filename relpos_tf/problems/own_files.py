"""The user's own parallel text: which files, which corpora, what they hold.

A corpus is one path, or one pattern of paths, on each side.
"""

import glob
import math
import os
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from multiprocessing import pool
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.problems import parallel
from relpos_tf.utils import files
from relpos_tf.utils import paths as paths_lib
from relpos_tf.utils import processes
from relpos_tf.utils import text

# The pairs of files of a corpus.
Pairs = list[tuple[str, str]]


class Sides(NamedTuple):
    """The files of a text and of its translation.

    Attributes:
        source: Path of a text file, plain, `.gz` or `.zst`, one sentence a
            line; or several paths, with commas between them; or None.
        target: The translation, line by line; as many files.
    """

    source: str | None
    target: str | None


class Training(NamedTuple):
    """The files of the training text, by corpora.

    Attributes:
        source: As in `Sides`, and each path may be a pattern such as
            `part-*.en`, whose files are taken in the order of names. Each path
            or pattern is a corpus.
        target: The translation, line by line; as many files.
        weights: Numbers with commas between them, one for each corpus: how the
            training pairs are divided among the corpora. None: all pairs are
            one corpus.
        tags: Words with commas between them, one for each corpus: each is put
            before the source lines of its corpus. An empty one is none.
    """

    source: str
    target: str
    weights: str | None = None
    tags: str | None = None


def corpora(sources: str, targets: str) -> list[Pairs]:
    """Returns the pairs of files of each corpus.

    Args:
        sources: Paths or patterns, with commas between them.
        targets: As many.

    Raises:
        UserError: they are not as many, or a pattern fits no file.
    """
    listed = _as_many("--train_source", sources, "--train_target", targets)
    found = []
    for pair in zip(*listed, strict=True):
        sides = [_matching(path) for path in pair]
        if len(sides[0]) != len(sides[1]):
            raise errors.UserError(
                f"Expected as many files that fit {pair[0]} as fit {pair[1]}. "
                f"Received: {len(sides[0])} and {len(sides[1])}."
            )
        found.append(list(zip(*sides, strict=True)))
    return found


def _matching(path: str) -> list[str]:
    """Returns the files that a pattern fits, sorted; or a path alone."""
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise errors.UserError(
            f"Expected a text file. Received: {path}, which no file fits."
        )
    return found


def weights(listed: str | None, number: int) -> tuple[float, ...]:
    """Returns the weight of each corpus; none if the text gives none.

    Args:
        listed: Numbers, with commas between them, or None.
        number: int. The number of corpora.

    Raises:
        UserError: they are not as many, or not positive numbers.
    """
    if not listed:
        return ()
    words = listed.split(",")
    try:
        found = tuple(map(float, words))
    except ValueError:
        found = ()
    if len(found) != number or not all(0 < w < math.inf for w in found):
        raise errors.UserError(
            f"Expected --train_weights of {number} positive numbers, one for "
            f"each corpus of --train_source. Received: {listed!r}."
        )
    return found


def tags(listed: str | None, number: int) -> tuple[str, ...]:
    """Returns the tag of each corpus; none if the text gives none.

    Args:
        listed: Words, which may be empty, with commas between them, or None.
        number: int. The number of corpora.

    Raises:
        UserError: they are not as many, or one has a blank.
    """
    if not listed or not listed.strip(","):
        return ()
    found = tuple(listed.split(","))
    if len(found) != number or any(len(tag.split()) > 1 for tag in found):
        raise errors.UserError(
            f"Expected --train_tags of {number} words, one for each corpus of "
            f"--train_source. Received: {listed!r}."
        )
    return tuple(tag.strip() for tag in found)


def training_text(
    found: Sequence[Pairs], are_apart: bool
) -> parallel.ParallelText | parallel.KeptApart:
    """Returns the training text of corpora.

    Args:
        found: The pairs of files of each corpus.
        are_apart: bool. Whether each corpus gets files of its own.
    """
    if are_apart and len(found) > 1:
        return parallel.KeptApart([parallel_text(pairs) for pairs in found])
    return parallel_text([pair for pairs in found for pair in pairs])


def parallel_text(pairs: Pairs) -> parallel.ParallelText:
    """Returns the text of pairs of files."""
    paths = [tuple(map(pathlib.Path, pair)) for pair in pairs]
    return parallel.ParallelText(paths, [None] * len(paths))


def training_settings(
    found: Sequence[Pairs], tagged: Sequence[str], are_weighted: bool
) -> dict[str, Any]:
    """Returns the settings on which the prepared training text depends.

    Args:
        found: The pairs of files of each corpus.
        tagged: The tag of each corpus, or none.
        are_weighted: bool. Whether corpora have weights. The files depend on
            that, and not on the weights.
    """
    pairs = [pair for of_corpus in found for pair in of_corpus]
    sources, targets = zip(*pairs, strict=True)
    prints = fingerprints([*sources, *targets])
    settings = {
        "train_source": _one_or_all(prints[: len(pairs)]),
        "train_target": _one_or_all(prints[len(pairs) :]),
    }
    if (tagged or are_weighted) and len(found) > 1:
        settings["train_corpora"] = [len(pairs) for pairs in found]
    if tagged:
        settings["train_tags"] = list(tagged)
    return settings


def _one_or_all(prints: list) -> Any:
    """Returns the only item of a list, or a list of several."""
    return prints[0] if len(prints) == 1 else prints


def splits(
    held_out: Mapping[str, tuple[str, str]],
) -> dict[str, Callable[[str | None], parallel.ParallelText]]:
    """Returns the functions that open development and test sets.

    Args:
        held_out: The pair of files of each split.
    """
    return {
        split: lambda tmp_dir, pair=pair: parallel_text([pair])
        for split, pair in held_out.items()
    }


def settings(held_out: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Returns the settings on which prepared development and test sets depend.

    Args:
        held_out: The pair of files of each split.
    """
    return {
        f"{split}_{side}": fingerprint(path)
        for split, pair in held_out.items()
        for side, path in zip(("source", "target"), pair, strict=True)
    }


def test_sets(
    sources: str | None, targets: str | None
) -> dict[str, tuple[str, str]]:
    """Returns the pair of paths of each test set, by split."""
    if bool(paths_lib.listed(sources)) != bool(paths_lib.listed(targets)):
        raise errors.UserError(
            "Expected both --test_source and --test_target, or neither. "
            f"Received: {sources!r} and {targets!r}."
        )
    listed = _as_many("--test_source", sources, "--test_target", targets)
    pairs = enumerate(zip(*listed, strict=True), start=1)
    return {f"test_{n}" if n > 1 else "test": pair for n, pair in pairs}


def _as_many(
    first_flag: str, first: str | None, second_flag: str, second: str | None
) -> tuple[list[str], list[str]]:
    """Returns the paths of two flags, which must be equally many."""
    listed = paths_lib.listed(first), paths_lib.listed(second)
    if len(listed[0]) != len(listed[1]):
        raise errors.UserError(
            f"Expected as many files in {first_flag} as in {second_flag}, in "
            f"the same order. Received: {len(listed[0])}, {first!r}, and "
            f"{len(listed[1])}, {second!r}."
        )
    return listed


def language(path: str, otherwise: str) -> str:
    """Returns a file's suffix if it looks like a language's code."""
    for suffix in text.COMPRESSED:
        path = path.removesuffix(suffix)
    suffix = pathlib.Path(path).suffix[1:]
    return suffix if len(suffix) == 2 and suffix.isalpha() else otherwise


def fingerprints(paths: Sequence[str]) -> list[dict[str, int | str]]:
    """Returns the fingerprint of each file; reads several files at once."""
    # Threads suffice, since hashlib releases Python's lock.
    with pool.ThreadPool(processes.available()) as threads:
        return threads.map(fingerprint, paths, chunksize=1)


def fingerprint(path: str) -> dict[str, int | str]:
    """Returns the size and checksum of a file, which do not tell its place.

    Raises:
        UserError: there is no such file.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise errors.UserError(
            f"Expected a text file, which can be read more than once. "
            f"Received: {path!r}, a folder, a pipe or a device."
        )
    try:
        return {
            "bytes": os.path.getsize(path),
            "sha256": files.sha256(path),
        }
    except OSError as error:
        raise errors.UserError(
            f"Expected a text file. Received: {path!r} ({error.strerror})."
        ) from error
