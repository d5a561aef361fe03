"""The arguments of layers that follow from hyper-parameters."""

from relpos_tf import hparam
from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import scheme
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window


def _shaw(hparams, is_encoder):
    del is_encoder
    right = hparams.max_relative_position_right
    return shaw.Shaw(
        hparams.max_relative_position,
        add_to_keys=hparams.add_relative_to_keys,
        add_to_values=hparams.add_relative_to_values,
        heads_share=hparams.heads_share_relative_embedding,
        implementation=hparams.relative_attention_implementation,
        max_relative_position_right=None if right < 0 else right,
    )


def _bucketed(hparams, is_encoder):
    return bucketed.Bucketed(
        hparams.relative_attention_num_buckets,
        hparams.relative_attention_max_distance,
        bidirectional=is_encoder,
    )


# self_attention_type: the scheme of self-attention, in encoder or decoder.
_SCHEMES = {
    "dot_product": lambda hparams, is_encoder: None,
    "dot_product_relative": _shaw,
    "dot_product_relative_bias": _bucketed,
    "dot_product_alibi": lambda hparams, is_encoder: alibi.Alibi(),
    "dot_product_rotary": lambda hparams, is_encoder: rotary.Rotary(),
}


def _positions(hparams, is_encoder):
    """Returns the schemes of self-attention in one of the stacks."""
    relative = _SCHEMES[hparams.self_attention_type](hparams, is_encoder)
    schemes = [relative]
    if hparams.attention_score == "additive":
        # Only one scheme computes the logits, so this one computes Shaw's.
        if isinstance(relative, shaw.Shaw):
            schemes = [additive.Additive(relative)]
        else:
            schemes = [additive.Additive(), relative]
    if hparams.attention_window:
        schemes.append(window.Window(hparams.attention_window))
    if hparams.localness != "none":
        schemes.append(
            localness.Localness(hparams.localness, hparams.localness_window)
        )
    return tuple(filter(None, schemes))


def decoder_positions(hparams: hparam.HParams) -> tuple[scheme.Scheme, ...]:
    """Returns the schemes of the decoder's self-attention."""
    return _positions(hparams.of_decoder(), is_encoder=False)


def encoder_positions(hparams: hparam.HParams) -> tuple[scheme.Scheme, ...]:
    """Returns the schemes of the encoder's self-attention."""
    schemes = _positions(hparams, is_encoder=True)
    direction = hparams.encoder_attention_direction
    if direction == "both":
        return schemes
    return (*schemes, window.Direction(direction, hparams.num_heads))


def source_positions(hparams: hparam.HParams) -> tuple[scheme.Scheme, ...]:
    """Returns the schemes of the decoder's attention to the source."""
    is_additive = hparams.attention_score == "additive"
    return (additive.Additive(),) if is_additive else ()


def positions_summary(hparams: hparam.HParams) -> str:
    """Describes all positions of a model in a few words.

    Example:

    >>> positions_summary(hparam.HParams())
    'timing'
    >>> positions_summary(hparam.HParams(decoder_pos="none"))
    'timing in the encoder, none in the decoder'
    """
    encoder = _summary(hparams, encoder_positions(hparams))
    own = hparams.of_decoder()
    if own == hparams:
        return encoder
    decoder = _summary(own, decoder_positions(hparams))
    return f"{encoder} in the encoder, {decoder} in the decoder"


def _summary(hparams, schemes):
    absolute = [] if hparams.pos == "none" else [hparams.pos]
    if hparams.pos == "timing" and hparams.max_position_shift:
        absolute = [f"timing, shifted by at most {hparams.max_position_shift}"]
    relative = [one.summary() for one in schemes]
    return " and ".join([*absolute, *relative]) or "none"


def block_arguments(
    hparams: hparam.HParams, positions
) -> tuple[dict, dict, dict]:
    """Returns the arguments of a block.

    Args:
        hparams: `hparam.HParams` of the model.
        positions: The schemes of self-attention.

    Returns:
        `attention_args`, `feed_forward_args` and `residual_args` of
        `blocks.EncoderBlock` and `blocks.DecoderBlock`.
    """
    attention_args = {
        "hidden_size": hparams.hidden_size,
        "num_heads": hparams.num_heads,
        "dropout": hparams.attention_dropout,
        "positions": positions,
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
