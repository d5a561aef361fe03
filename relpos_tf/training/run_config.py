"""The configuration of a run, and early stopping."""

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

_log = logging.getLogger("relpos_tf")
# Keras' names of the hparams' activation_dtype.
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class Metric(NamedTuple):
    """A metric of evaluations.

    Attributes:
        shown: str. Its part of the log's line, with a place for the value.
        minimize: bool. Whether less is better.
        delta: float. The smallest change that early stopping counts as an
            improvement.
    """

    shown: str
    minimize: bool = False
    delta: float = 0.1


# What an evaluation measures, in the order of the log's line: the numbers of
# `evaluation.teacher_forced` and `metrics.Scores`, by their names. Each is
# logged, recorded, shown by TensorBoard, and can end training early.
METRICS = {
    "loss": Metric("loss {:.4f}", minimize=True),
    # A fraction; the others are percentages.
    "teacher_forced_accuracy": Metric(
        "teacher-forced accuracy {:.2%}", delta=0.001
    ),
    "exact_match": Metric("exact match {:.2f} %"),
    "chrf": Metric("chrF {:.2f}"),
    "bleu": Metric("BLEU {:.2f}"),
}


def log_line(event: Mapping[str, Any]) -> str:
    """Returns the event of an evaluation as a line of the log.

    Args:
        event: dict, as in metrics.jsonl.
    """
    averaged = ""
    if "averaged" in event:
        averaged = f", {event['averaged']} checkpoints averaged"
    values = [
        metric.shown.format(event[name]) for name, metric in METRICS.items()
    ]
    return (
        f"{event['split']} at step {event['step']}{averaged}: "
        f"{'  '.join(values)} ({event['bleu_signature']})"
    )


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The configuration of a run, by the names of the trainer's flags."""

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
    bleu_tokenize: str = ""  # "": the tokenizer of the target language


class EarlyStopping:
    """Ends training when a metric has stopped improving.

    Args:
        config: `RunConfig`. Its fields `eval_early_stopping_...` are used.
    """

    def __init__(self, config: RunConfig):
        self._patience = config.eval_early_stopping_steps
        self._metric = config.eval_early_stopping_metric
        _, minimize, self._delta = METRICS[self._metric]
        if config.eval_early_stopping_metric_delta is not None:
            self._delta = config.eval_early_stopping_metric_delta
        if config.eval_early_stopping_metric_minimize is not None:
            minimize = config.eval_early_stopping_metric_minimize
        self._sign = 1 if minimize else -1
        self._best, self._best_step = math.inf, 0

    def is_over(self, step: int, event: Mapping[str, float]) -> bool:
        """Adds an evaluation; True if the metric has not improved for long."""
        value = self._sign * event[self._metric]
        if math.isnan(value):
            value = math.inf  # the worst value
        if value < self._best - self._delta or self._best_step == 0:
            self._best, self._best_step = value, step
        over = 0 < self._patience <= step - self._best_step
        if over:
            _log.info(
                "Stopping: no better %s for %d steps.",
                self._metric,
                self._patience,
            )
        return over
