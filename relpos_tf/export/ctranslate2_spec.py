"""A model's weights, laid out as CTranslate2 expects them.

CTranslate2 computes relative positions as the paper does, if all heads of a
layer share the tables, the bias of T5, and rotary positions. Other models are
refused here: CTranslate2 would load them and compute something else.

Shapes: V vocabulary, F features, P positions, H heads, R = 2k+1 rows of a
relative table, or buckets, D depth per head.
"""

import collections
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.layers import embeddings
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import shaw
from relpos_tf.models import arguments
from relpos_tf.models import transformer
from relpos_tf.utils import text

# Rows of the tables of absolute positions, which CTranslate2 cannot extend:
# more than the length of any sentence, and a few megabytes.
MAX_POSITIONS = 4096
_CANNOT = "CTranslate2 cannot run this model exactly: "


def token_names(pieces: Iterable[str]) -> list[str]:
    """Returns a different name for each piece; no name is empty.

    A piece is its own name, unless it is empty or not unique.

    Example:
    >>> token_names(["<pad>", "</s>", "a", "", "a"])
    ['<pad>', '</s>', 'a<2>', '<3>', 'a<4>']
    """
    pieces = list(pieces)
    counts = collections.Counter(pieces)
    names = []
    for i, piece in enumerate(pieces):
        if not piece or counts[piece] > 1:
            piece += f"<{i}>"
            while piece in counts:
                piece += "_"
            counts[piece] += 1
        names.append(piece)
    return names


def max_positions(model: transformer.Transformer) -> int | None:
    """Returns the rows of the position tables, or None without tables."""
    stacks = [own for own in _stacks(model.hparams) if not _is_relative(own)]
    if not stacks:
        return None
    has_learned = any(own.pos == "emb" for own in stacks)
    return max(MAX_POSITIONS, model.hparams.max_length if has_learned else 0)


def check(hparams: hparam.HParams) -> None:
    """Raises UserError with the reason if CTranslate2 cannot be exact."""
    schemes = (
        *arguments.encoder_positions(hparams)[0],
        *arguments.decoder_positions(hparams)[0],
    )
    reasons = [scheme.why_not_ctranslate2() for scheme in schemes]
    reasons += [
        "it leaves out absolute positions where there are relative ones "
        f"(pos={own.pos})"
        for own in _stacks(hparams)
        if _is_relative(own) and own.pos != "none"
    ]
    before = hparams.layer_preprocess_sequence == "n"
    after = hparams.layer_postprocess_sequence == "dan"
    if before == after:
        number = "two norms" if before else "no norm"
        reasons.append(
            f"it needs one layer norm around each sublayer, and this has "
            f"{number} (layer_preprocess_sequence="
            f"{hparams.layer_preprocess_sequence}, layer_postprocess_sequence="
            f"{hparams.layer_postprocess_sequence})"
        )
    if reason := next(filter(None, reasons), None):
        raise errors.UserError(f"{_CANNOT}{reason}. Export a SavedModel.")


def model_spec(model: transformer.Transformer, tokens: list[str]) -> Any:
    """Returns a `ctranslate2.specs.TransformerSpec` with a model's weights.

    Args:
        model: The model.
        tokens: The name of each id; V of them.

    Raises:
        UserError: CTranslate2 cannot compute the same as the model.
    """
    hparams = model.hparams
    check(hparams)
    spec = _empty_spec(hparams)
    config = spec.config
    config.layer_norm_epsilon = hparams.norm_epsilon
    config.add_source_eos = True
    config.eos_token = tokens[text.EOS_ID]
    # A target begins with id 0. CTranslate2 requires an unknown token, but
    # the tokenizer never produces one.
    config.bos_token = config.decoder_start_token = tokens[text.PAD_ID]
    config.unk_token = tokens[text.PAD_ID]
    _set_tables(spec, model)
    _set_positions(spec, model)
    for part, blocks, norm, own in zip(
        (spec.encoder, spec.decoder),
        (model.encoder_blocks, model.decoder_blocks),
        (model.encoder_norm, model.decoder_norm),
        _stacks(hparams),
        strict=True,
    ):
        for layer, block in zip(part.layer, blocks, strict=True):
            _set_block(layer, block)
            _set_relative(
                layer.self_attention,
                block.self_attention,
                own.max_relative_position,
            )
            _set_bias(layer.self_attention, block.self_attention)
        if norm is not None:
            _set_norm(part.layer_norm, norm)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    return spec


def _stacks(hparams):
    """Returns the hparams of the encoder and those of the decoder."""
    return hparams, hparams.of_decoder()


def _empty_spec(hparams):
    """Returns a `TransformerSpec` without weights."""
    specs = ctranslate2_engine.package().specs
    kinds = specs.TransformerEncoderSpec, specs.TransformerDecoderSpec
    layers = hparams.encoder_layers, hparams.decoder_layers
    return specs.TransformerSpec(
        *(
            kind(
                number,
                hparams.num_heads,
                pre_norm=hparams.layer_preprocess_sequence == "n",
                activation=specs.Activation.RELU,
                relative_position=_has_tables(own),
                relative_attention_bias=_has_bias(own),
                # 0: all channels of a head.
                rotary_dim=0 if _is_rotary(own) else None,
                rotary_base=rotary.MAX_TIMESCALE,
            )
            for kind, number, own in zip(
                kinds, layers, _stacks(hparams), strict=True
            )
        )
    )


def _has_tables(hparams):
    """Returns whether the keys have vectors of relative positions."""
    return hparams.is_relative and hparams.add_relative_to_keys


def _has_bias(hparams):
    """Returns whether the logits have the bias of T5."""
    return hparams.self_attention_type == "dot_product_relative_bias"


def _is_rotary(hparams):
    """Returns whether queries and keys are rotated."""
    return hparams.self_attention_type == "dot_product_rotary"


def _is_relative(hparams):
    """Returns whether CTranslate2 has relative positions, of any length."""
    return any(f(hparams) for f in (_has_tables, _has_bias, _is_rotary))


def _array(weight) -> np.ndarray:
    """Returns a copy, because quantisation changes arrays in place."""
    return weight.numpy().astype(np.float32)


def _set_tables(spec, model):
    """Sets the three tables, each [V, F]; equal tables are stored once."""
    target = _array(model.target_embedding.embeddings)
    source = _array(model.source_embedding.embeddings)
    if model.target_space is not None:
        # The model adds the row to source vectors that are already multiplied
        # by sqrt(F); CTranslate2 multiplies the sum.
        row = _array(model.target_space.embeddings)[model.target_space.space_id]
        source += row / np.float32(model.hparams.hidden_size**0.5)
    # Id 0 has the zero vector as an input, but its own row for the logit, so
    # a shared table becomes two.
    for table in (source, target):
        table[text.PAD_ID] = 0.0
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = _array(model.softmax_embedding.embeddings)


def _set_positions(spec, model):
    """Sets the tables of absolute positions, [P, F], if a stack has any."""
    positions = np.arange(max_positions(model) or 0)
    for part, learned, own in zip(
        (spec.encoder, spec.decoder),
        (model.source_positions, model.target_positions),
        _stacks(model.hparams),
        strict=True,
    ):
        if _is_relative(own):
            continue
        if learned is not None:
            rows = np.minimum(positions, learned.max_length - 1)
            table = _array(learned.embeddings)[rows]
        elif own.pos == "timing":
            table = embeddings.timing_signal(
                tf.constant(positions), model.hparams.hidden_size
            ).numpy()
        else:  # CTranslate2 adds sinusoids unless there is a table
            shape = positions.size, model.hparams.hidden_size
            table = np.zeros(shape, np.float32)
        part.position_encodings.encodings = table


def _set_block(layer, block):
    """Sets one layer of the encoder or the decoder."""
    _set_attention(
        layer.self_attention, block.self_attention, (("q", "k", "v"),)
    )
    _set_norm(layer.self_attention.layer_norm, block.self_attention_residual)
    if hasattr(layer, "attention"):
        _set_attention(
            layer.attention, block.encdec_attention, (("q",), ("k", "v"))
        )
        _set_norm(layer.attention.layer_norm, block.encdec_attention_residual)
    for linear, dense in (
        (layer.ffn.linear_0, block.ffn.conv1),
        (layer.ffn.linear_1, block.ffn.conv2),
    ):
        linear.weight = _array(dense.kernel).T.copy()
        linear.bias = _array(dense.bias)
    _set_norm(layer.ffn.layer_norm, block.ffn_residual)


def _set_attention(spec, layer, groups):
    """Sets the projections; those of a group are stacked, [.., F]."""
    for linear, names in zip(
        spec.linear, (*groups, ("output_transform",)), strict=True
    ):
        linear.weight = np.concatenate(
            [_array(getattr(layer, name).kernel).T for name in names]
        )


def _set_relative(spec, layer, left):
    """Sets the tables of relative positions, [R, D]; row `left` is distance 0.

    CTranslate2 clips keys before and after a query at one distance.
    """
    found = shaw.tables_of(layer)
    if "keys" not in found:
        return
    spec.relative_position_keys = shaw.symmetric(_shared(found["keys"]), left)
    # CTranslate2 adds nothing to the values without a table.
    spec.relative_position_values = "__optional"
    if "values" in found:
        spec.relative_position_values = shaw.symmetric(
            _shared(found["values"]), left
        )


def _set_bias(spec, layer):
    """Sets the bias of T5, [R, H], which all layers of a stack share."""
    for one in layer.positions:
        if isinstance(one, bucketed.Bucketed):
            spec.relative_attention_bias = _array(one.shared["table"])
            spec.relative_attention_max_distance = np.int32(one.max_distance)


def _shared(weight) -> np.ndarray:
    """Returns the table of all heads, [R, D]."""
    table = _array(weight)  # [R, D] or [H, R, D]
    if table.ndim == 2:
        return table
    if np.any(table != table[0]):
        raise errors.UserError(
            f"{_CANNOT}its heads share the tables of relative positions, and "
            "here each has its own (heads_share_relative_embedding=false). "
            "Export a SavedModel."
        )
    return table[0]


def _set_norm(spec, norm):
    """Sets a layer norm from a `LayerNorm`, or from a `Residual` with one."""
    norm = getattr(norm, "before_norm", None) or getattr(
        norm, "after_norm", norm
    )
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta)
