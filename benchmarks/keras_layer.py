"""Times `RelativeMultiHeadAttention` beside `keras.layers.MultiHeadAttention`.

    KERAS_BACKEND=jax python benchmarks/keras_layer.py --lengths=64,256

Trains a model of one layer, 256 features and 4 heads, on batches of 16 lines.
Steps of the layers alternate, so that other load on the machine hits all; the
table has the medians as milliseconds and as ratios to Keras' layer.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import relpos_tf

FEATURES, HEADS = 256, 4
LAYERS = {
    "keras": keras.layers.MultiHeadAttention,
    "k = 16": relpos_tf.RelativeMultiHeadAttention,
    "k = 16, ops": lambda *sizes: relpos_tf.RelativeMultiHeadAttention(
        *sizes, implementation="ops"
    ),
}


def build(make, length, causal, jit_compile):
    """Returns a compiled model of one layer."""
    x = keras.Input([length, FEATURES])
    layer = make(HEADS, FEATURES // HEADS)
    model = keras.Model(x, layer(x, x, use_causal_mask=causal))
    model.compile("sgd", "mse", jit_compile=jit_compile)
    return model


def milliseconds(length, causal, jit_compile, rounds, steps):
    """Returns the median time of a step for each layer."""
    random = np.random.default_rng(1)
    shape = 16, length, FEATURES
    batch = [random.normal(size=shape).astype(np.float32) for _ in range(2)]
    models = {
        name: build(make, length, causal, jit_compile)
        for name, make in LAYERS.items()
    }
    for model in models.values():
        model.train_on_batch(*batch)
    times = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            begin = time.perf_counter()
            for _ in range(steps):
                model.train_on_batch(*batch)
            seconds = time.perf_counter() - begin
            times[name].append(1000 * seconds / steps)
    return {name: statistics.median(many) for name, many in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="64,256")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--jit_compile", action="store_true")
    arguments = parser.parse_args()
    print(f"{keras.backend.backend()}, Keras {keras.__version__}", flush=True)
    for length in map(int, arguments.lengths.split(",")):
        for causal in (False, True):
            found = milliseconds(
                length,
                causal,
                arguments.jit_compile,
                arguments.rounds,
                arguments.steps,
            )
            cells = [
                f"{name}: {ms:.0f} ms ({ms / found['keras']:.2f})"
                for name, ms in found.items()
            ]
            kind = "causal" if causal else "all"
            print(f"{length:>5} {kind:<7}", *cells, sep="  ", flush=True)


if __name__ == "__main__":
    main()
