"""Fills the disk during a short run, makes room again, and resumes it.

    python -m tools.full_disk

The run is on a small file system in memory, mounted for this process alone
(`unshare -rm`; Linux). At one of the moments below, the disk is filled up to
the last few bytes. The last column of a row says which condition fails:

- the trainer ends with exit code 1 and one line that names the file and the
  remedy, without a traceback;
- every checkpoint still exists, and there is no partial file;
- with room again, the same command ends with the weights, the losses and the
  scores of an undisturbed run.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tests.campaigns import kill

STEPS, FREQUENCY = 20, 10
OPTIONS = (
    "--problem=algorithmic_reverse",
    f"--train_steps={STEPS}",
    f"--local_eval_frequency={FREQUENCY}",
    "--log_step_count_steps=1",
    "--deterministic",
    "--hparams=hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,batch_size=128,beam_size=1,extra_length=2",
)
# The line that precedes each moment. None: before the start.
MOMENTS = {
    "before the data": None,
    "before the run": None,
    "before step 1": r"^Training ",
    "step 4": r"^step 4/",
    "evaluation": r"^Saved .*ckpt-10\.",
    "step 14": r"^step 14/",
}
# A checkpoint has some 150,000.
LEFT = (0, 12_288, 122_880)
SIZE = "4m"
SAID = re.compile(
    r"^relpos-trainer: (Expected room for|.*no space left on device)"
)


def fill(folder, left):
    """Fills the file system of a folder; returns the file to remove."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file:
        statistics = os.statvfs(folder)
        free = statistics.f_bavail * statistics.f_frsize
        # The trainer may take some of it meanwhile: then the disk is full.
        with contextlib.suppress(OSError):
            for _ in range(max(free - left, 0) // 4096):
                file.write(bytes(4096))
    return path


def case(folder, undisturbed, moment, left):
    """Fills the disk once; returns a row of the table."""
    folder.mkdir()
    if moment != "before the data":
        shutil.copytree(undisturbed.folder / "data", folder / "data")
    pattern = MOMENTS[moment]
    filler = None if pattern else fill(folder, left)
    run = kill.Run(folder, OPTIONS)
    if pattern:
        run.wait_for(pattern)
        filler = fill(folder, left)
    code = run.finish()
    there = kill.checkpoints_in(run.directory) if run.directory.exists() else {}
    last = run.lines[-1][1]
    filler.unlink()
    found = []
    if code == 1 and not SAID.search(last) or code not in (0, 1):
        found.append(f"exit code {code}, {last}")
    if "Traceback" in run.text():
        found.append("traceback")
    found += [f"left over: {name}" for name in kill.halves(folder)]
    again = kill.Run(folder, OPTIONS)
    if again.finish() != 0:
        found.append(again.text()[-300:])
    if not found:
        found = kill.differences(again, undisturbed, there, STEPS)
    said = last if code else "-"
    said = re.sub(r"\S*/(\S+)", r"\1", said.removeprefix("relpos-trainer: "))
    shutil.rmtree(folder)
    return [moment, left, code, said[:60], "; ".join(found) or "same"]


def mounted():
    """Runs this campaign in a namespace that can mount; returns its code."""
    with tempfile.TemporaryDirectory() as folder:
        script = (
            f'mount -t tmpfs -o size={SIZE} none "$1" && shift && exec "$@"'
        )
        command = ["sh", "-c", script, "sh", folder, sys.executable]
        return subprocess.call(
            [
                *("unshare", "-rm", *command),
                *("-m", "tools.full_disk", folder),
            ],
            cwd=kill.ROOT,
        )


def main():
    """Runs the campaign and prints its table."""
    if len(sys.argv) < 2:
        sys.exit(mounted())
    disk = pathlib.Path(sys.argv[1])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = kill.Run(pathlib.Path(folder) / "undisturbed", OPTIONS)
        if undisturbed.finish() != 0:
            sys.exit(undisturbed.text())
        row = "{:16} {:>10} {:>9}  {:60}  {}".format
        print(row("moment", "bytes left", "exit code", "last line", "end"))
        for moment in MOMENTS:
            for left in LEFT:
                place = disk / str(len(results))
                result = case(place, undisturbed, moment, left)
                results.append(result[-1])
                print(row(*map(str, result)), flush=True)
    good = results.count("same")
    print(f"{good} of {len(results)} runs end like the undisturbed one.")
    sys.exit(good < len(results))


if __name__ == "__main__":
    main()
