"""The formats of exports, and what each takes. No TensorFlow."""

import importlib
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam

# It writes bfloat16 by PyTorch alone.
_OF_CTRANSLATE2 = "none int8 int8_float32 int8_float16 int16 float16".split()
_CTRANSLATE2 = "ctranslate2", "an export for CTranslate2", "ctranslate2"


class Format(NamedTuple):
    """A format, whose function `export_NAME` writes it.

    Attributes:
        module: str. The function's, in this room.
        options: The names of the function's options.
        quantizations: The ways to store the weights, if it has the option
            `quantization`; "none" keeps float32.
        needs: What `extras.check` takes, if it needs an extra.
    """

    module: str
    options: Sequence[str]
    quantizations: Sequence[str] = ()
    needs: Sequence[str] = ()


ALL = {
    "saved_model": Format("saved_model", decode_hparam.EXPORTED),
    "ctranslate2": Format(
        "ctranslate2_export",
        (*decode_hparam.EXPORTED, "quantization"),
        _OF_CTRANSLATE2,
        _CTRANSLATE2,
    ),
    # It computes in float32 with float16 weights, and multiplies int8 weights
    # with inputs that it rounds to int8 as it goes.
    "litert": Format(
        "litert_export",
        (*decode_hparam.EXPORTED, "quantization"),
        "none int8 float16".split(),
        ("litert", "an export for LiteRT", "ai_edge_litert"),
    ),
    # A package cannot change its search.
    "argos": Format(
        "argos_export",
        ("quantization", "language_pair"),
        _OF_CTRANSLATE2,
        _CTRANSLATE2,
    ),
}


def with_option(option: str) -> str:
    """Returns the condition of the flags on formats with an option."""
    return "format=" + "|".join(
        n for n, x in ALL.items() if option in x.options
    )


def check_quantization(name: str, quantization: str) -> None:
    """Raises UserError unless a format can store weights so."""
    known = ALL[name].quantizations
    if quantization not in known:
        raise errors.UserError(
            f"`quantization` must be one of {', '.join(known)} for the format "
            f"{name}. Received: {quantization!r}."
        )


def export(
    name: str,
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    **options: Any,
) -> pathlib.Path:
    """Writes an export; imports TensorFlow.

    Args:
        name: str. The format.
        run_dir_or_checkpoint: See `checkpoints.candidates`.
        export_dir: The folder to write.
        **options: Of any format; those of the others are left out.

    Returns:
        What was written.
    """
    one = ALL[name]
    module = importlib.import_module(f"{__package__}.{one.module}")
    kept = {option: options[option] for option in one.options}
    function = getattr(module, f"export_{name}")
    return function(run_dir_or_checkpoint, export_dir, **kept)
