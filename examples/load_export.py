"""Translates standard input with an exported SavedModel.

    python load_export.py --export_dir=runs/demo/export < test.en > test.de

Needs tensorflow and tensorflow_text, and nothing else.
"""

import argparse
import itertools
import os
import sys

BATCH_LINES = 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export_dir", required=True)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    try:
        import tensorflow_text  # noqa: F401, registers the tokenizer's ops
    except ImportError as error:
        sys.exit(f"The export needs tensorflow_text: {error}")
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
