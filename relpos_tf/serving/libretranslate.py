"""LibreTranslate's HTTP API: its requests and answers.

`POST /translate` with `q` answers for it, so that programs made for
LibreTranslate work with this server (https://docs.libretranslate.com). Texts
are split into sentences. Nothing is detected: the language of a text is the
one that the server translates from.
"""

import html
import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import batching
from relpos_tf.serving import queries
from relpos_tf.utils import languages as languages_lib

AUTO = "auto"
# The statuses that its clients know, in place of this server's.
STATUSES = {422: 400, 503: 429}


class Request(NamedTuple):
    """What `POST /translate` asks for."""

    texts: tuple[str, ...]
    is_list: bool
    source: str  # a code or "auto"
    target: str
    alternatives: int
    is_html: bool = False

    def query(self, model: str, most: int) -> queries.Query:
        """Returns the query of a model with at most so many translations."""
        return queries.Query(
            self.texts,
            decode_hparam.DecodeHParams(),
            model,
            n_best=min(1 + self.alternatives, most),
            split_sentences=True,
            is_html=self.is_html,
        )

    def answer(
        self, lines: list[dict[str, Any]], source: str
    ) -> dict[str, Any]:
        """Returns the JSON object.

        Args:
            lines: What `served.group` returned.
            source: str. The language of the model.
        """
        found = [_translations(line, self.is_html) for line in lines]
        columns = {"translatedText": [texts[0] for texts in found]}
        columns["complete"] = [
            all(one["complete"] for one in line["sentences"]) for line in lines
        ]
        if self.source == AUTO:
            columns["detectedLanguage"] = detect([source]) * len(found)
        if self.alternatives:
            columns["alternatives"] = [texts[1:] for texts in found]
        if self.is_list:
            return columns
        return {name: column[0] for name, column in columns.items()}


def is_request(values: Mapping[str, Any]) -> bool:
    """Returns whether a body is one of this API."""
    return "lines" not in values and not values.keys().isdisjoint(
        ("q", "target")
    )


def parse(values: Mapping[str, Any]) -> Request:
    """Checks the fields of `POST /translate`. Unknown ones are ignored.

    `api_key` is one of those: the server has no passwords.

    Raises:
        UserError: a field is missing or not what it must be, or belongs to a
            request of `lines`.
    """
    texts = texts_of(values)
    if others := (queries.FIELDS | queries.OPTIONS).intersection(values):
        raise errors.UserError(
            f'Expected "lines" beside {min(others)}. Received: "q".'
        )
    for name in ("source", "target"):
        if not isinstance(values.get(name), str):
            raise errors.UserError(
                f'Expected "{name}": the code of a language.'
            )
    kind = values.get("format") or "text"
    if kind not in ("text", "html"):
        raise errors.UserError(
            f'Expected "format": "text" or "html". Received: {str(kind)[:40]}.'
        )
    alternatives = str(values.get("alternatives") or 0).removesuffix(".0")
    if not re.fullmatch(r"\d{1,4}", alternatives):
        raise errors.UserError(
            'Expected "alternatives": a number below 10,000. Received: '
            f"{alternatives[:40]}."
        )
    return Request(
        texts,
        isinstance(values["q"], list),
        values["source"],
        values["target"],
        int(alternatives),
        kind == "html",
    )


def texts_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the texts in `q`, which is one or a list.

    Raises:
        UserError: it is missing or something else.
    """
    found = values.get("q")
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(text, str) for text in texts):
        raise errors.UserError('Expected "q": a text, or a list of texts.')
    return tuple(texts)


def find(
    workers: Iterable[batching.Worker], source: str, target: str
) -> batching.Worker:
    """Returns the first worker that translates a pair of languages.

    Another code of the same language, as en_US of en, will do if none is equal.

    Raises:
        UserError: none does.
    """
    workers = list(workers)
    for same in (str, languages_lib.base):
        for worker in workers:
            own = [same(code) for code in worker.model.languages]
            is_source = source == AUTO or own[0] == same(source)
            if is_source and own[1] == same(target):
                return worker
    pairs = [worker.model.languages for worker in workers]
    known = dict.fromkeys("-".join(pair) for pair in pairs if all(pair))
    raise errors.UserError(
        "Expected languages that this server translates: "
        f"{', '.join(known) or 'none, since no model knows its own'}. "
        f"Received: {source[:40]}-{target[:40]}."
    )


def languages(workers: Iterable[batching.Worker]) -> list[dict[str, Any]]:
    """Returns all languages, each with those that it is translated into."""
    targets: dict[str, list[str]] = {}
    for worker in workers:
        source, target = worker.model.languages
        if source and target:
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
    return [
        {
            "code": code,
            "name": languages_lib.english_name(code) or code,
            "targets": list(dict.fromkeys(found)),
        }
        for code, found in targets.items()
    ]


def detect(sources: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the languages of a text, with no confidence in any."""
    return [{"confidence": 0, "language": code} for code in sources]


def _translations(line, is_html):
    """Returns the best translation of a text, and then others, each once.

    Translation i consists of the i-th ones of all sentences, or the best of a
    sentence that has fewer.
    """
    found = []
    numbers = [len(one["hypotheses"]) for one in line["sentences"]]
    for i in range(max([1, *numbers])):
        text = line["before"]
        for one in line["sentences"]:
            texts = [hypothesis["text"] for hypothesis in one["hypotheses"]]
            chosen = "".join(texts[i : i + 1] or texts[:1])
            text += html.escape(chosen, False) if is_html else chosen
            text += one["after"]
        found.append(text)
    return list(dict.fromkeys(found))
