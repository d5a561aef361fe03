"""The example of a text classifier: its data, its masks, what it shows."""

from unittest import mock

from absl.testing import absltest

from tests import examples

EXAMPLE = examples.load("keras_text_classifier")


class KerasTextClassifierTest(absltest.TestCase):
    def test_relative_positions_hold_for_longer_texts(self):
        with mock.patch.object(EXAMPLE, "BATCH_SIZE", 32):
            short, long = EXAMPLE.accuracies(True, 1000, 4, seed=1)
        self.assertGreater(short, 0.97)
        self.assertGreater(long, 0.85)
