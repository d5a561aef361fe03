"""Classifies the order of two words, in longer texts than those of training.

    python examples/keras_text_classifier.py

A text is a line of random words, with the words A and B once each. The class
says whether A comes before B. Texts of training have 4 to 20 words; the model
is then tested on texts of 40 to 60. Lines of a batch are padded with 0, which
`Embedding(mask_zero=True)` masks.

Two models are trained, which differ in one line: attention of Keras, with
sinusoids added to the words so that it sees positions, and
`RelativeMultiHeadAttention`, which needs no others. Absolute positions beyond
20 were never trained; distances beyond k have the vectors of distance k.

Takes less than a minute on one CPU core. KERAS_BACKEND=jax or torch in the
environment runs it on another backend.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import parts

import relpos_tf

WORDS = 30
A, B = 1, 2  # 0 is padding
FEATURES = 32
BATCH_SIZE = 64


def texts(number, shortest, longest, seed):
    """Returns ids `[number, longest]`, padded with 0, and their classes."""
    random = np.random.default_rng(seed)
    ids = random.integers(B + 1, WORDS, (number, longest))
    classes = random.integers(0, 2, number)
    lengths = random.integers(shortest, longest + 1, number)
    for line, length, a_first in zip(ids, lengths, classes, strict=True):
        line[length:] = 0
        places = np.sort(random.choice(length, 2, replace=False))
        line[places] = (A, B) if a_first else (B, A)
    return ids, classes


@keras.saving.register_keras_serializable(package="examples")
class Sinusoids(keras.layers.Layer):
    """Adds sinusoids to `[batch, positions, features]`, and passes masks on."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x):
        _, length, features = keras.ops.shape(x)
        positions = keras.ops.arange(length, dtype=x.dtype)[:, None]
        rates = 1e4 ** -np.linspace(0, 1, features // 2, dtype=np.float32)
        angles = positions * keras.ops.convert_to_tensor(rates)
        return x + keras.ops.concatenate(
            [keras.ops.sin(angles), keras.ops.cos(angles)], axis=-1
        )


def build(relative):
    """Returns a model of two attention layers, with either kind."""
    ids = keras.Input([None], dtype="int32")
    is_word = keras.ops.not_equal(ids, 0)
    x = keras.layers.Embedding(WORDS, FEATURES, mask_zero=True)(ids)
    if not relative:
        x = Sinusoids()(x)
    for _ in range(2):
        if relative:
            attention = relpos_tf.RelativeMultiHeadAttention(
                4, FEATURES // 4, max_relative_position=8
            )
            y = attention(x, x)
        else:
            attention = keras.layers.MultiHeadAttention(4, FEATURES // 4)
            # By name, because this layer takes the mask off x.
            y = attention(x, x, value_mask=is_word)
        x = parts.add_and_feed_forward(x, y)
    mask = None if relative else is_word
    x = keras.layers.GlobalAveragePooling1D()(x, mask=mask)
    model = keras.Model(ids, keras.layers.Dense(1)(x))
    model.compile(
        keras.optimizers.Adam(2e-3),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
        jit_compile=False,  # compiling would take longer than training
    )
    return model


def accuracies(relative, number, epochs, seed):
    """Trains a model; returns its accuracy on short and on long texts."""
    keras.utils.set_random_seed(seed)
    model = build(relative)
    model.fit(
        *texts(number, 4, 20, seed=[seed, 0]),
        batch_size=BATCH_SIZE,
        epochs=epochs,
        verbose=0,
    )
    return [
        model.evaluate(*texts(500, *lengths, [seed, 1]), verbose=0)[1]
        for lengths in ((4, 20), (40, 60))
    ]


def main():
    arguments = parts.parse_flags(__doc__, texts=6000, epochs=6, seed=1)
    print("accuracy on texts of     4-20 words  40-60 words", flush=True)
    for name, relative in (
        ("keras with sinusoids", False),
        ("relative positions", True),
    ):
        short, long = accuracies(
            relative, arguments.texts, arguments.epochs, arguments.seed
        )
        print(f"{name:<25}{short:<12.3f}{long:.3f}", flush=True)


if __name__ == "__main__":
    main()
