"""A model as a folder that CTranslate2 loads: tokens in, tokens out.

Tokens are the pieces of the tokenizer; see `ctranslate2_spec.token_names`. The
folder configures CTranslate2 to add EOS to the source and to begin a target
with id 0.
"""

import pathlib
from typing import Any

from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import model_engine
from relpos_tf.export import ctranslate2_spec
from relpos_tf.export import folders
from relpos_tf.export import formats


def export_ctranslate2(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    *,
    quantization: str = "none",
    **search: Any,
) -> pathlib.Path:
    """Writes a folder for `ctranslate2.Translator`, whole or not at all.

    The folder also holds the tokenizer's file and `export_info.json`, which
    describes the export. Its field `max_positions` is the largest number of
    source or target ids, or null for any number.

    Args:
        run_dir_or_checkpoint: A run's directory, or a checkpoint, see
            `checkpoints.candidates`.
        export_dir: Folder to write. An earlier export there is replaced.
        quantization: str. See `formats.ALL`; "none" keeps float32.
        **search: See `folders.load`; the defaults of the loaded `Translator`.

    Returns:
        `export_dir`.

    Raises:
        UserError: CTranslate2 is not installed or cannot compute the same as
            the model, the run is not complete, a setting is impossible, or
            `export_dir` holds something else.
    """
    export_dir = folders.check(export_dir)
    formats.check_quantization("ctranslate2", quantization)
    library = ctranslate2_engine.package()
    engine, decode_hparams = folders.load(run_dir_or_checkpoint, **search)
    spec = make_spec(engine, quantization)
    info = {
        "format": ctranslate2_engine.FORMAT,
        "requires": ["ctranslate2"],
        "quantization": quantization,
        "max_positions": ctranslate2_spec.max_positions(engine.model),
        "versions": {"ctranslate2": library.__version__},
    }
    with folders.replacing(export_dir, engine, decode_hparams, info) as partial:
        spec.save(str(partial))
    return export_dir


def make_spec(engine: model_engine.ModelEngine, quantization: str) -> Any:
    """Returns the `ctranslate2.specs.TransformerSpec` of a model.

    Args:
        engine: The model and its tokenizer.
        quantization: str. See `formats.ALL`.

    Raises:
        UserError: CTranslate2 cannot compute the same as the model.
    """
    spec = ctranslate2_spec.model_spec(
        engine.model, ctranslate2_spec.token_names(engine.tokenizer.pieces())
    )
    spec.optimize(None if quantization == "none" else quantization)
    return spec
