"""The computed shapes equal those of the model, for every variant."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import registry
from relpos_tf.models import shapes
from relpos_tf.models import transformer
from tests import testing
from tests.models import example

# Small sizes for the registered sets.
SMALL = {
    "num_hidden_layers": 1,
    "vocab_size": 23,
    "hidden_size": 48,
    "filter_size": 17,
    "max_length": 29,
}


class ShapesTest(parameterized.TestCase):
    def assert_announced(self, hparams, **kwargs):
        model = transformer.Transformer(hparams, **kwargs)
        found = list(shapes.of_model(hparams, **kwargs))
        self.assertEqual(
            dict(found), {v.path: tuple(v.shape) for v in model.variables}
        )
        self.assertLen(found, len(model.variables))

    @parameterized.parameters(*example.VARIANTS)
    def test_every_variable_of_every_kind_is_announced(self, kind):
        self.assert_announced(
            example.small(kind, num_encoder_layers=1, num_decoder_layers=2)
        )

    @parameterized.parameters(
        {
            "pos": "emb",
            "decoder_pos": "timing",
            "decoder_self_attention_type": "dot_product_relative_bias",
        },
        {"decoder_pos": "emb", "max_relative_position_right": 0},
        {"localness": "layer", "layer_preprocess_sequence": "n"},
        {"attention_score": "additive", "layer_postprocess_sequence": "da"},
        {
            "add_relative_to_keys": False,
            "heads_share_relative_embedding": True,
            "max_relative_position": 0,
            "shared_embedding": False,
            "pos": "emb",
        },
    )
    def test_variables_of_combined_variants_are_announced(self, **changes):
        self.assert_announced(testing.HPARAMS.replace(**changes))

    def test_registered_sets_are_announced(self):
        kinds = set()
        for name in registry.list_hparams():
            hparams = registry.hparams(name)
            hparams = hparams.replace(**SMALL)
            paths = tuple(shapes.of_model(hparams))
            if paths not in kinds:
                kinds.add(paths)
                self.assert_announced(hparams)
        self.assertGreater(len(kinds), 9)

    def test_another_name_is_in_the_paths(self):
        self.assert_announced(testing.HPARAMS, name="other")

    def test_any_number_of_layers_is_announced_one_by_one(self):
        hparams = testing.HPARAMS.replace(
            num_hidden_layers=1000, vocab_size=10**7
        )
        first, *more = itertools.islice(shapes.of_model(hparams), 70)
        self.assertEqual(
            first,
            (
                "transformer/target_embedding/embeddings",
                (10**7, testing.HPARAMS.hidden_size),
            ),
        )
        self.assertLen(dict(more), 69)


if __name__ == "__main__":
    absltest.main()
