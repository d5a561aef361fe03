"""The commands that the documents show, as a shell reads them."""

import pathlib
import re
import shlex
import string
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = tuple(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "tools/*.md", "benchmarks/peers/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
)
# A command begins an indented line, follows a pipe, or stands in backticks. It
# ends at a pipe, a redirection or the end of its line, which a backslash
# continues.
_COMMAND = re.compile(
    r"(?:^ {4,}(?:exec |.*\| )?|(?<!`)`)(?:\.venv/bin/)?"
    r"((?:relpos-\w+|python3?|pip|make)\b(?:\\\n|[^\n`|<>])*)",
    re.MULTILINE,
)
# A variable of the shell, as in options="--a=b --c=d".
_VARIABLE = re.compile(r'^ {4,}(\w+)="([^"]*)"$', re.MULTILINE)


def commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each command of a document.

    Example:

    >>> list(commands("Say `make x` or\\n\\n    cat a | relpos-b --c='d e'\\n"))
    [['make', 'x'], ['relpos-b', '--c=d e']]

    >>> list(commands('    it="--a=b --c"\\n    relpos-b $it --d\\n'))
    [['relpos-b', '--a=b', '--c', '--d']]
    """
    variables = dict(_VARIABLE.findall(text))
    for line in _COMMAND.findall(text):
        line = string.Template(line).safe_substitute(variables)
        line = line.replace("\\\n", " ")
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # the last word of a longer quotation
            words = shlex.split(line.rstrip().removesuffix("'"))
        # Brackets, as in [--a=b --c=d], mark what may be left out.
        is_left_out = any(word.startswith("[-") for word in words)
        yield [word.strip("[]") if is_left_out else word for word in words]


def all_commands() -> list[list[str]]:
    """Returns the commands of all documents."""
    return [
        words
        for file in FILES
        for words in commands((ROOT / file).read_text(encoding="utf-8"))
    ]
