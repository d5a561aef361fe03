"""What translates a batch of lines with an exported SavedModel.

Shapes: N lines.
"""

import json
import pathlib

import tensorflow as tf

from relpos_tf import decode_hparam
from relpos_tf import engines
from relpos_tf import errors


class ExportEngine:
    """A SavedModel that `export.export_saved_model` wrote.

    Args:
        folder: str or path. The SavedModel.

    Raises:
        UserError: there is none, or it is damaged.
    """

    def __init__(self, folder: str | pathlib.Path):
        path = pathlib.Path(folder, engines.EXPORT_INFO)
        try:
            self.info = json.loads(path.read_text(encoding="utf-8"))
            self._module = tf.saved_model.load(str(folder))
            self._function = self._module.signatures["details"]
        except (OSError, ValueError, KeyError) as error:
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
        fixed = self.info["decode_hparams"]
        for name, value in wanted.search_settings().items():
            if value not in (None, fixed[name]):
                raise errors.UserError(
                    f"This export was made with {name}={fixed[name]}. "
                    f"Received: {name}={value}. Export again, or translate "
                    "with the run."
                )
        return wanted.fill(decode_hparam.DecodeHParams(**fixed))

    def items(self, lines: list[str]) -> list[engines.Item]:
        """Asks the SavedModel how long the lines are."""
        strings = [line.encode("utf-8", errors="replace") for line in lines]
        sizes = self._module.count_ids(tf.constant(strings)).numpy()
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
