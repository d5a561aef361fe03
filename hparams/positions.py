r"""Transformers with position schemes of other papers than Shaw's.

Each set is `transformer_base` with other positions. For a small model:

    relpos-trainer --hparams_set=transformer_small \
        --hparams=self_attention_type=dot_product_alibi,pos=none
"""

from relpos_tf import hparam
from relpos_tf import registry

from . import transformer


def _only(kind: str) -> hparam.HParams:
    """Returns the base Transformer with one kind of relative positions."""
    return transformer.transformer_base().replace(
        self_attention_type=kind, pos="none"
    )


@registry.register_hparams
def transformer_alibi() -> hparam.HParams:
    r"""Linear biases by distance (Press et al., 2022), on both sides.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_alibi --worker_gpu=8

    Cost: as `transformer_base`. Score: not measured; the paper trains
    language models and gives no BLEU.
    """
    return _only("dot_product_alibi")


@registry.register_hparams
def transformer_kerple() -> hparam.HParams:
    r"""Logarithmic biases by distance (Chi et al., 2022), on both sides.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_kerple --worker_gpu=8

    Cost: as `transformer_base`, and 16 weights for each layer. Score: not
    measured; the paper trains language models and gives no BLEU.
    """
    return _only("dot_product_kerple")


@registry.register_hparams
def transformer_fire() -> hparam.HParams:
    r"""Biases by a small network of distances (FIRE; Li et al., 2024).

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_fire --worker_gpu=8

    Cost: as `transformer_base`, and 354 weights for each layer of the encoder,
    322 for each of the decoder. Score: not measured; the paper trains language
    models and gives no BLEU.
    """
    return _only("dot_product_fire")


@registry.register_hparams
def transformer_xl() -> hparam.HParams:
    r"""Projected sinusoids of distances: Transformer-XL (Dai et al., 2019).

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_xl --worker_gpu=8

    Cost: 263,168 weights more for each layer than `transformer_base`; a step of
    self-attention alone takes 1.3 times as long with 32 ids a line, 1.7 times
    with 128. Score: not measured; the paper trains language models and gives no
    BLEU.
    """
    return _only("dot_product_transformer_xl")


@registry.register_hparams
def transformer_t5_bias() -> hparam.HParams:
    r"""T5's bias of 32 buckets of distances (Raffel et al., 2020).

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_t5_bias --worker_gpu=8

    Cost: as `transformer_base`, and 256 weights for each stack. Score: not
    measured.
    """
    return _only("dot_product_relative_bias")


@registry.register_hparams
def transformer_rotary() -> hparam.HParams:
    r"""Queries and keys rotated by their positions (Su et al., 2021).

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_rotary --worker_gpu=8

    Cost: as `transformer_base`. Score: 27.5 BLEU on newstest2014 by Su et
    al. (2021), table 1 (sinusoids: 27.3).
    """
    return _only("dot_product_rotary")
