"""Learning rates as functions of the step."""

import math
from collections.abc import Callable

import tensorflow as tf

from relpos_tf import hparam


def learning_rate(hparams: hparam.HParams) -> Callable:
    """Returns the function from a step to its learning rate.

    `learning_rate_schedule` names it. With s the updates made so far, d the
    hidden size and w the `learning_rate_warmup_steps`:

    * `noam`: `learning_rate_constant` times Vaswani et al. (2017), equation
      3, `d**-0.5 * min(n**-0.5, n * w**-1.5)`, for n = s + 1, so that the
      first update learns already.
    * `legacy`: tensor2tensor's form of it, with ten times `learning_rate` in
      place of the constant.
    * A product of tensor2tensor's factors: `constant`, which is
      `learning_rate_constant`; `linear_warmup`, `min(1, s / w)`;
      `rsqrt_decay`, `max(s, w)**-0.5`; `rsqrt_hidden_size`, `d**-0.5`. With a
      warm-up, the first update has the rate 0.

    Args:
        hparams: `hparam.HParams`.

    Returns:
        A function of an integer or a scalar tensor, the number of updates
        made so far, that returns a float32 scalar tensor.

    Example:

    >>> rate = learning_rate(hparam.HParams())
    >>> f"{float(rate(3999)):.6f}"
    '0.000699'
    """
    scale = hparams.hidden_size**-0.5
    warmup = float(hparams.learning_rate_warmup_steps)
    if hparams.learning_rate_schedule == "noam":
        return _noam(hparams.learning_rate_constant * scale, warmup)
    if hparams.learning_rate_schedule == "legacy":
        # 5000 * 0.002 * learning_rate: the constants of its source code.
        return _noam(10.0 * hparams.learning_rate * scale, warmup)
    factors = {
        "constant": lambda step: hparams.learning_rate_constant,
        "linear_warmup": lambda step: tf.minimum(1.0, step / warmup),
        "rsqrt_decay": lambda step: tf.math.rsqrt(tf.maximum(step, warmup)),
        "rsqrt_hidden_size": lambda step: scale,
    }
    names = hparams.learning_rate_schedule.split("*")

    def product(step):
        step = tf.cast(step, tf.float32)
        return tf.convert_to_tensor(
            math.prod(factors[name](step) for name in names)
        )

    return product


def _noam(scale: float, warmup: float) -> Callable:
    """Returns linear growth, then the inverse square root."""

    def noam(step):
        number = tf.cast(step, tf.float32) + 1.0
        return scale * tf.minimum(tf.math.rsqrt(number), number * warmup**-1.5)

    return noam
