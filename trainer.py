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

from relpos_tf.bin import trainer

if __name__ == "__main__":
    trainer.run()
