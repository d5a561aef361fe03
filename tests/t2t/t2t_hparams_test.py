"""The hparams of tensor2tensor become ours."""

from absl.testing import parameterized

from relpos_tf import registry
from relpos_tf.t2t import t2t_hparams
from tests import t2t_checkpoint

# The values of tensor2tensor 1.15.7's sets that differ from the fixture, which
# is transformer_relative with small sizes.
RELATIVE = {
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "max_relative_position": 20,
    "use_target_space_embedding": True,
}
BASE = RELATIVE | {
    "pos": "timing",
    "self_attention_type": "dot_product",
    "max_relative_position": 0,
}
BIG = {
    "hidden_size": 1024,
    "filter_size": 4096,
    "num_heads": 16,
    "batch_size": 2048,
    "layer_prepostprocess_dropout": 0.3,
}
TINY = {
    "hidden_size": 128,
    "filter_size": 512,
    "num_heads": 4,
    "num_hidden_layers": 2,
}
V2 = BASE | {
    "optimizer_adam_beta2": 0.98,
    "learning_rate_schedule": "legacy",
    "learning_rate_constant": 1.0,
}
V1 = V2 | {
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "learning_rate": 0.1,
    "learning_rate_warmup_steps": 4000,
}
SETS = {
    "transformer_relative": RELATIVE,
    "transformer_relative_big": RELATIVE | BIG,
    "transformer_relative_tiny": RELATIVE | TINY,
    "transformer_base": BASE,
    "transformer_base_v1": V1,
    "transformer_base_v2": V2,
    "transformer_big": BASE | BIG,
    "transformer_tiny": BASE | TINY,
}

MULTISTEP = {
    "optimizer": "multistep_adam",
    "optimizer_multistep_accumulate_steps": 3,
}


def translate(**changes):
    return t2t_hparams.translate(t2t_checkpoint.hparams_dict(**changes), 32768)


class TranslateTest(parameterized.TestCase):
    @parameterized.parameters(*SETS)
    def test_a_set_becomes_ours_of_the_same_name(self, name):
        hparams, notes = translate(**SETS[name])
        ours = registry.hparams(f"{name}_t2t")
        if not hparams.is_relative:  # then they have no meaning
            hparams = hparams.replace(
                heads_share_relative_embedding=(
                    ours.heads_share_relative_embedding
                )
            )
        # The legacy rate is not used by the newer schedule.
        if hparams.learning_rate_schedule != "legacy":
            hparams = hparams.replace(learning_rate=ours.learning_rate)
        self.assertEqual(hparams, ours)
        self.assertEqual(notes, [])

    def test_fields_that_older_versions_lack_get_the_defaults(self):
        hparams, _ = t2t_hparams.translate(
            {"hidden_size": 64, "shared_embedding_and_softmax_weights": True},
            101,
        )
        self.assertEqual(hparams.vocab_size, 101)
        self.assertEqual(hparams.self_attention_type, "dot_product")
        self.assertEqual(hparams.pos, "timing")
        self.assertTrue(hparams.use_target_space_embedding)
        self.assertEqual(hparams.layer_preprocess_sequence, "none")

    @parameterized.parameters(
        ({"symbol_dropout": 0.1}, "symbol_dropout", 0.1),
        ({"clip_grad_norm": 2}, "clip_grad_norm", 2.0),
        ({"pos": None}, "pos", "none"),
        ({"pos": ""}, "pos", "none"),
        ({"max_length": 0, "batch_size": 100}, "max_length", 100),
        (MULTISTEP, "optimizer_multistep_accumulate_steps", 3),
        (
            {"optimizer": "MultistepAdam"},
            "optimizer_multistep_accumulate_steps",
            0,
        ),
        # Of an optimizer that never adds batches up.
        (
            {"optimizer_multistep_accumulate_steps": 3},
            "optimizer_multistep_accumulate_steps",
            0,
        ),
    )
    def test_values_mean_what_they_do_there(self, changes, name, expected):
        hparams, _ = translate(**changes)
        self.assertEqual(getattr(hparams, name), expected)

    @parameterized.parameters(
        (False, False, False, False),
        (True, False, True, True),  # one table for all
        (False, True, True, False),  # one for both sides of the text
        (True, True, True, True),
    )
    def test_tables_are_shared_as_there(self, softmax, both, *expected):
        hparams, _ = translate(
            shared_embedding_and_softmax_weights=softmax, shared_embedding=both
        )
        found = (
            hparams.shared_embedding,
            hparams.shared_embedding_and_softmax_weights,
        )
        self.assertEqual(found, tuple(expected))

    def test_values_and_shared_heads_do_not_depend_on_their_hparams(self):
        for claim in (False, True):
            hparams, _ = translate(
                add_relative_to_values=claim,
                heads_share_relative_embedding=claim,
            )
            self.assertTrue(hparams.add_relative_to_values)
            self.assertTrue(hparams.heads_share_relative_embedding)

    @parameterized.parameters(
        ({"learning_rate_warmup_steps": 0}, "steps=0 is not possible here"),
        ({"attention_dropout": 1.0}, "attention_dropout=1.0 is not possible"),
        ({"weight_decay": 1e-5}, "weight_decay=1e-05 was a loss on the squa"),
        ({"optimizer": "adafactor"}, "optimizer adafactor is not supported"),
        (
            {"learning_rate_schedule": "constant*cosdecay"},
            r"schedule constant\*cosdecay is not supported",
        ),
        ({"learning_rate_schedule": ""}, "schedule  is not supported"),
        ({"learning_rate_schedule": 5}, "schedule 5 is not supported"),
        (
            {
                "learning_rate_schedule": "legacy",
                "learning_rate_decay_scheme": "exp",
            },
            r"schedule legacy \(exp\) is not supported.* use noam",
        ),
        ({"symbol_dropout": 0.1}, "attention still sees their positions"),
        ({"activation_dtype": "float16"}, "dtype float16 is not supported"),
        (MULTISTEP, "was a batch, with 3 batches to an update"),
    )
    def test_settings_of_training_without_a_counterpart_are_noted(
        self, changes, text
    ):
        _, notes = translate(**changes)
        self.assertLen(notes, 1)
        self.assertRegex(notes[0], text)

    def test_relative_without_distances_is_refused_as_there(self):
        with self.assertRaisesRegex(ValueError, "above 0.*Received: 0"):
            translate(max_relative_position=0)

    def test_a_target_space_of_a_model_without_an_embedding_is_refused(self):
        t2t = t2t_checkpoint.hparams_dict(use_target_space_embedding=False)
        with self.assertRaisesRegex(ValueError, "`target_space_id` has no eff"):
            t2t_hparams.translate(t2t, 9, target_space_id=5)
