"""A preference for the neighbourhood of a position that each query predicts.

Yang et al. (2018) add a Gaussian over the positions j of the keys to the logits
of self-attention:

    G[i, j] = -(j - P[i])^2 / (2 sigma[i]^2)
    P[i] = I[i] sigmoid(u_p . tanh(W_p x[i]))
    sigma[i] = window[i] / 2

x[i] is the layer's input. The window is of one of three kinds:

    fixed   window[i] = a number
    layer   window[i] = I[i] sigmoid(u_d . tanh(W_d mean of the keys))
    query   window[i] = I[i] sigmoid(u_d . tanh(W_p x[i]))

I[i] is the number of keys of a query: the tokens of its sentence without
padding; in a decoder, its own position plus one. Positions are counted from the
first of them, so padding may be on either side. The mean is over the keys that
the query may attend to. So the result depends neither on the neighbours in a
batch nor on later tokens, and a cache gives the same numbers; in a decoder,
even the kind "layer" has a window for each query. Each head has its own vectors
u, and so its own position and window.

A window is at least one position: sigma is at least 1/2.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import scheme

LEARNED = ("layer", "query")
_SMALLEST_WINDOW = 1.0


@keras.saving.register_keras_serializable(package="relpos_tf")
class Localness(scheme.Scheme):
    """Adds the Gaussian bias G to the logits.

    Args:
        window: float or str. The window, twice sigma; or "layer" or "query",
            for each of which it is predicted.

    Raises:
        UserError: another word, or a window below 1.

    Reference:
        [Yang et al., 2018](https://arxiv.org/abs/1810.10182), section 3.
    """

    def __init__(self, window: float | str):
        if isinstance(window, str):
            self.window: float | str = checks.choice("window", window, LEARNED)
        else:
            self.window = checks.number("window", window, _SMALLEST_WINDOW)

    def build(self, layer: keras.layers.Layer) -> None:
        size, heads = layer.hidden_size, layer.num_heads
        features = layer.q.kernel.shape[0]  # of x
        self._compute_value = layer.compute_value
        self._variables: dict[str, keras.Variable] = {}

        def add(name, *shape, **options):
            self._variables[name] = layer.add_scheme_weight(
                f"localness_{name}", shape, "glorot_uniform", **options
            )

        add("position_hidden", features, size)  # W_p
        # Not in bfloat16, which is not exact above 256.
        add("position_vectors", size, heads, autocast=False)  # u_p
        if self.window == "layer":
            add("window_hidden", size, size)  # W_d
        if self.window in LEARNED:
            add("window_vectors", size, heads, autocast=False)  # u_d

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        # To the full shape: products that broadcast are slow, some even wrong.
        every = tf.ones([tf.shape(x)[0], keys.shape[1], 1, pairs.keys], tf.bool)
        mask = pairs_lib.join(pairs.mask(), every)  # [B, H, Q or 1, K]
        positions = tf.range(pairs.keys)
        hidden = self._hidden("position_hidden", x)  # [B, Q, F]
        share = self._share("position_vectors", hidden)  # [B, H, Q]
        size = tf.reduce_sum(tf.cast(mask, tf.int32), -1)
        size = tf.cast(size, share.dtype)  # I
        # The first key has another position if padding is on the left.
        first = tf.reduce_min(tf.where(mask, positions, pairs.keys), -1)
        first = tf.cast(tf.where(first < pairs.keys, first, 0), share.dtype)
        window = self.window
        if window in LEARNED:
            if window == "layer":
                hidden = self._hidden("window_hidden", _means(keys, mask))
            window = size * self._share("window_vectors", hidden)
            window = tf.expand_dims(tf.maximum(window, _SMALLEST_WINDOW), -1)
        # Not center[..., tf.newaxis], which LiteRT's converter refuses.
        center = tf.expand_dims(first + size * share, -1)  # [B, H, Q, 1]
        distance = tf.cast(positions, center.dtype) - center
        # (j - P)^2 / (2 sigma^2), with sigma = window / 2.
        return -2.0 * tf.square(distance / window)  # [B, H, Q, K]

    def _hidden(self, name, x):
        """Returns tanh(W x) of `[B, Q, F]`: `[B, Q, H * D]`."""
        kernel = self._compute_value(self._variables[name])
        rows = tf.reshape(tf.cast(x, kernel.dtype), [-1, kernel.shape[0]])
        shape = tf.concat([tf.shape(x)[:2], kernel.shape[1:]], 0)
        return tf.reshape(tf.tanh(tf.matmul(rows, kernel)), shape)

    def _share(self, name, hidden):
        """Returns sigmoid(u . h) of `[B, Q, F]`, for each head: `[B, H, Q]`.

        In float32, or float64: bfloat16 is not exact above 256.
        """
        vectors = self._variables[name].value  # [F, H]
        rows = tf.reshape(hidden, [-1, vectors.shape[0]])
        numbers = tf.sigmoid(tf.matmul(tf.cast(rows, vectors.dtype), vectors))
        shape = tf.concat([tf.shape(hidden)[:2], vectors.shape[1:]], 0)
        return tf.transpose(tf.reshape(numbers, shape), [0, 2, 1])

    def summary(self) -> str:
        return f"localness {self.window}"


def _means(keys, mask):
    """Returns the mean of the keys that a query may attend to: `[B, Q, F]`.

    Q is 1 if all queries have the same keys. The mean of no keys is 0.
    """
    weights = tf.cast(mask, pairs_lib.sum_dtype(keys.dtype))  # [B, H, Q, K]
    weights /= tf.maximum(tf.reduce_sum(weights, -1, keepdims=True), 1.0)
    means = tf.matmul(tf.cast(weights, keys.dtype), keys)  # [B, H, Q, D]
    batch, heads, queries, depth = (pairs_lib.size(means, i) for i in range(4))
    means = tf.transpose(means, [0, 2, 1, 3])  # [B, Q, H, D]
    return tf.reshape(means, [batch, queries, heads * depth])
