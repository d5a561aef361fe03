"""Measures relpos-datagen with one process and with two: rate and memory.

    python benchmarks/preparation.py --pairs=1000000
    python benchmarks/preparation.py --source=train.en.gz --target=train.de.gz

Prepares training text, by default a synthetic one, and checks that the files
are the same, byte for byte, for each number of processes. Prints a JSON line
for each.

The seconds are those of the whole command: start, vocabulary, encoding.
`cpu_us` is processor time for each pair, of all processes, in microseconds. The
memory is the largest sum over all processes; pages that they share count once
for each.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import common
import synthetic_corpus


class Usage(threading.Thread):
    """Looks at a process and its descendants until they end (Linux).

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
    found = [line for line in status.split("\n") if line.startswith("VmRSS")]
    return int(found[0].split()[1]) if found else 0


def prepare(texts, vocab, data_dir, processes):
    """Prepares texts; returns seconds, processor seconds and MB."""
    command = [
        *(sys.executable, "-m", "relpos_tf.bin.datagen"),
        "--problem=translate_files",
        *common.as_flags(
            **texts,
            vocab_size=vocab,
            data_dir=data_dir,
            num_processes=processes,
        ),
    ]
    before, began = os.times(), time.perf_counter()
    # This checkout, whether or not the package is installed.
    with subprocess.Popen(command, cwd=common.HERE.parent) as process:
        usage = Usage(process)
        usage.start()
        if process.wait():
            raise common.BenchmarkFailedError("relpos-datagen failed.")
    seconds, after = time.perf_counter() - began, os.times()
    usage.join()
    cpu = after.children_user - before.children_user
    cpu += after.children_system - before.children_system
    return seconds, cpu, usage.peak_mb


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=1_000_000, help="of the synthetic text")
    add("--source", type=pathlib.Path, help="a text to take instead")
    add("--target", type=pathlib.Path, help="its translation")
    add("--vocab", type=int, default=32_000)
    add("--num_processes", default="1,2", help="one after the other")
    args = parser.parse_args()
    if (args.source is None) != (args.target is None):
        parser.error("Expected both --source and --target, or none of them.")
    with tempfile.TemporaryDirectory() as name:
        if not measure(args, pathlib.Path(name)):
            raise SystemExit("The files depend on the number of processes.")


def measure(args, folder):
    """Prints the measurements; returns whether all files are the same."""
    synthetic_corpus.write(folder, 0 if args.source else args.pairs)
    texts = {
        "train_source": (args.source or folder / "train.en").resolve(),
        "train_target": (args.target or folder / "train.de").resolve(),
        "dev_source": folder / "dev.en",
        "dev_target": folder / "dev.de",
    }
    found = []
    for processes in map(int, args.num_processes.split(",")):
        data_dir = folder / f"data-{processes}"
        seconds, cpu, memory = prepare(texts, args.vocab, data_dir, processes)
        [prepared] = data_dir.iterdir()
        manifest = json.loads((prepared / "manifest.json").read_text())
        pairs = manifest["cleaning"]["read"]
        found.append(checksums(prepared))
        result = {
            "num_processes": processes,
            "pairs": pairs,
            "seconds": round(seconds, 2),
            "pairs_per_second": round(pairs / seconds),
            "cpu_us": round(1e6 * cpu / pairs, 1),
            common.MEMORY: round(memory),
            "same_bytes": found[-1] == found[0],
        }
        print(json.dumps(result), flush=True)
    return all(each == found[0] for each in found)


def checksums(folder):
    """Returns the checksum of each file by its name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
    }


if __name__ == "__main__":
    main()
