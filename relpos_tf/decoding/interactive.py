"""The prompt of `relpos-decoder --decode_interactive`.

Translations go to standard output and messages to standard error, so that
`relpos-decoder --decode_interactive > file` writes the translations alone.
"""

import contextlib
import logging
import sys
import time

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

_HELP = (
    "Type a line to translate; the first one takes longer. :name=value,... "
    "changes settings of --decode_hparams, as :beam_size=8 or "
    ":n_best=3, : shows them. Ctrl-C drops a line, Ctrl-D leaves."
)


def run(
    translator: translator_lib.Translator,
    decode_hparams: decode_hparam.Completed,
) -> None:
    """Translates typed lines until the user leaves.

    Args:
        translator: The translator.
        decode_hparams: The first settings, completed by the translator's
            engine. With `n_best`, scores are shown as well.
    """
    with contextlib.suppress(ImportError):  # not on every system
        import readline  # noqa: F401  # gives `input` its keys and a history
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    # `input` writes a prompt to standard output.
    prompt = "> " if sys.stdout.isatty() else ""
    _log.info("%s", _HELP)
    with text.writer("", sys.stdout.buffer) as write:
        while True:
            try:
                line = input(prompt)
                if line.startswith(":"):
                    decode_hparams = translator.engine.complete(
                        decode_hparams.override(line[1:].strip())
                    )
                    _log.info("%s", decode_hparams)
                elif line.strip():
                    _translate(translator, decode_hparams, line, write)
            except EOFError:
                return
            except KeyboardInterrupt:
                sys.stderr.write("\n")
            except errors.UserError as error:
                _log.error("%s", error)


def _translate(translator, decode_hparams, line, write):
    """Writes the translations of a line, and shows the time they took."""
    started = time.monotonic()
    (found,) = translator.translations([line], decode_hparams)
    for i, (one, score) in enumerate(
        zip(found.texts, found.scores, strict=True)
    ):
        if decode_hparams.return_alignments:
            one += f"  {found.alignment(i)}"
        if decode_hparams.n_best == 1 and not decode_hparams.write_beam_scores:
            write(one)
        elif score > engines.NO_HYPOTHESIS:
            write(f"{score:8.4f}  {one}")
    _log.info("[%.2f s]", time.monotonic() - started)
