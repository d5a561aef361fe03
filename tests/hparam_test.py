"""Tests of HParams."""

import dataclasses
import json
import re

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam


class HParamsTest(parameterized.TestCase):
    def test_replace_changes_the_copy_alone(self):
        first = hparam.HParams()
        second = first.replace(hidden_size=256, alpha=1.0)
        self.assertEqual((second.hidden_size, second.alpha), (256, 1.0))
        self.assertEqual((first.hidden_size, first.alpha), (512, 0.6))
        self.assertEqual(
            hparam.differences(first, second),
            {"hidden_size": (512, 256), "alpha": (0.6, 1.0)},
        )

    def test_fields_cannot_be_assigned(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            hparam.HParams().hidden_size = 256

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
                "max_position_shift": (7, 0),
                "self_attention_type": ("dot_product", "dot_product_relative"),
                "max_relative_position": (5, 0),
            },
        )
        # Sinusoids in the decoder alone may be shifted.
        third = first.replace(pos="emb", decoder_pos="timing")
        self.assertEqual(third.of_decoder().max_position_shift, 7)

    def test_unknown_names_are_answered_with_the_known_ones(self):
        for change in (
            lambda: hparam.HParams().replace(max_relativ_position=8),
            lambda: hparam.HParams().override("max_relativ_position=8"),
            lambda: hparam.HParams.from_json('{"max_relativ_position": 8}'),
        ):
            with self.assertRaises(errors.UserError) as caught:
                change()
            message = str(caught.exception)
            self.assertIn("Unknown hparams ['max_relativ_position']", message)
            for name in hparam.field_types():
                self.assertIn(repr(name), message)

    @parameterized.parameters(
        ("hidden_size", "512", "int"),
        ("hidden_size", 512.0, "int"),
        ("hidden_size", True, "int"),
        ("alpha", "0.6", "float"),
        ("alpha", True, "float"),
        ("alpha", None, "float"),
        ("shared_embedding", 1, "bool"),
        ("pos", None, "str"),
    )
    def test_values_of_another_type_are_refused(self, name, value, kind):
        with self.assertRaisesRegex(
            errors.UserError, f"`{name}` must be of type {kind}. Received: "
        ):
            hparam.HParams().replace(**{name: value})

    def test_a_float_may_be_written_as_an_int(self):
        alpha = hparam.HParams().replace(alpha=1).alpha
        self.assertEqual((alpha, type(alpha)), (1.0, float))

    @parameterized.parameters(
        ("vocab_size", 0, "at least 1"),
        ("num_hidden_layers", 0, "at least 1"),
        ("num_heads", 0, "at least 1"),
        ("batch_size", -1, "at least 1"),
        ("beam_size", 0, "at least 1"),
        ("train_steps", 0, "at least 1"),
        ("learning_rate_warmup_steps", 0, "at least 1"),
        ("max_relative_position", -1, "at least 0"),
        ("max_relative_position_right", -2, "at least -1"),
        ("decoder_max_relative_position", -2, "at least -1"),
        ("decoder_pos", "learned", "one of same, timing, emb, none"),
        ("decoder_self_attention_type", "", "one of same, dot_product, .*"),
        ("relative_attention_num_buckets", 2, "at least 4"),
        ("relative_attention_num_buckets", 33, "even"),
        ("relative_attention_num_buckets", 1002, "at most 1000"),
        ("relative_attention_max_distance", 16, "above the half of .* 16"),
        ("relative_attention_max_distance", 10_001, "at most 10000"),
        ("max_position_shift", -1, "at least 0"),
        ("max_position_shift", 10_001, "at most 10000"),
        ("alpha", -0.1, "at least 0"),
        ("clip_grad_norm", -1.0, "at least 0"),
        ("extra_length", -1, "at least 0"),
        ("average_checkpoints", -1, "at least 0"),
        ("average_epochs", -1, "at least 0"),
        ("weight_decay", -0.1, "at least 0"),
        ("weight_decay", 1001.0, "at most 1000"),
        ("weight_decay", float("nan"), "a finite number"),
        ("moving_average_decay", -0.1, "at least 0"),
        ("moving_average_decay", 1.0, "below 1"),
        ("layer_prepostprocess_dropout", 1.0, "below 1"),
        ("attention_dropout", -0.1, "at least 0"),
        ("symbol_dropout", 1.0, "below 1"),
        ("symbol_dropout", -0.1, "at least 0"),
        ("relu_dropout", 1.5, "below 1"),
        ("label_smoothing", 1.0, "below 1"),
        ("optimizer_adam_beta2", 1.0, "below 1"),
        ("hidden_size", 516, "a multiple of num_heads = 8"),
        ("length_bucket_step", 1.0, "above 1"),
        ("target_space_id", 32, "at most 31"),
        ("target_space_id", -1, "at least 0"),
        ("num_encoder_layers", -1, "at least 0"),
        ("optimizer", "sgd", "one of adam"),
        ("learning_rate_schedule", "cosine", "a product.*noam, legacy.*"),
        ("learning_rate_schedule", "constant,noam", "a product.*"),
        ("learning_rate_schedule", "", "a product.*"),
        ("label_smoothing", float("nan"), "a finite number"),
        ("alpha", float("nan"), "a finite number"),
        ("learning_rate_constant", float("nan"), "a finite number"),
        ("learning_rate", float("-inf"), "a finite number"),
        ("clip_grad_norm", float("inf"), "a finite number"),
        ("optimizer_multistep_accumulate_steps", -1, "at least 0"),
        ("attention_window", -1, "at least 0"),
        ("attention_window_heads", 0, "at least 1"),
        ("attention_window_heads", 2, "odd and below 16, twice num_heads"),
        ("attention_window_heads", 17, "odd and below 16, twice num_heads"),
        ("attention_window_layers", -1, "at least 0"),
        ("attention_window_layers", 1001, "at most 1000"),
        ("localness_window", 0, "at least 1"),
        ("vocab_size", 3_000_000_000, "at most 10000000"),
        ("hidden_size", 2**40, "at most 100000"),
        ("num_hidden_layers", 10**9, "at most 1000"),
        ("num_encoder_layers", 10**9, "at most 1000"),
        ("num_decoder_layers", 1001, "at most 1000"),
        ("max_relative_position", 2**31, "at most 10000"),
        ("attention_window", 2**31, "at most 1000000"),
        ("localness_window", 2**31, "at most 1000000"),
        ("batch_size", 2**31, "at most 1000000"),
        ("max_length", 2**31, "at most 1000000"),
        ("extra_length", 2_147_483_640, "at most 10000"),
        ("extra_length", 10**12, "at most 10000"),
        ("beam_size", 2**31, "at most 2147483647"),
        ("train_steps", 2**31, "at most 2147483647"),
        ("learning_rate_warmup_steps", 10**400, "at most 2147483647"),
        ("alpha", 11.0, "at most 10"),
        ("clip_grad_norm", 1e39, r"at most 1e\+30"),
        ("learning_rate_constant", 1e39, r"at most 1e\+30"),
        ("optimizer_adam_epsilon", -1e-9, "at least 0"),
        ("norm_epsilon", -1e-6, "at least 0"),
    )
    def test_values_out_of_range_are_refused(self, name, value, expected):
        with self.assertRaisesRegex(
            errors.UserError,
            f"`{name}` must be {expected}. Received: ({name}=)?"
            + re.escape(str(value)),
        ):
            hparam.HParams().replace(**{name: value})

    @parameterized.parameters(
        ("max_relative_position", 0),
        ("average_checkpoints", 0),
        ("optimizer_multistep_accumulate_steps", 0),
        ("label_smoothing", 0.0),
        ("beam_size", 1),
        ("attention_window_heads", 1),
    )
    def test_the_least_value_is_allowed(self, name, value):
        hparams = hparam.HParams().replace(**{name: value})
        self.assertEqual(getattr(hparams, name), value)

    def test_a_whole_number_beyond_all_floats_is_refused(self):
        with self.assertRaisesRegex(errors.UserError, "`alpha` must be "):
            hparam.HParams().replace(alpha=10**400)

    @parameterized.parameters(
        ("pos", "timing, emb, none"),
        ("self_attention_type", "dot_product, dot_product_relative"),
        ("layer_preprocess_sequence", "none, n"),
        ("layer_postprocess_sequence", "dan, da"),
        ("relative_attention_implementation", "auto, reshape, compact"),
        ("attention_score", "dot_product, additive, feature_wise"),
        ("encoder_attention_direction", "both, forward, backward, split"),
        ("localness", "none, fixed, layer, query"),
    )
    def test_unknown_choices_are_answered_with_the_known_ones(
        self, name, known
    ):
        with self.assertRaisesRegex(
            errors.UserError, f"`{name}` must be one of {known}. .*=other"
        ):
            hparam.HParams().replace(**{name: "other"})

    def test_one_head_cannot_be_split(self):
        with self.assertRaisesRegex(errors.UserError, "Received: .*=split"):
            hparam.HParams().override(
                "num_heads=1,encoder_attention_direction=split"
            )

    def test_weights_of_features_and_windows_of_heads_exclude_each_other(self):
        with self.assertRaisesRegex(
            errors.UserError, "`attention_window_heads` must be 1 where"
        ):
            hparam.HParams().override(
                "attention_score=feature_wise,attention_window_heads=3"
            )

    def test_override_parses_every_type(self):
        hparams = hparam.HParams().override(
            "hidden_size=64, alpha=1,pos=none,shared_embedding=false,"
            "optimizer_adam_epsilon=1e-8,add_relative_to_keys=0"
        )
        self.assertEqual(
            hparam.differences(hparam.HParams(), hparams),
            {
                "hidden_size": (512, 64),
                "alpha": (0.6, 1.0),
                "pos": ("timing", "none"),
                "shared_embedding": (True, False),
                "optimizer_adam_epsilon": (1e-9, 1e-8),
                "add_relative_to_keys": (True, False),
            },
        )

    @parameterized.parameters(
        ("true", True),
        ("True", True),
        ("1", True),
        ("yes", True),
        ("false", False),
        ("FALSE", False),
        ("0", False),
        ("no", False),
    )
    def test_override_reads_booleans(self, text, expected):
        hparams = hparam.HParams(shared_embedding=not expected)
        hparams = hparams.override(f"shared_embedding={text}")
        self.assertIs(hparams.shared_embedding, expected)

    def test_override_takes_a_product_of_factors(self):
        product = "constant*linear_warmup*rsqrt_decay"
        hparams = hparam.HParams().override(f"learning_rate_schedule={product}")
        self.assertEqual(hparams.learning_rate_schedule, product)

    @parameterized.parameters(
        ("", 6, 6),
        ("num_encoder_layers=9", 9, 6),
        ("num_decoder_layers=1,num_hidden_layers=2", 2, 1),
    )
    def test_stacks_have_num_hidden_layers_unless_told_otherwise(
        self, text, encoder, decoder
    ):
        hparams = hparam.HParams().override(text)
        self.assertEqual(hparams.encoder_layers, encoder)
        self.assertEqual(hparams.decoder_layers, decoder)

    @parameterized.parameters("", " ", ",", " , ")
    def test_override_with_nothing_changes_nothing(self, text):
        self.assertEqual(hparam.HParams().override(text), hparam.HParams())

    @parameterized.parameters(
        ("hidden_size=6.5", "`hidden_size` must be of type int.*'6.5'"),
        ("alpha=big", "`alpha` must be of type float.*'big'"),
        ("shared_embedding=2", "`shared_embedding` must be of type bool.*'2'"),
        ("hidden_size", "name=value.*Received: 'hidden_size'"),
        ("hidden_size=", "`hidden_size` must be of type int"),
        ("num_heads=3", "multiple of num_heads = 3"),
    )
    def test_override_refuses_malformed_values(self, text, expected):
        with self.assertRaisesRegex(errors.UserError, expected):
            hparam.HParams().override(text)

    @parameterized.parameters(
        ('{"alpha": 1%s}' % ("0" * 400), "`alpha` must be a finite number"),
        ('{"beam_size": true}', "`beam_size` must be of type int"),
        ('{"pos": ["timing"]}', "`pos` must be of type str"),
        ("[" * 100_000, "are not JSON"),
    )
    def test_json_of_other_types_is_refused(self, text, expected):
        with self.assertRaisesRegex(errors.UserError, expected):
            hparam.HParams.from_json(text)

    def test_unknown_name_is_answered_with_the_nearest(self):
        with self.assertRaisesRegex(
            errors.UserError, r"\['hiden_size'\]. Did you mean hidden_size\? K"
        ):
            hparam.HParams().override("hiden_size=64")

    def test_json_returns_every_field_as_it_was(self):
        hparams = hparam.HParams().replace(
            alpha=1.0, optimizer_adam_epsilon=1e-8, pos="none", vocab_size=101
        )
        text = hparams.to_json()
        self.assertEqual(hparam.HParams.from_json(text), hparams)
        self.assertEqual(list(json.loads(text)), list(hparam.field_types()))
        self.assertIs(type(hparam.HParams.from_json(text).alpha), float)

    def test_json_without_a_field_is_refused(self):
        values = hparam.HParams().to_dict()
        del values["alpha"], values["pos"]
        with self.assertRaisesRegex(errors.UserError, "Missing: pos, alpha"):
            hparam.HParams.from_json(json.dumps(values))

    @parameterized.parameters(
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1]", "JSON object"),
        ('{"hidden_size": "64"}', "type int"),
        ('{"hidden_size": null}', "type int"),
    )
    def test_json_that_is_no_set_is_refused(self, text, expected):
        with self.assertRaisesRegex(errors.UserError, expected):
            hparam.HParams.from_json(text)


if __name__ == "__main__":
    absltest.main()
