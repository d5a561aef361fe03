"""What translates a batch of lines with CTranslate2.

The folder is one that `ctranslate2_export` wrote. Here, and nowhere else,
`ctranslate2` is imported, and only once it is needed.

CTranslate2 searches; what it found is ranked again by the length penalty of
`beam_search`. With N beams, both keep the same N hypotheses at each step, so
the translations are the same, but for rounding and these differences:

* CTranslate2 ends once `PATIENCE` times N hypotheses are finished,
  `beam_search` once no other can win.
* A hypothesis is finished in `beam_search` if EOS is among the best 2 N
  continuations, in CTranslate2 if it is among the best N. It so misses some
  that end early: of 500 sentences of Multi30k, with 4 beams, it translated
  2 in another, longer way with one model, and 3 with another.
* The places behind the best translation are of what was found by the end.

Several threads may use one engine at once.

Shapes: N beams.
"""

import collections
import json
import pathlib
import re
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import beam_search
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import saved_model_engine
from relpos_tf.utils import checked_json
from relpos_tf.utils import paths
from relpos_tf.utils import text

FORMAT = "ctranslate2"
VOCABULARY = "shared_vocabulary.json"
# Finished hypotheses to wait for, as a multiple of the beams. For those 500
# sentences and two models, more changed nothing, and 1 made three more differ.
PATIENCE = 2
# What reading a damaged export may raise.
_FAULTS = KeyError, OSError, RuntimeError, TypeError, ValueError


class Hypothesis(NamedTuple):
    """One translation that CTranslate2 found."""

    score: float  # its log-probability divided by the length penalty
    ids: list[int]  # EOS included
    is_complete: bool  # whether EOS ends it


def package() -> Any:
    """Imports and returns `ctranslate2`.

    Raises:
        UserError: it is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise errors.UserError(
            "CTranslate2 is needed, and not installed: "
            "pip install 'relpos_tf[ctranslate2]'. "
            f"Received: {' '.join(str(error).split())}"
        ) from error
    return ctranslate2


def load_export(
    folder: str | pathlib.Path,
) -> "CTranslate2Engine | saved_model_engine.ExportEngine":
    """Returns the engine for an export, going by what it says of itself.

    Raises:
        UserError: it is damaged, or CTranslate2 is needed and not installed.
    """
    if read_info(folder).get("format") == FORMAT:
        return CTranslate2Engine(folder)
    return saved_model_engine.ExportEngine(folder)


def read_info(folder: str | pathlib.Path) -> dict[str, Any]:
    """Returns what an export says of itself; nothing if it cannot be read."""
    try:
        return saved_model_engine.read_info(folder)
    except errors.UserError:
        return {}


class CTranslate2Engine:
    """A CTranslate2 model and its tokenizer, from one folder.

    Args:
        folder: str or path. What `ctranslate2_export` wrote.
        device: str. "cpu", "cuda", or "auto" for a GPU where there is one.
        patience: int. See the module's docstring.

    Attributes:
        info: dict. What the export says of itself.
        tokenizer: `tokenizer.Tokenizer`.
        translator: `ctranslate2.Translator`.

    Raises:
        UserError: CTranslate2 is not installed, or the folder is not such an
            export or is damaged.
    """

    def __init__(
        self,
        folder: str | pathlib.Path,
        device: str = "auto",
        patience: int = PATIENCE,
    ):
        self.info = read_info(folder)
        if self.info.get("format") != FORMAT:
            raise errors.UserError(
                "Expected a folder made by relpos_tf.bin.export "
                f"--format={FORMAT}. Received: {folder}."
            )
        saved_model_engine.check_files(folder, self.info)
        self._patience = patience
        kind = package().Translator
        try:
            self._max_positions = self.info["max_positions"]
            path = saved_model_engine.file_of(folder, self.info["tokenizer"])
            self.tokenizer = tokenizer_lib.load(path)
            self._fixed = decode_hparam.DecodeHParams.from_json(
                self.info["decode_hparams"]
            )
            tokens = json.loads(
                pathlib.Path(folder, VOCABULARY).read_text(encoding="utf-8")
            )
            checked_json.check({VOCABULARY: tokens}, {VOCABULARY: list[str]})
            self.translator = kind(paths.plain(folder), device=device)
        except _FAULTS as error:
            reason = " ".join(str(error).split())
            raise errors.UserError(
                f"Expected a complete export for {FORMAT}. "
                f"Received: {folder} ({reason})."
            ) from error
        if self.info.get("tokenizer_sha256") != self.tokenizer.fingerprint:
            raise errors.UserError(
                "Expected the tokenizer that the model was trained with. "
                f"Received: {path}, another one. Export again."
            )
        self._tokens = tokens
        self._ids = {token: i for i, token in enumerate(tokens)}

    def complete(
        self, wanted: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Fills what is not set with the settings of the export.

        Raises:
            UserError: more beams than pieces, or more is wanted than a plain
                beam search.
        """
        wanted.check_plain("CTranslate2")
        settings = wanted.fill(self._fixed)
        engines.check_beam_size(settings, len(self._tokens))
        return settings

    def items(self, lines: list[str]) -> list[engines.Item]:
        """Turns lines into ids, without the blanks around them."""
        encoded = self.tokenizer.encode_batch([line.strip() for line in lines])
        return [engines.Item(ids, len(ids)) for ids in encoded]

    def truncate(self, item: engines.Item, size: int) -> engines.Item:
        """Returns the first `size` ids of a line, EOS being the last."""
        ids = [*item.content[: size - 1], text.EOS_ID]
        return engines.Item(ids, len(ids))

    def translate(
        self,
        items: list[engines.Item],
        settings: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[engines.Translation]:
        """Translates lines in one batch.

        Raises:
            UserError: a line is longer than the model has positions for.
            ResourceExhaustedError: the batch does not fit into memory.
        """
        if not items:
            return []
        limits = [item.size + settings.extra_length for item in items]
        self._check_length(max(limits), settings)
        # CTranslate2 has one limit for the whole batch. What a line's own
        # limit would have cut off is left out, and a line of which too little
        # is left then is translated once more, among those with its limit.
        longest = max(limits)
        sources = [item.content for item in items]
        found = self.search(sources, longest, settings)
        again = collections.defaultdict(list)
        for i, limit in enumerate(limits):
            found[i] = [one for one in found[i] if len(one.ids) <= limit]
            if limit < longest and len(found[i]) < n_best:
                again[limit].append(i)
        for limit, places in again.items():
            some = self.search([sources[i] for i in places], limit, settings)
            for i, hypotheses in zip(places, some, strict=True):
                found[i] = hypotheses
        return [self._translation(one, n_best) for one in found]

    def search(
        self,
        sources: list[list[int]],
        limit: int,
        settings: decode_hparam.DecodeHParams,
    ) -> list[list[Hypothesis]]:
        """Searches for the translations of some sentences.

        Args:
            sources: Ids of each sentence, EOS last.
            limit: int. Most ids of a translation, EOS included.
            settings: `DecodeHParams` without None.

        Returns:
            For each sentence the hypotheses found, complete ones first, and
            best first among those and the others.
        """
        beams = settings.beam_size
        count = 1 if beams == 1 else self._patience * beams
        # CTranslate2 adds EOS, and searches nothing where there is no more.
        tokens = [[self._tokens[i] for i in ids[:-1]] for ids in sources]
        try:
            results = self.translator.translate_batch(
                tokens,
                beam_size=beams,
                patience=count / beams,
                num_hypotheses=count,
                # The sum of the tokens' log-probabilities, EOS included.
                length_penalty=0,
                return_scores=True,
                return_end_token=True,
                max_input_length=0,  # no limit
                max_decoding_length=limit,
                min_decoding_length=0,  # 1 would forbid an empty translation
            )
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "memory" in str(error):
                raise tf.errors.ResourceExhaustedError(
                    None, None, str(error)
                ) from error
            raise errors.UserError(
                f"CTranslate2 cannot translate here. Received: {error}. With "
                "CUDA_VISIBLE_DEVICES= it uses no GPU."
            ) from error
        return [self._ranked(result, settings.alpha) for result in results]

    def _ranked(self, result, alpha: float) -> list[Hypothesis]:
        hypotheses = []
        for tokens, log_probability in zip(
            result.hypotheses, result.scores, strict=True
        ):
            ids = [self._ids[token] for token in tokens]
            score = log_probability / ((5 + len(ids)) / 6) ** alpha
            # Nothing at all is the translation of nothing.
            is_complete = not ids or ids[-1] == text.EOS_ID
            hypotheses.append(Hypothesis(score, ids, is_complete))
        hypotheses.sort(key=lambda one: (not one.is_complete, -one.score))
        return hypotheses

    def _translation(self, hypotheses, n_best: int) -> engines.Translation:
        best = hypotheses[:n_best]
        texts = [
            re.sub(engines.LINE_END, " ", self.tokenizer.decode(one.ids))
            for one in best
        ]
        missing = n_best - len(best)
        return engines.Translation(
            texts + [""] * missing,
            [one.score for one in best] + [beam_search.NO_HYPOTHESIS] * missing,
            best[0].is_complete,
            [one.ids for one in best] + [[]] * missing,
        )

    def _check_length(self, limit: int, settings) -> None:
        """Refuses what would need more positions than the export has."""
        most, extra = self._max_positions, settings.extra_length
        if most is not None and limit > most:
            raise errors.UserError(
                f"This export knows {most} positions, so a line may have "
                f"{most - extra} ids. Received: {limit - extra}. Cut such "
                "lines with max_input_size, or translate with the run."
            )
