"""Learning rates as functions of the step."""

from collections.abc import Callable

import tensorflow as tf

from relpos_tf import hparam


def learning_rate(hparams: hparam.HParams) -> Callable:
    """Returns the function from a step to its learning rate.

    Vaswani et al. (2017), equation 3, times `learning_rate_constant`: linear
    growth for `learning_rate_warmup_steps`, then the inverse square root:

        constant * hidden_size**-0.5 * min(n**-0.5, n * warmup**-1.5)

    with n = step + 1, so that step 0 already learns.

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
    scale = hparams.learning_rate_constant * hparams.hidden_size**-0.5
    warmup = float(hparams.learning_rate_warmup_steps)

    def noam(step):
        number = tf.cast(step, tf.float32) + 1.0
        return scale * tf.minimum(tf.math.rsqrt(number), number * warmup**-1.5)

    return noam
