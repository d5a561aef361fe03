"""A conversation at a terminal: a line is typed, its translation comes back.

Translations go to standard output, all else to standard error, so that
`decoder.py --decode_interactive > kept` keeps the translations alone.
"""

import dataclasses
import functools
import logging
import sys
import time
from collections.abc import Callable

from relpos_tf import errors
from relpos_tf.decoding import beam_search
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import terminal
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

# Translated before anything is typed.
_WARM_UP = "Hello."

_HELP = {
    "help": "shows this",
    "n": "how many translations of a line to show; above 1, with scores",
    "beam_size": "hypotheses kept in the search",
    "alpha": "exponent of the length penalty",
    "extra_length": "ids a translation may have beyond its source",
    "min_length": "ids a translation has at least",
    "no_repeat_ngram_size": "so many ids in a row come only once; 0: any",
    "sampling_method": "argmax searches, random draws",
    "sampling_temp": "above 1, draws the improbable more often",
    "sampling_keep_top_k": "draws from the k most probable ids; 0: all",
    "sampling_top_p": "draws from the fewest ids that add up to p",
    "random_seed": "of drawing",
    "quit": "leaves, as Ctrl-D does",
}
_OTHER_NAMES = {
    "": "help",
    "?": "help",
    "exit": "quit",
    "n_best": "n",
    "beam": "beam_size",
}


def converse(
    translator: translator_lib.Translator,
    settings: decode_hparam.DecodeHParams,
) -> bool:
    """Answers what is typed until the user leaves.

    Args:
        translator: The translator.
        settings: How to begin, completed by the translator's engine. With
            `return_beams`, all hypotheses are shown.

    Returns:
        Whether an abandoned translation is still going on. TensorFlow cannot
        be stopped, and must not be torn down while it works.
    """
    with text.writer("", sys.stdout.buffer) as write:
        session = Session(translator, settings, write)
        session.warm_up()
        words = [f":{name}" for name in session.commands()]
        with terminal.editing(words):
            session.run(terminal.reader())
    return session.is_busy()


class Session:
    """The conversation, whatever it is held through.

    Args:
        translator: `translator.Translator`.
        settings: `decode_hparam.DecodeHParams`. See `converse`.
        write: Function that writes a line of output.
    """

    def __init__(self, translator, settings, write):
        self._translator = translator
        self._settings = settings
        self._write = write
        self._number = settings.beam_size if settings.return_beams else 1
        self._last = ""  # the line translated last
        self._tried = set()  # settings that something was translated with
        self._work = None  # what Ctrl-C abandons
        self._abandoned = []
        self._is_over = False

    def commands(self) -> list[str]:
        """Returns the names of the commands."""
        return ["help", "n", *self._arguments(), "quit"]

    def is_busy(self) -> bool:
        """Says whether an abandoned translation is still going on."""
        return any(work.is_alive() for work in self._abandoned)

    @terminal.only_what_is_heard()
    def warm_up(self) -> None:
        """Translates something, because the first call builds the graph."""
        _log.info("Warming up, so that the first answer is quick.")
        try:
            _, seconds = self._search(_WARM_UP, name=terminal.UNHEARD)
        except KeyboardInterrupt:
            self._abandon()
        else:
            _log.info("Ready after %.1f s.", seconds)
        _log.info("Type a line to translate; :help lists commands.")

    @terminal.only_what_is_heard()
    def run(self, read: Callable[[], str]) -> None:
        """Answers until the user leaves.

        Args:
            read: Function that returns what was typed, without its line end,
                or raises EOFError.
        """
        presses = 0  # of Ctrl-C at the prompt, in a row
        while not self._is_over:
            try:
                typed = read()
                presses = 0
                self._answer(typed)
            except errors.UserError as error:
                _log.error("%s", error)
            except EOFError:
                sys.stderr.write("\n")
                return
            except KeyboardInterrupt:
                if self._work and self._work.is_alive():
                    self._abandon()
                    continue
                sys.stderr.write("\n")
                presses += 1
                if presses == 2:
                    return
                _log.info("Ctrl-C again leaves, as do Ctrl-D and :quit.")

    def _answer(self, typed: str) -> None:
        """Answers what was typed, or pasted: that may be several lines."""
        for line in typed.split("\n"):
            if self._is_over:
                return
            if line.startswith(":") and not line.startswith("::"):
                self._obey(line[1:].strip())
            elif line.strip():
                self._last = line.removeprefix(":")
                self._translate()

    def _obey(self, command: str) -> None:
        """Does what a command says.

        Raises:
            UserError: there is no such command, or it has a bad value.
        """
        word, _, value = command.replace("=", " ", 1).partition(" ")
        name, value = self._full_name(word), value.strip()
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

    def _full_name(self, word: str) -> str:
        """Returns the command that a word, or its beginning, stands for."""
        names = self.commands()
        word = _OTHER_NAMES.get(word, word)
        found = [name for name in names if name.startswith(word)]
        if word in names or len(found) == 1:
            return word if word in names else found[0]
        listed = ", ".join(f":{name}" for name in found or names)
        raise errors.UserError(
            f"Expected one of {listed}. Received: :{word}."
            f"{errors.did_you_mean(word, names, ':')} A line of text that "
            "begins with a colon is typed with two."
        )

    def _change(self, name: str, value: str) -> None:
        """Changes a setting."""
        if name == "n":
            self._number = self._checked_number(value)
            return
        parsed = decode_hparam.DecodeHParams.parse(f"{name}={value}")
        wanted = dataclasses.replace(
            self._settings, **{name: getattr(parsed, name)}
        )
        self._settings = self._translator.engine.complete(wanted)
        if not self._settings.is_random:
            self._number = min(self._number, self._settings.beam_size)

    def _checked_number(self, value: str) -> int:
        """Returns the number that follows `:n`."""
        is_number = value.isdecimal() and len(value) < 10
        number = int(value) if is_number else value
        self._settings.check_number("n", number)
        return number

    def _arguments(self) -> dict[str, object]:
        """Returns the settings that a translation is found with."""
        return self._settings.search_settings() | self._settings.options()

    def _show_settings(self) -> None:
        """Says how lines are translated, without what is as it always is."""
        usual = decode_hparam.DecodeHParams()
        values = {"n": self._number} | {
            name: value
            for name, value in self._arguments().items()
            if value != getattr(usual, name)
        }
        _log.info("%s", ", ".join(f"{n}={v}" for n, v in values.items()))

    def _show_help(self) -> None:
        """Lists the commands with what is set."""
        values = {"n": self._number, **self._arguments()}
        width = max(map(len, self.commands())) + 1
        for name in self.commands():
            parts = [f"  {':' + name:{width}}", _HELP.get(name, "")]
            if name in values:
                parts.append(f"(now {values[name]})")
            _log.info("%s", "  ".join(filter(None, parts)))
        _log.info(
            "As in `:beam 8`; a name may be cut short. A change translates "
            "the last line again.\n"
            "Text that begins with a colon is typed with two.\n"
            "Ctrl-C abandons a translation; twice at the prompt, it leaves."
        )

    def _translate(self) -> None:
        """Translates the last line, and says how long it took."""
        is_first = self._key() not in self._tried
        found, seconds = self._search(self._last)
        if self._number == 1:
            self._write(found[0])
        else:
            pairs = zip(*found, strict=True)
            for rank, (text, score) in enumerate(pairs, start=1):
                if score > beam_search.NO_HYPOTHESIS:
                    self._write(f"{rank:2}  {score:8.4f}  {text}")
        note = ", the first with these settings" if is_first else ""
        _log.info("[%.2f s%s]", seconds, note)

    def _search(self, line: str, name: str | None = None):
        """Returns what `Translator.translate` makes of a line, and seconds."""
        started = time.monotonic()
        self._work = terminal.Work(
            functools.partial(
                self._translator.translate,
                [line],
                **self._arguments(),
                n_best=self._number,
                return_scores=True,
            ),
            name,
        )
        (found,) = self._work.result()
        self._work = None
        self._tried.add(self._key())
        return found, time.monotonic() - started

    def _key(self):
        """Returns what a graph may be built anew for."""
        return self._number > 1, str(self._settings)

    def _abandon(self) -> None:
        """Waits no longer for the translation under way."""
        self._work.name = terminal.UNHEARD
        self._abandoned.append(self._work)
        self._work = None
        sys.stderr.write("\n")
        _log.info("Abandoned.")
