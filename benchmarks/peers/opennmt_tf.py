"""Times OpenNMT-tf's beam search, in its own environment.

    python benchmarks/peers/opennmt_tf.py --relative 1 --threads 1

The model has this project's shape: normalisation after each sum, attention
without biases, one table for both embeddings and the softmax, no sinusoids
beside relative positions. README.md in this directory describes the comparison.
"""

import os
import pathlib
import tempfile

import peer

SPECIAL = ["<blank>", "<s>", "</s>"]


def make_model(args, opennmt, tf, label_smoothing=0.0, **options):
    """Returns an initialised model of random weights.

    Args:
        args: The parsed flags: sizes, `relative`, `k`, `beam`, `out_len`.
        opennmt: The package.
        tf: TensorFlow.
        label_smoothing: float.
        **options: Further arguments of its `Transformer`.
    """
    positions = {}
    if args.relative:
        positions = {
            "maximum_relative_position": args.k,
            "position_encoder_class": None,
        }
    sharing = opennmt.models.EmbeddingsSharingLevel.ALL
    model = opennmt.models.Transformer(
        num_layers=args.layers,
        num_units=args.hidden,
        num_heads=args.heads,
        ffn_inner_dim=args.filter,
        share_embeddings=sharing,
        mha_bias=False,
        output_layer_bias=False,
        pre_norm=False,
        **positions,
        **options,
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
                "maximum_decoding_length": args.out_len,
                # Rules out the end of a sentence before that length.
                "minimum_decoding_length": args.out_len,
                "label_smoothing": label_smoothing,
            },
        )
        tf.random.set_seed(1)
        model.create_variables()
    return model


def main():
    parser = peer.size_parser(__doc__)
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import opennmt
    import tensorflow as tf

    peer.common.set_threads(tf, args.threads)
    model = make_model(args, opennmt, tf)
    shape = [args.batch, args.src_len]
    ids = tf.random.stateless_uniform(shape, [1, 0], 3, args.vocab, tf.int32)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def search(ids, lengths):
        return model.infer({"ids": ids, "length": lengths})

    lengths = tf.fill([args.batch], args.src_len)
    name = f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}"
    peer.report(
        name, lambda: search(ids, lengths)["length"][:, 0].numpy(), args
    )


if __name__ == "__main__":
    main()
