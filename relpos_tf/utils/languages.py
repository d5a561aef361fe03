"""Languages by their codes, such as "de"."""

# Written without blanks between words and sentences.
_WITHOUT_BLANKS = {"ja", "yue", "zh"}


def english_name(code: str) -> str | None:
    """Returns the English name of a language, or None for an unknown code.

    Raises:
        ImportError: Babel is not installed; the caller knows its extra.
    """
    import babel

    return babel.Locale("en").languages.get(code)


def has_blanks(code: str) -> bool:
    """Returns whether a language has blanks between sentences.

    Args:
        code: str. The code, perhaps with more after it, as "zh-Hans"; unknown
            languages have blanks.
    """
    return code.replace("_", "-").partition("-")[0] not in _WITHOUT_BLANKS
