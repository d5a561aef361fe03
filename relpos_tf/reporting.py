"""What a run tells its user: one line per interval, one per evaluation."""

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

    def resume(self) -> None:
        """Leaves out the time since the last report: training paused."""
        self._since = self._clock()

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
        left = duration((self._total_steps - step) / max(speed, 1e-9))
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
