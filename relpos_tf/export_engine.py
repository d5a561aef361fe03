"""What translates a batch of lines with an exported SavedModel.

Shapes: N lines.
"""

import pathlib
from typing import Any

import tensorflow as tf

from relpos_tf import checked_json
from relpos_tf import decode_hparam
from relpos_tf import engines
from relpos_tf import errors
from relpos_tf import paths

# What loading a damaged export of before there were checksums may raise.
_FAULTS = (
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    tf.errors.OpError,
)


def read_info(folder: str | pathlib.Path) -> dict[str, Any]:
    """Returns what an export says of itself.

    Raises:
        UserError: it does not, or its words are damaged.
    """
    path = pathlib.Path(folder, engines.EXPORT_INFO)
    try:
        return checked_json.loads(path.read_bytes())
    except OSError as error:
        raise errors.UserError(
            "Expected a folder made by relpos_tf.bin.export. "
            f"Received: {folder}, without {engines.EXPORT_INFO}."
        ) from error
    except ValueError as error:
        raise errors.UserError(
            f"{path} is damaged: {error} Or export again."
        ) from error


def file_checksums(folder: str | pathlib.Path) -> dict[str, str]:
    """Returns the sha256 of each file of an export, by its name therein.

    `export_info.json`, where this belongs as `files`, bears its own.
    """
    folder = pathlib.Path(folder)
    return {
        path.relative_to(folder).as_posix(): checked_json.file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != engines.EXPORT_INFO
    }


def check_files(folder: str | pathlib.Path, info: dict[str, Any]) -> None:
    """Compares an export's files with what it says of them.

    Args:
        folder: The export.
        info: What `read_info` returned. Nothing is compared where it has no
            `files`, as in exports of earlier versions.

    Raises:
        UserError: a file is damaged or missing.
    """
    for name, expected in info.get("files", {}).items():
        path = file_of(folder, name)
        if not path.is_file() or checked_json.file_sha256(path) != expected:
            state = "damaged" if path.is_file() else "missing"
            raise errors.UserError(
                f"{path} is {state}: expected the file that was exported, of "
                f"sha256 {expected[:8]}... Export again, or copy it again."
            )


def file_of(folder: str | pathlib.Path, name: str) -> pathlib.Path:
    """Returns the path of a file that an export names.

    Raises:
        UserError: the name leads out of the folder.
    """
    parts = pathlib.PurePosixPath(name).parts
    if not parts or ".." in parts or pathlib.PurePath(name).is_absolute():
        raise errors.UserError(
            f"{pathlib.Path(folder, engines.EXPORT_INFO)} is damaged: "
            f"expected names of files in its folder. Received: {name!r}."
        )
    return pathlib.Path(folder, *parts)


class ExportEngine:
    """A SavedModel that `export.export_saved_model` wrote.

    Args:
        folder: str or path. The SavedModel.

    Raises:
        UserError: there is none, or it is damaged.
    """

    def __init__(self, folder: str | pathlib.Path):
        self.info = read_info(folder)
        check_files(folder, self.info)
        try:
            self._fixed = decode_hparam.DecodeHParams(
                **self.info["decode_hparams"]
            )
            self._module = tf.saved_model.load(paths.plain(folder))
            self._function = self._module.signatures["details"]
            self._count_ids = self._module.count_ids
        except _FAULTS as error:
            reason = " ".join(str(error).split())
            raise errors.UserError(
                "Expected a SavedModel made by relpos_tf.bin.export. "
                f"Received: {folder} ({reason})."
            ) from error

    def settings(
        self, wanted: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Returns the settings of the export.

        Raises:
            UserError: others are wanted.
        """
        wanted.check_plain("An export")
        if wanted.max_input_size:
            self.truncate(None, wanted.max_input_size)
        fixed = self._fixed.search_settings()
        for name, value in wanted.search_settings().items():
            if value not in (None, fixed[name]):
                raise errors.UserError(
                    f"This export was made with {name}={fixed[name]}. "
                    f"Received: {name}={value}. Export again, or translate "
                    "with the run."
                )
        return wanted.fill(self._fixed)

    def items(self, lines: list[str]) -> list[engines.Item]:
        """Asks the SavedModel how long the lines are."""
        strings = [line.encode("utf-8", errors="replace") for line in lines]
        sizes = self._count_ids(tf.constant(strings)).numpy()
        return list(map(engines.Item, strings, sizes.tolist()))

    def truncate(self, item: engines.Item, size: int) -> engines.Item:
        """Refuses: only ids can be cut, and here they are inside."""
        raise errors.UserError(
            f"`max_input_size` does not work with an export. Received: {size}."
        )

    def translate(
        self,
        items: list[engines.Item],
        settings: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[engines.Translation]:
        """Translates lines in one batch."""
        del settings  # they are part of the graph
        outputs = self._function(
            inputs=tf.constant([item.content for item in items])
        )
        texts = outputs["beam_outputs"][:, :n_best].numpy().tolist()
        scores = outputs["beam_scores"][:, :n_best].numpy().tolist()
        is_complete = outputs["is_complete"].numpy().tolist()
        return [
            engines.Translation([text.decode() for text in beams], points, good)
            for beams, points, good in zip(
                texts, scores, is_complete, strict=True
            )
        ]
