"""Whether runs were made with the text of one's own that flags name now."""

import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import problem as problem_lib


def check(
    runs: Sequence[runs_lib.Run],
    data_dir: str | pathlib.Path,
    problem: problem_lib.Problem,
) -> None:
    """Checks that runs have the text of a problem, wherever its files lie.

    Without this, finished runs would be scored on the text that they know, and
    other files would be ignored.

    Args:
        runs: The runs. Those that have not begun, those without problem.json,
            as imported runs, and those whose prepared data are gone are not
            checked.
        data_dir: Folder of prepared data.
        problem: The problem, of `translate.files_problem`.

    Raises:
        UserError: a run has other text, or a vocabulary of another size.
    """
    given = {**problem.settings, "vocab_size": problem.vocab_size}
    prepared = _prepared(data_dir, problem.name)
    for run in runs:
        if not run.files.has_hparams():
            continue
        data = run.files.read_problem().get("data")
        changed = [
            _changed(settings, given)
            for prints, settings in prepared
            if data and prints == data
        ]
        if changed and all(changed):
            raise errors.UserError(
                f"The run {run.path} was made with other text: "
                f"{', '.join(changed[0])} named other files, or files of "
                "other content. Give the same text, or name another "
                "--output_dir."
            )


def _prepared(data_dir, name):
    """Returns the fingerprints and the settings of a problem's folders."""
    manifests = [
        manifest_lib.read_manifest(folder)
        for folder in manifest_lib.folders(data_dir, name)
        if (folder / manifest_lib.MANIFEST).is_file()
    ]
    return [(manifest_lib.fingerprints(m), m["settings"]) for m in manifests]


def _changed(
    settings: Mapping[str, Any], given: Mapping[str, Any]
) -> list[str]:
    """Returns the flags whose files, or values, are not those of settings."""
    names = [
        name
        for name in {**settings, **given}
        # Others are the same for all text.
        if name == "vocab_size" or re.match("train_|dev_|test_", name)
    ]
    flags = [
        "--" + re.sub(r"^test_\d+_", "test_", name)
        for name in names
        if settings.get(name) != given.get(name)
    ]
    return list(dict.fromkeys(flags))
