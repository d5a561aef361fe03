"""The public names on every backend, also where TensorFlow is missing."""

from absl.testing import absltest

import relpos_tf


class NamesTest(absltest.TestCase):
    def test_every_listed_name_can_be_imported(self):
        # help() imports them, and stops at the first that fails.
        names = dir(relpos_tf)
        self.assertIn("RelativeMultiHeadAttention", names)
        for name in names:
            getattr(relpos_tf, name)


if __name__ == "__main__":
    absltest.main()
