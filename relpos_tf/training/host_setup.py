"""What `run_setup` does, where several hosts do it: the chief, then the others.

The others only read. With one host, it is what `run_setup` does.
"""

import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import Any

from relpos_tf import hparam
from relpos_tf.models import run_dir
from relpos_tf.training import hosts as hosts_lib
from relpos_tf.training import run_setup

_log = logging.getLogger("relpos_tf")
# Each host may see the shared file system elsewhere.
_FOLDERS = frozenset({"data_dir", "tmp_dir", "output_dir", "usr_dir"})
_VERSIONS = ("relpos_tf", "tensorflow", "keras")


def started_with(
    flags: Mapping[str, Any], hparams: hparam.HParams
) -> dict[str, str]:
    """Returns what must be the same on all hosts, by name.

    Args:
        flags: Values by name.
        hparams: `hparam.HParams`.
    """
    versions = run_dir.versions()
    own = {name: versions[name] for name in _VERSIONS}
    own |= {f"--{n}": str(v) for n, v in flags.items() if n not in _FOLDERS}
    return own | {n: str(v) for n, v in dataclasses.asdict(hparams).items()}


def prepare_data(
    hosts: hosts_lib.Hosts, problem, data_dir: str, tmp_dir: str, anew: bool
) -> None:
    """Has the chief prepare the data, while the others wait.

    From then on no other process replaces them.

    Args:
        hosts: `hosts.Hosts`.
        problem: see `run_setup.prepare_data`, as for what follows.
        data_dir: str.
        tmp_dir: str.
        anew: bool.

    Raises:
        UserError: also where a host does not see what the chief prepared, or
            has other data there.
    """
    if not hosts.is_chief:
        _log.info("This is %s. The chief tells the rest.", hosts.name())
        _log.setLevel(logging.WARNING)
    with hosts.chief_first():
        if hosts.is_chief:
            run_setup.prepare_data(problem, data_dir, tmp_dir, anew)
        else:
            hosts.await_chief(
                lambda: problem.is_prepared(data_dir), f"--data_dir={data_dir}"
            )
    problem.lock(data_dir)
    hosts.check_same(
        json.dumps(problem.manifest(data_dir), sort_keys=True),
        f"The data of {problem.name} in --data_dir={data_dir} are",
    )


def open_run(
    hosts: hosts_lib.Hosts,
    output_dir: str,
    problem,
    data_dir: str,
    hparams: hparam.HParams,
    flags_text: str,
) -> tuple[run_dir.RunDir, hparam.HParams]:
    """Has the chief make or reopen a run's directory, which all then read.

    Args:
        hosts: `hosts.Hosts`.
        output_dir: see `run_setup.open_run`, as for what follows.
        problem: a prepared `Problem`.
        data_dir: str.
        hparams: `hparam.HParams` asked for.
        flags_text: str.

    Returns:
        See there.

    Raises:
        UserError: also where a host does not see the chief's directory.
    """
    with hosts.chief_first():
        if hosts.is_chief:
            return run_setup.open_run(
                output_dir, problem, data_dir, hparams, flags_text
            )
        run = run_dir.RunDir(output_dir)
        hosts.await_chief(run.has_hparams, f"--output_dir={output_dir}")
        vocab_size = problem.manifest(data_dir)["vocab_size"]
        return run, hparams.replace(vocab_size=vocab_size)
