"""A model that the server translates with, and the form of its answers."""

import dataclasses
import functools
import json
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import sentences
from relpos_tf.serving import queries

# Graphs of searches that a run keeps in memory, besides those of the page.
MOST_KINDS = 64
_DIGITS = 4
_WARM_UP = "Hello.", "This line is translated before the first request."


class ServedModel:
    """A translator with a name.

    Args:
        name: str.
        translator: `translator.Translator`, or anything with its
            `translations` and `engine`.
        description: dict. What `/models` says of it besides.

    Attributes:
        beam_size: int. Most translations of a line, unless a request changes
            it.
        languages: The codes of source and target; "" where unknown.
    """

    def __init__(
        self,
        name: str,
        translator: Any,
        description: dict[str, Any] | None = None,
    ):
        self.name = name
        self.longest_source = translator.engine.longest_source
        self._translator = translator
        self._description = description or {}
        self._defaults = translator.engine.complete(
            decode_hparam.DecodeHParams()
        )
        self.beam_size = self._defaults.beam_size
        self.languages = tuple(
            self._description.get(f"{side}_language", "")
            for side in ("source", "target")
        )
        # Exports have neither attention nor graphs to keep.
        self._is_run = translator.engine.is_steerable
        self._kinds = {settings.graph for settings in self.page_settings()}
        self._most_kinds = len(self._kinds) + MOST_KINDS

    def describe(self) -> dict[str, Any]:
        """Returns the model's entry in `/models`."""
        return {
            "name": self.name,
            **self._description,
            "attention": self._is_run,
            **self._defaults.search_settings(),
        }

    def sizes(self, lines: Sequence[str]) -> list[int]:
        """Returns the number of ids of each line."""
        return [item.size for item in self._translator.engine.items(lines)]

    def split(self, query: queries.Query, most: int) -> list[Any]:
        """Returns the `sentences.Sentences` of each line of a query.

        Raises:
            UserError: there are more sentences than allowed, or a line is no
                HTML where it must be.
        """
        split = sentences.split_html if query.is_html else sentences.split
        found: list[Any] = []
        for line in query.lines:
            found.append(split(line, self.languages[0], most))
            sentences.check_number(sum(len(x.texts) for x in found), most)
        return found

    def settings(self, query: queries.Query) -> decode_hparam.Completed:
        """Returns the settings of a query; equal ones can share a batch.

        Raises:
            UserError: the model cannot translate so.
        """
        how = dataclasses.replace(
            self._translator.engine.complete(query.decode_hparams),
            n_best=query.n_best,
            return_alignments=query.attention,
        )
        self._translator.translations([], how)  # checks everything at the call
        return how.merged()

    def translate(
        self,
        settings: decode_hparam.Completed,
        lines: Sequence[str],
        numbers: Sequence[int] = (),
    ) -> list[engines.Translation]:
        """Translates lines of the same settings.

        Args:
            settings: What `settings` returned.
            lines: The lines.
            numbers: The number of each line in its request, counted from 0,
                which decides what is drawn for it. Read if the settings are
                random.

        Raises:
            UserError: a line cannot be translated, or there would be too many
                kinds of searches.
        """
        self._add_kind(settings.graph)
        if not settings.is_random:
            return list(self._translator.translations(lines, settings))
        # Blank lines, for which nothing is drawn, stand for the others.
        places = [""] * (max(numbers) + 1)
        for number, line in zip(numbers, lines, strict=True):
            places[number] = line
        found = list(self._translator.translations(places, settings))
        return [found[number] for number in numbers]

    def _add_kind(self, kind):
        """Notes a kind of search; refuses one too many."""
        if not self._is_run or kind in self._kinds:
            return
        if len(self._kinds) >= self._most_kinds:
            raise errors.UserError(
                f"This server searches in at most {MOST_KINDS} different ways, "
                f"and has done so: {', '.join(decode_hparam.OF_GRAPH)} must be "
                "those of an earlier request."
            )
        self._kinds.add(kind)

    def page_settings(self) -> list[decode_hparam.Completed]:
        """Returns the settings of the requests that the page makes."""
        how = self._defaults
        return [
            dataclasses.replace(how, n_best=n, return_alignments=has_attention)
            for has_attention in ([False, True] if self._is_run else [False])
            for n in sorted({1, how.beam_size})
        ]

    def warm_up_steps(self) -> list[Callable[[], Any]]:
        """Returns functions for everything whose first use takes long.

        They translate as the page does, and compile the searches for single
        lines.
        """
        steps = [
            functools.partial(self.translate, settings, _WARM_UP)
            for settings in self.page_settings()
        ]
        return steps + self._translator.engine.warm_up_steps()


def line_of(
    query: queries.Query, translation: engines.Translation
) -> dict[str, Any]:
    """Returns what an answer says of a line, with weights as arrays."""
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
    line = {"complete": translation.is_complete, "hypotheses": hypotheses}
    return line | ({"long": True} if translation.is_long else {})


def group(
    texts: Sequence[sentences.Sentences],
    lines: Sequence[dict[str, Any]],
    language: str,
) -> list[dict[str, Any]]:
    """Returns what an answer says of lines that were split into sentences.

    Args:
        texts: Each line.
        lines: What `line_of` returned for each sentence of all of them.
        language: str. That of the translations.
    """
    rest = iter(lines)
    found = []
    for text in texts:
        before, *after = text.gaps_in(language)
        sources = map("".join, zip(text.texts, text.gaps[1:], strict=True))
        found.append(
            {
                "before": before,
                "sentences": [
                    {"source": source, **next(rest), "after": blank}
                    for source, blank in zip(sources, after, strict=True)
                ],
            }
        )
    return found


def _attention(attention):
    """Returns pieces and rounded weights; None for a blank line.

    The engine's weights are views of those of the whole batch, which would stay
    in memory with them, so these are copies.
    """
    if attention is None:
        return None
    weights = attention.weights.astype(np.float64)  # [layers, heads, T, S]
    weights = np.where(np.isfinite(weights), weights, 0.0)
    return {
        "source": attention.source,
        "target": attention.target,
        "weights": weights.round(_DIGITS),
    }


def num_weights(line: dict[str, Any]) -> int:
    """Returns the number of attention weights of a line's translations."""
    found = (one.get("attention") for one in line["hypotheses"])
    return sum(one["weights"].size for one in found if one)


def answer(model: str, lines: list[dict[str, Any]]) -> str:
    """Returns the JSON object that answers a query.

    Args:
        model: str. The model's name.
        lines: What `line_of` returned for each line.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, default=np.ndarray.tolist
    )
    # In parts: one call of the encoder would stop all threads for seconds.
    parts = encoder.iterencode({"model": model, "translations": lines})
    return "".join(parts)
