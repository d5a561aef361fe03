"""The configuration of a run, and early stopping."""

import dataclasses
import logging
import math
from typing import NamedTuple

from relpos_tf import errors

_log = logging.getLogger("relpos_tf")


class Metric(NamedTuple):
    """A metric of early stopping.

    Attributes:
        minimize: bool. Whether less is better.
        delta: float. The smallest change that counts as an improvement.
    """

    minimize: bool
    delta: float


# Keras' names of the hparams' activation_dtype.
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
METRICS = {
    "loss": Metric(minimize=True, delta=0.1),
    "bleu": Metric(minimize=False, delta=0.1),
    "chrf": Metric(minimize=False, delta=0.1),
    "exact_match": Metric(minimize=False, delta=0.1),
    # A fraction; bleu, chrf and exact_match are percentages.
    "teacher_forced_accuracy": Metric(minimize=False, delta=0.001),
}


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The configuration of a run, by the names of the trainer's flags.

    Raises:
        UserError: there is no such metric of early stopping.
    """

    train_steps: int = 0  # 0: the hparams' train_steps
    eval_steps: int = 100  # batches of the teacher-forced evaluation
    local_eval_frequency: int = 1000  # steps between evaluations
    save_checkpoints_secs: int = 0  # 0: only at evaluations
    keep_checkpoint_max: int = 20
    log_step_count_steps: int = 100
    random_seed: int = 1
    xla_compile: bool = False
    eval_early_stopping_steps: int = 0  # 0: never
    eval_early_stopping_metric: str = "loss"
    # None, here and below: the metric's own, see `METRICS`.
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


class EarlyStopping:
    """Ends training when a metric has stopped improving.

    Args:
        config: `RunConfig`. Its fields `eval_early_stopping_...` are used.
    """

    def __init__(self, config: RunConfig):
        self._patience = config.eval_early_stopping_steps
        self._metric = config.eval_early_stopping_metric
        minimize, self._delta = METRICS[self._metric]
        if config.eval_early_stopping_metric_delta is not None:
            self._delta = config.eval_early_stopping_metric_delta
        if config.eval_early_stopping_metric_minimize is not None:
            minimize = config.eval_early_stopping_metric_minimize
        self._sign = 1 if minimize else -1
        self._best, self._best_step = math.inf, 0

    def is_over(self, step: int, event: dict) -> bool:
        """Adds an evaluation; True if the metric has not improved for long."""
        if not self._patience:
            return False
        if self._metric not in event:
            raise errors.UserError(
                f"Expected the evaluation of step {step} to have "
                f"{self._metric!r}, the metric of early stopping. Received: "
                f"{', '.join(sorted(event))}."
            )
        value = self._sign * event[self._metric]
        if math.isnan(value):
            value = math.inf  # the worst value
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
