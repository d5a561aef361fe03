"""The interface of what is compared: a run, or another translation system."""

from typing import Any
from typing import Protocol

from relpos_tf import hparam


class System(Protocol):
    """A model with one seed: a run of ours (`runs.Run`) or another system's.

    Attributes:
        label: str. Systems with one label are trainings of the same model.
        seed: int | str | None. A number is a run's seed; models of two labels
            are compared seed by seed where the numbers are the same. None, or
            a string that tells several apart: it is unknown.
    """

    label: str
    seed: int | str | None

    @property
    def title(self) -> str:
        """Its name in messages."""

    def hparams(self) -> hparam.HParams | None:
        """Returns its hparams; None if it has none."""

    def versions(self) -> str:
        """Returns the software that trained it; "" if it is unknown."""

    def describe(self, checkpoint: str) -> dict[str, Any]:
        """Returns what is known of its training, with the names of the report.

        Args:
            checkpoint: str. Prefix of the model; "" for other systems.

        Returns:
            dict of `hparams_set`, `hparams`, `train_steps`, `beam_size`,
            `alpha`, `checkpoint`, `output_dir` (its folder or file), `sharing`
            (see `RunDir.read_sharing`), `num_averaged` (of how many
            checkpoints its set asks for an average), `average_of` (the steps
            of those that were averaged, [] without an average), and the items
            of `measures.of_training`. If only translations are known,
            `train_steps` is None, and others may be.
        """
