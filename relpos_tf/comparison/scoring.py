"""The scores of a comparison's models, each computed once. No TensorFlow.

Every run has one file, `scores/NAME.json`, with the translations of all test
sets. It is made again if it belongs to another model, search or test set.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import registry
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from relpos_tf.utils import files
from relpos_tf.utils import text

# Part of every key. Raised when the same model would get other scores.
_FORMAT = 4


class ModelResult(NamedTuple):
    """The result of a run's model, or of another system, on the test sets.

    Attributes:
        run: The `runs.Run`, or the `outputs.Output`.
        checkpoint: str. Prefix of the model; "" for other systems.
        translations: dict of the lines of each test set, by its name. Of
            another system, further sets may be missing.
        record: dict of `loss`, `parameters`, `source_lengths` and more, as
            `score_process.score` writes it; empty for other systems.
    """

    run: Any
    checkpoint: str
    translations: dict[str, list[str]]
    record: dict[str, Any]


def score(
    runs: Sequence[runs_lib.Run],
    train_steps: int,
    sets: Sequence[test_sets.TestSet],
    folder: pathlib.Path,
) -> list[ModelResult]:
    """Scores models, unless that was done before.

    Args:
        runs: The runs.
        train_steps: int. Their last step; 0: the newest of each.
        sets: The test sets; the first one also gets a loss.
        folder: Gets `scores/NAME.json`, and for other uses the translations
            as `translations/NAME.SET.txt`.

    Returns:
        The results of the models that could be scored; failures are logged.

    Raises:
        UserError: a run has no such step.
        KeyboardInterrupt: a signal came.
    """
    requests, waiting = {}, []
    for run in runs:
        checkpoint = runs_lib.final_checkpoint(run, train_steps)
        request = requests[run] = _request(run, checkpoint, sets, folder)
        if _read(request) is None:
            log = folder / "logs" / f"{run.name}.score.log"
            module = "relpos_tf.comparison.score_process"
            arguments = ["-m", module, json.dumps(request)]
            # TensorFlow says much while it starts.
            waiting.append(jobs.Job(run.title, arguments, log, is_shown=False))
    jobs.run(waiting, "Scoring")
    results = []
    for run, one in requests.items():
        if record := _read(one):
            made = record["translations"]
            results.append(ModelResult(run, one["checkpoint"], made, record))
            for name, lines in made.items():
                path = folder / "translations" / f"{run.name}.{name}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                text.write_lines(path, lines)
    return results


def _request(run, checkpoint, sets, folder) -> dict[str, Any]:
    """Returns the arguments of `score_process.score`."""
    hparams = run.files.read_hparams()
    return {
        "usr_dirs": registry.usr_dirs,
        "checkpoint": checkpoint,
        "sources": {one.name: str(one.source_path) for one in sets},
        "path": str(folder / "scores" / f"{run.name}.json"),
        "key": {
            "format": _FORMAT,
            "checkpoint": files.sha256(f"{checkpoint}{run_dir.CHECKPOINT}"),
            "beam_size": hparams.beam_size,
            "alpha": hparams.alpha,
            "extra_length": hparams.extra_length,
            "test_sets": {one.name: one.fingerprint for one in sets},
        },
    }


def _read(request):
    """Returns the record of a request if it is there and has the key."""
    try:
        record = json.loads(pathlib.Path(request["path"]).read_bytes())
        return record if record["key"] == request["key"] else None
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
