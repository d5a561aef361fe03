"""Progress reports of a run: sums, speed, lines, TensorBoard, profile."""

import contextlib
import importlib.util
import itertools
import logging
import time
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.models import run_dir
from relpos_tf.utils import memory
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")
# Updates from which a speed is measured; fewer vary much.
_FEWEST = 9


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
        *self._sums, self._skipped = map(float, sums)
        self._earlier_tokens = sum(self._sums[1:])
        self.skipped_in_a_row = 0
        # What `line` shows, and the step and time from which it is measured.
        self._speed, self._timed_step, self._timed_since = 0.0, step, 0.0

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
        if not self._timed_since:  # The first update builds its graph.
            self._timed_step += is_made
            self._timed_since = time.monotonic()
        return is_made

    def sums(self) -> list[float]:
        """Returns the sum of each of `NAMES`, then the skipped updates.

        Includes the updates of an earlier process since the last report.
        """
        for result in self._results:
            for index, name in enumerate(self.NAMES):
                self._sums[index] += float(result[name])
        self._results.clear()
        return [*self._sums, self._skipped]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of the block."""
        paused_at = time.monotonic()
        yield
        seconds = time.monotonic() - paused_at
        self._since += seconds
        self._timed_since += seconds

    def line(self, step: int, epoch: float) -> str:
        """Returns a line about the interval so far.

        Args:
            step: int. The number of updates made so far.
            epoch: float. How often they have used the data.
        """
        loss, target_tokens, _, skipped = self.sums()
        made = step - self._timed_step
        if made >= _FEWEST:
            self._speed = made / (time.monotonic() - self._timed_since)
        mean = f"loss {loss / max(target_tokens, 1.0):#.3g}"
        other = f"{skipped:.0f} skipped" if skipped else f"epoch {epoch:.1f}"
        total, speed = self._total_steps, self._speed
        return terminal.progress("step", step, total, speed, mean, other)

    def report(self, step: int, learning_rate: float) -> dict[str, float]:
        """Reports the interval that ends now, and begins the next one.

        Args:
            step: int. The number of updates made so far.
            learning_rate: float. The rate of the last update.

        Returns:
            dict of `loss` in nats per target token, `steps_per_second`,
            `tokens_per_second` (source and target, of this process, which alone
            measured their time), `learning_rate`, `target_tokens`,
            `skipped_steps`, and the process's `peak_memory_mb` so far.
        """
        loss, target_tokens, source_tokens, skipped = self.sums()
        now = time.monotonic()
        seconds = max(now - self._since, 1e-9)
        own_tokens = target_tokens + source_tokens - self._earlier_tokens
        event = {
            "loss": loss / max(target_tokens, 1.0),
            "steps_per_second": (step - self._step) / seconds,
            "tokens_per_second": own_tokens / seconds,
            "learning_rate": learning_rate,
            "target_tokens": target_tokens,
            "skipped_steps": skipped,
            "peak_memory_mb": memory.peak_mb(),
        }
        self._step, self._since = step, now
        if step - self._timed_step >= _FEWEST:
            self._timed_step, self._timed_since = step, now
        self._sums = [0.0] * len(self.NAMES)
        self._skipped = self._earlier_tokens = 0.0
        return event


class SummaryWriter:
    """Writes events for TensorBoard, if tensorboard is installed.

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
            event: dict of `step`, `split` and measured values. Values that are
                not numbers are left out.
        """
        # Without the package every tf.summary call raises TBNotInstalledError.
        if importlib.util.find_spec("tensorboard") is None:
            return
        import tensorflow as tf  # slow, and not needed above

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._run.path))
        average = "_average" if "averaged" in event else ""
        group = event["split"] + average
        with self._writer.as_default(step=event["step"]):
            for name, value in event.items():
                if name != "step" and type(value) in (int, float):
                    tf.summary.scalar(f"{group}/{name}", value)
        self._writer.flush()


def profile(directory: str) -> Generator[None, None, None]:
    """Profiles ten updates, after ten that trace and allocate.

    `next` is called at first and before each update, and `close` at the end: a
    stopped run, too, has its profile, or is told that there is none.

    Args:
        directory: str. Gets the profile, for TensorBoard; "": there is none.
    """
    import tensorflow as tf  # slow, and not needed above

    if directory:
        try:
            yield from [None] * 11
        except GeneratorExit:
            _log.warning("No profile: it begins after ten updates.")
            raise
        with tf.profiler.experimental.Profile(directory):
            yield from [None] * 10
    yield from itertools.repeat(None)


def examples(*texts: Sequence[str]) -> str:
    """Returns the beginnings of two translations, as lines for a terminal.

    Args:
        *texts: The sources, the references and the translations.
    """
    names = "source", "reference", "translation"
    return "\n".join(
        f"{name:12} {line if len(line) <= 58 else line[:55] + '...'}"
        for lines in itertools.islice(zip(*texts, strict=True), 2)
        for name, line in zip(names, lines, strict=True)
    )
