"""Tests of HParams."""

import dataclasses
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam

# `name=value`, and the words that must be named: each kind of limit, and each
# rule for several fields.
REFUSED = (
    ("vocab_size=0", "`vocab_size` must be at least 1. Received: .*0"),
    ("max_relative_position=-1", "at least 0"),
    ("max_relative_position_right=-2", "at least -1"),
    ("max_relative_position=2147483648", "at most 10000"),
    ("weight_decay=nan", "a finite number"),
    ("clip_grad_norm=1e39", r"at most 1e\+30"),
    ("optimizer_adam_beta2=0.99999999", "at most 0.999999"),  # 1 in float32
    ("optimizer_adam_epsilon=0", "at least 1e-30"),
    ("moving_average_decay=1.0", "below 1"),
    ("length_bucket_step=1.0", "above 1"),
    ("relative_attention_num_buckets=33", "even"),
    ("relative_attention_max_distance=16", "above the half of .* 16"),
    ("hidden_size=516", "a multiple of num_heads = 8"),
    ("average_epochs=3,average_checkpoints=5", "average_checkpoints is 5"),
    ("average_epochs=1", "`average_epochs` must be 0 or at least 2"),
    ("self_attention_type=dot", "one of dot_product, dot_product_relative, "),
    ("self_attention_type=log_bias", "`log_bias` is not registered.*usr_dir"),
    ("pos=other", "`pos` must be one of timing, emb, none. .*='other'"),
    ("learning_rate_schedule=cosine", "a product.*noam, legacy.*"),
    ("hidden_size=6.5", "`hidden_size` must be of type int.*'6.5'"),
    ("alpha=big", "`alpha` must be of type float.*'big'"),
    ("shared_embedding=2", "`shared_embedding` must be of type bool.*'2'"),
    ("hidden_size", "name=value.*Received: 'hidden_size'"),
    ("hidden_size=8 alpha=1", "commas between them"),
    ("alpha=1,hidden_size=8,alpha=2,alpha=1", "`alpha` once"),
    ("hiden_size=64", r"\['hiden_size'\]. Did you mean hidden_size\? K"),
)

# Changes of which the last has no effect; what it needs; and the fields of the
# same condition that have an effect.
WITHOUT_EFFECT = (
    ("learning_rate=1e-4", "learning_rate_schedule=legacy", "rate_constant"),
    (
        "learning_rate_schedule=legacy,learning_rate_constant=2",
        "learning_rate_schedule=noam|constant",
        " learning_rate, learning_rate_warmup_steps.",
    ),
    (
        "learning_rate_schedule=constant*rsqrt_hidden_size,"
        "learning_rate_warmup_steps=10",
        "noam|legacy|linear_warmup|rsqrt_decay",
        " learning_rate_constant.",
    ),
    ("max_relative_position=16", "=dot_product_relative", "none like it"),
    (
        "self_attention_type=dot_product_relative,num_heads=1,"
        "heads_share_relative_embedding=true",
        "num_heads!=1",
        "max_relative_position",
    ),
    (
        "self_attention_type=dot_product_relative_bias,max_relative_position=8",
        "=dot_product_relative",
        "relative_attention_num_buckets",
    ),
    (
        "self_attention_type=dot_product_relative,add_relative_to_keys=false,"
        "add_relative_to_values=false,max_relative_position=8",
        "add_relative_to_keys|add_relative_to_values=true",
        "add_relative_to_keys",
    ),
    (
        "decoder_self_attention_type=dot_product_relative,"
        "max_relative_position_right=8",
        "self_attention_type=dot_product_relative",
        "max_relative_position",
    ),
    (
        "self_attention_type=dot_product_relative,"
        "decoder_self_attention_type=dot_product_alibi,"
        "decoder_max_relative_position=8",
        "decoder_self_attention_type=same|dot_product_relative",
        "max_relative_position",
    ),
    (
        "decoder_self_attention_type=dot_product_relative,"
        "decoder_max_relative_position=4,max_relative_position=8",
        "decoder_max_relative_position=-1",
        "decoder_max_relative_position",
    ),
    ("relative_attention_num_buckets=8", "=dot_product_relative_bias", ""),
    (
        "layer_postprocess_sequence=da,norm_epsilon=1e-5",
        "layer_preprocess_sequence|layer_postprocess_sequence=n|dan",
        "",
    ),
    (
        "num_encoder_layers=2,num_decoder_layers=3,num_hidden_layers=4",
        "num_encoder_layers|num_decoder_layers=0",
        "",
    ),
    ("pos=none,max_position_shift=3", "pos|decoder_pos=timing", ""),
    ("vocab_size=4000", "--vocab_size", ""),
)


class HParamsTest(parameterized.TestCase):
    def test_replace_changes_the_copy_alone(self):
        first = hparam.HParams()
        second = first.replace(hidden_size=256, alpha=1)
        self.assertEqual((first.hidden_size, first.alpha), (512, 0.6))
        self.assertEqual(
            hparam.differences(first, second),
            {"hidden_size": (512, 256), "alpha": (0.6, 1.0)},
        )
        self.assertIs(type(second.alpha), float)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            first.hidden_size = 256

    def test_fields_of_the_decoder_replace_those_of_both_stacks(self):
        first = hparam.HParams(max_position_shift=7, max_relative_position=5)
        self.assertEqual(first.of_decoder(), first)
        second = first.replace(
            decoder_pos="none",
            decoder_self_attention_type="dot_product_relative",
            decoder_max_relative_position=0,
        )
        self.assertEqual(
            hparam.differences(second, second.of_decoder()),
            {
                "pos": ("timing", "none"),
                "self_attention_type": ("dot_product", "dot_product_relative"),
                "max_relative_position": (5, 0),
            },
        )

    @parameterized.parameters(*WITHOUT_EFFECT)
    def test_a_field_without_effect_is_refused(self, text, needed, others):
        name = text.rpartition(",")[2].partition("=")[0]
        with self.assertRaises(errors.UserError) as caught:
            hparam.HParams().override(text)
        message = str(caught.exception)
        self.assertStartsWith(message, f"`{name}` has no effect: it needs ")
        self.assertIn(needed, message)
        self.assertIn(others, message.partition("With an effect:")[2] or others)

    @parameterized.parameters(
        "learning_rate=1e-4,learning_rate_schedule=legacy",
        "learning_rate_schedule=linear_warmup*constant,"
        "learning_rate_warmup_steps=9,learning_rate_constant=2",
        "decoder_self_attention_type=dot_product_relative,"
        "max_relative_position=8",
        "decoder_self_attention_type=dot_product_relative,"
        "decoder_max_relative_position=4",
        "self_attention_type=dot_product_relative,max_relative_position=8,"
        "decoder_max_relative_position=4",
        "decoder_self_attention_type=dot_product_relative_bias,"
        "relative_attention_num_buckets=8",
        "num_encoder_layers=2,num_hidden_layers=4",
        "pos=emb,decoder_pos=timing,max_position_shift=3",
    )
    def test_a_field_with_an_effect_is_taken(self, text):
        names = [item.partition("=")[0] for item in text.split(",")]
        changed = hparam.HParams().override(text)
        self.assertNotEqual(changed, hparam.HParams())
        self.assertTrue(all(map(changed.has_effect, names)))

    def test_a_set_may_inherit_what_has_no_effect(self):
        hparams = hparam.HParams(max_position_shift=3).override("pos=none")
        self.assertEqual(hparams.max_position_shift, 3)
        self.assertFalse(hparams.has_effect("max_position_shift"))

    def test_a_kind_of_the_users_may_use_any_field_of_the_model(self):
        self.enter_context(mock.patch.object(hparam, "OWN_TYPES", ["dot_mine"]))
        own = object.__new__(hparam.HParams)
        own.__dict__.update(vars(hparam.HParams()))
        own.__dict__["decoder_self_attention_type"] = "dot_mine"
        names = [n for n in hparam.field_types() if not own.has_effect(n)]
        self.assertEqual(
            names, ["vocab_size", "consistency_loss", "learning_rate"]
        )

    @parameterized.parameters(*REFUSED)
    def test_refusals(self, text, words):
        with self.assertRaisesRegex(errors.UserError, words):
            hparam.HParams().override(text)

    def test_override_parses_every_type(self):
        hparams = hparam.HParams().override(
            "hidden_size=64, alpha=1,pos=none,shared_embedding=false,"
            "optimizer_adam_epsilon=1e-8,use_target_space_embedding=1,"
            "learning_rate_schedule=constant*linear_warmup"
        )
        self.assertEqual(
            hparam.differences(hparam.HParams(), hparams),
            {
                "hidden_size": (512, 64),
                "alpha": (0.6, 1.0),
                "pos": ("timing", "none"),
                "shared_embedding": (True, False),
                "optimizer_adam_epsilon": (1e-9, 1e-8),
                "use_target_space_embedding": (False, True),
                "learning_rate_schedule": ("noam", "constant*linear_warmup"),
            },
        )
        self.assertEqual(hparam.HParams().override(" , "), hparam.HParams())
