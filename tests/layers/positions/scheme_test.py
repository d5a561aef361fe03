"""What holds for every scheme of positions."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window
from tests import testing

HEADS, DEPTH = 3, 4
CONTENT = {"q", "k", "v", "output_transform"}


class WeightShapesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        shaw.Shaw(2),
        shaw.Shaw(2, heads_share=True),
        shaw.Shaw(2, max_relative_position_right=5),
        shaw.Shaw(2, add_to_keys=False),
        shaw.Shaw(2, add_to_values=False),
        additive.Additive(),
        additive.Additive(shaw.Shaw(2)),
        additive.FeatureWise(),
        additive.FeatureWise(shaw.Shaw(2)),
        localness.Localness("fixed"),
        localness.Localness("layer"),
        localness.Localness("query"),
        alibi.Alibi(),
        bucketed.Bucketed(8, 6),
        rotary.Rotary(),
        head_window.HeadWindow(3),
        head_window.HeadWindow(5, shaw.Shaw(2)),
        head_window.HeadWindow(3, additive.Additive(shaw.Shaw(2))),
        window.Window(1),
        window.Direction("forward", HEADS),
    )
    def test_shapes_are_those_of_a_built_layer(self, scheme):
        size = HEADS * DEPTH
        layer = attention.TransformerAttention(size, HEADS, positions=[scheme])
        layer.build((None, None, size))
        built = {
            path: array.shape
            for path, array in testing.named_weights(layer).items()
            if path.split("/")[0] not in CONTENT
        }
        self.assertEqual(scheme.weight_shapes(HEADS, DEPTH), built)


if __name__ == "__main__":
    tf.test.main()
