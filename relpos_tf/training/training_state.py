"""What a run trains: the model, the optimizer, the place in the data.

Saved, it is all that it takes to go on as if the run had never stopped.
"""

import logging
from collections.abc import Sequence

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.models import transformer
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import optimizers
from relpos_tf.training import run_config as settings_lib

_log = logging.getLogger("relpos_tf")
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class TrainingState:
    """The variables of a run, and their checkpoints.

    Args:
        hparams: `hparam.HParams`.
        run: `run_dir.RunDir`. Gets the checkpoints.
        strategy: `tf.distribute.Strategy`.
        hosts: `hosts.Hosts` of the strategy.
        settings: `settings.Settings`.
    """

    def __init__(
        self,
        hparams: hparam.HParams,
        run: run_dir_lib.RunDir,
        strategy: tf.distribute.Strategy,
        hosts: hosts_lib.Hosts,
        settings: settings_lib.Settings,
    ):
        self._run = run
        self._strategy = strategy
        self._hosts = hosts
        keras.utils.set_random_seed(settings.random_seed)
        with strategy.scope(), hosts.connected():
            self.model = transformer.Transformer(
                hparams, dtype=_POLICIES[hparams.activation_dtype]
            )
            self.optimizer = optimizers.adam(
                hparams,
                {v.path: v.value for v in self.model.trainable_variables},
            )
            # Of the last batch used: all it takes to go on from there.
            self.epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.position = tf.Variable(0, dtype=tf.int64, trainable=False)
            # `reporting.Results.sums` of the updates since the last report.
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
        self.manager = checkpoints.CheckpointManager(
            run.path,
            self._groups,
            settings.keep_checkpoint_max,
            writes=hosts.is_chief,
            # Checkpoints of earlier versions do not have it.
            optional=["training/unreported"],
        )

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self.optimizer.step.numpy())

    def restore(self) -> bool:
        """Goes on from the run's newest checkpoint; says whether it has one.

        The chief chooses it, and the others restore the same.
        """
        found = self._hosts.is_chief and self.manager.latest() is not None
        path = self.manager.restore() if found else ""
        [found, step] = self._hosts.from_chief(found, self.step)
        if found and not path:
            path = str(self._run.path / f"ckpt-{step}")
            self._hosts.await_chief(
                lambda: step in self.manager.all_steps(),
                f"--output_dir={self._run.path}",
            )
            self.manager.restore(path)
        if found:
            _log.info("Going on from %s.", path)
        return bool(found)

    def start_from(self, path: str) -> None:
        """Takes the weights of another run or checkpoint, and no more."""
        path = checkpoints.resolve(path)
        checkpoints.restore_model(path, self._groups["model"])
        _log.info("Starting from the weights of %s.", path)

    def save(self, batch, unreported: Sequence[float]) -> None:
        """Saves everything, with the position of the last batch used.

        Args:
            batch: dict. The last batches of this host's replicas.
            unreported: `reporting.Results.sums`.
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
            _log.info("Saved %s.", self.manager.save(self.step))

    def _check_finite(self) -> None:
        """Refuses to save weights that are not numbers.

        A rate that is too high can make them of gradients that are.
        """
        broken = optimizers.not_finite(
            self._groups["model"] | self.optimizer.state
        )
        if broken:
            raise errors.UserError(
                f"{broken[0]} and {len(broken) - 1} more variables hold what "
                f"is no number at step {self.step}, and are not saved. Lower "
                "learning_rate_constant or raise learning_rate_warmup_steps, "
                "and run again: the run goes on from its last checkpoint."
            )
