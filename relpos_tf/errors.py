"""The error that a user can mend."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what the user gave, not in the program.

    The message is one line that says what was expected, what was received
    and what to do. Commands print it without a traceback and exit with 1.
    """


def did_you_mean(received: str, known: Iterable[str], sign: str = "") -> str:
    """Returns a sentence with the nearest known name, or an empty str.

    Args:
        received: str. The unknown name.
        known: The known names.
        sign: str. A prefix of the name in the sentence, such as `--`.

    Example:

    >>> did_you_mean("beem_size", ["alpha", "beam_size"])
    ' Did you mean beam_size?'
    """
    close = difflib.get_close_matches(received, list(known), n=1)
    return f" Did you mean {sign}{close[0]}?" if close else ""
