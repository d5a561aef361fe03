"""Tests of the files of a prepared problem, one by one."""

import collections
import hashlib
import pathlib
import tempfile

from absl.testing import absltest

from relpos_tf.data import records
from relpos_tf.problems import writing
from relpos_tf.utils import text

_PAIRS = [(f"{i}", f"{i} {i}") for i in range(9001)]


class Letters:
    """Stands for a tokenizer: one id per character."""

    def encode_batch(self, texts):
        return [[*map(ord, text), 1] for text in texts]


class WritingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_more_pairs_than_one_batch_are_all_written(self):
        counts, lengths = collections.Counter(), collections.Counter()
        written = writing.write_training(
            self.folder, _PAIRS, Letters(), 7, counts, lengths
        )
        files = writing.shard_paths(self.folder, "train", 7)
        self.assertEqual(written, len(_PAIRS))
        self.assertEqual(records.count_records(files), len(_PAIRS))
        self.assertEqual(counts, {})
        # "7" and "7 7" are 1 and 3 letters, and EOS.
        self.assertEqual(lengths, {4: 10, 6: 90, 8: 900, 10: 8001})

    def test_the_longest_pairs_allowed_are_kept(self):
        longest = "a" * (writing.MAX_TOKENS - 1)
        pairs = [(longest, "a"), ("a", longest), ("a", longest + "a")]
        counts, lengths = collections.Counter(), collections.Counter()
        written = writing.write_training(
            self.folder, pairs, Letters(), 1, counts, lengths
        )
        self.assertEqual((written, counts), (2, {"tokens": 1}))
        self.assertEqual(lengths, {writing.MAX_TOKENS: 2})

    def test_nothing_held_out_is_dropped(self):
        pairs = [("", ""), ("a" * 5000, "b\0"), ("c", "\ufffd")]
        written = writing.write_held_out(
            self.folder, "dev", pairs, str.upper, Letters()
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
            writing.write_held_out(self.folder, "dev", pairs, str, Letters())
        [line] = logs.output
        self.assertIn("2 of 3 lines of the dev set's target are not", line)

    def test_files_are_described_by_size_and_checksum(self):
        (self.folder / "a").write_bytes(b"x" * (3 << 20))
        (self.folder / "b").write_bytes(b"")
        known = writing.finish(self.folder, self.folder / "b")
        self.assertEqual(known["a"]["bytes"], 3 << 20)
        self.assertEqual(
            known["a"]["sha256"], hashlib.sha256(b"x" * (3 << 20)).hexdigest()
        )
        self.assertEqual(known["b"]["sha256"], hashlib.sha256().hexdigest())


if __name__ == "__main__":
    absltest.main()
