"""Scores finished runs and makes the report."""

import pathlib
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import content
from relpos_tf.comparison import outputs as outputs_lib
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import scoring
from relpos_tf.comparison import segment_scores
from relpos_tf.problems import test_sets

_MISSING = "Training or scoring has failed; see the logs. Not in the report:"


def collect(
    runs: Sequence[runs_lib.Run],
    train_steps: int,
    data_dir: str,
    folder: pathlib.Path,
    *,
    use_test_set: bool = True,
    outputs: Sequence[outputs_lib.Output] = (),
    tuning: Sequence[dict[str, Any]] = (),
    segments: Sequence[str] = (),
    **options,
) -> dict[str, Any]:
    """Scores the runs that are finished and returns the report.

    Args:
        runs: The runs. Those whose training or scoring fails are named as
            `missing` and in the warnings.
        train_steps: int. Their last step; 0: the newest of each.
        data_dir: str. Folder of prepared data.
        folder: Keeps translations and scores, see `scoring.score`.
        use_test_set: bool. Whether to take the test sets, if there are any;
            else the development split.
        outputs: Translations of other systems; they come last.
        tuning: The entries of `tuning.choose`, if there was a grid.
        segments: As `segment_scores.read` takes them.
        **options: Other arguments of `content.make`.

    Raises:
        UserError: the runs cannot be compared, or none can be scored; or
            other translations do not fit the test sets.
    """
    planned = runs
    if train_steps:
        runs = [run for run in runs if runs_lib.is_finished(run, train_steps)]
    _missing(planned, runs)
    problem = common_problem(runs)
    sets = open_test_sets(data_dir, problem, use_test_set)
    warnings = []
    if use_test_set and sets[0].name == "dev":
        warnings.append(
            f"{problem['problem']} has no test split: the scores are of the "
            "development split, which was also evaluated during training."
        )
    if not train_steps:
        warnings += filter(None, (run.files.unfinished() for run in runs))
    warnings += _warnings_of_tuning(tuning, sets[0])
    # Mistakes are found before minutes of translation.
    others = [outputs_lib.read(one, sets) for one in outputs]
    lines = len(sets[0].sources)
    measures = segment_scores.read(segments, [*runs, *outputs], lines)
    results = scoring.score(runs, train_steps, sets, folder)
    if missing := _missing(planned, [one.run for one in results]):
        warnings.insert(0, f"{_MISSING} {', '.join(missing)}.")
    report = content.make(
        [*results, *others],
        sets,
        problem,
        warnings=warnings,
        tuning=tuning,
        segments=measures,
        **options,
    )
    return report | {"missing": missing}


def _missing(planned, found) -> list[str]:
    """Returns the titles of the runs that are not found; refuses all."""
    missing = [run.title for run in planned if run not in found]
    if not found:
        raise errors.UserError(f"{_MISSING} {', '.join(missing)}.")
    return missing


def _warnings_of_tuning(tuning, test_set):
    """Returns warnings about points of a grid and the lines that chose them."""
    warnings = []
    if tuning and test_set.name == "dev":
        warnings.append(
            "The scores are of the development split, which also chose the "
            "points of the grid: they are too high."
        )
    for name in {x: None for entry in tuning for x in entry["at_edge"]}:
        labels = [x["label"] for x in tuning if name in x["at_edge"]]
        warnings.append(
            f"At the edge of the grid: the best {name} of {', '.join(labels)}. "
            "A better one may lie beyond."
        )
    return warnings


def open_test_sets(
    data_dir: str, problem: dict[str, Any], use_test_set: bool
) -> list[test_sets.TestSet]:
    """Returns the sets on which models are compared, the main one first.

    Args:
        data_dir: str. Folder of prepared data.
        problem: The result of `common_problem`.
        use_test_set: bool. Whether to take the test sets, if there are any.

    Raises:
        UserError: the data are missing, or differ from the data of the runs.
    """
    if use_test_set and (found := test_sets.of_problem(data_dir, problem)):
        return found
    return test_sets.of_problem(data_dir, problem, ["dev"])


def common_problem(runs: Sequence[runs_lib.Run]) -> dict[str, Any]:
    """Returns the problem that all runs learn, see `test_sets.problem_of`.

    Raises:
        UserError: they differ in problem, vocabulary or training data.
    """
    first = test_sets.problem_of(runs[0].files)
    known: dict[str, str] = {}
    for run in runs:
        other = test_sets.problem_of(run.files)
        sets = {f"{x} set": text[:8] for x, text in other["data"].items()}
        for name, b in {
            "problem": other["problem"],
            "vocabulary": other["tokenizer_sha256"][:8],
            **dict(sorted(sets.items())),
        }.items():
            if (a := known.setdefault(name, b)) != b:
                raise errors.UserError(
                    "Expected runs of the same problem, vocabulary and data. "
                    f"Received: {runs[0].path} and {run.path}, whose {name} "
                    f"differs ({a}, {b})."
                )
        first["data"] |= other["data"]
    return first
