"""Tests of preparing text in chunks and processes, and of relpos-datagen."""

import random
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import datagen
from relpos_tf.data import tokenizer
from relpos_tf.problems import prepare
from relpos_tf.problems import translate
from tests import folders
from tests.bin import calls

LINES = 307


def text(number=LINES, seed=1):
    """Returns lines of two sides, some of which cleaning drops or changes."""
    generator = random.Random(seed)
    sides = [], []
    for i in range(number):
        words = generator.choices("der die das ein\teine und oder".split(" "))
        line = f"{i} {' '.join(words * generator.randint(1, 9))}"
        pair = [line, f"{line} auch"]
        kind = generator.random()
        if kind < 0.05:
            pair[generator.randrange(2)] = " "
        elif i % 151 == 7:  # More NULs are taken for another encoding.
            pair[0] = "a\0 b\r"
        elif kind < 0.1:
            pair[1] = "x" * 5000
        elif kind < 0.12:
            letters = generator.choices("abcdefgh", k=3000)  # many ids
            pair = ["".join(letters)] * 2
        for side, one in zip(sides, pair, strict=True):
            side.append(one)
    return sides


def write_text(folder):
    """Writes training text and development text."""
    for split, size in (("train", LINES), ("dev", 7)):
        for language, lines in zip(("en", "de"), text(size), strict=True):
            path = folder / f"{split}.{language}"
            path.write_bytes("".join(f"{line}\n" for line in lines).encode())


class PrepareTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        write_text(self.folder)

    def make(self, source="train.en", target="train.de", **given):
        """Returns the problem of text in the folder."""
        train = [
            ",".join(f"{self.folder}/{name}" for name in names.split(","))
            for names in (source, target)
        ]
        given |= {"source": train[0], "target": train[1]}
        files = {f"train_{name}": value for name, value in given.items()}
        for side, language in (("source", "en"), ("target", "de")):
            files[f"dev_{side}"] = f"{self.folder}/dev.{language}"
        return translate.files_problem(files, vocab_size=330)

    def prepared(self, name, num_processes=1, **given):
        """Returns the problem, the manifest and the checksums of its files."""
        made = self.make(**given)
        data = self.folder / name
        manifest = made.prepare(data, num_processes=num_processes)
        return made, manifest, folders.checksums(made.folder(data))

    def test_any_processes_and_chunks_give_the_same(self):
        expected = self.prepared("one")[1:]
        for size, step in ((20, 20), (64, 7), (1000, 256)):
            with (
                mock.patch.object(prepare, "_PAIRS", size),
                mock.patch.object(prepare, "_STEP", step),
            ):
                found = self.prepared(f"{size}", num_processes=1 + size % 3)
            self.assertEqual(found[1:], expected)

    @parameterized.parameters("train.en", "dev.de")
    def test_text_that_is_replaced_meanwhile_is_not_prepared(self, name):
        made, path = self.make(), self.folder / name
        path.write_bytes(path.read_bytes().swapcase())
        with self.assertRaisesRegex(errors.UserError, f"{name}.* while"):
            made.prepare(self.folder / "data")
        self.assertFalse((self.folder / "data").exists())

    def test_corpora_with_weights_or_tags_are_kept_apart(self):
        both = {"source": "train.en,dev.en", "target": "train.de,dev.de"}
        _, one, _ = self.prepared("one", **both)
        number = one["counts"]["train"]
        self.assertEqual(one["corpora"], [{"pairs": number, "tag": 0}])
        weighted, manifest, _ = self.prepared("data", **both, weights="1,4")
        first, second = weighted.corpora(self.folder / "data")
        self.assertEqual(first.pairs + second.pairs, number)
        self.assertBetween(second.pairs, 4, 7)
        self.assertEqual((first.share, second.share), (0.2, 0.8))
        # The files are for any weights.
        _, others, _ = self.prepared("data", **both, weights="2,3")
        self.assertEqual(manifest, others)
        tagged, _, _ = self.prepared("tags", **both, tags=",BT")
        _, second = tagged.corpora(self.folder / "tags")
        tokens = tokenizer.load(tagged.tokenizer_path(self.folder / "tags"))
        self.assertLen(tokens.encode("BT")[:-1], second.tag)
        ids = tagged.tokens(self.folder / "tags", "train")
        starts = ids.starts(ids.lengths[:, 0] * 0 + range(number))[:, 0]
        begins = ids.rows(starts, starts * 0 + second.tag).ids
        is_tagged = (
            begins.reshape(number, -1) == tokens.encode("BT")[:-1]
        ).all(axis=1)
        self.assertEqual(is_tagged.sum(), second.pairs)
        self.assertTrue(is_tagged[-second.pairs :].all())

    @parameterized.parameters(
        (b"\xff\xfe\xfa\n" * 7, "UTF-8"),
        (b" \n" * 7, "a side is empty"),
        (b"a" * 3000 + b"\n" + b"a" * 3001 + b"\n" * 6, "side is"),
    )
    def test_a_corpus_of_which_nothing_is_left_is_named(self, content, reason):
        (self.folder / "dev.en").write_bytes(b"a house\n" * 7)
        (self.folder / "dev.de").write_bytes(content)
        made = self.make("train.en,dev.en", "train.de,dev.de", weights="1,4")
        with self.assertRaisesRegex(errors.UserError, f"dev.de.*{reason}"):
            made.prepare(self.folder / "data")

    def test_the_command_lists_what_is_dropped(self):
        flags = [
            "--problem=translate_files",
            f"--train_source={self.folder}/train.en",
            f"--train_target={self.folder}/train.de",
            f"--dev_source={self.folder}/dev.en",
            f"--dev_target={self.folder}/dev.de",
            "--vocab_size=330",
            f"--data_dir={self.folder}/data",
            "--num_processes=1",
        ]
        code, _, err = calls.execute(datagen.main, *flags)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"Learning the vocabulary from \d+ words\.\n")
        self.assertIn(f"{LINES}   100.00  read\n", err)
        for reason in ("a side is empty", "more than 1,024 ids"):
            self.assertRegex(err, f" [0-9.]+  dropped: .*{reason}\n")
