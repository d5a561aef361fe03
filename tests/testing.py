"""Helpers for tests of layers: weights, gradients, a layer's contract."""

import json
import pathlib
import random
import zlib

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from tensorflow.python.eager import context

from relpos_tf import hparam
from tests.backends import gradients as backend

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

    TensorFlow allows it once, and not after its first operation: call it
    while tests are imported, before any of them runs.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )


def keep_kernels():
    """Keeps the kernels of eager operations from one test to the next.

    `tf.test.TestCase` sets a seed before each test, and TensorFlow then drops
    all kernels: to make them again takes half the time of a layer's test. Each
    test gets a seed of its own instead, so that what it draws does not depend
    on the tests before it.
    """
    set_up = tf.test.TestCase.setUp

    def set_up_and_keep(self):
        self._set_default_seed = False
        set_up(self)
        seed = zlib.crc32(self.id().encode()) % 2**31
        current = context.context()
        current._seed, current._rng = seed, random.Random(seed)

    tf.test.TestCase.setUp = set_up_and_keep


def normal(seed, *shape):
    """Returns float64 numbers of a normal distribution."""
    return np.random.default_rng(seed).normal(size=shape)


class Arrays(dict):
    """Arrays by name, with a short `repr`.

    absl computes the `repr` of all arguments of a test when it is imported.
    """

    def __repr__(self):
        return f"{len(self)} arrays"


def t2t_cases(group, file_name="t2t_layers.npz"):
    """Returns the cases of a file of tests/reference, a group at a time.

    Args:
        group: str. See tests/reference/README.md.
        file_name: str. One that says what is in it under `meta`.

    Returns:
        A list of (case, dict of arguments, `Arrays`).
    """
    path = pathlib.Path(__file__).parent / "reference" / file_name
    with np.load(path, allow_pickle=False) as data:
        meta = json.loads(str(data["meta"]))[group]
        return [
            (
                case,
                arguments,
                Arrays(
                    (name.split("/", 2)[2], data[name])
                    for name in data.files
                    if name.startswith(f"{group}/{case}/")
                ),
            )
            for case, arguments in meta.items()
        ]


def randomize(layer, seed=3):
    """Gives every weight values of its own, as training does.

    Biases then are not 0, nor scales 1, and nothing depends on how weights
    begin.
    """
    for i, weight in enumerate(layer.weights):
        middle = 1.0 if weight.name == "gamma" else 0.0
        value = middle + 0.3 * normal([seed, i], *weight.shape)
        weight.assign(value.astype(np.float32))
    return layer


def assert_gradients(
    case, gradients, function, arrays, *, rtol=1e-6, atol=1e-7, message=""
):
    """Checks gradients by central differences of `function(*arrays)`.

    Each array is moved along two random directions: one wrong number of a
    gradient changes its product with both.

    Args:
        case: `tf.test.TestCase`.
        gradients: A tensor for each array.
        function: Function of float64 arrays that returns a number.
        arrays: Sequence of float64 arrays.
        rtol: float.
        atol: float.
        message: str, for a failure.
    """
    for seed in (17, 19):
        slopes = backend.slopes(function, arrays, seed)
        pairs = zip(gradients, slopes, strict=True)
        for n, (gradient, (direction, slope)) in enumerate(pairs):
            product = np.sum(np.asarray(gradient) * direction)
            case.assertAllClose(
                product, slope, rtol, atol, f"{message}, argument {n}"
            )


def largest_tensor(function, *arrays):
    """Returns the most numbers in a tensor of `function` and its gradients."""

    def gradients(*tensors):
        return tf.gradients(function(*tensors), tensors)

    wrapped = tf.compat.v1.wrap_function(
        gradients, [tf.TensorSpec(array.shape, tf.float32) for array in arrays]
    )
    with wrapped.graph.as_default():
        sizes = [
            tf.size(output)
            for operation in wrapped.graph.get_operations()
            for output in operation.outputs
            if output.dtype != tf.resource
        ]
    inputs = [tf.constant(array, tf.float32) for array in arrays]
    return max(wrapped.prune(wrapped.inputs, sizes)(*inputs))


def named_weights(layer):
    """Returns float64 arrays by path, without the layer's own name."""
    return {
        weight.path.split("/", 1)[1]: weight.numpy().astype(np.float64)
        for weight in layer.weights
    }


class LayerTestCase(tf.test.TestCase, parameterized.TestCase):
    """Adds the contract of every layer."""

    def assert_layer_contract(self, layer, *inputs, number, xla=True):
        """Checks the config, graphs, gradients and dtypes of a layer.

        Args:
            layer: an unbuilt layer.
            *inputs: Positional arguments of its call.
            number: int, of weights.
            xla: bool. Whether to compile the layer with XLA as well; not
                needed if the contracts of its parts do.
        """
        layer(*inputs)  # builds
        self.assertLen(layer.weights, number)
        randomize(layer)
        outputs = layer(*inputs)
        self._assert_copy_is_equal(layer, inputs, outputs)
        for jit_compile in {False, xla}:
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
