"""Batches of pairs of similar length, as in tensor2tensor.

Shapes: B rows, S source positions, T target positions.

`batch_size` counts padded tokens on the longer side. Pairs are sorted into
buckets by the length of their longer side, EOS included; a bucket holds the
lengths from the previous limit up to, but without, its own limit. The order of
training batches is a function of (seed, epoch) alone, so a run resumes from
(epoch, position).

`planning` computes that order from the lengths of the pairs, so that no pair is
read but those of the batches to come. With BPE-dropout, lengths are known only
when a pair has been read: then the same order comes from reading the current
epoch from its beginning.

Training leaves out pairs with more than `max_length` tokens on a side
(`run_setup` reports their number); evaluation keeps all pairs. A pair with
more tokens than `batch_size` is a batch by itself.
"""

import functools
import itertools
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import augmentation as augmentation_lib
from relpos_tf.data import mixing
from relpos_tf.data import planning
from relpos_tf.data import record_index
from relpos_tf.data import records

_NO_AUGMENTATION = augmentation_lib.Augmentation()
_ONE_HOST = planning.Host()
_SIDES = "inputs", "targets"


def boundaries_and_batch_sizes(
    batch_size: int,
    max_length: int,
    min_length_bucket: int = 8,
    length_bucket_step: float = 1.1,
) -> tuple[list[int], list[int]]:
    """Returns tensor2tensor's buckets.

    A bucket has `batch_size // limit` rows, rounded down to a divisor of a
    highly composite number, as in tensor2tensor, which needed a window size
    that all batch sizes divide.

    Args:
        batch_size: int. Padded tokens per batch, on the longer side.
        max_length: int. Largest length in the last bucket.
        min_length_bucket: int. Smallest length beyond the first bucket.
        length_bucket_step: float. The ratio of consecutive limits, which are
            rounded down, and differ by at least one.

    Returns:
        Limits between buckets, ascending; and rows per bucket, one more.

    Raises:
        ValueError: a size is not positive, or the step is below 1.

    Reference:
        tensor2tensor 1.15.7, `data_reader.batching_scheme`.
    """
    if min(batch_size, max_length, min_length_bucket) < 1:
        raise ValueError(
            "`batch_size`, `max_length` and `min_length_bucket` must be at "
            f"least 1. Received: {batch_size}, {max_length}, "
            f"{min_length_bucket}."
        )
    if length_bucket_step < 1:
        raise ValueError(
            "`length_bucket_step` must be at least 1. "
            f"Received: {length_bucket_step}."
        )
    boundaries = []
    limit = min_length_bucket
    while limit < max_length:
        boundaries.append(limit)
        limit = max(limit + 1, int(limit * length_bucket_step))
    rows = [max(1, batch_size // limit) for limit in (*boundaries, max_length)]
    window = _highly_composite(3 * max(rows))
    return boundaries, [_largest_divisor(window, limit) for limit in rows]


def training_batches(
    files: Sequence[str] | mixing.Mixture,
    *,
    batch_size: int,
    max_length: int,
    seed: int,
    epoch: int = 0,
    position: int = 0,
    min_length_bucket: int = 8,
    length_bucket_step: float = 1.1,
    pad_to_boundary: bool = False,
    vocab_size: int | None = None,
    tokenizer: int | None = None,
    augmentation: augmentation_lib.Augmentation = _NO_AUGMENTATION,
    host: planning.Host = _ONE_HOST,
) -> tf.data.Dataset:
    """Returns endless training batches, from (epoch, position) on.

    Pairs with more than `max_length` tokens on a side are left out.

    Args:
        files: TFRecord files, in the same order every time; or a mixture of
            corpora.
        batch_size: int. Padded tokens per batch, on the longer side.
        max_length: int. Most tokens on a side, EOS included.
        seed: int. Another seed gives another order.
        epoch: int. Epoch of the last batch that was used.
        position: int. Its number in the epoch, from 1; 0 starts the epoch.
        min_length_bucket: int. See `boundaries_and_batch_sizes`.
        length_bucket_step: float. See `boundaries_and_batch_sizes`.
        pad_to_boundary: bool. Pads to the limit of a bucket, for XLA.
        vocab_size: int or None. Ids beyond it are an error.
        tokenizer: int or None. The tokenizer's mark, see `records.checked`.
        augmentation: `augmentation.Augmentation` of the pairs of each epoch.
        host: `planning.Host` that gets the batches. With BPE-dropout, all
            hosts get the same ones.

    Returns:
        A dataset of `inputs` int32 [B, S], `targets` int32 [B, T], `epoch`
        int64 [] and `position` int64 []. Reading it fails at a damaged record,
        which `records.guarded` names. With several hosts, a batch at the end of
        an epoch may be a row of padding.

    Raises:
        UserError: no pair is short enough, or the first ones are damaged.
    """
    buckets = boundaries_and_batch_sizes(
        batch_size, max_length, min_length_bucket, length_bucket_step
    )
    check = functools.partial(
        records.checked, vocab_size=vocab_size, tokenizer=tokenizer
    )
    place = seed, epoch, position
    if augmentation.bpe_dropout:
        dataset = _read(files, max_length, buckets, place, augmentation, check)
    else:
        plan = _plan(files, max_length, buckets, augmentation)
        dataset = _planned(plan, place, host, check)
    if pad_to_boundary:
        dataset = dataset.map(
            lambda batch: pad_batch(batch, *buckets, max_length)
        )
    return _finish(dataset)


def _plan(
    files: Sequence[str] | mixing.Mixture,
    max_length: int,
    buckets,
    augmentation: augmentation_lib.Augmentation,
) -> planning.Plan:
    """Returns the plan of batches.

    Raises:
        UserError: no pair is short enough, or a file is damaged.
    """
    index = record_index.load(_all_files(files))
    joining = augmentation.joining()
    plan = planning.Plan(index, files, max_length, buckets, joining)
    if plan.is_empty():
        raise _no_short_pair(index.files, max_length)
    return plan


def _planned(
    plan: planning.Plan,
    place: tuple[int, int, int],
    host: planning.Host,
    check: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
) -> tf.data.Dataset:
    """Returns the batches of a plan; reads no other pairs.

    Args:
        plan: `planning.Plan`.
        place: (seed, epoch, position).
        host: `planning.Host`.
        check: Function of a batch.
    """

    def read():
        for _, batches in itertools.groupby(
            planning.following(plan, *place, host), lambda batch: batch.epoch
        ):
            # Files are opened anew in each epoch.
            with plan.index.reader() as reader:
                for batch in batches:
                    is_pair = batch.pairs != planning.NO_PAIR  # [B, 2]
                    is_second = np.broadcast_to([False, True], is_pair.shape)
                    yield {
                        "serialized": reader.read(batch.pairs[is_pair]),
                        "is_second": is_second[is_pair],
                        "epoch": batch.epoch,
                        "position": batch.position,
                    }

    def batch_of(content):
        pairs = records.parse_batch(content["serialized"])
        if plan.joining:
            pairs |= augmentation_lib.joined(pairs, content["is_second"])
        batch = check(
            {
                **{name: pairs[name].to_tensor() for name in _SIDES},
                "tokenizer": pairs["tokenizer"],
            }
        )
        if host.number > 1:
            batch = {name: _with_a_row(batch[name]) for name in _SIDES}
        numbers = {name: content[name] for name in ("epoch", "position")}
        return {**batch, **numbers}

    signature = {
        "serialized": tf.TensorSpec([None], tf.string),
        "is_second": tf.TensorSpec([None], tf.bool),
        "epoch": tf.TensorSpec([], tf.int64),
        "position": tf.TensorSpec([], tf.int64),
    }
    batches = tf.data.Dataset.from_generator(read, output_signature=signature)
    batches = batches.map(batch_of)
    if host.number == 1:
        return batches
    # Otherwise the hosts exchange at every step whether there is a next batch.
    endless = tf.data.INFINITE_CARDINALITY
    return batches.apply(tf.data.experimental.assert_cardinality(endless))


def _with_a_row(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids [B, S]; a row of padding if there is none."""
    shape = tf.shape(ids)
    return tf.pad(ids, [[0, tf.maximum(0, 1 - shape[i])] for i in range(2)])


def _read(
    files: Sequence[str] | mixing.Mixture,
    max_length: int,
    buckets,
    place: tuple[int, int, int],
    augmentation: augmentation_lib.Augmentation,
    check: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
) -> tf.data.Dataset:
    """Returns the batches; reads the pairs of an epoch from its beginning.

    Args:
        files: TFRecord files, or a mixture.
        max_length: int.
        buckets: See `boundaries_and_batch_sizes`.
        place: (seed, epoch, position).
        augmentation: `augmentation.Augmentation`.
        check: Function of a batch.
    """
    _check_not_empty(_all_files(files), max_length)
    seed, epoch, position = place

    def numbered_batches(number):
        seeds = tf.stack([tf.constant(seed, tf.int64), number])
        batches = _epoch(files, seeds, max_length, buckets, check, augmentation)
        used = tf.where(tf.equal(number, epoch), tf.cast(position, tf.int64), 0)
        return (
            batches.enumerate(start=1)
            .skip(used)
            .map(lambda i, batch: {**batch, "epoch": number, "position": i})
        )

    epochs = tf.data.Dataset.range(epoch, tf.int64.max)
    return epochs.flat_map(numbered_batches)


def _all_files(files: Sequence[str] | mixing.Mixture) -> list[str]:
    is_mixture = isinstance(files, mixing.Mixture)
    return files.all_files() if is_mixture else list(files)


def _epoch(
    files: Sequence[str] | mixing.Mixture,
    seeds: tf.Tensor,
    max_length: int,
    buckets,
    check,
    augmentation: augmentation_lib.Augmentation,
) -> tf.data.Dataset:
    """Returns the shuffled and checked batches of one epoch."""
    # Without this, the order would also depend on the program's seed. It sets
    # the seed of the graph being traced, not the program's.
    tf.random.set_seed(1)
    if isinstance(files, mixing.Mixture):
        serialized = files.records(seeds, _shuffled_records)
    else:
        serialized = _shuffled_records(files, seeds)
    pairs = _parsed(serialized)
    pairs = augmentation.apply(pairs, seeds, max_length).filter(
        lambda pair: _length(pair) <= max_length
    )
    batches = _bucketed(pairs, buckets, check)
    return batches.shuffle(
        planning.SHUFFLE_BATCHES, seed=_draw(seeds, planning.BATCH_DRAW)
    )


def _parsed(serialized: tf.data.Dataset) -> tf.data.Dataset:
    return serialized.map(records.parse, num_parallel_calls=tf.data.AUTOTUNE)


def evaluation_batches(
    files: Sequence[str],
    *,
    batch_size: int,
    min_length_bucket: int = 8,
    length_bucket_step: float = 1.1,
    vocab_size: int | None = None,
    tokenizer: int | None = None,
) -> tf.data.Dataset:
    """Returns every pair of any length once, always in the same order.

    Args:
        files: TFRecord files.
        batch_size: int. Padded tokens per batch, on the longer side; a longer
            pair is a batch by itself.
        min_length_bucket: int. See `boundaries_and_batch_sizes`.
        length_bucket_step: float. See `boundaries_and_batch_sizes`.
        vocab_size: int or None. Ids beyond it are an error.
        tokenizer: int or None. The tokenizer's mark, see `records.checked`.

    Returns:
        A dataset of `inputs` int32 [B, S] and `targets` int32 [B, T]. Reading
        it fails at a damaged record, which `records.guarded` names.
    """
    # The last bucket, which takes any length, has batch_size // batch_size
    # rows: one.
    buckets = boundaries_and_batch_sizes(
        batch_size, batch_size, min_length_bucket, length_bucket_step
    )
    pairs = _parsed(tf.data.TFRecordDataset(list(files)))
    check = functools.partial(
        records.checked, vocab_size=vocab_size, tokenizer=tokenizer
    )
    return _finish(_bucketed(pairs, buckets, check))


def pad_batch(
    batch: dict[str, tf.Tensor],
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
    max_length: int,
) -> dict[str, tf.Tensor]:
    """Pads a batch to its bucket's shape, with rows of padding if need be.

    Args:
        batch: `inputs` int32 [B, S], `targets` int32 [B, T], other entries.
        boundaries: Limits between buckets.
        batch_sizes: Rows per bucket.
        max_length: int. Limit of the last bucket.

    Returns:
        `batch`, with both sides of shape [rows of the bucket, its limit].
    """
    longest = tf.maximum(
        tf.shape(batch["inputs"])[1], tf.shape(batch["targets"])[1]
    )
    bucket = tf.searchsorted(
        tf.constant(boundaries, tf.int32), longest[tf.newaxis], side="right"
    )[0]
    length = tf.gather([*boundaries, max_length], bucket)
    rows = tf.gather(list(batch_sizes), bucket)

    def padded(ids):
        shape = tf.shape(ids)
        missing = [[0, rows - shape[0]], [0, length - shape[1]]]
        return tf.pad(ids, missing)  # [rows, length]

    sides = {name: padded(batch[name]) for name in ("inputs", "targets")}
    return {**batch, **sides}


def _highly_composite(limit: int) -> int:
    """Returns the largest highly composite number up to `limit`.

    That is a number with more divisors than every smaller one.
    """
    divisors = [0] * (limit + 1)
    for divisor in range(1, limit + 1):
        for multiple in range(divisor, limit + 1, divisor):
            divisors[multiple] += 1
    return max(range(1, limit + 1), key=divisors.__getitem__)


def _largest_divisor(number: int, limit: int) -> int:
    """Returns the largest divisor of `number` up to `limit`."""
    return next(d for d in range(limit, 0, -1) if number % d == 0)


def _shuffled_records(files: Sequence[str], seeds: tf.Tensor):
    """Returns the serialized records of one epoch, shuffled by its seeds."""
    names = tf.random.experimental.stateless_shuffle(
        tf.constant(list(files)), _draw(seeds, planning.FILE_DRAW, [2])
    )
    serialized = tf.data.Dataset.from_tensor_slices(names).interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(len(files), planning.INTERLEAVED_FILES),
        block_length=planning.BLOCK_LENGTH,
    )
    return serialized.shuffle(
        planning.SHUFFLE_RECORDS, seed=_draw(seeds, planning.RECORD_DRAW)
    )


def _draw(seeds: tf.Tensor, use: int, shape: Sequence[int] = ()) -> tf.Tensor:
    """Returns int64 seeds for one use, from (seed, epoch)."""
    folded = tf.random.experimental.stateless_fold_in(seeds, use)
    return tf.random.stateless_uniform(
        shape, folded, minval=0, maxval=planning.SEEDS, dtype=tf.int64
    )


def _bucketed(pairs: tf.data.Dataset, buckets, check) -> tf.data.Dataset:
    """Batches pairs of similar length, padded, and applies `check`."""
    boundaries, batch_sizes = buckets
    batches = pairs.bucket_by_sequence_length(
        _length,
        bucket_boundaries=boundaries,
        bucket_batch_sizes=batch_sizes,
        padded_shapes={"inputs": [None], "targets": [None], "tokenizer": []},
    )
    return batches.map(check)


def _length(pair: dict[str, tf.Tensor]) -> tf.Tensor:
    """Returns the length of the longer side, int32 []."""
    return tf.maximum(tf.size(pair["inputs"]), tf.size(pair["targets"]))


def _check_not_empty(files: Sequence[str], max_length: int) -> None:
    """Raises if no pair is short enough: epochs would be empty for ever."""
    short = (
        tf.data.TFRecordDataset(list(files))
        .map(records.parse)
        .filter(lambda pair: _length(pair) <= max_length)
    )
    for _ in records.guarded(short.take(1), files):
        return
    raise _no_short_pair(files, max_length)


def _no_short_pair(files: Sequence[str], max_length: int) -> errors.UserError:
    return errors.UserError(
        f"No training pair has at most max_length={max_length} tokens on "
        f"both sides, in {len(files)} files ({', '.join(files[:1])} ...). "
        "Raise max_length, or prepare the data again."
    )


def _finish(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Fixes the order, disables sharding, and prepares batches ahead."""
    options = tf.data.Options()
    options.deterministic = True
    # The thread of autotuning sleeps for up to a minute, and the iterator, and
    # with it the program, waits for the end of that thread.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
