"""What a run tells its user: one line per interval, one per evaluation."""

import importlib.util
import pathlib
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.utils import memory


class Results:
    """What the updates since the last report returned.

    Updates that were not made, because of numbers that are not, are counted;
    too many in a row are an error, because they would never end.
    """

    MOST_SKIPPED = 10
    # What is summed, in the order of `sums`.
    NAMES = ("loss", "target_tokens", "source_tokens")

    def __init__(self):
        self._results = []
        self._before = [0.0] * len(self.NAMES)
        self._skipped = self._in_a_row = 0

    def go_on(self, sums: Sequence[float]) -> None:
        """Begins with what an earlier process has summed: see `sums`."""
        *self._before, skipped = map(float, sums)
        self._skipped = round(skipped)

    def sums(self) -> list[float]:
        """Returns the sum of each of `NAMES` and the updates not made.

        All since the last report, those of an earlier process included.
        """
        return [*self._totals(), float(self._skipped)]

    def last_loss(self) -> float:
        """Returns the loss of the last update, in nats per target token."""
        last = self._results[-1]
        return float(last["loss"]) / max(float(last["target_tokens"]), 1.0)

    def add(self, result: Mapping, step: int) -> bool:
        """Takes note of an update; returns whether it was made.

        Args:
            result: what `train_step.compile_step`'s function returned.
            step: int. Updates made before.

        Raises:
            UserError: `MOST_SKIPPED` in a row were not made.
        """
        if result["is_made"]:
            self._results.append(result)
            self._in_a_row = 0
            return True
        self._skipped += 1
        self._in_a_row += 1
        if self._in_a_row < self.MOST_SKIPPED:
            return False
        raise errors.UserError(
            f"The loss or its gradient was not a number in {self._in_a_row} "
            f"updates in a row, after step {step}. None of them was made. "
            "Lower learning_rate_constant, raise learning_rate_warmup_steps, "
            "set clip_grad_norm or look for what is unusual in the data, and "
            "run again: the run goes on from its last checkpoint, if there is "
            "one."
        )

    def collect(self) -> dict[str, float]:
        """Returns the sums since the last call, and begins again.

        Returns:
            dict of `loss` in nats per target token, `target_tokens`, both of
            the updates made, `skipped_steps`, how many were not, and `tokens`,
            source and target, without those of an earlier process, whose time
            nobody has taken.
        """
        loss, target_tokens, source_tokens = self._totals()
        skipped, self._skipped = self._skipped, 0
        tokens = target_tokens + source_tokens - sum(self._before[1:])
        self._results.clear()
        self._before = [0.0] * len(self.NAMES)
        return {
            "loss": loss / max(target_tokens, 1.0),
            "tokens": tokens,
            "target_tokens": target_tokens,
            "skipped_steps": skipped,
        }

    def _totals(self):
        return [
            sum((float(r[name]) for r in self._results), start=before)
            for name, before in zip(self.NAMES, self._before, strict=True)
        ]


class Throughput:
    """Measures how fast training goes, and says so.

    Args:
        step: int. Updates made before.
        total_steps: int. Updates at which training ends.
        clock: function without arguments that returns seconds.
    """

    def __init__(
        self,
        step: int,
        total_steps: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total_steps = total_steps
        self._clock = clock
        self._step, self._since = step, clock()
        self._paused_at = None
        self._glanced = None  # the step and time of the interval's first glance

    def pause(self) -> None:
        """Stops the clock: what comes now is not training."""
        self._paused_at = self._clock()

    def resume(self) -> None:
        """Leaves out the time since `pause`, or else since the last report.

        Without `pause`, updates made since that report would seem to have
        taken no time.
        """
        now = self._clock()
        self._glanced = None
        if self._paused_at is None:
            self._since = now
        else:
            self._since += now - self._paused_at
            self._paused_at = None

    def report(
        self,
        step: int,
        *,
        loss: float,
        tokens: float,
        learning_rate: float,
        target_tokens: float = 0.0,
        skipped_steps: int = 0,
    ) -> tuple[str, dict]:
        """Returns the line and the event of the interval that ends now.

        Args:
            step: int. Updates made so far.
            loss: float. Mean over the interval, nats per target token.
            tokens: float. Source and target tokens of the interval.
            learning_rate: float. Of the last update.
            target_tokens: float. Target tokens of the interval.
            skipped_steps: int. Updates of the interval that were not made.

        Returns:
            The line, and a dict of `loss`, `steps_per_second`,
            `tokens_per_second`, `learning_rate`, `target_tokens`,
            `skipped_steps` and `peak_memory_mb`, of the process so far.
        """
        now = self._clock()
        seconds = max(now - self._since, 1e-9)
        speed = (step - self._step) / seconds
        self._step, self._since, self._glanced = step, now, None
        left = "?"
        if speed > 0:
            left = duration((self._total_steps - step) / speed)
        event = {
            "loss": loss,
            "steps_per_second": speed,
            "tokens_per_second": tokens / seconds,
            "learning_rate": learning_rate,
            "target_tokens": target_tokens,
            "skipped_steps": skipped_steps,
            "peak_memory_mb": memory.peak_mb(),
        }
        skipped = f"{skipped_steps} skipped  " if skipped_steps else ""
        line = (
            f"step {step}/{self._total_steps}  loss {loss:.4f}  "
            f"{rate(speed, 2)} steps/s  {rate(tokens / seconds)} tokens/s  "
            f"rate {learning_rate:.2e}  {skipped}{left} left"
        )
        return line, event

    def glance(self, step: int, loss: float) -> str:
        """Returns a line on the interval that goes on.

        Args:
            step: int. Updates made so far.
            loss: float. Of the last update, nats per target token.
        """
        now = self._clock()
        line = f"step {step}/{self._total_steps}  loss {loss:.4f}"
        if self._glanced is None:
            # What came before may have been the building of a graph.
            self._glanced = step, now
        first, since = self._glanced
        if step > first:
            speed = (step - first) / max(now - since, 1e-9)
            left = duration((self._total_steps - step) / speed)
            line += f"  {rate(speed, 2)} steps/s  {left} left"
        return line


class SummaryWriter:
    """Writes events for TensorBoard; does nothing where that is missing.

    Args:
        directory: str or path. Made when tensorboard is installed.
    """

    def __init__(self, directory: str | pathlib.Path):
        self._writer = None
        # Without the package every tf.summary call raises TBNotInstalledError.
        if importlib.util.find_spec("tensorboard") is not None:
            import tensorflow as tf  # Lines and speeds need none of it.

            self._summary = tf.summary
            self._writer = tf.summary.create_file_writer(str(directory))

    def write(self, event: dict) -> None:
        """Writes the numbers of an event as scalars `SPLIT/NAME`.

        Args:
            event: dict, as in metrics.jsonl: `step`, `split` and whatever was
                measured. What is not a number is left out.
        """
        if self._writer is None:
            return
        with self._writer.as_default(step=event["step"]):
            for name, value in event.items():
                if name != "step" and type(value) in (int, float):
                    self._summary.scalar(f"{event['split']}/{name}", value)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file. Nothing can be written any more."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Profiler:
    """Profiles ten steps, once those that trace and allocate are over.

    Args:
        directory: str or path. Gets the profile, for TensorBoard.
    """

    FIRST, LAST = 10, 20

    def __init__(self, directory: str | pathlib.Path):
        self._directory = str(directory)
        self._steps = 0

    def count(self, is_last: bool) -> None:
        """Takes note of a step; `is_last` says that none will follow."""
        import tensorflow as tf  # Lines and speeds need none of it.

        self._steps += 1
        if self._steps == self.FIRST and not is_last:
            tf.profiler.experimental.start(self._directory)
        elif self._steps == self.LAST or (
            is_last and self.FIRST < self._steps < self.LAST
        ):
            tf.profiler.experimental.stop()


def duration(seconds: float) -> str:
    """Writes seconds as hours, minutes and seconds.

    Example:

    >>> duration(3725.4)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def rate(value: float, digits: int = 0) -> str:
    """Writes how many there are in a second, a small number not as 0.

    Args:
        value: float.
        digits: int. Decimal places of those that are not small.

    Example:

    >>> rate(1234.5), rate(0.5678, 2), rate(0.0123)
    ('1,234', '0.57', '0.012')
    """
    if 0 < value < 10 ** (1 - digits):
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"


def evaluation_line(event: dict) -> str:
    """Writes an evaluation's event as a line."""
    averaged = ""
    if "averaged" in event:
        averaged = f", {event['averaged']} checkpoints averaged"
    return (
        f"{event['split']} at step {event['step']}{averaged}: "
        f"loss {event['loss']:.4f}  "
        f"teacher-forced accuracy {event['teacher_forced_accuracy']:.2%}  "
        f"exact match {event['exact_match']:.2f} %  chrF {event['chrf']:.2f}  "
        f"BLEU {event['bleu']:.2f} ({event['bleu_signature']})"
    )
