"""From finished runs to the report: scores, attention, warnings."""

import pathlib
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import measures
from relpos_tf.comparison import report as report_lib
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import scores as scores_lib

# Lines whose attention is averaged.
_ATTENTION_LINES = 40
# Hparams that decide which pairs come together in an update.
_BATCHES = (
    "batch_size",
    "max_length",
    "min_length_bucket",
    "length_bucket_step",
    "optimizer_multistep_accumulate_steps",
)


def collect(
    runs: Sequence[runs_lib.Run],
    train_steps: int,
    data_dir: str,
    folder: pathlib.Path,
    *,
    use_test_set: bool = True,
    limits: Sequence[int] = (),
    num_samples: int = 10,
    command: str = "",
) -> dict[str, Any]:
    """Scores all runs and returns the report.

    Args:
        runs: Finished runs.
        train_steps: int. At which step they ended; 0: at their newest.
        data_dir: str. Where their data were prepared.
        folder: Has, or gets, translations and scores, which are not made
            again while model and data stay the same.
        use_test_set: bool. False: the development split.
        limits: See `report.make`.
        num_samples: int. See `report.make`.
        command: str. See `report.make`.

    Raises:
        UserError: the runs cannot be compared, or cannot be scored.
    """
    problem = same_problem(runs)
    check_labels(runs)
    checkpoints = [runs_lib.final_checkpoint(run, train_steps) for run in runs]
    test_set = scores_lib.open_test_set(data_dir, problem, use_test_set)
    warnings = []
    if use_test_set and test_set.split != "test":
        warnings.append(
            f"{problem['problem']} has no test split: the scores are of the "
            "development split, which training was watched on."
        )
    shown = attention_lines(test_set.sources)
    results, firsts = [], {}
    for number, run in enumerate(runs):
        scored = scores_lib.score(
            run,
            checkpoints[number],
            test_set,
            folder,
            f"[{number + 1}/{len(runs)}] {run.title}",
            # Of the other seeds, nobody wants to see as much.
            () if run.label in firsts else shown,
        )
        results.append(report_lib.Result(run, scored))
        firsts.setdefault(run.label, scored)
        warnings += filter(None, [scored.warning])
    # Label by label, though they were trained seed by seed.
    results.sort(key=lambda result: list(firsts).index(result.run.label))
    report = report_lib.make(
        results,
        test_set,
        problem["problem"],
        limits=limits,
        num_samples=num_samples,
        command=command,
        warnings=warnings,
    )
    report["warnings"] += _unlike(report, results)
    report["attention"] = {
        label: measures.finite(scored.attention)
        for label, scored in firsts.items()
        if scored.attention
    }
    return report


def same_problem(runs: Sequence[runs_lib.Run]) -> dict[str, Any]:
    """Returns what all runs learn.

    Raises:
        UserError: they differ in problem, vocabulary or training data.
    """
    first = runs_lib.problem_of(runs[0])
    for run in runs[1:]:
        other = runs_lib.problem_of(run)
        pairs = [
            ("problem", first["problem"], other["problem"]),
            (
                "vocabulary",
                first["tokenizer_sha256"][:8],
                other["tokenizer_sha256"][:8],
            ),
        ]
        known = first.get("data", {}), other.get("data", {})
        for split in sorted(set(known[0]) & set(known[1])):
            pairs.append((f"{split} set", *(side[split][:8] for side in known)))
        for name, a, b in pairs:
            if a != b:
                raise errors.UserError(
                    "Expected runs of the same problem, vocabulary and data. "
                    f"Received: {runs[0].path} and {run.path}, whose {name} "
                    f"differs ({a}, {b})."
                )
        # Runs of earlier versions do not know theirs.
        first["data"] = first.get("data", {}) | other.get("data", {})
    return first


def check_labels(runs: Sequence[runs_lib.Run]) -> None:
    """Raises UserError if runs of one label have different hparams."""
    firsts = {}
    for run in runs:
        first = firsts.setdefault(run.label, run)
        changed = hparam.differences(
            first.files.read_hparams(), run.files.read_hparams()
        )
        if changed:
            raise errors.UserError(
                f"Expected the same hparams for all runs of {run.label}. "
                f"Received: {first.path} and {run.path}, which differ in "
                f"{', '.join(changed)}."
            )


def attention_lines(sources: Sequence[str]) -> list[str]:
    """Returns lines of all lengths, those of middle length first."""
    order = measures.spread_out([len(s) for s in sources], _ATTENTION_LINES)
    middle = len(order) // 2
    return [sources[i] for i in order[middle:] + order[:middle]]


def _unlike(report, results):
    """Returns a line for what else was not the same for all."""
    found = []
    changed = [name for name in _BATCHES if name in report["hparams_diff"]]
    if changed:
        found.append(
            f"The sets differ in {', '.join(changed)}: their updates are not "
            "of the same sentences."
        )
    versions = {}
    for result in results:
        path = result.run.path / "versions.json"
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            versions.setdefault(text, result.run.title)
    if len(versions) > 1:
        found.append(
            "The runs were trained with different versions of the software: "
            f"{', '.join(versions.values())} are the first of each; see their "
            "versions.json."
        )
    by_label = {}
    for result in results:
        hparams = result.run.files.read_hparams().to_json()
        other = by_label.setdefault(hparams, result.run.label)
        if other != result.run.label:
            found.append(f"{other} and {result.run.label} have equal hparams.")
    return list(dict.fromkeys(found))
