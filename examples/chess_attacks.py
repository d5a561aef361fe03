"""Finds the squares of a chess board that white attacks.

    python examples/chess_attacks.py

White and black pieces stand on random squares. The model says of each of the 64
squares whether a white piece attacks it. Rooks, bishops and queens attack until
a piece of either colour is in their way.

Two models are trained. Both have a learned vector for each square, and attend
from each square to all others. One of them also knows the step from square to
square, so many rows and so many columns: 225 labels, the same for all boards.
So it learns a knight's jump once, and the other model for each square anew.

Takes a minute and a half on one CPU core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import parts

import relpos_tf

SIDE = 8
SQUARES = SIDE * SIDE
EMPTY, KING, QUEEN, ROOK, BISHOP, KNIGHT, PAWN, BLACK = range(8)
SHARES = [0.8, *[0.1 / 6] * 6, 0.1]  # of the squares
STRAIGHT = [(0, 1), (1, 0), (0, -1), (-1, 0)]
DIAGONAL = [(1, 1), (1, -1), (-1, -1), (-1, 1)]
JUMPS = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]
# Pieces, their steps in rows and columns, and the most steps at once.
MOVES = [
    ([KING], STRAIGHT + DIAGONAL, 1),
    ([KNIGHT], JUMPS, 1),
    ([PAWN], [(1, 1), (1, -1)], 1),
    ([ROOK, QUEEN], STRAIGHT, SIDE - 1),
    ([BISHOP, QUEEN], DIAGONAL, SIDE - 1),
]
FEATURES = 64
BATCH_SIZE = 16


def boards(number, seed):
    """Returns the pieces of random boards, `[number, SQUARES]`."""
    random = np.random.default_rng(seed)
    return random.choice(len(SHARES), (number, SQUARES), p=SHARES)


def attacked(pieces):
    """Says which squares white attacks: `[number, SQUARES]`, 0 or 1."""
    pieces = pieces.reshape(-1, SIDE, SIDE)
    result = np.zeros(pieces.shape, bool)
    for kinds, steps, reach in MOVES:
        for rows, columns in steps:
            front = np.isin(pieces, kinds)
            for _ in range(reach):
                # Two more squares on each side, for the steps of knights.
                front = np.pad(front, ((0, 0), (2, 2), (2, 2)))
                front = np.roll(front, (rows, columns), (1, 2))[:, 2:-2, 2:-2]
                result |= front
                front = front & (pieces == EMPTY)
    return result.reshape(-1, SQUARES).astype(int)


def steps():
    """Returns a label of the step between squares, `[SQUARES, SQUARES]`."""
    rows, columns = np.divmod(np.arange(SQUARES), SIDE)
    down, right = (x - x[:, None] + SIDE - 1 for x in (rows, columns))
    return down * (2 * SIDE - 1) + right


def build(related):
    """Returns a model of attention layers, with or without relations."""
    pieces = keras.Input([SQUARES], dtype="int32")
    x = keras.layers.Embedding(len(SHARES), FEATURES)(pieces)
    x += keras.layers.Embedding(SQUARES, FEATURES)(np.arange(SQUARES))
    labels = steps()
    for _ in range(2):
        if related:
            layer = relpos_tf.RelationAttention(
                FEATURES, num_heads=4, num_relations=labels.max() + 1
            )
            y = layer(x, labels)
        else:
            y = relpos_tf.TransformerAttention(FEATURES, num_heads=4)(x)
        x = parts.add_and_feed_forward(x, y)
    logits = keras.layers.Dense(1)(x)[..., 0]
    model = keras.Model(pieces, logits)
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
        jit_compile=False,  # compiling would take longer than training
    )
    return model


def train(related, updates, seed):
    """Trains a model on boards that are new in each update; returns it."""
    keras.utils.set_random_seed(seed)
    model = build(related)
    pieces = boards(updates * BATCH_SIZE, [seed, 0])
    model.fit(pieces, attacked(pieces), batch_size=BATCH_SIZE, verbose=0)
    return model


def main():
    flags = parts.parse_flags(__doc__, updates=800, seed=1)
    pieces = boards(1000, [flags.seed, 1])
    truth = attacked(pieces)
    print("squares of new boards that are judged rightly", flush=True)
    print(f"by one answer for all: {max(truth.mean(), 1 - truth.mean()):.3f}")
    for related in (False, True):
        name = "with relations" if related else "without relations"
        model = train(related, flags.updates, flags.seed)
        judged = model.predict(pieces, verbose=0) > 0
        print(f"{name}: {(judged == truth).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
