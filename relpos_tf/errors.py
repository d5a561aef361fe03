"""The one error that means: the user can mend this."""


class UserError(ValueError):
    """A mistake in what the user gave, not in the program.

    The message is one line that says what was expected, what was received
    and what to do. Commands print it without a traceback and exit with 1.
    """
