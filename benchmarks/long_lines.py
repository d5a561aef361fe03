"""Measures what one long line takes: memory above all.

    python benchmarks/long_lines.py --what loss,translate --n 1000,3000
    python benchmarks/long_lines.py --what export --n 10000

`loss` is a pair of `--n` ids on each side, given the reference's own past, as
an evaluation scores it; `translate` a translation by `Translator`; `export` one
by a SavedModel. The weights are random and so are the translations: most end
only at their limit. Each length runs in a process of its own, because a
process's peak memory never goes down. Prints one JSON line for each.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import common
import load_export

from relpos_tf import registry
from relpos_tf.bin import command

VOCAB_SIZE = 8000


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--what", default="loss,translate", help="loss, translate, export")
    add("--n", default="1000,3000,6000,10000", help="ids of the line")
    add("--hparams_set", default="transformer_relative_small")
    add("--hparams", default="", help="name=value,... in the set's place")
    add("--folder", default="", help=argparse.SUPPRESS)  # of one process
    return parser.parse_args()


def scoring(folder, hparams, size):
    """Returns a function that scores a pair of so many ids on each side."""
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
    """Returns a line of so many ids, EOS included."""
    words = (p[1:] for p in tokens.pieces() if len(p) > 1 and p[0] == "\u2581")
    word = next(w for w in words if len(tokens.encode(f"{w} {w}")) == 3)
    return " ".join([word] * (size - 1))


def run_one(args, folder):
    """Measures one kind and length; or makes what is measured."""
    command.import_tensorflow()
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
    cases = [(w, n) for w in args.what.split(",") for n in args.n.split(",")]
    same = [f"--hparams_set={args.hparams_set}", f"--hparams={args.hparams}"]
    with tempfile.TemporaryDirectory() as folder:
        for what, n in [("make", "0"), *cases]:
            own = [f"--what={what}", f"--n={n}", f"--folder={folder}"]
            subprocess.run([sys.executable, __file__, *own, *same], check=True)


if __name__ == "__main__":
    main()
