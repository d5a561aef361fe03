"""The files of exports, of every format. No TensorFlow.

Each export has an `export_info.json`, which names its format and has the
checksums of its other files. The checksums show damage. They do not make a
stranger's export safe: a SavedModel is a program, so load those alone whose
maker you trust.
"""

import pathlib
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.models import run_dir
from relpos_tf.utils import checked_json
from relpos_tf.utils import files

EXPORT_INFO = "export_info.json"
# The fields of `export_info.json` that are read.
_FIELDS = {
    "format": str,
    "files": dict[str, str],
    "decode_hparams": dict,
    "tokenizer": str,
    "tokenizer_sha256": str,
    "longest_source": int,
    "max_positions": int | None,
}


def is_export(path: str | pathlib.Path) -> bool:
    """Returns whether a directory is an export and not a run."""
    return (
        pathlib.Path(path, EXPORT_INFO).is_file()
        and not pathlib.Path(path, run_dir.HPARAMS).exists()
        and not run_dir.all_steps(path)
    )


def read_info(folder: str | pathlib.Path) -> dict[str, Any]:
    """Returns the content of an export's `export_info.json`.

    Raises:
        UserError: the file is missing or damaged.
    """
    path = pathlib.Path(folder, EXPORT_INFO)
    try:
        return checked_json.read(path, _FIELDS, "Or export to another folder.")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.UserError(
            "Expected a folder made by relpos-export. "
            f"Received: {folder}, without {EXPORT_INFO}. A run is "
            "named with --output_dir."
        ) from error


def read(
    folder: str | pathlib.Path,
) -> tuple[dict[str, Any], decode_hparam.DecodeHParams]:
    """Reads an export's `export_info.json`, and compares all checksums.

    Returns:
        A pair: its content, and the settings of the search in it.

    Raises:
        UserError: a file is missing or damaged.
    """
    info = read_info(folder)
    for name, expected in info["files"].items():
        path = pathlib.Path(folder, name)
        if not path.is_file() or files.sha256(path) != expected:
            state = "damaged" if path.is_file() else "missing"
            raise errors.UserError(
                f"{path} is {state}: expected the file that was exported, of "
                f"sha256 {expected[:8]}... Export again, or copy it again."
            )
    fields.check_names(info["decode_hparams"], decode_hparam.EXPORTED)
    return info, decode_hparam.DecodeHParams(**info["decode_hparams"])


def file_checksums(folder: str | pathlib.Path) -> dict[str, str]:
    """Returns the sha256 of each file of an export, by its name there.

    It is the field `files` of `export_info.json`, which has its own checksum.
    """
    folder = pathlib.Path(folder)
    return {
        path.relative_to(folder).as_posix(): files.sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != EXPORT_INFO
    }
