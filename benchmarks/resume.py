"""Measures how long a stopped run waits for its first batch and update.

    python benchmarks/resume.py --pairs=5000000
    python benchmarks/resume.py --pairs=200000 --folder=build/resume

Writes random pairs with lengths as of WMT's training text, and stops after some
shares of an epoch. "By reading" is how earlier versions went on, and how runs
with BPE-dropout do: reading the epoch from its beginning. "Planned" plans the
batches from the lengths of the pairs and reads the next pairs only. Prints
seconds from the start of the input pipeline until it returns a batch, checks
that both return the same one, and adds the seconds in which a new model is
built and updated with that batch. `--planned_only` leaves the reading out. The
flags of the model are those of train_step.py.
"""

import json
import pathlib
import random
import shutil
import tempfile
import time

import common
import train_step

MEAN_IDS, SPREAD, MOST_IDS = 30, 0.6, 250
POOL = 20_000
FILES = 100
SIDES = "inputs", "targets"
SETTINGS = {"batch_size": 4096, "max_length": 256, "seed": 1}


def write_pairs(folder, number, vocab):
    """Writes files of pairs drawn from a pool; returns their paths."""
    import tensorflow as tf

    from relpos_tf.data import records

    draw = random.Random(1)

    def ids(mean):
        size = int(draw.lognormvariate(0, SPREAD) * mean)
        return draw.choices(range(2, vocab), k=min(size, MOST_IDS)) + [1]

    pool = [
        records.serialize(ids(MEAN_IDS), ids(MEAN_IDS)) for _ in range(POOL)
    ]
    paths = [
        str(folder / f"train-{i:05d}-of-{FILES:05d}.tfrecord")
        for i in range(FILES)
    ]
    for path in paths:
        with tf.io.TFRecordWriter(path) as writer:
            for record in draw.choices(pool, k=-(-number // FILES)):
                writer.write(record)
    return paths


def first_batch(dataset):
    """Returns the first batch of a pipeline, and the seconds that it took."""
    start = time.perf_counter()
    batch = next(iter(dataset()))
    return batch, time.perf_counter() - start


def update_seconds(args, tf, batch):
    """Returns the seconds in which a new model is updated with a batch."""
    start = time.perf_counter()
    sides = {name: batch[name] for name in SIDES}
    train_step.make_step(args, tf, sides)()
    return time.perf_counter() - start


def measure(paths, args, tf):
    """Yields rows of the table."""
    from relpos_tf.data import augmentation
    from relpos_tf.data import batching
    from relpos_tf.data import record_index
    from relpos_tf.data import records

    start = time.perf_counter()
    record_index.load(paths)
    print(f"Index, made once: {time.perf_counter() - start:.1f} s", flush=True)
    buckets = batching.boundaries_and_batch_sizes(4096, 256)
    plan = batching._plan(paths, 256, buckets, augmentation.Augmentation())
    batches = sum(1 for _ in plan.batches(1, 0))
    for share in map(float, args.shares.split(",")):
        position = int(batches * share)

        def planned(position=position):
            return batching.training_batches(
                paths, position=position, **SETTINGS
            )

        def read(position=position):
            return batching._finish(
                batching._read(
                    paths,
                    256,
                    buckets,
                    (1, 0, position),
                    augmentation.Augmentation(),
                    lambda batch: records.checked(batch, None, None),
                )
            )

        ours, after = first_batch(planned)
        update = update_seconds(args, tf, ours)
        before, same = None, None
        if not args.planned_only:
            expected, before = first_batch(read)
            same = all(
                bool((ours[n] == expected[n]).numpy().all()) for n in SIDES
            )
        row = {
            "pairs": args.pairs,
            "share_of_epoch": share,
            "batch": position + 1,
            "by_reading_s": before and round(before, 2),
            "planned_s": round(after, 2),
            "update_s": round(update, 2),
            "same_batch": same,
        }
        print(json.dumps(row), flush=True)
        yield [
            f"{share:.0%}",
            "-" if before is None else f"{before:.1f}",
            f"{after:.2f}",
            f"{update:.1f}",
            {True: "yes", False: "NO", None: "-"}[same],
        ]


def main():
    parser = train_step.make_parser(__doc__, vocab=32_000)
    add = parser.add_argument
    add("--pairs", type=int, default=200_000)
    add("--shares", default="0,0.1,0.5,0.99", help="of an epoch: share,share")
    add("--planned_only", action="store_true")
    add("--folder", type=pathlib.Path, help="keeps the files; uses them again")
    args = parser.parse_args()
    tf = common.import_tensorflow(args.threads)
    folder = args.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    paths = sorted(map(str, folder.glob("*.tfrecord")))
    paths = paths or write_pairs(folder, args.pairs, args.vocab)
    rows = list(measure(paths, args, tf))
    head = [
        "stopped after",
        "by reading, s",
        "planned, s",
        "update, s",
        "same batch",
    ]
    print("\n" + common.table(head, rows))
    print(f"Peak memory: {common.peak_mb():.0f} MB")
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
