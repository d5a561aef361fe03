"""Batches of prepared pairs, padded.

Shapes: B rows, S source ids, T target ids.

`plan` says which pairs each batch has; here their ids are read. BPE-dropout
(Provilkov et al., 2020, section 3) segments a pair anew each time it is read,
by draws that depend on the seed, the epoch and the pair alone. The batch is
that of its plain length. Joined pairs (Varis and Bojar, 2021) are the ids of
the first without EOS, then those of the second without its tag: the first
piece of a sentence begins with a blank, so the text is both sentences with a
blank between them.
"""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from relpos_tf.data import plan as plan_lib
from relpos_tf.data import token_files

_SIDES = "inputs", "targets"
_AHEAD = 16  # batches that are read before they are needed


@dataclasses.dataclass(frozen=True)
class Host:
    """One of several hosts that train together.

    Attributes:
        index: int. Its number, from 0.
        number: int. The number of hosts.
        replicas: int. The replicas of each host.
    """

    index: int = 0
    number: int = 1
    replicas: int = 1


_ONE_HOST = Host()


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads the rows of a plan.

    Args:
        tokens: The pairs.
        plan: `plan.Plan` of these pairs.
        tokenizer: The `tokenizer.Tokenizer` that made them; needed for
            BPE-dropout only.
        bpe_dropout: float. The probability that a merge is left out. A row that
            would have more than `max_length` ids stays as it is.
        pad_to_boundary: bool. Pads to the limit of a bucket, and adds rows of
            padding to a small batch, so that there are few shapes, for XLA.
    """

    tokens: token_files.TokenFile
    plan: plan_lib.Plan
    tokenizer: Any = None
    bpe_dropout: float = 0.0
    pad_to_boundary: bool = False

    def read(
        self, rows: np.ndarray, seed: int = 0, epoch: int = 0
    ) -> dict[str, np.ndarray]:
        """Returns a batch.

        Args:
            rows: int64 [B, 2], as of `plan.Batch`.
            seed: int. Of BPE-dropout.
            epoch: int. Of BPE-dropout.

        Returns:
            `inputs` int32 [B, S] and `targets` int32 [B, T], padded with 0;
            where sources have tags, `tag_lengths` int32 [B], the numbers of ids
            that are the tag.
        """
        plain = self.plan.row_lengths(rows)  # [B, 2]
        sides = [self._side(rows, side) for side in range(len(_SIDES))]
        if self.bpe_dropout:
            sides = [
                self._segmented_anew(texts, rows, side, seed, epoch)
                for side, texts in enumerate(sides)
            ]
        lengths = [int(texts.lengths.max()) for texts in sides]
        number = len(rows)
        if self.pad_to_boundary:
            limits, sizes = self.plan.buckets
            own, longest = self.plan.buckets.of(
                np.array([plain.max(), max(lengths)])
            )
            lengths, number = [limits[longest]] * len(sides), sizes[own]
        batch = {
            name: _with_rows(token_files.padded(texts, length), number)
            for name, texts, length in zip(_SIDES, sides, lengths, strict=True)
        }
        if any(corpus.tag for corpus in self.plan.corpora):
            tags = self.plan.tags(rows[:, 0]).astype(np.int32)
            batch["tag_lengths"] = _with_rows(tags, number)
        return batch

    def _side(self, rows: np.ndarray, side: int) -> token_files.Rows:
        """Returns the ids of one side of rows."""
        joined = rows[:, 1] != plan_lib.NO_PAIR
        pairs = np.where(rows == plan_lib.NO_PAIR, 0, rows)  # [B, 2]
        starts, sizes = (
            of_pairs.reshape(-1, 2, 2)[:, :, side].astype(np.int64)
            for of_pairs in (
                self.tokens.starts(pairs.ravel()),
                self.tokens.lengths[pairs.ravel()],
            )
        )  # [B, 2] each
        sizes[:, 0] -= joined  # EOS
        if side == 0:
            tags = self.plan.tags(pairs[:, 1])
            starts[:, 1] += tags
            sizes[:, 1] -= tags
        sizes[:, 1] *= joined
        texts = self.tokens.rows(starts.ravel(), sizes.ravel())
        return token_files.Rows(texts.ids, sizes.sum(axis=1))

    def _segmented_anew(
        self,
        texts: token_files.Rows,
        rows: np.ndarray,
        side: int,
        seed: int,
        epoch: int,
    ) -> token_files.Rows:
        """Returns the same texts with merges left out."""
        ends = np.cumsum(texts.lengths)[:-1]
        tags = self.plan.tags(rows[:, 0]) if side == 0 else [0] * len(rows)
        results = []
        for ids, pairs, tag in zip(
            np.split(texts.ids, ends), rows.tolist(), tags, strict=True
        ):
            draws = random.Random(repr((seed, epoch, pairs, side)))
            text = self.tokenizer.segmenter.segment(
                ids[tag:].tolist(), self.bpe_dropout, draws
            )
            anew = np.concatenate([ids[:tag], np.array(text, np.int32)])
            is_short = len(anew) <= self.plan.max_length
            results.append(anew if is_short else ids)
        return token_files.Rows(
            np.concatenate(results), np.array([len(ids) for ids in results])
        )


def training_batches(
    reader: Reader,
    *,
    seed: int,
    epoch: int = 0,
    position: int = 0,
    host: Host = _ONE_HOST,
) -> tf.data.Dataset:
    """Returns endless training batches, from (epoch, position) on.

    Replicas get the batches of the plan in turn, in the same order however
    they are spread over hosts.

    Args:
        reader: `Reader`.
        seed: int, not negative. Another seed gives another order.
        epoch: int. Epoch of the last batch that was used.
        position: int. Its number in the epoch, from 1; 0 starts the epoch.
        host: `Host` that gets its share of the batches.

    Returns:
        A dataset of what `Reader.read` returns, and `epoch` int64 [] and
        `position` int64 [].
    """

    def batches() -> Iterator[dict[str, Any]]:
        following = reader.plan.following(seed, epoch, position)
        for number, batch in enumerate(following):
            if number // host.replicas % host.number == host.index:
                yield {
                    **reader.read(batch.rows, seed, batch.epoch),
                    "epoch": batch.epoch,
                    "position": batch.position,
                }

    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in _SIDES}
    if any(corpus.tag for corpus in reader.plan.corpora):
        signature["tag_lengths"] = tf.TensorSpec([None], tf.int32)
    for name in ("epoch", "position"):
        signature[name] = tf.TensorSpec([], tf.int64)
    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=signature
    )
    # Otherwise hosts exchange at every step whether there is a next batch.
    dataset = dataset.apply(
        tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    )
    options = tf.data.Options()
    # The thread of autotuning sleeps for up to a minute, and the iterator, and
    # with it the program, waits for the end of that thread.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return dataset.with_options(options).prefetch(_AHEAD)


def evaluation_batches(
    tokens: token_files.TokenFile, batch_size: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields every pair of any length once, always in the same order.

    Args:
        tokens: The pairs.
        batch_size: int. Padded tokens per batch, on the longer side; a longer
            pair is a batch alone.

    Yields:
        `inputs` int32 [B, S] and `targets` int32 [B, T].
    """
    longest = int(tokens.lengths.max(initial=0))
    # The last bucket, for pairs beyond `batch_size`, has one row.
    limit = max(batch_size, longest)
    limits, rows = plan_lib.buckets(batch_size, batch_size)
    plan = plan_lib.Plan(
        tokens.lengths,
        [plan_lib.Corpus(len(tokens))],
        plan_lib.Buckets([*limits[:-1], limit], rows),
    )
    reader = Reader(tokens, plan)
    # Shuffled, so that the first batches alone stand for all lengths.
    for batch in plan.epoch(seed=0, epoch=0):
        yield reader.read(batch)


def _with_rows(values: np.ndarray, number: int) -> np.ndarray:
    """Returns an array [B, ...] with `number` rows, the last of them 0."""
    missing = [(0, number - len(values))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, missing) if number > len(values) else values
