"""Tests of batches: the texts of a plan, on any number of hosts."""

import itertools
import pathlib

import numpy as np
from absl.testing import parameterized

from relpos_tf.data import batches
from relpos_tf.data import pieces
from relpos_tf.data import plan as plan_lib
from relpos_tf.data import token_files
from relpos_tf.data import tokenizer

WORDS = "das dass haus hausen eis heiss reise reisende sehen sah".split()
PAIRS, TAGGED, MAX_LENGTH = 211, 90, 31
TAG = "<2de>"


def texts():
    """Returns pairs of texts; the last ones have a tag, and all a number."""
    draw = np.random.default_rng(7)
    pairs = []
    for i in range(PAIRS):
        source, target = (
            " ".join([str(i), *draw.choice(WORDS, draw.integers(1, 5))])
            for _ in range(2)
        )
        tag = f"{TAG} " if i >= PAIRS - TAGGED else ""
        pairs.append((tag + source, target))
    return pairs


class BatchesTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.create_tempdir(cls()).full_path)
        model = cls.folder / "tokenizer.model"
        cls.texts = texts()
        pieces.learn(
            pieces.count_words(itertools.chain(*cls.texts)), model, 330
        )
        encoder = pieces.encoder(str(model))
        with token_files.writer(cls.folder, "train", 330) as write:
            write(
                *(
                    encoder.arrays(list(side))
                    for side in zip(*cls.texts, strict=True)
                )
            )
        cls.tokens = token_files.TokenFile(cls.folder, "train", 330)
        cls.tokenizer = tokenizer.load(model)
        cls.tag = cls.tokenizer.encode(TAG)[:-1]

    def reader(self, joined=0.0, dropout=0.0, pads=False, tagged=True):
        """Returns a reader of the pairs."""
        corpora = [plan_lib.Corpus(PAIRS)]
        if tagged:
            corpora = [
                plan_lib.Corpus(PAIRS - TAGGED),
                plan_lib.Corpus(TAGGED, len(self.tag)),
            ]
        plan = plan_lib.Plan(
            self.tokens.lengths,
            corpora,
            plan_lib.buckets(150, MAX_LENGTH),
            joined,
        )
        return batches.Reader(self.tokens, plan, self.tokenizer, dropout, pads)

    def epoch(self, reader, number=0):
        """Returns the batches of an epoch, as arrays, with their rows."""
        return [
            (rows, reader.read(rows, 5, number))
            for rows in reader.plan.epoch(5, number)
        ]

    def decoded(self, ids):
        return [self.tokenizer.decode(row) for row in ids]

    @parameterized.parameters((0.0, 0.0), (0.6, 0.0), (0.0, 0.4), (0.6, 0.4))
    def test_every_row_has_its_texts(self, joined, dropout):
        number = 0
        for rows, batch in self.epoch(self.reader(joined, dropout)):
            for side, name in enumerate(("inputs", "targets")):
                expected = []
                for first, second in rows.tolist():
                    text = self.texts[first][side]
                    if second != plan_lib.NO_PAIR:
                        more = self.texts[second][side]
                        text += " " + more.removeprefix(f"{TAG} ")
                    expected.append(text)
                self.assertEqual(self.decoded(batch[name]), expected)
                number += len(expected)
        self.assertGreater(number, PAIRS)

    @parameterized.parameters((0.6, 0.0), (0.0, 0.5), (0.6, 0.5))
    def test_a_tag_stays_whole_and_first(self, joined, dropout):
        number = 0
        for rows, batch in self.epoch(self.reader(joined, dropout)):
            is_tagged = rows[:, 0] >= PAIRS - TAGGED
            lengths = np.where(is_tagged, len(self.tag), 0)
            self.assertEqual(batch["tag_lengths"].tolist(), lengths.tolist())
            for ids in batch["inputs"][is_tagged].tolist():
                self.assertEqual(ids[: len(self.tag)], self.tag)
                self.assertNotIn(TAG, self.tokenizer.decode(ids)[len(TAG) :])
                number += 1
        self.assertGreater(number, TAGGED // 3)

    def test_joined_ids_are_those_of_the_joined_text(self):
        for _, batch in self.epoch(self.reader(joined=1.0)):
            for name in ("inputs", "targets"):
                ids = map(self.tokenizer.encode, self.decoded(batch[name]))
                for row, expected in zip(batch[name], ids, strict=True):
                    self.assertEqual(row[row != 0].tolist(), expected)

    def test_dropout_gives_each_epoch_other_pieces_of_the_same_text(self):
        reader = self.reader(dropout=0.3, tagged=False)
        rows = np.array([[n, plan_lib.NO_PAIR] for n in range(30)])
        first, again, second, other = (
            reader.read(rows, *key) for key in ((5, 0), (5, 0), (5, 1), (6, 0))
        )
        for name in ("inputs", "targets"):
            self.assertEqual(first[name].tolist(), again[name].tolist())
            for changed in (second, other):
                self.assertNotEqual(
                    first[name].tolist(), changed[name].tolist()
                )
                self.assertEqual(
                    self.decoded(first[name]), self.decoded(changed[name])
                )

    def test_dropout_depends_on_the_pair_and_not_on_its_batch(self):
        reader = self.reader(dropout=0.3)
        rows = np.array([[n, plan_lib.NO_PAIR] for n in range(10)])
        together = reader.read(rows, 5, 2)["inputs"]
        for row, number in zip(together, rows, strict=True):
            alone = reader.read(number[np.newaxis], 5, 2)["inputs"][0]
            self.assertEqual(row[row != 0].tolist(), alone.tolist())

    def test_no_row_gets_longer_than_the_longest_allowed(self):
        plain = [b["inputs"].shape[1] for _, b in self.epoch(self.reader())]
        for _, batch in self.epoch(self.reader(0.5, 0.9)):
            self.assertLessEqual(batch["inputs"].shape[1], MAX_LENGTH)
            self.assertLessEqual(batch["targets"].shape[1], MAX_LENGTH)
        self.assertLess(max(plain), MAX_LENGTH)

    def test_padding_to_limits_leaves_few_shapes_and_the_same_rows(self):
        plain = self.epoch(self.reader(joined=0.5))
        padded = self.epoch(self.reader(joined=0.5, pads=True))
        limits, sizes = plan_lib.buckets(150, MAX_LENGTH)
        for (rows, expected), (_, found) in zip(plain, padded, strict=True):
            self.assertEqual(found["inputs"].shape, found["targets"].shape)
            number, length = found["inputs"].shape
            self.assertEqual(number, sizes[limits.index(length)])
            for name in ("inputs", "targets"):
                part = found[name][: len(rows), : expected[name].shape[1]]
                self.assertEqual(part.tolist(), expected[name].tolist())
                self.assertEqual(
                    np.count_nonzero(found[name]),
                    np.count_nonzero(expected[name]),
                )

    @parameterized.parameters((2, 1), (3, 1), (2, 2))
    def test_hosts_together_get_the_batches_of_one(self, hosts, replicas):
        reader = self.reader(joined=0.3, dropout=0.2)

        def read(number, **options):
            dataset = batches.training_batches(
                reader, seed=5, epoch=1, position=3, **options
            )
            return [
                {name: value.tolist() for name, value in batch.items()}
                for batch in dataset.take(number).as_numpy_iterator()
            ]

        number = 60  # more than an epoch
        expected = read(number)
        own = [
            iter(read(number, host=batches.Host(i, hosts, replicas)))
            for i in range(hosts)
        ]
        turns = itertools.cycle(
            [host for host in range(hosts) for _ in range(replicas)]
        )
        for batch in expected:
            self.assertEqual(next(own[next(turns)]), batch)
        self.assertEqual(expected[0]["position"], 4)
        self.assertGreater(expected[-1]["epoch"], 1)

    def test_evaluation_has_every_pair_once_whatever_its_length(self):
        found = []
        for batch in batches.evaluation_batches(self.tokens, 20):
            found += zip(
                self.decoded(batch["inputs"]),
                self.decoded(batch["targets"]),
                strict=True,
            )
            number, length = batch["inputs"].shape
            self.assertTrue(number == 1 or number * length <= 20)
        self.assertCountEqual(found, self.texts)
