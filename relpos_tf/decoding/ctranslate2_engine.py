"""An engine of a CTranslate2 export.

`ctranslate2` is imported in this module only, when it is needed.

CTranslate2 searches, and the hypotheses it finds are ranked here by the length
penalty of `beam_search`. With N beams, both keep the same N hypotheses at each
step, so the translations are equal, except for rounding and these differences:

* CTranslate2 ends once `PATIENCE` times N hypotheses are finished,
  `beam_search` once no other can win.
* A hypothesis is finished in `beam_search` if EOS is among the best 2 N
  continuations, in CTranslate2 if it is among the best N. CTranslate2 therefore
  misses some hypotheses that end early: of 500 sentences of Multi30k, with 4
  beams, it translated 2 differently, and longer, with one model, and 3 with
  another.
* Behind the best translation come those found until the search ended.
* It gives the probability of forbidden ids to the others, so scores are higher,
  and the best translation may differ. These are the ids that
  `no_repeat_ngram_size` forbids; and padding, for lines in whose best
  translation it would be.

Several threads may share an engine.

Shapes: N beams.
"""

import collections
import json
import pathlib
from typing import Any

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.utils import extras
from relpos_tf.utils import paths
from relpos_tf.utils import text

FORMAT = "ctranslate2"
VOCABULARY = "shared_vocabulary.json"
# Finished hypotheses to wait for, as a multiple of the beams. For the 500
# sentences and two models above, 3 changed nothing, and with 1 three more
# sentences differed.
PATIENCE = 2


def package() -> Any:
    """Imports and returns `ctranslate2`.

    Raises:
        UserError: it is not installed.
    """
    with extras.imports("ctranslate2", "an export for CTranslate2"):
        import ctranslate2

    return ctranslate2


class CTranslate2Engine(engines.ExportEngine):
    """An `engines.Engine` of a CTranslate2 model and its tokenizer.

    Args:
        folder: What `ctranslate2_export` wrote.

    Attributes:
        translator: `ctranslate2.Translator`.

    Raises:
        UserError: CTranslate2 is not installed, or the folder is damaged.
    """

    linear_ids = 128  # docs/benchmarks.md#one-long-line

    def __init__(self, folder: str | pathlib.Path):
        paths.check_name(folder)
        super().__init__(folder)
        path = pathlib.Path(folder, self.info["tokenizer"])
        self.tokenizer = tokenizer_lib.load(path)
        translator = package().Translator
        try:
            self._max_positions = self.info["max_positions"]
            self._tokens = json.loads(
                pathlib.Path(folder, VOCABULARY).read_text(encoding="utf-8")
            )
            self.translator = translator(self.name, device="auto")
        except engines.DAMAGE as error:
            raise errors.UserError(
                f"Expected a complete export for {FORMAT}. "
                f"Received: {folder} ({' '.join(str(error).split())})."
            ) from error
        self._ids = {token: i for i, token in enumerate(self._tokens)}

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.Completed:
        """Replaces None by the values of the export.

        Raises:
            UserError: there are more beams than pieces, or the wanted search
                is not one of CTranslate2.
        """
        decode_hparams = super().complete(decode_hparams)
        decode_hparams.check_beam_size(len(self._tokens))
        return decode_hparams

    def translate(
        self, items: list[engines.Item], decode_hparams: decode_hparam.Completed
    ) -> list[engines.Translation]:
        """Translates lines in one batch.

        Raises:
            UserError: a line is longer than the model has positions for.
            MemoryError: the batch does not fit into memory.
        """
        extra_length = decode_hparams.extra_length
        limits = [item.limit(extra_length) for item in items]
        longest = max(limits)
        most = self._max_positions
        if most is not None and longest > most:
            raise errors.UserError(
                f"This export knows {most} positions, so a line may have "
                f"{most - extra_length} ids. Received: "
                f"{longest - extra_length}. Cut such lines with "
                "max_input_size, or translate with the run."
            )
        sources = [item.content for item in items]
        results = self.search(sources, longest, decode_hparams)
        # CTranslate2 has one limit for the whole batch. Hypotheses beyond a
        # line's own limit are dropped; if too few are left, the line is
        # translated a second time, with the lines of the same limit.
        found = []
        repeated = collections.defaultdict(list)  # indices by limit
        for i, limit in enumerate(limits):
            within = [one for one in results[i] if len(one[0]) <= limit]
            found.append(self.translation(items[i], within, decode_hparams))
            has_fewer = found[i].scores[-1] <= engines.NO_HYPOTHESIS
            if limit < longest and has_fewer:
                repeated[limit].append(i)
        for limit, indices in repeated.items():
            repeated_results = self.search(
                [sources[i] for i in indices], limit, decode_hparams
            )
            for i, result in zip(indices, repeated_results, strict=True):
                found[i] = self.translation(items[i], result, decode_hparams)
        return found

    def search(
        self,
        sources: list[list[int]],
        limit: int,
        decode_hparams: decode_hparam.Completed,
        without_padding: bool = False,
    ) -> list[list[tuple[list[int], float]]]:
        """Searches for the translations of a batch of sentences.

        Args:
            sources: Ids of each sentence, EOS last.
            limit: int. Most ids of a translation, EOS included.
            decode_hparams: The settings.
            without_padding: bool. Whether padding is no candidate. Otherwise
                sentences in whose best hypothesis it is are searched again.

        Returns:
            For each sentence the ids and the score of each hypothesis without
            padding: those that end in EOS, best first, then the others, best
            first.
        """
        beams = decode_hparams.beam_size
        count = 1 if beams == 1 else PATIENCE * beams
        # CTranslate2 adds EOS, and returns no ids for an empty sentence.
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
                no_repeat_ngram_size=decode_hparams.no_repeat_ngram_size,
                disable_unk=without_padding,  # id 0 is the unknown token, too
            )
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "memory" in str(error):
                raise MemoryError(str(error)) from error
            raise errors.UserError(
                f"CTranslate2 cannot translate here. Received: {error}. With "
                "CUDA_VISIBLE_DEVICES= it uses no GPU."
            ) from error
        found = [self._ranked(one, decode_hparams.alpha) for one in results]
        for i, source in enumerate(sources):
            if text.PAD_ID in found[i][0][0] and not without_padding:
                found[i] = self.search([source], limit, decode_hparams, True)[0]
        return [
            [one for one in row if text.PAD_ID not in one[0]] for row in found
        ]

    def _ranked(self, result, alpha):
        """Returns the ids and the score of each hypothesis, the best first."""
        hypotheses = []
        for tokens, log_probability in zip(
            result.hypotheses, result.scores, strict=True
        ):
            # An empty sentence has an empty translation, without EOS.
            ids = [self._ids[token] for token in tokens] or [text.EOS_ID]
            penalty = decode_hparam.length_penalty(len(ids), alpha)
            hypotheses.append((ids, log_probability / penalty))
        return sorted(
            hypotheses, key=lambda one: (one[0][-1] != text.EOS_ID, -one[1])
        )
