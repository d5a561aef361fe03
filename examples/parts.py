"""What the examples share: their flags, and the rest of a Transformer block."""

import argparse

import keras


def parse_flags(description, **defaults):
    """Parses flags of whole numbers: 1 or more, a seed 0 or more.

    Args:
        description: str. Its first line is shown by --help.
        **defaults: int, by the name of the flag.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, default in defaults.items():
        parser.add_argument(
            f"--{name}",
            type=_at_least(0 if name == "seed" else 1),
            default=default,
            help=f"{default} by default",
        )
    return parser.parse_args()


def _at_least(least):
    """Returns a parser of numbers of at least `least`."""

    def integer(text):
        if int(text) < least:
            raise argparse.ArgumentTypeError(
                f"expected {least} or more, not {text}"
            )
        return int(text)

    return integer


def add_and_feed_forward(x, y):
    """Returns the rest of a block after an attention.

    Args:
        x: `[batch, positions, features]`, the input of the attention.
        y: Its output, of the same shape.
    """
    features = x.shape[-1]
    # `x + y` would have no mask; layers pass it on.
    x = keras.layers.Add()([x, y])
    x = keras.layers.LayerNormalization()(x)
    y = keras.layers.Dense(4 * features, activation="relu")(x)
    y = keras.layers.Dense(features)(y)
    return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))
