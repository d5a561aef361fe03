"""Measures word alignments on generated phrases, whose words are known.

    relpos-trainer --output_dir=runs/demo
    python benchmarks/alignments.py --output_dir=runs/demo

A run of `translate_ende_phrases` translates phrases of the test split, and the
pairs of `return_alignments` are compared with those that follow from how a
phrase is generated, where the translation is right. The score is the alignment
error rate (Och and Ney, 2003), in percent; words without a counterpart, such as
the "of" of "two liters of water", may be aligned with anything.
"""

import collections
import random

import common

# The parts of a phrase in English and German. A word has the letter of its
# counterpart; "-" has none, and "#" is a number of one word or several.
_PARTS = {
    "quantity": ("# u", "# u"),
    "quantity_of": ("# u - s", "# u s"),
    "ago": ("# u a", "a # u"),
    "from_now": ("i # u", "i # u"),
    "money": ("# u a c d", "# u a c d"),
    "nth": ("t # u", "t # u"),
    # With a weekday.
    "date": ("w m d", "w - d m"),
    "on_date": ("o w m d", "o w - d m"),
}


def known_pairs(phrase):
    """Returns the words of both sides that belong together, as two sets.

    The first has the pairs that an alignment must have, the second those that
    it may have.
    """
    source, target = (
        letters(parts.split(), phrase.say(language).split())
        for parts, language in zip(
            _PARTS[phrase.kind], ("en", "de"), strict=True
        )
    )
    everything = {
        (i, j): (one, other)
        for i, one in enumerate(source)
        for j, other in enumerate(target)
    }
    sure = {
        pair for pair, (one, other) in everything.items() if one == other != "-"
    }
    possible = {pair for pair, both in everything.items() if "-" in both}
    return sure, sure | possible


def letters(parts, words):
    """Returns the letter of each word; "#" takes those that are left over."""
    found = []
    for part in parts:
        number = len(words) - len(parts) + 1 if part == "#" else 1
        found += [part] * number
    if len(found) != len(words):
        raise ValueError(f"{words} does not have the parts {parts}.")
    return found


def draw(number):
    """Returns different phrases of the test split, by their English."""
    from relpos_tf.problems.generated import phrases

    generator = random.Random(1)
    found = {}
    while len(found) < number:
        phrase = phrases.sample(generator)
        source = phrase.say("en")
        is_other = "date" in phrase.kind and (
            phrase.arguments[2] is not None or phrase.arguments[3] is None
        )
        if (
            phrase.kind in _PARTS
            and not is_other
            and not source.startswith("minus")  # another word in German
            and phrases.split_of(source) == "test"
        ):
            found[source] = phrase
    return found


def add(counts, found, sure, possible):
    """Adds the numbers of a line, of which `rates` makes rates."""
    counts["lines"] += 1
    counts["found"] += len(found)
    counts["sure"] += len(sure)
    counts["found sure"] += len(found & sure)
    counts["found possible"] += len(found & possible)


def rates(counts):
    """Returns error rate, precision and recall, in percent."""
    right = counts["found sure"] + counts["found possible"]
    return (
        1 - right / (counts["found"] + counts["sure"]),
        counts["found possible"] / counts["found"],
        counts["found sure"] / counts["sure"],
    )


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--output_dir", required=True, help="the run")
    parser.add_argument("--phrases", type=int, default=1000)
    args = parser.parse_args()
    common.import_tensorflow()
    import relpos_tf

    drawn = draw(args.phrases)
    translator = relpos_tf.Translator.load(args.output_dir)
    found = translator.translate(list(drawn), return_attention=True)
    kinds = collections.defaultdict(collections.Counter)
    totals = collections.defaultdict(collections.Counter)
    for phrase, (text, attention) in zip(drawn.values(), found, strict=True):
        if text != phrase.say("de"):
            continue
        known = known_pairs(phrase)
        pairs = set(attention.word_pairs())
        add(kinds[phrase.kind], pairs, *known)
        add(totals["all"], pairs, *known)
        for i in range(len(attention.weights)):
            weights = attention.weights[i : i + 1]
            pairs = set(attention._replace(weights=weights).word_pairs())
            add(totals[f"layer {i + 1} alone"], pairs, *known)
    print("| | lines | error rate | precision | recall |")
    print("|---|---|---|---|---|")
    for name, counts in {**kinds, **totals}.items():
        figures = " | ".join(f"{100 * rate:.1f}" for rate in rates(counts))
        print(f"| {name} | {counts['lines']} | {figures} |")


if __name__ == "__main__":
    main()
