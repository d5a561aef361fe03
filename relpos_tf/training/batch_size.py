"""`batch_size=auto`: the largest batch that the memory of a GPU holds.

Shapes: B batch, L max_length.
"""

import gc
import logging
from collections.abc import Callable

import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import optimizers
from relpos_tf.training import run_config
from relpos_tf.training import train_step

_log = logging.getLogger("relpos_tf")
LEAST, MOST = 256, 2**19
# Room for fragments of memory, and for the gradients of other replicas.
_SPARE = 1.125


def check_device(run: run_dir.RunDir) -> None:
    """Raises UserError without a GPU, unless the run has its batch size."""
    if tf.config.list_logical_devices("GPU") or run.has_hparams():
        return
    raise errors.UserError(
        "batch_size=auto needs a GPU, and TensorFlow sees none. Batches that "
        "fill a computer's memory slow it down or end the process, and are no "
        "faster on a CPU. Give a number, as in --hparams=batch_size=4096."
    )


def chosen(
    hosts: hosts_lib.Hosts,
    run: run_dir.RunDir,
    hparams: hparam.HParams,
    config: run_config.RunConfig,
) -> hparam.HParams:
    """Returns the hparams with the batch size of a run.

    Args:
        hosts: `hosts.Hosts`. The chief decides for all.
        run: `run_dir.RunDir`. A run that there is keeps its batch size.
        hparams: `hparam.HParams`, with the tokenizer's `vocab_size`.
        config: `run_config.RunConfig`.

    Raises:
        UserError: not even the smallest batch fits.
    """
    hparams = resolve(hosts, run, hparams, Trial(hparams, config))
    gc.collect()  # frees the trial's variables before the run has its own
    return hparams


def resolve(
    hosts: hosts_lib.Hosts,
    run: run_dir.RunDir,
    hparams: hparam.HParams,
    fits: Callable[[int], bool],
) -> hparam.HParams:
    """Returns the hparams with the run's batch size, or a new run's largest.

    Args:
        hosts: `hosts.Hosts`. The chief decides for all.
        run: `run_dir.RunDir`.
        hparams: `hparam.HParams`.
        fits: function of a number of tokens. See `largest`.

    Raises:
        UserError: not even the smallest batch fits.
    """
    size = 0
    if hosts.is_chief:
        if run.has_hparams():
            size = run.read_hparams().batch_size
            _log.info("batch_size=auto: %d tokens, as in %s.", size, run.path)
        else:
            size = largest(fits)
            _log.info("batch_size=auto: %d tokens fit.", size)
    (size,) = hosts.from_chief(size)
    return hparams.replace(batch_size=size)


def largest(fits: Callable[[int], bool]) -> int:
    """Returns the largest 2^n or 3 x 2^n from `LEAST` to `MOST` that fits.

    Args:
        fits: function of a number of tokens. If a number fits, so do all
            smaller ones.

    Raises:
        UserError: `LEAST` does not fit.

    Example:

    >>> largest(lambda tokens: tokens <= 4000)
    3072
    """
    if not fits(LEAST):
        raise errors.UserError(
            f"batch_size=auto: not even {LEAST} tokens fit into the memory of "
            "the GPU. Choose a smaller model or a shorter max_length."
        )
    size = LEAST
    while size < MOST and fits(2 * size):
        size *= 2
    if size < MOST and fits(size * 3 // 2):
        size = size * 3 // 2
    return size


class Trial:
    """Tries whether an update of the longest sentences fits into memory.

    It builds a model of its own on this host's first device.

    Args:
        hparams: `hparam.HParams`, with the tokenizer's `vocab_size`.
        config: `run_config.RunConfig`.
    """

    def __init__(self, hparams: hparam.HParams, config: run_config.RunConfig):
        self._hparams = hparams
        self._config = config
        self._step = None

    def __call__(self, tokens: int) -> bool:
        """Returns whether an eighth more than so many tokens fit."""
        try:
            self._update(int(tokens * _SPARE))
        except tf.errors.ResourceExhaustedError:
            return False
        return True

    def _update(self, tokens):
        hparams = self._hparams
        # No batch of sentences as long as these has more rows.
        rows = max(tokens // hparams.max_length, 1)
        ids = tf.ones([rows, hparams.max_length], tf.int32)  # [B, L]
        batch = {"inputs": ids, "targets": ids}
        number = max(hparams.optimizer_multistep_accumulate_steps, 1)
        if self._step is None:
            self._step = self._compile(number)
        float(self._step(*[batch] * number)["loss"])  # waits for the device

    def _compile(self, number):
        hparams = self._hparams
        model = transformer.Transformer(
            hparams, dtype=run_config.POLICIES[hparams.activation_dtype]
        )
        spec = tf.TensorSpec([None, None], tf.int32)
        return train_step.compile_step(
            tf.distribute.get_strategy(),
            model,
            optimizers.adam(
                hparams, {v.path: v.value for v in model.trainable_variables}
            ),
            dict.fromkeys(("inputs", "targets"), spec),
            jit_compile=self._config.xla_compile,
            accumulate_steps=number,
        )
