"""Tests of activation_dtype: what bfloat16 computes, and what it must not.

The graph of a training step says in which precision each operation works.
"""

import functools
import operator

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import optimizers
from relpos_tf import train_step
from relpos_tf.models import transformer
from tests.campaigns import replicas

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
HPARAMS = replicas.HPARAMS.replace(
    layer_prepostprocess_dropout=0.2,
    attention_dropout=0.1,
    relu_dropout=0.1,
    learning_rate_constant=1e-3,
)
BATCH = replicas.batch(replicas.sentences(13)[0])
# Sums of many terms, or of terms of very different size: bfloat16 has three
# digits.
IN_FLOAT32 = (
    "Softmax",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Rsqrt",
    "Square",
    "Mean",
    "Log",
    "L2Loss",
    "ResourceApplyAdam",
    "AssignAddVariableOp",
)


class Made:
    """A model, its first weights, its step, and what one update returned."""

    def __init__(self, dtype):
        keras.utils.set_random_seed(11)
        self.model = transformer.Transformer(HPARAMS, dtype=POLICIES[dtype])
        variables = {v.path: v.value for v in self.model.trainable_variables}
        self.optimizer = optimizers.adam(HPARAMS, variables)
        self.before = {n: v.numpy() for n, v in variables.items()}
        self.step = train_step.compile_step(
            tf.distribute.get_strategy(),
            self.model,
            self.optimizer,
            replicas.SPEC,
        )
        self.result = self.step(BATCH)
        self.after = {n: v.numpy() for n, v in variables.items()}


@functools.cache
def made(dtype):
    return Made(dtype)


def operations(dtype):
    """Returns the operations of a training step, in all of its functions."""
    graph = made(dtype).step.get_concrete_function().graph
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

    def test_weights_and_the_state_of_the_optimizer_are_float32(self):
        one = made("bfloat16")
        for name, variable in (
            {v.path: v.value for v in one.model.variables} | one.optimizer.state
        ).items():
            expected = tf.int64 if name == "step" else tf.float32
            self.assertEqual(variable.dtype, expected, name)

    def test_updates_too_small_for_bfloat16_are_made(self):
        # Adam's first update is as large as the rate, here 3.5e-7: a millionth
        # of the weights, where bfloat16 tells apart hundredths.
        one = made("bfloat16")
        rate = 1e-3 * 8**-0.5 * 100**-1.5
        moved = np.concatenate(
            [(one.after[n] - one.before[n]).ravel() for n in one.before]
        )
        moved = np.abs(moved[moved != 0])
        self.assertGreater(moved.size, 500)
        self.assertAllClose(np.median(moved), rate, rtol=0.1)

    def test_loss_and_gradients_are_nearly_those_of_float32(self):
        single, half = made("float32"), made("bfloat16")
        self.assertAllClose(
            half.result["loss"], single.result["loss"], rtol=0.01
        )
        self.assertNotEqual(
            float(half.result["loss"]), float(single.result["loss"])
        )
        gradients = [
            np.concatenate(
                [
                    value.numpy().ravel()
                    for name, value in one.optimizer.state.items()
                    if name.startswith("mean/")
                ]
            )
            for one in (single, half)
        ]
        lengths = [np.linalg.norm(one) for one in gradients]
        self.assertGreater(np.dot(*gradients) / np.prod(lengths), 0.99)
        self.assertAllClose(*lengths, rtol=0.02)

    def test_float16_is_refused_with_the_reason(self):
        with self.assertRaisesRegex(
            errors.UserError,
            "`activation_dtype` must be one of float32, bfloat16. Received: "
            "'float16'. .*underflow unless the loss is scaled.*bfloat16",
        ):
            hparam.HParams().override("activation_dtype=float16")


if __name__ == "__main__":
    tf.test.main()
