"""An engine of a LiteRT export, formerly TensorFlow Lite.

`ai_edge_litert` is imported in this module only, when it is needed.

The search is part of the model: it is `search.search`, so translations
are those of the run, except for rounding. LiteRT translates one line at a time
and on one thread, which is the quickest way for one line. An interpreter has
one state, so threads that share an engine wait for one another.

Shapes: N beams, S source length, T target length.
"""

import pathlib
import threading
from typing import Any

import numpy as np

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.utils import extras

FORMAT = "litert"
MODEL = "model.tflite"
# The signatures of the model: the best translation, and those of all beams.
BEST = "translate"
ALL = "translate_n_best"


def package() -> Any:
    """Imports and returns `ai_edge_litert.interpreter`.

    Raises:
        UserError: it is not installed.
    """
    with extras.imports("litert", "an export for LiteRT"):
        from ai_edge_litert import interpreter

    return interpreter


class Program:
    """A model of LiteRT, from ids to ids.

    Args:
        content: bytes. What `litert_export.convert` returned.

    Raises:
        UserError: LiteRT is not installed, or `content` is something else.
    """

    def __init__(self, content: bytes):
        interpreter = package()
        try:
            self._interpreter = interpreter.Interpreter(
                model_content=content, num_threads=1
            )
            self._runners = {
                name: self._interpreter.get_signature_runner(name)
                for name in self._interpreter.get_signature_list()
            }
        except engines.DAMAGE as error:
            raise errors.UserError(
                "Expected a model for LiteRT. Received: another file, or a "
                f"damaged one ({' '.join(str(error).split())})."
            ) from error
        self._lock = threading.Lock()

    def translate(
        self, ids: list[int], limit: int, n_best: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Translates one sentence.

        Args:
            ids: Of the source, EOS last.
            limit: int. Most ids of a translation.
            n_best: int. How many translations are wanted. With 1, the search
                ends sooner.

        Returns:
            Ids, int32 `[N or 1, T]`, best first, EOS last and then zeros; and
            scores, float32 `[N or 1]`.

        Raises:
            RuntimeError: LiteRT cannot run here, for want of memory perhaps.
        """
        name = ALL if n_best > 1 else BEST
        with self._lock:
            found = self._runners[name](
                inputs=np.array([ids], np.int32),  # [1, S]
                limits=np.array([limit], np.int32),
            )
        return found["ids"][0], found["scores"][0]


class LiteRTEngine(engines.ExportEngine):
    """An `engines.Engine` of a LiteRT model and its tokenizer.

    Args:
        folder: What `litert_export` wrote.

    Attributes:
        program: `Program`.

    Raises:
        UserError: LiteRT is not installed, or the folder is damaged.
    """

    fixed = "beam_size", "alpha", "no_repeat_ngram_size"  # part of the model

    def __init__(self, folder: str | pathlib.Path):
        super().__init__(folder)
        path = pathlib.Path(folder, self.info["tokenizer"])
        self.tokenizer = tokenizer_lib.load(path)
        self.program = Program(pathlib.Path(folder, MODEL).read_bytes())

    def translate(
        self, items: list[engines.Item], decode_hparams: decode_hparam.Completed
    ) -> list[engines.Translation]:
        """Translates lines, one after another.

        Raises:
            UserError: LiteRT cannot translate a line.
        """
        found = []
        for item in items:
            limit = item.limit(decode_hparams.extra_length)
            try:
                rows = self.program.translate(
                    item.content, limit, decode_hparams.n_best
                )
            except (MemoryError, RuntimeError, ValueError) as error:
                raise errors.UserError(
                    f"LiteRT cannot translate a line of {item.size} ids here. "
                    f"Received: {' '.join(str(error).split())}. Split the "
                    "line, cut it with max_input_size, or translate with the "
                    "run."
                ) from error
            ids, scores = (part.tolist() for part in rows)
            pairs = zip(ids, scores, strict=True)
            found.append(self.translation(item, pairs, decode_hparams))
        return found
