"""Times beam search with a model of any size.

    python benchmarks/decode.py --relative 1 --batch 8 --len 16 \
        --decode_length 16 --beam 4

The weights are random and EOS is ruled out, so that every translation has
exactly `--decode_length` ids. `tokens_per_second` counts the ids of the best
hypotheses only. Prints one JSON line.
"""

import json

import common


class NeverEnding:
    """A model that never predicts EOS."""

    def __init__(self, model, tf):
        self.hparams = model.hparams
        self.init_cache = model.init_cache
        self._model = model
        self._penalty = tf.one_hot(1, model.hparams.vocab_size) * -1e9

    def step(self, ids, cache, start):
        logits, cache = self._model.step(ids, cache, start)
        return logits + self._penalty, cache


def main():
    parser = common.model_parser(__doc__, batch=8, len=16)
    parser.add_argument(
        "--decode_length", "--out_len", type=int, default=16, help="ids out"
    )
    parser.add_argument("--src_len", type=int, dest="len", help="as --len")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument(
        "--cache",
        choices=("growing", "fixed"),
        default="growing",
        help="fixed: a cache with room for --decode_length, as --xla requires",
    )
    args = parser.parse_args()
    if args.xla and args.cache != "fixed":
        parser.error("--xla=1 needs --cache=fixed.")
    tf = common.import_tensorflow(args.threads)
    from relpos_tf.decoding import search as search_lib

    model = NeverEnding(common.make_model(args), tf)
    inputs = common.random_ids(tf, args, 0)
    limits = [args.decode_length] * args.batch

    length = args.len if args.xla else None  # XLA needs a static length
    signature = [tf.TensorSpec([length and args.batch, length], tf.int32)]

    @tf.function(input_signature=signature, jit_compile=bool(args.xla))
    def search(inputs):
        options = {"beam_size": args.beam, "alpha": 0.6}
        if args.cache == "growing":
            return search_lib.search(model, inputs, limits, **options)
        return search_lib.search_within(
            model, inputs, limits, max_length=args.decode_length, **options
        )

    times = common.measure(lambda: search(inputs)[1].numpy(), args)
    result = {
        "relative": args.relative,
        "batch": args.batch,
        "len": args.len,
        "decode_length": args.decode_length,
        "beam": args.beam,
        "cache": args.cache,
        **times,
        "tokens_per_second": common.per_second(
            args.batch * args.decode_length, times
        ),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
