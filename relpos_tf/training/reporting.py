"""Progress reports of a run: sums, speed, lines, TensorBoard, profile."""

import contextlib
import importlib.util
import pathlib
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.utils import memory


class UpdateTotals:
    """Sums the results of the updates since the last report.

    Skipped updates, those with a NaN or infinite gradient, are counted; too
    many in a row are an error, because they would never end.
    """

    MAX_SKIPPED = 10
    # The results that are summed, in the order of `sums`.
    NAMES = ("loss", "target_tokens", "source_tokens")

    def __init__(self):
        self._results = []
        self._restored = [0.0] * len(self.NAMES)
        self._skipped = self._skipped_in_a_row = 0

    def restore(self, sums: Sequence[float]) -> None:
        """Starts with the `sums` of an earlier process."""
        *self._restored, skipped = map(float, sums)
        self._skipped = round(skipped)

    def sums(self) -> list[float]:
        """Returns the sum of each of `NAMES`, then the skipped updates.

        Includes the updates of an earlier process since the last report.
        """
        return [*self._totals(), float(self._skipped)]

    def last_loss(self) -> float:
        """Returns the loss of the last update, in nats per target token."""
        last = self._results[-1]
        return float(last["loss"]) / max(float(last["target_tokens"]), 1.0)

    def add(self, result: Mapping, step: int) -> bool:
        """Adds the result of an update; False if it was skipped.

        Args:
            result: dict, as `train_step.compile_step`'s function returns it.
            step: int. The number of updates made before.

        Raises:
            UserError: `MAX_SKIPPED` updates in a row were skipped.
        """
        if result["is_made"]:
            self._results.append(result)
            self._skipped_in_a_row = 0
            return True
        self._skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row < self.MAX_SKIPPED:
            return False
        raise errors.UserError(
            "The loss or its gradient was NaN or infinite in "
            f"{self._skipped_in_a_row} updates in a row, after step {step}. "
            "All of them were skipped. Lower learning_rate_constant, raise "
            "learning_rate_warmup_steps, set clip_grad_norm or look for "
            "unusual text in the data, and run again: the run goes on from "
            "its last checkpoint, if there is one."
        )

    def collect(self) -> dict[str, float]:
        """Returns the sums since the last call, and starts again from zero.

        Returns:
            dict of `loss` in nats per target token; `target_tokens`; `tokens`,
            source and target, of this process only, which alone measured
            their time; and `skipped_steps`, the number of skipped updates.
        """
        loss, target_tokens, source_tokens = self._totals()
        skipped, self._skipped = self._skipped, 0
        tokens = target_tokens + source_tokens - sum(self._restored[1:])
        self._results.clear()
        self._restored = [0.0] * len(self.NAMES)
        return {
            "loss": loss / max(target_tokens, 1.0),
            "tokens": tokens,
            "target_tokens": target_tokens,
            "skipped_steps": skipped,
        }

    def _totals(self):
        return [
            sum((float(r[name]) for r in self._results), start=restored)
            for name, restored in zip(self.NAMES, self._restored, strict=True)
        ]


class Throughput:
    """Measures the speed of training, evaluations and checkpoints left out.

    Args:
        step: int. The number of updates made before.
        total_steps: int. The number of updates at which training ends.
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
        self._first = None  # step and time of the interval's first short line

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of the block."""
        paused_at = self._clock()
        yield
        self._since += self._clock() - paused_at
        self._first = None

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
            step: int. The number of updates made so far.
            loss: float. Mean over the interval, nats per target token.
            tokens: float. Source and target tokens of the interval.
            learning_rate: float. The rate of the last update.
            target_tokens: float. Target tokens of the interval.
            skipped_steps: int. Skipped updates of the interval.

        Returns:
            The line, and a dict of `loss`, `steps_per_second`,
            `tokens_per_second`, `learning_rate`, `target_tokens`,
            `skipped_steps`, and the process's `peak_memory_mb` so far.
        """
        now = self._clock()
        seconds = max(now - self._since, 1e-9)
        speed = (step - self._step) / seconds
        self._step, self._since, self._first = step, now, None
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

    def short_line(self, step: int, loss: float) -> str:
        """Returns a line about the current interval, for a terminal.

        Args:
            step: int. The number of updates made so far.
            loss: float. The last update's, in nats per target token.
        """
        now = self._clock()
        line = f"step {step}/{self._total_steps}  loss {loss:.4f}"
        if self._first is None:
            # The update before may have built the graph.
            self._first = step, now
        first, since = self._first
        if step > first:
            speed = (step - first) / max(now - since, 1e-9)
            left = duration((self._total_steps - step) / speed)
            line += f"  {rate(speed, 2)} steps/s  {left} left"
        return line


class SummaryWriter:
    """Writes events for TensorBoard, if tensorboard is installed.

    Args:
        directory: str or path. Gets the events file.
    """

    def __init__(self, directory: str | pathlib.Path):
        self._writer = None
        # Without the package every tf.summary call raises TBNotInstalledError.
        if importlib.util.find_spec("tensorboard") is not None:
            import tensorflow as tf  # slow, and not needed above

            self._summary = tf.summary
            self._writer = tf.summary.create_file_writer(str(directory))

    def write(self, event: dict) -> None:
        """Writes the numbers of an event as scalars `SPLIT/NAME`.

        Args:
            event: dict, as in metrics.jsonl: `step`, `split` and measured
                values. Values that are not numbers are left out.
        """
        if self._writer is None:
            return
        with self._writer.as_default(step=event["step"]):
            for name, value in event.items():
                if name != "step" and type(value) in (int, float):
                    self._summary.scalar(f"{event['split']}/{name}", value)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file; later events are not written."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Profiler:
    """Profiles ten steps, after those that trace and allocate.

    Args:
        directory: str or path. Gets the profile, for TensorBoard.
    """

    FIRST, LAST = 10, 20

    def __init__(self, directory: str | pathlib.Path):
        self._directory = str(directory)
        self._steps = 0

    def count(self, is_last: bool) -> None:
        """Counts a step; starts and stops the profile when due."""
        import tensorflow as tf  # slow, and not needed above

        self._steps += 1
        if self._steps == self.FIRST and not is_last:
            tf.profiler.experimental.start(self._directory)
        elif self._steps == self.LAST or (
            is_last and self.FIRST < self._steps < self.LAST
        ):
            tf.profiler.experimental.stop()


def duration(seconds: float) -> str:
    """Formats seconds as hours, minutes and seconds.

    Example:

    >>> duration(3725.4)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def rate(value: float, digits: int = 0) -> str:
    """Formats a number per second; a small one keeps two digits.

    Args:
        value: float.
        digits: int. Decimal places of larger numbers.

    Example:

    >>> rate(1234.5), rate(0.5678, 2), rate(0.0123)
    ('1,234', '0.57', '0.012')
    """
    if 0 < value < 10 ** (1 - digits):
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"


def evaluation_line(event: dict) -> str:
    """Formats an evaluation's event as a line."""
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
