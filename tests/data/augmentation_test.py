"""Tests of augmentation against loops over pairs in the same order."""

import functools
import os
import pathlib
import random
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import augmentation
from relpos_tf.data import batching
from relpos_tf.data import pieces
from relpos_tf.data import records
from relpos_tf.data import tokenizer

_WORDS = (
    "ein Mann steht vor dem Haus zwei Hunde laufen über die Wiese im Regen "
    "a man is standing in front of the house two dogs are running  outside"
).split(" ")
_PAIRS = 733  # Two whole blocks of 256 and an odd rest.
_MARK = 77
_MAX_LENGTH = 23
_SETTINGS = {"batch_size": 211, "max_length": _MAX_LENGTH, "seed": 11}


def setUpModule():
    global _folder, _files, _tokens, _pairs, _texts
    _folder = tempfile.TemporaryDirectory()
    draw = random.Random(7)
    # The first word says which pair it is.
    _texts = [
        tuple(
            " ".join([f"{i:03}", *draw.choices(_WORDS, k=draw.randint(0, 12))])
            for _ in range(2)
        )
        for i in range(_PAIRS)
    ]
    path = pathlib.Path(_folder.name, "tokenizer.model")
    pieces.train([side for pair in _texts for side in pair], path, 500)
    _tokens = tokenizer.Tokenizer(path)
    _pairs = [tuple(map(_tokens.encode, pair)) for pair in _texts]
    _files = [os.path.join(_folder.name, f"{i}.tfrecord") for i in range(3)]
    records.write(_pairs, _files)
    for file in _files:
        records.mark(file, _MARK)


def tearDownModule():
    _folder.cleanup()


def dataset(pairs, mark=_MARK):
    """Returns a dataset of pairs like that of parsed records."""
    return tf.data.Dataset.from_tensor_slices(
        [records.serialize(*pair) for pair in pairs]
    ).map(lambda record: {**records.parse(record), "tokenizer": np.int64(mark)})


def changes(**arguments):
    return augmentation.Augmentation(tokenizer=_tokens, **arguments)


def augmented(pairs, seed=3, epoch=2, max_length=_MAX_LENGTH, **arguments):
    """Returns augmented pairs as tuples of lists."""
    seeds = tf.constant([seed, epoch], tf.int64)
    result = changes(**arguments).apply(dataset(pairs), seeds, max_length)
    if result.element_spec != dataset(pairs).element_spec:
        raise ValueError(f"Other elements: {result.element_spec}.")
    return [
        (pair["inputs"].tolist(), pair["targets"].tolist())
        for pair in result.as_numpy_iterator()
    ]


@functools.cache
def all_joined():
    """Returns the pairs after the concatenation of every couple."""
    return augmented(_pairs, pair_concatenation=1.0, max_length=999)


def decoded(pairs):
    return [tuple(map(_tokens.decode, pair)) for pair in pairs]


@functools.cache
def training(count, **arguments):
    """Returns the first batches of training, as arrays."""
    arguments = {**_SETTINGS, **arguments}
    batches = batching.training_batches(
        _files, vocab_size=_tokens.vocab_size, tokenizer=_MARK, **arguments
    )
    return list(batches.take(count).as_numpy_iterator())


def unpadded(batches):
    """Returns the pairs in batches, without padding."""
    return [
        (source[source != 0].tolist(), target[target != 0].tolist())
        for batch in batches
        for source, target in zip(
            batch["inputs"], batch["targets"], strict=True
        )
    ]


def of_epoch(batches, epoch):
    return [batch for batch in batches if batch["epoch"] == epoch]


def joined_by_loop(pairs, wanted, max_length):
    """Returns the pairs after concatenation; `wanted` has a bool a couple."""
    result = []
    i = 0
    while i < len(pairs):
        if i + 1 < len(pairs) and wanted[i // 2]:
            sides = [
                first[:-1] + second
                for first, second in zip(pairs[i], pairs[i + 1], strict=True)
            ]
            ends = {tuple(side[-1:]) for k in (0, 1) for side in pairs[i + k]}
            if max(map(len, sides)) <= max_length and ends == {(1,)}:
                result.append(tuple(sides))
                i += 2
                continue
        result.append(pairs[i])
        if i % 2 == 0 and i + 1 < len(pairs):
            result.append(pairs[i + 1])
            i += 1
        i += 1
    return result


class ConcatenationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(seed=(1, 2, 3), count=(0, 1, 2, 9, 256))
    def test_blocks_are_joined_as_by_a_loop(self, seed, count):
        draw = random.Random(seed)

        def ids():
            # Few rows are damaged: without EOS or empty.
            end = draw.choice([[1]] * 9 + [[]])
            return draw.choices(range(3, 9), k=draw.randint(0, 9)) + end

        pairs = [(ids(), ids()) for _ in range(count)]
        wanted = [draw.random() < 0.6 for _ in range(128)]
        block = {
            name: tf.RaggedTensor.from_row_lengths(
                tf.constant([i for row in side for i in row], tf.int32),
                tf.constant([len(row) for row in side], tf.int64),
            )
            for name, side in zip(
                ("inputs", "targets"),
                zip(*pairs, strict=True) if pairs else ([], []),
                strict=True,
            )
        }
        marks = tf.fill([count], tf.constant(_MARK, tf.int64))
        result = augmentation.join(
            {**block, "tokenizer": marks}, tf.constant(wanted), 13
        )
        expected = joined_by_loop(pairs, wanted, 13)
        if count == 256:
            self.assertBetween(len(expected), 150, 250)
        self.assertEqual(
            list(
                zip(
                    result["inputs"].to_list(),
                    result["targets"].to_list(),
                    strict=True,
                )
            ),
            expected,
        )
        self.assertLen(result["tokenizer"], len(expected))

    def test_an_epoch_is_joined_as_by_a_loop_over_the_same_draws(self):
        wanted = []
        for block in range(-(-_PAIRS // 256)):
            seed = tf.constant([3, 2], tf.int64)
            for data in (102, tf.constant(block, tf.int64)):
                seed = tf.random.experimental.stateless_fold_in(seed, data)
            wanted += list(tf.random.stateless_uniform([128], seed) < 0.4)
        self.assertEqual(
            augmented(_pairs, pair_concatenation=0.4),
            joined_by_loop(_pairs, wanted, _MAX_LENGTH),
        )

    @parameterized.parameters(0.05, 0.9)
    def test_the_share_of_joined_pairs_is_the_fields_value(self, p):
        pairs = _pairs * 4
        result = augmented(pairs, pair_concatenation=p)
        everywhere = [True] * (len(pairs) // 2)
        couples = len(pairs) - len(
            joined_by_loop(pairs, everywhere, _MAX_LENGTH)
        )
        joined = len(pairs) - len(result)
        sigma = (p * (1 - p) / couples) ** 0.5
        self.assertBetween(couples, 1000, len(pairs) // 2)
        self.assertAlmostEqual(joined / couples, p, delta=4 * sigma)

    def test_all_couples_are_joined_into_two_sentences_and_a_blank(self):
        result = decoded(all_joined())
        expected = [
            tuple(f"{a} {b}" for a, b in zip(first, second, strict=True))
            for first, second in zip(_texts[::2], _texts[1::2], strict=False)
        ]
        self.assertEqual(result, [*expected, _texts[-1]])

    def test_joined_ids_are_those_of_the_joined_text(self):
        result = all_joined()
        for ids, text in zip(result, decoded(result), strict=True):
            self.assertEqual(ids, tuple(map(_tokens.encode, text)))

    def test_records_of_another_tokenizer_stay_visible(self):
        seeds = tf.constant([1, 1], tf.int64)
        pairs = dataset(_pairs[:1]).concatenate(dataset(_pairs[1:2], mark=5))
        result = changes(pair_concatenation=1.0).apply(pairs, seeds, 999)
        self.assertEqual([int(p["tokenizer"]) for p in result], [_MARK, 5])


class DropoutTest(tf.test.TestCase):
    def test_the_order_and_the_texts_stay(self):
        result = augmented(_pairs, bpe_dropout=0.1)
        self.assertEqual(decoded(result), _texts)
        changed = sum(a != b for a, b in zip(result, _pairs, strict=True))
        self.assertBetween(changed, _PAIRS // 2, _PAIRS)
        # Blocks do not repeat one another's draws.
        again = augmented(_pairs[:1] * 512, bpe_dropout=0.3)
        self.assertNotEqual(again[:256], again[256:])

    def test_samples_that_are_too_long_are_not_taken(self):
        most = 11
        result = augmented(_pairs, bpe_dropout=0.5, max_length=most)
        self.assertEqual(decoded(result), _texts)
        plain = long = 0
        for pair, before in zip(result, _pairs, strict=True):
            for ids, old in zip(pair, before, strict=True):
                if len(old) > most:
                    long += 1
                    self.assertEqual(ids, old)
                else:
                    self.assertLessEqual(len(ids), most)
                    plain += ids == old
        self.assertGreater(min(plain, long), 50)

    def test_rows_that_are_no_sentences_stay(self):
        rows = [
            [],
            [1],
            [5, 0, 1],
            [5, 1, 6, 1],
            [9999, 1],
            [-3, 1],
            [5],
            [2, 1],
        ]
        pairs = [(row, row[::-1]) for row in rows]
        self.assertEqual(augmented(pairs, bpe_dropout=0.5), pairs)


class TrainingBatchesTest(tf.test.TestCase, parameterized.TestCase):
    def test_without_augmentation_nothing_is_added(self):
        pairs = dataset(_pairs)
        self.assertIs(changes().apply(pairs, None, 9), pairs)

    def test_every_epoch_has_every_text_in_other_segmentations(self):
        batches = training(220, augmentation=changes(bpe_dropout=0.1))
        plain = training(220)
        epochs = [unpadded(of_epoch(batches, epoch)) for epoch in range(2)]
        short = decoded(unpadded(of_epoch(plain, 0)))
        for pairs in epochs:
            self.assertCountEqual(decoded(pairs), short)
        first, second = (set(map(str, pairs)) for pairs in epochs)
        self.assertLess(len(first & second), len(first) // 2)

    def test_joined_pairs_hold_every_text_once(self):
        both = changes(bpe_dropout=0.1, pair_concatenation=0.5)
        batches = of_epoch(training(220, augmentation=both), 0)
        short = decoded(unpadded(of_epoch(training(220), 0)))
        for side in range(2):
            words = [
                word
                for pair in decoded(unpadded(batches))
                for word in pair[side].split(" ")
            ]
            expected = [w for pair in short for w in pair[side].split(" ")]
            self.assertCountEqual(words, expected)

    def test_a_restart_gives_the_batches_that_would_have_followed(self):
        both = changes(bpe_dropout=0.1, pair_concatenation=0.5)
        whole = training(220, augmentation=both)
        self.assertNotEmpty(of_epoch(whole, 1))
        for done in (37, len(of_epoch(whole, 0)), 150):
            last = whole[done - 1]
            rest = training(
                9,
                augmentation=both,
                epoch=int(last["epoch"]),
                position=int(last["position"]),
            )
            for ours, expected in zip(rest, whole[done:], strict=False):
                for name, value in expected.items():
                    self.assertAllEqual(ours[name], value)
            self.assertLen(rest, 9)

    def test_seed_and_epoch_alone_count(self):
        for arguments in ({"bpe_dropout": 0.3}, {"pair_concatenation": 0.5}):
            runs = []
            for seed, epoch in ((1, 2), (1, 2), (2, 2), (1, 3)):
                tf.random.set_seed(len(runs))
                runs.append(augmented(_pairs[:300], seed, epoch, **arguments))
            self.assertEqual(runs[0], runs[1])
            self.assertNotIn(runs[0], runs[2:])

    def test_damage_is_named(self):
        path = self.create_tempfile().full_path
        both = changes(bpe_dropout=0.2, pair_concatenation=1.0)
        for ids in ([9999, 1], []):
            records.write([*_pairs[:5], (ids, [5, 1]), *_pairs[5:9]], [path])
            arguments = {"vocab_size": _tokens.vocab_size, "tokenizer": _MARK}
            batches = batching.training_batches(
                [path], augmentation=both, **_SETTINGS, **arguments
            )
            with self.assertRaisesRegex(errors.UserError, "Record 6 of"):
                list(records.guarded(batches.take(9), [path], **arguments))

    @parameterized.parameters("bpe_dropout", "pair_concatenation")
    def test_vocabularies_of_tensor2tensor_are_refused(self, name):
        path = pathlib.Path(_folder.name, "v.subwords")
        path.write_text("'<pad>'\n'<EOS>'\n'a_'\n")
        tokens = tokenizer.load(path)
        augmentation.Augmentation(tokenizer=tokens)
        for other in (tokens, None):
            with self.assertRaisesRegex(errors.UserError, f"Set {name}=0"):
                augmentation.Augmentation(tokenizer=other, **{name: 0.1})


if __name__ == "__main__":
    tf.test.main()
