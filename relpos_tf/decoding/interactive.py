"""The prompt of `relpos-decoder --decode_interactive`.

Translations go to standard output and messages to standard error, so that
`relpos-decoder --decode_interactive > file` writes the translations alone.
"""

import dataclasses
import logging
import sys
import time
from collections.abc import Callable

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import terminal
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

# Translated before the first prompt.
_WARM_UP = "Hello."
# The commands, in the order of `:help`. Those between n and quit are fields of
# `DecodeHParams`.
_HELP = {
    "help": "shows this",
    "n": "how many translations of a line to show; above 1, with scores",
    "beam_size": "hypotheses kept in the search",
    "alpha": "exponent of the length penalty",
    "extra_length": "ids a translation may have beyond its source",
    "min_length": "ids a translation has at least",
    "no_repeat_ngram_size": "so many ids in a row come only once; 0: any",
    "sampling_method": "argmax searches, random draws",
    "sampling_temp": "above 1, draws improbable ids more often",
    "sampling_keep_top_k": "draws from the k most probable ids; 0: all",
    "sampling_top_p": "draws from the fewest ids that add up to p",
    "random_seed": "of drawing",
    "quit": "leaves, as Ctrl-D does",
}
COMMANDS = tuple(_HELP)
_FIELDS = COMMANDS[2:-1]
_OTHER_NAMES = {
    "": "help",
    "?": "help",
    "exit": "quit",
    "n_best": "n",
    "beam": "beam_size",
}


def run(
    translator: translator_lib.Translator,
    decode_hparams: decode_hparam.DecodeHParams,
) -> None:
    """Translates typed lines until the user leaves.

    Args:
        translator: The translator.
        decode_hparams: The first settings, completed by the translator's
            engine. With `return_beams`, all hypotheses are shown.
    """
    with text.writer("", sys.stdout.buffer) as write:
        session = Session(translator, decode_hparams, write)
        session.warm_up()
        with terminal.editing([f":{name}" for name in COMMANDS]):
            session.run(terminal.reader())


class Session:
    """The state of a prompt: the settings and the last line.

    Args:
        translator: `translator.Translator`.
        decode_hparams: `decode_hparam.DecodeHParams`. See `run`.
        write: Function that writes a line of output.
    """

    def __init__(self, translator, decode_hparams, write):
        self._translator = translator
        self._decode_hparams = decode_hparams
        self._write = write
        is_all = decode_hparams.return_beams
        self._n_best = decode_hparams.beam_size if is_all else 1
        self._last = ""  # the last line of text
        self._used = set()  # settings of earlier translations
        self._is_over = False

    def warm_up(self) -> None:
        """Translates a line, because the first call builds the graph."""
        _log.info("Warming up, so that the first answer is quick.")
        started = time.monotonic()
        engine = self._translator.engine
        try:
            # Not by the translator, which would warn about this line.
            items = engine.items([_WARM_UP])
            engine.translate(items, self._decode_hparams, self._n_best)
        except KeyboardInterrupt:
            _say_interrupted()
        else:
            self._used.add(self._key())
            _log.info("Ready after %.1f s.", time.monotonic() - started)
        _log.info("Type a line to translate; :help lists commands.")

    def run(self, read: Callable[[], str]) -> None:
        """Answers until the user leaves.

        Args:
            read: Function that returns a typed line, without its line end, or
                raises EOFError.
        """
        presses = 0  # of Ctrl-C at the prompt, in a row
        while not self._is_over and presses < 2:
            try:
                typed = read()
            except EOFError:
                sys.stderr.write("\n")
                return
            except KeyboardInterrupt:
                sys.stderr.write("\n")
                presses += 1
                if presses == 1:
                    _log.info("Ctrl-C again leaves, as do Ctrl-D and :quit.")
                continue
            presses = 0
            try:
                self._answer(typed)
            except errors.UserError as error:
                _log.error("%s", error)
            except KeyboardInterrupt:
                _say_interrupted()

    def _answer(self, typed: str) -> None:
        """Answers a line; a paste may be several lines."""
        for line in typed.split("\n"):
            if self._is_over:
                return
            if line.startswith(":") and not line.startswith("::"):
                self._execute(line[1:].strip())
            elif line.strip():
                self._last = line.removeprefix(":")
                self._translate()

    def _execute(self, command: str) -> None:
        """Executes a command.

        Raises:
            UserError: there is no such command, or its value is bad.
        """
        word, _, value = command.replace("=", " ", 1).partition(" ")
        name, value = _full_name(word), value.strip()
        if name == "quit":
            self._is_over = True
        elif name == "help":
            self._show_help()
        elif value:
            self._change(name, value)
            self._show_settings()
            if self._last:
                self._translate()
        else:
            self._show_settings()

    def _change(self, name: str, value: str) -> None:
        """Changes a setting."""
        if name == "n":
            is_number = value.isdecimal() and len(value) < 10
            number = int(value) if is_number else value
            self._decode_hparams.check_n_best(number, "n")
            self._n_best = number
            return
        parsed = decode_hparam.DecodeHParams.parse(f"{name}={value}")
        self._decode_hparams = self._translator.engine.complete(
            dataclasses.replace(
                self._decode_hparams, **{name: getattr(parsed, name)}
            )
        )
        if not self._decode_hparams.is_random:
            beam_size = self._decode_hparams.beam_size
            self._n_best = min(self._n_best, beam_size)

    def _values(self) -> dict[str, object]:
        """Returns the value of each setting."""
        return {"n": self._n_best} | {
            name: getattr(self._decode_hparams, name) for name in _FIELDS
        }

    def _show_settings(self) -> None:
        """Shows the settings that differ from their defaults."""
        defaults = decode_hparam.DecodeHParams()
        shown = [
            f"{name}={value}"
            for name, value in self._values().items()
            if name == "n" or value != getattr(defaults, name)
        ]
        _log.info("%s", ", ".join(shown))

    def _show_help(self) -> None:
        """Lists the commands with their values."""
        values = self._values()
        width = max(map(len, COMMANDS)) + 1
        for name, meaning in _HELP.items():
            now = f"  (now {values[name]})" if name in values else ""
            _log.info("%s", f"  {':' + name:{width}}  {meaning}{now}")
        _log.info(
            "As in `:beam 8`; a name may be cut short. A change translates "
            "the last line again.\n"
            "Text that begins with a colon is typed with two.\n"
            "Ctrl-C drops a translation, as soon as TensorFlow returns; twice "
            "at the prompt, it leaves."
        )

    def _translate(self) -> None:
        """Translates the last line, and shows the time it took."""
        started = time.monotonic()
        (found,) = self._translator.translations(
            [self._last], self._decode_hparams, n_best=self._n_best
        )
        seconds = time.monotonic() - started
        if self._n_best == 1:
            self._write(found.texts[0])
        else:
            pairs = zip(found.texts, found.scores, strict=True)
            for rank, (line, score) in enumerate(pairs, start=1):
                if score > engines.NO_HYPOTHESIS:
                    self._write(f"{rank:2}  {score:8.4f}  {line}")
        is_first = self._key() not in self._used
        self._used.add(self._key())
        note = ", the first with these settings" if is_first else ""
        _log.info("[%.2f s%s]", seconds, note)

    def _key(self):
        """Returns the settings that may need a graph of their own."""
        return self._n_best > 1, self._decode_hparams


def _say_interrupted() -> None:
    sys.stderr.write("\n")
    _log.info("Interrupted.")


def _full_name(word: str) -> str:
    """Returns the command of this name or of the only one that begins so."""
    word = _OTHER_NAMES.get(word, word)
    if word in COMMANDS:
        return word
    matches = [name for name in COMMANDS if name.startswith(word)]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(f":{name}" for name in matches or COMMANDS)
    raise errors.UserError(
        f"Expected one of {listed}. Received: :{word}."
        f"{errors.did_you_mean(word, COMMANDS, ':')} A line of text that "
        "begins with a colon is typed with two."
    )
