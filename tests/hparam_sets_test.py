"""The values of the hparams sets, against the papers."""

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

    @parameterized.parameters("", "_tiny", "_small", "_multi30k", "_big")
    def test_a_relative_set_differs_only_in_positions(self, size):
        first = registry.hparams(f"transformer{size or '_base'}")
        second = registry.hparams(f"transformer_relative{size}")
        differences = hparam.differences(first, second)
        self.assertContainsSubset(
            differences,
            {*RELATIVE, *BASE_RELATIVE} - {"add_relative_to_keys"},
        )
        self.assertContainsSubset({"pos", "self_attention_type"}, differences)
