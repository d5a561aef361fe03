"""The form of answers."""

import json

import numpy as np
from absl.testing import absltest

from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.serving import queries
from relpos_tf.serving import served


def query(attention, n_best):
    how = decode_hparam.DecodeHParams()
    return queries.Query(("a",), how, "", n_best, attention)


class AnswerTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Weights of a batch of 11, of which the line's are a part.
        draw = np.random.default_rng(7)
        self.batch = draw.random([11, 2, 3, 5, 7]).astype(np.float32)
        self.batch[3, 0, 1, 2, 3] = np.nan
        self.batch[3, 1, 1, 2, 4] = np.inf
        self.batch[3, 1, 0, 4, 6] = 1e-9
        source, target = list("abcde\u00e9/"), list('uv"xy')
        attention = engines.Attention(source, target, self.batch[3], [], [])
        self.translation = engines.Translation(
            ['\u00e9 "', "", "x"],
            [-1.23456789, -2.0, -3.0],
            False,
            attention=[attention, None, attention],
        )

    def test_weights_are_rounded_finite_copies(self):
        line = served.line_of(query(True, 2), self.translation)
        kept = line["hypotheses"][0]["attention"]["weights"]
        self.assertFalse(np.shares_memory(kept, self.batch))
        text = served.answer("m", [line])
        self.assertIn('"\u00e9', text)
        first, second = json.loads(text)["translations"][0]["hypotheses"]
        self.assertIsNone(second["attention"])
        self.assertEqual((first["text"], first["score"]), ('\u00e9 "', -1.2346))
        self.assertEqual(first["attention"]["source"], list("abcde\u00e9/"))
        self.assertEqual(first["attention"]["target"], list('uv"xy'))
        expected = self.batch[3].astype(float).ravel().tolist()
        self.assertEqual(served.num_weights(line), len(expected))
        found = np.array(first["attention"]["weights"]).ravel().tolist()
        self.assertEqual(
            found, [round(x, 4) if np.isfinite(x) else 0.0 for x in expected]
        )
