"""Scores one model: `python -m` this, with a request as JSON.

Only this part of a comparison needs TensorFlow, which never frees the memory
of models and graphs; the end of the process does.
"""

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from relpos_tf import registry
from relpos_tf.data import batches
from relpos_tf.data import token_files
from relpos_tf.decoding import loading
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import checkpoints
from relpos_tf.problems import manifest
from relpos_tf.training import evaluation
from relpos_tf.utils import files
from relpos_tf.utils import system_errors
from relpos_tf.utils import terminal
from relpos_tf.utils import text


def score(
    usr_dirs: Sequence[str],
    checkpoint: str,
    sources: dict[str, str],
    path: str,
    key: dict[str, Any],
) -> None:
    """Translates files, and computes the loss on the pairs of the first one.

    Args:
        usr_dirs: Folders of the user's registrations.
        checkpoint: str. Prefix of the checkpoint.
        sources: dict of files of lines by name, in a folder of prepared data.
        path: str. The file to write the scores to, as JSON.
        key: Identifies the scores, and is written with them.

    Raises:
        UserError: a file or the checkpoint is damaged.
    """
    for folder in usr_dirs:
        registry.import_usr_dir(folder)
    model = loading.load_model(checkpoint)
    tokenizer = loading.load_tokenizer(checkpoint)
    translator = translator_lib.Translator(model, tokenizer)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, source in sources.items():
        lines = text.read_nonempty(source)
        made[name] = [x.texts[0] for x in translator.translations(lines)]
    first = pathlib.Path(next(iter(sources.values())))
    data = manifest.read_manifest(first.parent)
    for name in token_files.names(first.stem):
        manifest.checked(first.parent, data, name)
    pairs = batches.evaluation_batches(
        token_files.TokenFile(first.parent, first.stem, data["vocab_size"]),
        model.hparams.batch_size,
    )
    record = {
        "key": key,
        "translations": made,
        "average_of": checkpoints.averaged_steps(checkpoint),
        "parameters": int(model.count_params()),
        "source_lengths": [
            len(tokenizer.encode(line.strip()))
            for line in text.read_nonempty(first)
        ],
        **evaluation.teacher_forced(model, pairs),
    }
    files.write(path, f"{json.dumps(record)}\n")


def main(request: str) -> int:
    """Runs a request, given as JSON; returns the exit code."""
    try:
        score(**json.loads(request))
    except Exception as error:
        if (line := system_errors.explanation(error)) is None:
            raise
        sys.stderr.write(f"{line}\n")
        return 1
    return 0


if __name__ == "__main__":
    terminal.drop_failed_messages()
    sys.exit(main(sys.argv[1]))
