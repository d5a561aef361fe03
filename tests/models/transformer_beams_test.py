"""Tests of decoding the hypotheses of a source together.

Shapes: B sources, n hypotheses, T target length.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.models import example

N = 3


def rows_of(model, parents, chosen):
    """Decodes hypotheses that continue others.

    Args:
        model: A Transformer.
        parents: `[T, B, n]`: the hypothesis that each one continues.
        chosen: `[T, B, n]`: the id that each one adds.

    Returns:
        Logits `[B, n, T, V]` of the last hypotheses, each row computed by an
        ancestor, and the ids `[B, n, T]` of the last hypotheses.
    """
    steps, batch, n = chosen.shape
    cache = model.init_beams(example.ids(example.INPUTS))
    pick = np.arange(batch)[:, np.newaxis]
    ancestors = np.zeros([batch, n, 0], int)
    histories = np.zeros([batch, n, 0], int)
    rows = np.zeros([batch, n, 0, example.V])
    last = np.zeros([batch, n], int)
    for step in range(steps):
        own = np.broadcast_to(np.arange(n), [batch, n])[..., np.newaxis]
        ancestors = np.concatenate([ancestors, own], 2)
        logits, cache = model.step_beams(
            example.ids(last.reshape(-1)), cache, example.ids(ancestors)
        )
        logits = logits.numpy().reshape([batch, n, 1, example.V])
        rows = np.concatenate([rows, logits], 2)
        # Everything follows the hypotheses, except the cache.
        rows = rows[pick, parents[step]]
        ancestors = ancestors[pick, parents[step]]
        last = chosen[step]
        histories = np.concatenate(
            [histories[pick, parents[step]], last[..., np.newaxis]], 2
        )
    return rows, histories


class BeamsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*example.VARIANTS)
    def test_hypotheses_equal_rows_of_the_full_pass(self, name):
        model = example.made(name)
        random = np.random.default_rng(5)
        shape = [7, len(example.INPUTS), N]
        parents = random.integers(0, N, shape)
        chosen = random.integers(1, example.V, shape)
        rows, ids = rows_of(model, parents, chosen)
        for b, source in enumerate(example.INPUTS):
            expected = model(
                example.ids(np.repeat([source], N, 0)), example.ids(ids[b])
            )
            self.assertAllClose(rows[b], expected, atol=2e-5)

    def test_a_hypothesis_does_not_see_others(self):
        model = example.made("per_head")
        parents = np.zeros([4, 3, N], int) + np.arange(N)
        chosen = np.full([4, 3, N], 5)
        rows, _ = rows_of(model, parents, chosen)
        chosen[:, :, 1:] = 7
        others, _ = rows_of(model, parents, chosen)
        self.assertAllEqual(rows[:, 0], others[:, 0])
        self.assertNotAllClose(rows[:, 1, 1:], others[:, 1, 1:])


if __name__ == "__main__":
    tf.test.main()
