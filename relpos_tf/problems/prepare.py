"""Makes the files of a prepared problem from its text, in one loop.

Training text is read twice: to learn the vocabulary from the counts of its
words, and to clean and encode it. Both work on chunks of pairs, in several
processes if there are many; the results come in the order of the text, so the
files do not depend on the number of processes.

Nothing here imports TensorFlow.
"""

import collections
import functools
import itertools
import logging
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import token_files
from relpos_tf.problems import cleaning
from relpos_tf.problems import processes
from relpos_tf.utils import terminal
from relpos_tf.utils import text

_PAIRS = 16384  # of a chunk
_CHARACTERS = 1 << 23  # after which a chunk ends
_STEP = 256  # pairs between two looks at its size
_log = logging.getLogger("relpos_tf")


class Chunk(NamedTuple):
    """Pairs that one call prepares.

    Attributes:
        pairs: Normalized pairs of lines.
        corpus: int. The number of their corpus.
        tag: str. A word put before the source of each cleaned pair, or "".
    """

    pairs: list[tuple[str, str]]
    corpus: int
    tag: str


class TrainingText:
    """The training text of a problem, in chunks.

    Args:
        problem: `problem.Problem`.
        train: The pairs; a tuple of those of each corpus, if they have tags
            or weights.
    """

    def __init__(self, problem, train: cleaning.LinePairs):
        self.corpora = train if isinstance(train, tuple) else [train]
        self.tags = problem.train_tags or [""] * len(self.corpora)
        self._name, self._normalize = problem.name, problem.normalize
        # Of the user's files, the languages are a guess.
        self.is_copied = (
            problem.source_language == problem.target_language
            and not problem.settings
        )
        # 0 if it is unknown: generated text, which is short.
        known = all(hasattr(pairs, "__len__") for pairs in self.corpora)
        self.num_pairs = sum(map(len, self.corpora)) if known else 0

    def chunks(self) -> Iterator[Chunk]:
        """Yields the chunks of all corpora, one corpus after the other."""
        for number, (corpus, tag) in enumerate(
            zip(self.corpora, self.tags, strict=True)
        ):
            for pairs in _cut(corpus, self._normalize):
                yield Chunk(pairs, number, tag)

    def name(self, corpus: int) -> str:
        """Returns the name of a corpus in messages."""
        name = self._name
        if names := getattr(self.corpora[corpus], "files", []):
            more = ", ..." if len(names) > 1 else ""
            name = f"{names[0][0]} and {names[0][1]}{more}"
        if len(self.corpora) == 1:
            return name
        return f"corpus {corpus + 1} of {len(self.corpora)} ({name})"


def write_files(
    problem,
    opened: Mapping[str, cleaning.LinePairs],
    folder: pathlib.Path,
    num_processes: int,
) -> dict[str, Any]:
    """Writes the files of a problem, all but the manifest.

    Args:
        problem: `problem.Problem`.
        opened: The pairs of each split.
        folder: A new folder, which gets the files.
        num_processes: int. Processes that prepare training text, if it is long
            enough for them; 0: one for each core.

    Returns:
        The manifest's fields about what was written.

    Raises:
        UserError: no pair of a corpus is left, or another split is empty.
    """
    training = TrainingText(problem, opened["train"])
    num_processes = num_processes or processes.usable_cores()
    tokenizer = folder / problem.tokenizer_name
    if problem.tokenizer_file:
        shutil.copyfile(problem.tokenizer_file, tokenizer)
    else:
        _learn_tokenizer(problem, training, tokenizer, num_processes)
    encoder = pieces.encoder(str(tokenizer))
    corpora, cleaned = _write_training(
        training, str(tokenizer), folder, num_processes
    )
    counts = {"train": sum(corpus["pairs"] for corpus in corpora)}
    for split, pairs in opened.items():
        if split == "train":
            continue
        counts[split] = _write_held_out(problem, folder, split, pairs, encoder)
    return {
        "counts": counts,
        "cleaning": dict(cleaned),
        "corpora": corpora,
        "vocab_size": encoder.vocab_size,
    }


def encode(
    tokenizer: str, chunk: Chunk
) -> tuple[int, token_files.Rows, token_files.Rows, collections.Counter]:
    """Cleans and encodes a chunk.

    Args:
        tokenizer: str. The file that encodes.
        chunk: The pairs.

    Returns:
        The number of its corpus; the ids of the sources that are kept, and
        those of their translations; and the number of pairs by cleaning rule,
        and `read`.
    """
    counts: collections.Counter = collections.Counter()
    sides = _cleaned(chunk, counts)
    encoder = pieces.encoder(tokenizer)
    sources, targets = map(encoder.arrays, sides)
    longer = np.maximum(sources.lengths, targets.lengths)
    is_kept = longer <= cleaning.MAX_TOKENS
    if not is_kept.all():
        counts["tokens"] += int((~is_kept).sum())
        sources, targets = (
            token_files.Rows(
                rows.ids[np.repeat(is_kept, rows.lengths)],
                rows.lengths[is_kept],
            )
            for rows in (sources, targets)
        )
    return chunk.corpus, sources, targets, counts


def count_words(
    step: int, chunk: Chunk
) -> tuple[collections.Counter, collections.Counter]:
    """Counts the words of every `step`-th pair, and what was cleaned."""
    counts: collections.Counter = collections.Counter()
    sides = _cleaned(chunk, counts)
    words = pieces.count_words(
        itertools.chain(*(side[::step] for side in sides))
    )
    return words, counts


def _learn_tokenizer(problem, training, path, num_processes) -> None:
    """Learns the shared vocabulary from both sides of training pairs."""
    step = max(1, -(-training.num_pairs // problem.tokenizer_pairs))
    count, chunks = functools.partial(count_words, step), training.chunks()
    words: collections.Counter = collections.Counter()
    counts: collections.Counter = collections.Counter()
    show = terminal.counting("Counting words: pair", training.num_pairs)
    for found in processes.ordered_map(count, chunks, num_processes):
        words.update(found[0])
        counts.update(found[1])
        show(counts["read"])
    if not words:
        name = ", ".join(map(training.name, range(len(training.corpora))))
        raise errors.UserError(cleaning.nothing_left(counts, name))
    _log.info("Learning the vocabulary from %s words.", f"{len(words):,}")
    if (coverage := problem.character_coverage) < 1:
        # Without those that occur once, which a few stray lines may bring by
        # the thousand. SentencePiece takes no coverage below 0.98.
        seen = collections.Counter("".join(words))
        once = sum(n == seen[c] == 1 for word, n in words.items() for c in word)
        total = sum((len(word) + 1) * n for word, n in words.items())
        coverage = max(0.98, min(coverage, 1 - once / total))
    pieces.learn(words, path, problem.vocab_size, coverage)


def _write_training(
    training: TrainingText,
    tokenizer: str,
    folder: pathlib.Path,
    num_processes: int,
) -> tuple[list[dict[str, int]], collections.Counter]:
    """Writes the training pairs.

    Returns:
        Of each corpus `pairs` and `tag`, the number of ids of its tag; and the
        number of pairs of all corpora by cleaning rule.
    """
    encoder = pieces.encoder(tokenizer)
    counts: list[collections.Counter] = [
        collections.Counter() for _ in training.corpora
    ]
    pairs = [0] * len(counts)
    show = terminal.counting("Encoding: pair", training.num_pairs)
    with token_files.writer(folder, "train", encoder.vocab_size) as write:
        function = functools.partial(encode, tokenizer)
        for corpus, sources, targets, counted in processes.ordered_map(
            function, training.chunks(), num_processes
        ):
            write(sources, targets)
            pairs[corpus] += len(sources.lengths)
            counts[corpus].update(counted)
            show(sum(known["read"] for known in counts))
    for number, counted in enumerate(counts):
        name = training.name(number)
        if not pairs[number]:
            raise errors.UserError(cleaning.nothing_left(counted, name))
        for warning in cleaning.warnings(counted, name, training.is_copied):
            _log.warning("%s", warning)
    corpora = [
        {"pairs": number, "tag": _tag_length(encoder, tag)}
        for number, tag in zip(pairs, training.tags, strict=True)
    ]
    return corpora, sum(counts, collections.Counter())


def _tag_length(encoder: pieces.Encoder, tag: str) -> int:
    """Returns the number of ids with which a tagged source begins."""
    if not tag:
        return 0
    ids, lengths = encoder.arrays([tag, f"{tag} a"])
    both = zip(ids[: lengths[0] - 1], ids[lengths[0] :], strict=False)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], both)
    return len(list(same))


def _write_held_out(
    problem,
    folder: pathlib.Path,
    split: str,
    pairs: cleaning.LinePairs,
    encoder: pieces.Encoder,
) -> int:
    """Writes the lines and the ids of "dev" or a test set, in order.

    All pairs are written, and references stay as they are.

    Returns:
        The number of pairs.

    Raises:
        UserError: no translation has text.
    """
    pairs = [(problem.normalize(source), target) for source, target in pairs]
    if not any(target.strip() for _, target in pairs):
        raise errors.UserError(
            f"Expected translations in the {split} set of {problem.name}. "
            f"Received: {len(pairs)} lines, none with text."
        )
    sides = list(map(list, zip(*pairs, strict=True)))
    encoded = []
    for name, lines in zip(("source", "target"), sides, strict=True):
        text.write_lines(folder / f"{split}.{name}", lines)
        encoded.append(encoder.arrays(lines))
    with token_files.writer(folder, split, encoder.vocab_size) as write:
        write(*encoded)
    return len(pairs)


def _cut(
    pairs: cleaning.LinePairs, normalize: Callable[[str], str]
) -> Iterator[list[tuple[str, str]]]:
    """Yields normalized pairs in lists of bounded size."""
    if normalize is not cleaning.unchanged:
        pairs = ((normalize(s), normalize(t)) for s, t in pairs)
    iterator, chunk, size = iter(pairs), [], 0
    while step := list(itertools.islice(iterator, _STEP)):
        # Other processes do not know classes of lines that a user may have.
        chunk += [(str(source), str(target)) for source, target in step]
        size += sum(len(source) + len(target) for source, target in step)
        if len(chunk) >= _PAIRS or size >= _CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _cleaned(
    chunk: Chunk, counts: collections.Counter
) -> tuple[list[str], list[str]]:
    """Returns the sides of cleaned pairs, with the tag."""
    kept = list(cleaning.clean_pairs(chunk.pairs, counts))
    if not kept:
        return [], []
    sources, targets = map(list, zip(*kept, strict=True))
    if chunk.tag:
        sources = [f"{chunk.tag} {source}" for source in sources]
    return sources, targets
