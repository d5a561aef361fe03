"""From hyper-parameters to the arguments of layers."""

from relpos_tf import hparam


def block_arguments(hparams: hparam.HParams) -> tuple[dict, dict, dict]:
    """Translates hparams into the arguments of a block."""
    attention_args = {
        "hidden_size": hparams.hidden_size,
        "num_heads": hparams.num_heads,
        "dropout": hparams.attention_dropout,
        "score": hparams.attention_score,
        "window": hparams.attention_window,
    }
    if hparams.localness != "none":
        attention_args |= {
            "localness": hparams.localness,
            "localness_window": hparams.localness_window,
        }
    if hparams.is_relative:
        attention_args |= {
            "max_relative_position": hparams.max_relative_position,
            "add_relative_to_keys": hparams.add_relative_to_keys,
            "add_relative_to_values": hparams.add_relative_to_values,
            "heads_share_relative_embedding": (
                hparams.heads_share_relative_embedding
            ),
            "implementation": hparams.relative_attention_implementation,
        }
    feed_forward_args = {
        "filter_size": hparams.filter_size,
        "hidden_size": hparams.hidden_size,
        "relu_dropout": hparams.relu_dropout,
    }
    residual_args = {
        "norm_before": hparams.layer_preprocess_sequence == "n",
        "norm_after": hparams.layer_postprocess_sequence == "dan",
        "rate": hparams.layer_prepostprocess_dropout,
        "epsilon": hparams.norm_epsilon,
    }
    return attention_args, feed_forward_args, residual_args


def encoder_arguments(hparams: hparam.HParams) -> tuple[dict, dict, dict]:
    """Translates hparams into the arguments of a block of the encoder."""
    attention_args, *others = block_arguments(hparams)
    direction = {"direction": hparams.encoder_attention_direction}
    return attention_args | direction, *others
