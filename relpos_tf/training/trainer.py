"""The training loop: batches, progress, checkpoints, evaluation.

What may differ from run to run of the same model is in `settings`; what
defines the model and its updates is in `HParams`.
"""

import contextlib
import dataclasses
import logging
import time

import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import batching
from relpos_tf.data import records
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.training import evaluation
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import metrics
from relpos_tf.training import reporting
from relpos_tf.training import run_config as settings_lib
from relpos_tf.training import schedules
from relpos_tf.training import train_step
from relpos_tf.training import training_state
from relpos_tf.utils import paths
from relpos_tf.utils import signals
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")


class Trainer:
    """One run: a model, its data, its directory.

    Args:
        hparams: `hparam.HParams`, whose `vocab_size` is the tokenizer's.
        problem: a prepared `Problem`.
        data_dir: str. Where it was prepared.
        run: `run_dir.RunDir`. Gets checkpoints and metrics; a checkpoint in
            it is where training goes on.
        strategy: `tf.distribute.Strategy`.
        settings: `settings.Settings`.

    Raises:
        UserError: the run's checkpoint, or the one to start from, does not
            fit the model; or XLA is to compile for several devices.
    """

    def __init__(
        self,
        hparams: hparam.HParams,
        problem,
        data_dir: str,
        run: run_dir_lib.RunDir,
        strategy: tf.distribute.Strategy,
        settings: settings_lib.Settings,
    ):
        settings.check_devices(strategy.num_replicas_in_sync)
        self.hparams = hparams
        self.run = run
        self.settings = settings
        self._problem, self._data_dir = problem, data_dir
        self._strategy = strategy
        self._hosts = hosts_lib.Hosts(strategy)
        self._state = training_state.TrainingState(
            hparams, run, strategy, self._hosts, settings
        )
        self.model = self._state.model
        tokenizer_path = problem.tokenizer_path(data_dir)
        self._tokenizer_mark = records.tokenizer_mark(tokenizer_path)
        self._translator = translator_lib.Translator(
            self.model, tokenizer_lib.load(tokenizer_path)
        )
        self._summaries = None
        if self._hosts.is_chief:
            self._summaries = reporting.SummaryWriter(run.path)
        self._results = reporting.Results()
        self._per_update = max(hparams.optimizer_multistep_accumulate_steps, 1)
        self._restore()

    @property
    def step(self) -> int:
        """The number of updates made."""
        return self._state.step

    @property
    def total_steps(self) -> int:
        """The number of updates at which training ends."""
        return self.settings.train_steps or self.hparams.train_steps

    def _restore(self):
        if not self._state.restore() and self.settings.warm_start_from:
            self._state.start_from(self.settings.warm_start_from)
        self._results.go_on(self._state.unreported.numpy())
        if self._hosts.is_chief:
            self.run.truncate_metrics(self.step)
            if self._evaluations():
                self._protect_best()

    def train(self) -> None:
        """Trains up to the last step, saving and evaluating on the way.

        A step is an update. One that is not made, because of numbers that are
        not, uses up its batches and moves nothing else.

        Raises:
            UserError: too many updates in a row were not made, or another
                host has ended.
            KeyboardInterrupt: a signal came, to any of the hosts. What was
                done is saved.
        """
        with self._hosts.together():
            self._train()
            self._hosts.part()

    def _train(self) -> None:
        self._check_end()
        step_fn, iterator = self._step_and_batches()
        progress = reporting.Throughput(self.step, self.total_steps)
        stopping = settings_lib.EarlyStopping(self.settings)
        if self._is_over(stopping):
            return
        profiler = None
        if self.settings.profile and self._hosts.is_chief:
            profiler = reporting.Profiler(self.run.path / "profile")
        saved_at, step, batch = time.monotonic(), self.step, None
        terminal.show(lambda: "Building the graph of the first step.")
        try:
            while step < self.total_steps:
                following = [next(iterator) for _ in range(self._per_update)]
                # Or what a step returned is lost. The first one takes long.
                with signals.held() if batch else contextlib.nullcontext():
                    is_made = self._results.add(step_fn(*following), step)
                    step, batch = step + is_made, following[-1]
                    if is_made:
                        self._show_progress(progress, step)
                if profiler:
                    profiler.count(step == self.total_steps)
                if not is_made:
                    continue
                evaluates = self._is_due(
                    step, self.settings.local_eval_frequency
                )
                seconds = self.settings.save_checkpoints_secs
                is_late = 0 < seconds <= time.monotonic() - saved_at
                saves, stops = self._hosts.any(is_late, signals.is_pending())
                if not (evaluates or saves or stops):
                    continue
                progress.pause()
                self._state.save(batch, self._results.sums())
                saved_at = time.monotonic()
                if stops:
                    self._hosts.part()
                    raise KeyboardInterrupt
                if evaluates and self.settings.evaluate:
                    if self._evaluate_on_chief(stopping):
                        return
                progress.resume()
        except KeyboardInterrupt:
            # Several hosts save together, above, or not at all.
            if self._hosts.number == 1:
                # Whether the update under way was made, its counter knows.
                batch = following[-1] if self.step > step else batch
                if batch is not None and self.step:
                    self._state.save(batch, self._results.sums())
            raise

    def _check_end(self):
        """Raises UserError if evaluations, or the average, are bound to fail.

        The first evaluation may be hours away.
        """
        if not self._hosts.is_chief:
            return
        if self.hparams.average_checkpoints:
            paths.check_folder(self.run.path / "average")
        if self.settings.evaluate:
            self._evaluation_data()

    def _evaluation_data(self):
        """Returns the record files, lines and references to evaluate on.

        Raises:
            UserError: something is missing or damaged.
        """
        split = self.settings.eval_split
        files = self._problem.record_files(self._data_dir, split)
        sources, references = self._problem.lines(self._data_dir, split)
        metrics.check_references(references)
        return files, sources, references

    def _step_and_batches(self):
        """Returns the function of a step, and the iterator of its batches."""
        batches = self._batches()
        step_fn = train_step.compile_step(
            self._strategy,
            self.model,
            self._state.optimizer,
            batches.element_spec,
            random_seed=self.settings.random_seed,
            jit_compile=self.settings.xla_compile,
            accumulate_steps=self._per_update,
        )
        files = self._problem.record_files(self._data_dir, "train")
        guarded = records.guarded(
            batches, files, self.hparams.vocab_size, self._tokenizer_mark
        )
        return step_fn, guarded

    def _is_over(self, stopping) -> bool:
        """Says whether the run ended before, and evaluates what a kill left."""
        past = self._evaluations()
        ends = [stopping.is_over(event["step"], event) for event in past]
        lacks = (
            self.settings.evaluate
            and self.step > 0
            and self._is_due(self.step, self.settings.local_eval_frequency)
            and all(event["step"] != self.step for event in past)
        )
        is_over, lacks = self._hosts.from_chief(ends[-1:] == [True], lacks)
        return bool(is_over or (lacks and self._evaluate_on_chief(stopping)))

    def _evaluate_on_chief(self, stopping) -> bool:
        """Evaluates; says on all hosts whether training is to stop."""
        is_over = False
        if self._hosts.is_chief:
            with signals.let_through():
                is_over = stopping.is_over(self.step, self.evaluate())
        return any(self._hosts.from_chief(is_over))

    def _is_due(self, step: int, frequency: int) -> bool:
        """Says whether something is to happen now, as it is at the end."""
        return step % frequency == 0 or step == self.total_steps

    def _batches(self):
        """Returns the distributed batches that follow the last one used."""

        def dataset(context):
            batches = batching.training_batches(
                self._problem.record_files(self._data_dir, "train"),
                batch_size=self.hparams.batch_size,
                max_length=self.hparams.max_length,
                seed=self.settings.random_seed,
                epoch=int(self._state.epoch.numpy()),
                position=int(self._state.position.numpy()),
                min_length_bucket=self.hparams.min_length_bucket,
                length_bucket_step=self.hparams.length_bucket_step,
                pad_to_boundary=self.settings.xla_compile,
                vocab_size=self.hparams.vocab_size,
                tokenizer=self._tokenizer_mark,
            )
            return hosts_lib.own_batches(batches, context)

        return self._strategy.distribute_datasets_from_function(dataset)

    def _show_progress(self, progress, step: int) -> None:
        """Says how far training is: in passing, or in a line that stays."""
        if not self._is_due(step, self.settings.log_step_count_steps):
            loss = self._results.last_loss
            terminal.show(lambda: progress.glance(step, loss()))
            return
        line, event = progress.report(
            step,
            learning_rate=float(
                schedules.learning_rate(self.hparams)(step - 1)
            ),
            **self._results.collect(),
        )
        _log.info("%s", line)
        self._record({"step": step, "split": "train"} | event)

    def _record(self, event: dict) -> None:
        """Writes an event to the run's metrics and for TensorBoard."""
        if self._hosts.is_chief:
            self.run.append_metrics(event)
            self._summaries.write(event)

    def _evaluations(self) -> list[dict]:
        """Returns the run's evaluations so far, those of averages left out."""
        return [
            event
            for event in self.run.read_metrics()
            if event["split"] == self.settings.eval_split
            and "averaged" not in event
        ]

    def _protect_best(self) -> None:
        """Keeps the checkpoint with the best BLEU, however old."""
        best = max(self._evaluations(), key=lambda event: event["bleu"])
        self._state.manager.protect(best["step"])

    def average(self) -> str | None:
        """Averages and scores the last checkpoints, if the hparams say so.

        Returns:
            The prefix of the average, or None, as always beside the chief.
        """
        if not self._hosts.is_chief:
            return None
        number = self.hparams.average_checkpoints
        steps = self._state.manager.all_steps()[-number:] if number else []
        if len(steps) < 2:
            return None
        folder = self.run.make_folder("average")
        average = str(folder / f"ckpt-{self.step}")
        checkpoints.average(
            [str(self.run.path / f"ckpt-{step}") for step in steps], average
        )
        _log.info("Averaged %d checkpoints: %s.", len(steps), average)
        if self.settings.evaluate:
            variables = {v.path: v.value for v in self.model.variables}
            checkpoints.restore_model(average, variables)
            self.evaluate(averaged=len(steps))
        return average

    def evaluate(self, **extra) -> dict:
        """Scores the model on a split of the problem, and records the scores.

        Args:
            **extra: what else to record in the event.

        Returns:
            dict: `loss` in nats per token without smoothing and
            `teacher_forced_accuracy`, both given the reference's own past;
            `bleu`, `chrf` and `exact_match` of what the model translates.

        Raises:
            UserError: the model is not trained yet.
        """
        if not self.step:
            raise errors.UserError(
                f"Expected a checkpoint in {self.run.path}. Received: none."
            )
        split = self.settings.eval_split
        files, sources, references = self._evaluation_data()
        dataset = batching.evaluation_batches(
            files,
            batch_size=self.hparams.batch_size,
            tokenizer=self._tokenizer_mark,
        )
        if self.settings.eval_steps:
            dataset = dataset.take(self.settings.eval_steps)
        dataset = terminal.counted(
            records.guarded(dataset, files, tokenizer=self._tokenizer_mark),
            f"Evaluating on {split}: batch",
        )
        forced = evaluation.teacher_forced(self.model, dataset)
        sources, references = self._problem.lines(self._data_dir, split)

        def progress(lines):
            line = f"Evaluating on {split}: line {lines:,} of {len(sources):,}"
            terminal.show(lambda: line)

        progress(0)
        scores, _ = evaluation.translate_and_score(
            self._translator,
            sources,
            references,
            progress=progress,
        )
        event = {"step": self.step, "split": split} | extra
        event |= forced | dataclasses.asdict(scores)
        self._record(event)
        if not extra:
            self._protect_best()
        _log.info("%s", reporting.evaluation_line(event))
        return event
