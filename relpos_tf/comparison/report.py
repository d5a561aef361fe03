"""report.json: everything a comparison found."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf.comparison import measures
from relpos_tf.comparison import pairs as pairs_lib
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import scores as scores_lib
from relpos_tf.comparison import significance
from relpos_tf.comparison import variants
from relpos_tf.models import run_dir
from relpos_tf.training import metrics

# What is counted in percent, or in pieces, or in seconds, by run.
_MEANS = "bleu", "chrf", "loss"


class Result(NamedTuple):
    """A run and what its model made of the test set."""

    run: runs_lib.Run
    scored: scores_lib.Scored


def make(
    results: Sequence[Result],
    test_set: scores_lib.TestSet,
    problem: str,
    *,
    limits: Sequence[int] = (),
    num_samples: int = 10,
    command: str = "",
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the report, but for `attention`.

    Args:
        results: In the order of the labels.
        test_set: What was translated.
        problem: str. Its problem's name.
        limits: Upper limits of the length buckets, in source pieces with EOS.
            None: quartiles of the lengths.
        num_samples: int. How many translated lines to show.
        command: str. What made the report.
        warnings: What is to be known beside what is found here.
    """
    labels = list(dict.fromkeys(result.run.label for result in results))
    lengths = results[0].scored.record["source_lengths"]
    limits = list(limits) or measures.quartiles(lengths)
    buckets = measures.buckets(lengths, limits)
    rows, warned = [], list(warnings)
    for result in results:
        row, its_warnings = _run_row(result, test_set, buckets)
        rows.append(row)
        warned += its_warnings
    by_label = {
        label: pairs_lib.Results(
            {r["seed"]: r["bleu"] for r in rows if r["label"] == label},
            {
                r.run.seed: metrics.line_counts(
                    r.scored.translations, test_set.references
                )
                for r in results
                if r.run.label == label
            },
        )
        for label in labels
    }
    summary = _summary(labels, rows)
    chosen = pairs_lib.chosen(labels)
    p_below = pairs_lib.level(len(chosen))
    found = [pairs_lib.compare(a, b, by_label, p_below) for a, b in chosen]
    report = {
        "title": f"{problem}: {', '.join(labels)}",
        "verdict": pairs_lib.verdict(summary, found),
        "command": command,
        "problem": problem,
        "split": test_set.split,
        "labels": labels,
        "runs": rows,
        "summary": summary,
        "pairs": found,
        "hparams_diff": variants.differences(
            {r.run.label: r.run.files.read_hparams() for r in results}
        ),
        "samples": _samples(results, test_set, lengths, num_samples),
        "attention": {},
        "warnings": list(dict.fromkeys(warned + check_same(rows))),
        "versions": run_dir.versions(),
    }
    return measures.finite(report)


def check_same(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a line for each condition that was not the same for all runs."""
    found = []
    steps = {row["label"]: row["train_steps"] for row in rows}
    if len({row["train_steps"] for row in rows}) > 1:
        listed = ", ".join(f"{label} {n:,}" for label, n in steps.items())
        found.append(
            f"The runs have made different numbers of updates: {listed}."
        )
    for seed in dict.fromkeys(row["seed"] for row in rows):
        tokens = {
            row["label"]: row["target_tokens"]
            for row in rows
            if row["seed"] == seed and row["target_tokens"] is not None
        }
        if len(set(tokens.values())) > 1:
            listed = ", ".join(f"{label} {n:,}" for label, n in tokens.items())
            found.append(
                f"With seed {seed}, the runs have not been trained on the same "
                f"number of target tokens: {listed}."
            )
    seeds = {row["label"]: [] for row in rows}
    for row in rows:
        seeds[row["label"]].append(row["seed"])
    if len({tuple(sorted(map(str, own))) for own in seeds.values()}) > 1:
        found.append("Not all have the same seeds.")
    return found


def _run_row(result, test_set, buckets):
    """Returns what the report says of one run, and warnings."""
    run, scored = result
    translations, record = scored.translations, scored.record
    hparams = run.files.read_hparams()
    scores = metrics.corpus_bleu(translations, test_set.references)
    step = run_dir.checkpoint_step(scored.checkpoint)
    row = {
        "label": run.label,
        "hparams_set": run.hparams_set,
        "hparams": run.overrides,
        "seed": run.seed,
        "train_steps": step,
        "parameters": record["parameters"],
        "loss": record["loss"],
        "bleu": scores.bleu,
        "bleu_signature": scores.bleu_signature,
        "chrf": scores.chrf,
        "chrf_signature": scores.chrf_signature,
        "exact_match": scores.exact_match,
        "teacher_forced_accuracy": record["teacher_forced_accuracy"],
        "beam_size": hparams.beam_size,
        "alpha": hparams.alpha,
        "translation_seconds": record["translation_seconds"],
        "bleu_by_length": [
            _bucket_row(limit, lines, translations, test_set.references)
            for limit, lines in buckets
        ],
        "checkpoint": scored.checkpoint,
        "output_dir": str(run.path),
        **measures.of_training(run.files.read_metrics(), step),
    }
    return row, [f"{run.title}: {line}" for line in scores.warnings]


def _bucket_row(limit, lines, translations, references):
    """Returns what the report says of the lines of a length."""
    row = {
        "up_to": limit,
        "lines": len(lines),
        "bleu": None,
        "exact_match": None,
    }
    some = [references[i] for i in lines]
    if any(line.strip() for line in some):
        scores = metrics.corpus_bleu([translations[i] for i in lines], some)
        row["exact_match"] = scores.exact_match
        # Without 4-grams even the reference itself has the score 0.
        if metrics.line_counts(some, some)[:, -1].any():
            row["bleu"] = scores.bleu
    return row


def _summary(labels, rows):
    """Returns a row for each label, over its seeds."""
    found = []
    for label in labels:
        own = [row for row in rows if row["label"] == label]

        def values(name, own=own):
            return [row[name] for row in own]

        summary = {
            "label": label,
            "seeds": values("seed"),
            "parameters": own[0]["parameters"],
        }
        for name in _MEANS:
            summary[f"{name}_mean"] = significance.mean(values(name))
            summary[f"{name}_spread"] = significance.spread(values(name))
        summary["exact_match_mean"] = significance.mean(values("exact_match"))
        for name, ratio in (
            ("steps_per_second", "steps_ratio"),
            ("tokens_per_second", "tokens_ratio"),
        ):
            summary[name] = significance.mean(values(name))
            summary[ratio] = _ratio(
                summary[name], (found or [summary])[0][name]
            )
        memory = [m for m in values("peak_memory_mb") if m is not None]
        summary["peak_memory_mb"] = max(memory, default=None)
        found.append(summary)
    return found


def _ratio(value, of):
    return None if value is None or not of else value / of


def _samples(results, test_set, lengths, number):
    """Returns lines with every label's translation, of its first run."""
    firsts = {}
    for result in results:
        firsts.setdefault(result.run.label, result.scored.translations)
    return [
        {
            "source": test_set.sources[i],
            "reference": test_set.references[i],
            "translations": {
                label: translations[i] for label, translations in firsts.items()
            },
        }
        for i in measures.spread_out(lengths, number)
    ]
