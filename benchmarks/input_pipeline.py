"""Times the training batches alone: padded ids per second on one core.

    python benchmarks/input_pipeline.py

Plans, reads and pads made-up pairs as the trainer does, pinned to one core:
first in NumPy alone, then through tf.data, which adds its copies and threads.
Ids of both sides count, with padding. Prints one JSON line.
"""

import json
import os
import pathlib
import tempfile
import time

import common
import made_up_pairs

SIDES = "inputs", "targets"


def reader(folder, args):
    """Returns what reads the pairs."""
    from relpos_tf.data import batches
    from relpos_tf.data import plan
    from relpos_tf.data import token_files

    tokens = token_files.TokenFile(folder, "train", args.vocab)
    buckets = plan.buckets(args.batch_size, args.max_length)
    corpora = [plan.Corpus(len(tokens))]
    return batches.Reader(tokens, plan.Plan(tokens.lengths, corpora, buckets))


def in_numpy(reader):
    """Yields batches for ever."""
    for batch in reader.plan.following(seed=1):
        yield reader.read(batch.rows)


def rates(found, seconds):
    """Returns the padded ids and the pairs per second of endless batches."""
    next(found)  # TensorFlow traces the pipeline
    ids = pairs = 0
    start = time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        batch = next(found)
        for name in SIDES:
            rows, length = batch[name].shape
            ids += rows * length
        pairs += rows
    return round(ids / taken), round(pairs / taken)


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    # The seconds should hold several epochs, each of which is planned anew.
    add("--pairs", type=int, default=200_000, help="of an epoch")
    add("--vocab", type=int, default=32_000)
    add("--batch_size", type=int, default=4096, help="padded tokens")
    add("--max_length", type=int, default=256)
    add("--seconds", type=float, default=10.0, help="for each way")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    common.import_tensorflow()
    from relpos_tf.data import batches

    result = {}
    with tempfile.TemporaryDirectory() as folder:
        made_up_pairs.write(pathlib.Path(folder), args.pairs, args.vocab)
        pairs = reader(folder, args)
        for way, found in (
            ("numpy", in_numpy(pairs)),
            ("tf_data", iter(batches.training_batches(pairs, seed=1))),
        ):
            ids_rate, pairs_rate = rates(found, args.seconds)
            result[f"{way}_padded_ids_per_second"] = ids_rate
            result[f"{way}_pairs_per_second"] = pairs_rate
    print(json.dumps(result | {common.MEMORY: round(common.peak_mb())}))


if __name__ == "__main__":
    main()
