"""A model that the server translates with, and the form of its answers."""

import functools
import json
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import queries

# A run keeps a graph for each kind of search in memory, so there are so many at
# most, besides those of the page.
MOST_KINDS = 64
_DIGITS = 4
_WARM_UP = "Hello.", "This line is translated before the first request."


class Settings(NamedTuple):
    """How to translate. Lines of equal settings can share a batch."""

    decode_hparams: decode_hparam.DecodeHParams  # completed by the model
    n_best: int
    has_prefixes: bool
    has_attention: bool

    @property
    def is_plain(self) -> bool:
        """Whether every model translates so."""
        return not self.has_prefixes and not self.has_attention


class ServedModel:
    """A translator with a name.

    Args:
        name: str.
        translator: `translator.Translator`, or anything with its
            `translations` and `engine`.
        description: dict. What `/models` says of it besides.
    """

    def __init__(
        self,
        name: str,
        translator: Any,
        description: dict[str, Any] | None = None,
    ):
        self.name = name
        self._translator = translator
        self._kinds = set()
        self._defaults = self._complete(decode_hparam.DecodeHParams())
        self.has_prefixes = translator.engine.is_steerable
        self.has_attention = translator.engine.is_steerable
        self._kinds_of_page = frozenset(map(_kind, self.kinds_of_page()))
        self._description = description or {}

    def _complete(self, decode_hparams):
        return self._translator.engine.complete(decode_hparams)

    def describe(self) -> dict[str, Any]:
        """Returns the model's entry in `/models`."""
        return {
            "name": self.name,
            **self._description,
            "prefix": self.has_prefixes,
            "attention": self.has_attention,
            **self._defaults.search_settings(),
        }

    def settings(self, query: queries.Query) -> Settings:
        """Returns the settings of a query.

        Raises:
            RefusedError: the model cannot translate so.
        """
        try:
            return self._settings(query)
        except limits_lib.RefusedError:
            raise
        except errors.UserError as error:
            raise limits_lib.RefusedError(422, str(error)) from error

    def _settings(self, query):
        decode_hparams = self._complete(query.decode_hparams)
        arguments = {"with_attention": True} if query.attention else {}
        if query.prefixes:
            arguments["prefix"] = []
        # Checks everything at the call, before a line is read.
        self._translator.translations(
            [], decode_hparams, n_best=query.n_best, **arguments
        )
        n_best = query.n_best
        if n_best > 1 and not decode_hparams.is_random:
            # The search is the same, and such lines can share a batch.
            n_best = decode_hparams.beam_size
        settings = Settings(
            decode_hparams, n_best, bool(query.prefixes), bool(query.attention)
        )
        self._check_kind(settings)
        return settings

    def _check_kind(self, settings):
        """Refuses one kind of search too many; returns the kind if it counts.

        Returns None for the kinds of the page. Exports keep no graphs; they
        are the models without attention.
        """
        kind = _kind(settings)
        if not self.has_attention or kind in self._kinds_of_page:
            return None
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            raise errors.UserError(
                f"This server searches in {MOST_KINDS} different ways at most, "
                "and has done so: n_best, beam_size, min_length, "
                "no_repeat_ngram_size, sampling_method and "
                "sampling_keep_top_k must be those of an earlier request."
            )
        return kind

    def translate(
        self,
        settings: Settings,
        lines: list[str],
        prefixes: list[str],
        numbers: Sequence[int] = (),
    ) -> list[Any]:
        """Translates lines of the same settings.

        Args:
            settings: What `settings` returned.
            lines: list of str.
            prefixes: list of str, read if the settings have prefixes.
            numbers: The number of each line in its request, counted from 0,
                which decides what is drawn for it. Read if the settings are
                random.

        Returns:
            An `engines.Translation` for each line.

        Raises:
            UserError: a line cannot be translated, or this would be one kind
                of search too many.
        """
        # Only now: a request that is never translated makes no graph.
        if (kind := self._check_kind(settings)) is not None:
            self._kinds.add(kind)
        if not settings.decode_hparams.is_random:
            return self._translate(settings, lines, prefixes)
        # Blank lines, which nothing is drawn for, stand for the others.
        all_lines, all_prefixes = ([""] * (max(numbers) + 1) for _ in range(2))
        for number, line, prefix in zip(numbers, lines, prefixes, strict=True):
            all_lines[number], all_prefixes[number] = line, prefix
        found = self._translate(settings, all_lines, all_prefixes)
        return [found[number] for number in numbers]

    def _translate(self, settings, lines, prefixes):
        arguments = {"with_attention": True} if settings.has_attention else {}
        if settings.has_prefixes:
            arguments["prefix"] = prefixes
        return list(
            self._translator.translations(
                lines,
                settings.decode_hparams,
                n_best=settings.n_best,
                **arguments,
            )
        )

    def kinds_of_page(self) -> list[Settings]:
        """Returns the settings of the requests that the page makes."""
        return [
            Settings(self._defaults, n_best, has_prefixes, has_attention)
            for has_prefixes in (False, True)[: 1 + self.has_prefixes]
            for has_attention in (False, True)[: 1 + self.has_attention]
            for n_best in sorted({1, self._defaults.beam_size})
        ]

    def warm_up_steps(self) -> list[Callable[[], Any]]:
        """Returns functions for the searches whose first use takes long.

        They are those for single lines, where they are compiled, and those of
        the page with beginnings and attention.
        """
        return [
            *self._translator.engine.warm_up_steps(),
            *(
                functools.partial(self.warm_up, kind)
                for kind in self.kinds_of_page()
                if not kind.is_plain
            ),
        ]

    def warm_up(self, settings: Settings) -> None:
        """Translates once, because the first time takes seconds.

        Args:
            settings: How to translate.
        """
        self.translate(settings, list(_WARM_UP), ["a"] * len(_WARM_UP))


def _kind(settings):
    """Returns what decides the graph of a search."""
    how = settings.decode_hparams
    return (
        settings.n_best,
        settings.has_prefixes,
        how.beam_size,
        how.min_length,
        how.no_repeat_ngram_size,
        how.sampling_method,
        how.sampling_keep_top_k,
    )


def reduced(
    query: queries.Query, translation: engines.Translation
) -> engines.Translation:
    """Returns a translation with the attention that its query asks for.

    The engine's weights are views of those of the whole batch, which would stay
    in memory with them.
    """
    if not query.attention:
        return translation
    wanted = translation.attention[: query.n_best]
    return translation._replace(
        attention=[_reduced(one, query.attention) for one in wanted]
    )


def _reduced(attention, kind):
    if attention is None:  # of a blank line
        return None
    weights = attention.weights  # [layers, heads, T, S]
    if kind == queries.AVERAGE:
        return attention._replace(weights=weights.mean((0, 1)))  # [T, S]
    return attention._replace(weights=weights.copy())


def num_weights(translation: engines.Translation) -> int:
    """Returns the number of attention weights of a line's translations."""
    return sum(one.weights.size for one in translation.attention if one)


def answer(query: queries.Query, model: str, translations: list[Any]) -> str:
    """Returns the JSON object that answers a query.

    Args:
        query: The query.
        model: str. The model's name.
        translations: An `engines.Translation` for each line, as `reduced`
            returns it.
    """
    return _json(
        {
            "model": model,
            "translations": [_line(query, one) for one in translations],
        }
    )


def _line(query, translation):
    hypotheses = []
    for i, (text, score) in enumerate(
        zip(translation.texts, translation.scores, strict=True)
    ):
        if i == query.n_best or not score > engines.NO_HYPOTHESIS:
            break
        hypothesis = {"text": text, "score": round(score, _DIGITS)}
        if query.attention:
            hypothesis["attention"] = _attention(translation.attention[i])
        hypotheses.append(hypothesis)
    return {"complete": translation.is_complete, "hypotheses": hypotheses}


def _attention(attention):
    """Returns pieces and rounded weights; None for a blank line."""
    if attention is None:
        return None
    weights = attention.weights.astype(np.float64)
    weights = np.where(np.isfinite(weights), weights, 0.0)
    return {
        "source": attention.source,
        "target": attention.target,
        "weights": weights.round(_DIGITS),
    }


def _json(values):
    """Returns JSON of values that may hold arrays.

    Python's encoder stops all threads until it has ended: millions of weights
    are encoded in parts.
    """
    if isinstance(values, dict):
        items = (f"{_json(key)}: {_json(x)}" for key, x in values.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(values, np.ndarray):
        if values.ndim < 3:
            return json.dumps(values.tolist(), allow_nan=False)
        values = list(values)
    if isinstance(values, list):
        return f"[{', '.join(map(_json, values))}]"
    return json.dumps(values, ensure_ascii=False, allow_nan=False)
