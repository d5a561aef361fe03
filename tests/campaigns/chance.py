"""Compares simulated systems whose true difference is known, many times.

    python -m tests.campaigns.chance [--comparisons=1000] [--measure=bleu]

A comparison trains two labels with 1, 2, 3 or 5 seeds. Every label has a true
quality; every training adds an effect of its seed, normal with a standard
deviation of 0.5 to 1.5 points, drawn anew for each label. A model of a given
quality takes, for every sentence, one of several translations; the better the
model, the likelier the better ones. The translations are made by damaging
generated references.

The rows of the table are kinds of comparisons:

- equal: both labels have the same quality;
- mixed: so they have, but each is better at sentences of its own, drawn anew,
  as two kinds of positions may be;
- 1, 2, 3 points: the first label is so much better.

Its columns: how often the verdict calls a label better; how often it would if
sentences were tested alone, that is, if the 95 % interval over sentences does
not hold 0; how often the interval over seeds and sentences holds the true
difference; and the mean width of that interval. The exit code is 1 if equal
labels are called different in more than 5 %, or if fewer than 95 % of the
intervals hold the truth, less three standard errors.

Rows of true differences have a quarter of the comparisons.
"""

import argparse
import itertools
import sys
import time

import numpy as np

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import two_way

SEEDS = 1, 2, 3, 5
KINDS = {"equal": 0.0, "mixed": 0.0, "1": 1.0, "2": 2.0, "3": 3.0}
MEASURES = {"bleu": corpus_measures.bleu, "chrf": corpus_measures.chrf}
SPREADS = 0.5, 1.5
COLUMNS = "better", "sentences", "interval holds", "width"
# Of the preference of a label for a sentence, in the unit of `Pool.tilts`.
PREFERENCE = 0.4


def made_lines(generator, lines=1000, translations=8):
    """Returns references, and that many damaged copies of all.

    Words follow Zipf's law, lines have 4 to 30 words, and lines differ in
    difficulty. A word is replaced, left out or moved.
    """
    words = np.array([f"w{n}" for n in range(2000)])
    shares = 1 / np.arange(1, len(words) + 1)
    shares /= shares.sum()
    lengths = np.clip(generator.gamma(6, 2.2, lines).round(), 4, 30)
    references = [
        generator.choice(words, int(length), p=shares) for length in lengths
    ]
    difficulty = generator.beta(2, 4, lines)
    damaged = [
        [
            damage(line, share, words, shares, generator)
            for line, share in zip(references, difficulty, strict=True)
        ]
        for _ in range(translations)
    ]
    return [" ".join(line) for line in references], damaged


def damage(line, share, words, shares, generator):
    """Returns a line in which a share of the words is damaged."""
    kind = generator.random(len(line)) / share
    kept = line.copy()
    kept[kind < 0.6] = generator.choice(words, (kind < 0.6).sum(), p=shares)
    is_moved = (kind >= 0.6) & (kind < 0.8)
    order = np.arange(len(line)) + 1.5 * is_moved
    kept = kept[np.argsort(order, kind="stable")]
    return " ".join(kept[(kind < 0.8) | (kind >= 1)]) or line[0]


class Pool:
    """Translations of the same lines, from which models choose.

    Shapes: T translations of a line, L lines, C counts.

    Args:
        measure: The measure.
        references: The references.
        translations: Of all lines, several times.
    """

    def __init__(self, measure, references, translations):
        counts = np.array([measure.counts(t, references) for t in translations])
        ranks = measure.score(counts).argsort(axis=0, kind="stable")  # [T, L]
        self.measure = measure
        self.counts = np.take_along_axis(counts, ranks[..., None], axis=0)
        # The score of a model by its tilt, exactly in expectation of counts.
        self.tilts = np.linspace(-1.5, 1.5, 61)
        limits = np.linspace(0, 1, len(counts) + 1)
        limits = limits ** np.exp(self.tilts)[:, None]
        chances = np.diff(limits, axis=1)
        sums = chances @ self.counts.sum(axis=1)
        self.scores = measure.score(sums)
        self.middle = float(np.interp(0.0, self.tilts, self.scores))

    def model(self, quality, preference, generator):
        """Returns the counts of a model's translations, `[L, C]`.

        Args:
            quality: float. Its score, above that of random choice.
            preference: `[L]` or 0.0. For which sentences it is better.
            generator: The random generator.
        """
        tilt = np.interp(self.middle + quality, self.scores, self.tilts)
        number, lines = self.counts.shape[:2]
        drawn = generator.random(lines) ** np.exp(-tilt - preference)
        rank = np.minimum((number * drawn).astype(int), number - 1)
        return self.counts[rank, np.arange(lines)]


def compare(pool, kind, seeds, generator):
    """Returns one comparison, of `pairwise.compare`, corrected."""
    by_label = {}
    lines = pool.counts.shape[1]
    preference = 0.0
    if kind == "mixed":
        preference = generator.normal(0, PREFERENCE, lines)
    for label, sign in (("a", 1), ("b", -1)):
        spread = generator.uniform(*SPREADS)
        by_label[label] = {
            seed: pool.measure.scored(
                pool.model(
                    sign * KINDS[kind] / 2 + generator.normal(0, spread),
                    sign * preference,
                    generator,
                )
            )
            for seed in range(seeds)
        }
    (pair,) = pairwise.correct(
        [pairwise.compare("a", "b", by_label, pool.measure)]
    )
    return pair


def tally(pool, kind, seeds, comparisons, generator):
    """Returns the columns of a row, see the module."""
    rows = []
    for _ in range(comparisons):
        pair = compare(pool, kind, seeds, generator)
        words = pairwise.verdict(
            [
                {"label": label, "bleu_mean": pair[f"score_{label}"]}
                for label in "ab"
            ],
            [pair],
        )
        tested = pair["sentences_low"] * pair["sentences_high"] > 0
        interval = np.nan, np.nan  # of one seed
        if pair["low"] is not None:
            holds = pair["low"] <= KINDS[kind] <= pair["high"]
            interval = holds, pair["high"] - pair["low"]
        rows.append([" is better than " in words, tested, *interval])
    return dict(zip(COLUMNS, np.mean(rows, axis=0), strict=True))


def is_expected(kind, found, comparisons):
    """Says whether a row is as promised."""
    # Three standard errors of the share of intervals.
    error = 3 * (two_way.LEVEL * (1 - two_way.LEVEL) / comparisons) ** 0.5
    is_calm = KINDS[kind] > 0 or found["better"] <= two_way.LEVEL
    return is_calm and not found["interval holds"] < 1 - two_way.LEVEL - error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--measure", choices=MEASURES, default="bleu")
    flags = parser.parse_args()
    generator = np.random.default_rng(1979)
    references, translations = made_lines(generator)
    pool = Pool(MEASURES[flags.measure](), references, translations)
    print(
        f"{len(references)} lines, {len(translations)} translations of each, "
        f"{pool.measure.name} {pool.middle:.1f}"
    )
    print("difference  seeds  " + "  ".join(f"{n:>14}" for n in COLUMNS))
    is_wrong = False
    started = time.monotonic()
    row = "{:10}  {:5}  {:14.1%}  {:14.1%}  {:14.1%}  {:14.2f}{}".format
    for kind, seeds in itertools.product(KINDS, SEEDS):
        number = flags.comparisons // (4 if KINDS[kind] else 1)
        found = tally(pool, kind, seeds, number, generator)
        is_right = is_expected(kind, found, number)
        is_wrong |= not is_right
        end = "" if is_right else "  not as expected"
        print(row(kind, seeds, *found.values(), end), flush=True)
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
