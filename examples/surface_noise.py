r"""Writes pairs as people type them: addresses, placeholders, other scripts.

    python examples/surface_noise.py train.en train.de noisy.en noisy.de
    relpos-trainer --problem=translate_files \
        --train_source=train.en,noisy.en --train_target=train.de,noisy.de \
        --train_weights=1,1 --dev_source=dev.en --dev_target=dev.de

A web address comes out as other letters, if a model never saw one. So train it
on such pairs, too: each pair is written once, both sides changed alike: with
one or two tokens that a translation keeps letter by letter, in capitals, or
without its last sign. Tokens are put at the same share of both sides; half of
their words are made of parts of the text's. The same --seed writes the same
files.
"""

import argparse
import os
import pathlib
import random
import string

from relpos_tf import errors
from relpos_tf.utils import text

LETTERS = string.ascii_lowercase
# First and last letters of scripts whose words stay as they are.
SCRIPTS = ("άώ", "аџ", "את", "بي", "กฮ", "あん", "アン", "一鿋", "가힣", "कह")
EMOJI = (
    *("\U0001f600\U0001f64f", "\U0001f300\U0001f5ff", "\U0001f680\U0001f6ff"),
    *("\u2600\u26ff", "\u2700\u27bf", "\U0001f900\U0001f9ff"),
)
ENDS = "com org net de io co.uk edu info".split()
SUFFIXES = "txt pdf html py json csv png xml md c h cpp js sh zip jpg".split()


class Draws(random.Random):
    """Random choices.

    Args:
        seed: int.
        lines: Text whose words give parts of words.
    """

    def __new__(cls, *_):
        return super().__new__(cls)  # Python 3.10 has one argument at most

    def __init__(self, seed, lines):
        super().__init__(seed)
        words = {word.lower() for line in lines for word in line.split()}
        self._words = sorted(
            word for word in words if word.isascii() and word.isalpha()
        )

    def word(self):
        """Returns a word: random letters, or parts of two words."""
        if not self._words or self.random() < 0.5:
            return "".join(self.choices(LETTERS, k=self.randint(2, 9)))
        first, second = self.choices(self._words, k=2)
        start = first[: self.randint(1, len(first))]
        return start + second[self.randint(0, len(second)) :]


def between(draws, ends):
    """Returns a character of a range."""
    return chr(draws.randint(ord(ends[0]), ord(ends[1])))


def number(draws, most=6):
    """Returns digits, the first of them not 0, perhaps with commas."""
    found = draws.randint(0, 10 ** draws.randint(1, most) - 1)
    return f"{found:,}" if draws.random() < 0.2 else str(found)


def address(draws):
    """Returns a web address."""
    start = draws.choice(["https://", "http://", "www.", "https://www."])
    path = "".join(f"/{draws.word()}" for _ in range(draws.randint(0, 2)))
    query = draws.choice(["", f"?{draws.word()}={number(draws)}", "/"])
    return f"{start}{draws.word()}.{draws.choice(ENDS)}{path}{query}"


def mail(draws):
    """Returns an address of mail."""
    parts = [
        draws.choice([draws.word(), draws.choice(LETTERS), number(draws, 2)])
        for _ in range(draws.randint(0, 2))
    ]
    name = draws.choice("._-").join([draws.word(), *parts])
    places = [draws.word() for _ in range(draws.randint(1, 2))]
    return f"{name}@{'.'.join(places)}.{draws.choice(ENDS)}"


def date(draws):
    """Returns a date or a time."""
    day, month = draws.randint(1, 31), draws.randint(1, 12)
    year = draws.randint(1900, 2099)
    return draws.choice(
        [
            f"{day}.{month}.{year}",
            f"{year}-{month:02}-{day:02}",
            f"{month}/{day}/{year}",
            f"{month}:{day + 28}",
            f"{year}",
        ]
    )


def amount(draws):
    """Returns a number or a price."""
    digits, sign = number(draws), draws.choice("$€£¥")
    cents = draws.choice(["", f".{draws.randint(0, 99):02}"])
    return draws.choice(
        [
            digits,
            f"{digits}%",
            f"{sign}{digits}{cents}",
            f"{digits}{cents}{sign}",
            f"{digits}.{number(draws, 2)}",
            f"+{number(draws)}-{digits}",
        ]
    )


def name(draws):
    """Returns a name, a user's name or a topic."""
    made = draws.word()
    return draws.choice(
        [
            made.capitalize(),
            (made + draws.word()).capitalize(),
            f"{made.capitalize()}{draws.word().capitalize()}",
            f"{made.capitalize()}{draws.word()[:3].upper()}",
            made.upper(),
            f"#{made}",
            f"#{made.capitalize()}",
            f"#{number(draws, 4)}",
            f"@{made}",
            f"@{made}_{number(draws, 3)}",
            f"@{made}{number(draws, 2)}",
        ]
    )


def placeholder(draws):
    """Returns a placeholder or a tag of a program."""
    inner = draws.choice([draws.word(), number(draws, 1)])
    return draws.choice(
        [
            f"{{{inner}}}",
            f"{{{{{inner}}}}}",
            f"${{{inner}}}",
            f"%{draws.choice('sdif')}",
            f"%({inner})s",
            f"%{number(draws, 1)}$s",
            f"<{draws.choice(LETTERS)}>",
            f"</{draws.choice(LETTERS)}>",
            f"<{inner}/>",
            f'<{draws.choice(LETTERS)} id="{number(draws, 2)}">',
            f'<{draws.word()} id="{number(draws, 2)}">',
            f'<{draws.word()[:3]} id="{number(draws, 2)}"/>',
            f"<{draws.word()[:4]}{number(draws, 1)}/>",
            f"{{\\{draws.word()[:2]}{number(draws, 1)}}}",
            f"[{inner}]",
            f"&{draws.word()};",
        ]
    )


def code(draws):
    """Returns a file, a name in a program, or a version."""
    first, second = draws.word(), draws.word()
    return draws.choice(
        [
            f"/{first}/{second}.{draws.choice(SUFFIXES)}",
            f"/{first}/{second}/{draws.word()}",
            f"~/{first}.{draws.choice(SUFFIXES)}",
            f"../{first}",
            f"../{first}/{second}",
            f"C:\\{first.capitalize()}\\{second}",
            f"{first}.{draws.choice(SUFFIXES)}",
            f"{first.upper()}.{draws.choice(SUFFIXES)}",
            f"{first}_{second}",
            f"{first}{second.capitalize()}()",
            f"v{number(draws, 2)}.{number(draws, 1)}",
            draws.choice(string.ascii_uppercase) + draws.choice(["++", "#"]),
            f"{first.upper()}-{number(draws, 4)}",
            f"--{first}",
        ]
    )


def foreign(draws):
    """Returns a word of a different script, or an emoji."""
    if draws.random() < 0.3:
        return between(draws, draws.choice(EMOJI))
    ends = draws.choice(SCRIPTS)
    made = "".join(between(draws, ends) for _ in range(draws.randint(1, 6)))
    return draws.choice([made, made.capitalize()])


TOKENS = address, mail, date, amount, name, placeholder, code, foreign


def with_tokens(sides, draws):
    """Puts one or two tokens at the same share of both sides."""
    words = [side.split() for side in sides]
    for _ in range(draws.randint(1, 2)):
        token, place = draws.choice(TOKENS)(draws), draws.random()
        for own in words:
            own.insert(round(place * len(own)), token)
    return [" ".join(own) for own in words]


def noisy(source, target, draws):
    """Returns a pair as people type it."""
    sides = [source, target]
    if not all(map(str.strip, sides)):
        return sides  # half a pair, to which a token would be a translation
    kind = draws.random()
    if kind < 0.1:
        return [side.upper() for side in sides]
    if kind < 0.2:
        return [side.rstrip(" .!?。！？؟।") or side for side in sides]
    return with_tokens(sides, draws)


def main():
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for one in "source", "target", "noisy_source", "noisy_target":
        parser.add_argument(one)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    files = args.source, args.target, args.noisy_source, args.noisy_target
    if len(set(map(os.path.realpath, files))) < 4:
        parser.error("Expected four files. Received one of them twice.")
    sides = []
    for path in files[:2]:
        try:
            sides.append(list(text.read_nonempty(path)))
        except (OSError, errors.UserError) as error:
            parser.error(str(error))
    draws = Draws(args.seed, sides[0])
    sources, targets = map(len, sides)
    if sources != targets:
        parser.error(
            "Expected as many lines of the source as of the target. "
            f"Received: {sources:,} and {targets:,} lines."
        )
    pairs = [noisy(*pair, draws) for pair in zip(*sides, strict=True)]
    for side, path in enumerate(files[2:]):
        content = "".join(f"{pair[side]}\n" for pair in pairs)
        try:
            pathlib.Path(path).write_bytes(content.encode())
        except OSError as error:
            parser.error(f"Cannot write {path}: {error.strerror}.")
    print(f"{len(pairs):,} pairs: {args.noisy_source}, {args.noisy_target}")


if __name__ == "__main__":
    main()
