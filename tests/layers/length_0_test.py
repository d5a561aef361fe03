"""Lines of length 0 in graphs that do not know the lengths.

Eager code knows them, and leaves out the distances of no pair.
keras_attention_test has those of the Keras layer.

Shapes: B batch, Q queries, K keys, H heads, F features.
"""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.utils import graphs
from tests.layers import schemes
from tests.layers.schemes import floats

B, H, F = 2, 3, 12
LENGTHS = ((0, 0), (0, 5), (0, 1), (5, 0), (1, 0), (5, 5), (3, 5))
KINDS = (
    "per_head gather k0 k_before k_after additive_relative layer_relative t5 "
    "kerple fire transformer_xl"
).split()
X = tf.TensorSpec([None, None, F])


class TransformerAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(kind=KINDS, causal=[False, True])
    def test_a_graph_gives_the_numbers_of_eager_code(self, kind, causal):
        layer = schemes.made(F, H, *schemes.schemes(**schemes.KINDS[kind]))

        def call(x):
            return layer(x, use_causal_mask=causal)

        graph = graphs.function(call, [X])
        for length in (0, 1, 5):
            x = floats(1, B, length, F)
            self.assertAllClose(graph(x), call(x), 1e-5, 1e-5)
        if not causal:
            graph = graphs.function(layer.__call__, [X, X])
            for queries, keys in LENGTHS:
                inputs = floats(1, B, queries, F), floats(2, B, keys, F)
                self.assertAllClose(graph(*inputs), layer(*inputs), 1e-5, 1e-5)
