"""Translates the hparams of tensor2tensor to `HParams`. No TensorFlow.

The `hparams.json` of a trained model determines the meaning of its variables.
A model of an unsupported kind is refused. A setting of training without a
counterpart is left out with a note.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf.utils import files

_SCHEDULE_FACTORS = {*hparam.SCHEDULE_FACTORS} - {"noam", "legacy"}
# The fields that are copied, with their values if an older version of
# tensor2tensor did not write them.
_MODEL = {
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "norm_epsilon": 1e-6,
    "use_target_space_embedding": True,
}
_TRAINING = {
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "symbol_dropout": 0.0,
    "label_smoothing": 0.1,
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.999,
    "optimizer_adam_epsilon": 1e-9,
    "learning_rate": 0.1,
    "learning_rate_constant": 1.0,
    "learning_rate_warmup_steps": 8000,
    "clip_grad_norm": 0.0,
    "batch_size": 4096,
    "min_length_bucket": 8,
    "length_bucket_step": 1.1,
}
# Further numbers, which may be null.
_OPTIONAL = ("vocab_divisor", "optimizer_multistep_accumulate_steps")
# The supported values of a field, first the value of a missing field.
_SUPPORTED = {
    "self_attention_type": ("dot_product", "dot_product_relative"),
    # The second is an older name of the first.
    "ffn_layer": ("dense_relu_dense", "conv_hidden_relu"),
    "norm_type": ("layer",),
    "multiply_embedding_mode": ("sqrt_depth",),
    "layer_preprocess_sequence": ("none", "n", ""),
    "layer_postprocess_sequence": ("dan", "da"),
    "pos": ("timing", "emb", None, "none", ""),
    "attention_variables_3d": (False,),
    "causal_decoder_self_attention": (True,),
    "unidirectional_encoder": (False,),
    "proximity_bias": (False,),
    "prepend_mode": ("none",),
    "hard_attention_k": (0,),
    "num_area_layers": (0,),
}
# The names of supported optimizers.
_OPTIMIZERS = ("adam", "Adam", "true_adam", "TrueAdam")
_MULTISTEP = ("multistep_adam", "MultistepAdam")


def read(path: pathlib.Path) -> dict[str, Any]:
    """Reads the hparams.json of tensor2tensor.

    Raises:
        UserError: the file is missing or damaged, or the model is of an
            unsupported kind; the message names it.
    """
    try:
        values = json.loads(files.regular(path).read_bytes())
    except OSError as error:
        raise errors.UserError(
            "Expected a folder of tensor2tensor with hparams.json, which its "
            f"trainer writes. Received: {path.parent} ({error.strerror})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise errors.UserError(f"{path} is not JSON: {error}.") from error
    if not isinstance(values, dict) or "hidden_size" not in values:
        raise errors.UserError(
            "Expected tensor2tensor's hparams, a JSON object with hidden_size "
            f"and more. Received: {path}, which is something else."
        )
    for name in values.keys() & {*_MODEL, *_TRAINING, *_OPTIONAL}:
        fields.check_value(
            f"{name} in {path}",
            values[name],
            bool | float | None if name in _OPTIONAL else bool | float,
            fields.Number(-fields.LARGEST_INT, fields.LARGEST_INT),
        )
    _check_supported(values)
    return values


def translate(
    t2t: Mapping[str, Any], vocab_size: int, target_space_id: int = 0
) -> tuple[hparam.HParams, list[str]]:
    """Returns the `HParams` of a model of tensor2tensor.

    Args:
        t2t: The hparams of tensor2tensor, as `read` returns them.
        vocab_size: int. The rows of the embeddings.
        target_space_id: int. The target space of the problem.

    Returns:
        The hparams; and a sentence for each setting of training without a
        counterpart.

    Raises:
        UserError: the model is relative without a distance, or has no
            embedding of the target space that is given.
    """
    notes: list[str] = []
    is_relative = t2t.get("self_attention_type") == "dot_product_relative"
    tied = t2t.get("shared_embedding_and_softmax_weights", False)
    values: dict[str, Any] = {
        name: type(default)(t2t.get(name, default))
        for name, default in _MODEL.items()
    }
    values |= _training(t2t, notes)
    values |= {
        "vocab_size": vocab_size,
        "target_space_id": target_space_id,
        "pos": t2t.get("pos", "timing") or "none",
        "self_attention_type": t2t.get("self_attention_type", "dot_product"),
        "layer_preprocess_sequence": (
            t2t.get("layer_preprocess_sequence") or "none"
        ),
        "layer_postprocess_sequence": t2t.get(
            "layer_postprocess_sequence", "dan"
        ),
        # One table for all, one for source and target, or three.
        "shared_embedding": tied or t2t.get("shared_embedding", False),
        "shared_embedding_and_softmax_weights": tied,
        # The relative attention of tensor2tensor always shares tables and
        # always has values; heads_share_relative_embedding and
        # add_relative_to_values do not change that.
        "heads_share_relative_embedding": is_relative,
        "max_length": t2t.get("max_length") or t2t.get("batch_size", 4096),
        "extra_length": 100,
        "train_steps": 250_000,
    }
    if is_relative:
        values["max_relative_position"] = k = t2t.get(
            "max_relative_position", 0
        )
        if not k:
            raise errors.UserError(
                "Expected a relative model with max_relative_position above 0, "
                f"as tensor2tensor itself does. Received: {k}."
            )
    made = hparam.HParams().replace(**values)
    if target_space_id:
        fields.check_effect(["target_space_id"], [made])
    return made, notes


def _check_supported(t2t: Mapping[str, Any]) -> None:
    """Raises UserError if a model is of an unsupported kind."""
    for name, supported in _SUPPORTED.items():
        value = t2t.get(name, supported[0])
        if value not in supported:
            known = ", ".join(str(choice) for choice in supported if choice)
            raise errors.UserError(
                f"This model has {name}={value}, which is not supported. "
                f"Expected: {known or supported[0]}."
            )
    hidden_size = t2t["hidden_size"]
    for name in ("attention_key_channels", "attention_value_channels"):
        if t2t.get(name, 0) not in (0, hidden_size):
            raise errors.UserError(
                f"This model has {name}={t2t[name]}, which is not supported. "
                f"Expected: 0, or hidden_size={hidden_size}."
            )


def _training(t2t: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Returns the settings of training that have a counterpart."""
    values = {}
    for name, default in _TRAINING.items():
        value = type(default)(t2t.get(name, default))
        try:
            hparam.HParams().replace(**{name: value})
        except errors.UserError:
            notes.append(
                f"{name}={value} is not possible here; further training would "
                f"use {getattr(hparam.HParams(), name)}."
            )
        else:
            values[name] = value
    if decay := t2t.get("weight_decay", 0.0):
        notes.append(
            f"weight_decay={decay} was a loss on the squares of the weights, "
            "which is not supported; further training would use no decay."
        )
    if values.get("symbol_dropout"):
        notes.append(
            "The attention of tensor2tensor does not see source symbols that "
            "symbol_dropout drops; here attention still sees their positions."
        )
    optimizer = t2t.get("optimizer", "adam")
    if optimizer in _MULTISTEP:
        name = "optimizer_multistep_accumulate_steps"
        values[name] = t2t.get(name) or 0
        if values[name] > 1:
            notes.append(
                f"A step in tensor2tensor was a batch, with {values[name]} "
                "batches to an update; here a step is an update."
            )
    else:
        is_known = optimizer in _OPTIMIZERS
        _supported("optimizer", optimizer, is_known, "Adam", notes)
    schedule = t2t.get("learning_rate_schedule", "legacy")
    scheme = t2t.get("learning_rate_decay_scheme", "noam")
    if schedule == "legacy" and scheme != "noam":
        schedule = f"legacy ({scheme})"
    factors = set(str(schedule).split("*"))
    is_known = schedule == "legacy" or factors <= _SCHEDULE_FACTORS
    values["learning_rate_schedule"] = _supported(
        "learning-rate schedule", schedule, is_known, "noam", notes
    )
    dtype = t2t.get("activation_dtype", "float32")
    is_known = dtype in ("float32", "bfloat16")
    values["activation_dtype"] = _supported(
        "activation_dtype", dtype, is_known, "float32", notes
    )
    return values


def _supported(
    what: str, value: Any, is_known: bool, other: str, notes: list[str]
) -> Any:
    """Returns a setting of training, or with a note the one in its place."""
    if is_known:
        return value
    notes.append(
        f"The {what} {value} is not supported; further training would use "
        f"{other}."
    )
    return other
