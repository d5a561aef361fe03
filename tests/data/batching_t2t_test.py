"""The buckets of tensor2tensor, for one GPU and for two."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.data import batching
from tests import testing

CASES = {
    case: (settings, arrays)
    for case, settings, arrays in testing.t2t_cases(
        "batching", "t2t_training.npz"
    )
}


class BucketsT2tTest(parameterized.TestCase):
    @parameterized.parameters(
        ("transformer_base_x1", 1), ("transformer_base_x2", 2)
    )
    def test_boundaries_and_batch_sizes_are_equal(self, case, gpus):
        # tensor2tensor shares one batch among its GPUs; here each replica gets
        # a batch of its own.
        settings, arrays = CASES[case]
        boundaries, sizes = batching.boundaries_and_batch_sizes(
            settings["batch_size"],
            settings["max_length"],
            settings["min_length_bucket"],
            settings["length_bucket_step"],
        )
        self.assertEqual(boundaries, arrays["out/boundaries"].tolist())
        self.assertEqual(
            [gpus * size for size in sizes], arrays["out/batch_sizes"].tolist()
        )


if __name__ == "__main__":
    absltest.main()
