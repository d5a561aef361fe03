"""Lines in, lines out: one translation for each line, in their order.

Lines are sorted by length and translated in batches. A batch is bounded twice:
by its number of lines, or of translations drawn; and by its memory, which grows
with the padded ids of the sources and the largest number of ids of the
translations, both times the hypotheses of a line. A line beyond a bound is a
batch by itself. Neither bound changes a translation, because the search for one
sentence does not depend on the others: its length limit is its own length plus
`extra_length`.

Several engines, an `engines.ParallelEngine`, get the same batches as one. Each
batch goes to the first engine that is free, and the translations come back in
order.
"""

import collections
import functools
import inspect
import itertools
import logging
import os
import pathlib
import sys
import uuid
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engine_kinds
from relpos_tf.decoding import engines
from relpos_tf.decoding import export_files
from relpos_tf.decoding import worker_engine
from relpos_tf.layers import checks
from relpos_tf.utils import extras
from relpos_tf.utils import forks
from relpos_tf.utils import processes
from relpos_tf.utils import system_errors

_log = logging.getLogger("relpos_tf")

# Lines read before the first is translated: enough to find similar lengths.
CHUNK_LINES = 4096
# Most lines of a batch, unless told otherwise.
BATCH_LINES = 128
# Most translations drawn at once: as many as a search with 4 beams has.
BATCH_DRAWN = 4 * BATCH_LINES
# Most padded source ids of a batch, times the beams.
BATCH_IDS = 16384
# An id of a translation needs this share of the memory of a source id: with the
# usual `extra_length`, the source decides.
_TARGET_SHARE = 8
# Longer lines are named before they are translated.
LONG_LINE = 2000
# Line numbers that a warning names.
_NAMED_LINES = 8
# Batches begun for each of several engines before the first one is needed. With
# few, the others would wait for a batch of long lines.
_BATCHES_AHEAD = 4
# Fields of `DecodeHParams` that are something else in Python.
_NO_OPTIONS = {
    "batch_size": "is an argument of `Translator.load`",
    "max_input_size": "is an argument of `Translator.load`",
    "return_beams": "is `n_best` here",
    "write_beam_scores": "is `return_scores` here",
}


class Translator:
    """Translates text with a trained model or an exported one.

    Several threads may use one translator. A pickle of it has the path that it
    was loaded from; another process loads it from there at its first call. A
    fork cannot use it, because TensorFlow does not survive a fork.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer` that the model was trained with.
        engine: `engines.Engine`, in place of these two.
        batch_size: int. Most lines of a batch. 0: `BATCH_LINES`.
        max_input_size: int. Longer lines are cut to that many ids, with a
            warning. 0: never.
        name: str. Where the model came from, for messages.

    Raises:
        UserError: there is neither a model nor an engine, or a size is no
            number.

    Example:

        translator = Translator.load("runs/demo")
        translator.translate(["It is five o'clock."])  # ["Es ist fünf Uhr."]
    """

    def __init__(
        self,
        model=None,
        tokenizer=None,
        *,
        engine: engines.Engine | None = None,
        batch_size: int = 0,
        max_input_size: int = 0,
        name: str = "",
    ):
        checks.integer("batch_size", batch_size, least=0)
        checks.integer("max_input_size", max_input_size, least=0)
        if engine is None:
            if tokenizer is None or isinstance(model, str | os.PathLike):
                raise errors.UserError(
                    "Expected a model and its tokenizer, or an engine: "
                    "Translator.load(path) loads both. Received: "
                    f"model={model!r}, tokenizer={tokenizer!r}."
                )
            # Not at the top: who translates with an export for CTranslate2 or
            # LiteRT needs no TensorFlow. Here it is imported already.
            from relpos_tf.decoding import model_engine

            engine = model_engine.ModelEngine(model, tokenizer)
        forks.check()
        self.name = name
        self._engine = engine
        self._source = None  # the arguments of `_load`, if it was loaded
        self._batch_size = batch_size or BATCH_LINES
        self._max_input_size = max_input_size

    @property
    def engine(self) -> engines.Engine:
        """What translates."""
        if self._engine is None:  # the translator comes from a pickle
            self._engine = _load_once(*self._source)
        return self._engine

    def __getstate__(self):
        if self._source is None:
            raise errors.UserError(
                "A translator can be pickled if Translator.load made it, "
                "because the other process loads it from the same path. "
                f"Received: one made of a {type(self.engine).__name__}."
            )
        return vars(self) | {"_engine": None}

    @classmethod
    def load(
        cls,
        path: str | pathlib.Path,
        *,
        batch_size: int = 0,
        max_input_size: int = 0,
        workers: processes.Workers | None = None,
    ) -> "Translator":
        """Loads a run, a checkpoint or an export.

        A run is loaded as a run, whatever other files its directory has. An
        export is a program; see `load_export`.

        Args:
            path: A run's directory, the prefix of a checkpoint, or the
                directory of an export.
            batch_size: int. See the class.
            max_input_size: int. See the class.
            workers: Processes that load it, each for itself, and translate
                instead of this one; one translator for them at a time.

        Raises:
            UserError: none of them is there, or it is not complete.
        """
        is_export = export_files.is_export(path)
        load = cls.load_export if is_export else cls.load_run
        return load(
            path,
            batch_size=batch_size,
            max_input_size=max_input_size,
            workers=workers,
        )

    @classmethod
    def load_run(
        cls,
        path: str | pathlib.Path,
        *,
        batch_size: int = 0,
        max_input_size: int = 0,
        workers: processes.Workers | None = None,
    ) -> "Translator":
        """Loads a model that was trained. No file of its run is executed.

        Args:
            path: A run's directory or the prefix of a checkpoint.
            batch_size: int. See the class.
            max_input_size: int. See the class.
            workers: See `load`.

        Raises:
            UserError: neither is there, or it is not complete.
        """
        if export_files.is_export(path):
            raise errors.UserError(
                "Expected a run's directory or a checkpoint. Received: "
                f"{path}, which is an export. Name it with --export_dir, or "
                "in Python with `Translator.load_export`."
            )
        prefix = workers.call(_resolve, path)() if workers else _resolve(path)
        return cls._loaded("run", prefix, batch_size, max_input_size, workers)

    @classmethod
    def load_export(
        cls,
        path: str | pathlib.Path,
        *,
        batch_size: int = 0,
        max_input_size: int = 0,
        workers: processes.Workers | None = None,
    ) -> "Translator":
        """Loads an export.

        A SavedModel is a program. It is loaded if it has no operations but
        those of exports; see `saved_model_engine.check_operations`.

        Args:
            path: The directory of an export, of any format.
            batch_size: int. See the class.
            max_input_size: int. See the class.
            workers: See `load`.

        Raises:
            UserError: it is no export, or not complete.
        """
        return cls._loaded(
            "export", str(path), batch_size, max_input_size, workers
        )

    @classmethod
    def _loaded(cls, kind, path, batch_size, max_input_size, workers):
        source = kind, os.path.abspath(path), uuid.uuid4().hex
        load = functools.partial(_load, kind, path)
        if workers:
            load = functools.partial(
                worker_engine.start,
                functools.partial(_load_once, *source),
                workers,
            )
        translator = cls(
            engine=load(),
            batch_size=batch_size,
            max_input_size=max_input_size,
            name=path,
        )
        translator._source = source
        return translator

    def translate(
        self,
        lines: Iterable[str],
        beam_size: int | None = None,
        alpha: float | None = None,
        extra_length: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Translates a list of lines.

        Args:
            lines: The lines; a blank one gives an empty translation.
            beam_size: int. See `translate_lines`, as for all that follow.
            alpha: float.
            extra_length: int.
            **kwargs: The other arguments of `translate_lines`.

        Returns:
            A list as long as `lines`, of what `translate_lines` yields.
        """
        search = beam_size, alpha, extra_length
        return list(self.translate_lines(lines, *search, **kwargs))

    def translate_lines(
        self,
        lines: Iterable[str],
        beam_size: int | None = None,
        alpha: float | None = None,
        extra_length: int | None = None,
        n_best: int = 1,
        return_scores: bool = False,
        return_attention: bool = False,
        prefix: Iterable[str] | None = None,
        chunk_lines: int = CHUNK_LINES,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """Yields translations while reading lines, a chunk at a time.

        Args:
            lines: The lines, each a str; a blank one gives an empty
                translation. Of an iterator, such as a stream, no line is read
                before earlier chunks have been translated; of others, several
                engines may take the next chunk before.
            beam_size: int. None here and below: the value in the hparams that
                the model was trained with.
            alpha: float. Of the length penalty.
            extra_length: int. How many ids more than its source a translation
                may have.
            n_best: int. How many translations of each line to yield.
            return_scores: bool. Whether to yield scores as well.
            return_attention: bool. Whether to yield `engines.Attention` as
                well; None for a blank line.
            prefix: For each line, the beginning of its translations.
            chunk_lines: int. How many lines to read before translating them.
            progress: Function that gets the number of lines translated, after
                each batch.
            **options: The fields of `decode_hparam.DecodeHParams` from
                `min_length` on.

        Yields:
            For each line, its translation: a str, never with a line end in
            it; with `n_best` above 1, a list of str, best first. With
            `return_scores` or `return_attention`, a tuple of that and its
            score and attention, or lists of both.

        Raises:
            UserError: the settings are impossible, or this process was forked
                from the one that loaded the model. When it is read: a line
                that is no str, or that does not fit into memory.
        """
        _check_options(options)
        translations = self.translations(
            lines,
            decode_hparam.DecodeHParams(
                beam_size, alpha, extra_length, **options
            ),
            n_best=n_best,
            with_attention=return_attention,
            prefix=prefix,
            chunk_lines=chunk_lines,
            progress=progress,
        )
        return (
            _public(one, n_best, return_scores, return_attention)
            for one in translations
        )

    def translations(
        self,
        lines: Iterable[str],
        decode_hparams: decode_hparam.DecodeHParams,
        *,
        n_best: int = 1,
        with_attention: bool = False,
        prefix: Iterable[str] | None = None,
        chunk_lines: int = CHUNK_LINES,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[engines.Translation]:
        """Yields an `engines.Translation` for each line.

        Args:
            lines: The lines.
            decode_hparams: How to translate. Its `batch_size` and
                `max_input_size` are the translator's own.
            n_best: See `translate_lines`, as for all that follow.
            with_attention: bool, `return_attention`.
            prefix: Strings.
            chunk_lines: int.
            progress: Function.

        Raises:
            UserError: see `translate_lines`.
        """
        forks.check()
        reads_ahead = not isinstance(lines, Iterator)
        lines = _strings("lines", lines)
        if prefix is not None:
            prefix = _strings("prefix", prefix)
        checks.integer("chunk_lines", chunk_lines, least=1)
        decode_hparams = self.engine.complete(decode_hparams)
        decode_hparams.check_n_best(n_best)
        is_steerable = isinstance(self.engine, engines.SteerableEngine)
        if not is_steerable and (with_attention or prefix is not None):
            raise errors.UserError(
                "An export has no attention and takes no prefix: use the run."
            )
        job = _Job(
            self.engine,
            decode_hparams,
            n_best,
            with_attention,
            self._batch_size,
            self._max_input_size,
        )
        chunks = _chunks(lines, prefix, chunk_lines)
        return job.translations(chunks, reads_ahead, progress)


def _resolve(path: str | pathlib.Path) -> str:
    """Returns the prefix of a checkpoint; see `checkpoints.resolve`."""
    with extras.imports("translate", engine_kinds.RUN.folder):
        # Not at the top, as above.
        from relpos_tf.models import checkpoints

    return checkpoints.resolve(path)


def _load(kind: str, path: str) -> engines.Engine:
    """Loads the engine of a checkpoint or of an export."""
    forks.check()
    if kind == "export":
        return engine_kinds.of_export(path).load(path)
    return engine_kinds.RUN.load(path)


@functools.lru_cache(maxsize=1)
def _load_once(kind, path, key):
    """Loads the engine of pickled translators that have the same `key`.

    A pool of processes pickles a translator for each of its tasks.
    """
    del key
    return _load(kind, path)


def _strings(name, texts):
    """Returns an iterator over strings, which refuses everything else.

    Raises:
        UserError: at once, an argument that does not hold strings in an
            order; when it is read, an element that is no str.
    """
    wrong = str, bytes, bytearray, Mapping, set, frozenset
    try:
        elements = None if isinstance(texts, wrong) else iter(texts)
    except TypeError:
        elements = None
    if elements is None or _is_tensor(texts):
        raise errors.UserError(
            f"`{name}` must be a list of lines, each a str. Received: "
            f"{_received(texts)}."
        )
    return _checked_strings(name, elements)


def _is_tensor(value):
    """Tests the class without importing TensorFlow, which takes seconds."""
    tensorflow = sys.modules.get("tensorflow")
    names = "Tensor", "RaggedTensor"  # missing while another thread imports it
    kinds = tuple(getattr(tensorflow, name, ()) for name in names)
    return isinstance(value, kinds)


def _checked_strings(name, elements):
    for number, one in enumerate(elements, 1):
        if not isinstance(one, str):
            raise errors.UserError(
                f'`{name}` must be a list of lines, each a str: "" for a '
                "missing one, line.decode() for bytes. Received: "
                f"{_received(one)} as number {number}."
            )
        yield one


def _received(value):
    text = " ".join(repr(value).split())
    more = "..." if len(text) > 40 else ""
    return f"the {type(value).__name__} {text[:40]}{more}"


def _check_options(options):
    """Refuses unknown options of `translate_lines`, and names the known."""
    for name in sorted(_NO_OPTIONS.keys() & options.keys()):
        raise errors.UserError(
            f"`{name}` {_NO_OPTIONS[name]}. Received: {name}={options[name]!r}."
        )
    parameters = inspect.signature(Translator.translate_lines).parameters
    known = {*parameters, *fields.kinds(decode_hparam.DecodeHParams)}
    known -= {"self", "lines", "options", *_NO_OPTIONS}
    fields.check_names(options, dict.fromkeys(known), "options")


def _public(translation, n_best, return_scores, return_attention):
    """Returns what `Translator.translate_lines` yields for a line."""
    parts = [translation.texts]
    if return_scores:
        parts.append(translation.scores)
    if return_attention:
        parts.append(translation.attention)
    if n_best == 1:
        parts = [part[0] for part in parts]
    return parts[0] if len(parts) == 1 else tuple(parts)


class _Chunk:
    """Lines that are sorted by length together.

    Args:
        first: int. The number of the first line, from 1.
        lines: The lines.
        prefixes: A prefix for each, perhaps empty.

    Attributes:
        translations: A list, in the order of the lines; None for a line that
            is not translated yet.
        done: int. How many lines are translated, with earlier chunks.
    """

    def __init__(self, first: int, lines: list[str], prefixes: list[str]):
        self.first, self.lines, self.prefixes = first, lines, prefixes
        self.translations = [None] * len(lines)
        self.done = first - 1

    def set(self, number: int, translation: engines.Translation) -> None:
        """Stores the translation of the line of a number."""
        self.translations[number - self.first] = translation
        self.done += 1


def _chunks(lines, prefixes, chunk_lines) -> Iterator[_Chunk]:
    """Yields chunks, each read when it is asked for.

    Raises:
        UserError: there is another number of prefixes than of lines.
    """
    has_prefixes = prefixes is not None
    prefixes = prefixes if has_prefixes else itertools.repeat("")
    first = 1
    while lines_read := list(itertools.islice(lines, chunk_lines)):
        beginnings = list(itertools.islice(prefixes, len(lines_read)))
        if len(beginnings) < len(lines_read):
            raise errors.UserError(
                "Expected a prefix for each line, perhaps empty. "
                "Received: fewer."
            )
        yield _Chunk(first, lines_read, beginnings)
        first += len(lines_read)
    if has_prefixes and next(prefixes, None) is not None:
        raise errors.UserError(
            "Expected a prefix for each line. Received: more."
        )


class _Job:
    """One call of `Translator.translations`.

    Args:
        engine: `engines.Engine`.
        decode_hparams: `decode_hparam.DecodeHParams`, completed.
        n_best: int.
        with_attention: bool.
        batch_size: int. Most lines of a batch.
        max_input_size: int. Most ids of a line; 0: any number.
    """

    def __init__(
        self,
        engine,
        decode_hparams,
        n_best,
        with_attention,
        batch_size,
        max_input_size,
    ):
        self._engine = engine
        self._decode_hparams = decode_hparams
        self._n_best = n_best
        self._with_attention = with_attention
        self._batch_size = batch_size
        self._max_input_size = max_input_size
        self._hypotheses = decode_hparams.beam_size  # of a line, at once
        if decode_hparams.is_random:
            self._hypotheses = n_best
            self._batch_size = min(batch_size, max(1, BATCH_DRAWN // n_best))
        self._is_parallel = isinstance(engine, engines.ParallelEngine)
        # Line numbers, for the warnings at the end.
        self._truncated, self._incomplete, self._without = [], [], []

    def translations(self, chunks, reads_ahead, progress):
        """Yields the translation of each line, while chunks are read."""
        if self._is_parallel and reads_ahead:
            yield from self._translate(chunks, progress)
        else:
            for chunk in chunks:
                yield from self._translate([chunk], progress)
        self.warn()

    def _translate(self, chunks, progress):
        """Yields the translations of chunks, in the order of their lines."""
        number = self._engine.number if self._is_parallel else 0
        encoded = _in_order(
            ((chunk, self._encode(chunk)) for chunk in chunks), min(number, 1)
        )
        for (chunk, items, is_last), results in _in_order(
            self._batches(encoded), _BATCHES_AHEAD * number
        ):
            for item, result in zip(items, results, strict=True):
                chunk.set(item.number, result)
                if result.scores[0] <= engines.NO_HYPOTHESIS:
                    self._without.append(item.number)
                elif not result.is_complete:
                    self._incomplete.append(item.number)
            if progress and items:
                progress(chunk.done)
            if is_last:
                yield from chunk.translations

    def _call(self, function, *arguments):
        """Begins a call with an engine; returns what waits for its result."""
        if self._is_parallel:
            return self._engine.call(function, *arguments)
        return functools.partial(function, self._engine, *arguments)

    def _encode(self, chunk):
        """Begins to turn the lines of a chunk into items."""
        for i, line in enumerate(chunk.lines):
            if engines.is_blank(line):
                blank = engines.blank_translation(self._n_best)
                chunk.set(chunk.first + i, blank)
        indices = [i for i, x in enumerate(chunk.translations) if x is None]
        if not indices:
            return lambda: ([], [])
        return self._call(
            _items,
            [chunk.lines[i] for i in indices],
            [chunk.prefixes[i] for i in indices],
            [chunk.first + i for i in indices],
            self._max_input_size,
        )

    def _batches(self, encoded):
        """Begins to translate the batches of chunks, one after another.

        Args:
            encoded: Pairs of a chunk and what `_items` returned.

        Yields:
            Pairs: a chunk, the items of a batch and whether it is the chunk's
            last batch; and a function that waits for the translations.
        """
        extra_length = self._decode_hparams.extra_length
        for chunk, (items, truncated) in encoded:
            self._truncated += truncated
            self._warn_of_long(items)
            costs = [
                cost(item.size, item.limit(extra_length), self._hypotheses)
                for item in items
            ]
            batches = [
                [items[i] for i in indices]
                for indices in make_batches(costs, self._batch_size)
            ]
            for batch in batches[:-1]:
                yield (chunk, batch, False), self._begin(batch)
            last = batches[-1] if batches else []
            yield (chunk, last, True), self._begin(last) if last else list

    def _begin(self, items):
        """Begins to translate a batch."""
        return self._call(
            _translate_batch,
            items,
            self._decode_hparams,
            self._n_best,
            self._with_attention,
        )

    def _warn_of_long(self, items):
        """Names the lines that take minutes, before they are translated."""
        if numbers := [item.number for item in items if item.size > LONG_LINE]:
            _log.warning(
                "Translating %s of more than %d ids may take minutes: the time "
                "grows with the square of the length. Split them into "
                "sentences; or relpos-decoder cuts them, by "
                "--decode_hparams=max_input_size=%d.",
                _listed(numbers),
                LONG_LINE,
                LONG_LINE,
            )

    def warn(self):
        """Names lines that were cut, and translations without an end."""
        decode_hparams = self._decode_hparams
        if self._truncated:
            _log.warning(
                "Only the first %d ids were translated of %s.",
                self._max_input_size,
                _listed(self._truncated),
            )
        if self._incomplete:
            least = decode_hparams.min_length
            _log.warning(
                "No end was found %swithin the source's length + %d ids for "
                "%s.",
                f"after min_length={least} ids and " if least else "",
                decode_hparams.extra_length,
                _listed(self._incomplete),
            )
        if self._without:
            _log.warning(
                "No translation was found for %s: every continuation was "
                "forbidden by %s.",
                _listed(self._without),
                ", ".join(
                    f"{name}={value}"
                    for name in ("min_length", "no_repeat_ngram_size")
                    if (value := getattr(decode_hparams, name))
                ),
            )


def _in_order(calls, number):
    """Waits for calls in their order, with so many others begun before.

    Args:
        calls: Pairs of a key and a function that waits for the result. To take
            a pair begins the call.
        number: int.

    Yields:
        Pairs of a key and the result.
    """
    begun = collections.deque()
    for call in calls:
        begun.append(call)
        if len(begun) > number:
            key, wait = begun.popleft()
            yield key, wait()
    for key, wait in begun:
        yield key, wait()


def _items(engine, lines, prefixes, numbers, max_input_size):
    """Returns the items of lines, and the numbers of those that were cut."""
    items = engine.items(lines)
    if any(prefixes):
        items = engine.with_prefixes(items, prefixes)
    numbered, truncated = [], []
    for item, number in zip(items, numbers, strict=True):
        if 0 < max_input_size < item.size:
            truncated.append(number)
            item = engine.truncate(item, max_input_size)
        numbered.append(item._replace(number=number))
    return numbered, truncated


def _translate_batch(engine, items, decode_hparams, n_best, with_attention):
    """Translates a batch, or its halves if memory is short."""
    results = _translate_parts(engine, items, decode_hparams, n_best)
    if with_attention:
        results = engine.with_attention(items, results)
    return results


def _translate_parts(engine, items, decode_hparams, n_best):
    """Translates a batch without attention; see `_translate_batch`."""
    try:
        return engine.translate(items, decode_hparams, n_best)
    except Exception as error:
        if not system_errors.is_out_of_memory(error):
            raise
        if len(items) == 1:
            raise errors.UserError(
                f"Line {items[0].number} of {items[0].size} ids does not "
                "fit into memory. Split it, use fewer beams, or cut such "
                "lines with max_input_size."
            ) from error
    half = len(items) // 2
    return [
        *_translate_parts(engine, items[:half], decode_hparams, n_best),
        *_translate_parts(engine, items[half:], decode_hparams, n_best),
    ]


def cost(size: int, limit: int, hypotheses: int) -> int:
    """Returns the number of ids that a line counts in `make_batches`.

    Memory grows with the ids of the source and with those of the translation,
    each of which has keys and values in every hypothesis.

    Args:
        size: int. Ids of the source.
        limit: int. Most ids of the translation.
        hypotheses: int. Beams, or translations drawn.
    """
    return hypotheses * max(size, -(-limit // _TARGET_SHARE))


def make_batches(
    sizes: list[int],
    batch_size: int = BATCH_LINES,
    batch_ids: int = BATCH_IDS,
) -> Iterator[list[int]]:
    """Yields the indices of items that form a batch, the longest first.

    Args:
        sizes: The number of ids of each item.
        batch_size: int. Most items of a batch.
        batch_ids: int. Most ids of a batch, padding included.

    Yields:
        Lists of indices of `sizes`. Each index comes once.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    while order:
        # The first is the longest: the others are padded to its size.
        number = min(batch_size, max(1, batch_ids // sizes[order[0]]))
        yield order[:number]
        order = order[number:]


def _listed(numbers: list[int]) -> str:
    """Returns the numbers of lines, as in `3 lines (2, 5, 7)`."""
    numbers = sorted(numbers)
    listed = ", ".join(str(number) for number in numbers[:_NAMED_LINES])
    more = ", ..." if len(numbers) > _NAMED_LINES else ""
    plural = "lines" if len(numbers) > 1 else "line"
    return f"{len(numbers)} {plural} ({listed}{more})"
