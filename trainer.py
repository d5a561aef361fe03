r"""Trains a translation model.

    python trainer.py

trains `transformer_relative_tiny` on the built-in phrases (English to German,
no download) in a few minutes on a CPU. Text of your own, one sentence a line:

    python trainer.py --problem=translate_files --output_dir=runs/mine \
        --train_source=train.en --train_target=train.de \
        --dev_source=dev.en --dev_target=dev.de \
        --hparams_set=transformer_relative_small

The paper's base model on eight GPUs:

    python trainer.py --problem=translate_ende_wmt14 \
        --hparams_set=transformer_relative --output_dir=runs/relative

`python trainer.py --help` lists the flags. Installed, the same command is
`relpos-trainer`.
"""

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036, which it cannot know
        sys.exit(
            "trainer.py needs Python 3.10 to 3.13. Received: Python "
            f"{sys.version.split()[0]}. See README.md on environments."
        )
    try:
        from relpos_tf.bin import trainer
    except ModuleNotFoundError as error:
        sys.exit(
            f"trainer.py needs the package {error.name}. Install all packages: "
            "pip install -c constraints.txt -e '.[translate]'"
        )
    trainer.run()
