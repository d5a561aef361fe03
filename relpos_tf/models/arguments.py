"""The arguments of layers that follow from hyper-parameters."""

from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import fire
from relpos_tf.layers.positions import kerple
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import scheme
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import transformer_xl
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


# self_attention_type: a function of hparams and of whether the stack is the
# encoder, which returns the scheme. Users register others.
_SELF_ATTENTION = {
    "dot_product": lambda hparams, is_encoder: None,
    "dot_product_relative": _shaw,
    "dot_product_relative_bias": _bucketed,
    "dot_product_alibi": lambda hparams, is_encoder: alibi.Alibi(),
    "dot_product_rotary": lambda hparams, is_encoder: rotary.Rotary(),
    "dot_product_kerple": lambda hparams, is_encoder: kerple.Kerple(),
    "dot_product_fire": lambda _, encoder: fire.Fire(bidirectional=encoder),
    "dot_product_transformer_xl": lambda *_: transformer_xl.TransformerXL(),
}

Positions = tuple[scheme.Scheme, ...]


def decoder_positions(hparams: hparam.HParams) -> list[Positions]:
    """Returns the schemes of self-attention of each layer of the decoder."""
    return _self_attention(hparams.of_decoder(), is_encoder=False)


def encoder_positions(hparams: hparam.HParams) -> list[Positions]:
    """Returns the schemes of self-attention of each layer of the encoder."""
    return _self_attention(hparams, is_encoder=True)


def _self_attention(hparams, is_encoder):
    """Returns the schemes of each layer; some may be in the lowest alone."""
    layers = hparams.encoder_layers if is_encoder else hparams.decoder_layers
    kind = hparams.self_attention_type
    # One object for all layers, which shares what T5's are to share.
    if make := _SELF_ATTENTION.get(kind):
        relative = make(hparams, is_encoder)
    else:
        relative = registry.self_attention_type(kind, hparams, is_encoder)
    plain = [relative] if relative else []
    gaussian, windows = [], []
    if hparams.localness != "none":
        is_fixed = hparams.localness == "fixed"
        size = hparams.localness_window if is_fixed else hparams.localness
        gaussian.append(localness.Localness(size))
    if hparams.attention_window:
        windows.append(window.Window(hparams.attention_window))

    def of_layer(layer):
        def has(lowest):  # 0: in every layer of both stacks
            return not lowest or (is_encoder and layer < lowest)

        local = gaussian * has(hparams.localness_layers)
        return *plain, *local, *windows * has(hparams.attention_window_layers)

    return [of_layer(layer) for layer in range(layers)]


def positions_summary(hparams: hparam.HParams) -> str:
    """Describes all positions of a model in a few words.

    Example:
    >>> positions_summary(hparam.HParams())
    'timing'
    >>> positions_summary(hparam.HParams(decoder_pos="none"))
    'timing in the encoder, none in the decoder'
    >>> positions_summary(hparam.HParams(localness="query"))
    'timing and localness query (lowest 3 of 6) in the encoder, timing in the \
decoder'
    """
    encoder = _summary(hparams, encoder_positions(hparams))
    decoder = _summary(hparams.of_decoder(), decoder_positions(hparams))
    if encoder == decoder:
        return encoder
    return f"{encoder} in the encoder, {decoder} in the decoder"


def _summary(hparams, stack):
    names = [] if hparams.pos == "none" else [hparams.pos]
    if hparams.pos == "timing" and hparams.max_position_shift:
        names = [f"timing, shifted by at most {hparams.max_position_shift}"]
    for one in stack[0]:
        layers = sum(one in schemes for schemes in stack)
        is_lowest = layers < len(stack)
        which = f" (lowest {layers} of {len(stack)})" if is_lowest else ""
        names.append(one.summary() + which)
    return " and ".join(names) or "none"


def block_arguments(
    hparams: hparam.HParams, positions: Positions
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
