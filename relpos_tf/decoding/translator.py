"""Lines in, lines out: one translation for each line, in their order.

Lines are sorted by length and translated in batches. A batch is bounded twice:
by its number of lines, or of translations drawn; and by its memory, which grows
with the padded ids of the sources and the largest number of ids of the
translations, both times the hypotheses of a line. A line beyond a bound is a
batch by itself. Neither bound changes a translation, because the search for one
sentence does not depend on the others: its length limit is its own length plus
`extra_length`.
"""

import dataclasses
import inspect
import itertools
import logging
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engine_kinds
from relpos_tf.decoding import engines
from relpos_tf.utils import system_errors

_log = logging.getLogger("relpos_tf")

# Lines read before the first is translated: enough to find similar lengths.
CHUNK_LINES = 4096
# Most translations drawn at once: as many as a search with 4 beams has.
BATCH_DRAWN = 4 * engines.BATCH_LINES
# An id of a translation needs this share of the memory of a source id: with the
# usual `extra_length`, the source decides.
_TARGET_SHARE = 8
_OF_EACH_LINE = "Expected a prefix for each line, perhaps empty. Received: "
# Line numbers that a warning names.
_NAMED_LINES = 8


class Translator:
    """Translates text with a trained model or an exported one.

    Several threads may use one translator. A process that was forked from the
    one that loaded it cannot, because the threads of TensorFlow and CTranslate2
    are not in it: load a translator in each process.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer` that the model was trained with.
        engine: `engines.Engine`, in place of these two.

    Raises:
        UserError: there is neither a model nor an engine.

    Example:
        translator = Translator.load("runs/demo")
        translator.translate(["It is five o'clock."])  # ["Es ist fünf Uhr."]
    """

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        *,
        engine: engines.Engine | None = None,
    ):
        unfit = tokenizer is None or isinstance(model, str | os.PathLike)
        if engine is not None:
            unfit = model is not None or tokenizer is not None
        if unfit:
            raise errors.UserError(
                "Expected a model and its tokenizer, or an engine alone: "
                "Translator.load(path) loads both. Received: "
                f"model={model!r}, tokenizer={tokenizer!r}, engine={engine!r}."
            )
        if engine is None:
            # Not at the top: who translates with an export for CTranslate2 or
            # LiteRT needs no TensorFlow. Here it is imported already.
            from relpos_tf.decoding import model_engine

            engine = model_engine.ModelEngine(model, tokenizer)
        self.engine = engine

    @classmethod
    def load(
        cls, path: str | pathlib.Path, *, jit_compile: bool = False
    ) -> "Translator":
        """Loads a run, a checkpoint or an export.

        A run is loaded as a run, whatever other files its directory has; none
        of them is executed. A SavedModel is a program: load those alone whose
        maker you trust.

        Args:
            path: A run's directory, for the average of its end, else its
                newest checkpoint; `RUN/best`, the checkpoint of the best BLEU
                in training; a checkpoint, as in `runs/mine/ckpt-1000`; or the
                directory of an export.
            jit_compile: Whether XLA compiles the search for lines that are
                translated alone, which takes half of the time then, and some
                seconds at the first line of a length; see
                `model_engine.ModelEngine`. For runs and checkpoints.

        Raises:
            UserError: none of them is there, or it is not complete.
        """
        kind = engine_kinds.of(path)
        if jit_compile and kind is not engine_kinds.RUN:
            raise errors.UserError(
                "`jit_compile` is for runs and checkpoints. Received: "
                f"{path}, {kind.folder}."
            )
        options = {"jit_compile": True} if jit_compile else {}
        return cls(engine=kind.load(path, **options))

    def translate(
        self,
        lines: Iterable[str],
        *,
        n_best: int = 1,
        return_scores: bool = False,
        return_attention: bool = False,
        prefix: Iterable[str] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Translates lines.

        Args:
            lines: The lines, each a str; a blank one gives an empty
                translation.
            n_best: int. How many translations of each line are wanted. They
                differ, unless they are drawn at random.
            return_scores: bool. Whether scores are wanted as well.
            return_attention: bool. Whether `engines.Attention` is wanted as
                well; None for a blank line.
            prefix: For each line, the beginning of its translations.
            **options: Fields of `decode_hparam.DecodeHParams`: `beam_size`,
                `alpha`, `extra_length` (default: the values in the hparams
                that the model was trained with), `batch_size`, ...

        Returns:
            A list as long as `lines`. Each element is a str, never with a line
            end in it; with `n_best` above 1, a list of str, best first, ""
            where fewer were found. With `return_scores` or
            `return_attention`, a tuple of that and its score and attention,
            or lists of both. The score of a translation that was not found is
            `engines.NO_HYPOTHESIS`.

        Raises:
            UserError: the settings are impossible, or a line is no str or
                does not fit into memory.
        """
        _check_options(options)
        how = decode_hparam.DecodeHParams(n_best=n_best, **options)
        given = [name for name, x in options.items() if x is not None]
        fields.check_effect(given, [how])
        translations = self.translations(
            lines, how, with_attention=return_attention, prefix=prefix
        )
        return [
            _public(one, n_best, return_scores, return_attention)
            for one in translations
        ]

    def translations(
        self,
        lines: Iterable[str],
        decode_hparams: decode_hparam.DecodeHParams | None = None,
        *,
        with_attention: bool = False,
        prefix: Iterable[str] | None = None,
        chunk_lines: int = CHUNK_LINES,
        first_lines: int = CHUNK_LINES,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[engines.Translation]:
        """Yields an `engines.Translation` for each line, while reading lines.

        Args:
            lines: The lines. No line of a chunk is read before the earlier
                chunks have been translated.
            decode_hparams: How to translate, and how many translations of each
                line are wanted. None: one, as the model's hparams say.
            with_attention: bool. See `return_attention` there. It is implied
                by `return_alignments`.
            prefix: See `translate`.
            chunk_lines: int. The most lines to read before translating them.
            first_lines: int. As many are read at first, and twice as many each
                time: what is stopped then has some lines.
            progress: Function that gets the number of lines translated, after
                each batch.

        Raises:
            UserError: the settings are impossible. When it is read: see
                `translate`.
        """
        lines = _strings("lines", lines)
        for name, value in (("chunk", chunk_lines), ("first", first_lines)):
            fields.check_value(f"{name}_lines", value, int, fields.Number(1))
        if prefix is not None:
            prefix = _strings("prefix", prefix)
        decode_hparams = self.engine.complete(
            decode_hparams or decode_hparam.DecodeHParams()
        )
        if with_attention:
            decode_hparams = dataclasses.replace(
                decode_hparams, return_alignments=True
            )
        is_steered = decode_hparams.return_alignments or prefix is not None
        if is_steered and not self.engine.is_steerable:
            raise errors.UserError(
                "An export has no attention and takes no prefix: use the run."
            )
        chunks = _chunks(lines, prefix, chunk_lines, first_lines)
        progress = progress or (lambda _: None)
        return self._translations(chunks, decode_hparams, progress)

    def _translations(self, chunks, decode_hparams, progress):
        """Yields the translation of each line, while chunks are read."""
        numbers = _Numbers([], [], [])
        blank = engines.blank_translation(decode_hparams.n_best)
        for chunk in chunks:
            items = self._items(chunk, decode_hparams.max_input_size, numbers)
            found = {}  # by the number of the line
            done = chunk.first - 1 + len(chunk.lines) - len(items)
            for batch in _batches(
                items, decode_hparams, self.engine.linear_ids
            ):
                results = self._translate(batch, decode_hparams)
                for item, result in zip(batch, results, strict=True):
                    is_long = self.engine.is_long(item)
                    found[item.number] = result._replace(is_long=is_long)
                    if result.scores[0] <= engines.NO_HYPOTHESIS:
                        numbers.without.append(item.number)
                    elif not result.is_complete:
                        numbers.incomplete.append(item.number)
                progress(done + len(found))
            for number in range(chunk.first, chunk.first + len(chunk.lines)):
                yield found.get(number, blank)
        _warn(numbers, decode_hparams, self.engine.name)

    def _items(self, chunk, most, numbers):
        """Returns the items of the lines that are not blank."""
        found: list[engines.Item] = []
        items = self.engine.items(chunk.lines, chunk.prefixes)
        pairs = zip(chunk.lines, items, strict=True)
        for number, (line, item) in enumerate(pairs, chunk.first):
            if engines.is_blank(line):
                continue
            if 0 < most < item.size:
                numbers.truncated.append(number)
                item = self.engine.truncate(item, most)
            found.append(item._replace(number=number))
        # The lines unlike all of training are named before they are tried.
        if long := [item.number for item in found if self.engine.is_long(item)]:
            _log.warning(
                "Longer than any source in training, which has at most %d ids: "
                "%s. Much may be missing in the translation. Split such lines "
                "into sentences, as --split_sentences of relpos-decoder does.",
                self.engine.longest_source,
                _listed(long),
            )
        return found

    def _translate(self, items, decode_hparams):
        """Translates a batch, or its halves if memory is short."""
        try:
            found = self.engine.translate(items, decode_hparams)
            if decode_hparams.return_alignments:
                found = self.engine.with_attention(items, found)
            return found
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
            *self._translate(items[:half], decode_hparams),
            *self._translate(items[half:], decode_hparams),
        ]


class _Chunk(NamedTuple):
    """Lines that are sorted by length together."""

    first: int  # the number of the first line, from 1
    lines: list[str]
    prefixes: list[str]  # one for each line, perhaps empty


class _Numbers(NamedTuple):
    """The numbers of the lines that a warning names at the end."""

    truncated: list[int]
    incomplete: list[int]  # the length limit cut the translation off
    without: list[int]  # no translation was found


def _warn(numbers, decode_hparams, name):
    """Warns of cut lines, and of translations without an end."""
    if numbers.truncated:
        _log.warning(
            "Only the first %d ids were translated of %s.",
            decode_hparams.max_input_size,
            _listed(numbers.truncated),
        )
    least = decode_hparams.min_length
    if numbers.incomplete:
        _log.warning(
            "No end was found %swithin the source's length + %d ids for %s.",
            f"after min_length={least} ids and " if least else "",
            decode_hparams.extra_length,
            _listed(numbers.incomplete),
        )
    if not numbers.without:
        return
    forbidding = [
        f"{name}={value}"
        for name in ("min_length", "no_repeat_ngram_size")
        if (value := getattr(decode_hparams, name))
    ]
    reason = f"every continuation was forbidden by {', '.join(forbidding)}."
    _log.warning(
        "No translation was found for %s: %s",
        _listed(numbers.without),
        reason if forbidding else engines.nan_logits(name),
    )


def _strings(name, texts):
    """Returns an iterator over strings, which refuses everything else.

    Raises:
        UserError: `texts` is one string, or none; when it is read: an element
            is no str.
    """

    def refuse(value, where=""):
        raise errors.UserError(
            f"`{name}` must be a list of lines, each a str. Received: the "
            f"{type(value).__name__} {value!r}{where}. line.decode() makes a "
            "str of bytes."
        )

    if isinstance(texts, str) or not isinstance(texts, Iterable):
        refuse(texts)
    return (
        one if isinstance(one, str) else refuse(one, f", line {number}")
        for number, one in enumerate(texts, 1)
    )


def _check_options(options):
    """Refuses unknown options of `translate`, and names the known."""
    parameters = inspect.signature(Translator.translate).parameters
    known = {*parameters, *fields.kinds(decode_hparam.DecodeHParams)}
    known -= {"self", "lines", "options"}
    # `return_scores` and `return_attention` here.
    known -= {"write_beam_scores", "return_alignments"}
    fields.check_names(options, dict.fromkeys(known), "options")


def _public(translation, n_best, return_scores, return_attention):
    """Returns what `Translator.translate` returns for a line."""
    parts = [translation.texts]
    if return_scores:
        parts.append(translation.scores)
    if return_attention:
        parts.append(translation.attention)
    if n_best == 1:
        parts = [part[0] for part in parts]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _chunks(lines, prefixes, chunk_lines, first_lines):
    """Yields chunks, each read when it is asked for.

    Raises:
        UserError: there is another number of prefixes than of lines.
    """
    starts = itertools.repeat("") if prefixes is None else prefixes
    first, size = 1, min(first_lines, chunk_lines)
    while chunk := list(itertools.islice(lines, size)):
        beginnings = list(itertools.islice(starts, len(chunk)))
        if len(beginnings) < len(chunk):
            raise errors.UserError(_OF_EACH_LINE + "fewer.")
        yield _Chunk(first, chunk, beginnings)
        first, size = first + len(chunk), min(2 * size, chunk_lines)
    if prefixes is not None and next(prefixes, None) is not None:
        raise errors.UserError(_OF_EACH_LINE + "more.")


def _batches(items, decode_hparams, linear_ids):
    """Yields the items that are translated together, the longest first."""
    most = decode_hparams.batch_size or engines.BATCH_LINES
    hypotheses = decode_hparams.beam_size  # of a line, at once
    if decode_hparams.is_random:
        hypotheses = decode_hparams.n_best
        most = min(most, max(1, BATCH_DRAWN // hypotheses))
    costs = [
        _cost(item, decode_hparams.extra_length, hypotheses, linear_ids)
        for item in items
    ]
    for indices in engines.make_batches(costs, most):
        yield [items[i] for i in indices]


def _cost(item, extra_length, hypotheses, linear_ids):
    """Returns the number of ids that a line counts in `engines.make_batches`.

    Memory grows with the ids of the source and with those of the translation,
    each of which has keys and values in every hypothesis; and beyond
    `engines.Engine.linear_ids` with the square of the source.
    """
    size = max(item.size, -(-item.limit(extra_length) // _TARGET_SHARE))
    return hypotheses * size * max(linear_ids, item.size) // linear_ids


def _listed(numbers):
    """Returns the numbers of lines, as in `3 lines (2, 5, 7)`."""
    numbers = sorted(numbers)
    listed = ", ".join(str(number) for number in numbers[:_NAMED_LINES])
    more = ", ..." if len(numbers) > _NAMED_LINES else ""
    plural = "lines" if len(numbers) > 1 else "line"
    return f"{len(numbers)} {plural} ({listed}{more})"
