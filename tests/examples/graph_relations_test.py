"""The example of labelled graphs: its data, and its two models."""

from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import examples

EXAMPLE = examples.load("graph_relations")


class GraphRelationsTest(absltest.TestCase):
    def test_the_answer_is_the_value_along_the_edge_of_the_question(self):
        inputs, answers = EXAMPLE.Graphs(3, 2)[1]
        values, questions, edges = inputs.values()
        seen = set()
        for graph, i in np.ndindex(answers.shape):
            row = edges[graph, i].tolist()
            # One edge of each label, none to the node itself.
            self.assertEqual(sorted(row), [-1] * 8 + [0, 1, 2, 3])
            self.assertEqual(row[i], -1)
            target = row.index(questions[graph, i])
            seen.add(questions[graph, i])
            self.assertEqual(answers[graph, i], values[graph, target])
        self.assertEqual(seen, {0, 1, 2, 3})
        for row in values:
            self.assertEqual(sorted(row), list(range(12)))
        # Some labels differ in the two directions of an edge.
        self.assertTrue(np.any(edges != edges.transpose(0, 2, 1)))

        swapped, labels = EXAMPLE.Graphs(3, 2, "label")[1]
        np.testing.assert_array_equal(swapped["questions"], answers)
        np.testing.assert_array_equal(labels, questions)

    def test_the_model_with_labels_learns_to_answer(self):
        with mock.patch.object(EXAMPLE, "NODES", 6):
            found = EXAMPLE.accuracy("value", True, True, 100, 1)
        self.assertGreater(found, 0.95)

    def test_the_model_without_labels_ignores_labels(self):
        inputs, _ = EXAMPLE.Graphs(3, 1)[0]
        edges = inputs["edges"]
        others = np.where(edges >= 0, (edges + 1) % 4, edges)
        for labelled in (False, True):
            model = EXAMPLE.build(labelled, labelled)
            results = [
                np.asarray(model(inputs | {"edges": labels}))
                for labels in (edges, others, edges[:, ::-1])
            ]
            unlike = [np.abs(results[0] - r).max() > 0.01 for r in results[1:]]
            self.assertEqual(unlike, [labelled, True])
