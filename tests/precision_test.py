"""Tests of activation_dtype: which operations bfloat16 computes.

The graph of a training step says in which precision each operation works.
"""

import functools
import operator

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import losses
from relpos_tf.models import transformer
from relpos_tf.training import optimizers
from relpos_tf.training import train_step
from tests.campaigns import replicas

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
HPARAMS = replicas.HPARAMS.replace(
    layer_prepostprocess_dropout=0.2,
    attention_dropout=0.1,
    relu_dropout=0.1,
    learning_rate_constant=1e-3,
)
# Sums of many terms, or of terms of very different size: bfloat16 has three
# digits.
IN_FLOAT32 = (
    "BiasAddGrad Softmax SparseSoftmaxCrossEntropyWithLogits Rsqrt Square Mean "
    "Log L2Loss ResourceApplyAdam AssignAddVariableOp"
).split()


@functools.cache
def operations(dtype):
    """Returns the operations of a training step, in all of its functions."""
    keras.utils.set_random_seed(11)
    model = transformer.Transformer(HPARAMS, dtype=POLICIES[dtype])
    variables = {v.path: v.value for v in model.trainable_variables}
    step = train_step.compile_step(
        tf.distribute.get_strategy(),
        model,
        optimizers.Adam(HPARAMS, variables),
        replicas.SPEC,
    )
    graph = step.get_concrete_function().graph
    found = list(graph.get_operations())
    functions = operator.attrgetter("library.function")
    definitions = functions(graph.as_graph_def())
    for name in (definition.signature.name for definition in definitions):
        inner = graph._get_function(name)
        found += inner.graph.get_operations() if inner else []
    return found


class PrecisionTest(tf.test.TestCase, parameterized.TestCase):
    def test_sums_and_norms_and_losses_are_float32(self):
        found = operations("bfloat16")
        kinds = {op.type for op in found}
        self.assertContainsSubset(IN_FLOAT32, kinds)
        for op in found:
            if op.type in IN_FLOAT32:
                dtypes = {x.dtype for x in (*op.inputs, *op.outputs)}
                self.assertNotIn(tf.bfloat16, dtypes, op)

    def test_gradients_of_long_batches_are_nearly_those_of_float32(self):
        # 2,048 tokens: a sum that stops growing has an error of a quarter.
        random = np.random.default_rng(29)
        batch = random.integers(2, 23, (2, 64, 32)).astype(np.int32)
        gradients = [self.gradients_of(dtype, *batch) for dtype in POLICIES]
        for name, single in gradients[0].items():
            error = np.mean(np.abs(gradients[1][name] - single))
            self.assertLess(error / np.mean(np.abs(single)), 0.04, name)

    def gradients_of(self, dtype, inputs, targets):
        keras.utils.set_random_seed(11)
        hparams = HPARAMS.replace(
            layer_prepostprocess_dropout=0.0,
            attention_dropout=0.0,
            relu_dropout=0.0,
        )
        model = transformer.Transformer(hparams, dtype=POLICIES[dtype])
        variables = {v.path: v.value for v in model.trainable_variables}
        with tf.GradientTape() as tape:
            total, _ = losses.projected_cross_entropy(
                model.features(inputs, targets, training=True),
                model.softmax_table(),
                targets,
                label_smoothing=0.1,
            )
        gradients = tape.gradient(total, list(variables.values()))
        return {
            name.split("/", 1)[1]: tf.convert_to_tensor(gradient).numpy()
            for name, gradient in zip(variables, gradients, strict=True)
        }

    def test_products_are_bfloat16(self):
        products = ("MatMul", "BatchMatMulV2")
        for dtype in POLICIES:
            found = {
                op.outputs[0].dtype.name
                for op in operations(dtype)
                if op.type in products
            }
            self.assertEqual(found, {dtype})

    def test_masks_are_added_in_float32(self):
        # A sum in bfloat16 would leave three digits of the logits.
        masks = [
            op
            for op in operations("bfloat16")
            if op.type == "SelectV2"
            for value in op.inputs[1:]
            if tf.get_static_value(value) is not None
            and np.min(tf.get_static_value(value)) < -1e6
        ]
        self.assertNotEmpty(masks)
        for op in masks:
            self.assertEqual(op.outputs[0].dtype, tf.float32)
