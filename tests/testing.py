"""What the tests of layers share: oracles in NumPy, and a layer's contract.

The oracles are loops that look like the papers. They share no code with the
package.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
L length.
"""

import json

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam

HPARAMS = hparam.HParams(
    vocab_size=23,
    hidden_size=12,
    filter_size=17,
    num_heads=2,
    num_hidden_layers=2,
    pos="none",
    self_attention_type="dot_product_relative",
    max_relative_position=2,
    norm_epsilon=1e-3,  # large enough to be seen
)


def use_two_cpus():
    """Splits the CPU in two, to stand for two GPUs.

    TensorFlow allows it once, and not after its first operation. Hence the
    call below, while tests are imported and before any of them runs.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )


use_two_cpus()


def normal(seed, *shape):
    """Returns float64 numbers of a normal distribution."""
    return np.random.default_rng(seed).normal(size=shape)


def randomize(layer, seed=3):
    """Moves every weight, so that none is 0 or 1 as it often begins."""
    for i, weight in enumerate(layer.weights):
        value = weight.numpy() + 0.3 * normal([seed, i], *weight.shape)
        weight.assign(value.astype(np.float32))
    return layer


def numeric_gradients(function, arrays, step=1e-5):
    """Returns central differences of `function(*arrays)`, for each array."""
    gradients = []
    for n, array in enumerate(arrays):
        gradient = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            values = []
            for change in (-step, step):
                moved = [np.copy(a) for a in arrays]
                moved[n][place] += change
                values.append(function(*moved))
            gradient[place] = (values[1] - values[0]) / (2 * step)
        gradients.append(gradient)
    return gradients


def distance_vector(table, head, distance):
    """Section 3.2: the vector of a clipped distance; the first is -k's."""
    if table is None:
        return 0.0
    rows = table[head] if table.ndim == 3 else table
    k = (len(rows) - 1) // 2
    return rows[max(-k, min(k, distance)) + k]


def softmax(logits):
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


def shaw_attention(
    q, k, v, key_table=None, value_table=None, *, bias=0.0, query_start=None
):
    """Equations 2 to 4 of Shaw et al., one query and one key at a time.

    Args:
        q: `[B, H, Q, D]`, already scaled.
        k: `[B, H, K, D]`.
        v: `[B, H, K, D]`.
        key_table: None, `[2k+1, D]`, or `[H, 2k+1, D]`.
        value_table: The same.
        bias: Broadcasts to `[B, H, Q, K]`.
        query_start: int. By default the queries are the last Q keys.

    Returns:
        The output, `[B, H, Q, D]`, and the weights, `[B, H, Q, K]`.
    """
    shape = (*q.shape[:3], k.shape[2])
    if query_start is None:
        query_start = k.shape[2] - q.shape[2]
    bias = np.broadcast_to(bias, shape)
    output, weights = np.zeros_like(q), np.zeros(shape, q.dtype)
    for b, h, i in np.ndindex(shape[:3]):
        distances = [j - (query_start + i) for j in range(shape[3])]
        keys = [
            key + distance_vector(key_table, h, distance)
            for key, distance in zip(k[b, h], distances, strict=True)
        ]
        values = [
            value + distance_vector(value_table, h, distance)
            for value, distance in zip(v[b, h], distances, strict=True)
        ]
        e = np.array([q[b, h, i] @ key for key in keys]) + bias[b, h, i]
        weights[b, h, i] = softmax(e)
        output[b, h, i] = sum(
            alpha * value
            for alpha, value in zip(weights[b, h, i], values, strict=True)
        )
    return output, weights


def sinusoids(positions, channels):
    """Vaswani et al., section 3.5: sines, then cosines, then perhaps a 0."""
    half = channels // 2
    signal = np.zeros([len(positions), channels])
    for row, position in enumerate(positions):
        for i in range(half):
            rate = 10000.0 ** (-i / (half - 1)) if half > 1 else 1.0
            signal[row, i] = np.sin(position * rate)
            signal[row, half + i] = np.cos(position * rate)
    return signal


def layer_norm(x, gamma, beta, epsilon):
    """Ba et al., 2016, one vector at a time."""
    y = np.zeros_like(x)
    for place in np.ndindex(x.shape[:-1]):
        centered = x[place] - x[place].mean()
        deviation = np.sqrt(np.mean(centered**2) + epsilon)
        y[place] = gamma * centered / deviation + beta
    return y


def named_weights(layer):
    """Returns float64 arrays by path, without the layer's own name."""
    return {
        weight.path.split("/", 1)[1]: weight.numpy().astype(np.float64)
        for weight in layer.weights
    }


def under(weights, name):
    """Returns the weights of one part."""
    prefix = name + "/"
    return {
        path.removeprefix(prefix): value
        for path, value in weights.items()
        if path.startswith(prefix)
    }


def multihead(weights, num_heads, queries, memory, allowed):
    """Vaswani et al., section 3.2.2, with the tables if there are any."""

    def heads(name, x):
        x = x @ weights[f"{name}/kernel"]
        return np.stack(np.split(x, num_heads, axis=-1), 1)  # [B, H, L, D]

    q = heads("q", queries)
    output, _ = shaw_attention(
        q / np.sqrt(q.shape[-1]),
        heads("k", memory),
        heads("v", memory),
        weights.get("relative_positions_keys"),
        weights.get("relative_positions_values"),
        bias=np.where(allowed, 0.0, -1e9),
    )
    output = np.concatenate(list(output.swapaxes(0, 1)), -1)  # [B, Q, F]
    return output @ weights["output_transform/kernel"]


def feed_forward(weights, x):
    """Vaswani et al., section 3.3."""
    inner = x @ weights["conv1/kernel"] + weights["conv1/bias"]
    inner = np.maximum(inner, 0.0)
    return inner @ weights["conv2/kernel"] + weights["conv2/bias"]


def sublayer(weights, epsilon, x, function):
    """A sublayer with what stands around it: norms where weights are."""

    def norm(name, x):
        if f"{name}/gamma" not in weights:
            return x
        scale = weights[f"{name}/gamma"], weights[f"{name}/beta"]
        return layer_norm(x, *scale, epsilon)

    return norm("after_norm", x + function(norm("before_norm", x)))


def block(weights, hparams, x, allowed, memory=None, memory_allowed=None):
    """One layer of the encoder, or with `memory` of the decoder."""
    heads, epsilon = hparams.num_heads, hparams.norm_epsilon

    def around(name, x, function):
        parts = under(weights, f"{name}_residual")
        return sublayer(parts, epsilon, x, function)

    part = under(weights, "self_attention")
    x = around(
        "self_attention", x, lambda y: multihead(part, heads, y, y, allowed)
    )
    if memory is not None:
        cross = under(weights, "encdec_attention")
        x = around(
            "encdec_attention",
            x,
            lambda y: multihead(cross, heads, y, memory, memory_allowed),
        )
    return around("ffn", x, lambda y: feed_forward(under(weights, "ffn"), y))


def transformer_logits(weights, hparams, inputs, targets):
    """The whole model, teacher-forced; `weights` as of `named_weights`."""
    shared = weights["target_embedding/embeddings"]
    source_table = weights.get("source_embedding/embeddings", shared)
    softmax_table = weights.get("softmax/embeddings", shared)

    def embed(table, ids, side):
        x = table[ids] * np.sqrt(hparams.hidden_size)
        x[ids == 0] = 0.0
        positions = np.arange(ids.shape[1])
        if hparams.pos == "timing":
            x += sinusoids(positions, hparams.hidden_size)
        if hparams.pos == "emb":
            learned = weights[f"{side}_positions/embeddings"]
            x += learned[np.minimum(positions, len(learned) - 1)]
        return x

    def final(x, side):
        norm = under(weights, f"{side}_norm")
        if not norm:
            return x
        return layer_norm(x, norm["gamma"], norm["beta"], hparams.norm_epsilon)

    is_token = (inputs != 0)[:, None, None, :]
    x = embed(source_table, inputs, "source")
    for i in range(hparams.num_hidden_layers):
        part = under(weights, f"encoder_layer_{i}")
        x = block(part, hparams, x, is_token)
    memory = final(x, "encoder")
    shifted = np.concatenate([0 * targets[:, :1], targets[:, :-1]], 1)
    x = embed(shared, shifted, "target")
    causal = np.tri(targets.shape[1], dtype=bool)
    for i in range(hparams.num_hidden_layers):
        part = under(weights, f"decoder_layer_{i}")
        x = block(part, hparams, x, causal, memory, is_token)
    return final(x, "decoder") @ softmax_table.T


class LayerTestCase(tf.test.TestCase, parameterized.TestCase):
    """Adds the contract of every layer."""

    def assert_layer_contract(self, layer, *inputs, weights):
        """Checks what every layer owes its caller, whatever it computes.

        Args:
            layer: an unbuilt layer.
            *inputs: Positional arguments of its call.
            weights: dict of path (without the layer's name) and shape.
        """
        layer(*inputs)  # builds
        self.assertEqual(
            {path: value.shape for path, value in named_weights(layer).items()},
            weights,
        )
        randomize(layer)
        outputs = layer(*inputs)
        self._assert_copy_is_equal(layer, inputs, outputs)
        for jit_compile in (False, True):
            compiled = tf.function(layer, jit_compile=jit_compile)
            self.assertAllClose(
                compiled(*inputs), outputs, rtol=1e-5, atol=1e-5
            )
        self._assert_gradients(layer, inputs)
        self._assert_mixed_precision(layer, inputs, outputs)

    def _assert_copy_is_equal(self, layer, inputs, outputs):
        config = json.dumps(keras.saving.serialize_keras_object(layer))
        copy = keras.saving.deserialize_keras_object(json.loads(config))
        self.assertEqual(copy.get_config(), layer.get_config())
        copy(*inputs)
        copy.set_weights(layer.get_weights())
        self.assertAllEqual(copy(*inputs), outputs)

    def _assert_gradients(self, layer, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(*inputs)))
        variables = [w.value for w in layer.trainable_weights]
        self.assertLen(variables, len(layer.weights))
        for weight, gradient in zip(
            layer.weights, tape.gradient(loss, variables), strict=True
        ):
            self.assertIsNotNone(gradient, f"{weight.path} gets no gradient")
            self.assertGreater(
                float(tf.norm(tf.convert_to_tensor(gradient))), 0, weight.path
            )

    def _assert_mixed_precision(self, layer, inputs, outputs):
        policy = {"dtype": "mixed_bfloat16"}
        half = type(layer).from_config(layer.get_config() | policy)
        half(*inputs)
        half.set_weights(layer.get_weights())
        half_outputs = half(*inputs)
        self.assertEqual(half_outputs.dtype, tf.bfloat16)
        error = tf.cast(half_outputs, tf.float32) - outputs
        self.assertLess(
            float(tf.norm(error)), 0.03 * float(tf.norm(outputs)) + 1e-6
        )
        self.assertEqual({w.dtype for w in half.weights} - {"float32"}, set())
        self.assertEqual(
            {part.compute_dtype for part in half._flatten_layers()},
            {"bfloat16"},
        )
