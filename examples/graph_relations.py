"""Answers questions about labelled graphs, with labels and without.

    python examples/graph_relations.py

Every node of a graph has a value and a question. From every node four edges
lead to other nodes, one of each label. The question names a label, and the
answer is the value of the node at the other end of that edge.

Two models are trained. Both attend along the edges only; one of them receives
no labels. All values of a graph differ, so that model can only guess one of
four neighbours. Takes half a minute on one CPU core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import parts

from relpos_tf.layers import attention
from relpos_tf.layers import relations

NODES = 12
LABELS = 4
NO_EDGE = -1
FEATURES = 64
BATCH_SIZE = 64


class Graphs(keras.utils.PyDataset):
    """Batches of random graphs, new ones for every seed.

    Args:
        seed: int. The same seed gives the same graphs.
        steps: int. The number of batches.
    """

    def __init__(self, seed, steps):
        super().__init__()
        self.seed, self.steps = seed, steps

    def __len__(self):
        return self.steps

    def __getitem__(self, step):
        """Returns a batch: a dict of inputs, and the answers `[B, NODES]`.

        The inputs are `values` and `questions`, both `[B, NODES]`, and the
        labels of the `edges` from row to column, `[B, NODES, NODES]`.
        """
        random = np.random.default_rng([self.seed, step])
        shape = BATCH_SIZE, NODES
        values = random.permuted(
            np.tile(np.arange(NODES), (BATCH_SIZE, 1)), axis=1
        )
        questions = random.integers(0, LABELS, shape)
        # Labels 0 to 3, each at one of the other nodes, in random order.
        labels = np.full([*shape, NODES - 1], NO_EDGE)
        labels[..., :LABELS] = np.arange(LABELS)
        labels = random.permuted(labels, axis=-1)
        edges = np.full([*shape, NODES], NO_EDGE)
        edges[:, ~np.eye(NODES, dtype=bool)] = labels.reshape(BATCH_SIZE, -1)
        is_target = edges == questions[..., np.newaxis]  # one True in each row
        answers = (values[:, np.newaxis] * is_target).sum(-1)
        inputs = {"values": values, "questions": questions, "edges": edges}
        return inputs, answers


def build(labelled):
    """Returns a model of two attention layers, with or without labels."""
    values = keras.Input([NODES], dtype="int32", name="values")
    questions = keras.Input([NODES], dtype="int32", name="questions")
    edges = keras.Input([NODES, NODES], dtype="int32", name="edges")
    # Without a mask, attention also reaches pairs without an edge.
    may_attend = (edges != NO_EDGE)[:, None]  # [B, 1, NODES, NODES]
    x = keras.layers.Embedding(NODES, FEATURES)(values)
    x += keras.layers.Embedding(LABELS, FEATURES)(questions)
    for _ in range(2):
        if labelled:
            layer = relations.RelationAttention(
                FEATURES, num_heads=4, num_relations=LABELS
            )
            y = layer(x, edges, may_attend=may_attend)
        else:
            layer = attention.TransformerAttention(FEATURES, num_heads=4)
            y = layer(x, may_attend=may_attend)
        x = parts.add_and_feed_forward(x, y)
    logits = keras.layers.Dense(NODES)(x)
    model = keras.Model([values, questions, edges], logits)
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,  # compiling would take longer than training
    )
    return model


def accuracy(labelled, steps, seed):
    """Trains a model; returns its accuracy on new graphs."""
    keras.utils.set_random_seed(seed)
    model = build(labelled)
    model.fit(Graphs(seed, steps), verbose=0, shuffle=False)
    result = model.evaluate(Graphs(seed + 1, 10), verbose=0, return_dict=True)
    return result["accuracy"]


def main():
    arguments = parts.parse_flags(__doc__, steps=400, seed=1)
    print(f"chance: {1 / LABELS:.3f}", flush=True)
    for labelled in (False, True):
        name = "with labels" if labelled else "without labels"
        result = accuracy(labelled, arguments.steps, arguments.seed)
        print(f"{name}: {result:.3f}", flush=True)


if __name__ == "__main__":
    main()
