"""Sets of lines with references, to score models on. No TensorFlow.

A run's problem.json names its problem and has a checksum of each split. With
it, the same lines are found again in the folder of prepared data.
"""

import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.utils import files
from relpos_tf.utils import text

# The name that stands for all test sets of a problem.
ALL = "all"


class TestSet(NamedTuple):
    """Lines to translate, and their translations by people.

    Attributes:
        name: str. "dev", "test", the name of another test set of a problem,
            or sacreBLEU's name.
        sources: The lines.
        references: Their translations; of each line, one or a tuple of several.
        source_path: File of the lines.
        reference_path: File of the translations; several have commas between.
        fingerprint: str. Checksum of the content, if it is known.
    """

    name: str
    sources: list[str]
    references: list[Any]
    source_path: pathlib.Path
    reference_path: pathlib.Path
    fingerprint: str = ""


def paired_lines(paths: Sequence[str | pathlib.Path], number: int) -> list[Any]:
    """Returns the lines of a file; of several files, tuples of their lines.

    Args:
        paths: The files.
        number: int. The lines that each should have.

    Raises:
        UserError: a file has more or fewer.
    """
    columns = []
    for path in paths:
        columns.append(list(text.checked_lines(path)))
        if len(columns[-1]) != number:
            raise errors.UserError(
                f"Expected {number:,} lines in {path}, one for each line of "
                f"the text. Received: {len(columns[-1]):,}."
            )
    return columns[0] if len(paths) == 1 else list(zip(*columns, strict=True))


def problem_of(run: run_dir.RunDir) -> dict[str, Any]:
    """Returns the problem of a run and the checksum of its tokenizer.

    Returns:
        Its problem.json, and `tokenizer_sha256` of the file in the run.

    Raises:
        UserError: it has no problem.json or tokenizer, as an imported run.
    """
    problem = run.read_problem()
    tokenizer = pathlib.Path(run.tokenizer_path)
    if not {"problem", "data"} <= problem.keys() or not tokenizer.is_file():
        raise errors.UserError(
            "Expected a run with a tokenizer and a problem.json that names its "
            f"problem. Received: {run.path}. Train the run on a problem."
        )
    return problem | {"tokenizer_sha256": files.sha256(tokenizer)}


def of_problem(
    data_dir: str, problem: dict[str, Any], names: Sequence[str] = (ALL,)
) -> list[TestSet]:
    """Returns sets of a problem that models of it can be scored on.

    Args:
        data_dir: str. Folder of prepared data.
        problem: What `problem_of` returned.
        names: Of the sets; `ALL` stands for all test sets. "dev" is the
            development set, which does not count as a test set.

    Raises:
        UserError: the data are missing, or differ from the data of the run;
            or they have no such set.
    """
    folder, manifest = prepared_data(data_dir, problem, names)
    known = manifest_lib.test_sets(manifest)
    wanted = []
    for name in names:
        wanted += known if name == ALL else [name]
    for name in wanted:
        if name not in [*known, "dev"]:
            raise errors.UserError(
                f"Expected a set of {problem['problem']} in {folder}: "
                f"{', '.join([*known, 'dev'])}. Received: {name}. To add one, "
                "prepare the data again with --generate_data."
            )
    fingerprints = manifest_lib.fingerprints(manifest)
    return [
        TestSet(
            name,
            *manifest_lib.lines(folder, manifest, name),
            folder / f"{name}.source",
            folder / f"{name}.target",
            fingerprints[name],
        )
        for name in dict.fromkeys(wanted)
    ]


def is_split(name: str) -> bool:
    """Returns whether a name is one of a problem's sets, not sacreBLEU's."""
    return name in (ALL, "dev") or manifest_lib.is_test_set(name)


def prepared_data(
    data_dir: str, problem: dict[str, Any], wanted: Sequence[str]
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Returns the folder and the manifest of the runs' data.

    Several may have these. The wanted sets count first, and then to have the
    splits of the runs, and no others.
    """
    name, found, others = problem["problem"], [], []
    for folder in manifest_lib.folders(data_dir, name):
        manifest = manifest_lib.read_manifest(folder)
        known = manifest_lib.fingerprints(manifest)
        # Test sets may have been added or left out after training.
        is_same = all(
            known.get(split, fingerprint) == fingerprint
            for split, fingerprint in problem["data"].items()
        )
        checksums = [file["sha256"] for file in manifest["files"].values()]
        if is_same and problem["tokenizer_sha256"] in checksums:
            lacks = {*wanted} - known.keys()
            if manifest_lib.test_sets(manifest):
                lacks -= {ALL}
            differs = known.keys() ^ problem["data"].keys()
            found.append((-len(lacks), -len(differs), folder, manifest))
        others.append(str(folder))
    if found:
        return max(found, key=lambda one: one[:2])[2:]
    raise errors.UserError(
        f"Expected the data of {name} that the runs were trained on, in "
        f"--data_dir={data_dir}. Received: "
        + (f"other data, in {', '.join(others)}." if others else "none.")
        + " Prepare them with relpos-datagen."
    )
