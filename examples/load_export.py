"""Translates standard input with an exported SavedModel.

    python load_export.py --export_dir=runs/demo/export < test.en > test.de

Needs the packages tensorflow and tensorflow_text only.

A SavedModel is a program, and this script runs it without a check. For a model
that you do not trust, use `relpos-decoder --export_dir`, which checks it first.
"""

import argparse
import contextlib
import itertools
import os
import sys

BATCH_LINES = 64


@contextlib.contextmanager
def quiet():
    """Hides the messages of TensorFlow's libraries during the import."""
    saved = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export_dir", required=True)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Whatever keras.json and the shell ask for, nothing else is needed.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.pop("TF_USE_LEGACY_KERAS", None)
    try:
        with quiet():
            import tensorflow as tf
            import tensorflow_text  # noqa: F401, registers the tokenizer
    except ImportError as error:
        sys.exit(
            "The export needs the packages tensorflow and tensorflow_text: "
            f"{error}."
        )
    if not os.path.isfile(f"{arguments.export_dir}/saved_model.pb"):
        parser.error(f"{arguments.export_dir} is no SavedModel.")
    module = tf.saved_model.load(arguments.export_dir)
    translate = module.signatures["serving_default"]
    lines = (
        line.removesuffix(b"\n").removesuffix(b"\r")
        for line in sys.stdin.buffer
    )
    while batch := list(itertools.islice(lines, BATCH_LINES)):
        for text in translate(inputs=tf.constant(batch))["outputs"].numpy():
            sys.stdout.buffer.write(text + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
