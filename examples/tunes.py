"""Composes tunes with a small causal model and its key/value cache.

    python examples/tunes.py

A tune repeats a motif of eight notes, each time at another height; a bar line
ends each repeat. The first note after a bar line is free; the seven others
follow from it and from the motif.

The model learns from tunes of 4 repeats. Then it gets motifs that it has not
seen, and continues each to a tune of 12 repeats, note by note. The layers of
attention keep the keys and values of earlier notes in a cache, so that a step
computes one position only. The script prints how many notes obey the rule, and
how far the steps are from computing the whole tune at once.

Takes a minute on one CPU core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import parts
import tensorflow as tf

import relpos_tf
from relpos_tf.layers.positions import shaw

NAMES = "C D E F G A B c d e f g a b c' |".split()  # two octaves, a bar line
BAR = NAMES.index("|")
MOTIF = 8
PHRASE = MOTIF + 1  # with its bar line
SHORT, LONG = 4, 12  # repeats: in training, and composed
FEATURES = 64
BATCH_SIZE = 32
TEMPERATURE = 0.5  # of the draws; less than 1 makes likely notes more likely
UPDATES = 50  # of an epoch
POSITIONS = (shaw.Shaw(16),)  # vectors of the distances up to 16


def tunes(number, repeats, seed):
    """Returns tunes: notes and bar lines `[number, repeats * PHRASE]`."""
    random = np.random.default_rng(seed)
    steps = random.integers(-2, 3, (number, 1, MOTIF))
    motif = 6 - np.abs(steps.cumsum(-1) % 12 - 6)  # turns back at 0 and at 6
    heights = random.integers(0, BAR - 6, (number, repeats, 1))
    bars = np.full((number, repeats, 1), BAR)
    return np.concatenate([motif + heights, bars], -1).reshape(number, -1)


def obeys(tunes):
    """Says which tokens are right, of those that follow from the first phrase.

    Args:
        tunes: `[number, repeats * PHRASE]`, the first phrase being right.

    Returns:
        A bool array `[number, repeats - 1, PHRASE - 1]`: all but the first note
        of each further phrase.
    """
    phrases = tunes.reshape(len(tunes), -1, PHRASE)
    expected = phrases[:, :1] - phrases[:, :1, :1] + phrases[..., :1]
    expected[..., -1] = BAR
    return (phrases == expected)[:, 1:, 1:]


class Block(keras.layers.Layer):
    """Causal attention and a feed-forward layer, for tunes or single notes.

    Args:
        positions: Schemes of positions.
    """

    def __init__(self, positions):
        super().__init__()
        self.attention = relpos_tf.TransformerAttention(
            FEATURES, num_heads=4, positions=positions
        )
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
        self.inner = keras.layers.Dense(4 * FEATURES, activation="relu")
        self.outer = keras.layers.Dense(FEATURES)

    def call(self, x):
        return self._rest(x, self.attention(x, use_causal_mask=True))

    def step(self, x, cache, start):
        """Computes the positions from `start`; returns them and the cache."""
        y, cache = self.attention.step(x, cache, start=start)
        return self._rest(x, y), cache

    def _rest(self, x, y):
        x = self.norms[0](x + y)
        return self.norms[1](x + self.outer(self.inner(x)))


class Composer(keras.Model):
    """Predicts the next note after each note.

    Args:
        positions: Schemes of positions.
    """

    def __init__(self, positions=POSITIONS):
        super().__init__()
        self.embedding = keras.layers.Embedding(len(NAMES), FEATURES)
        self.blocks = [Block(positions) for _ in range(2)]
        self.logits = keras.layers.Dense(len(NAMES))
        self.compiled_step = tf.function(self.step)

    def call(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.logits(x)

    def step(self, ids, caches, start):
        """Computes the logits of the positions from `start`, and the caches."""
        x = self.embedding(ids)
        after = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.step(x, cache, start)
            after.append(cache)
        return self.logits(x), after

    def compose(self, prompts, length, seed):
        """Continues `[number, N]` prompts to tunes, `[number, length]`.

        Returns:
            A pair: the tunes, and the logits of all but the last position,
            `[number, length - 1, len(NAMES)]`.
        """
        caches = [
            block.attention.init_cache(len(prompts), length)
            for block in self.blocks
        ]
        ids, new, start = [prompts], prompts, 0
        rows = []
        while start + new.shape[1] < length:
            # A tensor: for each Python number, a graph would be made.
            logits, caches = self.compiled_step(
                tf.constant(new), caches, tf.constant(start)
            )
            start += new.shape[1]
            new = draw(logits[:, -1], [seed, start])[:, None]
            ids.append(new)
            rows.append(logits)
        return np.concatenate(ids, 1), np.concatenate(rows, 1)


def draw(logits, seed):
    """Draws an id from each row of logits `[number, ids]`: `[number]`."""
    ids = tf.random.stateless_categorical(logits / TEMPERATURE, 1, seed)
    return ids[:, 0].numpy()


def train(epochs, seed, positions=POSITIONS, callbacks=()):
    """Trains a model, with tunes that are new in every update.

    Args:
        epochs: int. The number of epochs, of 50 updates each.
        seed: int.
        positions: Schemes of positions.
        callbacks: Keras callbacks.
    """
    keras.utils.set_random_seed(seed)
    model = Composer(positions)
    updates = epochs * UPDATES
    model.compile(
        keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(3e-3, updates)
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,  # compiling would take longer than training
    )
    ids = tunes(updates * BATCH_SIZE, SHORT, [seed, 0])
    pairs = tf.data.Dataset.from_tensor_slices((ids[:, :-1], ids[:, 1:]))
    model.fit(
        pairs.batch(BATCH_SIZE),
        epochs=epochs,
        steps_per_epoch=UPDATES,
        callbacks=list(callbacks),
        shuffle=False,
        verbose=0,
    )
    return model


def score(model, repeats, seed, number=100):
    """Returns the share of right predictions for notes that are not free."""
    ids = tunes(number, repeats, seed)
    predicted = np.argmax(model(ids[:, :-1]), axis=-1)
    right = (predicted == ids[:, 1:])[:, PHRASE - 1 :]
    return right.reshape(number, repeats - 1, PHRASE)[..., 1:].mean()


def show(tune):
    """Returns a tune as text, for example "C D E F G A B c | ..."."""
    return " ".join(NAMES[i] for i in tune)


def main():
    arguments = parts.parse_flags(__doc__, epochs=30, seed=1)
    model = train(arguments.epochs, arguments.seed)
    for repeats in (SHORT, LONG):
        right = score(model, repeats, [arguments.seed, 1])
        print(f"notes predicted, {repeats} repeats: {right:.3f}", flush=True)
    prompts = tunes(100, 1, [arguments.seed, 2])
    composed, logits = model.compose(prompts, LONG * PHRASE, arguments.seed)
    print(f"notes composed by the rule: {obeys(composed).mean():.3f}")
    whole = np.array(model(composed[:, :-1]))
    difference = np.abs(logits - whole).max()
    print(
        f"largest difference of logits with and without cache: {difference:.0e}"
        f", of logits up to {np.abs(whole).max():.1f}"
    )
    print("One of the tunes, of which the first line was given:")
    for phrase in composed[0].reshape(LONG, PHRASE):
        print(show(phrase))


if __name__ == "__main__":
    main()
