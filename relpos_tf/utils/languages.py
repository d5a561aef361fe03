"""Languages by their codes, such as "de"."""

import re

from relpos_tf.utils import extras

# Written without blanks between words and sentences.
_WITHOUT_BLANKS = {"ja", "yue", "zh"}


def base(code: str) -> str:
    """Returns the language of any code for it, by the aliases of CLDR.

    Args:
        code: str. It may have a script and a region; another text is returned
            in lower case.

    Example:
    >>> [base(code) for code in ("EN", "zh_Hans", "cmn", "no", "pt-br")]
    ['en', 'zh', 'zh', 'nb', 'pt']
    """
    with extras.imports("translate", "knowing languages by their codes"):
        from babel import core

    code = re.split("[-_]", code.lower())[0]
    alias = core.get_global("language_aliases").get(code, code)
    alias = "nb" if alias == "no" else alias  # Norwegian, as it is written
    return alias.partition("_")[0]


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
    return base(code) not in _WITHOUT_BLANKS
