"""Times OpenNMT-tf's training step or beam search, in its own environment.

    python benchmarks/peers/opennmt_tf.py --what train --batch 64 --len 32
    python benchmarks/peers/opennmt_tf.py --what decode --threads 1

The model has this project's shape: normalisation after each sum, attention
without biases, one table for both embeddings and the softmax, no sinusoids
beside relative positions, dropout of the embeddings and of each sublayer's
output. The timed step is `Model.train`: forward, smoothed loss, gradients,
Adam. Prints one JSON line. README.md in this directory describes the
comparison.
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common
import decode

SPECIAL = ["<blank>", "<s>", "</s>"]


def make_model(args, opennmt, tf):
    """Returns an initialised model of random weights."""
    positions = {}
    if args.relative:
        positions = {
            "maximum_relative_position": args.k,
            "position_encoder_class": None,
        }
    model = opennmt.models.Transformer(
        num_layers=args.layers,
        num_units=args.hidden,
        num_heads=args.heads,
        ffn_inner_dim=args.filter,
        dropout=args.dropout,
        attention_dropout=0.0,
        ffn_dropout=0.0,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
        mha_bias=False,
        output_layer_bias=False,
        pre_norm=False,
        **positions,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "vocabulary.txt")
        # OpenNMT-tf adds one id, for unknown words.
        words = SPECIAL + [f"w{i}" for i in range(args.vocab - 4)]
        path.write_text("\n".join(words) + "\n")
        model.initialize(
            {"source_vocabulary": str(path), "target_vocabulary": str(path)},
            params={
                "beam_width": args.beam,
                "length_penalty": 0.6,
                "maximum_decoding_length": args.decode_length,
                # Rules out the end of a sentence before that length.
                "minimum_decoding_length": args.decode_length,
                "label_smoothing": 0.1,
            },
        )
        tf.random.set_seed(1)
        model.create_variables()
    return model


def make_step(model, args, opennmt, tf):
    """Returns a function that makes one update and returns its loss."""
    optimizer = opennmt.optimizers.make_optimizer(
        "Adam",
        opennmt.schedules.NoamDecay(
            scale=1.0, model_dim=args.hidden, warmup_steps=4000
        ),
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
    )
    ids = [common.random_ids(tf, args, seed) for seed in range(2)]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def step(inputs, targets):
        lengths = tf.fill([tf.shape(inputs)[0]], tf.shape(inputs)[1])
        shifted = tf.pad(targets, [[0, 0], [1, 0]], constant_values=1)[:, :-1]
        return model.train(
            {"ids": inputs, "length": lengths},
            {"ids": shifted, "ids_out": targets, "length": lengths},
            optimizer,
        )

    return lambda: float(step(*ids))


def make_search(model, args, tf):
    """Returns a function that translates the batch."""
    ids = common.random_ids(tf, args, 0)
    lengths = tf.fill([args.batch], args.len)
    spec = [tf.TensorSpec(shape, tf.int32) for shape in ([None, None], [None])]

    @tf.function(input_signature=spec)
    def search(ids, lengths):
        return model.infer({"ids": ids, "length": lengths})

    def decode_batch():
        found = search(ids, lengths)["length"][:, 0].numpy().tolist()
        decode.check_lengths(found, args)

    return decode_batch


def main():
    parser = common.search_parser(__doc__)
    parser.add_argument("--what", choices=("train", "decode"), required=True)
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import opennmt
    import tensorflow as tf

    common.set_threads(tf, args.threads)
    if args.bfloat16:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = make_model(args, opennmt, tf)
    if args.what == "train":
        function, length = make_step(model, args, opennmt, tf), args.len
    else:
        function, length = make_search(model, args, tf), args.decode_length
    name = f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}"
    decode.report(name, function, args, length)


if __name__ == "__main__":
    main()
