"""Transformers with relative positions: the subject of the paper."""

from relpos_tf import hparam
from relpos_tf import registry

from . import transformer


def _relative(absolute: hparam.HParams) -> hparam.HParams:
    """Puts relative positions in the place of the absolute ones."""
    return absolute.replace(
        pos="none",
        self_attention_type="dot_product_relative",
        max_relative_position=16,
    )


@registry.register_hparams
def transformer_relative():
    r"""Base Transformer with relative positions only, clipped at k = 16.

        python trainer.py --problem=translate_ende_wmt14 \
            --hparams_set=transformer_relative --worker_gpu=8

    100,000 steps of 8 x 4,096 tokens. Shaw et al. (2018), table 1, report
    26.8 BLEU (en-de; sinusoids: 26.5) and 38.7 (en-fr; 38.2). One pair of
    tables per layer and head. tensor2tensor's set of this name clips at 20
    and shares the tables between the heads.
    """
    return _relative(transformer.transformer_base())


@registry.register_hparams
def transformer_relative_big():
    """Big Transformer with relative positions, k = 8, shared by the heads.

    300,000 steps, the last 20 checkpoints averaged: 29.2 BLEU (en-de;
    sinusoids: 27.9) in the paper's table 1.
    """
    return _relative(transformer.transformer_big()).replace(
        max_relative_position=8, heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_big_enfr():
    """`transformer_relative_big` for French: 41.5 in the paper's table 1."""
    return transformer_relative_big().replace(layer_prepostprocess_dropout=0.1)


@registry.register_hparams
def transformer_relative_small():
    """`transformer_small` with relative positions, k = 16, shared tables."""
    return _relative(transformer.transformer_small()).replace(
        heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_tiny():
    """`transformer_tiny` with relative positions, k = 16, shared tables.

        python trainer.py

    trains it on the built-in phrases in a few minutes on two cores.
    """
    return _relative(transformer.transformer_tiny()).replace(
        heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_and_absolute():
    """Relative positions and sinusoids together.

    The paper (section 4.2) finds no gain over relative positions alone.
    """
    return transformer_relative().replace(pos="timing")
