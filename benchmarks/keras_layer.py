"""Times `RelativeMultiHeadAttention` beside `keras.layers.MultiHeadAttention`.

    KERAS_BACKEND=jax python benchmarks/keras_layer.py --lengths=64,256

Trains a model of one layer, 256 features and 4 heads, on batches of 16 lines.
Steps of the layers alternate, so that other load on the machine hits all; the
table has the median milliseconds of a step, and the ratios to Keras' layer.
"""

import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
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


def make_step(make, length, causal, jit_compile):
    """Returns a function that trains a model of one layer by a step."""
    x = keras.Input([length, FEATURES])
    layer = make(HEADS, FEATURES // HEADS)
    model = keras.Model(x, layer(x, x, use_causal_mask=causal))
    model.compile("sgd", "mse", jit_compile=jit_compile)
    batch = np.random.default_rng(1).normal(size=[2, 16, length, FEATURES])
    return lambda: model.train_on_batch(*batch.astype(np.float32))


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--lengths", default="64,256")
    parser.add_argument("--steps", type=int, default=27)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--jit_compile", action="store_true")
    args = parser.parse_args()
    rows = []
    for length in map(int, args.lengths.split(",")):
        for causal in (False, True):
            steps = {
                name: make_step(make, length, causal, args.jit_compile)
                for name, make in LAYERS.items()
            }
            times = common.take_turns(steps, args.steps, args.warmup)
            medians = map(statistics.median, times.values())
            row = [length, "causal" if causal else "all"]
            for median, each in zip(medians, times.values(), strict=True):
                ratio = common.median_ratio(each, times["keras"])
                row.append(f"{median:.0f} ({ratio:.2f})")
            rows.append(row)
    print(f"{keras.backend.backend()}, Keras {keras.__version__}")
    print(common.table(["length", "attends to", *LAYERS], rows))


if __name__ == "__main__":
    main()
