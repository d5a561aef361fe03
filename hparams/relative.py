"""Transformers with relative positions: the subject of the paper."""

from relpos_tf import hparam
from relpos_tf import registry

from . import transformer


def _relative(absolute: hparam.HParams) -> hparam.HParams:
    """Replaces absolute positions by relative ones."""
    return absolute.replace(
        pos="none",
        self_attention_type="dot_product_relative",
        max_relative_position=16,
    )


@registry.register_hparams
def transformer_relative() -> hparam.HParams:
    r"""Base Transformer with relative positions only, clipped at k = 16.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_relative --worker_gpu=8

    Cost: 100,000 steps of 8 x 4,096 tokens. Score: 26.8 BLEU
    on newstest2014 by Shaw et al. (2018), table 1 (en-de, on --scale=wmt14;
    sinusoids: 26.5), and 38.7 (en-fr, tokenized; sinusoids: 38.2). One pair of
    tables per layer and head.
    tensor2tensor's set of this name clips at 20 and shares the tables between
    the heads.
    """
    return _relative(transformer.transformer_base())


@registry.register_hparams
def transformer_relative_big() -> hparam.HParams:
    r"""Big Transformer with relative positions, k = 8, shared by the heads.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_relative_big --worker_gpu=8

    Cost: 300,000 steps of 8 x 4,096 tokens; the last 20 checkpoints are
    averaged. Score: 29.2 BLEU on newstest2014 by Shaw et al. (2018), table 1
    (en-de, on --scale=wmt14; sinusoids: 27.9).
    """
    return _relative(transformer.transformer_big()).replace(
        max_relative_position=8, heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_big_enfr() -> hparam.HParams:
    r"""`transformer_relative_big` for English to French, with less dropout.

        relpos-trainer --problem=translate_enfr_wmt14 \
            --hparams_set=transformer_relative_big_enfr --worker_gpu=8

    Cost: as `transformer_relative_big`. Score: 41.5 BLEU on newstest2014
    by Shaw et al. (2018), table 1 (en-fr, tokenized).
    """
    return transformer_relative_big().replace(layer_prepostprocess_dropout=0.1)


@registry.register_hparams
def transformer_relative_small() -> hparam.HParams:
    r"""`transformer_small` with relative positions, k = 16, shared tables.

        relpos-trainer --problem=translate_ende_multi30k \
            --hparams_set=transformer_relative_small \
            --local_eval_frequency=500 --hparams=activation_dtype=bfloat16

    Cost: 80 minutes of one core. Score: 38.50 BLEU on test_2016_flickr
    with one seed and 8,000 pieces (docs/results.md).
    """
    return _relative(transformer.transformer_small()).replace(
        heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_multi30k() -> hparam.HParams:
    r"""`transformer_multi30k` with relative positions, k = 16, shared tables.

        relpos-trainer --problem=translate_ende_multi30k \
            --hparams_set=transformer_relative_multi30k \
            --hparams=activation_dtype=bfloat16

    The recipe for some ten thousand pairs of short lines.

    Cost: 100 minutes of one core. Score: 40.42 BLEU on
    test_2016_flickr (40.84 tokenized), the mean of three seeds; English to
    French 60.92 (61.98), one seed; measured by us (docs/results.md).
    """
    return _relative(transformer.transformer_multi30k()).replace(
        heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_tiny() -> hparam.HParams:
    """`transformer_tiny` with relative positions, k = 16, shared tables.

        relpos-trainer

    Cost: a few minutes on two cores. Score: 97.60 % of the built-in
    phrases exact, the mean of three seeds (docs/results.md).
    """
    return _relative(transformer.transformer_tiny()).replace(
        heads_share_relative_embedding=True
    )


@registry.register_hparams
def transformer_relative_and_absolute() -> hparam.HParams:
    r"""Base Transformer with relative positions and sinusoids.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_relative_and_absolute --worker_gpu=8

    Cost: as `transformer_relative`. Score: no gain over relative positions
    alone by Shaw et al. (2018), section 4.2.
    """
    return transformer_relative().replace(pos="timing")
