"""What may be asked of decoding, and what cannot mean anything."""

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam


class DecodeHParamsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("min_length", "1000000", "at most 10000"),
        ("beam_size", "3000000000", "at most 2147483647"),
        ("random_seed", "-2147483648", "at least -2147483647"),
        ("sampling_temp", "1e-39", "at least 1e-30"),
        ("sampling_top_p", "0", "above 0"),
    )
    def test_numbers_that_mean_nothing_are_refused(self, name, value, expected):
        with self.assertRaises(errors.UserError) as caught:
            decode_hparam.DecodeHParams.parse(f"{name}={value}")
        self.assertStartsWith(
            str(caught.exception),
            f"`{name}` must be {expected}. Received: {name}=",
        )

    def test_the_name_of_tensor2tensor_leads_to_that_here(self):
        with self.assertRaisesRegex(errors.UserError, "are n_best=N"):
            decode_hparam.DecodeHParams.parse("alpha=1,return_beams=true")

    @parameterized.parameters(
        ("sampling_keep_top_k=3", "sampling_method=random"),
        ("sampling_method=argmax,random_seed=1", "sampling_method=random"),
        ("beam_size=3,sampling_method=random", "sampling_method=argmax"),
    )
    def test_what_has_no_effect_is_refused(self, text, needed):
        with self.assertRaisesRegex(errors.UserError, f"it needs {needed}"):
            decode_hparam.DecodeHParams.parse(text)
