"""The one error that means: the user can mend this."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what the user gave, not in the program.

    The message is one line that says what was expected, what was received
    and what to do. Commands print it without a traceback and exit with 1.
    """


def did_you_mean(received: str, known: Iterable[str], sign: str = "") -> str:
    """Returns a sentence with the known name that is nearest, or nothing.

    Args:
        received: str. What was given.
        known: Names.
        sign: str. What stands before a name where it is written.

    Example:

    >>> did_you_mean("beem_size", ["alpha", "beam_size"])
    ' Did you mean beam_size?'
    """
    close = difflib.get_close_matches(received, list(known), n=1)
    return f" Did you mean {sign}{close[0]}?" if close else ""
