"""What a run tells its user: one line per interval, one per evaluation."""

import importlib.util
import pathlib
import time
from collections.abc import Callable


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

    def pause(self) -> None:
        """Stops the clock: what comes now is not training."""
        self._paused_at = self._clock()

    def resume(self) -> None:
        """Leaves out the time since `pause`, or else since the last report.

        Without `pause`, updates made since that report would seem to have
        taken no time.
        """
        now = self._clock()
        if self._paused_at is None:
            self._since = now
        else:
            self._since += now - self._paused_at
            self._paused_at = None

    def report(
        self, step: int, *, loss: float, tokens: float, learning_rate: float
    ) -> tuple[str, dict]:
        """Returns the line and the event of the interval that ends now.

        Args:
            step: int. Updates made so far.
            loss: float. Mean over the interval, nats per target token.
            tokens: float. Source and target tokens of the interval.
            learning_rate: float. Of the last update.

        Returns:
            The line, and a dict of `loss`, `steps_per_second`,
            `tokens_per_second` and `learning_rate`.
        """
        now = self._clock()
        seconds = max(now - self._since, 1e-9)
        speed = (step - self._step) / seconds
        self._step, self._since = step, now
        left = "?"
        if speed > 0:
            left = duration((self._total_steps - step) / speed)
        event = {
            "loss": loss,
            "steps_per_second": speed,
            "tokens_per_second": tokens / seconds,
            "learning_rate": learning_rate,
        }
        line = (
            f"step {step}/{self._total_steps}  loss {loss:.4f}  "
            f"{speed:.2f} steps/s  {tokens / seconds:,.0f} tokens/s  "
            f"rate {learning_rate:.2e}  {left} left"
        )
        return line, event


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
