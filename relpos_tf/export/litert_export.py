"""A model as a folder for LiteRT: ids in, ids and scores out.

LiteRT, formerly TensorFlow Lite, runs on phones. Its runtime there has builtin
operations only, so a model that needs others is refused. Strings stay outside:
the folder has the tokenizer's file, which SentencePiece reads on every device.

Shapes: N beams, S source length, T target length.
"""

import pathlib
import re
import tempfile
from importlib import metadata
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import convert_phase

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import litert_engine
from relpos_tf.decoding import search as search_lib
from relpos_tf.export import folders
from relpos_tf.export import formats
from relpos_tf.layers import row_blocks
from relpos_tf.models import transformer
from relpos_tf.utils import graphs
from relpos_tf.utils import text

_IDS = (
    tf.TensorSpec([1, None], tf.int32, "inputs"),
    tf.TensorSpec([1], tf.int32, "limits"),
)
_OLDEST = {"int8": "ai-edge-litert 1.3"}  # that has FULLY_CONNECTED 12
# Ids of the sentences with which a converted model is compared.
_SIZES = (2, 9)
# LiteRT adds in another order; scores of equal translations differ by 1e-5.
_TOLERANCE = 1e-3


class IdTranslator(tf.Module):
    """The module that is converted: search and model.

    Args:
        model: `transformer.Transformer`, with the implementation "reshape" of
            relative attention.
        decode_hparams: Constants of the graph.

    Attributes:
        best: Function of ids and limits that returns the best translation:
            `ids`, `[1, 1, T]`, and `scores`, `[1, 1]`.
        n_best: The same of all N translations.
    """

    def __init__(
        self,
        model: transformer.Transformer,
        decode_hparams: decode_hparam.Completed,
    ):
        super().__init__(name="id_translator")
        self._beam_size = decode_hparams.beam_size
        self.weights = [variable.value for variable in model.variables]

        # The converter fails on a Keras model, so this function hides it.
        def function(n_best):
            def find(inputs, limits):
                with row_blocks.whole():
                    ids, scores = search_lib.search(
                        model,
                        inputs,
                        limits,
                        max_length=limits[0],
                        beam_size=decode_hparams.beam_size,
                        alpha=decode_hparams.alpha,
                        n_best=n_best,
                    )
                return {"ids": ids, "scores": scores}

            return graphs.function(find, input_signature=_IDS)

        self.best, self.n_best = function(1), function(self._beam_size)

    def signatures(self) -> dict[str, Any]:
        """Returns the functions to convert, by the names of the engine."""
        if self._beam_size == 1:
            return {litert_engine.BEST: self.best}
        return {litert_engine.BEST: self.best, litert_engine.ALL: self.n_best}


def export_litert(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    *,
    quantization: str = "none",
    **search: Any,
) -> pathlib.Path:
    """Writes a folder for LiteRT, whole or not at all.

    The folder has `model.tflite`, the tokenizer's file, and
    `export_info.json`, which describes the model and the settings.

    Args:
        run_dir_or_checkpoint: A run's directory, or a checkpoint, see
            `checkpoints.candidates`.
        export_dir: Folder to write. An earlier export there is replaced.
        quantization: str. See `formats.ALL`; "none" keeps float32.
        **search: See `folders.load`. `beam_size` and `alpha` become part of
            the model.

    Returns:
        `export_dir`.

    Raises:
        UserError: LiteRT is not installed or has no operation for the model,
            the run is not complete, a setting is impossible, or `export_dir`
            holds something else.
    """
    export_dir = folders.check(export_dir)
    formats.check_quantization("litert", quantization)
    litert_engine.package()
    engine, decode_hparams = folders.load(run_dir_or_checkpoint, **search)
    module = IdTranslator(with_lookups(engine.model), decode_hparams)
    content = convert(module, quantization)
    if quantization == "none":
        check_equal(module, content, engine.model.hparams.vocab_size)
    info = {
        "format": litert_engine.FORMAT,
        "requires": ["ai_edge_litert", "sentencepiece"],
        "oldest_runtime": _OLDEST.get(quantization, "tflite-runtime 2.14"),
        "versions": {"ai-edge-litert": metadata.version("ai-edge-litert")},
        "quantization": quantization,
    }
    with folders.replacing(export_dir, engine, decode_hparams, info) as partial:
        (partial / litert_engine.MODEL).write_bytes(content)
    return export_dir


def with_lookups(model: transformer.Transformer) -> transformer.Transformer:
    """Returns a model that looks up the vectors of relative positions.

    LiteRT has no operations for the diagonals of the compact form.
    """
    hparams = model.hparams.replace(relative_attention_implementation="reshape")
    same = transformer.Transformer(hparams)
    for new, old in zip(same.variables, model.variables, strict=True):
        new.assign(old)
    return same


def convert(module: IdTranslator, quantization: str = "none") -> bytes:
    """Returns the file's content of a model for LiteRT.

    Args:
        module: The model.
        quantization: str. See `formats.ALL`.

    Raises:
        UserError: LiteRT has no builtin operation for a part of the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        signatures = module.signatures()
        tf.saved_model.save(module, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=list(signatures)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if quantization != "none":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantization == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            content = converter.convert()
        except convert_phase.ConverterError as error:
            raise errors.UserError(
                "LiteRT has no builtin operation for a part of this "
                f"model: {reason_of(error)}. Export a SavedModel."
            ) from error
    return content


def reason_of(error: Exception) -> str:
    """Returns the operations that a message of the converter complains of."""
    found = re.findall(r"'tf\.(\w+)' op is neither", str(error))
    if not found:
        return " ".join(str(error).split())[:300]
    return f"TensorFlow's {', '.join(sorted(set(found)))}"


def check_equal(module: IdTranslator, content: bytes, vocab_size: int) -> None:
    """Compares what LiteRT computes with what TensorFlow computes.

    Args:
        module: The model.
        content: bytes. What `convert` made of it, in float32.
        vocab_size: int. The number of ids.

    Raises:
        UserError: LiteRT cannot run it, or computes something else.
    """
    program = litert_engine.Program(content)
    for size in _SIZES:
        first = text.EOS_ID + 1
        ids = [first + i % (vocab_size - first) for i in range(size - 1)]
        ids.append(text.EOS_ID)
        limit = size + max(_SIZES)
        wanted = module.best(tf.constant([ids]), tf.constant([limit]))
        wanted = wanted["scores"].numpy()[0]  # [1]
        try:
            _, found = program.translate(ids, limit)
        except (RuntimeError, ValueError) as error:
            raise errors.UserError(
                "LiteRT cannot run this model, although it converts. "
                f"Received: {' '.join(str(error).split())}. Export a "
                "SavedModel."
            ) from error
        if not np.allclose(found, wanted, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise errors.UserError(
                f"LiteRT computes something else: expected the score "
                f"{wanted[0]:.4f}. Received: {found[0]:.4f}. Export a "
                "SavedModel."
            )
