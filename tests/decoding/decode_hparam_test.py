"""What may be asked of decoding, and what cannot mean anything."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam


class DecodeHParamsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("extra_length", "2147483640", "at most 10000"),
        ("extra_length", "2147483647", "at most 10000"),
        ("extra_length", "1000000000000", "at most 10000"),
        ("extra_length", "10001", "at most 10000"),
        ("min_length", "1000000", "at most 10000"),
        ("no_repeat_ngram_size", "1000000", "at most 100"),
        ("no_repeat_ngram_size", "101", "at most 100"),
        ("beam_size", "3000000000", "at most 2147483647"),
        ("batch_size", "3000000000", "at most 2147483647"),
        ("max_input_size", "3000000000", "at most 2147483647"),
        ("sampling_keep_top_k", "3000000000", "at most 2147483647"),
        ("random_seed", "2147483648", "at most 2147483647"),
        ("random_seed", "-2147483648", "at least -2147483647"),
        ("alpha", "inf", "at most 10"),
        ("alpha", "1e39", "at most 10"),
        ("sampling_temp", "inf", "at most 1e+30"),
        ("sampling_temp", "1e-39", "at least 1e-30"),
        ("sampling_temp", "0", "at least 1e-30"),
        ("sampling_temp", "nan", "at least 1e-30"),
        ("sampling_top_p", "0", "in the range (0, 1]"),
        ("sampling_top_p", "nan", "in the range (0, 1]"),
        ("sampling_top_p", "1.1", "in the range (0, 1]"),
    )
    def test_numbers_that_mean_nothing_are_refused(self, name, value, expected):
        with self.assertRaises(errors.UserError) as caught:
            decode_hparam.DecodeHParams.parse(f"{name}={value}")
        self.assertStartsWith(
            str(caught.exception),
            f"`{name}` must be {expected}. Received: {name}=",
        )

    @parameterized.parameters(
        ("extra_length", 10000),
        ("min_length", 10000),
        ("no_repeat_ngram_size", 100),
        ("random_seed", -1),
        ("alpha", 10.0),
        ("sampling_temp", 1e-30),
        ("sampling_top_p", 1e-30),
    )
    def test_the_last_that_means_something_is_taken(self, name, value):
        settings = decode_hparam.DecodeHParams.parse(f"{name}={value}")
        self.assertEqual(getattr(settings, name), value)


if __name__ == "__main__":
    absltest.main()
