"""The example of a chess board: its rules, and what its two models see."""

from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import examples

CHESS = examples.load("chess_attacks")
LETTERS = ".KQRBNPx"


def attacks(pieces, source, target):
    """Says whether a piece on a square attacks another, by geometry."""
    kind = LETTERS[pieces[source]]
    (a, b), (c, d) = divmod(source, 8), divmod(target, 8)
    down, right = c - a, d - b
    far, near = max(abs(down), abs(right)), min(abs(down), abs(right))
    if kind == "K":
        return far == 1
    if kind == "N":
        return (far, near) == (2, 1)
    if kind == "P":
        return down == 1 and abs(right) == 1
    lines = {"R": (0,), "B": (far,), "Q": (0, far)}
    if not far or near not in lines.get(kind, ()):
        return False
    between = [
        pieces[8 * (a + down * i // far) + b + right * i // far]
        for i in range(1, far)
    ]
    return not any(between)


class ChessAttacksTest(absltest.TestCase):
    def test_attacks_equal_those_of_each_pair_of_squares(self):
        boards = CHESS.boards(50, seed=3)
        self.assertEqual(set(boards.ravel().tolist()), set(range(8)))
        expected = [
            [
                any(attacks(board, source, target) for source in range(64))
                for target in range(64)
            ]
            for board in boards.tolist()
        ]
        np.testing.assert_array_equal(CHESS.attacked(boards), expected)

    def test_labels_name_the_rows_and_columns_between_squares(self):
        steps = {}
        for (a, b), label in np.ndenumerate(CHESS.steps()):
            between = b // 8 - a // 8, b % 8 - a % 8
            self.assertEqual(steps.setdefault(label, between), between)
        self.assertLen(set(steps.values()), 15 * 15)
        self.assertEqual(sorted(steps), list(range(15 * 15)))

    def test_a_model_of_a_small_board_learns(self):
        sizes = {"SIDE": 3, "SQUARES": 9, "BATCH_SIZE": 32}
        with mock.patch.multiple(CHESS, **sizes):
            model = CHESS.train(True, updates=150, seed=1)
            pieces = CHESS.boards(200, seed=2)
            truth = CHESS.attacked(pieces)
        judged = np.array(model(pieces)) > 0
        common = max(truth.mean(), 1 - truth.mean())
        self.assertGreater((judged == truth).mean(), common + 0.1)
