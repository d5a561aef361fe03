"""How a run is carried out, and when it ends."""

import dataclasses
import logging
import math
from typing import NamedTuple

from relpos_tf import errors

_log = logging.getLogger("relpos_tf")


class Metric(NamedTuple):
    """A score by which training may stop.

    Attributes:
        minimize: bool. Whether less is better.
        delta: float. The least change that counts as an improvement.
    """

    minimize: bool
    delta: float


METRICS = {
    "loss": Metric(minimize=True, delta=0.1),
    "bleu": Metric(minimize=False, delta=0.1),
    "chrf": Metric(minimize=False, delta=0.1),
    "exact_match": Metric(minimize=False, delta=0.1),
    # A share of 1; the others are per cent.
    "teacher_forced_accuracy": Metric(minimize=False, delta=0.001),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a run is carried out. The names are those of the trainer's flags.

    Raises:
        UserError: there is no such metric to stop by.
    """

    train_steps: int = 0  # 0: the hparams' own
    eval_steps: int = 100  # batches of the teacher-forced evaluation
    local_eval_frequency: int = 1000  # steps between evaluations
    save_checkpoints_secs: int = 0  # 0: save at each evaluation
    keep_checkpoint_max: int = 20
    log_step_count_steps: int = 100
    random_seed: int = 1
    xla_compile: bool = False
    eval_early_stopping_steps: int = 0  # 0: never
    eval_early_stopping_metric: str = "loss"
    # None here and below: that of the metric, see `METRICS`.
    eval_early_stopping_metric_delta: float | None = None
    eval_early_stopping_metric_minimize: bool | None = None
    warm_start_from: str = ""
    profile: bool = False
    evaluate: bool = True  # whether to evaluate while training
    eval_split: str = "dev"

    def __post_init__(self):
        if self.eval_early_stopping_metric not in METRICS:
            raise errors.UserError(
                "--eval_early_stopping_metric must be one of "
                f"{', '.join(METRICS)}. Received: "
                f"{self.eval_early_stopping_metric!r}."
            )

    def check_devices(self, replicas: int) -> None:
        """Raises UserError if so many devices cannot be used this way.

        XLA refuses to read a variable that lies on another device.
        """
        if self.xla_compile and replicas > 1:
            raise errors.UserError(
                "--xla_compile works on one device only. Received: "
                f"{replicas} devices. Leave it out, or use one of them "
                "(--worker_gpu=1, or no --num_logical_cpus)."
            )


class EarlyStopping:
    """Says when a metric has stopped improving.

    Args:
        settings: `Settings`. Those that begin with `eval_early_stopping`.
    """

    def __init__(self, settings: Settings):
        self._patience = settings.eval_early_stopping_steps
        self._metric = settings.eval_early_stopping_metric
        minimize, self._delta = METRICS[self._metric]
        if settings.eval_early_stopping_metric_delta is not None:
            self._delta = settings.eval_early_stopping_metric_delta
        if settings.eval_early_stopping_metric_minimize is not None:
            minimize = settings.eval_early_stopping_metric_minimize
        self._sign = 1 if minimize else -1
        self._best, self._best_step = math.inf, 0

    def is_over(self, step: int, event: dict) -> bool:
        """Takes note of an evaluation; True once patience is at an end."""
        if not self._patience:
            return False
        if self._metric not in event:
            raise errors.UserError(
                f"Expected the evaluation of step {step} to have "
                f"{self._metric!r}, the metric to stop by. Received: "
                f"{', '.join(sorted(event))}."
            )
        value = self._sign * event[self._metric]
        if math.isnan(value):
            value = math.inf  # Any number is better.
        if value < self._best - self._delta or self._best_step == 0:
            self._best, self._best_step = value, step
        over = step - self._best_step >= self._patience
        if over:
            _log.info(
                "Stopping: no better %s for %d steps.",
                self._metric,
                self._patience,
            )
        return over
