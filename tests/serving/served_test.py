"""The form of answers."""

import json
import math

import numpy as np
from absl.testing import absltest

from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.serving import queries
from relpos_tf.serving import served


def rounded(values):
    """Returns nested lists with what Python makes of each number."""
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return round(values, 4) if math.isfinite(values) else 0.0


class AnswerTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(7)
        weights = draw.random([2, 3, 5, 7]).astype(np.float32)
        weights[0, 1, 2, 3] = np.nan
        weights[1, 1, 2, 4] = np.inf
        weights[1, 0, 4, 6] = 1e-9
        self.weights = weights
        source, target = list("abcde\u00e9/"), list('uv"xy')
        attention = engines.Attention(source, target, weights)
        self.translation = engines.Translation(
            ['\u00e9 "', "", "x"],
            [-1.23456789, -2.0, -3.0],
            False,
            attention=[attention, None, attention],
        )

    def query(self, attention, n_best):
        how = decode_hparam.DecodeHParams()
        return queries.Query(("a",), how, "", n_best, attention)

    def test_weights_are_rounded_and_finite(self):
        line = served.line_of(self.query(True, 2), self.translation)
        weights = self.weights
        self.assertEqual(served.num_weights(line), weights.size)
        text = served.answer("m", [line])
        self.assertIn('"\u00e9', text)
        first, second = json.loads(text)["translations"][0]["hypotheses"]
        self.assertEqual(
            first,
            {
                "text": '\u00e9 "',
                "score": -1.2346,
                "attention": {
                    "source": list("abcde\u00e9/"),
                    "target": list('uv"xy'),
                    "weights": rounded(weights.astype(float).tolist()),
                },
            },
        )
        self.assertIsNone(second["attention"])

    def test_what_is_kept_holds_nothing_else(self):
        # The engine's weights are a part of those of the whole batch.
        whole = np.ones([11, 2, 3, 5, 7], np.float32)
        attention = self.translation.attention[0]._replace(
            weights=whole[3, :, :, :4, :6]
        )
        given = self.translation._replace(attention=[attention])
        line = served.line_of(self.query(True, 1), given)
        kept = line["hypotheses"][0]["attention"]["weights"]
        self.assertFalse(np.shares_memory(kept, whole))
        np.testing.assert_array_equal(kept, whole[3, :, :, :4, :6])

    def test_without_attention_nothing_is_added(self):
        line = served.line_of(self.query(False, 3), self.translation)
        self.assertEqual(
            [sorted(one) for one in line["hypotheses"]], [["score", "text"]] * 3
        )


if __name__ == "__main__":
    absltest.main()
