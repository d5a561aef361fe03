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
from relpos_tf.layers import heads as heads_lib
from relpos_tf.layers import projections
from relpos_tf.layers.positions import scheme

KINDS = ("fixed", "layer", "query")
_SMALLEST_WINDOW = 1.0


@keras.saving.register_keras_serializable(package="relpos_tf")
class Localness(scheme.Scheme):
    """Adds the Gaussian bias G to the logits.

    Args:
        kind: str. "fixed", "layer" or "query": the kind of the window.
        window: float. The window of the kind "fixed".

    Raises:
        UserError: an unknown kind, or a window below 1.

    Reference:
        [Yang et al., 2018](https://arxiv.org/abs/1810.10182), section 3.
    """

    name = "Gaussian bias around a predicted position"

    def __init__(self, kind: str, window: float = 10):
        checks.choice("kind", kind, KINDS)
        checks.number("window", window, least=_SMALLEST_WINDOW)
        self.kind = kind
        self.window = window

    def build(self, layer):
        self._gaussians = layer.add_sublayer(
            Gaussians(
                layer.hidden_size,
                layer.num_heads,
                kind=self.kind,
                window=self.window,
                dtype=layer.dtype_policy,
                name="localness",
            )
        )

    def weight_shapes(self, num_heads, depth):
        size = num_heads * depth  # F
        shapes = {
            "localness/position_hidden/kernel": (size, size),
            "localness/position_vectors": (size, num_heads),
        }
        if self.kind == "layer":
            shapes["localness/window_hidden/kernel"] = (size, size)
        if self.kind != "fixed":
            shapes["localness/window_vectors"] = (size, num_heads)
        return shapes

    def bias(self, x, keys_values, pairs, allowed):
        return self._gaussians(
            x,
            keys_values.key_rows(),
            size=pairs.number_of_keys(),
            first=pairs.first_key(),
            positions=pairs.key_positions(),
            may_attend=allowed,
        )

    def summary(self):
        return f"localness {self.kind}"

    def get_config(self):
        return {"kind": self.kind, "window": self.window}


@keras.saving.register_keras_serializable(package="relpos_tf")
class Gaussians(keras.layers.Layer):
    """Computes the Gaussian bias G of the logits.

    Args:
        hidden_size: int, F. Size of the queries, and of all heads together.
        num_heads: int, H.
        kind: str. "fixed", "layer" or "query": the kind of the window.
        window: float. The window of the kind "fixed".
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, Q, F]` tensor: the input of the attention.
        keys: `[B, H, K, D]` tensor: the projected keys.
        size: int32 tensor that broadcasts to `[B, H, Q]`: I.
        first: The same: the position from which P is counted.
        positions: int32 `[K]`: the positions of the keys.
        may_attend: None or a bool tensor that broadcasts to `[B, H, Q, K]`.

    Returns:
        A float32 `[B, H, Q, K]` tensor; of float64 in float64.

    Example:

    >>> layer = Gaussians(2, num_heads=1, kind="fixed", window=4)
    >>> layer.build((1, 1, 2))
    >>> bias = layer(  # the middle of 4 positions, sigma = 2
    ...     tf.zeros([1, 1, 2]), tf.ones([1, 1, 4, 2]), size=4,
    ...     positions=tf.range(4),
    ... )
    >>> bias[0, 0, 0].numpy().tolist()
    [-0.5, -0.125, -0.0, -0.125]

    Reference:
        [Yang et al., 2018](https://arxiv.org/abs/1810.10182), section 3.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        kind: str,
        window: float = 10,
        **kwargs,
    ):
        super().__init__(**kwargs)
        checks.needs_tensorflow(self)
        checks.heads(hidden_size, num_heads)
        checks.choice("kind", kind, KINDS)
        checks.number("window", window, least=_SMALLEST_WINDOW)
        self.hidden_size = int(hidden_size)
        self.num_heads = int(num_heads)
        self.kind = kind
        self.window = window
        self.position_hidden = self._hidden("position_hidden")  # W_p
        self.window_hidden = None
        if kind == "layer":
            self.window_hidden = self._hidden("window_hidden")  # W_d

    def _hidden(self, name):
        return projections.Projection(
            self.hidden_size,
            use_bias=False,
            activation="tanh",
            kernel_initializer="glorot_uniform",
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, x_shape, keys_shape=None):
        del keys_shape
        self.position_hidden.build(x_shape)
        self.position_vectors = self._add_vectors("position_vectors")  # u_p
        if self.kind == "layer":
            self.window_hidden.build(x_shape)
        if self.kind != "fixed":
            self.window_vectors = self._add_vectors("window_vectors")  # u_d

    def _add_vectors(self, name):
        return self.add_weight(
            shape=(self.hidden_size, self.num_heads),
            initializer="glorot_uniform",
            autocast=False,
            name=name,
        )

    def call(self, x, keys, *, size, positions, first=0, may_attend=None):
        hidden = self.position_hidden(x)  # [B, Q, F]
        size = tf.cast(size, self._float)
        center = size * self._share(hidden, self.position_vectors)  # [B, H, Q]
        window = float(self.window)
        if self.kind != "fixed":
            if self.kind == "layer":
                hidden = self.window_hidden(_mean(keys, may_attend))
            window = size * self._share(hidden, self.window_vectors)
            window = tf.expand_dims(tf.maximum(window, _SMALLEST_WINDOW), -1)
        center += tf.cast(first, self._float)
        # Not center[..., tf.newaxis], which LiteRT's converter refuses.
        center = tf.expand_dims(center, -1)  # [B, H, Q, 1]
        distance = tf.cast(positions, self._float) - center
        # (j - P)^2 / (2 sigma^2), with sigma = window / 2.
        return -2.0 * tf.square(distance / window)  # [B, H, Q, K]

    @property
    def _float(self):
        """The dtype of positions: bfloat16 is not exact above 256."""
        return tf.float64 if self.compute_dtype == "float64" else tf.float32

    def _share(self, hidden, vectors):
        """Returns sigmoid(u . h) of `[B, Q, F]`, for each head: `[B, H, Q]`."""
        hidden = tf.cast(hidden, self._float)
        rows = tf.reshape(hidden, [-1, self.hidden_size])
        vectors = tf.cast(vectors.value, self._float)
        numbers = tf.sigmoid(tf.matmul(rows, vectors))  # [B * Q, H]
        shape = tf.concat([tf.shape(hidden)[:2], [self.num_heads]], 0)
        return tf.transpose(tf.reshape(numbers, shape), [0, 2, 1])

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "kind": self.kind,
            "window": self.window,
        }


def _mean(keys, may_attend):
    """Returns the mean of the keys that a query may attend to: `[B, Q, F]`.

    Q is 1 if all queries have the same keys. The mean of no keys is 0.
    """
    batch, heads, length, _ = tf.unstack(tf.shape(keys))
    may_attend = tf.convert_to_tensor(
        True if may_attend is None else may_attend
    )
    for _ in range(4 - may_attend.shape.rank):
        may_attend = may_attend[tf.newaxis]
    queries = tf.shape(may_attend)[2]
    # To the full shape: products that broadcast are slow, some even wrong.
    mask = tf.broadcast_to(may_attend, [batch, heads, queries, length])
    weights = tf.cast(mask, tf.float32)  # [B, H, Q, K]
    weights /= tf.maximum(tf.reduce_sum(weights, -1, keepdims=True), 1.0)
    means = tf.matmul(tf.cast(weights, keys.dtype), keys)  # [B, H, Q, D]
    return heads_lib.join_heads(means, [batch, queries, heads * keys.shape[-1]])
