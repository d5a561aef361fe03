"""Lines in, lines out: one translation for each line, in their order.

Lines are sorted by length and translated in batches. A batch is bounded twice:
by its number of lines, or of translations drawn; and by the memory it takes,
which grows with its padded source ids and with the ids that its translations
may have, both times the beams, or those drawn. A line beyond a bound is a batch
by itself. Neither bound changes what comes out, because a sentence's search
knows nothing of the other sentences: its length limit is its own length plus
`extra_length`.
"""

import itertools
import logging
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.decoding import beam_search
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import line_batches
from relpos_tf.decoding import loading
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir

_log = logging.getLogger("relpos_tf")

# Lines read before the first is translated: enough to find similar lengths.
CHUNK_LINES = 4096


class Translator:
    """Translates text with a trained model or an exported one.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer` that the model was trained with.
        engine: What translates a batch, in place of these two.
        batch_size: int. Most lines of a batch. 0: `line_batches.BATCH_LINES`.
        max_input_size: int. Longer lines are cut to that many ids, with a
            warning. 0: never.
        name: str. Where the model came from, for messages.

    Example:

        translator = Translator.load("runs/demo")
        translator.translate(["It is five o'clock."])  # ["Es ist fünf Uhr."]
    """

    def __init__(
        self,
        model=None,
        tokenizer=None,
        *,
        engine=None,
        batch_size=0,
        max_input_size=0,
        name="",
    ):
        self.name = name
        self._engine = engine or engines.ModelEngine(model, tokenizer)
        self._batch_size = batch_size or line_batches.BATCH_LINES
        self._max_input_size = max_input_size

    @classmethod
    def load(
        cls,
        path: str | pathlib.Path,
        *,
        batch_size: int = 0,
        max_input_size: int = 0,
    ) -> "Translator":
        """Loads what can translate.

        What is a run is loaded as one, whatever else lies in its directory. An
        export is a program; see `load_export`.

        Args:
            path: A run's directory, the prefix of a checkpoint, or the
                directory of an export.
            batch_size: int. See the class.
            max_input_size: int. See the class.

        Raises:
            UserError: none of them is there, or it is not complete.
        """
        limits = {"batch_size": batch_size, "max_input_size": max_input_size}
        if _is_export(path):
            return cls.load_export(path, **limits)
        return cls.load_run(path, **limits)

    @classmethod
    def load_run(
        cls,
        path: str | pathlib.Path,
        *,
        batch_size: int = 0,
        max_input_size: int = 0,
    ) -> "Translator":
        """Loads a model that was trained. No file of its run is executed.

        Args:
            path: A run's directory or the prefix of a checkpoint.
            batch_size: int. See the class.
            max_input_size: int. See the class.

        Raises:
            UserError: neither is there, or it is not complete.
        """
        if _is_export(path):
            raise errors.UserError(
                "Expected a run's directory or a checkpoint. Received: "
                f"{path}, which is an export. Name it with --export_dir, or "
                "in Python with `Translator.load_export`."
            )
        prefix = checkpoints.resolve(path)
        return cls(
            loading.load_model(prefix),
            loading.load_tokenizer(prefix),
            batch_size=batch_size,
            max_input_size=max_input_size,
            name=prefix,
        )

    @classmethod
    def load_export(
        cls,
        path: str | pathlib.Path,
        *,
        batch_size: int = 0,
        max_input_size: int = 0,
    ) -> "Translator":
        """Loads what `export` made.

        A SavedModel is a program. It is loaded if it consists of operations
        that exports consist of; see `export_engine.check_operations`.

        Args:
            path: The directory of an export, of any format.
            batch_size: int. See the class.
            max_input_size: int. See the class.

        Raises:
            UserError: it is none, or not complete.
        """
        return cls(
            engine=ctranslate2_engine.load_export(path),
            batch_size=batch_size,
            max_input_size=max_input_size,
            name=str(path),
        )

    @property
    def engine(self) -> Any:
        """What translates a batch: see `engines`."""
        return self._engine

    def translate(
        self,
        lines: list[str],
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
        if isinstance(lines, str):
            raise ValueError(
                f"Expected a list of lines. Received: the str {lines[:40]!r}."
            )
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
            lines: The lines; a blank one gives an empty translation.
            beam_size: int. None here and below: the value in the hparams that
                the model was trained with.
            alpha: float. Of the length penalty.
            extra_length: int. How many ids more than its source a translation
                may have.
            n_best: int. How many translations of each line to yield.
            return_scores: bool. Whether to yield scores as well.
            return_attention: bool. Whether to yield `engines.Attention` as
                well. A blank line has none: None.
            prefix: For each line, what its translations begin with.
            chunk_lines: int. How many lines to read before translating them.
            progress: Function that is told the number of lines translated,
                after each batch.
            **options: The fields of `decode_hparam.DecodeHParams` from
                `min_length` on.

        Yields:
            For each line, its translation: a str, never with a line end in
            it; with `n_best` above 1, a list of str, best first. With
            `return_scores` or `return_attention`, a tuple of that and its
            score, and where it looked, or lists of both.

        Raises:
            UserError: the settings are impossible, or a line does not fit
                into memory.
        """
        settings = self._settings(
            decode_hparam.DecodeHParams(
                beam_size, alpha, extra_length, **options
            ),
            n_best,
            needs_model=return_attention or prefix is not None,
        )
        limits = self._batch_size, self._max_input_size
        task = _Task(self._engine, settings, n_best, limits, progress)
        lines = iter(lines)
        prefixes = itertools.repeat("") if prefix is None else iter(prefix)
        while chunk := list(itertools.islice(lines, chunk_lines)):
            begun = list(itertools.islice(prefixes, len(chunk)))
            if len(begun) < len(chunk):
                raise errors.UserError(
                    "Expected a prefix for each line, perhaps empty. "
                    "Received: fewer."
                )
            for found in task.translate(chunk, begun, return_attention):
                parts = [found.texts]
                parts += [found.scores] * return_scores
                parts += [found.looks] * return_attention
                if n_best == 1:
                    parts = [part[0] for part in parts]
                yield parts[0] if len(parts) == 1 else tuple(parts)
        task.warn()

    def _settings(self, wanted, n_best, needs_model):
        """Returns complete settings, or says what is impossible."""
        settings = self._engine.complete(wanted)
        settings.check_number("n_best", n_best)
        if needs_model and not hasattr(self._engine, "attention"):
            raise errors.UserError(
                "An export has no attention and takes no prefix: use the run."
            )
        return settings


def _is_export(path: str | pathlib.Path) -> bool:
    """Says whether a directory is an export, and no run besides."""
    return (
        pathlib.Path(path, engines.EXPORT_INFO).is_file()
        and not pathlib.Path(path, run_dir.HPARAMS).exists()
        and not run_dir.all_steps(path)
    )


class _Task:
    """One call of `translate_lines`: its settings, and what it has met."""

    def __init__(self, engine, settings, n_best, limits, progress):
        self._engine = engine
        self._settings = settings
        self._n_best = n_best
        self._batch_size, self._max_input_size = limits
        self._progress = progress
        self._done = 0
        self._truncated, self._incomplete, self._nothing = [], [], []
        self._hypotheses = settings.beam_size  # of a line, at once
        if settings.is_random:
            self._hypotheses = n_best
            drawn = max(1, line_batches.BATCH_DRAWN // n_best)
            self._batch_size = min(self._batch_size, drawn)

    def translate(
        self, lines: list[str], prefixes: list[str], with_attention: bool
    ) -> list[engines.Translation]:
        """Translates a chunk."""
        first = self._done + 1
        found = [engines.nothing(self._n_best)] * len(lines)
        places = [
            i for i, line in enumerate(lines) if not engines.is_blank(line)
        ]
        items = self._engine.items([lines[i] for i in places]) if places else []
        if any(prefixes):
            items = self._engine.with_prefixes(
                items, [prefixes[i] for i in places]
            )
        items = [
            self._fit(item, first + i)
            for i, item in zip(places, items, strict=True)
        ]
        done = self._done + len(lines) - len(places)
        self._warn_of_long(items)
        for batch in line_batches.make_batches(
            [self._cost(item) for item in items], self._batch_size
        ):
            numbers = [first + places[i] for i in batch]
            some = [items[i] for i in batch]
            results = self._run(some, numbers)
            if with_attention:
                looks = self._engine.attention(some, results)
                results = [
                    one._replace(looks=look)
                    for one, look in zip(results, looks, strict=True)
                ]
            for i, number, result in zip(batch, numbers, results, strict=True):
                found[places[i]] = result
                if result.scores[0] <= beam_search.NO_HYPOTHESIS:
                    self._nothing.append(number)
                elif not result.is_complete:
                    self._incomplete.append(number)
            done += len(batch)
            if self._progress:
                self._progress(done)
        self._done += len(lines)
        return found

    def _cost(self, item):
        """Returns what a line counts in a batch."""
        places = max(item.size, len(item.prefix)) + self._settings.extra_length
        return line_batches.cost(item.size, places, self._hypotheses)

    def _warn_of_long(self, items):
        """Says which lines take minutes, before they do."""
        numbers = [i.number for i in items if i.size > line_batches.LONG_LINE]
        if numbers:
            _log.warning(
                "Translating %s of more than %d ids may take minutes: the time "
                "grows with the square of the length. max_input_size cuts such "
                "lines.",
                line_batches.named(numbers),
                line_batches.LONG_LINE,
            )

    def _fit(self, item, number):
        """Numbers a line, and cuts it if it is too long."""
        item = item._replace(number=number)
        if not 0 < self._max_input_size < item.size:
            return item
        self._truncated.append(number)
        cut = self._engine.truncate(item, self._max_input_size)
        return item._replace(content=cut.content, size=cut.size)

    def _run(self, items, numbers):
        """Translates a batch, or its halves if memory is short."""
        try:
            return self._engine.translate(items, self._settings, self._n_best)
        except tf.errors.ResourceExhaustedError as error:
            if len(items) == 1:
                raise errors.UserError(
                    f"Line {numbers[0]} of {items[0].size} ids does not fit "
                    "into memory. Split it, use fewer beams, or cut such "
                    "lines with max_input_size."
                ) from error
        half = len(items) // 2
        return [
            *self._run(items[:half], numbers[:half]),
            *self._run(items[half:], numbers[half:]),
        ]

    def warn(self):
        """Says which translations are not of a whole line, or not whole."""
        if self._truncated:
            _log.warning(
                "Only the first %d ids were translated of %s.",
                self._max_input_size,
                line_batches.named(self._truncated),
            )
        if self._incomplete:
            least = self._settings.min_length
            _log.warning(
                "No end was found %swithin the source's length + %d ids for "
                "%s.",
                f"after min_length={least} ids and " if least else "",
                self._settings.extra_length,
                line_batches.named(self._incomplete),
            )
        if self._nothing:
            _log.warning(
                "No translation was found for %s: every way to go on was "
                "forbidden by %s.",
                line_batches.named(self._nothing),
                ", ".join(
                    f"{name}={value}"
                    for name in ("min_length", "no_repeat_ngram_size")
                    if (value := getattr(self._settings, name))
                ),
            )
