"""Measures relpos-datagen with one process and with two: rate and memory.

    python benchmarks/preparation.py --pairs=1000000
    python benchmarks/preparation.py --source=train.en.gz --target=train.de.gz

Prepares training text, by default a synthetic one: a line joins generated
phrases and made-up words until it has as many words as drawn from a log-normal
distribution, whose mean of 25 words and spread are about those of WMT's
training text. Prints a JSON line for each number of processes. The seconds are
those of the whole command: start, vocabulary, encoding; `cpu_us` is processor
time for each pair, of all processes, in microseconds. The memory is that of
the largest process.
"""

import hashlib
import json
import math
import os
import pathlib
import random
import string
import subprocess
import sys
import tempfile
import time

import common

MEAN_WORDS, SPREAD = 25, 0.6
DEV_PAIRS = 500
PHRASES = 20_000
NAMES = 200_000  # made-up words, few of which are frequent, as in real text


def name(generator):
    """Returns a made-up word that both languages share."""
    # Of the density 1 / x, as the words of real text.
    number = int(NAMES ** generator.random())
    letters = []
    while number:
        number, letter = divmod(number, 26)
        letters.append(string.ascii_lowercase[letter])
    return "".join(letters).title()


def pairs(number, seed):
    """Yields pairs of lines."""
    from relpos_tf.problems.generated import phrases

    generator = random.Random(seed)
    drawn = [phrases.sample(generator) for _ in range(PHRASES)]
    said = [(phrase.say("en"), phrase.say("de")) for phrase in drawn]
    mean = math.log(MEAN_WORDS) - SPREAD**2 / 2
    for _ in range(number):
        wanted = generator.lognormvariate(mean, SPREAD)
        sides = [], []
        while wanted >= 1:
            both = said[int(generator.random() * PHRASES)]
            called = name(generator)
            for side, words in zip(sides, both, strict=True):
                side += called, words
            wanted -= both[0].count(" ") + 2
        yield tuple("; ".join(side) + "." for side in sides)


def write(folder, number):
    """Writes text to train and develop with; returns the flags that name it."""
    for split, size, seed in (("train", number, 1), ("dev", DEV_PAIRS, 2)):
        with (
            open(folder / f"{split}.en", "w", encoding="utf-8") as source,
            open(folder / f"{split}.de", "w", encoding="utf-8") as target,
        ):
            for pair in pairs(size, seed):
                for file, line in zip((source, target), pair, strict=True):
                    file.write(f"{line}\n")
    return {
        f"{split}_{side}": folder / f"{split}.{language}"
        for split in ("train", "dev")
        for side, language in (("source", "en"), ("target", "de"))
    }


def prepare(flags, data_dir, processes):
    """Prepares texts once; returns the figures."""
    flags |= {"data_dir": data_dir, "num_processes": processes}
    command = [sys.executable, "-m", "relpos_tf.bin.datagen"]
    command += ["--problem=translate_files", *common.as_flags(**flags)]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=common.HERE.parent)
    _, status, usage = os.wait4(process.pid, 0)  # with those it waited for
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit("relpos-datagen failed.")
    [prepared] = data_dir.iterdir()
    manifest = json.loads((prepared / "manifest.json").read_text())
    number = manifest["cleaning"]["read"]
    ids = (prepared / "train.ids").read_bytes()
    return {
        "num_processes": processes,
        "pairs": number,
        "seconds": round(seconds, 2),
        "pairs_per_second": round(number / seconds),
        "cpu_us": round(1e6 * (usage.ru_utime + usage.ru_stime) / number, 1),
        common.MEMORY: round(usage.ru_maxrss / 1024),
        "sha256_of_ids": hashlib.sha256(ids).hexdigest(),
    }


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=1_000_000, help="of the synthetic text")
    add("--source", type=pathlib.Path, help="a text to take instead")
    add("--target", type=pathlib.Path, help="its translation")
    add("--vocab", type=int, default=32_000)
    add("--num_processes", default="1,2", help="one after the other")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        flags = write(folder, 0 if args.source else args.pairs)
        flags["vocab_size"] = args.vocab
        if args.source:
            flags["train_source"] = args.source.resolve()
            flags["train_target"] = args.target.resolve()
        for processes in map(int, args.num_processes.split(",")):
            data_dir = folder / f"data-{processes}"
            print(json.dumps(prepare(flags, data_dir, processes)), flush=True)


if __name__ == "__main__":
    main()
