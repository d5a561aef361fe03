"""Lines of length 0 in graphs that do not know the lengths.

Eager code knows them, and leaves out the distances of no pair.
keras_attention_test has those of the Keras layer.

Shapes: B batch, Q queries, K keys, H heads, F features.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import shaw
from relpos_tf.utils import graphs
from tests.layers import schemes
from tests.layers.schemes import floats

B, H, F = 2, 3, 12
LENGTHS = ((0, 0), (0, 5), (0, 1), (5, 0), (1, 0), (5, 5), (3, 5))
POSITIONS = {
    "compact": [shaw.Shaw(2)],
    "one_row": [shaw.Shaw(0)],
    "keys_before_only": [shaw.Shaw(1, max_relative_position_right=0)],
    "keys_after_only": [shaw.Shaw(0, max_relative_position_right=2)],
    "additive": [additive.Additive(shaw.Shaw(2))],
    "localness": [shaw.Shaw(2), localness.Localness("layer")],
    "buckets": [bucketed.Bucketed(4, 5)],
}
X = tf.TensorSpec([None, None, F])


class TransformerAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(kind=[*POSITIONS], causal=[False, True])
    def test_a_graph_gives_the_numbers_of_eager_code(self, kind, causal):
        layer = schemes.made(F, H, *POSITIONS[kind])

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

    def test_a_step_of_no_positions_leaves_the_next_step_as_it_is(self):
        layer = schemes.made(F, H, shaw.Shaw(1))
        x = floats(1, B, 5, F)
        cache, rows = layer.init_cache(B, 5), []
        step = graphs.function(
            lambda x, cache, start: layer.step(x, cache, start=start),
            [
                X,
                tf.nest.map_structure(tf.TensorSpec.from_tensor, cache),
                tf.TensorSpec([], tf.int32),
            ],
        )
        for start, end in ((0, 0), (0, 3), (3, 3), (3, 5), (5, 5)):
            row, cache = step(x[:, start:end], cache, tf.constant(start))
            rows.append(row)
        self.assertEqual([row.shape[1] for row in rows], [0, 3, 0, 2, 0])
        expected = layer(x, use_causal_mask=True)
        self.assertAllClose(np.concatenate(rows, 1), expected, 1e-5, 1e-5)
