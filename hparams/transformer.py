"""Transformers with absolute positions: the baselines."""

from relpos_tf import hparam
from relpos_tf import registry


@registry.register_hparams
def transformer_base():
    r"""Base Transformer with sinusoids: the paper's baseline.

        python trainer.py --problem=translate_ende_wmt14 \
            --hparams_set=transformer_base --worker_gpu=8

    100,000 steps of 8 x 4,096 tokens; no checkpoint averaging. Shaw et al.
    (2018), table 1, report 26.5 BLEU (en-de) and 38.2 (en-fr) on
    newstest2014. The feed-forward size is the paper's 1,024; Vaswani et al.
    (2017) have 2,048: see `transformer_vaswani_base`.
    """
    return hparam.HParams()


@registry.register_hparams
def transformer_big():
    """Big Transformer with sinusoids: 27.9 (en-de) in the paper's table 1.

    300,000 steps of 8 x 4,096 tokens, the last 20 checkpoints averaged.
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
def transformer_big_enfr():
    """`transformer_big` for English to French: 41.2 in the paper's table 1."""
    return transformer_big().replace(layer_prepostprocess_dropout=0.1)


@registry.register_hparams
def transformer_small():
    """Three layers of 256, about 4 M weights beside the embeddings.

    For a corpus of some ten thousand pairs, such as Multi30k, on a CPU:
    strong dropout, small batches and a shorter warm-up than the paper's. As
    in its base model, the feed-forward layers are twice as wide as the model.
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
def transformer_tiny():
    """Two layers of 128: minutes on a CPU, and tests."""
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
def transformer_learned():
    """Base with learned positions: Vaswani et al. (2017), table 3, row E.

    Positions beyond `max_length` share the last vector.
    """
    return transformer_base().replace(pos="emb")


@registry.register_hparams
def transformer_vaswani_base():
    """Attention Is All You Need, base: feed-forward size 2,048, 27.3 BLEU.

    100,000 steps of about 25,000 tokens; the last 5 checkpoints averaged.
    """
    return transformer_base().replace(filter_size=2048, average_checkpoints=5)


@registry.register_hparams
def transformer_vaswani_big():
    """Attention Is All You Need, big: 28.4 BLEU (en-de), as they report.

    300,000 steps of about 25,000 tokens; the last 20 checkpoints averaged.
    """
    return transformer_big()
