"""Learning rates as functions of the step."""

import math
from collections.abc import Callable

import tensorflow as tf

from relpos_tf import hparam


def _noam(scale: float, hparams: hparam.HParams, step: tf.Tensor) -> tf.Tensor:
    """Returns linear growth, then the inverse square root."""
    scale *= hparams.hidden_size**-0.5
    number = step + 1.0
    growth = number * float(hparams.learning_rate_warmup_steps) ** -1.5
    return scale * tf.minimum(tf.math.rsqrt(number), growth)


# By `hparam.SCHEDULE_FACTORS`: functions of the hparams, and of the number of
# updates made so far, a float32 scalar.
FACTORS = {
    "noam": lambda h, step: _noam(h.learning_rate_constant, h, step),
    # 5000 * 0.002 * learning_rate: the constants of its source code.
    "legacy": lambda h, step: _noam(10.0 * h.learning_rate, h, step),
    "constant": lambda h, step: h.learning_rate_constant,
    "linear_warmup": lambda h, step: tf.minimum(
        1.0, step / float(h.learning_rate_warmup_steps)
    ),
    "rsqrt_decay": lambda h, step: tf.math.rsqrt(
        tf.maximum(step, float(h.learning_rate_warmup_steps))
    ),
    "rsqrt_hidden_size": lambda h, step: h.hidden_size**-0.5,
}


def learning_rate(
    hparams: hparam.HParams,
) -> Callable[[int | tf.Tensor], tf.Tensor]:
    """Returns the function from a step to its learning rate.

    `learning_rate_schedule` names it: a product of `FACTORS`. With s the
    updates made so far, d the hidden size and w the
    `learning_rate_warmup_steps`, these are

    * `noam`: `learning_rate_constant` times Vaswani et al. (2017), equation
      3, `d**-0.5 * min(n**-0.5, n * w**-1.5)`, for n = s + 1, so that the
      first update learns already;
    * `legacy`: tensor2tensor's form of it, with ten times `learning_rate` in
      place of the constant;
    * tensor2tensor's factors: `constant`, which is `learning_rate_constant`;
      `linear_warmup`, `min(1, s / w)`; `rsqrt_decay`, `max(s, w)**-0.5`;
      `rsqrt_hidden_size`, `d**-0.5`. With a warm-up, the first update has the
      rate 0.

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
    names = hparams.learning_rate_schedule.split("*")

    def rate(step: int | tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        return tf.convert_to_tensor(
            math.prod(FACTORS[name](hparams, step) for name in names)
        )

    return rate
