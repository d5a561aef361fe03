"""The translation problems, by name; `files_problem` for the user's own text.

Files are looked for in `--tmp_dir`, first in the sub-folders named below.
Missing files are downloaded.
"""

import collections
import functools
import itertools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.problems import cleaning
from relpos_tf.problems import corpora as corpora_lib
from relpos_tf.problems import multi30k
from relpos_tf.problems import own_files
from relpos_tf.problems import problem
from relpos_tf.problems import tatoeba
from relpos_tf.problems import wmt
from relpos_tf.problems.generated import phrases

# Text of the web has characters of every script. The rarest five in ten
# thousand are spelled in bytes, which saves pieces for frequent text.
_COVERAGE = 0.9995


@registry.register_problem
def translate_ende_phrases() -> problem.Problem:
    """Generated numbers, dates and quantities. Nothing is downloaded."""
    return generated_problem("translate_ende_phrases", phrases.pairs, 512)


@registry.register_problem
def translate_ende_multi30k() -> problem.Problem:
    """29,000 image captions; dev `val`, test `test_2016_flickr`.

    Further test sets, prepared if their files are there or can be downloaded:
    `test_2017_flickr`, `test_2017_mscoco`, `test_2018_flickr`.

    Sub-folder `multi30k`. Captions are stripped, runs of blanks collapsed and
    `&amp;` undone, references of dev and test excepted. No licence is stated
    for the text; for research.
    """
    return _multi30k("de")


@registry.register_problem
def translate_enfr_multi30k() -> problem.Problem:
    """The captions of `translate_ende_multi30k` in French."""
    return _multi30k("fr")


@registry.register_problem
def translate_ende_tatoeba() -> problem.Problem:
    """163,350 everyday sentences or more, of manythings.org (CC BY 2.0).

    Sub-folder `tatoeba_ende`. `tatoeba.py` describes the split.
    """
    return problem.Problem(
        name="translate_ende_tatoeba",
        source_language="en",
        target_language="de",
        vocab_size=8000,
        splits={s: functools.partial(tatoeba.read, s) for s in tatoeba.SPLITS},
    )


@registry.register_problem
def translate_ende_wmt14() -> problem.Problem:
    """WMT 2014, about 4.5 million pairs; a download of 1.8 GB.

    Sub-folders `wmt14` and `newstest`. `wmt.py` lists the files.
    """
    return _wmt14("de")


@registry.register_problem
def translate_enfr_wmt14() -> problem.Problem:
    """WMT 2014, about 40 million pairs; a download of more than 4.3 GB.

    Sub-folders `wmt14` and `newstest`. `wmt.py` lists the files.
    """
    return _wmt14("fr")


def generated_problem(
    name: str,
    pairs: Callable[[str], Iterator[tuple[str, str]]],
    vocab_size: int,
    languages: tuple[str, str] = ("en", "de"),
) -> problem.Problem:
    """Returns a problem whose text is generated.

    Args:
        name: str. Its name.
        pairs: Function from "train", "dev" or "test" to the pairs.
        vocab_size: int. Most pieces in the shared vocabulary.
        languages: The codes of source and target.
    """
    splits = {
        split: lambda tmp_dir, split=split: list(pairs(split))
        for split in ("train", "dev", "test")
    }
    return problem.Problem(name, *languages, vocab_size, splits)


def files_problem(
    files: Mapping[str, str], vocab_size: int = 32768
) -> problem.Problem:
    """Returns the problem `translate_files`, for the user's parallel text.

    Args:
        files: Values of the trainer's flags of these names, of which
            `train_source`, `train_target`, `dev_source` and `dev_target` are
            needed; `test_source`, `test_target`, `train_weights` and
            `train_tags` may be missing or empty. Files are text, plain or
            compressed, one sentence a line; commas stand between several.
        vocab_size: int. Most pieces in the shared vocabulary.

    Returns:
        The problem. Its languages are the suffixes of the training files, where
        they are codes. Each corpus has a prepared folder of its
        own, found again by the same text in any place.

    Raises:
        UserError: a file is missing, the sides of a corpus or of the test sets
            do not have equally many files, or weights or tags do not fit.
            `prepare` compares line counts before it writes.
    """
    files = collections.defaultdict(str, files)
    corpora = own_files.corpora(files["train_source"], files["train_target"])
    weights = own_files.weights(files["train_weights"], len(corpora))
    tags = own_files.tags(files["train_tags"], len(corpora))
    if not (weights or tags):
        corpora = [list(itertools.chain.from_iterable(corpora))]
    dev = files["dev_source"], files["dev_target"]
    texts = {"train": corpora, "dev": [[dev]]}
    texts |= own_files.test_sets(files["test_source"], files["test_target"])
    settings: dict[str, Any] = {"train_tags": list(tags)}
    splits = {}
    for split, found in texts.items():
        checksums = own_files.settings(split, found)
        settings |= checksums
        splits[split] = lambda tmp_dir, found=found, sums=checksums: (
            own_files.opened(found, *sums.values())
        )
    source, target = corpora[0][0]
    return problem.Problem(
        name="translate_files",
        source_language=own_files.language(source, "source"),
        target_language=own_files.language(target, "target"),
        vocab_size=vocab_size,
        splits=splits,
        settings=settings,
        character_coverage=_COVERAGE,
        doubts=tuple(own_files.of_other_languages(texts)),
        train_tags=tags,
        train_weights=weights,
    )


@registry.register_problem
def translate_files() -> problem.Problem:
    """Parallel text of the user's own; `files_problem` takes its files.

    Raises:
        UserError: always, since the name alone does not tell the files.
    """
    raise errors.UserError(
        "translate_files is text of your own. Name its files with "
        "--train_source, --train_target, --dev_source and --dev_target of "
        "relpos-trainer, relpos-datagen or relpos-compare."
    )


def _multi30k(target: str) -> problem.Problem:
    """Returns the Multi30k problem from English to `target`."""
    return problem.Problem(
        name=f"translate_en{target}_multi30k",
        source_language="en",
        target_language=target,
        vocab_size=5000,
        splits=_openers(multi30k.splits(target)),
        normalize=cleaning.collapse_blanks,
    )


def _wmt14(target: str) -> problem.Problem:
    """Returns the WMT problem from English to `target`."""
    return problem.Problem(
        name=f"translate_en{target}_wmt14",
        source_language="en",
        target_language=target,
        vocab_size=32768,
        splits=_openers(wmt.splits(target)),
        character_coverage=_COVERAGE,
    )


def _openers(
    splits: Mapping[str, Sequence[corpora_lib.Bitext]],
) -> dict[str, Callable[[str | None], corpora_lib.ParallelText]]:
    """Returns the functions that open splits, for `Problem.splits`."""
    return {
        split: functools.partial(corpora_lib.read, found)
        for split, found in splits.items()
    }
