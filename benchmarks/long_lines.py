"""Measures the memory and time of one long line.

    python benchmarks/long_lines.py --what loss,translate --n 1000,3000
    python benchmarks/long_lines.py --what export --n 10000

`loss` scores a pair of `--n` ids on each side with teacher forcing, as in
evaluation; `translate` translates a line with `Translator`; `export` does so
with a SavedModel. The weights are random, so most translations end only at
their limit. Each length runs in its own process, because a process's peak
memory never decreases. Prints one JSON line for each.
"""

import argparse
import json
import pathlib
import tempfile
import time

import common
import load_export

from relpos_tf import registry

VOCAB_SIZE = 8000


def parse():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--what", default="loss,translate", help="loss, translate, export")
    add("--n", default="1000,3000,6000,10000", help="ids of the line")
    add("--hparams_set", default="transformer_relative_small")
    add("--hparams", default="", help="changes to the set: name=value,...")
    add("--folder", default="", help=argparse.SUPPRESS)  # for one case
    return parser.parse_args()


def scoring(folder, hparams, size):
    """Returns a function that scores a pair with `size` ids on each side."""
    import tensorflow as tf

    from relpos_tf.training import evaluation

    del folder
    model = load_export.random_model(hparams)
    ids = tf.random.stateless_uniform([size], [1, 2], 2, VOCAB_SIZE, tf.int32)
    batch = {"inputs": ids[tf.newaxis], "targets": ids[tf.newaxis, ::-1]}
    return lambda: evaluation.teacher_forced(model, [batch])


def translation(folder, hparams, size):
    """Returns a function that translates a line with a model."""
    from relpos_tf.data import tokenizer
    from relpos_tf.decoding import translator

    tokens = tokenizer.Tokenizer(folder / "made.model")
    model = load_export.random_model(hparams)
    line = line_of(tokens, size)
    return lambda: translator.Translator(model, tokens).translate([line])


def translation_by_export(folder, hparams, size):
    """Returns a function that translates a line with a SavedModel."""
    from relpos_tf.data import tokenizer
    from relpos_tf.decoding import translator

    del hparams
    loaded = translator.Translator.load(folder / "export")
    line = line_of(tokenizer.Tokenizer(folder / "made.model"), size)
    return lambda: loaded.translate([line])


def line_of(tokens, size):
    """Returns a line of `size` ids, EOS included."""
    words = (p[1:] for p in tokens.pieces() if len(p) > 1 and p[0] == "\u2581")
    word = next(w for w in words if len(tokens.encode(f"{w} {w}")) == 3)
    return " ".join([word] * (size - 1))


def run_one(args, folder):
    """Measures one kind and length; the kind "make" writes the export."""
    common.import_tensorflow()
    hparams = registry.hparams(args.hparams_set).override(args.hparams)
    hparams = hparams.replace(vocab_size=VOCAB_SIZE)
    if args.what == "make":
        load_export.make_export(hparams, folder)
        return
    kinds = {
        "loss": scoring,
        "translate": translation,
        "export": translation_by_export,
    }
    run = kinds[args.what](folder, hparams, int(args.n))
    before, start = common.peak_mb(), time.perf_counter()
    run()
    result = {
        "what": args.what,
        "n": int(args.n),
        "seconds": round(time.perf_counter() - start, 1),
        "memory_before_mb": round(before),
        common.MEMORY: round(common.peak_mb()),
    }
    print(json.dumps(result))


def main():
    args = parse()
    if args.folder:
        run_one(args, pathlib.Path(args.folder))
        return
    cases = [
        {"what": what, "n": n}
        for what in args.what.split(",")
        for n in args.n.split(",")
    ]
    with tempfile.TemporaryDirectory() as folder:
        common.run_each(
            __file__,
            [{"what": "make", "n": 0}, *cases],
            folder=folder,
            hparams_set=args.hparams_set,
            hparams=args.hparams,
        )


if __name__ == "__main__":
    main()
