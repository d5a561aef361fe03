"""Multi-head attention, masks and norms give tensor2tensor's numbers."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers import projections
from relpos_tf.layers.positions import shaw
from relpos_tf.models import transformer
from tests import testing

FILE = "t2t_training.npz"


def only_case(group, case):
    """Returns the arrays of a case."""
    return {c: arrays for c, _, arrays in testing.t2t_cases(group, FILE)}[case]


class MultiHeadAttentionT2tTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        case=testing.t2t_cases("multihead", FILE),
        implementation=["reshape", "compact", "gather"],
    )
    def test_output_is_equal(self, case, implementation):
        name, sizes, arrays = case
        positions = []
        if name == "dot_product_relative":
            positions = [
                shaw.Shaw(
                    sizes["max_relative_position"],
                    heads_share=True,
                    implementation=implementation,
                )
            ]
        layer = attention.TransformerAttention(
            sizes["hidden"], sizes["heads"], positions=positions
        )
        layer.build(arrays["in/x"].shape)
        weights = {
            variable.path.split("/", 1)[1]: variable
            for variable in layer.weights
        }
        part = "dot_product_attention_relative/"
        found = {
            key.removeprefix("var/")
            .removeprefix(part)
            .replace("/embeddings", ""): value
            for key, value in arrays.items()
            if key.startswith("var/")
        }
        self.assertEqual(weights.keys(), found.keys())
        for key, value in found.items():
            weights[key].assign(value)
        self.assertAllClose(
            layer(arrays["in/x"], may_attend=arrays["in/bias"] == 0),
            arrays["out/result"],
            rtol=1e-5,
            atol=1e-5,
        )


class MaskT2tTest(tf.test.TestCase):
    def test_causal_mask_is_true_where_its_bias_is_0(self):
        bias = only_case("bias", "lower_triangle_5")["out/bias"]
        mask = pairs.Pairs(5, 5, causal=True).mask()
        self.assertAllEqual(mask, bias[0, 0] == 0)
        self.assertEqual(bias.min(), pairs.NEGATIVE)

    def test_padding_is_masked_where_its_bias_is_not_0(self):
        # In tensor2tensor, padding is a position with an embedding of 0.
        arrays = only_case("bias", "ignore_padding")
        ids = np.any(arrays["in/embedding"] != 0, axis=-1).astype(np.int32)
        self.assertAllEqual(ids == 0, arrays["out/padding"] == 1)
        may_attend = transformer.is_token(tf.constant(ids))
        self.assertAllEqual(may_attend, arrays["out/bias"] == 0)


class LayerNormT2tTest(tf.test.TestCase):
    def test_norm_is_equal(self):
        ((_, settings, arrays),) = testing.t2t_cases("layer_norm", FILE)
        norm = projections.LayerNorm(settings["epsilon"])
        norm.build(arrays["in/x"].shape)
        norm.gamma.assign(arrays["in/scale"])
        norm.beta.assign(arrays["in/bias"])
        self.assertAllClose(
            norm(arrays["in/x"]), arrays["out/result"], 1e-5, 1e-5
        )
