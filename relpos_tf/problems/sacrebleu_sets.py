"""The test sets that sacreBLEU knows by name, as `sacrebleu -t wmt14/full`.

sacreBLEU downloads them, checks their sums, and keeps them in the folder that
the environment variable SACREBLEU names, or in ~/.sacrebleu.
"""

import os
import pathlib

from relpos_tf import errors
from relpos_tf.problems import test_sets
from relpos_tf.utils import extras
from relpos_tf.utils import text

with extras.imports("translate", "scoring"):
    import sacrebleu
    from sacrebleu.utils import SACREBLEU_DIR


def check(name: str, language_pair: str) -> None:
    """Raises UserError unless sacreBLEU knows a set in these languages."""
    if name not in sacrebleu.DATASETS:
        raise errors.UserError(
            "Expected a test set that sacreBLEU knows; `sacrebleu --list` "
            f"shows them. Received: {name!r}."
            + errors.did_you_mean(name, sacrebleu.DATASETS)
        )
    known = sacrebleu.DATASETS[name].langpairs
    if language_pair not in known:
        raise errors.UserError(
            f"Expected a language pair of sacreBLEU's {name}: "
            f"{', '.join(known)}. Received: "
            f"{language_pair.strip('-') or 'none'}. Give --language_pair."
        )


def load(name: str, language_pair: str) -> test_sets.TestSet:
    """Returns a test set, downloading it if need be.

    The lines are as sacreBLEU prints them with `--echo`.

    Args:
        name: str. sacreBLEU's name, such as "multi30k/2016".
        language_pair: str. Codes of source and target, as in "en-de".

    Raises:
        UserError: sacreBLEU does not know it, or not in these languages; or it
            cannot be downloaded.
    """
    check(name, language_pair)
    dataset = sacrebleu.DATASETS[name]
    try:
        source = dataset.get_source_file(language_pair)
        references = dataset.get_reference_files(language_pair)
    # sacreBLEU raises errors of many classes, and exits for a wrong checksum.
    except (Exception, SystemExit) as error:
        folder = os.path.join(SACREBLEU_DIR, name)
        raise errors.UserError(
            f"sacreBLEU cannot download {name} ({error}). Run `sacrebleu -t "
            f"{name} -l {language_pair} --echo src` on a machine with a "
            f"network, and copy its folder ~/.sacrebleu/{name} to {folder}. "
            "If a download was cut, delete that folder first."
        ) from error
    lines = list(text.read_lines(source))
    return test_sets.TestSet(
        name,
        lines,
        test_sets.paired_lines(references, len(lines)),
        pathlib.Path(source),
        pathlib.Path(",".join(references)),
    )
