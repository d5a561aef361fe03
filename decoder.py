r"""Translates with a trained model.

    python decoder.py < test.en > test.de

translates standard input with the newest run in `runs/`. With a named run,
files, and a score against a reference:

    python decoder.py --output_dir=runs/mine --decode_from_file=test.en \
        --decode_to_file=test.de --decode_reference=reference.de

`python decoder.py --help` lists the flags. Installed, the same command is
`relpos-decoder`.
"""

from relpos_tf.bin import decoder

if __name__ == "__main__":
    decoder.run()
