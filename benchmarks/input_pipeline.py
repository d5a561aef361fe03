"""Times the training batches: sentence pairs per second, without training.

    python benchmarks/input_pipeline.py
    python benchmarks/input_pipeline.py --files 'data/*/train-*.tfrecord'

Reads, shuffles, buckets and pads as the trainer does, from generated files of
random pairs or from the given files. Compare the rate with that of a training
step: 64 pairs in half a second are 128 a second. Prints one JSON line.
"""

import glob
import json
import pathlib
import random
import tempfile
import time

import common


def write_pairs(records, folder, number, vocab):
    """Writes a number of pairs of 4 to 60 ids to two files."""
    source = random.Random(1)

    def ids():
        length = source.randint(4, 60)
        return [source.randrange(2, vocab) for _ in range(length - 1)] + [1]

    files = [str(pathlib.Path(folder, f"train-{i}.tfrecord")) for i in range(2)]
    records.write(((ids(), ids()) for _ in range(number)), files)
    return files


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--files", help="a pattern of TFRecord files, in quotes")
    add("--pairs", type=int, default=100_000, help="in the generated files")
    add("--batch_size", type=int, default=2048, help="padded tokens")
    add("--max_length", type=int, default=256)
    add("--seconds", type=float, default=10.0)
    add("--threads", type=int, default=0)
    args = parser.parse_args()
    common.import_tensorflow(args.threads)
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
        next(batches)  # fills the buffers
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
        common.MEMORY: round(common.peak_mb()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
