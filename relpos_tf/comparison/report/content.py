"""report.json: the content of a comparison."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import measures
from relpos_tf.comparison import pairs as pairs_lib
from relpos_tf.comparison import score_cache
from relpos_tf.comparison import significance
from relpos_tf.comparison import variants
from relpos_tf.comparison import words
from relpos_tf.comparison.report import differences
from relpos_tf.comparison.report import reading
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from relpos_tf.training import metrics

# Scores whose mean and spread over seeds are reported.
_MEANS = "bleu", "chrf", "tokenized_bleu", "loss"
# The same for further test sets.
_MEANS_OF_FURTHER = "bleu", "chrf", "tokenized_bleu"
# Hparams that decide which pairs share an update.
_BATCHING = (
    "batch_size",
    "max_length",
    "min_length_bucket",
    "length_bucket_step",
    "optimizer_multistep_accumulate_steps",
)


def make(
    results: Sequence[score_cache.ModelResult],
    test_set: test_sets.TestSet,
    problem: Mapping[str, Any],
    *,
    further: Sequence[test_sets.TestSet] = (),
    limits: Sequence[int] = (),
    num_samples: int = 10,
    command: str = "",
    warnings: Sequence[str] = (),
    frequencies: Mapping[str, int] | None = None,
    baseline: str = "",
    tuning: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns the report.

    Args:
        results: Of all runs, in the order of the labels.
        test_set: The lines that were translated.
        problem: See `test_sets.problem_of`. Only its name is required.
        further: More test sets that were translated.
        limits: Upper limits of the length buckets, see `_lengths`. None:
            quartiles of the lengths.
        num_samples: int. How many translated lines to show.
        command: str. The command line that makes the report.
        warnings: More warnings, which come first.
        frequencies: How often words occur in the training data, if that is
            known, see `word_frequencies`.
        baseline: str. A label to put first, which others are compared with.
        tuning: What `tuning.Tuning.describe` returned, if there was a grid.
    """
    # The order of the others remains.
    results = sorted(results, key=lambda one: one.run.label != baseline)
    by_label = _by_label(results)
    labels = list(by_label)
    lengths, unit = _lengths(results, test_set)
    limits = list(limits) or measures.quartiles(lengths)
    buckets = measures.buckets(lengths, limits)
    rows, run_warnings = _run_rows(
        results, [test_set, *further], buckets, problem, frequencies
    )
    summary = _summary(labels, rows)
    compared = differences.describe(
        by_label, test_set, problem.get("target_language", "")
    )
    hparams_diff = _hparams_diff(results)
    all_warnings = [*warnings, *run_warnings]
    all_warnings += _check_all(results, rows, hparams_diff)
    report = {
        "title": f"{problem['problem']}: {', '.join(labels)}",
        "verdict": pairs_lib.verdict(summary, compared["pairs"]),
        "command": command,
        "problem": problem["problem"],
        "split": test_set.name,
        "length_unit": unit,
        "labels": labels,
        "runs": rows,
        "summary": summary,
        "further_test_sets": _further(by_label, rows, further),
        **compared,
        "hparams_diff": hparams_diff,
        "tuning": list(tuning),
        "samples": _samples(by_label, test_set, lengths, num_samples),
        "attention": _attention(by_label),
        "warnings": list(dict.fromkeys(all_warnings)),
        "versions": run_dir.versions(),
    }
    return measures.finite(report)


def _check_all(results, rows, hparams_diff):
    """Returns the warnings about all runs together."""
    return [
        *check_conditions(rows),
        *_check_batching(hparams_diff),
        *_check_versions(results),
        *_check_equal_hparams(results),
    ]


def check_conditions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
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
    warnings += _check_averages(rows)
    if len({reading.sharing_text(row) for row in rows}) > 1:
        warnings.append(
            "The runs did not share the machine alike, see Cost: their steps/s "
            "are not comparable."
        )
    seeds = {row["label"]: [] for row in rows}
    for row in rows:
        seeds[row["label"]].append(row["seed"])
    if len({tuple(sorted(map(str, own))) for own in seeds.values()}) > 1:
        warnings.append(
            "Not all labels have the same seeds: two labels are compared over "
            "the seeds that both have, if these are two or more, else over all."
        )
    return warnings


def _check_averages(rows):
    """Returns a warning if models are averages of other steps than others.

    Sets that ask for averages of other numbers of checkpoints differ by
    intention, which the table of hyper-parameters shows.
    """
    warnings = []
    for number in sorted({row["num_averaged"] for row in rows}):
        first_rows = {}
        for row in rows:
            steps = row["average_of"]
            if row["num_averaged"] == number > 1 and steps is not None:
                first_rows.setdefault(tuple(steps), row)
        if len(first_rows) > 1:
            listed = (
                f"{row['label']} seed {row['seed']} of "
                f"{', '.join(map(str, steps)) or 'none'}"
                for steps, row in first_rows.items()
            )
            warnings.append(
                "The final models are averages of the checkpoints of "
                f"different steps: {'; '.join(listed)} are the first of each. "
                "The same --local_eval_frequency gives the same steps."
            )
    return warnings


def _listed(numbers):
    return ", ".join(f"{label} {number:,}" for label, number in numbers.items())


def _hparams_diff(results):
    """Returns the hparams that differ between labels that have any."""
    by_label = {}
    for result in results:
        if hparams := result.run.hparams():
            by_label[result.run.label] = hparams
    return variants.differences(by_label)


def _check_batching(hparams_diff):
    changed = [name for name in _BATCHING if name in hparams_diff]
    if not changed:
        return []
    return [
        f"The sets differ in {', '.join(changed)}: their updates do not hold "
        "the same sentences."
    ]


def _check_versions(results):
    """Returns a warning if runs were trained with different software."""
    first_runs = {}
    for result in results:
        if text := result.run.versions():
            first_runs.setdefault(text, result.run.title)
    if len(first_runs) < 2:
        return []
    return [
        "The runs were trained with different software versions: "
        f"{', '.join(first_runs.values())} are the first run of each; see "
        "versions.json in their directories."
    ]


def _check_equal_hparams(results):
    """Returns a warning for each label whose hparams another label has."""
    warnings, labels = [], {}
    for result in results:
        label, hparams = result.run.label, result.run.hparams()
        if hparams is None:
            continue
        other = labels.setdefault(hparams.to_json(), label)
        if other != label:
            warnings.append(f"{other} and {label} have equal hparams.")
    return warnings


def _lengths(results, test_set):
    """Returns the lengths of the source lines, and their unit.

    Every run of ours has lengths in pieces, EOS included. Other systems have
    none: without a run, lengths are in words.
    """
    for result in results:
        if "source_lengths" in result.record:
            return result.record["source_lengths"], "pieces"
    return [len(line.split()) for line in test_set.sources], "words"


def _by_label(results):
    """Returns the results of each label."""
    by_label = {}
    for result in results:
        by_label.setdefault(result.run.label, []).append(result)
    return by_label


def _attention(by_label):
    """Returns the attention of the first run of each label that has any."""
    return {
        label: own[0].attention
        for label, own in by_label.items()
        if own[0].attention
    }


def _run_rows(results, sets, buckets, problem, frequencies):
    """Returns the entries of `runs`, and warnings."""
    rows, warnings = [], []
    for result in results:
        row, own_warnings = _run_row(result, sets, buckets, problem)
        row["words_by_frequency"] = None
        if frequencies is not None:
            row["words_by_frequency"] = words.by_frequency(
                result.translations, sets[0].references, frequencies
            )
        rows.append(row)
        warnings += own_warnings
    return rows, warnings


def _run_row(result, sets, buckets, problem):
    """Returns the entry of a run in `runs`, and warnings."""
    run, record = result.run, result.record
    translations, references = result.translations, sets[0].references
    language = problem.get("target_language", "")
    scores, warnings = _scores(translations, references, language)
    further = {}
    for one in sets[1:]:
        if one.name in result.further:
            further[one.name], more = _scores(
                result.further[one.name], one.references, language
            )
            warnings += [f"{one.name}: {line}" for line in more]
    row = {
        "label": run.label,
        "seed": run.seed,
        **run.describe(result.checkpoint),
        "parameters": record["parameters"],
        "loss": record["loss"],
        **scores,
        "further_test_sets": further,
        "teacher_forced_accuracy": record["teacher_forced_accuracy"],
        "translation_seconds": record["translation_seconds"],
        "translation_jobs": record.get("jobs", 1),
        "bleu_by_length": [
            _bucket_row(limit, lines, translations, references)
            for limit, lines in buckets
        ],
    }
    return row, [f"{run.title}: {line}" for line in warnings]


def _scores(translations, references, language):
    """Returns the scores of a test set as fields of a row, and warnings."""
    scores = metrics.corpus_bleu(translations, references)
    row = {
        "bleu": scores.bleu,
        "bleu_signature": scores.bleu_signature,
        "chrf": scores.chrf,
        "chrf_signature": scores.chrf_signature,
        **dict.fromkeys(metrics.TokenizedScore._fields),
        "exact_match": scores.exact_match,
    }
    if metrics.has_moses_rules(language):
        row |= metrics.tokenized_bleu(
            translations, references, language
        )._asdict()
    return row, list(scores.warnings)


def _bucket_row(limit, lines, translations, references):
    """Returns the scores of the lines in a length bucket."""
    row = {
        "up_to": limit,
        "lines": len(lines),
        "bleu": None,
        "exact_match": None,
    }
    expected = [references[i] for i in lines]
    if any(line.strip() for line in expected):
        scores = metrics.corpus_bleu([translations[i] for i in lines], expected)
        row["exact_match"] = scores.exact_match
        # Without 4-grams even the reference itself has the score 0.
        if corpus_measures.Bleu().counts(expected, expected)[:, -1].any():
            row["bleu"] = scores.bleu
    return row


def _summary(labels, rows):
    """Returns a row for each label, over its seeds."""
    summary = []
    for label in labels:
        columns = {
            name: [row[name] for row in rows if row["label"] == label]
            for name in rows[0]
        }
        row = {
            "label": label,
            "seeds": columns["seed"],
            "parameters": columns["parameters"][0],
        }
        row |= _means(columns, _MEANS)
        row["exact_match_mean"] = significance.mean(columns["exact_match"])
        for unit in ("steps", "tokens"):
            name = f"{unit}_per_second"
            row[name] = significance.mean(columns[name])
            first = summary[0] if summary else row
            row[f"{unit}_ratio"] = _ratio(row[name], first[name])
        memory = [m for m in columns["peak_memory_mb"] if m is not None]
        row["peak_memory_mb"] = max(memory, default=None)
        summary.append(row)
    return summary


def _further(by_label, rows, further):
    """Returns each further test set, with a row for each label."""
    entries = []
    for one in further:
        summary = []
        for label in by_label:
            own = [
                row["further_test_sets"][one.name]
                for row in rows
                if row["label"] == label
                and one.name in row["further_test_sets"]
            ]
            if not own:
                continue
            columns = {name: [row[name] for row in own] for name in own[0]}
            means = _means(columns, _MEANS_OF_FURTHER)
            summary.append({"label": label, **means})
        entries.append(
            {
                "name": one.name,
                "lines": len(one.sources),
                "summary": summary,
                "pairs": differences.in_further_set(by_label, one),
            }
        )
    return entries


def _means(columns, names):
    """Returns mean and spread over seeds of the named columns."""
    row = {}
    for name in names:
        row[f"{name}_mean"] = significance.mean(columns[name])
        row[f"{name}_spread"] = significance.spread(columns[name])
    return row


def _ratio(value, base):
    return None if value is None or not base else value / base


def _samples(by_label, test_set, lengths, number):
    """Returns lines with their translations by the first run of each label."""
    return [
        {
            "source": test_set.sources[i],
            "reference": test_set.references[i],
            "translations": {
                label: own[0].translations[i] for label, own in by_label.items()
            },
        }
        for i in measures.spread_out(lengths, number)
    ]
