"""The files of a checkpoint, moved and removed so that a kill loses none.

A checkpoint `ckpt-7` is `ckpt-7.index` and its data. On its way there it is
`ckpt-7_temp`, which may be cut short, and then `ckpt-7_new`, which is whole.
"""

import logging
import os
import pathlib
import shutil

from relpos_tf import errors
from relpos_tf.models import run_dir

_log = logging.getLogger("relpos_tf")
_NEW = "_new"


def move(source: str, target: str) -> None:
    """Renames a checkpoint, in place of another of that name if need be.

    A kill in between leaves one of the two, or what `remove_left_overs`
    completes.

    Args:
        source: str. Prefix of a checkpoint that is whole.
        target: str. Its new prefix.
    """
    run_dir.remove_checkpoint(target + _NEW)
    _rename(source, target + _NEW)
    pathlib.Path(f"{target}.index").unlink(missing_ok=True)
    pathlib.Path(f"{target}.index.damaged").unlink(missing_ok=True)
    _rename(target + _NEW, target)


def _rename(source: str, target: str) -> None:
    """Renames data, then the index, which makes a checkpoint of them."""
    folder, name = os.path.split(source)
    for path in sorted(pathlib.Path(folder).glob(f"{name}.data-*")):
        os.replace(path, f"{target}{path.name.removeprefix(name)}")
    os.replace(f"{source}.index", f"{target}.index")


def remove_left_overs(directory: str | pathlib.Path) -> None:
    """Completes or removes what kills have left: halves and parts."""
    directory = pathlib.Path(directory)
    for path in directory.glob(f"ckpt-*{_NEW}.index"):
        prefix = str(path).removesuffix(".index")
        target = prefix.removesuffix(_NEW)
        pathlib.Path(f"{target}.index").unlink(missing_ok=True)
        _rename(prefix, target)
    warn_of_lost_indices(directory)
    for path in directory.glob("ckpt-*_temp*"):
        is_folder = path.is_dir() and not path.is_symlink()
        shutil.rmtree(path) if is_folder else path.unlink()
    for path in directory.glob("ckpt-*.data-*"):
        if not any(directory.glob(f"{path.name.split('.')[0]}.index*")):
            path.unlink()
    run_dir.remove_left_overs(directory)


def warn_of_lost_indices(directory: str | pathlib.Path) -> None:
    """Names what would be the newest checkpoint, had it still its index.

    No kill does that: somebody or something has removed it.
    """
    newest = max(run_dir.all_steps(directory), default=-1)
    for path in sorted(pathlib.Path(directory).glob("ckpt-*.data-*")):
        name = path.name.split(".")[0]
        is_known = (path.parent / f"{name}.index.damaged").exists()
        step = name.removeprefix("ckpt-")
        if step.isdecimal() and int(step) > newest and not is_known:
            _log.warning(
                "Checkpoint %s has lost its index; trying an older.",
                path.parent / name,
            )


def size(prefix: str) -> int:
    """Returns the bytes of a checkpoint's files."""
    folder, name = os.path.split(prefix)
    paths = pathlib.Path(folder).glob(f"{name}.*")
    return sum(path.stat().st_size for path in paths)


def check_room(directory: str | pathlib.Path, needed: int) -> None:
    """Refuses to start what could not be saved.

    Args:
        directory: Where checkpoints go; need not be there yet.
        needed: int. Bytes of one checkpoint.

    Raises:
        UserError: there are fewer bytes left than that.
    """
    free = _free(directory)
    if free < needed:
        raise errors.UserError(
            f"Expected room for a checkpoint in {directory}, "
            f"{_megabytes(needed)}. Received: {_megabytes(free)} free. Make "
            "room, or name another --output_dir."
        )


def warn_of_little_room(directory: str | pathlib.Path, needed: int) -> None:
    """Warns once the next checkpoint would not fit."""
    free = _free(directory)
    if free < needed:
        _log.warning(
            "%s has %s left; the next checkpoint needs %s. Make room now.",
            directory,
            _megabytes(free),
            _megabytes(needed),
        )


def _free(directory: str | pathlib.Path) -> int:
    path = pathlib.Path(directory).absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"
