"""Transformers with absolute positions: the baselines."""

from relpos_tf import hparam
from relpos_tf import registry


@registry.register_hparams
def transformer_base() -> hparam.HParams:
    r"""Base Transformer with sinusoids: the paper's baseline.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_base --worker_gpu=8

    Cost: 100,000 steps of 8 x 4,096 tokens; no checkpoint averaging.
    Score: 26.5 BLEU on newstest2014 by Shaw et al. (2018), table 1 (en-de, on
    --scale=wmt14), and 38.2 (en-fr, tokenized). The feed-forward size is that
    paper's 1,024; Vaswani et al. (2017) have 2,048: see
    `transformer_vaswani_base`.
    """
    return hparam.HParams()


@registry.register_hparams
def transformer_big() -> hparam.HParams:
    r"""Big Transformer with sinusoids: the paper's big baseline.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_big --worker_gpu=8

    Cost: 300,000 steps of 8 x 4,096 tokens; the last 20 checkpoints are
    averaged. Score: 27.9 BLEU on newstest2014 by Shaw et al. (2018), table 1
    (en-de, on --scale=wmt14).
    """
    return transformer_base().replace(
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        layer_prepostprocess_dropout=0.3,
        train_steps=300_000,
        average_checkpoints=20,
    )


@registry.register_hparams
def transformer_big_enfr() -> hparam.HParams:
    r"""`transformer_big` for English to French, with less dropout.

        relpos-trainer --problem=translate_enfr_wmt14 \
            --hparams_set=transformer_big_enfr --worker_gpu=8

    Cost: as `transformer_big`. Score: 41.2 BLEU on newstest2014 by Shaw et
    al. (2018), table 1 (en-fr, tokenized).
    """
    return transformer_big().replace(layer_prepostprocess_dropout=0.1)


@registry.register_hparams
def transformer_small() -> hparam.HParams:
    r"""Three layers of 256, about 4 M weights beside the embeddings.

        relpos-trainer --problem=translate_ende_multi30k \
            --hparams_set=transformer_small \
            --local_eval_frequency=500 --hparams=activation_dtype=bfloat16

    For a corpus of some ten thousand pairs on a CPU: strong dropout, small
    batches and a shorter warm-up than the paper's. The feed-forward layers
    are twice as wide as the model, as in the paper's base model.

    Cost: 80 minutes of one core. Score: not measured.
    """
    return transformer_base().replace(
        hidden_size=256,
        filter_size=512,
        num_heads=4,
        num_hidden_layers=3,
        layer_prepostprocess_dropout=0.3,
        learning_rate_warmup_steps=1000,
        batch_size=2048,
        train_steps=8_000,
        average_checkpoints=5,
    )


@registry.register_hparams
def transformer_tiny() -> hparam.HParams:
    r"""Two layers of 128, for minutes on a CPU and for tests.

        relpos-trainer --hparams_set=transformer_tiny

    Cost: three to five minutes on one core. Score: 95.87 % of the built-in
    phrases exact, the mean of three seeds (docs/results.md).
    """
    return transformer_base().replace(
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        num_hidden_layers=2,
        learning_rate_constant=0.7,
        learning_rate_warmup_steps=400,
        batch_size=2048,
        train_steps=1_000,
    )


@registry.register_hparams
def transformer_multi30k() -> hparam.HParams:
    r"""`transformer_relative_multi30k` with sinusoids: its absolute twin.

        relpos-trainer --problem=translate_ende_multi30k \
            --hparams_set=transformer_multi30k \
            --hparams=activation_dtype=bfloat16

    The published baseline for captions without the picture (Wu et al., 2021)
    but for the norm, which comes before the sublayers, and 5,000 pieces
    instead of 10,000: four layers of 128, 1.3 M weights beside the
    embeddings, dropout .3, 8,000 updates of 8,192 tokens with padding, the
    mean of the checkpoints at the ends of the last ten epochs.

    Cost: 90 minutes of one core. Score: 39.98 BLEU on test_2016_flickr
    (40.39 tokenized), the mean of three seeds (docs/results.md).
    """
    return transformer_base().replace(
        hidden_size=128,
        filter_size=256,
        num_heads=4,
        num_hidden_layers=4,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        layer_prepostprocess_dropout=0.3,
        batch_size=8192,
        # d ** -.5 * 2000 ** -.5 * 2.53 is their highest rate, .005.
        learning_rate_constant=2.53,
        learning_rate_warmup_steps=2000,
        train_steps=8_000,
        average_checkpoints=0,
        average_epochs=10,
        beam_size=5,
        alpha=1.4,
    )


@registry.register_hparams
def transformer_learned() -> hparam.HParams:
    r"""Base Transformer with learned absolute positions.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_learned --worker_gpu=8

    Vaswani et al. (2017), table 3, row E. Positions beyond `max_length` share
    the last vector. Cost: as `transformer_base`. Score: not measured.
    """
    return transformer_base().replace(pos="emb")


@registry.register_hparams
def transformer_vaswani_base() -> hparam.HParams:
    r"""Attention Is All You Need, base: feed-forward size 2,048.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_vaswani_base --worker_gpu=8

    Cost: 100,000 steps of about 25,000 tokens; the last 5 checkpoints are
    averaged. Score: 27.3 BLEU on newstest2014 by Vaswani et al. (2017; en-de,
    on --scale=wmt14).
    """
    return transformer_base().replace(filter_size=2048, average_checkpoints=5)


@registry.register_hparams
def transformer_vaswani_big() -> hparam.HParams:
    r"""Attention Is All You Need, big.

        relpos-trainer --problem=translate_ende_wmt14 \
            --hparams_set=transformer_vaswani_big --worker_gpu=8

    Cost: 300,000 steps of about 25,000 tokens; the last 20 checkpoints are
    averaged. Score: 28.4 BLEU on newstest2014 by Vaswani et al. (2017; en-de,
    on --scale=wmt14).
    """
    return transformer_big()
