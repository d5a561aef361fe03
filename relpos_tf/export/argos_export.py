"""A model as a package of Argos Translate: one file that its client installs.

The client gives raw sentences to SentencePiece and the pieces to CTranslate2,
with settings that a package cannot change: 4 beams, a length penalty of 0.2,
at most 1,024 pieces of a source and 256 of a translation. Three things make it
see what training saw: CTranslate2 adds EOS, the rules in `sentencepiece.model`
remove the blanks around and between words (see `data.spelling`), and each
piece is the name of its id.
"""

import json
import pathlib
import zipfile
from typing import Any

from relpos_tf import errors
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import engine_kinds
from relpos_tf.export import ctranslate2_export
from relpos_tf.export import ctranslate2_spec
from relpos_tf.export import folders
from relpos_tf.export import formats
from relpos_tf.models import run_dir
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import languages as languages_lib
from relpos_tf.utils import paths
from relpos_tf.utils import text

# The first client whose packages look like this.
_ARGOS_VERSION = "1.9.0"


def export_argos(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    *,
    language_pair: str = "",
    quantization: str = "none",
) -> pathlib.Path:
    """Writes a package such as `translate-en_de-1_0.argosmodel`.

    Args:
        run_dir_or_checkpoint: A run's directory, or a checkpoint, see
            `checkpoints.candidates`.
        export_dir: Folder for the file. An earlier file of the same languages
            is replaced.
        language_pair: str. Codes of source and target, as "en-de". Default:
            those of the run.
        quantization: str. See `formats.ALL`; "none" keeps float32.

    Returns:
        The path of the file.

    Raises:
        UserError: CTranslate2 or Babel is not installed, CTranslate2 cannot
            compute the same as the model, the run has no SentencePiece
            vocabulary, a language is unknown, or the file cannot be written.
    """
    run = run_dir.run_of(run_dir_or_checkpoint)
    formats.check_quantization("argos", quantization)
    ctranslate2_engine.package()
    ctranslate2_spec.check(run.read_hparams())
    if pathlib.Path(run.tokenizer_path).name != run_dir.TOKENIZER:
        raise errors.UserError(
            "Argos Translate needs a SentencePiece vocabulary. Received: "
            f"{run.tokenizer_path}. Export for CTranslate2."
        )
    languages = engine_kinds.languages(run_dir_or_checkpoint)
    pair = language_pair or "-".join(languages.values())
    metadata = _metadata(pair)
    name = "translate-{from_code}_{to_code}-1_0".format(**metadata)
    path = pathlib.Path(export_dir, f"{name}.argosmodel")
    paths.check_folder(path.parent)
    engine, _ = folders.load(run_dir_or_checkpoint)
    spec = ctranslate2_export.make_spec(engine, quantization)
    # The client puts a source piece in the place of each unknown token.
    spec.config.unk_token = engine.tokenizer.pieces()[text.UNKNOWN_ID]
    with (
        files.new_folder(path) as model_dir,
        files.replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package,
    ):
        spec.save(str(model_dir))
        package.writestr(f"{name}/metadata.json", json.dumps(metadata))
        package.writestr(
            f"{name}/sentencepiece.model", engine.tokenizer.model_bytes
        )
        for one in sorted(model_dir.iterdir()):
            package.write(one, f"{name}/model/{one.name}")
    return path


def _metadata(language_pair: str) -> dict[str, Any]:
    """Returns the content of metadata.json."""
    source, _, target = language_pair.partition("-")
    names = {}
    with extras.imports("argos", "a package of Argos Translate"):
        for code in (source, target):
            names[code] = languages_lib.english_name(code)
            if names[code] is None:
                raise errors.UserError(
                    "Expected the codes of two languages, as in "
                    f"--language_pair=en-de. Received: {code!r}."
                )
    return {
        "package_version": "1.0",
        "argos_version": _ARGOS_VERSION,
        "from_code": source,
        "from_name": names[source],
        "to_code": target,
        "to_name": names[target],
    }
