"""The error that a user can mend."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what the user gave, not in the program.

    The message is one line that says what was expected, what was received
    and what to do. Commands print it without a traceback and exit with 1.
    """


def did_you_mean(received: str, known: Iterable[str], sign: str = "") -> str:
    """Returns a sentence with the nearest known names, or an empty str.

    They differ by a slip, in a word or between words; or they have words like
    all of the received name's.

    Args:
        received: str. The unknown name.
        known: The known names; of several with the words, the first are named.
        sign: str. A prefix of the name in the sentence, such as `--`.

    Example:
    >>> did_you_mean("beem_size", ["alpha", "beam_size"])
    ' Did you mean beam_size?'
    >>> did_you_mean("size", ["alpha", "beam_size", "batch_size"])
    ' There are beam_size, batch_size.'
    """
    find, known, count = difflib.get_close_matches, list(known), str.count

    def has_words(name, least):
        words = name.split("_")
        return all(find(word, words, 1, least) for word in received.split("_"))

    for name in find(received, known, n=3, cutoff=0.82):
        if count(name, "_") != count(received, "_") or has_words(name, 0.7):
            return f" Did you mean {sign}{name}?"
    longer = [f"{sign}{name}" for name in known if has_words(name, 0.81)]
    return f" There are {', '.join(longer[:3])}." if longer else ""
