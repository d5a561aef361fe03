"""The checkpoints at the ends of epochs of the training data.

An epoch ends with the last update that has no batch of the next one. That an
update was the last one shows when the batches of the next update are read. The
checkpoint of step 300 is then marked by the file `ckpt-300.epoch`: all
checkpoints have the same content, and a kill between the two files loses
nothing, because a resumed run reads the same batches next.
"""

import tensorflow as tf

from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.training import hosts as hosts_lib


class EpochEnds:
    """Finds and marks the ends of epochs.

    Args:
        run: `run_dir.RunDir`. The chief marks its checkpoints.
        strategy: `tf.distribute.Strategy` of the batches.
        hosts: `hosts.Hosts` of the strategy.
        number: int. How many of the last ends are averaged. Also an
            attribute. 0: ends are neither found nor marked.
    """

    def __init__(
        self,
        run: run_dir_lib.RunDir,
        strategy: tf.distribute.Strategy,
        hosts: hosts_lib.Hosts,
        number: int,
    ):
        self._run = run
        self._strategy = strategy
        self._hosts = hosts
        self.number = number
        self._epoch = 0

    def restore(self, step: int, epoch: int) -> None:
        """Sets the state of a resumed run.

        Args:
            step: int. The number of updates made. Marks of later ones go: the
                run may not make the same updates again.
            epoch: int. The epoch of the last batch used.
        """
        self._epoch = epoch
        if self._hosts.is_chief:
            self._run.truncate_epoch_ends(step)

    def is_before(self, batch) -> bool:
        """Says whether an epoch ends before the next update.

        It does if that update has a batch of the next epoch.

        With several hosts, all call it for each update. The last replica of
        the last host decides, as for the position that is saved.

        Args:
            batch: dict. The last batch of each replica in the next update.
        """
        if not self.number:
            return False
        own = self._strategy.experimental_local_results(batch["epoch"])[-1]
        before = self._epoch
        [self._epoch] = self._hosts.from_last(int(own))
        return self._epoch > before

    def mark(self, step: int) -> None:
        """Marks the checkpoint of a step, which is there."""
        if self._hosts.is_chief:
            self._run.mark_epoch_end(step, self._epoch)

    def steps(self, *coming: int) -> list[int]:
        """Returns the steps of the last ends, ascending.

        Args:
            *coming: Steps of checkpoints that will be marked.
        """
        if not self.number:
            return []
        ends = {*run_dir_lib.epoch_ends(self._run.path), *coming}
        return sorted(ends)[-self.number :]
