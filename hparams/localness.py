"""Transformers whose self-attention prefers a neighbourhood.

Yang et al. (2018) add a Gaussian to the logits of self-attention, around a
place that each query predicts; `relpos_tf/layers/positions/localness.py` has
the formulas. The three sets differ in what decides on its width. All of them
have sinusoids, and are `transformer_base` otherwise. With relative positions
instead:

    python trainer.py --hparams_set=transformer_relative \
        --hparams=localness=query

and for a small model, `--hparams_set=transformer_small`.
"""

from relpos_tf import registry

from . import transformer


@registry.register_hparams
def transformer_localness_fixed():
    r"""`transformer_base` with Gaussian windows of 10 positions.

        python trainer.py --problem=translate_ende_wmt14 \
            --hparams_set=transformer_localness_fixed --worker_gpu=8

    `localness_window` is the width: sigma is half of it.
    """
    return transformer.transformer_base().replace(
        localness="fixed", localness_window=10
    )


@registry.register_hparams
def transformer_localness_layer():
    """One window for each layer, predicted from the mean of its keys."""
    return transformer.transformer_base().replace(localness="layer")


@registry.register_hparams
def transformer_localness_query():
    """A window for each query: the best of the three in the paper."""
    return transformer.transformer_base().replace(localness="query")
