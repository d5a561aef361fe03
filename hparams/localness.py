r"""Transformers whose self-attention prefers a neighbourhood.

Yang et al. (2018) add a Gaussian to the logits of self-attention, around a
center that each query predicts; `relpos_tf/layers/positions/localness.py` has
the formulas. The three sets differ in the width of the Gaussian. As published,
it is in the lowest three layers of the encoder (`localness_layers`; 0: in all
layers of both stacks). All have sinusoids, and are `transformer_base`
otherwise. With relative positions instead:

    relpos-trainer --hparams_set=transformer_relative \
        --hparams=localness=query

For a small model, use `--hparams_set=transformer_small`. Cost of each set: as
`transformer_base`. Scores: not measured.
"""

from relpos_tf import hparam
from relpos_tf import registry

from . import transformer


@registry.register_hparams
def transformer_localness_fixed() -> hparam.HParams:
    r"""`transformer_base` with Gaussian windows of 10 positions.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_localness_fixed --worker_gpu=8

    `localness_window` is the width: sigma is half of it.
    """
    return transformer.transformer_base().replace(
        localness="fixed", localness_window=10
    )


@registry.register_hparams
def transformer_localness_layer() -> hparam.HParams:
    r"""One window for each layer, predicted from the mean of its keys.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_localness_layer --worker_gpu=8

    Sigma is half of the window.
    """
    return transformer.transformer_base().replace(localness="layer")


@registry.register_hparams
def transformer_localness_query() -> hparam.HParams:
    r"""A window for each query: the best of the three in the paper.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_localness_query --worker_gpu=8

    Sigma is half of the window.
    """
    return transformer.transformer_base().replace(localness="query")
