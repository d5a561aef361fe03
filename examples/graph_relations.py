"""Answers questions about labelled graphs, with labels and without.

    python examples/graph_relations.py

Every node of a graph has a value and a question. From every node four edges
lead to other nodes, one of each label. There are two tasks:

    value   The question names a label; the answer is the value of the node at
            the other end of that edge. Labels say where to attend.
    label   The question names the value of a neighbour; the answer is the label
            of the edge to it. Labels are what is to be read there.

Four models are trained for each task. All attend along the edges only, and get
the labels in keys (a^K of the paper), in values (a^V), in both or in neither.
Without labels a model can only guess one of four. Takes three minutes of one
CPU core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import parts

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
        task: str. "value" or "label".
    """

    def __init__(self, seed, steps, task="value"):
        super().__init__()
        self.seed, self.steps, self.task = seed, steps, task

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
        if self.task == "label":
            questions, answers = answers, questions
        inputs = {"values": values, "questions": questions, "edges": edges}
        return inputs, answers


def build(keys, values_too):
    """Returns a model of two attention layers, with labels in keys, values."""
    values = keras.Input([NODES], dtype="int32", name="values")
    questions = keras.Input([NODES], dtype="int32", name="questions")
    edges = keras.Input([NODES, NODES], dtype="int32", name="edges")
    # Without a mask, attention also reaches pairs without an edge.
    may_attend = (edges != NO_EDGE)[:, None]  # [B, 1, NODES, NODES]
    x = keras.layers.Embedding(NODES, FEATURES)(values)
    x += keras.layers.Embedding(NODES, FEATURES)(questions)
    for _ in range(2):
        layer = relations.RelationAttention(
            FEATURES,
            num_heads=4,
            num_relations=LABELS,
            add_relations_to_keys=keys,
            add_relations_to_values=values_too,
        )
        y = layer(x, edges, may_attend=may_attend)
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


def accuracy(task, keys, values, steps, seed):
    """Trains a model; returns its accuracy on new graphs."""
    keras.utils.set_random_seed(seed)
    model = build(keys, values)
    model.fit(Graphs(seed, steps, task), verbose=0, shuffle=False)
    result = model.evaluate(
        Graphs(seed + 1, 10, task), verbose=0, return_dict=True
    )
    return result["accuracy"]


def main():
    arguments = parts.parse_flags(__doc__, steps=400, seed=1)
    print("task       a^K    a^V   both neither", flush=True)
    for task in "value", "label":
        print(task, end="   ", flush=True)
        for places in (True, False), (False, True), (True, True), (False,) * 2:
            result = accuracy(task, *places, arguments.steps, arguments.seed)
            print(f"  {result:.3f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
