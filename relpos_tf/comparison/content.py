"""report.json: the content of a comparison.

Shapes: L lines, C counts of a line (see `corpus_measures`).
"""

import datetime
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import measures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import scoring
from relpos_tf.comparison import variants
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from relpos_tf.training import metrics

_WITHOUT_SPREAD = (
    "exact_match length_ratio brevity_penalty steps_per_second "
    "tokens_per_second"
).split()


def make(
    results: Sequence[scoring.ModelResult],
    sets: Sequence[test_sets.TestSet],
    problem: Mapping[str, Any],
    *,
    limits: Sequence[int] = (),
    command: str = "",
    warnings: Sequence[str] = (),
    baseline: str = "",
    tuning: Sequence[Mapping[str, Any]] = (),
    tokenize: str = "",
    scale: str | None = None,
    segments: Sequence[corpus_measures.Measure] = (),
) -> dict[str, Any]:
    """Returns the report.

    Args:
        results: Of all runs, and of other systems. At least one is of a run.
        sets: The test sets that were translated, the main one first.
        problem: Of `test_sets.problem_of`.
        limits: Upper limits of the length buckets, in pieces with EOS. None:
            quartiles of the lengths.
        command: str. The command line that makes the report.
        warnings: More warnings, which come first.
        baseline: str. A label to put first, which others are compared with.
        tuning: The entries of `tuning.choose`, if there was a grid.
        tokenize: str. The tokenizer for BLEU; "": that of the language.
        scale: As of `corpus_measures.of_language`.
        segments: More measures, of the first set only.
    """
    by_label = _group(results, baseline)
    results = [one for own in by_label.values() for one in own]
    language = problem["target_language"]
    tokenize = metrics.tokenizer_of(language, tokenize)
    lengths = next(x.record["source_lengths"] for x in results if x.record)
    buckets = measures.buckets(lengths, limits or measures.quartiles(lengths))
    kinds = corpus_measures.of_language(language, tokenize, scale)
    scores = _scores(results, sets, kinds, segments, buckets)
    trained = [one.run for one in results if one.record]
    hparams = {run.label: run.files.read_hparams() for run in trained}
    found = [
        *warnings,
        *_doubts(results, sets, tokenize),
        *_check_runs(results, scores["runs"]),
        *_check_labels(by_label, hparams),
    ]
    report = {
        "title": f"{problem['problem']}: {', '.join(by_label)}",
        "command": command,
        "setup": _setup(problem, sets, scores["runs"], trained),
        "problem": problem["problem"],
        "split": sets[0].name,
        "lines": len(sets[0].sources),
        "labels": list(by_label),
        **scores,
        "hparams_diff": variants.differences(hparams),
        "tuning": list(tuning),
        "samples": [
            _sample(by_label, sets[0], index)
            for index in measures.spread_out(lengths, 10)
        ],
        "warnings": list(dict.fromkeys(found)),
        "versions": run_dir.versions(),
    }
    return measures.finite(report)


def _scores(results, sets, kinds, segments, buckets):
    """Returns the parts of the report that have scores."""
    scored = {one.name: _scored(results, one, kinds) for one in sets}
    main = scored[sets[0].name]
    main |= _scored(results, sets[0], segments)
    rows: dict[str, list] = {}
    for one in results:
        row = _run_row(one, sets, buckets, scored)
        rows.setdefault(one.run.label, []).append(row)
    summary = _summary(rows, main)
    compared = {x.name: pairwise.compare_all(main[x], x) for x in main}
    pairs = compared.pop(kinds[0].name)
    for pair in pairs:
        pair |= {"bleu_a": pair["score_a"], "bleu_b": pair["score_b"]}
    return {
        "verdict": pairwise.verdict(summary, pairs),
        "measures": [
            {name: getattr(x, name) for name in ("name", "field", "digits")}
            for x in main
        ],
        "runs": [row for own in rows.values() for row in own],
        "summary": summary,
        "further_test_sets": [_further(x, rows, scored) for x in sets[1:]],
        "pairs": pairs,
        "pairs_by_measure": compared,
    }


def _group(results, baseline):
    """Returns the results of each label, the baseline's first."""
    by_label: dict[str, list[scoring.ModelResult]] = {}
    # The order of the others remains.
    for one in sorted(results, key=lambda one: one.run.label != baseline):
        by_label.setdefault(one.run.label, []).append(one)
    return by_label


def _setup(problem, sets, rows, runs):
    """Returns a paragraph about the trainings, for a paper."""
    hparams = [run.files.read_hparams() for run in runs]
    versions = [run.versions() for run in runs]
    tokens = (
        x.batch_size * max(x.optimizer_multistep_accumulate_steps, 1)
        for x in hparams
    )
    ours = [row for row in rows if row["train_steps"] is not None]
    pairs = problem.get("train_pairs")

    def listed(values, form=""):
        return " or ".join(
            dict.fromkeys(format(x, form) for x in values if x is not None)
        )

    def of_all(name):
        return listed(x.get(name) or "unknown" for x in versions)

    return (
        f"{problem['problem']}, {problem['source_language']} to "
        f"{problem['target_language']}: "
        + (f"{pairs:,} training pairs, " if pairs else "")
        + f"{listed((x.vocab_size for x in hparams), ',')} pieces. "
        f"{listed((x['train_steps'] for x in ours), ',')} updates of "
        f"{listed(tokens, ',')} padded tokens for each replica, seed "
        f"{listed(x['seed'] for x in ours)}; device: {of_all('device')}. "
        "Scored on "
        + ", ".join(f"{x.name} ({len(x.sources):,} lines)" for x in sets)
        + f", beam {listed(x.beam_size for x in hparams)}, alpha "
        f"{listed((x.alpha for x in hparams), 'g')}. relpos_tf "
        f"{of_all('relpos_tf')} (commit {of_all('relpos_tf commit')}, "
        f"sources {of_all('relpos_tf sources')}), "
        f"TensorFlow {of_all('tensorflow')}, Keras {of_all('keras')}; "
        f"{datetime.date.today()}."
    )


def _check_runs(results, rows):
    """Returns a warning for each fact in which runs differ.

    It names the first run of each value. Unknown values, None, do not count.
    """
    facts: dict[str, dict[str, str]] = {}
    for one, row in zip(results, rows, strict=True):
        if not one.record:
            continue  # another system, whose training is unknown
        averaged = ", ".join(map(str, one.record["average_of"]))
        weights = one.run.files.read_flags().get("train_weights")
        for fact, value in {
            "updates": row["train_steps"],
            f"target tokens with seed {one.run.seed}": row["target_tokens"],
            "averaged checkpoints": averaged or "none",
            "train_weights": "none" if weights == "" else weights,
            **one.run.versions(),
        }.items():
            # Sources tell codes apart; commits may differ in documents alone.
            if value is not None and fact != "relpos_tf commit":
                firsts = facts.setdefault(fact, {})
                firsts.setdefault(str(value), one.run.title)
    return [
        f"The runs differ in {fact}: "
        + "; ".join(f"{value} ({title})" for value, title in firsts.items())
        + "."
        for fact, firsts in facts.items()
        if len(firsts) > 1
    ]


def _check_labels(by_label, hparams):
    """Returns warnings about the seeds and the hparams of labels."""
    warnings = []
    seeds = {
        frozenset(x.run.seed for x in by_label[label]) for label in hparams
    }
    if len(seeds) > 1:
        warnings.append(
            "Not all labels have the same seeds: two labels are compared over "
            "the seeds that both have, if these are two or more, else over all."
        )
    for values in dict.fromkeys(hparams.values()):
        equal = [label for label, own in hparams.items() if own == values]
        if len(equal) > 1:
            warnings.append(
                f"These labels have equal hparams: {', '.join(equal)}."
            )
    return warnings


def _doubts(results, sets, tokenize):
    """Returns the warnings about references and translations."""
    return [
        f"{one.name}: {line}"
        for one in sets
        for line in metrics.reference_warnings(one.references, tokenize)
    ] + [
        f"{result.run.title}, {one.name}: {line}"
        for result in results
        for one in sets
        if one.name in result.translations
        for line in metrics.doubts(
            result.translations[one.name], one.references, tokenize
        )
    ]


def _scored(results, test_set, kinds):
    """Returns `pairwise.Scores` by measure, of the labels that it covers."""
    found: dict[Any, dict] = {kind: {} for kind in kinds}
    for one in results:
        for kind in kinds:
            if kind.covers(one, test_set):
                own = found[kind].setdefault(one.run.label, {})
                own[one.run.seed] = kind.scored(kind.counts_of(one, test_set))
    return found


def _run_row(result, sets, buckets, scored):
    """Returns the entry of a run in `runs`."""
    run, main = result.run, sets[0].name
    equal = {
        one.name: np.array(
            metrics.exact_matches(result.translations[one.name], one.references)
        )
        for one in sets
        if one.name in result.translations
    }
    rows = {name: _set_row(run, equal[name], scored[name]) for name in equal}
    names = "parameters", "loss", "teacher_forced_accuracy"
    return {
        "label": run.label,
        "seed": run.seed,
        **run.describe(result.checkpoint),
        **{name: result.record.get(name) for name in names},
        **rows.pop(main),
        "further_test_sets": rows,
        "bleu_by_length": _by_length(run, equal[main], scored[main], buckets),
    }


def _set_row(run, is_equal, scored):
    """Returns the scores of a run on a test set, by field."""
    bleu, *_ = scored
    ours, others, *_ = scored[bleu][run.label][run.seed].counts.sum(axis=0)
    row = {
        "exact_match": 100 * is_equal.mean(),
        "length_ratio": ours / others,
        "brevity_penalty": math.exp(min(0.0, 1 - others / max(ours, 1))),
    }
    for kind, by_label in scored.items():
        own = by_label.get(run.label)
        row[kind.field] = own and own[run.seed].score
        row[f"{kind.field}_signature"] = own and kind.signature()
    return row


def _by_length(run, is_equal, scored, buckets):
    """Returns the scores of the lines in each length bucket."""
    bleu, *_ = scored
    counts = scored[bleu][run.label][run.seed].counts
    # Without 4-grams even the reference itself has the score 0.
    has_four = counts[:, 1] >= 4  # the tokens of the reference
    return [
        {
            "up_to": limit,
            "lines": len(lines),
            "bleu": float(bleu.score(counts[lines].sum(axis=0)))
            if has_four[lines].any()
            else None,
            "exact_match": measures.mean(100.0 * is_equal[lines]),
        }
        for limit, lines in buckets
    ]


def _summary(rows, kinds):
    """Returns a row for each label, over its seeds."""
    fields = [*(kind.field for kind in kinds), "loss"]
    return [
        {
            "label": label,
            "seeds": [row["seed"] for row in own],
            "parameters": own[0]["parameters"],
            **_means(own, fields, _WITHOUT_SPREAD),
            "bleu_by_length": [
                cells[0]
                | {
                    name: measures.mean([cell[name] for cell in cells])
                    for name in ("bleu", "exact_match")
                }
                for cells in zip(
                    *(row["bleu_by_length"] for row in own), strict=True
                )
            ],
            "peak_memory_mb": max(
                filter(None, (row["peak_memory_mb"] for row in own)),
                default=None,
            ),
        }
        for label, own in rows.items()
    ]


def _means(rows, fields, others=()):
    """Returns means over seeds of fields, and of the first ones the spread."""
    columns = {x: [row[x] for row in rows] for x in (*fields, *others)}
    means = {f"{x}_mean": measures.mean(columns[x]) for x in columns}
    return means | {f"{x}_spread": measures.spread(columns[x]) for x in fields}


def _further(test_set, rows, scored):
    """Returns the entry of a further test set, with a row for each label."""
    kinds = scored[test_set.name]
    bleu, *_ = kinds
    fields = [kind.field for kind in kinds]
    return {
        "name": test_set.name,
        "lines": len(test_set.sources),
        "summary": [
            {"label": label}
            | _means(
                [x["further_test_sets"][test_set.name] for x in rows[label]],
                fields,
            )
            for label in kinds[bleu]
        ],
        "pairs": pairwise.compare_all(kinds[bleu], bleu),
    }


def _sample(by_label, test_set, index):
    """Returns a line with its translations by the first run of each label."""
    return {
        "source": test_set.sources[index],
        "reference": test_set.references[index],
        "translations": {
            label: own[0].translations[test_set.name][index]
            for label, own in by_label.items()
        },
    }
