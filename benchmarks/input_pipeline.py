"""Times the training batches: sentence pairs per second, without training.

    python benchmarks/input_pipeline.py
    python benchmarks/input_pipeline.py --files 'data/*/train-*.tfrecord'

Reads, shuffles, buckets and pads as the trainer does, from files of its own
with random pairs, or from those given. What counts is the rate against that of
a training step: 64 pairs in half a second are 128 a second. Prints one JSON
line.
"""

import argparse
import glob
import json
import pathlib
import random
import tempfile
import time

import common

from relpos_tf.bin import command


def write_pairs(records, folder, number, vocab):
    """Writes pairs of 4 to 60 ids, as many as asked for, to two files."""
    source = random.Random(1)

    def ids():
        length = source.randint(4, 60)
        return [source.randrange(2, vocab) for _ in range(length - 1)] + [1]

    files = [str(pathlib.Path(folder, f"train-{i}.tfrecord")) for i in range(2)]
    records.write(((ids(), ids()) for _ in range(number)), files)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--files", help="a pattern of TFRecord files, in quotes")
    add("--pairs", type=int, default=100_000, help="of its own files")
    add("--batch_size", type=int, default=2048, help="padded tokens")
    add("--max_length", type=int, default=256)
    add("--seconds", type=float, default=10.0)
    add("--threads", type=int, default=0)
    args = parser.parse_args()
    tf = command.import_tensorflow()
    common.set_threads(tf, args.threads)
    from relpos_tf.data import batching
    from relpos_tf.data import records

    with tempfile.TemporaryDirectory() as folder:
        files = sorted(glob.glob(args.files or ""))
        files = files or write_pairs(records, folder, args.pairs, 8000)
        dataset = batching.training_batches(
            files,
            batch_size=args.batch_size,
            max_length=args.max_length,
            seed=1,
        )
        batches = iter(dataset)
        next(batches)  # the buffers fill
        pairs = tokens = 0
        start, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - start < args.seconds:
            targets = next(batches)["targets"]
            pairs += targets.shape[0]
            tokens += targets.shape[0] * targets.shape[1]
        wall = time.perf_counter() - start
        cpu = time.process_time() - cpu
    result = {
        "pairs_per_second": round(pairs / wall),
        "pairs_per_cpu_second": round(pairs / cpu),
        "padded_target_tokens_per_second": round(tokens / wall),
        "peak_memory_mb": round(common.peak_mb()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
