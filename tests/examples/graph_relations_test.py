"""The example of labelled graphs: its data, and its two models."""

from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import examples

EXAMPLE = examples.load("graph_relations")


class GraphRelationsTest(absltest.TestCase):
    def test_the_model_with_labels_learns_to_answer(self):
        with mock.patch.object(EXAMPLE, "NODES", 6):
            self.assertGreater(EXAMPLE.accuracy(True, 100, 1), 0.95)

    def test_the_model_without_labels_ignores_labels(self):
        inputs, _ = EXAMPLE.Graphs(3, 1)[0]
        edges = inputs["edges"]
        others = np.where(edges >= 0, (edges + 1) % 4, edges)
        for labelled in (False, True):
            model = EXAMPLE.build(labelled)
            results = [
                np.asarray(model(inputs | {"edges": labels}))
                for labels in (edges, others, edges[:, ::-1])
            ]
            unlike = [np.abs(results[0] - r).max() > 0.01 for r in results[1:]]
            self.assertEqual(unlike, [labelled, True])
