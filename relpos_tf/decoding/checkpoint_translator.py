"""Translates one text with several checkpoints of a run."""

import logging
import os
import pathlib
import time

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
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

    The model and its graph are built once, for the first checkpoint that fits
    the hparams; after that, only the weights change.

    Args:
        run: path. The run's directory.
        source: path. The text.
        decode_hparams: `decode_hparam.DecodeHParams`.

    Attributes:
        num_made: int. Translations written.
        num_kept: int. Translations that existed already.
        num_failed: int. Checkpoints that could not be read.

    Raises:
        UserError: there is no run or no tokenizer.
    """

    def __init__(
        self,
        run: pathlib.Path,
        source: pathlib.Path,
        decode_hparams: decode_hparam.DecodeHParams,
    ):
        self._source = source
        self._hparams = run_dir.RunDir(run).read_hparams()
        self._tokenizer = loading.load_tokenizer(run)
        self._model = self._translator = None
        self._decode_hparams = decode_hparams
        self.num_made = self.num_kept = self.num_failed = 0

    def translate(self, prefix: str, path: pathlib.Path) -> bool:
        """Translates with a checkpoint, unless that is done already.

        Args:
            prefix: str. The checkpoint.
            path: The file, which appears when it is complete. A file newer
                than the checkpoint is kept.

        Returns:
            Whether the translation exists now. It does not if the checkpoint
            has been removed or cannot be read.
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
            for translation in self._translator.translations(
                text.read_nonempty(self._source),
                self._decode_hparams,
                progress=terminal.LineProgress(),
            ):
                write(translation.texts[0])
        self.num_made += 1
        _log.info("Wrote %s, %.1f s.", path, time.monotonic() - started)
        return True

    def _restore(self, prefix: str) -> None:
        """Restores a checkpoint's weights into the model.

        Raises:
            UserError: the checkpoint is damaged or of another model.
        """
        if self._model is None:
            loading.check_fit(prefix, self._hparams)
            self._model = transformer.Transformer(self._hparams)
            self._translator = translator_lib.Translator(
                self._model,
                self._tokenizer,
                batch_size=self._decode_hparams.batch_size,
                max_input_size=self._decode_hparams.max_input_size,
            )
        checkpoints.restore_model(
            prefix, {v.path: v.value for v in self._model.variables}
        )
