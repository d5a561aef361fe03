"""A model and its tokenizer as a SavedModel: text in, text out.

Shapes: N lines, S source length, B beams, T target length.

It needs `tensorflow` and `tensorflow_text` to load, and nothing of this
package. docs/serving.md says how to run it.
"""

import contextlib
import logging
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import saved_model_engine
from relpos_tf.decoding import search
from relpos_tf.export import serving_warmup
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.utils import checked_json
from relpos_tf.utils import paths

_log = logging.getLogger("relpos_tf")

_LINES = tf.TensorSpec([None], tf.string, "inputs")
# What export_info.json says of the signatures, in the letters from above.
_OUTPUTS = {
    "outputs": "string [N]: the best translation of each line",
    "scores": "float32 [N]: its log-probability / length penalty",
    "beam_outputs": "string [N, B]: all translations found, best first",
    "beam_scores": "float32 [N, B]: theirs",
}
_SIGNATURES = {
    "serving_default": _OUTPUTS,
    "details": {
        **_OUTPUTS,
        "is_complete": "bool [N]: false where the length limit cut the best "
        "translation off",
    },
}
_USAGE = """\
import tensorflow as tf
import tensorflow_text  # the tokenizer's operations
translate = tf.saved_model.load(folder).signatures["serving_default"]
print(translate(inputs=tf.constant(["A line."]))["outputs"].numpy())
"""


class TextTranslator(tf.Module):
    """What the SavedModel holds.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer` of as many pieces.
        settings: `DecodeHParams` without None; part of the graph.
    """

    def __init__(
        self,
        model: transformer.Transformer,
        tokenizer: tokenizer_lib.AnyTokenizer,
        settings: decode_hparam.DecodeHParams,
    ):
        super().__init__(name="text_translator")
        # The model itself must not be tracked: the SavedModel would then not
        # load with TensorFlow 1's loader. Names with a leading underscore are
        # not tracked only if they hold nothing trackable, hence the lambdas.
        self._search = lambda inputs, limits: search.search(
            model,
            inputs,
            limits,
            beam_size=settings.beam_size,
            alpha=settings.alpha,
            n_best=settings.beam_size,
        )
        self._encode = tokenizer.encode_tf
        self._decode = tokenizer.decode_tf
        self._settings = settings
        self.weights = [variable.value for variable in model.variables]
        self.tokenizer = tokenizer.graph_tokenizer

    @tf.function(input_signature=[_LINES])
    def count_ids(self, lines):
        """Returns how many ids each line has, EOS included: int32 `[N]`."""
        with tf.device("CPU"):
            ids = self._encode(stripped(lines))
            return tf.cast(ids.row_lengths(), tf.int32)

    @tf.function(input_signature=[_LINES])
    def translate(self, inputs):
        """Translates lines.

        Args:
            inputs: string `[N]`.

        Returns:
            dict: `outputs`, string `[N]`, and `scores`, float32 `[N]`, of the
            best translations; `beam_outputs`, string `[N, B]`, and
            `beam_scores`, float32 `[N, B]`, of all, best first.
        """
        # A call, so that the SavedModel holds the search once.
        found = self.details(inputs)
        return {name: found[name] for name in _OUTPUTS}

    @tf.function(input_signature=[_LINES])
    def details(self, inputs):
        """Translates lines, and says which translations are whole.

        Args:
            inputs: string `[N]`.

        Returns:
            dict: as from `translate`, and `is_complete`, bool `[N]`, False
            where the length limit cut the best translation off.
        """
        # The tokenizer's kernels exist for the CPU only.
        with tf.device("CPU"):
            lines = stripped(inputs)
            ids = self._encode(lines)
            sizes = tf.cast(ids.row_lengths(), tf.int32)  # [N]
            limits = sizes + self._settings.extra_length
            limits = tf.where(lines == "", 0, limits)  # [N]
            # Attention needs a position, also where there is no line.
            ids = ids.to_tensor(0)  # [N, S]
            ids = tf.pad(
                ids, [[0, 0], [0, tf.cast(tf.size(ids) == 0, tf.int32)]]
            )
        found, scores = self._search(ids, limits)  # [N, B, T], [N, B]
        ends = tf.reduce_any(found[:, 0] == tokenizer_lib.EOS_ID, axis=1)  # [N]
        with tf.device("CPU"):
            # Not -1: where T = 0, it could stand for any number.
            n, b, t = tf.unstack(tf.shape(found))
            texts = self._decode(tf.reshape(found, [n * b, t]))  # [N * B]
            texts = tf.strings.regex_replace(texts, engines.LINE_END, " ")
            texts = tf.reshape(texts, tf.shape(scores))  # [N, B]
        return {
            "outputs": texts[:, 0],
            "scores": scores[:, 0],
            "beam_outputs": texts,
            "beam_scores": scores,
            "is_complete": ends | (limits == 0),
        }


def stripped(lines: tf.Tensor) -> tf.Tensor:
    """Returns lines, string `[N]`, without blanks at their ends.

    Bytes that are not UTF-8 become U+FFFD, as in Python.
    """
    valid = tf.strings.unicode_transcode(
        lines, "UTF-8", "UTF-8", replace_control_characters=False
    )
    blanks = f"^{engines.BLANK}|{engines.BLANK}$"
    return tf.strings.regex_replace(valid, blanks, "")


def export_saved_model(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    beam_size: int | None = None,
    alpha: float | None = None,
    extra_length: int | None = None,
    warmup_lines: Sequence[str] | None = None,
) -> pathlib.Path:
    """Writes a SavedModel, whole or not at all.

    Its signatures map `inputs` to what methods of `TextTranslator` return:
    `serving_default` is `translate`, `details` is `details`.
    `export_info.json` in the same folder says what it was made of.

    Args:
        run_dir_or_checkpoint: A run's directory, for its newest checkpoint,
            or the prefix of a checkpoint.
        export_dir: Folder to write. An export that is there is replaced.
        beam_size: int. None here and below: the value in the hparams that the
            model was trained with.
        alpha: float. Of the length penalty.
        extra_length: int. How many ids more than its source a translation may
            have.
        warmup_lines: Texts like those to come, for TensorFlow Serving to warm
            up with. None: lines made of the vocabulary; an empty list: no
            warm-up.

    Returns:
        `export_dir`.

    Raises:
        UserError: the run is not complete, a setting is impossible, or
            `export_dir` holds something else.
    """
    export_dir = pathlib.Path(export_dir)
    check_replaceable(export_dir)
    serving_warmup.check(warmup_lines or [])
    prefix = checkpoints.resolve(run_dir_or_checkpoint)
    engine = engines.ModelEngine(
        loading.load_model(prefix), loading.load_tokenizer(prefix)
    )
    settings = engine.settings(
        decode_hparam.DecodeHParams(beam_size, alpha, extra_length)
    )
    module = TextTranslator(engine.model, engine.tokenizer, settings)
    if warmup_lines is None:
        warmup_lines = serving_warmup.sample_lines(engine.tokenizer)
    with new_folder(export_dir) as partial:
        tf.saved_model.save(
            module,
            str(partial),
            signatures={
                "serving_default": module.translate,
                "details": module.details,
            },
        )
        serving_warmup.write(partial, warmup_lines)
        info = describe(engine, settings, prefix)
        info["files"] = saved_model_engine.file_checksums(partial)
        (partial / engines.EXPORT_INFO).write_text(
            checked_json.dumps(info), encoding="utf-8"
        )
    if not paths.is_plain(export_dir.absolute()):
        _log.warning(
            "TensorFlow takes * ? [ and \\ in a name for a pattern: rename %s "
            "before other programs load it.",
            export_dir,
        )
    return export_dir


def describe(
    engine: engines.ModelEngine,
    settings: decode_hparam.DecodeHParams,
    prefix: str | pathlib.Path,
) -> dict[str, Any]:
    """Returns what export_info.json says, to a person with only the folder.

    Args:
        engine: What is exported.
        settings: As they are made part of the graph.
        prefix: Of the checkpoint.
    """
    run = loading.run_of(prefix)
    problem = run.read_problem()  # {} if it was imported
    return {
        "format": "saved_model",
        "requires": ["tensorflow", "tensorflow_text"],
        "versions": run_dir.versions(),
        "usage": _USAGE.splitlines(),
        "signatures": {
            name: {
                "inputs": {"inputs": "string [N]: lines"},
                "outputs": outputs,
            }
            for name, outputs in _SIGNATURES.items()
        },
        "decode_hparams": settings.search_settings(),
        "problem": problem.get("problem"),
        "source_language": problem.get("source_language"),
        "target_language": problem.get("target_language"),
        "tokenizer": pathlib.Path(run.tokenizer_path).name,
        "tokenizer_sha256": engine.tokenizer.fingerprint,
        "checkpoint": str(prefix),
        "parameters": sum(math.prod(v.shape) for v in engine.model.variables),
        "hparams": engine.model.hparams.to_dict(),
    }


def check_replaceable(export_dir: pathlib.Path) -> None:
    """Raises UserError if a folder holds anything but an export.

    Or if it could not be written in the end.
    """
    paths.check_folder(export_dir)
    paths.check_folder(export_dir.parent)  # where it gets its name
    if export_dir.is_dir():
        is_export = (export_dir / engines.EXPORT_INFO).is_file()
        if is_export or not any(export_dir.iterdir()):
            return
    elif not export_dir.exists():
        return
    raise errors.UserError(
        "Expected a new folder, or an earlier export to replace. "
        f"Received: {export_dir}, which is something else."
    )


@contextlib.contextmanager
def new_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to write, which replaces `target` if all goes well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # A part of the name: a longer one may be too long for a file system.
    partial = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    )
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp lets nobody else in
        replace_folder(target, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def replace_folder(target: pathlib.Path, source: pathlib.Path) -> None:
    """Renames `source` to `target`, and removes what was there."""
    old = source.with_name(f"{source.name}.old")
    if target.exists():
        os.rename(target, old)
    os.rename(source, target)
    shutil.rmtree(old, ignore_errors=True)
