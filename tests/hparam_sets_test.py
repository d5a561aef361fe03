"""The values of the hparams sets."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf import registry

# From Shaw et al. (2018), section 4.1.
EVERY_MODEL = {
    "vocab_size": 32768,
    "batch_size": 4096,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.98,
    "optimizer_adam_epsilon": 1e-9,
    "learning_rate_warmup_steps": 4000,
    "label_smoothing": 0.1,
    "beam_size": 4,
    "alpha": 0.6,
    "num_hidden_layers": 6,
}
BASE = {
    "hidden_size": 512,
    "num_heads": 8,
    "filter_size": 1024,
    "layer_prepostprocess_dropout": 0.1,
    "train_steps": 100_000,
    "average_checkpoints": 0,
}
BIG = {
    "hidden_size": 1024,
    "num_heads": 16,
    "filter_size": 4096,
    "layer_prepostprocess_dropout": 0.3,
    "train_steps": 300_000,
    "average_checkpoints": 20,
}
SINUSOIDS = {"pos": "timing", "self_attention_type": "dot_product"}
RELATIVE = {
    "pos": "none",
    "self_attention_type": "dot_product_relative",
    "add_relative_to_keys": True,
    "add_relative_to_values": True,
}
BASE_RELATIVE = RELATIVE | {
    "max_relative_position": 16,
    "heads_share_relative_embedding": False,
}
BIG_RELATIVE = RELATIVE | {
    "max_relative_position": 8,
    "heads_share_relative_embedding": True,
}
FRENCH = {"layer_prepostprocess_dropout": 0.1}


class SetsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("transformer_base", EVERY_MODEL | BASE | SINUSOIDS),
        ("transformer_relative", EVERY_MODEL | BASE | BASE_RELATIVE),
        ("transformer_big", EVERY_MODEL | BIG | SINUSOIDS),
        ("transformer_relative_big", EVERY_MODEL | BIG | BIG_RELATIVE),
        ("transformer_big_enfr", EVERY_MODEL | BIG | SINUSOIDS | FRENCH),
        (
            "transformer_relative_big_enfr",
            EVERY_MODEL | BIG | BIG_RELATIVE | FRENCH,
        ),
    )
    def test_sets_have_the_values_of_the_paper(self, name, expected):
        hparams = registry.hparams(name).to_dict()
        self.assertEqual({key: hparams[key] for key in expected}, expected)
        # d_z is 64 in both models.
        self.assertEqual(hparams["hidden_size"], 64 * hparams["num_heads"])

    @parameterized.parameters(
        ("transformer_base", "transformer_relative"),
        ("transformer_tiny", "transformer_relative_tiny"),
        ("transformer_small", "transformer_relative_small"),
        ("transformer_multi30k", "transformer_relative_multi30k"),
        ("transformer_big", "transformer_relative_big"),
        ("transformer_big_enfr", "transformer_relative_big_enfr"),
    )
    def test_a_relative_set_differs_only_in_positions(self, first, second):
        differences = hparam.differences(
            registry.hparams(first), registry.hparams(second)
        )
        self.assertContainsSubset(
            differences,
            {
                "pos",
                "self_attention_type",
                "max_relative_position",
                "heads_share_relative_embedding",
            },
        )
        self.assertContainsSubset({"pos", "self_attention_type"}, differences)
        self.assertTrue(registry.hparams(second).is_relative)
        self.assertFalse(registry.hparams(first).is_relative)

    def test_relative_and_absolute_adds_sinusoids(self):
        self.assertEqual(
            hparam.differences(
                registry.hparams("transformer_relative"),
                registry.hparams("transformer_relative_and_absolute"),
            ),
            {"pos": ("none", "timing")},
        )

    @parameterized.parameters("fixed", "layer", "query")
    def test_a_localness_set_differs_only_in_localness(self, kind):
        self.assertEqual(
            hparam.differences(
                registry.hparams("transformer_base"),
                registry.hparams(f"transformer_localness_{kind}"),
            ),
            {"localness": ("none", kind)},
        )
        self.assertEqual(
            registry.hparams(f"transformer_localness_{kind}").localness_window,
            10,
        )

    @parameterized.parameters(("1d", 1), ("2d", 3))
    def test_a_convolutional_set_differs_only_in_its_windows(self, kind, heads):
        changes = {
            "attention_window": (0, 5),  # 11 positions
            "attention_window_layers": (0, 3),
        }
        if heads > 1:
            changes["attention_window_heads"] = (1, heads)
        self.assertEqual(
            hparam.differences(
                registry.hparams("transformer_base"),
                registry.hparams(f"transformer_convolutional_{kind}"),
            ),
            changes,
        )

    def test_vaswani_base_has_wider_feed_forward_layers(self):
        hparams = registry.hparams("transformer_vaswani_base")
        self.assertEqual(
            (hparams.filter_size, hparams.average_checkpoints), (2048, 5)
        )

    def test_learned_has_a_vector_for_each_position(self):
        self.assertEqual(registry.hparams("transformer_learned").pos, "emb")


if __name__ == "__main__":
    absltest.main()
