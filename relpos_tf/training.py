"""The training loop: batches, progress, checkpoints, evaluation.

What may differ from run to run of the same model is in `settings`; what
defines the model and its updates is in `HParams`.
"""

import dataclasses
import logging
import math
import time

import keras
import tensorflow as tf

from relpos_tf import batching
from relpos_tf import checkpoints
from relpos_tf import errors
from relpos_tf import evaluation
from relpos_tf import hparam
from relpos_tf import optimizers
from relpos_tf import reporting
from relpos_tf import run_dir as run_dir_lib
from relpos_tf import schedules
from relpos_tf import settings as settings_lib
from relpos_tf import tokenizer as tokenizer_lib
from relpos_tf import train_step
from relpos_tf import translator as translator_lib
from relpos_tf.models import transformer

_log = logging.getLogger("relpos_tf")
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


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
            fit the model.
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
        self.hparams = hparams
        self.run = run
        self.settings = settings
        self._problem, self._data_dir = problem, data_dir
        self._strategy = strategy
        keras.utils.set_random_seed(settings.random_seed)
        with strategy.scope():
            self.model = transformer.Transformer(
                hparams, dtype=_POLICIES[hparams.activation_dtype]
            )
            self._optimizer = optimizers.adam(
                hparams,
                {v.path: v.value for v in self.model.trainable_variables},
            )
            # Of the last batch used: all it takes to go on from there.
            self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._position = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._manager = checkpoints.CheckpointManager(
            run.path,
            {
                "model": {v.path: v.value for v in self.model.variables},
                "optimizer": self._optimizer.state,
                "training": {
                    "epoch": self._epoch,
                    "position": self._position,
                },
            },
            settings.keep_checkpoint_max,
        )
        self._tokenizer = tokenizer_lib.load(problem.tokenizer_path(data_dir))
        self._translator = translator_lib.Translator(
            self.model, self._tokenizer
        )
        self._summaries = reporting.SummaryWriter(run.path)
        self._sums = []  # what the steps since the last report returned
        self._restore()

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self._optimizer.step.numpy())

    @property
    def total_steps(self) -> int:
        """The number of updates at which training ends."""
        return self.settings.train_steps or self.hparams.train_steps

    def _restore(self):
        if self._manager.latest():
            path = self._manager.restore()
            self.run.truncate_metrics(self.step)
            _log.info("Going on from %s.", path)
        elif self.settings.warm_start_from:
            path = checkpoints.resolve(self.settings.warm_start_from)
            checkpoints.restore_model(
                path, {v.path: v.value for v in self.model.variables}
            )
            _log.info("Starting from the weights of %s.", path)

    def train(self) -> None:
        """Trains up to the last step, saving and evaluating on the way.

        Raises:
            UserError: the loss is no longer a number.
        """
        batches = self._batches()
        step_fn = train_step.compile_step(
            self._strategy,
            self.model,
            self._optimizer,
            batches.element_spec,
            random_seed=self.settings.random_seed,
            jit_compile=self.settings.xla_compile,
        )
        progress = reporting.Throughput(self.step, self.total_steps)
        stopping = settings_lib.EarlyStopping(self.settings)
        past = [stopping.is_over(e["step"], e) for e in self._evaluations()]
        if past and past[-1]:
            return
        profiler = None
        if self.settings.profile:
            profiler = reporting.Profiler(self.run.path / "profile")
        saved_at, step, batch = time.monotonic(), self.step, None
        iterator = iter(batches)
        try:
            while step < self.total_steps:
                following = next(iterator)
                self._sums.append(step_fn(following))
                step, batch = step + 1, following
                if profiler:
                    profiler.count(step == self.total_steps)
                if self._is_due(step, self.settings.log_step_count_steps):
                    self._log_progress(progress, step)
                seconds = self.settings.save_checkpoints_secs
                evaluates = self._is_due(
                    step, self.settings.local_eval_frequency
                )
                if not evaluates and not (
                    seconds and time.monotonic() - saved_at >= seconds
                ):
                    continue
                progress.pause()
                self._save(batch)
                saved_at = time.monotonic()
                if evaluates and self.settings.evaluate:
                    if stopping.is_over(step, self.evaluate()):
                        return
                progress.resume()
        except KeyboardInterrupt:
            # Whether the update under way was made, its counter knows.
            batch = following if self.step > step else batch
            if batch is not None:
                self._save(batch)
            raise

    def _is_due(self, step: int, frequency: int) -> bool:
        """Says whether something is to happen now, as it is at the end."""
        return step % frequency == 0 or step == self.total_steps

    def _batches(self):
        """Returns the distributed batches that follow the last one used."""

        def dataset(context):
            del context  # one host: its batches are dealt to the replicas
            return batching.training_batches(
                self._problem.record_files(self._data_dir, "train"),
                batch_size=self.hparams.batch_size,
                max_length=self.hparams.max_length,
                seed=self.settings.random_seed,
                epoch=int(self._epoch.numpy()),
                position=int(self._position.numpy()),
                min_length_bucket=self.hparams.min_length_bucket,
                length_bucket_step=self.hparams.length_bucket_step,
                pad_to_boundary=self.settings.xla_compile,
            )

        return self._strategy.distribute_datasets_from_function(dataset)

    def _save(self, batch) -> None:
        """Saves everything, with the position of the last batch used."""
        self._check_finite()
        local = self._strategy.experimental_local_results
        self._epoch.assign(local(batch["epoch"])[-1])
        self._position.assign(local(batch["position"])[-1])
        path = self._manager.save(self.step)
        _log.info("Saved %s.", path)

    def _totals(self) -> dict[str, float]:
        """Sums what the steps since the last report returned."""
        names = "loss", "target_tokens", "source_tokens"
        return {
            n: float(sum(float(one[n]) for one in self._sums)) for n in names
        }

    def _check_finite(self) -> None:
        """Refuses to go on with weights that are not numbers."""
        loss = self._totals()["loss"]
        if not math.isfinite(loss):
            raise errors.UserError(
                f"The loss is {loss} at step {self.step}. Lower "
                "learning_rate_constant, raise learning_rate_warmup_steps or "
                "set clip_grad_norm, and run again: the run goes on from its "
                "last checkpoint."
            )

    def _log_progress(self, progress, step: int) -> None:
        self._check_finite()
        totals = self._totals()
        self._sums.clear()
        line, event = progress.report(
            step,
            loss=totals["loss"] / max(totals["target_tokens"], 1.0),
            tokens=totals["target_tokens"] + totals["source_tokens"],
            learning_rate=float(
                schedules.learning_rate(self.hparams)(step - 1)
            ),
        )
        _log.info("%s", line)
        self._record({"step": step, "split": "train"} | event)

    def _record(self, event: dict) -> None:
        """Writes an event to the run's metrics and for TensorBoard."""
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
        self._manager.protect(best["step"])

    def average(self) -> str | None:
        """Averages and scores the last checkpoints, if the hparams say so.

        Returns:
            The prefix of the average, or None.
        """
        number = self.hparams.average_checkpoints
        steps = self._manager.all_steps()[-number:] if number else []
        if len(steps) < 2:
            return None
        folder = self.run.path / "average"
        folder.mkdir(exist_ok=True)
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
        files = self._problem.record_files(self._data_dir, split)
        dataset = batching.evaluation_batches(
            files, batch_size=self.hparams.batch_size
        )
        if self.settings.eval_steps:
            dataset = dataset.take(self.settings.eval_steps)
        forced = evaluation.teacher_forced(self.model, dataset)
        scores, _ = evaluation.translate_and_score(
            self._translator, *self._problem.lines(self._data_dir, split)
        )
        event = {"step": self.step, "split": split} | extra
        event |= forced | dataclasses.asdict(scores)
        self._record(event)
        if not extra:
            self._protect_best()
        _log.info("%s", reporting.evaluation_line(event))
        return event
