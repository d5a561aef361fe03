"""Measures how a stopped run finds its next batch: seconds and memory.

    python benchmarks/resume.py --pairs=5000000
    python benchmarks/resume.py --pairs=100000000 --lengths_only

Makes up pairs with lengths about as of WMT's text, and resumes after a share of
an epoch: once by the plan alone, in a process without TensorFlow, and once up
to the first batch that tf.data returns. --lengths_only makes lengths without
ids, and does the first alone. Each is a process, and prints a JSON line.

The seconds begin after all imports, and their end is the batch. The peak memory
is that of the process; it counts the pages of mapped files that were touched,
which the system may take back. `before_mb` is the peak before the seconds
begin.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import common
import made_up_pairs
import numpy as np

SEED, VOCAB = 1, 32_000


def buckets():
    from relpos_tf.data import plan

    return plan.buckets(batch_size=4096, max_length=256)


def count_batches(lengths):
    """Returns the number of batches of an epoch, without its plan."""
    sizes = buckets()
    counts = np.zeros(len(sizes.rows), np.int64)
    for start in range(0, len(lengths), made_up_pairs.AT_ONCE):
        longest = lengths[start : start + made_up_pairs.AT_ONCE].max(axis=1)
        counts += np.bincount(sizes.of(longest), minlength=len(counts))
    return int(np.sum(-(-counts // sizes.rows)))


def planned(folder, position):
    """Returns seconds and memory until the plan has the next batch."""
    from relpos_tf.data import plan

    before, start = common.peak_mb(), time.perf_counter()
    lengths = made_up_pairs.read_lengths(folder)
    order = plan.Plan(lengths, [plan.Corpus(len(lengths))], buckets())
    next(order.following(SEED, position=position))
    return time.perf_counter() - start, before


def first_batch(folder, position):
    """Returns seconds and memory until tf.data has returned the next batch."""
    common.import_tensorflow()
    from relpos_tf.data import batches
    from relpos_tf.data import plan
    from relpos_tf.data import token_files

    before, start = common.peak_mb(), time.perf_counter()
    tokens = token_files.TokenFile(folder, "train", VOCAB)
    order = plan.Plan(tokens.lengths, [plan.Corpus(len(tokens))], buckets())
    reader = batches.Reader(tokens, order)
    found = batches.training_batches(reader, seed=SEED, position=position)
    next(iter(found))
    return time.perf_counter() - start, before


WAYS = {"plan": planned, "first batch": first_batch}


def measure(args):
    """Measures one way in this process."""
    seconds, before = WAYS[args.way](args.folder, args.position)
    result = {
        "way": args.way,
        "pairs": args.pairs,
        "batches_before": args.position,
        "seconds": round(seconds, 2),
        "before_mb": round(before),
        common.MEMORY: round(common.peak_mb()),
    }
    print(json.dumps(result), flush=True)


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=200_000, help="of an epoch")
    add("--share", type=float, default=0.99, help="of the epoch that is over")
    add("--lengths_only", action="store_true")
    add("--way", choices=WAYS, help="measures it here; see the next two")
    add("--folder", type=pathlib.Path, help="of the pairs")
    add("--position", type=int, help="batches of the epoch that are over")
    args = parser.parse_args()
    if args.way:
        measure(args)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.lengths_only:
            made_up_pairs.write_lengths(folder, args.pairs)
        else:
            made_up_pairs.write(folder, args.pairs, VOCAB)
        number = count_batches(made_up_pairs.read_lengths(folder))
        flags = {"folder": folder, "pairs": args.pairs}
        flags |= {"position": int(args.share * number)}
        for way in ["plan"] if args.lengths_only else WAYS:
            subprocess.run(
                [sys.executable, __file__, *common.as_flags(way=way, **flags)],
                check=True,
            )


if __name__ == "__main__":
    main()
