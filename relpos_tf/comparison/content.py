"""report.json: the content of a comparison.

Shapes: L lines, C counts of a line (see `corpus_measures`).
"""

import datetime
import json
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf import hparam
from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import measures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import scoring
from relpos_tf.comparison import variants
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from relpos_tf.training import metrics

# Hparams that decide which pairs share an update.
_BATCHING = (
    "batch_size",
    "max_length",
    "min_length_bucket",
    "length_bucket_step",
    "optimizer_multistep_accumulate_steps",
)
# Sentences that each label of a pair translates better.
_MOST_GAPS = 3


def make(
    results: Sequence[scoring.ModelResult],
    sets: Sequence[test_sets.TestSet],
    problem: Mapping[str, Any],
    *,
    limits: Sequence[int] = (),
    num_samples: int = 10,
    command: str = "",
    warnings: Sequence[str] = (),
    baseline: str = "",
    tuning: Sequence[Mapping[str, Any]] = (),
    tokenize: str = "",
    scale: str = "",
    segments: Sequence[corpus_measures.Measure] = (),
) -> dict[str, Any]:
    """Returns the report.

    Args:
        results: Of all runs, and of other systems. At least one is of a run.
        sets: The test sets that were translated, the main one first.
        problem: Of `test_sets.problem_of`; only its name is required.
        limits: Upper limits of the length buckets, in pieces with EOS. None:
            quartiles of the lengths.
        num_samples: int. How many translated lines to show.
        command: str. The command line that makes the report.
        warnings: More warnings, which come first.
        baseline: str. A label to put first, which others are compared with.
        tuning: The entries of `tuning.choose`, if there was a grid.
        tokenize: str. The tokenizer for BLEU; "": that of the language.
        scale: str. That of tokenized BLEU, see `corpus_measures.of_language`.
        segments: More measures, of the first set only.
    """
    by_label = _group(results, baseline)
    language = problem.get("target_language", "")
    tokenize = metrics.tokenizer_of(language, tokenize)
    lengths = next(x.record["source_lengths"] for x in results if x.record)
    limits = list(limits) or measures.quartiles(lengths)
    buckets = measures.buckets(lengths, limits)
    kinds = corpus_measures.of_language(language, tokenize, scale)
    every = [*kinds, *segments]
    scored = {one.name: _scored(by_label, one, kinds) for one in sets}
    scored[sets[0].name] |= _scored(by_label, sets[0], segments)
    ordered = [one for own in by_label.values() for one in own]
    rows = [_run_row(x, sets, buckets, every, scored) for x in ordered]
    found = list(warnings)
    found += [y for x in ordered for y in _doubts(x, sets, tokenize)]
    hparams = _hparams(by_label)
    hparams_diff = variants.differences(hparams)
    found += _check_conditions(rows)
    found += _check_models(ordered, hparams, hparams_diff)
    summary = _summary(by_label, rows, every, scored[sets[0].name])
    compared = _differences(by_label, sets[0], every, scored[sets[0].name])
    report = {
        "title": f"{problem['problem']}: {', '.join(by_label)}",
        "verdict": pairwise.verdict(summary, compared["pairs"]),
        "command": command,
        "setup": _setup(problem, sets[0], rows, ordered),
        "problem": problem["problem"],
        "split": sets[0].name,
        "lines": len(sets[0].sources),
        "labels": list(by_label),
        "measures": [one.describe() for one in every],
        "runs": rows,
        "summary": summary,
        "further_test_sets": [
            _further(one, kinds, scored[one.name]) for one in sets[1:]
        ],
        **compared,
        "hparams_diff": hparams_diff,
        "tuning": list(tuning),
        "samples": [
            _sample(by_label, sets[0], index)
            for index in measures.spread_out(lengths, num_samples)
        ],
        "warnings": list(dict.fromkeys(found)),
        "versions": run_dir.versions(),
    }
    return measures.finite(report)


def _setup(problem, test_set, rows, results):
    """Returns a paragraph about the trainings, for a paper."""
    run = next(one.run for one in results if one.record)
    hparams, versions = run.files.read_hparams(), json.loads(run.versions())
    ours = [row for row in rows if row["train_steps"] is not None]
    steps = " or ".join(dict.fromkeys(f"{x['train_steps']:,}" for x in ours))
    seeds = " or ".join(dict.fromkeys(str(x["seed"]) for x in ours))
    languages = [problem.get(f"{x}_language") for x in ("source", "target")]
    pairs = problem.get("train_pairs")
    return (
        f"{problem['problem']}"
        + (f", {' to '.join(languages)}" if all(languages) else "")
        + ": "
        + (f"{pairs:,} training pairs, " if pairs else "")
        + f"{hparams.vocab_size:,} pieces. {steps} updates of "
        f"{hparams.batch_size:,} padded tokens for each replica, seed {seeds}; "
        f"{versions.get('device') or 'unknown device'}. Scored on "
        f"{test_set.name}, {len(test_set.sources):,} lines, beam "
        f"{hparams.beam_size}, alpha {hparams.alpha:g}. relpos_tf "
        f"{versions['relpos_tf']} (sources "
        f"{versions.get('relpos_tf sources', 'unknown')}), "
        f"TensorFlow {versions['tensorflow']}, Keras {versions['keras']}; "
        f"{datetime.date.today()}."
    )


def _group(results, baseline):
    """Returns the results of each label, the baseline's first."""
    by_label: dict[str, list[scoring.ModelResult]] = {}
    # The order of the others remains.
    for one in sorted(results, key=lambda one: one.run.label != baseline):
        by_label.setdefault(one.run.label, []).append(one)
    return by_label


def _check_conditions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a warning for each training condition that differs.

    Args:
        rows: `runs` of the report. Those without `train_steps` are of other
            systems, whose training is unknown.
    """
    warnings = []
    rows = [row for row in rows if row["train_steps"] is not None]
    steps = {row["label"]: row["train_steps"] for row in rows}
    if len({row["train_steps"] for row in rows}) > 1:
        warnings.append(
            "The runs have made different numbers of updates: "
            f"{_listed(steps)}."
        )
    for seed in dict.fromkeys(row["seed"] for row in rows):
        tokens = {
            row["label"]: row["target_tokens"]
            for row in rows
            if row["seed"] == seed and row["target_tokens"] is not None
        }
        if len(set(tokens.values())) > 1:
            warnings.append(
                f"With seed {seed}, the runs have not been trained on the same "
                f"number of target tokens: {_listed(tokens)}."
            )
    seeds: dict[str, list[str]] = {}
    for row in rows:
        seeds.setdefault(row["label"], []).append(str(row["seed"]))
    if len({tuple(sorted(own)) for own in seeds.values()}) > 1:
        warnings.append(
            "Not all labels have the same seeds: two labels are compared over "
            "the seeds that both have, if these are two or more, else over all."
        )
    return warnings


def _check_models(results, hparams, hparams_diff):
    """Returns warnings about hparams and software."""
    warnings = []
    if changed := [name for name in _BATCHING if name in hparams_diff]:
        warnings.append(
            f"The sets differ in {', '.join(changed)}: their updates do not "
            "hold the same sentences."
        )
    versions: dict[str, str] = {}
    averages: dict[tuple[int, ...], str] = {}
    for one in filter(lambda one: one.record, results):  # of runs
        versions.setdefault(one.run.versions(), one.run.title)
        averages.setdefault((*one.record["average_of"],), one.run.title)
    if len(averages) > 1:
        of = [
            f"{title} of {', '.join(map(str, steps)) or 'none'}"
            for steps, title in averages.items()
        ]
        warnings.append(
            "The final models are averages of checkpoints of different steps: "
            f"{'; '.join(of)} are the first run of each."
        )
    equal: dict[hparam.HParams, list[str]] = {}
    for label, values in hparams.items():
        equal.setdefault(values, []).append(label)
    warnings += [
        f"These labels have equal hparams: {', '.join(labels)}."
        for labels in equal.values()
        if len(labels) > 1
    ]
    if len(versions) > 1:
        warnings.append(
            "The runs were trained with different versions or devices: "
            f"{', '.join(versions.values())} are the first run of each. "
            "versions.json in their directories lists them."
        )
    return warnings


def _hparams(by_label):
    """Returns the hparams of each label that has any."""
    return {
        label: own[0].run.files.read_hparams()
        for label, own in by_label.items()
        if own[0].record
    }


def _listed(numbers):
    return ", ".join(f"{label} {number:,}" for label, number in numbers.items())


def _scored(by_label, test_set, kinds):
    """Returns the scores of the labels that have translations of a set.

    They are `pairwise.Scores` by the name of the measure.
    """
    return {
        kind.name: {
            label: {
                one.run.seed: kind.scored(kind.counts_of(one, test_set))
                for one in own
            }
            for label, own in by_label.items()
            if kind.covers(own[0], test_set)
        }
        for kind in kinds
    }


def _run_row(result, sets, buckets, kinds, scored):
    """Returns the entry of a run in `runs`."""
    run, scores, equal = result.run, {}, {}
    bleu, *_ = kinds
    for one in sets:
        if one.name not in result.translations:
            continue
        equal[one.name] = np.array(
            metrics.exact_matches(result.translations[one.name], one.references)
        )
        by_kind = scored[one.name]
        counts = by_kind[bleu.name][run.label][run.seed].counts.sum(axis=0)
        scores[one.name] = row = {
            "exact_match": 100 * float(equal[one.name].mean()),
            "length_ratio": float(counts[0] / counts[1]),
            "brevity_penalty": math.exp(
                min(0.0, 1 - counts[1] / max(counts[0], 1))
            ),
        }
        for kind in kinds:
            if kind.name in by_kind:
                own = by_kind[kind.name].get(run.label)
                row[kind.field] = own and own[run.seed].score
                row[f"{kind.field}_signature"] = own and kind.signature()
    main = sets[0].name
    names = "parameters", "loss", "teacher_forced_accuracy"
    return {
        "label": run.label,
        "seed": run.seed,
        **run.describe(result.checkpoint),
        **{name: result.record.get(name) for name in names},
        **scores.pop(main),
        "further_test_sets": scores,
        "bleu_by_length": _by_length(
            bleu,
            scored[main][bleu.name][run.label][run.seed].counts,
            equal[main],
            buckets,
        ),
    }


def _doubts(result, sets, tokenize):
    """Returns the warnings about a run's translations."""
    return [
        f"{result.run.title}, {one.name}: {line}"
        for one in sets
        if one.name in result.translations
        for line in metrics.doubts(
            result.translations[one.name], one.references, tokenize
        )
    ]


def _by_length(bleu, counts, is_equal, buckets):
    """Returns the scores of the lines in each length bucket."""
    # Without 4-grams even the reference itself has the score 0.
    has_four = counts[:, 1] >= 4  # the tokens of the reference
    return [
        {
            "up_to": limit,
            "lines": len(lines),
            "bleu": float(bleu.score(counts[lines].sum(axis=0)))
            if has_four[lines].any()
            else None,
            "exact_match": 100 * float(is_equal[lines].mean())
            if lines
            else None,
        }
        for limit, lines in buckets
    ]


def _summary(by_label, rows, kinds, scores):
    """Returns a row for each label, over its seeds."""
    summary: list[dict[str, Any]] = []
    for label in by_label:
        columns = {
            name: [row[name] for row in rows if row["label"] == label]
            for name in rows[0]
        }
        row = {
            "label": label,
            "seeds": columns["seed"],
            "parameters": columns["parameters"][0],
            **_means(label, kinds, scores),
            "loss_mean": measures.mean(columns["loss"]),
            "loss_spread": measures.spread(columns["loss"]),
            **{
                f"{name}_mean": measures.mean(columns[name])
                for name in ("exact_match", "length_ratio", "brevity_penalty")
            },
            "bleu_by_length": _mean_by_length(columns["bleu_by_length"]),
            "learning_curve": _mean_curve(
                [one["dev"] for one in columns["learning_curve"]]
            ),
        }
        for unit in ("steps", "tokens"):
            name = f"{unit}_per_second"
            row[name] = measures.mean(columns[name])
            first = summary[0][name] if summary else row[name]
            row[f"{unit}_ratio"] = (
                row[name] / first if row[name] and first else None
            )
        memory = [m for m in columns["peak_memory_mb"] if m is not None]
        row["peak_memory_mb"] = max(memory, default=None)
        summary.append(row)
    return summary


def _means(label, kinds, scores):
    """Returns mean and spread over seeds of each measure."""
    row = {}
    for kind in kinds:
        own = scores[kind.name].get(label, {})
        values = [one.score for one in own.values()]
        row[f"{kind.field}_mean"] = measures.mean(values)
        row[f"{kind.field}_spread"] = measures.spread(values)
    return row


def _mean_by_length(seeds):
    """Returns the mean over seeds of each length bucket."""
    return [
        own[0]
        | {
            name: measures.mean([one[name] for one in own])
            for name in ("bleu", "exact_match")
        }
        for own in zip(*seeds, strict=True)
    ]


def _mean_curve(curves):
    """Returns `[step, loss, bleu]` over seeds, at the steps that all have.

    At a step that a seed lacks, the mean would jump.
    """
    known = [{row[0]: row[1:] for row in curve} for curve in curves]
    steps = sorted(set.intersection(*map(set, known)))
    return [
        [step, *np.mean([one[step] for one in known], axis=0).tolist()]
        for step in steps
    ]


def _further(test_set, kinds, scores):
    """Returns the entry of a further test set, with a row for each label."""
    bleu = kinds[0]
    return {
        "name": test_set.name,
        "lines": len(test_set.sources),
        "summary": [
            {"label": label, **_means(label, kinds, scores)}
            for label in scores[bleu.name]
        ],
        "pairs": pairwise.compare_all(scores[bleu.name], bleu),
    }


def _differences(by_label, test_set, kinds, scores):
    """Compares labels in pairs on the first test set.

    Returns:
        dict of `pairs`, see `pairwise.correct`, in BLEU, which also have their
        scores as `bleu_a` and `bleu_b`; `pairs_by_measure`, the same in other
        measures, by name; and `gaps`, see `_gaps`.
    """
    compared = {
        kind.name: pairwise.compare_all(scores[kind.name], kind)
        for kind in kinds
    }
    bleu, chrf, *_ = kinds
    in_bleu = compared.pop(bleu.name)
    return {
        "pairs": [
            {**pair, "bleu_a": pair["score_a"], "bleu_b": pair["score_b"]}
            for pair in in_bleu
        ],
        "pairs_by_measure": compared,
        "gaps": _gaps(by_label, test_set, in_bleu, scores[chrf.name], chrf),
    }


def _gaps(by_label, test_set, pairs, scores, measure):
    """Returns the sentences whose score is most above another label's.

    Returns:
        For either label of each pair a dict of `better` and `worse`, the
        labels, and `sentences`: what `_sample` returns of each, with `scores`,
        the means over seeds.
    """
    by_line = {
        label: np.mean([measure.score(x.counts) for x in own.values()], 0)
        for label, own in scores.items()
    }  # [L]
    gaps = []
    for pair in pairs:
        for labels in ((pair["a"], pair["b"]), (pair["b"], pair["a"])):
            ours, others = (by_line[label] for label in labels)
            order = np.argsort(others - ours, kind="stable")[:_MOST_GAPS]
            sentences = [
                _sample({x: by_label[x] for x in labels}, test_set, int(i))
                | {"scores": {x: by_line[x][i] for x in labels}}
                for i in order
                if ours[i] > others[i]
            ]
            better, worse = labels
            gaps.append(
                {"better": better, "worse": worse, "sentences": sentences}
            )
    return gaps


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
