"""The training loop: batches, updates, progress, checkpoints, evaluation.

`hparam.HParams` defines the model and its updates; `run_config.RunConfig` says
how long to train, and when to report, to save and to evaluate.
"""

import contextlib
import dataclasses
import itertools
import logging
import time
from collections.abc import Sequence

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import batches as batches_lib
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.models import transformer
from relpos_tf.training import epoch_ends
from relpos_tf.training import evaluation
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import metrics
from relpos_tf.training import optimizers
from relpos_tf.training import reporting
from relpos_tf.training import run_config
from relpos_tf.training import run_setup
from relpos_tf.training import schedules
from relpos_tf.training import train_step
from relpos_tf.utils import paths
from relpos_tf.utils import signals
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")


class Trainer:
    """Trains one run: a model, its data, its directory.

    Args:
        hparams: `hparam.HParams`, with the tokenizer's `vocab_size`.
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        run: `run_dir.RunDir`. Receives checkpoints and metrics; training
            resumes from its newest checkpoint, if it has one.
        strategy: `tf.distribute.Strategy`.
        config: `run_config.RunConfig`.

    Raises:
        UserError: the checkpoint to resume or to start from does not fit the
            model.
    """

    def __init__(
        self,
        hparams: hparam.HParams,
        problem,
        data_dir: str,
        run: run_dir_lib.RunDir,
        strategy: tf.distribute.Strategy,
        config: run_config.RunConfig,
    ):
        self.hparams = hparams
        self.run = run
        self.config = config
        self._problem, self._data_dir = problem, data_dir
        self._strategy = strategy
        self._hosts = hosts_lib.Hosts(strategy)
        self._state = TrainingState(hparams, run, strategy, self._hosts, config)
        self.model = self._state.model
        tokenizer = tokenizer_lib.load(problem.tokenizer_path(data_dir))
        self._translator = translator_lib.Translator(self.model, tokenizer)
        self._summaries = None
        if self._hosts.is_chief:
            self._summaries = reporting.SummaryWriter(run.path)
        self._epoch_ends = epoch_ends.EpochEnds(
            run, strategy, self._hosts, hparams.average_epochs
        )
        self._totals = reporting.UpdateTotals()
        self._batches_per_update = max(
            hparams.optimizer_multistep_accumulate_steps, 1
        )
        self._last_batch = None  # that an update of this process has used
        self._restore()

    @property
    def step(self) -> int:
        """The number of updates made."""
        return self._state.step

    @property
    def total_steps(self) -> int:
        """The number of updates at which training ends."""
        return self.config.train_steps or self.hparams.train_steps

    def _restore(self):
        if not self._state.restore() and self.config.warm_start_from:
            self._state.warm_start(self.config.warm_start_from)
        self._totals.restore(self._state.unreported.numpy())
        self._epoch_ends.restore(self.step, int(self._state.epoch.numpy()))
        if self._hosts.is_chief:
            self.run.truncate_metrics(self.step)
            self._protect()

    def train(self) -> None:
        """Trains up to the last step; saves and evaluates on the way.

        A step is an update. An update with a NaN or infinite gradient is
        skipped; its batches are consumed.

        Raises:
            UserError: too many updates in a row were skipped, or another host
                has ended.
            KeyboardInterrupt: any host received a signal. The state is saved.
        """
        with self._hosts.training():
            self._train()
            self._hosts.final_barrier()

    def _train(self) -> None:
        self._check_evaluation()
        step_fn, batches = self._step_and_batches()
        stopping = run_config.EarlyStopping(self.config)
        if not self._has_ended(stopping):
            self._make_updates(step_fn, batches, stopping)
        # The last update may have ended an epoch.
        if self._epoch_ends.number:
            if self._epoch_ends.is_before(self._inputs(batches)[-1]):
                self._save_end_of_epoch()

    def _make_updates(self, step_fn, batches, stopping) -> None:
        """Makes the updates up to the last step, or to early stopping."""
        throughput = reporting.Throughput(self.step, self.total_steps)
        profiler = self._profiler()
        saved_at, step = time.monotonic(), self.step
        terminal.show(lambda: "Building the graph of the first step.")
        try:
            while step < self.total_steps:
                is_made = self._update(step_fn, batches, step, throughput)
                step += is_made
                if profiler:
                    profiler.count(is_last=step == self.total_steps)
                if not is_made:
                    continue
                evaluates = self._is_due(step, self.config.local_eval_frequency)
                saves, stops = self._hosts.any(
                    self._is_overdue(saved_at), signals.is_pending()
                )
                if not (evaluates or saves or stops):
                    continue
                with throughput.paused():
                    self._save(is_stop=not (evaluates or saves))
                    saved_at = time.monotonic()
                    if stops:
                        self._hosts.final_barrier()
                        raise KeyboardInterrupt
                    if evaluates and self.config.evaluate:
                        if self._evaluate_on_chief(stopping):
                            return
        except KeyboardInterrupt:
            # Several hosts save together, above, or not at all.
            if self._hosts.number == 1 and self._last_batch and self.step:
                is_due = self._is_due(
                    self.step, self.config.local_eval_frequency
                )
                self._save(is_stop=not is_due)
            raise

    def _update(self, step_fn, batches, step: int, throughput) -> bool:
        """Makes one update and reports it; False if it was skipped."""
        inputs = self._inputs(batches)
        if self._epoch_ends.is_before(inputs[-1]):
            with throughput.paused():
                self._save_end_of_epoch()
        is_first = self._last_batch is None
        # Hold signals: an interrupt between the step and its bookkeeping would
        # lose the result. Not for the first step, which compiles.
        with contextlib.nullcontext() if is_first else signals.held():
            try:
                is_made = self._totals.add(step_fn(*inputs), step)
                self._last_batch = inputs[-1]
            except KeyboardInterrupt:
                # The first step may have been made all the same.
                if self.step > step:
                    self._last_batch = inputs[-1]
                raise
            if is_made:
                self._report_progress(throughput, step + 1)
        return is_made

    def _inputs(self, batches) -> list:
        """Returns the batches of the next update."""
        return [next(batches) for _ in range(self._batches_per_update)]

    def _save_end_of_epoch(self) -> None:
        """Saves a checkpoint and marks it as the end of an epoch."""
        if not self.step:
            return  # All updates so far were skipped.
        if self._hosts.is_chief:
            self._protect(self.step)
        if self._last_batch is not None:  # Else it is the one restored.
            self._save()
        self._epoch_ends.mark(self.step)

    def _save(self, is_stop: bool = False) -> None:
        self._state.save(self._last_batch, self._totals.sums(), is_stop)

    def _is_due(self, step: int, frequency: int) -> bool:
        """Says whether a step is a multiple of `frequency`, or the last."""
        return step % frequency == 0 or step == self.total_steps

    def _is_overdue(self, saved_at: float) -> bool:
        """Says whether the last checkpoint is older than the user allows."""
        seconds = self.config.save_checkpoints_secs
        return 0 < seconds <= time.monotonic() - saved_at

    def _profiler(self):
        if self.config.profile and self._hosts.is_chief:
            return reporting.Profiler(self.run.path / "profile")
        return None

    def _step_and_batches(self):
        """Returns the function of an update, and an iterator of its batches."""
        batches = self._batches()
        step_fn = train_step.compile_step(
            self._strategy,
            self.model,
            self._state.optimizer,
            batches.element_spec,
            random_seed=self.config.random_seed,
            jit_compile=self.config.xla_compile,
            accumulate_steps=self._batches_per_update,
        )
        return step_fn, iter(batches)

    def _batches(self):
        """Returns the distributed batches that follow the last one used."""
        reader = run_setup.reader_of(
            self._problem,
            self._data_dir,
            self.hparams,
            pad_to_boundary=self.config.xla_compile,
        )

        def dataset(context):
            return batches_lib.training_batches(
                reader,
                seed=self.config.random_seed,
                epoch=int(self._state.epoch.numpy()),
                position=int(self._state.position.numpy()),
                host=hosts_lib.host_of(context),
            )

        return self._strategy.distribute_datasets_from_function(dataset)

    def _report_progress(self, throughput, step: int) -> None:
        """Logs a line when one is due; else shows one on a terminal."""
        if not self._is_due(step, self.config.log_step_count_steps):
            loss = self._totals.last_loss
            terminal.show(lambda: throughput.short_line(step, loss()))
            return
        rate = schedules.learning_rate(self.hparams)(step - 1)
        line, event = throughput.report(
            step, learning_rate=float(rate), **self._totals.collect()
        )
        _log.info("%s", line)
        self._record({"step": step, "split": "train"} | event)

    def _record(self, event: dict) -> None:
        """Writes an event to the run's metrics and for TensorBoard."""
        if self._hosts.is_chief:
            self.run.append_metrics(event)
            self._summaries.write(event)

    def _check_evaluation(self):
        """Raises UserError if evaluating or averaging is bound to fail.

        The first evaluation may be hours away.
        """
        if not self._hosts.is_chief:
            return
        if self.hparams.num_averaged:
            paths.check_folder(self.run.path / "average")
        kept = self.config.keep_checkpoint_max
        if 0 < kept < self.hparams.average_checkpoints:
            _log.warning(
                "--keep_checkpoint_max=%d keeps fewer checkpoints than "
                "average_checkpoints=%d asks for: the average will be of %d.",
                kept,
                self.hparams.average_checkpoints,
                kept,
            )
        if self.config.evaluate:
            self._evaluation_data()

    def _evaluation_data(self):
        """Returns the tokens, the lines and the references to evaluate.

        Raises:
            UserError: data are missing or damaged.
        """
        split = self.config.eval_split
        tokens = self._problem.tokens(self._data_dir, split)
        sources, references = self._problem.lines(self._data_dir, split)
        metrics.check_references(references)
        return tokens, sources, references

    def _evaluations(self) -> list[dict]:
        """Returns the events of the run's evaluations, without averages."""
        return [
            event
            for event in self.run.read_metrics()
            if event["split"] == self.config.eval_split
            and "averaged" not in event
        ]

    def _has_ended(self, stopping) -> bool:
        """Says whether early stopping has ended the run.

        Replays the evaluations so far, and makes one that a kill prevented.
        """
        past = self._evaluations()
        decisions = [stopping.is_over(event["step"], event) for event in past]
        is_missing = (
            self.config.evaluate
            and self.step > 0
            and self._is_due(self.step, self.config.local_eval_frequency)
            and all(event["step"] != self.step for event in past)
        )
        is_over, is_missing = self._hosts.from_chief(
            decisions[-1:] == [True], is_missing
        )
        return bool(
            is_over or (is_missing and self._evaluate_on_chief(stopping))
        )

    def _evaluate_on_chief(self, stopping) -> bool:
        """Evaluates; says on all hosts whether training is to stop."""
        is_over = False
        if self._hosts.is_chief:
            with signals.let_through():
                is_over = stopping.is_over(self.step, self.evaluate())
        return any(self._hosts.from_chief(is_over))

    def _protect(self, *ends: int) -> None:
        """Keeps the ends of epochs and the best BLEU, however old they are.

        Args:
            *ends: Steps that will be ends of epochs.
        """
        steps = self._epoch_ends.steps(*ends)
        if evaluations := self._evaluations():
            best = max(evaluations, key=lambda event: event["bleu"])
            steps.append(best["step"])
        self._state.manager.protect(*steps)

    def evaluate(self) -> dict:
        """Scores the model on a split of the problem and records the scores.

        The moving averages of the weights are scored, if there are any.

        Returns:
            The event: teacher-forced `loss` and `teacher_forced_accuracy`, and
            `bleu`, `chrf` and `exact_match` of the model's translations.

        Raises:
            UserError: the model is not trained yet.
        """
        with self._state.optimizer.averages.in_place():
            return self._score()

    def _score(self, **extra) -> dict:
        """Scores the model as it is; adds `extra` to the event."""
        if not self.step:
            raise errors.UserError(
                f"Expected a checkpoint in {self.run.path}. Received: none."
            )
        split = self.config.eval_split
        tokens, sources, references = self._evaluation_data()
        dataset = batches_lib.evaluation_batches(
            tokens, self.hparams.batch_size
        )
        dataset = itertools.islice(dataset, self.config.eval_steps or None)
        dataset = terminal.counted(dataset, f"Evaluating on {split}: batch")
        forced = evaluation.teacher_forced(self.model, dataset)

        def progress(lines):
            line = f"Evaluating on {split}: line {lines:,} of {len(sources):,}"
            terminal.show(lambda: line)

        progress(0)
        scores, _ = evaluation.translate_and_score(
            self._translator, sources, references, progress=progress
        )
        event = {"step": self.step, "split": split} | extra
        event |= forced | dataclasses.asdict(scores)
        self._record(event)
        if not extra:
            self._protect()
        _log.info("%s", reporting.evaluation_line(event))
        return event

    def average(self) -> str | None:
        """Averages and scores checkpoints, as the hparams say.

        They are the last `average_checkpoints`, without those that only a
        stop has saved, or those at the ends of the last `average_epochs`
        epochs.

        Returns:
            The prefix of the average; None without one, and on all hosts but
            the chief.
        """
        if not self._hosts.is_chief:
            return None
        steps = self._epoch_ends.steps()
        if number := self.hparams.average_checkpoints:
            steps = run_dir_lib.regular_steps(self.run.path)[-number:]
        if len(steps) < self.hparams.average_epochs:
            _log.warning(
                "average_epochs is %d; so far %d epochs have ended.",
                self.hparams.average_epochs,
                len(steps),
            )
        if len(steps) < 2:
            return None
        folder = self.run.make_folder("average")
        average = str(folder / f"ckpt-{self.step}")
        checkpoints.average(
            [str(self.run.path / f"ckpt-{step}") for step in steps], average
        )
        _log.info(
            "Averaged %d checkpoints%s, steps %s: %s.",
            len(steps),
            "" if number else " at the ends of epochs",
            ", ".join(map(str, steps)),
            average,
        )
        if self.config.evaluate:
            variables = {v.path: v.value for v in self.model.variables}
            checkpoints.restore_model(average, variables)
            self._score(averaged=len(steps))
        return average


class TrainingState:
    """The variables of a run and their checkpoints.

    The model, the optimizer, the position in the data and the unreported sums:
    with these, a resumed run equals one that never stopped.

    Args:
        hparams: `hparam.HParams`.
        run: `run_dir.RunDir`. Receives the checkpoints.
        strategy: `tf.distribute.Strategy`.
        hosts: `hosts.Hosts` of the strategy.
        config: `run_config.RunConfig`.
    """

    def __init__(
        self,
        hparams: hparam.HParams,
        run: run_dir_lib.RunDir,
        strategy: tf.distribute.Strategy,
        hosts: hosts_lib.Hosts,
        config: run_config.RunConfig,
    ):
        self._run = run
        self._strategy = strategy
        self._hosts = hosts
        keras.utils.set_random_seed(config.random_seed)
        with strategy.scope(), hosts.explain_failures():
            self.model = transformer.Transformer(
                hparams, dtype=run_config.POLICIES[hparams.activation_dtype]
            )
            self.optimizer = optimizers.adam(
                hparams,
                {v.path: v.value for v in self.model.trainable_variables},
            )
            # The position of the last batch used.
            self.epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.position = tf.Variable(0, dtype=tf.int64, trainable=False)
            # `reporting.UpdateTotals.sums` since the last report.
            self.unreported = tf.Variable(
                [0.0] * 4, dtype=tf.float64, trainable=False
            )
        self._groups = {
            "model": {v.path: v.value for v in self.model.variables},
            "optimizer": self.optimizer.state,
            "training": {
                "epoch": self.epoch,
                "position": self.position,
                "unreported": self.unreported,
            },
        }
        averages = self.optimizer.averages.variables
        if averages:
            self._groups["moving_average"] = averages
        self.manager = checkpoints.CheckpointManager(
            run.path,
            self._groups,
            config.keep_checkpoint_max,
            writes=hosts.is_chief,
        )

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self.optimizer.step.numpy())

    def restore(self) -> bool:
        """Restores the run's newest checkpoint; says whether it has one.

        The chief chooses it, and the others restore the same one.
        """
        is_found = self._hosts.is_chief and self.manager.latest() is not None
        path = self.manager.restore() if is_found else ""
        [is_found, step] = self._hosts.from_chief(is_found, self.step)
        if is_found and not path:
            path = str(self._run.path / f"ckpt-{step}")
            self._hosts.await_file(
                lambda: step in self.manager.all_steps(),
                f"--output_dir={self._run.path}",
            )
            self.manager.restore(path)
        if is_found:
            self._start_averages(path)
            _log.info("Going on from %s.", path)
        return bool(is_found)

    def warm_start(self, path: str) -> None:
        """Restores only the weights, of another run or checkpoint."""
        path = checkpoints.resolve(path)
        checkpoints.restore_model(path, self._groups["model"])
        self._start_averages(path)
        _log.info("Starting from the weights of %s.", path)

    def _start_averages(self, path: str) -> None:
        """Restores the moving averages; else they start from the weights."""
        if averages := self.optimizer.averages.variables:
            checkpoints.restore_model(path, averages)

    def save(
        self, batch, unreported: Sequence[float], is_stop: bool = False
    ) -> None:
        """Saves all variables, with the position of the last batch used.

        Args:
            batch: dict. The last batch of each of this host's replicas.
            unreported: `reporting.UpdateTotals.sums`.
            is_stop: bool. See `checkpoints.CheckpointManager.save`.
        """
        self._check_finite()
        self.unreported.assign(unreported)
        local = self._strategy.experimental_local_results
        epoch, position = self._hosts.from_last(
            *(int(local(batch[name])[-1]) for name in ("epoch", "position"))
        )
        self.epoch.assign(epoch)
        self.position.assign(position)
        if self._hosts.is_chief:
            _log.info("Saved %s.", self.manager.save(self.step, is_stop))

    def _check_finite(self) -> None:
        """Raises UserError if a variable is NaN or infinite.

        With too high a rate, finite gradients lead to such weights.
        """
        broken = optimizers.not_finite(
            self._groups["model"] | self.optimizer.state
        )
        if broken:
            raise errors.UserError(
                f"{broken[0]} and {len(broken) - 1} more variables are NaN or "
                f"infinite at step {self.step}, and are not saved. Lower "
                "learning_rate_constant or raise learning_rate_warmup_steps, "
                "and run again: the run goes on from its last checkpoint."
            )
