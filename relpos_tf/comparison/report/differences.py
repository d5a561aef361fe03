"""The part of report.json on the differences between labels."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import gaps
from relpos_tf.comparison import pairs as pairs_lib
from relpos_tf.comparison import score_cache
from relpos_tf.problems import test_sets
from relpos_tf.training import metrics

# Sentences that each label of a pair translates better.
_MOST_GAPS = 3


def describe(
    results: Mapping[str, Sequence[score_cache.ModelResult]],
    test_set: test_sets.TestSet,
    language: str,
) -> dict[str, Any]:
    """Compares labels in pairs.

    Args:
        results: By label.
        test_set: The lines that were translated.
        language: str. Code of the references' language, if it is known.

    Returns:
        dict of `pairs`, see `pairs.correct`, in BLEU, which also have their
        scores as `bleu_a` and `bleu_b`; `pairs_by_measure`, the same in other
        measures, by name; `all_pairs`, see `pairs.complete`, in BLEU, empty if
        `pairs` are all; and `gaps`: for each pair, the labels `better` and
        `worse`, and `sentences`, see `gaps.describe`, and once more with the
        labels exchanged.
    """
    translations = {
        label: {result.run.seed: result.translations for result in own}
        for label, own in results.items()
    }
    bleu = corpus_measures.Bleu()
    measures = [bleu, corpus_measures.ChrF()]
    if metrics.has_moses_rules(language):
        measures.append(corpus_measures.TokenizedBleu(language))
    scores, compared = {}, {}
    for measure in measures:
        scores[measure.name] = pairs_lib.score_all(
            translations, test_set.references, measure
        )
        compared[measure.name] = pairs_lib.compare_all(
            scores[measure.name], measure
        )
    in_bleu = compared.pop(bleu.name)
    all_pairs = []
    if len(results) > pairs_lib.MOST_FOR_ALL_PAIRS:
        all_pairs = pairs_lib.complete(in_bleu, scores[bleu.name], bleu)
    found = []
    for pair in in_bleu:
        for labels in ((pair["a"], pair["b"]), (pair["b"], pair["a"])):
            found.append(
                {
                    "better": labels[0],
                    "worse": labels[1],
                    "sentences": _gaps(
                        labels, scores["chrF"], translations, test_set
                    ),
                }
            )
    return {
        "pairs": [
            {**pair, "bleu_a": pair["score_a"], "bleu_b": pair["score_b"]}
            for pair in in_bleu
        ],
        "pairs_by_measure": compared,
        "all_pairs": all_pairs,
        "gaps": found,
    }


def in_further_set(
    results: Mapping[str, Sequence[score_cache.ModelResult]],
    test_set: test_sets.TestSet,
) -> list[dict[str, Any]]:
    """Compares labels in BLEU on a further test set, see `pairs.correct`.

    Args:
        results: By label. Labels without translations of the set are left out.
        test_set: The set.
    """
    translations = {}
    for label, own in results.items():
        by_seed = {
            result.run.seed: result.further[test_set.name]
            for result in own
            if test_set.name in result.further
        }
        if by_seed:
            translations[label] = by_seed
    bleu = corpus_measures.Bleu()
    scores = pairs_lib.score_all(translations, test_set.references, bleu)
    return pairs_lib.compare_all(scores, bleu)


def _gaps(labels, scores, translations, test_set):
    """Returns the sentences in which the first label is most ahead."""
    measure = corpus_measures.ChrF()
    sides = [list(scores[label].counts.values()) for label in labels]
    return gaps.describe(
        gaps.largest(*sides, measure, _MOST_GAPS),
        labels,
        test_set.sources,
        test_set.references,
        {label: next(iter(translations[label].values())) for label in labels},
    )
