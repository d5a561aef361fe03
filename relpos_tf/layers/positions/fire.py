"""Attention with a learned function of the distance's share of the length.

Shapes: H heads, Q queries, K keys, I inputs, U units of the network.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import scheme

UNITS = 32
LENGTH = 512.0


@keras.saving.register_keras_serializable(package="relpos_tf")
class Fire(scheme.Scheme):
    """Adds a small network's function of the distance, as a share, to logits.

        e[i, j] = q[i] . k[j] / sqrt(D) + f[h](s, sign(j - i))
        s       = psi(|j - i|) / psi(max(L, i, j)),  psi(x) = log(c x + 1)

    Positions i and j count from 0. f has a hidden layer of 32 units (ReLU) and
    an output for each head. Each layer learns its own f, c and L.

    The paper has a decoder only, where no j is above i: a share of max(L, i).
    With max(i, j) the share is at most 1 on both sides, and depends on the two
    positions alone. So a translation depends neither on its batch nor on the
    padding, which must be on the right, and a cache gives the same numbers.

    The weights begin as in the authors' program: c is .1, L is 512, both are
    absolute values, and f's are uniform. The outputs have no bias, because it
    would not change a softmax. Nor does that of a hidden unit above 0 at all
    distances: its gradient is rounding, which Adam enlarges. So trainings that
    are equal but for rounding, as on other numbers of replicas, have other
    biases there; the model's outputs are the same.

    Args:
        bidirectional: bool. Whether the sign is an input of f, which tells keys
            after the query from those before.

    Reference:
        [Li et al., 2024](https://arxiv.org/abs/2310.04418), section 3.
    """

    name = "FIRE"

    def __init__(self, *, bidirectional: bool = True):
        self.bidirectional = checks.flag("bidirectional", bidirectional)

    def build(self, layer: keras.layers.Layer) -> None:
        uniform, limit = keras.initializers.RandomUniform, UNITS**-0.5
        inputs = 2 if self.bidirectional else 1
        self._weights = scheme.add_exact(
            layer,
            "fire",
            c=((), keras.initializers.Constant(0.1)),
            length=((), "ones"),  # L / 512, because Adam's steps are small
            hidden=((inputs, UNITS), uniform(-1.0, 1.0)),
            hidden_bias=((UNITS,), uniform(-1.0, 1.0)),
            output=((UNITS, layer.num_heads), uniform(-limit, limit)),
        )

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        c, length, hidden, shift, output = map(scheme.exact, self._weights)
        distances = pairs.distances()  # [Q, K]
        later = tf.range(pairs.keys) - tf.minimum(distances, 0)  # max(i, j)
        distances, later = (tf.cast(n, c.dtype) for n in (distances, later))

        def psi(x):
            return tf.math.log(tf.abs(c) * x + 1.0)

        most = tf.maximum(later, LENGTH * tf.abs(length))
        # No NaN if c is 0.
        inputs = [tf.math.divide_no_nan(psi(tf.abs(distances)), psi(most))]
        if self.bidirectional:
            inputs.append(tf.sign(distances))
        rows = tf.stack([tf.reshape(one, [-1]) for one in inputs])  # [I, Q * K]
        units = tf.matmul(hidden, rows, transpose_a=True)
        units = tf.nn.relu(units + shift[:, tf.newaxis])  # [U, Q * K]
        biases = tf.matmul(output, units, transpose_a=True)  # [H, Q * K]
        return tf.reshape(biases, [output.shape[1], pairs.queries, pairs.keys])
