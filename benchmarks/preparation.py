"""Measures the preparation of data: rate, memory, processes, a kill.

    python benchmarks/preparation.py
    python benchmarks/preparation.py --earlier=../earlier
    python benchmarks/preparation.py --small

Prepares synthetic text of each size with one process and with two, and prints a
table. `--earlier` is a checkout of an earlier version, which prepares the first
size in the same session. "Twice at once" are two preparations by one process
each, which share nothing: no two processes do more on this machine. Files must
be the same for any number of processes, and after a preparation that was killed
at random and started again.

`CPU us` is processor time for each pair, of all processes, in microseconds.
Memory is the largest sum over all processes, of pages that they share once for
each. The vocabulary is learnt from at most a million pairs.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import common
import synthetic_corpus

ROOT = pathlib.Path(__file__).resolve().parents[1]
VOCAB = 32_000
EARLIER_NAME = "earlier version"
EARLIER = """
import sys
from relpos_tf.problems import translate

*names, vocab_size, data_dir = sys.argv[1:]
translate.files_problem(*names, vocab_size=int(vocab_size)).prepare(data_dir)
"""


class Usage(threading.Thread):
    """Looks at a process and its descendants until they end.

    Attributes:
        peak_mb: Largest sum of their memory.
    """

    def __init__(self, process):
        super().__init__(daemon=True)
        self._process = process
        self.peak_mb = 0

    def run(self):
        while self._process.poll() is None:
            used = sum(map(resident_kb, tree(self._process.pid)))
            self.peak_mb = max(self.peak_mb, used / 1024)
            time.sleep(0.25)  # since looking takes processor time, too


def tree(process):
    """Yields the ID of a process and of its descendants."""
    yield process
    try:
        children = pathlib.Path(
            f"/proc/{process}/task/{process}/children"
        ).read_text()
    except OSError:
        return
    for child in children.split():
        yield from tree(int(child))


def resident_kb(process):
    """Returns the main memory of a process, in KiB."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(found[0].split()[1]) if found else 0


def start(folder, data_dir, processes, args, earlier=None):
    """Starts a preparation."""
    names = [
        str(folder / f"{split}.{language}")
        for split in ("train", "dev")
        for language in ("en", "de")
    ]
    if earlier:
        values = [*names, str(args.vocab), str(data_dir)]
        command = [sys.executable, "-c", EARLIER, *values]
    else:
        flags = "train_source", "train_target", "dev_source", "dev_target"
        command = [
            *(sys.executable, "-m", "relpos_tf.bin.datagen"),
            "--problem=translate_files",
            *(f"--{f}={name}" for f, name in zip(flags, names, strict=True)),
            f"--vocab_size={args.vocab}",
            f"--num_processes={processes}",
            f"--data_dir={data_dir}",
        ]
    root = str(earlier or ROOT)
    environment = {"PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with open(data_dir.with_suffix(".log"), "wb") as log:
        return subprocess.Popen(
            command,
            cwd=root,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )


def measure(text, data_dirs, processes, args, earlier=None):
    """Prepares the same text in several folders at once.

    Returns:
        Seconds, processor seconds and MB, of all together.
    """
    for data_dir in data_dirs:
        shutil.rmtree(data_dir, ignore_errors=True)
    return wait_for(text, data_dirs, processes, args, earlier)


def wait_for(text, data_dirs, processes, args, earlier=None):
    """Is `measure`, but goes on with what is in the folders."""
    before, began = os.times(), time.perf_counter()
    started = [
        start(text, data_dir, processes, args, earlier)
        for data_dir in data_dirs
    ]
    usages = [Usage(process) for process in started]
    for usage in usages:
        usage.start()
    for process, data_dir in zip(started, data_dirs, strict=True):
        if process.wait():
            log = data_dir.with_suffix(".log").read_text(errors="replace")
            raise common.BenchmarkFailedError(log)
    seconds, after = time.perf_counter() - began, os.times()
    for usage in usages:
        usage.join()
    return {
        "seconds": seconds,
        "cpu": sum(after[2:4]) - sum(before[2:4]),
        "mb": sum(usage.peak_mb for usage in usages),
    }


def checksums(data_dir):
    """Returns the checksum of each prepared file."""
    [folder] = data_dir.iterdir()
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
    }


def cases(args, is_first):
    """Yields version, processes, and how many preparations run at once."""
    if args.earlier and is_first:
        yield EARLIER_NAME, 1, 1
    if is_first:
        # Two that share nothing: what two processes can reach at most.
        yield "this version", 1, 2
    yield "this version", 1, 1
    yield "this version", 2, 1


def killed_and_started_again(folder, work, seconds, args):
    """Kills a preparation at random and starts it again.

    Returns:
        When it was killed, the parts finished until then, and the seconds of
        the rest.
    """
    data_dir = work / "killed"
    shutil.rmtree(data_dir, ignore_errors=True)
    process = start(folder, data_dir, 2, args)
    moment = seconds * random.uniform(0.2, 0.9)
    time.sleep(moment)
    process.kill()
    process.wait()
    parts = len(list(data_dir.glob(".*/parts/part-*")))
    again = wait_for(folder, [data_dir], 2, args)
    return moment, parts, again["seconds"]


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--pairs", default="1000000,5000000")
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--earlier", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="for text and data")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    if args.small:
        args.pairs, args.vocab = "2000,4000", 400
    folder = args.folder or pathlib.Path(tempfile.mkdtemp())
    head = "version", "pairs", "processes", "s", "pairs/s", "CPU us", "MB"
    rows, seconds = [], {}
    sizes = list(map(int, args.pairs.split(",")))
    for size in sizes:
        text = folder / f"text-{size}"
        if not (text / "train.de").exists():
            synthetic_corpus.write(text, size)
        for version, processes, number in cases(args, size == sizes[0]):
            data_dirs = [
                folder / f"data-{size}-{version[0]}-{processes}-{i}"
                for i in range(number)
            ]
            earlier = version == EARLIER_NAME and args.earlier.resolve()
            used = measure(text, data_dirs, processes, args, earlier)
            seconds[size, processes] = used["seconds"]
            pairs = size * number
            rows.append(
                [
                    version if number == 1 else f"{version}, twice at once",
                    f"{size:,}",
                    processes,
                    f"{used['seconds']:.1f}",
                    f"{pairs / used['seconds']:,.0f}",
                    f"{1e6 * used['cpu'] / pairs:.1f}",
                    f"{used['mb']:.0f}",
                ]
            )
            print(json.dumps(rows[-1]), flush=True)
    print("\n" + common.table(head, rows))
    for size in sizes:
        one, two = (
            checksums(folder / f"data-{size}-t-{number}-0") for number in (1, 2)
        )
        print(f"{size:,} pairs, 1 and 2 processes, same bytes: {one == two}")
    size = sizes[0]
    moment, parts, rest = killed_and_started_again(
        folder / f"text-{size}", folder, seconds[size, 2], args
    )
    expected = checksums(folder / f"data-{size}-t-2-0")
    same = checksums(folder / "killed") == expected
    print(
        f"{size:,} pairs, killed after {moment:.1f} s with {parts} parts, "
        f"the rest took {rest:.1f} s, same bytes: {same}"
    )
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
