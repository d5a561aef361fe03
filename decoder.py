r"""Translates with a trained model.

    python decoder.py < test.en > test.de

translates standard input with the newest run in `runs/`. With a named run,
files, and a score against a reference:

    python decoder.py --output_dir=runs/mine --decode_from_file=test.en \
        --decode_to_file=test.de --decode_reference=reference.de

`python decoder.py --help` lists the flags. Installed, the same command is
`relpos-decoder`.
"""

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036, which it cannot know
        sys.exit(
            "decoder.py needs Python 3.10 to 3.13. Received: Python "
            f"{sys.version.split()[0]}. See README.md on environments."
        )
    try:
        from relpos_tf.bin import decoder
    except ModuleNotFoundError as error:
        sys.exit(
            f"decoder.py needs the package {error.name}. Install all packages: "
            "pip install -c constraints.txt -e '.[translate]'"
        )
    decoder.run()
