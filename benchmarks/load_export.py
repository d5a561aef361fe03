"""Times a new process from its start to its first translation.

    python benchmarks/load_export.py --hparams_set=transformer_relative
    python benchmarks/load_export.py --export_dir=runs/mine/export

Without `--export_dir`, a model of the set with random weights is exported
first, untimed. The timed process imports TensorFlow, loads the SavedModel and
translates one line, then another. Prints one JSON line; times are in seconds.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import common

from relpos_tf import registry

CHILD = """
import json, sys, time
times = [time.time()]
import tensorflow as tf
import tensorflow_text
times.append(time.time())
translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
times.append(time.time())
for line in ("Where is the station?", "The train leaves at seven."):
    translate(inputs=tf.constant([line]))["outputs"].numpy()
    times.append(time.time())
print(json.dumps(times))
"""
TEXT = "The train leaves at seven. Where is the station? " * 20


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--hparams_set", default="transformer_relative_tiny")
    parser.add_argument("--export_dir", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export_dir = args.export_dir
        if not export_dir:
            common.import_tensorflow()
            hparams = registry.hparams(args.hparams_set)
            export_dir = make_export(hparams, pathlib.Path(folder))
        start = time.time()
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(export_dir)],
            check=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
    _, imported, loaded, first, second = json.loads(done.stdout)
    result = {
        "model": args.export_dir or args.hparams_set,
        "import": round(imported - start, 2),
        "load": round(loaded - imported, 2),
        "first_line": round(first - loaded, 2),
        "total": round(first - start, 2),
        "next_line": round(second - first, 2),
    }
    print(json.dumps(result))


def random_model(hparams):
    """Returns a model of random weights, the same in every process."""
    import keras

    from relpos_tf.models import transformer

    keras.utils.set_random_seed(1)
    return transformer.Transformer(hparams)


def make_export(hparams, folder):
    """Exports a model of random weights; returns the SavedModel's folder.

    `made.model` in the folder is its tokenizer.
    """
    from relpos_tf.export import saved_model
    from relpos_tf.models import checkpoints
    from relpos_tf.models import run_dir

    run = run_dir.RunDir(folder / "run")
    write_tokenizer(folder / "made.model", hparams.vocab_size)
    run.copy_tokenizer(folder / "made.model")
    run.write_hparams(hparams)
    model = random_model(hparams)
    values = {v.path: v.value for v in model.variables}
    checkpoints.CheckpointManager(run.path, {"model": values}).save(1)
    return saved_model.export_saved_model(run.path, folder / "export")


def write_tokenizer(path, vocab_size):
    """Writes a SentencePiece model with a given number of pieces."""
    from sentencepiece import sentencepiece_model_pb2

    from relpos_tf.data import pieces

    pieces.train([TEXT], path, 280)
    model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    for i in range(vocab_size - len(model.pieces)):
        model.pieces.add(piece=f"\u2581made{i}", score=-1000.0 - i)
    model.trainer_spec.vocab_size = vocab_size
    path.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
