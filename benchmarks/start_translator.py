"""Times `relpos_tf.Translator` in a new process, and measures its memory.

    python benchmarks/start_translator.py --lines=test.en \
        runs/mine exported exported_ctranslate2 exported_litert

For each run or export, a new process imports the package, loads the folder,
translates the first line of the file, and then all of them in one call. The
folders take turns. Prints a JSON line for each, with medians: seconds since the
start of the process, `cpu` for processor seconds; and its peak memory in MiB.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import common

CHILD = """
import sys, time
from relpos_tf import Translator

folder, path = sys.argv[1:]
with open(path, encoding="utf-8", newline="\\n") as file:
    lines = file.read().removesuffix("\\n").split("\\n")
times, cpu, peaks = [], [], []
translator = Translator.load(folder)
for text in lines[:1], lines:
    found = translator.translate(text)
    times.append(time.time())
    cpu.append(time.process_time())
    # Not of the process that started this one.
    with open("/proc/self/status") as file:
        (peak,) = (x for x in file if x.startswith("VmHWM"))
    peaks.append(int(peak.split()[1]) / 1024)
import hashlib, json
text = hashlib.sha256("\\n".join(found).encode()).hexdigest()
print(json.dumps([times, cpu, peaks, text, "tensorflow" in sys.modules]))
"""
NAMES = "first_line", "all_lines"


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--lines", required=True, help="file of lines")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    results = {folder: [] for folder in args.folders}
    for _ in range(args.rounds):
        for folder, found in results.items():
            found.append(measure(folder, args.lines))
    for folder, found in results.items():
        times, cpu, peaks, texts, imports = zip(*found, strict=True)
        print(
            json.dumps(
                {
                    "folder": folder,
                    **medians("", times, 2),
                    **medians("_cpu", cpu, 2),
                    **medians("_mb", peaks, 0),
                    "imports_tensorflow": any(imports),
                    "sha256_of_translations": sorted({x[:8] for x in texts}),
                }
            )
        )


def measure(folder, lines):
    """Returns what a new process measured, in seconds since its start."""
    path = str(common.HERE.parent)
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, folder, lines],
        check=True,
        env=os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    times, *others = json.loads(done.stdout)
    return [[moment - start for moment in times], *others]


def medians(unit, rows, digits):
    """Returns the median of each column, by its name."""
    columns = map(statistics.median, zip(*rows, strict=True))
    return {
        f"{name}{unit}": round(value, digits)
        for name, value in zip(NAMES, columns, strict=True)
    }


if __name__ == "__main__":
    main()
