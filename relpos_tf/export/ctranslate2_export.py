"""A model as a folder that CTranslate2 loads: tokens in, tokens out.

Tokens are the pieces of the tokenizer, see `ctranslate2_spec.token_names`. EOS
is added to the source, and the decoder begins with id 0, without being told.
"""

import pathlib

from relpos_tf import errors
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import saved_model_engine
from relpos_tf.export import ctranslate2_spec
from relpos_tf.export import saved_model
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.utils import checked_json

QUANTIZATIONS = (
    "none",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
)


def export_ctranslate2(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    *,
    quantization: str = "none",
    beam_size: int | None = None,
    alpha: float | None = None,
    extra_length: int | None = None,
) -> pathlib.Path:
    """Writes a folder for `ctranslate2.Translator`, whole or not at all.

    Beside the model lie the tokenizer's file and `export_info.json`, which
    says what the export was made of, and `max_positions`: how many source or
    target ids it can take, null for any number.

    Args:
        run_dir_or_checkpoint: A run's directory, for its newest checkpoint,
            or the prefix of a checkpoint.
        export_dir: Folder to write. An export that is there is replaced.
        quantization: str. One of `QUANTIZATIONS`; "none" keeps float32.
        beam_size: int. None here and below: the value in the hparams that the
            model was trained with. `Translator.load` begins with these values.
        alpha: float. Of the length penalty.
        extra_length: int. How many ids more than its source a translation may
            have.

    Returns:
        `export_dir`.

    Raises:
        UserError: CTranslate2 is not installed or cannot compute what the
            model computes, the run is not complete, a setting is impossible,
            or `export_dir` holds something else.
    """
    export_dir = pathlib.Path(export_dir)
    saved_model.check_replaceable(export_dir)
    if quantization not in QUANTIZATIONS:
        raise errors.UserError(
            f"`quantization` must be one of {', '.join(QUANTIZATIONS)}. "
            f"Received: {quantization!r}."
        )
    ctranslate2 = ctranslate2_engine.package()
    prefix = checkpoints.resolve(run_dir_or_checkpoint)
    engine = engines.ModelEngine(
        loading.load_model(prefix), loading.load_tokenizer(prefix)
    )
    settings = engine.settings(
        decode_hparam.DecodeHParams(beam_size, alpha, extra_length)
    )
    spec = ctranslate2_spec.model_spec(
        engine.model, ctranslate2_spec.token_names(engine.tokenizer.pieces())
    )
    _quantize(spec, quantization)
    info = {
        "format": ctranslate2_engine.FORMAT,
        "requires": ["ctranslate2"],
        "quantization": quantization,
        "max_positions": ctranslate2_spec.max_positions(engine.model),
        "tokenizer": pathlib.Path(loading.run_of(prefix).tokenizer_path).name,
        "decode_hparams": settings.search_settings(),
        "checkpoint": str(prefix),
        "tokenizer_sha256": engine.tokenizer.fingerprint,
        "versions": run_dir.versions()
        | {"ctranslate2": ctranslate2.__version__},
        "hparams": engine.model.hparams.to_dict(),
    }
    _write(export_dir, spec, engine.tokenizer, info)
    return export_dir


def _write(export_dir, spec, tokenizer, info):
    """Writes the folder, whole or not at all."""
    with saved_model.new_folder(export_dir) as partial:
        spec.save(str(partial))
        (partial / info["tokenizer"]).write_bytes(tokenizer.model_bytes)
        info["files"] = saved_model_engine.file_checksums(partial)
        (partial / engines.EXPORT_INFO).write_text(
            checked_json.dumps(info), encoding="utf-8"
        )


def _quantize(spec, quantization):
    try:
        spec.optimize(None if quantization == "none" else quantization)
    except RuntimeError as error:  # bfloat16 is made with PyTorch
        raise errors.UserError(
            f"CTranslate2 cannot write {quantization} here. Received: {error}."
        ) from error
