"""Relative attention gives the numbers of tensor2tensor."""

import numpy as np
import tensorflow as tf

from relpos_tf.layers.positions import shaw
from tests import testing


class RelativeT2TTest(tf.test.TestCase):
    def test_ids_are_those_of_its_matrix(self):
        for case, sizes, arrays in testing.t2t_cases("rel_matrix"):
            ids = shaw.relative_position_ids(
                sizes["length_q"],
                sizes["length_k"],
                sizes["max_relative_position"],
            )
            self.assertAllEqual(ids, arrays["out/matrix"], case)

    def test_inner_product_and_its_gradients_are_equal(self):
        for case, sizes, arrays in testing.t2t_cases("rel_inner"):
            inputs = [tf.constant(arrays[f"in/{name}"]) for name in "xyz"]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                result = shaw.relative_attention_inner(
                    *inputs, sizes["transpose"]
                )
            gradients = tape.gradient(result, inputs, arrays["in/upstream"])
            self.assertAllClose(
                result, arrays["out/result"], rtol=1e-5, atol=1e-5, msg=case
            )
            for name, gradient in zip("xyz", gradients, strict=True):
                self.assertAllClose(
                    gradient,
                    arrays[f"grad/{name}"],
                    rtol=1e-5,
                    atol=1e-5,
                    msg=f"{case}, {name}",
                )

    def test_every_pair_has_the_vector_of_its_table(self):
        # By the attention itself: of queries that are one coordinate each, and
        # to keys and values that are nothing but their vectors.
        for form, (case, sizes, arrays) in [
            (f, c)
            for f in shaw.IMPLEMENTATIONS
            for c in testing.t2t_cases("rel_embed")
        ]:
            queries, keys = sizes["length_q"], sizes["length_k"]
            table = tf.constant(arrays["var/embeddings"])
            vectors = arrays["out/embeddings"]  # [Q, K, D]
            depth = table.shape[1]
            q = tf.repeat(tf.eye(depth)[tf.newaxis, :, tf.newaxis], queries, 2)
            zeros = tf.zeros([1, depth, keys, depth])
            _, weights = shaw.relative_attention(
                q, zeros, zeros, table, None, implementation=form
            )  # [1, H=D, Q, K]
            message = f"{form}, {case}"
            expected = tf.nn.softmax(np.transpose(vectors, [2, 0, 1]))
            self.assertAllClose(weights[0], expected, 1e-5, 1e-6, message)
            # Each example may see one of the keys.
            zeros = tf.zeros([keys, 1, keys, depth])
            output, _ = shaw.relative_attention(
                *(zeros[:, :, :queries], zeros, zeros, None, table),
                bias=tf.where(tf.eye(keys) == 1, 0.0, -1e9)[:, None, None],
                implementation=form,
            )  # [K, 1, Q, D]
            expected = np.transpose(vectors, [1, 0, 2])
            self.assertAllClose(output[:, 0], expected, 1e-5, 1e-6, message)

    def test_attention_and_its_gradients_are_equal(self):
        names = ("in/q", "in/k", "in/v")
        tables = (
            "var/relative_positions_keys",
            "var/relative_positions_values",
        )
        cases = testing.t2t_cases("attn_relative")
        cases += testing.t2t_cases("attn_relative_cached")
        for form, (case, _, arrays) in [
            (f, c) for f in shaw.IMPLEMENTATIONS for c in cases
        ]:
            tensors = [tf.constant(arrays[name]) for name in (*names, *tables)]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output, weights = shaw.relative_attention(
                    *tensors, bias=arrays.get("in/bias"), implementation=form
                )
            message = f"{form}, {case}"
            self.assertAllClose(
                output, arrays["out/result"], 1e-4, 2e-5, message
            )
            self.assertAllClose(
                weights, arrays["out/weights"], 1e-4, 2e-5, message
            )
            if "in/upstream" not in arrays:
                continue
            gradients = tape.gradient(output, tensors, arrays["in/upstream"])
            for name, gradient in zip(
                ("q", "k", "v", "keys", "values"), gradients, strict=True
            ):
                self.assertAllClose(
                    gradient, arrays[f"grad/{name}"], 1e-4, 2e-5, message
                )
