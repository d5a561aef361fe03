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


def check_lengths(lengths, args):
    """Ends the program unless each translation of an engine has its length."""
    if lengths != [args.decode_length] * args.batch:
        raise SystemExit(f"Expected {args.decode_length} ids. Got {lengths}.")


def report(engine, function, args, length):
    """Times a function of an engine that makes `length` ids of each line."""
    times = common.measure(function, args)
    tokens = args.batch * length
    names = "relative", "batch", "len", "decode_length", "beam"
    result = {
        "engine": engine,
        **{name: getattr(args, name) for name in names},
        **times,
        "tokens_per_second": common.per_second(tokens, times),
    }
    print(json.dumps(result))


def main():
    args = common.search_parser(__doc__).parse_args()
    tf = common.import_tensorflow(args.threads)
    from relpos_tf.decoding import search as search_lib

    model = NeverEnding(common.make_model(args), tf)
    inputs = common.random_ids(tf, args, 0)
    limits = [args.decode_length] * args.batch

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def search(inputs):
        return search_lib.search(
            model, inputs, limits, beam_size=args.beam, alpha=0.6
        )

    report(
        "relpos_tf",
        lambda: search(inputs)[1].numpy(),
        args,
        args.decode_length,
    )


if __name__ == "__main__":
    main()
