"""Progress reports of a run: sums, speed, lines, TensorBoard, profile."""

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.models import run_dir
from relpos_tf.utils import memory


class Progress:
    """The updates since the last report: their sums, and their speed.

    Evaluations and checkpoints do not count for the speed, and skipped
    updates, those with a NaN or infinite gradient, are counted apart.

    Args:
        step: int. The number of updates made before.
        total_steps: int. The number of updates at which training ends.
        sums: The `sums` of an earlier process, which are reported with those
            of this one.

    Attributes:
        skipped_in_a_row: int. The skipped updates since the last one made.
    """

    # The results of an update that are summed, in the order of `sums`.
    NAMES = ("loss", "target_tokens", "source_tokens")

    def __init__(
        self,
        step: int,
        total_steps: int,
        sums: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
    ):
        self._total_steps = total_steps
        self._step, self._since = step, time.monotonic()
        self._results: list[Mapping[str, Any]] = []
        *self._earlier, self._skipped = map(float, sums)
        self.skipped_in_a_row = 0

    def add(self, result: Mapping[str, Any]) -> bool:
        """Adds the result of an update; returns whether it was made.

        Args:
            result: dict, as `train_step.compile_step`'s function returns it.
        """
        is_made = bool(result["is_made"])
        if is_made:
            self._results.append(result)
            self.skipped_in_a_row = 0
        else:
            self._skipped += 1
            self.skipped_in_a_row += 1
        return is_made

    def sums(self) -> list[float]:
        """Returns the sum of each of `NAMES`, then the skipped updates.

        Includes the updates of an earlier process since the last report.
        """
        own = zip(self.NAMES, self._earlier, strict=True)
        return [
            *(sum((float(r[n]) for r in self._results), e) for n, e in own),
            self._skipped,
        ]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of the block."""
        paused_at = time.monotonic()
        yield
        self._since += time.monotonic() - paused_at

    def report(
        self, step: int, learning_rate: float
    ) -> tuple[str, dict[str, float]]:
        """Reports the interval that ends now, and begins the next one.

        Args:
            step: int. The number of updates made so far.
            learning_rate: float. The rate of the last update.

        Returns:
            The line, and a dict of `loss` in nats per target token,
            `steps_per_second`, `tokens_per_second` (source and target, of
            this process, which alone measured their time), `learning_rate`,
            `target_tokens`, `skipped_steps`, and the process's
            `peak_memory_mb` so far.
        """
        loss, target_tokens, source_tokens, skipped = self.sums()
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        own_tokens = target_tokens + source_tokens - sum(self._earlier[1:])
        event = {
            "loss": loss / max(target_tokens, 1.0),
            "steps_per_second": (step - self._step) / seconds,
            "tokens_per_second": own_tokens / seconds,
            "learning_rate": learning_rate,
            "target_tokens": target_tokens,
            "skipped_steps": skipped,
            "peak_memory_mb": memory.peak_mb(),
        }
        speed = event["steps_per_second"]
        left = duration((self._total_steps - step) / speed) if speed else "?"
        line = (
            f"step {step}/{self._total_steps}  loss {event['loss']:.4f}  "
            f"{rate(speed, 2)} steps/s  "
            f"{rate(event['tokens_per_second'])} tokens/s  "
            f"rate {learning_rate:.2e}  "
            f"{f'{skipped:.0f} skipped  ' if skipped else ''}{left} left"
        )
        self._step, self._since = step, now
        self._results.clear()
        self._earlier, self._skipped = [0.0] * len(self.NAMES), 0.0
        return line, event

    def short_line(self, step: int) -> str:
        """Returns a line about the last update, for a terminal.

        Args:
            step: int. The number of updates made so far.
        """
        last = self._results[-1]
        loss = float(last["loss"]) / max(float(last["target_tokens"]), 1.0)
        return f"step {step}/{self._total_steps}  loss {loss:.4f}"


class SummaryWriter:
    """Writes metrics.jsonl for TensorBoard, if tensorboard is installed.

    The first event of a process replaces the files of earlier ones by all
    events so far: what a resumed run repeats is then there once.

    Args:
        run: `run_dir.RunDir`. Gets the events file.
    """

    def __init__(self, run: run_dir.RunDir):
        self._run = run
        self._writer: Any = None

    def write(self, event: dict[str, Any]) -> None:
        """Writes the numbers of an event as scalars `SPLIT/NAME`.

        Those of an average are `SPLIT_average/NAME`.

        Args:
            event: dict, the last one in metrics.jsonl: `step`, `split` and
                measured values. Values that are not numbers are left out.
        """
        # Without the package every tf.summary call raises TBNotInstalledError.
        if importlib.util.find_spec("tensorboard") is None:
            return
        import tensorflow as tf  # slow, and not needed above

        events = [event]
        if self._writer is None:
            events = self._run.read_metrics()
            for path in self._run.path.glob("events.out.tfevents.*"):
                path.unlink()
            self._writer = tf.summary.create_file_writer(str(self._run.path))
        # A checkpoint may have been scored twice: the last event counts.
        last = {(e["step"], e["split"], "averaged" in e): e for e in events}
        for (step, split, is_average), event in last.items():
            with self._writer.as_default(step=step):
                for name, value in event.items():
                    if name != "step" and type(value) in (int, float):
                        group = f"{split}_average" if is_average else split
                        tf.summary.scalar(f"{group}/{name}", value)
        self._writer.flush()


class Profiler:
    """Profiles ten steps, after those that trace and allocate.

    Args:
        directory: str. Gets the profile, for TensorBoard.
    """

    def __init__(self, directory: str):
        self._directory, self._steps = directory, 0

    def count(self, is_last: bool) -> None:
        """Counts a step; starts and stops the profile when due."""
        import tensorflow as tf  # slow, and not needed above

        first, last = 10, 20
        self._steps += 1
        if self._steps == first and not is_last:
            tf.profiler.experimental.start(self._directory)
        elif self._steps == last or (is_last and first < self._steps < last):
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
