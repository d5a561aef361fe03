"""Tests of the files of a prepared problem, one by one."""

import collections
import hashlib
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest

from relpos_tf.data import pieces
from relpos_tf.data import records
from relpos_tf.problems import cleaning
from relpos_tf.problems import parts
from relpos_tf.problems import writing
from relpos_tf.utils import processes
from relpos_tf.utils import text

_PAIRS = [(f"{i}", f"{i} {i}") for i in range(9001)]


class Letters:
    """Stands for a tokenizer: one id per character."""

    vocab_size = 0x110000

    def encode_batch(self, texts):
        return [[*map(ord, text), 1] for text in texts]


class WritingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "parts").mkdir()
        self.tokenizer = self.folder / "tokenizer.model"
        self.tokenizer.write_bytes(b"letters")
        self.enter_context(
            mock.patch.object(
                parts, "packer_of", lambda path: pieces.Packer(Letters())
            )
        )

    def write_training(self, pairs, num_shards):
        """Returns the pairs written, the counts of cleaning, and lengths."""
        training = writing.TrainingText(
            [pairs],
            [""],
            cleaning.unchanged,
            self.folder / "parts",
            processes.Pool(1),
        )
        encoded = writing.encode_training(training, self.tokenizer, num_shards)
        writing.write_training(
            self.folder, training, self.tokenizer, encoded, num_shards
        )
        [found] = encoded
        counts = sum((part.cleaning for part in found), collections.Counter())
        del counts["read"]
        return (
            sum(part.count for part in found),
            counts,
            sum((part.lengths for part in found), collections.Counter()),
        )

    def test_more_pairs_than_one_batch_are_all_written(self):
        with mock.patch("relpos_tf.problems.blocks.LINES", 1000):
            written, counts, lengths = self.write_training(_PAIRS, 7)
        files = writing.shard_paths(self.folder, "train", 7)
        self.assertEqual(written, len(_PAIRS))
        self.assertEqual(records.count_records(files), len(_PAIRS))
        self.assertEqual(counts, {})
        # "7" and "7 7" are 1 and 3 letters, and EOS.
        self.assertEqual(lengths, {4: 10, 6: 90, 8: 900, 10: 8001})

    def test_large_shards_are_put_in_order_beside_the_data(self):
        none = str(self.folder / "none")
        with (
            mock.patch.object(tempfile, "tempdir", none),
            mock.patch.object(parts, "BUCKET_BYTES", 1000),
        ):
            written, _, _ = self.write_training(_PAIRS[:101], 2)
        self.assertEqual(written, 101)

    def test_very_large_shards_have_a_limited_number_of_files(self):
        found = []
        for most_buckets in (64, 5):
            with (
                mock.patch.object(parts, "BUCKET_BYTES", 1),
                mock.patch.object(parts, "MOST_BUCKETS", most_buckets),
                mock.patch.object(
                    tempfile, "TemporaryFile", wraps=tempfile.TemporaryFile
                ) as made,
            ):
                self.write_training(_PAIRS[:101], 1)
            [path] = writing.shard_paths(self.folder, "train", 1)
            found.append((made.call_count, path.read_bytes()))
            shutil.rmtree(self.folder / "parts")
            (self.folder / "parts").mkdir()
        self.assertEqual([number for number, _ in found], [64, 5])
        self.assertEqual(found[0][1], found[1][1])

    def test_the_longest_pairs_allowed_are_kept(self):
        longest = "a" * (parts.MAX_TOKENS - 1)
        pairs = [(longest, "a"), ("a", longest), ("a", longest + "a")]
        with mock.patch.object(cleaning, "MAX_RATIO", 2000):
            written, counts, lengths = self.write_training(pairs, 1)
        self.assertEqual((written, counts), (2, {"tokens": 1}))
        self.assertEqual(lengths, {parts.MAX_TOKENS: 2})

    def test_nothing_held_out_is_dropped(self):
        pairs = [("", ""), ("a" * 5000, "b\0"), ("c", "\ufffd")]
        written, _ = writing.write_held_out(
            self.folder, "dev", pairs, str.upper, self.tokenizer
        )
        self.assertEqual(written, 3)
        self.assertEqual(
            (self.folder / "dev.source").read_text(),
            "\n" + "A" * 5000 + "\nC\n",
        )
        self.assertEqual(
            (self.folder / "dev.target").read_text(), "\nb\0\n\ufffd\n"
        )

    def test_reference_that_is_not_utf_8_is_warned_of(self):
        path = self.folder / "latin1"
        path.write_bytes("schön\nGrüße\nTage\n".encode("latin1"))
        pairs = list(zip("abc", text.read_lines(path), strict=True))
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            writing.write_held_out(
                self.folder, "dev", pairs, str, self.tokenizer
            )
        [line] = logs.output
        self.assertIn("2 of 3 lines of the dev set's target are not", line)

    def test_files_are_described_by_size_and_checksum(self):
        (self.folder / "a").write_bytes(b"x" * (3 << 20))
        (self.folder / "b").write_bytes(b"")
        known = writing.finish(self.folder, {})
        self.assertEqual(known["a"]["bytes"], 3 << 20)
        self.assertEqual(
            known["a"]["sha256"], hashlib.sha256(b"x" * (3 << 20)).hexdigest()
        )
        self.assertEqual(known["b"]["sha256"], hashlib.sha256().hexdigest())
        entry = {"bytes": 7, "sha256": "known"}
        described = writing.finish(self.folder, {"b": entry})
        self.assertEqual(described, {**known, "b": entry})


if __name__ == "__main__":
    absltest.main()
