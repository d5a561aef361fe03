r"""Transformers whose lower encoder layers attend to a window only.

Yang et al. (2019), convolutional self-attention: a query of the lowest three
layers of the encoder attends to a window of 11 positions, 5 on each side; in
the two-dimensional form also to the same positions of the neighbouring heads.
`relpos_tf/layers/positions/head_window.py` has the formulas. There are no new
weights. Both sets have sinusoids, and are `transformer_base` otherwise. With
relative positions instead:

    relpos-trainer --hparams_set=transformer_relative \
        --hparams=attention_window=5,attention_window_layers=3

For a small model, add the same fields to `--hparams_set=transformer_small`.
Scores: not measured.
"""

from relpos_tf import hparam
from relpos_tf import registry

from . import transformer


@registry.register_hparams
def transformer_convolutional_1d() -> hparam.HParams:
    r"""Windows of 11 positions in the lowest three encoder layers.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_convolutional_1d --worker_gpu=8

    Cost: as `transformer_base`; a window is a mask, and saves nothing.
    """
    return transformer.transformer_base().replace(
        attention_window=5, attention_window_layers=3
    )


@registry.register_hparams
def transformer_convolutional_2d() -> hparam.HParams:
    r"""Windows of 11 positions and 3 heads in the same layers.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_convolutional_2d --worker_gpu=8

    Cost: three times the logits and weights of self-attention in these three
    layers, in time and memory.
    """
    return transformer_convolutional_1d().replace(attention_window_heads=3)
