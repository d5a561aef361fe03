"""Joins the lines of many requests into batches, one thread for each model.

A batch of lines takes little longer than one of them, so a thread for each
request would waste the processor. Here a thread takes the waiting lines of
equal settings, translates them together, and takes the next ones. While it
translates, the next batch gathers by itself. An idle thread waits a moment for
other lines. So does one that has just answered, because clients who wait for an
answer before they send the next line would form two groups otherwise, and
batches would be half as large.

A request of many lines does not hold up the others: a batch takes a line of
each request in turn. Nor does a long line hold up short ones, which would be
padded to its length and wait for its last word: a batch has a line of the
request that has waited longest, and lines that are not much shorter or longer.
Lengths are numbers of ids: a character may be a byte of four ids or a part of a
word of one.
"""

import collections
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import prometheus
from relpos_tf.serving import queries
from relpos_tf.serving import served

_log = logging.getLogger("relpos_tf")

# Most ids of a batch, with every line as long as the longest: a batch cannot be
# interrupted, so it must not take long.
BATCH_IDS = 4096
# The largest ratio of the sizes of a batch's first line and any other.
# Lines that differ more take less time apart (docs/serve.md).
MOST_UNLIKE = 4
FEW_IDS = 12  # count as the size of shorter lines
# After a batch, the share of its seconds to wait for a full one.
WAIT_SHARE = 0.1
# Most lines of a batch with attention, whose weights take much memory.
ATTENTION_LINES = 8


class Job:
    """One query that waits for its translations.

    Attributes:
        future: `concurrent.futures.Future` of a list of
            `served.line_of`. Cancelling it gives up the query.
    """

    def __init__(self, query: queries.Query, settings: decode_hparam.Completed):
        self.query = query
        self.settings = settings
        self.future = concurrent.futures.Future[Any]()
        self.arrived = time.monotonic()
        # Those of the answer, by their index.
        self.lines: dict[int, dict[str, Any]] = {}
        self.weights = 0  # of their attention
        # Numbers decide what is drawn for a line: a random query is never
        # joined with others.
        self.key = (settings, id(self) if settings.is_random else 0)
        # The indices of the lines that no batch has taken: similar lengths
        # together, the longest first.
        self.waiting = collections.deque(
            sorted(range(len(query.lines)), key=lambda i: -query.sizes[i])
        )

    @property
    def next_size(self) -> int:
        """The number of ids that the next line counts."""
        return max(FEW_IDS, self.query.sizes[self.waiting[0]])

    def add(self, index: int, translation: engines.Translation) -> None:
        """Adds the translation of a line."""
        self.lines[index] = served.line_of(self.query, translation)
        self.weights += served.num_weights(self.lines[index])

    def settle(self, outcome: list[dict[str, Any]] | Exception) -> None:
        """Sets the result or the exception, unless the job was given up."""
        if not self.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Worker:
    """Translates the jobs of one model in a thread.

    Args:
        model: `served.ServedModel`.
        limits: What the server takes on.
        metrics: Where batches are counted.
        warm_up_steps: `served.ServedModel.warm_up_steps`. The thread takes
            one while nothing waits, and one after each batch.
    """

    def __init__(
        self,
        model: served.ServedModel,
        limits: limits_lib.Limits,
        metrics: prometheus.Metrics,
        warm_up_steps: Sequence[Callable[[], Any]] = (),
    ):
        self.model = model
        self.line_ids = limits.line_ids(model.longest_source)
        self._cold = collections.deque(warm_up_steps)
        self._limits = limits
        self._metrics = metrics
        self._changed = threading.Condition()
        self._jobs: list[Job] = []  # the next one first
        self._is_closing = False
        self._rested = 0.0  # the time until which to wait for a full batch
        self._thread = threading.Thread(
            target=self._run, name=f"translate {model.name}", daemon=True
        )
        metrics.queue_lines.labels(model.name).set_function(self.waiting)

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up has finished."""
        return not self._cold

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, query: queries.Query) -> Job:
        """Queues a query.

        Raises:
            UserError: a line has too many ids, or the model cannot do it; with
                status 503, too many lines wait or the server stops.
        """
        if (ids := max(query.sizes, default=0)) > self.line_ids:
            raise errors.UserError(
                f"A line may have at most {self.line_ids} ids here, which are "
                f"pieces of words or bytes. Received: {ids}. Split it."
            )
        job = Job(query, self.model.settings(query))
        if not query.lines:
            job.settle([])
            return job
        most = self._limits.max_queue_lines
        with self._changed:
            waiting = self.waiting()
            if self._is_closing:
                raise limits_lib.RefusedError(503, limits_lib.STOPPING)
            # An empty queue takes any query.
            if waiting and waiting + len(job.waiting) > most:
                raise limits_lib.RefusedError(
                    503, f"Too busy: {waiting} lines wait already."
                )
            self._jobs.append(job)
            self._changed.notify()
        return job

    def waiting(self) -> int:
        """Returns the number of lines that wait."""
        with self._changed:
            self._jobs = [x for x in self._jobs if not x.future.done()]
            return sum(len(job.waiting) for job in self._jobs)

    def close(self, seconds: float | None = None) -> bool:
        """Gives up the jobs that wait, and ends the thread.

        Args:
            seconds: How long to wait for the batch that is under way, which
                cannot be interrupted; None: until its end.

        Returns:
            Whether the thread has ended.
        """
        with self._changed:
            self._is_closing = True
            for job in self._jobs:
                job.future.cancel()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self):
        name = self.model.name
        while (batch := self._next_batch()) is not None:
            if batch:
                begun = time.monotonic()
                self._translate(batch)
                seconds = time.monotonic() - begun
                self._rested = time.monotonic() + WAIT_SHARE * seconds
                self._metrics.batch_lines.labels(name).observe(len(batch))
                self._metrics.batch_seconds.labels(name).observe(seconds)
            # A step after each batch, or a busy server would never be warm.
            if self._cold and not self._is_closing:
                self._warm_up()

    def _warm_up(self):
        """Takes the next step of the warm-up."""
        name = self.model.name
        try:
            self._cold[0]()
        except Exception as error:  # whatever it is, the thread must go on
            _log.error("Warming up %s failed.", name, exc_info=error)
        self._cold.popleft()
        if self.is_warm:
            _log.info("%s is ready for every kind of request.", name)

    def _next_batch(self):
        """Waits for lines; returns (job, index) of each, or None at the end.

        During the warm-up, it does not wait, and may return no lines.
        """
        wait = self._limits.batch_wait_ms / 1000
        with self._changed:
            while not self._is_closing:
                waiting, left = self.waiting(), None
                if waiting:
                    end = max(self._jobs[0].arrived + wait, self._rested)
                    left = end - time.monotonic()
                    if left <= 0 or waiting >= self._limits.max_batch_lines:
                        return self._take()
                elif self._cold:
                    return []
                self._changed.wait(left)
        return None

    def _take(self):
        """Takes lines from the queue, one of each job in turn."""
        first = self._jobs[0]
        most = self._limits.max_batch_lines
        if first.settings.return_alignments:
            most = min(most, ATTENTION_LINES)
        turns = collections.deque(
            job for job in self._jobs if job.key == first.key
        )
        batch, longest, size = [], 0, first.next_size
        while turns and len(batch) < most:
            job = turns.popleft()
            sizes = size, job.next_size
            if max(sizes) > MOST_UNLIKE * min(sizes):
                continue  # it keeps its place, and comes first in the end
            longest = max(longest, job.next_size)
            if batch and longest * (len(batch) + 1) > BATCH_IDS:
                break
            batch.append((job, job.waiting.popleft()))
            if job.waiting:
                turns.append(job)
        taken = {job for job, _ in batch}
        # Those with more lines stand behind those that have not begun.
        self._jobs = [job for job in self._jobs if job not in taken] + [
            job for job in self._jobs if job in taken and job.waiting
        ]
        return batch

    def _translate(self, batch):
        """Translates a batch, and completes the jobs that it was the last of.

        A line that cannot be translated fails its own job only.
        """
        jobs = list(dict.fromkeys(job for job, _ in batch))
        try:
            translations = self.model.translate(
                batch[0][0].settings,
                [job.query.lines[i] for job, i in batch],
                [i for _, i in batch],
            )
        except Exception as error:  # whatever it is, the thread must go on
            if len(jobs) == 1:
                self._fail(jobs[0], error)
                return
            for one in jobs:
                self._translate([part for part in batch if part[0] is one])
            return
        for (job, i), translation in zip(batch, translations, strict=True):
            job.add(i, translation)
        for job in jobs:
            self._complete(job)

    def _complete(self, job):
        """Settles a job if all its lines are translated, or refuses it."""
        number = len(job.query.lines)
        most = self._limits.max_attention_weights
        if job.weights > most:
            message = (
                f"An answer may have at most {most} attention weights. This "
                "one has more. Ask for fewer lines or a smaller `n_best`."
            )
            self._fail(job, errors.UserError(message))
        elif len(job.lines) == number:
            if cut := sum(not x["complete"] for x in job.lines.values()):
                text = "Translations of %s that the length limit cut off: %d."
                _log.warning(text, self.model.name, cut)
            job.settle([job.lines[i] for i in range(number)])

    def _fail(self, job, error):
        is_ours = isinstance(error, errors.UserError)
        job.settle(error if is_ours else limits_lib.failed(error))
