"""Times OpenNMT-tf's training step, in its own environment.

    python benchmarks/peers/opennmt_tf_train.py --relative 1

The model has this project's shape, as in opennmt_tf.py, and the same dropout: a
tenth of the embeddings and of each sublayer's output. The timed step is
`Model.train`: forward, smoothed loss, gradients and Adam. Prints one JSON line.
README.md in this directory describes the comparison.
"""

import json
import os

import opennmt_tf
import peer

common = peer.common


def make_step(args, opennmt, tf):
    """Returns a function that makes one update and returns its loss."""
    if args.bfloat16:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = opennmt_tf.make_model(
        args,
        opennmt,
        tf,
        label_smoothing=0.1,
        dropout=args.dropout,
        attention_dropout=0.0,
        ffn_dropout=0.0,
    )
    optimizer = opennmt.optimizers.make_optimizer(
        "Adam",
        opennmt.schedules.NoamDecay(
            scale=1.0, model_dim=args.hidden, warmup_steps=4000
        ),
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
    )
    shape = [args.batch, args.len]
    ids = [
        tf.random.stateless_uniform(shape, [1, i], 3, args.vocab, tf.int32)
        for i in range(2)
    ]
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def step(inputs, targets):
        lengths = tf.fill([tf.shape(inputs)[0]], tf.shape(inputs)[1])
        shifted = tf.pad(targets, [[0, 0], [1, 0]], constant_values=1)[:, :-1]
        return model.train(
            {"ids": inputs, "length": lengths},
            {"ids": shifted, "ids_out": targets, "length": lengths},
            optimizer,
        )

    return lambda: float(step(*ids))


def main():
    parser = common.model_parser(__doc__)
    # opennmt_tf.make_model needs them, though nothing is decoded.
    parser.set_defaults(beam=1, out_len=1)
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import opennmt
    import tensorflow as tf

    common.set_threads(tf, args.threads)
    times = common.measure(make_step(args, opennmt, tf), args)
    tokens = args.batch * args.len
    result = {
        "engine": f"OpenNMT-tf {opennmt.__version__}",
        "relative": args.relative,
        "batch": args.batch,
        "len": args.len,
        **times,
        "target_tokens_per_second": common.per_second(tokens, times),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
