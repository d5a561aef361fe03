"""The training loop: batches, updates, progress, checkpoints, evaluation.

`hparam.HParams` defines the model and its updates; `run_config.RunConfig` says
how long to train, and when to report, to save and to evaluate. `Trainer.train`
says in order what a run does.
"""

import contextlib
import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.data import batches as batches_lib
from relpos_tf.data import plan as plan_lib
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import averages
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.models import transformer
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import problem as problem_lib
from relpos_tf.training import evaluation
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import metrics
from relpos_tf.training import optimizers
from relpos_tf.training import reporting
from relpos_tf.training import run_config
from relpos_tf.training import schedules
from relpos_tf.training import train_step
from relpos_tf.utils import graphs
from relpos_tf.utils import signals
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")
# What TensorFlow raises for programs that XLA cannot make.
_NOT_COMPILED = (
    tf.errors.InternalError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnimplementedError,
)
_MOST_SKIPPED = 10  # updates in a row; more would never end


class Trainer:
    """Trains one run: a model, its data, its directory.

    Args:
        hparams: `hparam.HParams`, with the tokenizer's `vocab_size`.
        problem: a prepared `Problem`.
        data_dir: str. The folder where it was prepared.
        run: `run_dir.RunDir`. Receives checkpoints and metrics; training
            resumes from its newest checkpoint, if it has one.
        hosts: `hosts.Hosts`, with the strategy.
        config: `run_config.RunConfig`.

    Raises:
        UserError: the checkpoint to resume or to start from does not fit the
            model.
    """

    def __init__(
        self,
        hparams: hparam.HParams,
        problem: problem_lib.Problem,
        data_dir: str,
        run: run_dir_lib.RunDir,
        hosts: hosts_lib.Hosts,
        config: run_config.RunConfig,
    ):
        self.hparams = hparams
        self.run = run
        self.config = config
        self._problem, self._data_dir = problem, data_dir
        self._hosts = hosts
        self._stopping = run_config.EarlyStopping(config)
        self._accumulated = max(hparams.optimizer_multistep_accumulate_steps, 1)
        self._epoch_sizes: dict[int, int] = {}  # in batches
        asked = config.xla_compile
        self._is_compiled = graphs.have_gpu() if asked is None else asked
        self._shapes: set[tuple] = set()  # that XLA has compiled
        self._state = TrainingState(hparams, run, hosts, config)
        self.model = self._state.model
        self._tokenizer = tokenizer_lib.load(problem.tokenizer_path(data_dir))
        self._translator = translator_lib.Translator(
            self.model, self._tokenizer
        )
        if config.schedule != "evaluate":  # which restores what it scores
            self._state.restore(config.warm_start_from)
        self._restored_step = self.step
        self._summaries = reporting.SummaryWriter(run)
        is_profiled = config.profile and hosts.is_chief
        self._profile = f"{run.path}/profile" if is_profiled else ""

    @property
    def step(self) -> int:
        """The number of updates made."""
        return self._state.step

    @property
    def total_steps(self) -> int:
        """The number of updates at which training ends."""
        return self.config.train_steps or self.hparams.train_steps

    @property
    def batches_per_update(self) -> int:
        """How many batches an update takes, on all replicas."""
        return self._accumulated * self._hosts.strategy.num_replicas_in_sync

    def train(self) -> None:
        """Trains up to the last step; saves and evaluates on the way.

        A step is an update. An update with a NaN or infinite gradient is
        skipped; its batches are consumed.

        Raises:
            UserError: too many updates in a row were skipped, or another host
                has ended.
            signals.Stopped: any host received a signal. The state is saved,
                unless the first update was interrupted.
        """
        # Several hosts can only stop together; `signals.pending` says when.
        with (
            signals.held(),
            self._hosts.explain_failures(),
            contextlib.closing(reporting.profile(self._profile)) as profile,
        ):
            next(profile)
            if self._hosts.is_chief:
                self._prepare()
            is_over = self._has_ended()
            reader = self._reader()
            if self.step < self.total_steps:
                fingerprint = reader.plan.fingerprint(self.config.random_seed)
                self._state.follow(fingerprint)
            batches = self._batches(reader)
            step_fn = self._compile_step(batches.element_spec)
            batches = iter(batches)
            progress = reporting.Progress(
                self.step, self.total_steps, self._state.unreported.numpy()
            )
            saved_at = time.monotonic()
            # The first update builds its graph, which takes up to minutes: a
            # signal may interrupt it. No other update is lost.
            is_alone = self._hosts.number == 1
            first = signals.let_through if is_alone else contextlib.nullcontext
            terminal.show(lambda: "Building the graph of the first step.")
            while not is_over and self.step < self.total_steps:
                inputs = [next(batches) for _ in range(self._accumulated)]
                next(profile)
                with first(), self._telling_of_new_shapes(inputs):
                    result = step_fn(*inputs)
                first = contextlib.nullcontext
                is_made = progress.add(result)
                if is_made:
                    self._report(progress, reader.plan, inputs[-1])
                elif progress.skipped_in_a_row == _MOST_SKIPPED:
                    raise self._divergence()
                evaluates = is_made and self._is_due(
                    self.config.local_eval_frequency
                )
                epochs = self._epochs_ended(reader.plan, inputs[-1])
                is_overdue, *came = self._hosts.any(
                    self._is_overdue(saved_at), *signals.pending()
                )
                is_due = bool(evaluates or epochs or is_overdue)
                if not (is_due or any(came)):
                    continue
                with progress.paused():
                    self._save(inputs[-1], progress, epochs, not is_due)
                    for number in itertools.compress(signals.NUMBERS, came):
                        self._hosts.final_barrier()
                        raise signals.Stopped(number)  # on every host
                    if evaluates and self.config.evaluates:
                        is_over = self._evaluate_on_chief()
                    saved_at = time.monotonic()
            if is_over and self._hosts.is_chief:
                _log.info("Stopping: %s.", self._stopping)
            self._hosts.final_barrier()

    def _prepare(self) -> None:
        """Removes what a resumed run repeats; raises errors of evaluation."""
        self.run.truncate(self.step)
        self._protect()
        if self.config.evaluates:
            _ = self._evaluation_data

    def _reader(self) -> batches_lib.Reader:
        """Returns what reads the training batches that the hparams ask for."""
        hparams = self.hparams
        tokens = self._problem.tokens(self._data_dir, "train")
        step = hparams.length_bucket_step
        if self._is_compiled:  # fewer shapes, with hardly more padding
            step = max(step, 1.25)
        buckets = plan_lib.buckets(
            hparams.batch_size,
            hparams.max_length,
            hparams.min_length_bucket,
            step,
        )
        corpora = self._problem.corpora(self._data_dir)
        return batches_lib.Reader(
            tokens,
            plan_lib.Plan(
                tokens.lengths,
                corpora,
                buckets,
                hparams.pair_concatenation,
                fills_batches=self._is_compiled,
            ),
            self._tokenizer,
            hparams.bpe_dropout,
            pad_to_boundary=self._is_compiled,
        )

    def _batches(
        self, reader: batches_lib.Reader
    ) -> tf.distribute.DistributedDataset:
        """Returns the batches that follow the last one used."""
        return self._hosts.strategy.distribute_datasets_from_function(
            lambda context: batches_lib.training_batches(
                reader,
                seed=self.config.random_seed,
                epoch=int(self._state.epoch.numpy()),
                position=int(self._state.position.numpy()),
                host=hosts_lib.host_of(context),
            )
        )

    def _compile_step(self, element_spec: Any) -> Callable:
        form = self.hparams.relative_attention_implementation
        if self._is_compiled and form != "auto":
            _log.warning(
                "relative_attention_implementation=%s has no effect with XLA, "
                "which compiles the paper's form: see --xla_compile.",
                form,
            )
        return train_step.compile_step(
            self._hosts.strategy,
            self.model,
            self._state.optimizer,
            element_spec,
            random_seed=self.config.random_seed,
            jit_compile=self._is_compiled,
            accumulate_steps=self._accumulated,
        )

    @contextlib.contextmanager
    def _telling_of_new_shapes(self, batches):
        """Logs how long an update took whose batches XLA had to compile.

        Raises:
            UserError: XLA cannot compile them.
        """
        local = self._hosts.strategy.experimental_local_results
        shapes = {tuple(local(one["inputs"])[0].shape) for one in batches}
        new, begun = sorted(shapes - self._shapes), time.monotonic()
        try:
            yield
        except _NOT_COMPILED as error:
            if not (new and self._is_compiled):
                raise
            cause = str(error).partition("\n")[0].rstrip(".")
            raise errors.UserError(
                f"XLA cannot compile an update here: {cause}. Train without "
                "it, with --noxla_compile."
            ) from error
        self._shapes |= shapes
        if new and self._is_compiled:
            listed = ", ".join("{} x {}".format(*shape) for shape in new)
            seconds = time.monotonic() - begun
            _log.info("XLA compiled batches of %s: %.0f s.", listed, seconds)

    def _is_due(self, frequency: int) -> bool:
        """Says whether `frequency` divides the step, or training ends."""
        return self.step % frequency == 0 or self.step >= self.total_steps

    def _is_overdue(self, saved_at: float) -> bool:
        """Says whether the last checkpoint is older than the user allows."""
        seconds = self.config.save_checkpoints_secs
        return 0 < seconds <= time.monotonic() - saved_at

    def _epochs_ended(
        self, plan: plan_lib.Plan, batch: Mapping[str, tf.Tensor]
    ) -> int:
        """Returns how many epochs have ended, if one ends here; else 0.

        It does if the next update has a batch of another epoch. Epochs count
        if the hparams ask for an average at their ends.

        Args:
            plan: that of the data.
            batch: the last one of the update.
        """
        if not self.hparams.average_epochs:
            return 0
        epoch, position = self._state.place(batch)
        left = self._epoch_size(plan, epoch) - position
        return epoch + 1 if left < self.batches_per_update else 0

    def _epoch_size(self, plan: plan_lib.Plan, epoch: int) -> int:
        """Returns the number of batches of an epoch."""
        if epoch not in self._epoch_sizes:
            batches = plan.epoch(self.config.random_seed, epoch)
            self._epoch_sizes = {epoch: sum(1 for _ in batches)}
        return self._epoch_sizes[epoch]

    def _report(self, progress, plan, batch):
        """Logs a line when one is due; else shows one on a terminal."""

        def line():
            epoch, position = self._state.own_place(batch)
            used = position / self._epoch_size(plan, epoch)
            return progress.line(self.step, epoch + used)

        if not self._is_due(self.config.log_step_count_steps):
            terminal.show(line, is_logged=True)
            return
        _log.info("%s", line())
        rate = schedules.learning_rate(self.hparams)(self.step - 1)
        event = progress.report(self.step, float(rate))
        self._record({"step": self.step, "split": "train"} | event)

    def _record(self, event: dict[str, Any]) -> None:
        """Writes an event to the run's metrics and for TensorBoard."""
        if self._hosts.is_chief:
            run_dir_lib.run_of(self.run.path)  # raises if it was removed
            self.run.append_metrics(event)
            self._summaries.write(event)

    def _save(
        self,
        batch: Mapping[str, tf.Tensor],
        progress: reporting.Progress,
        epochs: int,
        is_stop: bool,
    ) -> None:
        """Saves a checkpoint, and marks it if it is the end of an epoch."""
        if not self.step:
            return  # All updates so far were skipped.
        if epochs and self._hosts.is_chief:
            # First, so that no kill comes between the checkpoint and its mark.
            self.run.mark(run_dir_lib.EPOCH, self.step)
            self._protect(self.step)
        self._state.save(batch, progress.sums(), is_stop)

    def _protect(self, *coming: int) -> None:
        """Keeps the ends of epochs and the best BLEU, however old they are.

        The best is marked, of those that are there. That of other conditions
        stays the best until there is an evaluation under these.

        Args:
            *coming: Steps that will be ends of epochs.
        """
        saved = self._state.manager.all_steps()
        if scored := [e for e in self._evaluations() if e["step"] in saved]:
            best = max(scored, key=lambda event: event["bleu"])["step"]
            self.run.mark(run_dir_lib.BEST, best)
            marked = run_dir_lib.steps_of(self.run.path, run_dir_lib.BEST)
            self.run.unmark(run_dir_lib.BEST, marked - {best})
        ends = averages.ends_of_epochs(
            self.run.path, self.hparams.average_epochs, *coming
        )
        self._state.manager.protect(*ends)

    def _divergence(self) -> errors.UserError:
        """Returns the error of too many skipped updates."""
        reason = (
            "The loss or its gradient was NaN or infinite in "
            f"{_MOST_SKIPPED} updates in a row, after step {self.step}, and "
            "they were skipped."
        )
        if self.step == self._restored_step > 0:  # No update ever follows it.
            ruined = f"{self.run.path}/ckpt-{self.step}"
            reason += f" So {ruined} is ruined: the run had diverged before."
            steps = run_dir_lib.all_steps(self.run.path)
            if earlier := [step for step in steps if step < self.step]:
                reason += (
                    f" Remove {ruined}.* to go back to the newest one before "
                    f"it, {self.run.path}/ckpt-{earlier[-1]}."
                )
            else:
                reason += " There is no earlier one: name another --output_dir."
        return errors.UserError(
            f"{reason} Lower learning_rate_constant, raise "
            "learning_rate_warmup_steps, set clip_grad_norm or look for "
            "unusual text in the data, and run again: the run resumes from its "
            "last checkpoint, if there is one."
        )

    @functools.cached_property
    def _conditions(self) -> dict[str, Any]:
        """All that scores depend on, besides the weights."""
        manifest = self._problem.manifest(self._data_dir)
        data = manifest_lib.fingerprints(manifest)
        names = "batch_size", "beam_size", "alpha", "extra_length"
        return {
            "data": data[self.config.eval_split],
            "eval_steps": self.config.eval_steps,
            "bleu_tokenize": metrics.tokenizer_of(
                self._problem.target_language, self.config.bleu_tokenize
            ),
            **{name: getattr(self.hparams, name) for name in names},
        }

    @functools.cached_property
    def _evaluation_data(self) -> tuple[Any, list[str], list[str], str]:
        """The tokens, lines, references and tokenizer for BLEU to evaluate.

        Logs once what makes the scores doubtful.

        Raises:
            UserError: data are missing or damaged.
        """
        split = self.config.eval_split
        tokens = self._problem.tokens(self._data_dir, split)
        sources, references = self._problem.lines(self._data_dir, split)
        metrics.check_references(references)
        tokenize = self._conditions["bleu_tokenize"]
        for warning in metrics.reference_warnings(references, tokenize):
            _log.warning("%s", warning)
        return tokens, sources, references, tokenize

    def _evaluations(self) -> list[dict[str, Any]]:
        """Returns the evaluations that can be compared, by step.

        They are those under the present conditions, without averages.
        """
        found = [
            event
            for event in self.run.read_metrics()
            if event["split"] == self.config.eval_split
            and "averaged" not in event
            and event.get("conditions") == self._conditions
        ]
        return sorted(found, key=lambda event: event["step"])

    def _has_ended(self) -> bool:
        """Says whether early stopping has ended the run.

        Replays the evaluations so far, and makes one that a kill prevented.
        """
        past = self._evaluations()
        decisions = [
            self._stopping.is_over(event["step"], event) for event in past
        ]
        is_missing = (
            self.config.evaluates
            and self.step > 0
            and self._is_due(self.config.local_eval_frequency)
            and all(event["step"] != self.step for event in past)
        )
        is_over, is_missing = map(
            bool,
            self._hosts.from_chief(decisions[-1:] == [True], is_missing),
        )
        return bool(is_over or (is_missing and self._evaluate_on_chief()))

    def _evaluate_on_chief(self) -> bool:
        """Evaluates; says on all hosts whether training is to stop.

        Raises:
            signals.Stopped: on all hosts, if the chief received a signal.
        """
        is_over = number = 0
        if self._hosts.is_chief:
            try:
                with signals.let_through():
                    is_over = self._stopping.is_over(self.step, self.evaluate())
            except signals.Stopped as stop:
                number = stop.number
        is_over, number = self._hosts.from_chief(is_over, number)
        if number:
            self._hosts.final_barrier()
            raise signals.Stopped(number)
        return bool(is_over)

    def evaluate(self) -> dict[str, Any]:
        """Scores the model on a split of the problem and records the scores.

        The moving averages of the weights are scored, if there are any.

        Returns:
            The event: `run_config.METRICS`, the other attributes of
            `metrics.Scores`, the step, the split and the conditions.
        """
        with self._state.optimizer.averages.in_place():
            event = self._score(self.step)
        self._protect()
        return event

    def score(self, prefix: str) -> dict[str, Any]:
        """Scores a checkpoint, or an average, and records the scores.

        The model has its weights then.

        Args:
            prefix: str. The checkpoint, of this run.

        Returns:
            The event, see `evaluate`.
        """
        variables = {v.path: v.value for v in self.model.variables}
        checkpoints.restore_model(prefix, variables)
        number = len(checkpoints.averaged_steps(prefix))
        averaged = {"averaged": number} if number else {}
        return self._score(run_dir_lib.checkpoint_step(prefix), **averaged)

    def _score(self, step: int, **extra) -> dict[str, Any]:
        """Scores the model as it is; adds `extra` to the event."""
        split = self.config.eval_split
        tokens, sources, references, tokenize = self._evaluation_data
        dataset = batches_lib.evaluation_batches(
            tokens, self.hparams.batch_size
        )
        dataset = itertools.islice(dataset, self.config.eval_steps or None)
        forced = evaluation.teacher_forced(self.model, dataset)

        progress = terminal.counting(f"Evaluating {split}: line", len(sources))
        progress(0)
        found = self._translator.translations(sources, progress=progress)
        texts = [one.texts[0] for one in found]
        scores = metrics.corpus_bleu(texts, references, tokenize)
        event = {"step": step, "split": split} | extra
        event["conditions"] = self._conditions
        event |= forced | dataclasses.asdict(scores)
        before = [past["bleu"] for past in self._evaluations()]
        is_best = not extra and bool(before) and event["bleu"] > max(before)
        self._record(event)
        _log.info("%s", run_config.log_line(event, is_best))
        _log.info("%s", reporting.examples(sources, references, texts))
        return event

    def end(self) -> None:
        """Averages and scores checkpoints, and marks that the run has ended."""
        self.average()
        if self._hosts.is_chief:
            self.run.mark(run_dir_lib.END, self.step)

    def average(self) -> str | None:
        """Averages and scores checkpoints, see `averages.chosen`.

        Returns:
            The prefix of the average; None without one, and on all hosts but
            the chief.
        """
        if not self._hosts.is_chief:
            return None
        steps = averages.chosen(self.run.path, self.hparams)
        if len(steps) < (most := self.hparams.num_averaged):
            _log.warning("Checkpoints to average: %d of %d.", len(steps), most)
        if len(steps) < 2:
            return None
        average = averages.write(self.run.path, steps, self.step)
        if self.config.evaluates:
            self.score(average)
        return average


class TrainingState:
    """The model, its optimizer, the position in the data, and checkpoints.

    With these, a resumed run equals one that never stopped.

    Args:
        hparams: `hparam.HParams`.
        run: `run_dir.RunDir`. Receives the checkpoints.
        hosts: `hosts.Hosts`, with the strategy.
        config: `run_config.RunConfig`.

    Attributes:
        model: `transformer.Transformer`.
        optimizer: the optimizer of its variables.
        epoch: int64 variable. The epoch of the last batch used.
        position: int64 variable. The number of that batch in its epoch.
        plan: int64 variable. The `plan.Plan.fingerprint` of these two; or 0.
        unreported: float64 variable `[4]`. See `reporting.Progress.sums`.
        manager: `checkpoints.CheckpointManager`.
    """

    def __init__(
        self,
        hparams: hparam.HParams,
        run: run_dir_lib.RunDir,
        hosts: hosts_lib.Hosts,
        config: run_config.RunConfig,
    ):
        self._run = run
        self._hosts = hosts
        keras.utils.set_random_seed(config.random_seed)
        with hosts.strategy.scope(), hosts.explain_failures():
            self.model = transformer.Transformer(
                hparams, dtype=run_config.POLICIES[hparams.activation_dtype]
            )
            self.optimizer = optimizers.OPTIMIZERS[hparams.optimizer](
                hparams,
                {v.path: v.value for v in self.model.trainable_variables},
            )
            self.epoch, self.position, self.plan, self.unreported = (
                tf.Variable(value, trainable=False)
                for value in (*np.zeros(3, np.int64), np.zeros(4))
            )
        self._groups = {
            "model": {v.path: v.value for v in self.model.variables},
            "optimizer": self.optimizer.state,
            "training": {
                "epoch": self.epoch,
                "position": self.position,
                "plan": self.plan,
                "unreported": self.unreported,
            },
        }
        if averages := self.optimizer.averages.variables:
            self._groups["moving_average"] = averages
        kept = max(config.keep_checkpoint_max, hparams.average_checkpoints)
        self.manager = checkpoints.CheckpointManager(
            run.path, self._groups, kept, writes=hosts.is_chief
        )

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self.optimizer.step.numpy())

    def restore(self, warm_start_from: str = "") -> None:
        """Restores the run's newest checkpoint, or else weights to start from.

        The chief chooses the checkpoint, and the others restore the same one.

        Args:
            warm_start_from: str. Another run or checkpoint, whose weights a
                run without a checkpoint starts from; or "".
        """
        if self._hosts.is_chief and self.manager.all_steps():
            self.manager.restore()
        [step] = self._hosts.from_chief(self.step)
        path = f"{self._run.path}/ckpt-{step}"
        if step and not self._hosts.is_chief:
            self._hosts.await_file(
                lambda: step in self.manager.all_steps(),
                f"--output_dir={self._run.path}",
            )
            self.manager.restore(path)
        if step:
            _log.info("Resuming from %s.", path)
        elif warm_start_from:
            path = checkpoints.resolve(warm_start_from)
            checkpoints.restore_model(path, self._groups["model"])
            _log.info("Starting from the weights of %s.", path)
        else:
            return
        # Without moving averages there, they start from the weights.
        if averages := self.optimizer.averages.variables:
            checkpoints.restore_model(path, averages)

    def follow(self, fingerprint: int) -> None:
        """Begins the next epoch if the position is one of a different plan.

        Args:
            fingerprint: int. That of the `plan.Plan` of the batches to come.
        """
        if self.plan.numpy() not in (0, fingerprint):
            epoch = int(self.epoch.assign_add(1).numpy())
            self.position.assign(0)
            _log.warning(
                "The training pairs come in a different order than before: the "
                "rest of epoch %d is left out, and the next epoch begins.",
                epoch,
            )
        self.plan.assign(fingerprint)

    def place(self, batch: Mapping[str, tf.Tensor]) -> list[int]:
        """Returns the epoch of a batch, and its number in the epoch.

        All hosts call it together, and get those of the last replica of the
        last host.

        Args:
            batch: a batch of each of this host's replicas.
        """
        return self._hosts.from_last(*self.own_place(batch))

    def own_place(self, batch: Mapping[str, tf.Tensor]) -> list[int]:
        """Returns the same of this host's last replica."""
        local = self._hosts.strategy.experimental_local_results
        return [int(local(batch[n])[-1]) for n in ("epoch", "position")]

    def save(
        self,
        batch: Mapping[str, tf.Tensor],
        unreported: Sequence[float],
        is_stop: bool = False,
    ) -> None:
        """Saves all variables, with the position of the last batch used.

        Args:
            batch: the last batch of each of this host's replicas.
            unreported: `reporting.Progress.sums`.
            is_stop: bool. See `checkpoints.CheckpointManager.save`.

        Raises:
            UserError: a variable is NaN or infinite: with too high a rate,
                finite gradients lead to such weights.
        """
        broken = optimizers.not_finite(
            self._groups["model"] | self.optimizer.state
        )
        if broken:
            raise errors.UserError(
                f"{broken[0]} and {len(broken) - 1} more variables are NaN or "
                f"infinite at step {self.step}, and are not saved. Lower "
                "learning_rate_constant or raise learning_rate_warmup_steps, "
                "and run again: the run resumes from its last checkpoint."
            )
        self.unreported.assign(unreported)
        epoch, position = self.place(batch)
        self.epoch.assign(epoch)
        self.position.assign(position)
        if self._hosts.is_chief:
            _log.info("Saved %s.", self.manager.save(self.step, is_stop))
