"""The configuration of a run, and early stopping."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from relpos_tf import fields
from relpos_tf.fields import choice
from relpos_tf.fields import number
from relpos_tf.fields import switch

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


def log_line(event: Mapping[str, Any], is_best: bool = False) -> str:
    """Returns the event of an evaluation as a line of the log.

    Args:
        event: dict, as in metrics.jsonl.
        is_best: bool. Whether no earlier BLEU is as high.
    """
    averaged = ""
    if "averaged" in event:
        averaged = f", {event['averaged']} checkpoints averaged"
    values = [x.shown.format(event[name]) for name, x in METRICS.items()]
    # Of a larger loss it would overflow.
    values.insert(1, f"perplexity {math.exp(min(event['loss'], 700)):.4g}")
    best = ", best so far" if is_best else ""
    return (
        f"{event['split']} at step {event['step']}{averaged}: "
        f"{'  '.join(values)}{best} ({event['bleu_signature']})"
    )


_TRAINS = "schedule!=evaluate"
_STOPS_EARLY = "eval_early_stopping_steps"


def _count(default: int, help: str, least: int = 0, when: str = _TRAINS) -> Any:
    """Returns a field of training for a whole number."""
    return number(default, least, when=when, help=help)


@dataclasses.dataclass(frozen=True)
class RunConfig(fields.Record):
    """The configuration of a run.

    The fields with a help text are flags of the trainer, with these defaults,
    limits and conditions.

    Raises:
        UserError: a value is outside what its field can hold.
    """

    schedule: str = choice(
        "continuous_train_and_eval",
        "train",
        "evaluate",
        help="Train and evaluate, train only, or score the result of "
        "--output_dir.",
    )
    train_steps: int = _count(
        0,
        "Total number of updates, including those before an interruption. 0: "
        "the set's train_steps.",
    )
    warm_start_from: str = ""
    random_seed: int = _count(1, "Seed of weights, data order and dropout.")
    local_eval_frequency: int = _count(
        1000, "Evaluate and save a checkpoint every N steps.", least=1
    )
    eval_steps: int = _count(
        100,
        "Batches of a teacher-forced evaluation, at most. 0: all.",
        when="schedule!=train",
    )
    eval_use_test_set: bool = switch(
        False,
        "schedule!=train",
        "Evaluate on the test split instead of the development split.",
    )
    eval_early_stopping_steps: int = _count(
        0,
        "Stop after this number of steps without an improvement. 0: never.",
        when="schedule=continuous_train_and_eval",
    )
    eval_early_stopping_metric: str = choice(
        *METRICS, when=_STOPS_EARLY, help="The metric that must improve."
    )
    # None, here and below: the metric's own, see `METRICS`.
    eval_early_stopping_metric_delta: float | None = number(
        None,
        least=None,
        when=_STOPS_EARLY,
        help="The smallest change that counts as an improvement. Default: "
        "0.1; for teacher_forced_accuracy, a fraction, 0.001.",
    )
    eval_early_stopping_metric_minimize: bool | None = switch(
        None,
        _STOPS_EARLY,
        "Whether lower values are better. Default: true only for the loss.",
    )
    save_checkpoints_secs: int = _count(
        0, "Also save a checkpoint every N seconds. 0: never."
    )
    keep_checkpoint_max: int = _count(
        20,
        "Number of checkpoints to keep, besides the one with the best BLEU; at "
        "least average_checkpoints.",
        least=1,
    )
    log_step_count_steps: int = _count(
        100, "Log every N steps; a terminal shows every step.", least=1
    )
    xla_compile: bool | None = switch(
        None,
        _TRAINS,
        "Compile updates with XLA, which takes seconds for each new shape of a "
        "batch. Default: on GPUs; on CPUs steps become slower.",
    )
    profile: bool = switch(
        False, _TRAINS, "Write a profile of ten steps for TensorBoard."
    )
    bleu_tokenize: str = ""  # "": the tokenizer of the target language

    @property
    def evaluates(self) -> bool:
        """Whether to evaluate while training."""
        return self.schedule == "continuous_train_and_eval"

    @property
    def eval_split(self) -> str:
        """The split to evaluate on."""
        return "test" if self.eval_use_test_set else "dev"


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
        return 0 < self._patience <= step - self._best_step

    def __str__(self) -> str:
        return f"no better {self._metric} for {self._patience} steps"
