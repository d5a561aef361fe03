r"""The sets of tensor2tensor 1.15.7, with its values.

The names end in `_t2t`, because the paper's values differ nearly everywhere;
`docs/differences.md` lists the differences. To train an imported checkpoint
further (relpos_tf.bin.import_t2t), with data of your own:

    relpos-trainer --problem=translate_files \
        --train_source=train.en --train_target=train.de \
        --dev_source=dev.en --dev_target=dev.de \
        --hparams_set=transformer_relative_t2t --warm_start_from=IMPORTED

The same command without `--warm_start_from` trains from the start. Cost of
each set: 250,000 steps. Scores: not measured. `transformer_base_t2t` is
tensor2tensor's `transformer_base_v3`.
"""

from relpos_tf import hparam
from relpos_tf import registry


def _relative(absolute: hparam.HParams) -> hparam.HParams:
    """Replaces the sinusoids by tensor2tensor's relative positions.

    tensor2tensor sets add_relative_to_values and
    heads_share_relative_embedding to false and ignores both: values have a
    table, and the heads share it.
    """
    return absolute.replace(
        pos="none",
        self_attention_type="dot_product_relative",
        max_relative_position=20,
        heads_share_relative_embedding=True,
    )


@registry.register_hparams
def transformer_base_v1_t2t() -> hparam.HParams:
    """Base, version 1: norm after each sum, as in Vaswani et al. (2017).

    The learning rate is exactly theirs: 5000 * .002 * .1 = 1.
    """
    return hparam.HParams().replace(
        filter_size=2048,
        use_target_space_embedding=True,
        learning_rate_schedule="legacy",
        learning_rate=0.1,
        train_steps=250_000,
        extra_length=100,
    )


@registry.register_hparams
def transformer_base_v2_t2t() -> hparam.HParams:
    """Base, version 2: norm before each sublayer, more dropout, double rate."""
    return transformer_base_v1_t2t().replace(
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate=0.2,
        learning_rate_warmup_steps=8000,
    )


@registry.register_hparams
def transformer_base_t2t() -> hparam.HParams:
    """Base Transformer with sinusoids (version 3)."""
    return transformer_base_v2_t2t().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule=(
            "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
        ),
        learning_rate_constant=2.0,
    )


@registry.register_hparams
def transformer_big_t2t() -> hparam.HParams:
    """Big Transformer with sinusoids; half as many tokens a batch as base."""
    return transformer_base_t2t().replace(
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        layer_prepostprocess_dropout=0.3,
        batch_size=2048,
    )


@registry.register_hparams
def transformer_tiny_t2t() -> hparam.HParams:
    """Two layers of 128 with sinusoids."""
    return transformer_base_t2t().replace(
        hidden_size=128, filter_size=512, num_heads=4, num_hidden_layers=2
    )


@registry.register_hparams
def transformer_relative_t2t() -> hparam.HParams:
    """Base Transformer with relative positions, k = 20."""
    return _relative(transformer_base_t2t())


@registry.register_hparams
def transformer_relative_big_t2t() -> hparam.HParams:
    """Big Transformer with relative positions, k = 20."""
    return _relative(transformer_big_t2t())


@registry.register_hparams
def transformer_relative_tiny_t2t() -> hparam.HParams:
    """Two layers of 128 with relative positions, k = 20."""
    return _relative(transformer_tiny_t2t())
