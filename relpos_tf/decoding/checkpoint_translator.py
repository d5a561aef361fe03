"""One text, translated with one checkpoint of a run after the other."""

import logging
import os
import pathlib
import time

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.utils import terminal
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")


class CheckpointTranslator:
    """Writes a file for each checkpoint.

    The model is built once, for the first checkpoint that fits its hparams,
    and its graph, too: then only the weights change.

    Args:
        run: path. The run's directory.
        source: path. The text.
        settings: `decode_hparam.DecodeHParams`, completed from the hparams.

    Attributes:
        num_made: Translations written.
        num_kept: Translations that were there already.
        num_failed: Checkpoints that could not be read.

    Raises:
        UserError: no run or tokenizer is there.
    """

    def __init__(
        self,
        run: pathlib.Path,
        source: pathlib.Path,
        settings: decode_hparam.DecodeHParams,
    ):
        self._source = source
        self._hparams = run_dir.RunDir(run).read_hparams()
        self._tokenizer = loading.load_tokenizer(run)
        self._model = self._translator = None
        self._settings = settings
        self.num_made = self.num_kept = self.num_failed = 0

    def check_settings(self) -> None:
        """Raises UserError if the settings do not fit the model."""
        engines.check_beam_size(self._settings, self._hparams.vocab_size)

    def translate(self, prefix: str, path: pathlib.Path) -> bool:
        """Translates with a checkpoint, unless that is done already.

        Args:
            prefix: str. The checkpoint.
            path: The file, which appears when it is complete. One that is
                newer than the checkpoint stays.

        Returns:
            Whether the translation is there now. It is not where the
            checkpoint has gone in the meantime, or cannot be read.
        """
        try:
            saved = os.stat(f"{prefix}.index").st_mtime_ns
        except FileNotFoundError:  # a trainer keeps only the last few
            return False
        if path.is_file() and path.stat().st_mtime_ns >= saved:
            self.num_kept += 1
            return True
        started = time.monotonic()
        try:
            self._restore(prefix)
        except errors.UserError as error:
            _log.warning("%s", error)
            self.num_failed += 1
            return False
        with text.writer(path, None) as write:
            for line in self._translator.translate_lines(
                text.read_nonempty(self._source),
                **self._settings.search_settings(),
                **self._settings.options(),
                progress=terminal.LineProgress(),
            ):
                write(line)
        self.num_made += 1
        _log.info("Wrote %s, %.1f s.", path, time.monotonic() - started)
        return True

    def _restore(self, prefix: str) -> None:
        """Restores a checkpoint's weights into the model.

        Raises:
            UserError: it is damaged or not of this model.
        """
        if self._model is None:
            loading.check_fit(prefix, self._hparams)
            self._model = transformer.Transformer(self._hparams)
            self._translator = translator_lib.Translator(
                self._model,
                self._tokenizer,
                batch_size=self._settings.batch_size,
                max_input_size=self._settings.max_input_size,
            )
        checkpoints.restore_model(
            prefix, {v.path: v.value for v in self._model.variables}
        )
