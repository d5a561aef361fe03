"""The heads of an attention: their projections, and their split and join.

Shapes: B batch, L length, Q queries, K keys, F features, H heads, D depth per
head, P projections at once.
"""

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import dropout as dropout_lib
from relpos_tf.layers import inputs
from relpos_tf.layers import masks
from relpos_tf.layers import projections


def split_heads(rows, shape):
    """Splits `[B * L, H * D]` into `[B, H, L, D]`; `shape` is B, L, H, D."""
    return tf.transpose(tf.reshape(rows, shape), [0, 2, 1, 3])


def split_projections(rows, shape):
    """Splits `[B * L, P * H * D]` into P tensors `[B, H, L, D]`.

    `shape` is B, L, P, H, D. For one projection `split_heads` is quicker.
    """
    return tf.unstack(tf.transpose(tf.reshape(rows, shape), [2, 0, 3, 1, 4]))


def join_heads(heads, shape):
    """Joins `[B, H, L, D]` to `shape`: `[B, L, H * D]` or `[B * L, H * D]`."""
    return tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), shape)


class Heads(keras.layers.Layer):
    """Projections and dropout of an attention: base of attention layers.

    The projections have no biases, as in tensor2tensor.

    Args:
        hidden_size: int, F. Size of the output, and of all heads together.
        num_heads: int, H. Divides `hidden_size`.
        dropout: float. Fraction of the attention weights to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Raises:
        UserError: sizes that do not divide, no fraction, inputs of another
            rank than 3, or another backend than TensorFlow.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        checks.needs_tensorflow(self)
        checks.heads(hidden_size, num_heads)
        checks.fraction("dropout", dropout)
        self.hidden_size = int(hidden_size)
        self.num_heads = int(num_heads)
        self.depth = self.hidden_size // self.num_heads
        self.scale = self.depth**-0.5  # of the queries
        self.dropout = dropout
        self.supports_masking = True
        self.q, self.k, self.v, self.output_transform = (
            projections.Projection(
                self.hidden_size,
                use_bias=False,
                kernel_initializer="glorot_uniform",
                dtype=self.dtype_policy,
                name=name,
            )
            for name in ("q", "k", "v", "output_transform")
        )
        self.weights_dropout = dropout_lib.Dropout(
            dropout, dtype=self.dtype_policy, name="weights_dropout"
        )

    def build(self, queries_shape, memory_shape=None):
        for shape in (queries_shape, memory_shape or queries_shape):
            if len(shape) != 3:
                raise errors.UserError(
                    "Queries and memory must have the axes batch, positions "
                    f"and features. Received: a shape of {tuple(shape)}."
                )
        features = {-1: queries_shape[-1]}
        self.input_spec = keras.layers.InputSpec(ndim=3, axes=features)
        self.q.build(queries_shape)
        self.k.build(memory_shape or queries_shape)
        self.v.build(memory_shape or queries_shape)
        self.output_transform.build((*queries_shape[:-1], self.hidden_size))

    def __call__(self, *args, **kwargs):
        args, kwargs = inputs.converted_once(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    def allowed(self, queries, memory, may_attend, padding):
        """Joins the mask of a caller with the masks that Keras attaches.

        Args:
            queries: `[B, Q, F]` tensor.
            memory: None or `[B, K, F]` tensor.
            may_attend: None or a mask that broadcasts to `[B, H, Q, K]`.
            padding: dict of None or masks `[B, K]`, True for real keys, by
                the names of call arguments. Keras gives the same one under
                different names.

        Returns:
            None or a bool tensor.

        Raises:
            UserError: shapes that do not fit, or masks of nothing.
        """
        batch, length = queries.shape[:2]
        keys = length if memory is None else memory.shape[1]
        self._check_memory(queries, memory, padding)
        joined = None
        if may_attend is not None:
            mask = tf.convert_to_tensor(may_attend)
            sizes = batch, self.num_heads, length, keys
            checks.mask_of_pairs("may_attend", mask, sizes)
            joined = tf.cast(mask, tf.bool)
        for name, mask in padding.items():
            # With a memory, Keras gives the queries' mask too.
            if mask is not None and (memory is None or name == "memory_mask"):
                checks.sizes(
                    name, mask.shape, (batch or "batch", keys or "keys")
                )
                mask = tf.cast(mask, tf.bool)[:, tf.newaxis, tf.newaxis]
                joined = masks.join(joined, mask)  # [B, H or 1, Q or 1, K]
        return joined

    def _check_memory(self, queries, memory, padding):
        features = self.k.kernel.shape[0]
        if memory is not None:
            expected = (queries.shape[0] or "batch", "keys", features)
            checks.sizes("memory", memory.shape, expected)
        elif features != queries.shape[-1]:
            raise errors.UserError(
                f"This layer needs a memory of {features} features, as in its "
                "first call. Received: none."
            )
        if memory is None and padding["memory_mask"] is not None:
            raise errors.UserError(
                "Without a memory, the padding of the keys is `mask`. "
                "Received: `memory_mask`."
            )
        if memory is not None and padding["mask"] is not None:
            raise errors.UserError(
                "The padding of a memory is `memory_mask`. Received: `mask`."
            )

    def compute_output_shape(self, queries_shape, memory_shape=None, **others):
        del memory_shape, others
        return (*queries_shape[:-1], self.hidden_size)

    def compute_output_spec(self, *args, **kwargs):
        # By a trace of the call, which checks arguments and knows the weights.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_value(self, weight):
        """Returns a weight in the compute dtype."""
        return tf.cast(weight.value, self.compute_dtype)

    def fuse(self, *layers):
        """Returns one kernel `[F, P * H * D]` of P projections.

        One product with it takes less time than one with each kernel. The
        kernel of the queries is multiplied with the scale of the logits.
        """
        kernels = [projections.kernel_of(layer) for layer in layers]
        if layers[0] is self.q:
            kernels[0] = kernels[0] * self.scale
        return tf.cast(tf.concat(kernels, 1), self.compute_dtype)

    def to_heads(self, x, *layers):
        """Projects `[B, L, F]` by P layers: a list of P `[B, H, L, D]`."""
        kernel = self.fuse(*layers)
        batch, length = tf.unstack(tf.shape(x)[:2])
        rows = tf.reshape(tf.cast(x, kernel.dtype), [-1, kernel.shape[0]])
        rows = tf.matmul(rows, kernel)  # [B * L, P * H * D]
        heads = self.num_heads, self.depth
        if len(layers) == 1:
            return [split_heads(rows, [batch, length, *heads])]
        return split_projections(rows, [batch, length, len(layers), *heads])

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
        }
