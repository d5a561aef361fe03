"""Writes parallel text of any size, to measure the preparation of data.

    python benchmarks/synthetic_corpus.py --pairs=1000000 --output_dir=build/1m

A line joins generated phrases and lists until it has as many words as drawn
from a log-normal distribution, whose mean of 25 words and spread are about
those of WMT's training text. Some lines are blank, broken or much too long on
one side, so that cleaning has work to do. The same arguments give the same
text: `train.en`, `train.de`, `dev.en` and `dev.de`.
"""

import itertools
import math
import pathlib
import random
import string

import common

MEAN_WORDS, SPREAD = 25, 0.6
DEV_PAIRS = 500
POOL = 20_000
LINES_AT_ONCE = 10_000
NAMES = 200_000  # made-up words, few of which are frequent, as in real text


def pool(generator):
    """Returns phrases and lists: words on the English side, and both sides."""
    from relpos_tf.problems.generated import lists
    from relpos_tf.problems.generated import phrases

    drawn = (phrases.sample(generator) for _ in range(POOL))
    found = [(phrase.say("en"), phrase.say("de")) for phrase in drawn]
    found += itertools.islice(lists.pairs("train"), POOL // 20)
    return [(source.count(" ") + 1, source, target) for source, target in found]


def name(generator):
    """Returns a made-up word that both languages share."""
    # Of the density 1 / x, as the words of real text.
    number = int(NAMES ** generator.random())
    letters = []
    while number:
        number, letter = divmod(number, 26)
        letters.append(string.ascii_lowercase[letter])
    return "".join(letters).title()


def pairs(number, seed=1):
    """Yields pairs of lines."""
    generator = random.Random(seed)
    items = pool(generator)
    mean = math.log(MEAN_WORDS) - SPREAD**2 / 2
    for _ in range(number):
        wanted = generator.lognormvariate(mean, SPREAD)
        sources, targets = [], []
        while wanted >= 1:
            words, source, target = items[int(generator.random() * len(items))]
            called = name(generator)
            sources += called, source
            targets += called, target
            wanted -= words + 1
        source, target = "; ".join(sources) + ".", "; ".join(targets) + "."
        draw = generator.random()
        if draw < 0.002:
            target = ""
        elif draw < 0.003:
            source = f"{source}\ufffd"
        elif draw < 0.004:
            source = source * 40
        yield source, target


def write(folder, number):
    """Writes the training text and the development text."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, size, seed in (("train", number, 1), ("dev", DEV_PAIRS, 2)):
        made = pairs(size, seed)
        with (
            open(folder / f"{split}.en", "w", encoding="utf-8") as source,
            open(folder / f"{split}.de", "w", encoding="utf-8") as target,
        ):
            while lines := list(itertools.islice(made, LINES_AT_ONCE)):
                source.writelines(f"{line}\n" for line, _ in lines)
                target.writelines(f"{line}\n" for _, line in lines)


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    args = parser.parse_args()
    write(args.output_dir, args.pairs)


if __name__ == "__main__":
    main()
