"""Tests of preparing a problem: complete or not at all, and nothing lost."""

import atexit
import copy
import functools
import hashlib
import json
import pathlib
import shutil
import tempfile

import tensorflow as tf
from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import records
from relpos_tf.data import tokenizer
from relpos_tf.problems import problem

TRAIN = [(f"  {i} dogs & {i + 1} cats ", f"{i} Hunde\0") for i in range(31)]
DEV = [("", "leer"), (" a  dog ", " ein  Hund "), ("x\ufffd", ""), ("y", "z")]


class Broken:
    """Pairs that cannot be read to the end."""

    def __iter__(self):
        yield from TRAIN
        raise OSError("No space left on device")


def make(train=TRAIN, dev=DEV, **fields):
    """Returns a problem with the given pairs."""
    settings = {
        "name": "pets",
        "source_language": "en",
        "target_language": "de",
        "vocab_size": 300,
        "splits": {"train": lambda tmp_dir: train, "dev": lambda tmp_dir: dev},
        "num_shards": 3,
        **fields,
    }
    return problem.Problem(**settings)


@functools.cache
def prepared_once():
    """Returns a folder where `make()` is prepared, and the manifest."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return pathlib.Path(folder), make().prepare(folder)


def copy_prepared(data_dir):
    """Copies the prepared folder of `make()`; returns the manifest."""
    folder, manifest = prepared_once()
    shutil.copytree(folder / "pets", data_dir / "pets")
    return copy.deepcopy(manifest)


def read(files):
    """Returns the pairs of ids in record files."""
    pairs = tf.data.TFRecordDataset(list(files)).map(records.parse)
    return [
        (pair["inputs"].tolist(), pair["targets"].tolist())
        for pair in pairs.as_numpy_iterator()
    ]


class ProblemTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data_dir = pathlib.Path(folder.name, "data")

    def texts(self, pets, split):
        tokens = tokenizer.Tokenizer(pets.tokenizer_path(self.data_dir))
        return [
            (tokens.decode(inputs), tokens.decode(targets))
            for inputs, targets in read(pets.record_files(self.data_dir, split))
        ]

    def test_training_pairs_are_all_there_clean_and_shuffled(self):
        pets = make(TRAIN + [("lost", ""), ("a" * 5000, "b" * 5000)])
        manifest = pets.prepare(self.data_dir)
        self.assertEqual(manifest["counts"], {"train": 31, "dev": 4})
        self.assertEqual(
            manifest["cleaning"],
            {"read": 33, "nul": 31, "blank": 1, "long": 1},
        )
        files = pets.record_files(self.data_dir, "train")
        self.assertEqual(
            [pathlib.Path(path).name for path in files],
            [f"train-{i:05d}-of-00003.tfrecord" for i in range(3)],
        )
        clean = [(f"{i} dogs & {i + 1} cats", f"{i} Hunde") for i in range(31)]
        texts = self.texts(pets, "train")
        self.assertCountEqual(texts, clean)
        dealt = [pair for i in range(3) for pair in clean[i::3]]
        self.assertNotEqual(texts, dealt)

    def test_held_out_lines_keep_their_places_and_references(self):
        pets = make(normalize=lambda line: " ".join(line.split()))
        pets.prepare(self.data_dir)
        source, target = pets.lines(self.data_dir, "dev")
        self.assertEqual(source, ["", "a dog", "x\ufffd", "y"])
        self.assertEqual(target, ["leer", " ein  Hund ", "", "z"])
        self.assertEqual(
            self.texts(pets, "dev"), list(zip(source, target, strict=True))
        )

    def test_the_manifest_describes_every_file(self):
        pets = make()
        manifest = pets.prepare(self.data_dir, num_shards=2)
        folder = self.data_dir / "pets"
        names = {path.name for path in folder.iterdir()} - {"manifest.json"}
        self.assertEqual(manifest["files"].keys(), names)
        self.assertLen([n for n in names if n.startswith("train")], 2)
        for name, known in manifest["files"].items():
            content = (folder / name).read_bytes()
            self.assertEqual(known["bytes"], len(content))
            self.assertEqual(
                known["sha256"], hashlib.sha256(content).hexdigest()
            )
        self.assertEqual(pets.manifest(self.data_dir), manifest)
        self.assertIn("sentencepiece", manifest["versions"])
        tokens = tokenizer.Tokenizer(pets.tokenizer_path(self.data_dir))
        self.assertEqual(manifest["vocab_size"], tokens.vocab_size)

    def test_preparing_twice_gives_the_same_files(self):
        _, first = prepared_once()
        self.assertEqual(make().prepare(self.data_dir), first)

    def test_a_failure_leaves_no_trace_and_keeps_earlier_data(self):
        self.assertRaises(OSError, make(Broken()).prepare, self.data_dir)
        self.assertEmpty(list(self.data_dir.iterdir()))
        made = copy_prepared(self.data_dir)
        other = make(Broken(), vocab_size=290)
        self.assertRaises(OSError, other.prepare, self.data_dir)
        self.assertEqual(make().manifest(self.data_dir), made)
        self.assertLen(list(self.data_dir.iterdir()), 1)

    def test_a_folder_without_manifest_does_not_count(self):
        folder = self.data_dir / "pets"
        folder.mkdir(parents=True)
        half = folder / "train-00000-of-00001.tfrecord"
        half.write_bytes(b"half")
        pets = make()
        self.assertFalse(pets.is_prepared(self.data_dir))
        with self.assertRaisesRegex(errors.UserError, "--generate_data"):
            pets.record_files(self.data_dir, "train")
        # Nothing says that it is ours.
        with self.assertRaisesRegex(errors.UserError, f"has {half.name}. Move"):
            pets.prepare(self.data_dir)
        half.unlink()
        pets.prepare(self.data_dir)
        self.assertLen(self.texts(pets, "train"), 31)

    def test_a_prepared_folder_is_used_again_unless_settings_differ(self):
        copy_prepared(self.data_dir)
        make(Broken()).prepare(self.data_dir)  # reads nothing
        other = make(TRAIN[:5], vocab_size=290)
        with self.assertRaisesRegex(
            errors.UserError, "'vocab_size': 290.*'vocab_size': 300"
        ):
            other.tokenizer_path(self.data_dir)
        self.assertEqual(other.prepare(self.data_dir)["counts"]["train"], 5)
        self.assertFalse(make().is_prepared(self.data_dir))

    def test_other_settings_have_another_folder(self):
        one, two = (make(settings={"file": i}) for i in (1, 2))
        first = one.prepare(self.data_dir)
        two.prepare(self.data_dir)
        self.assertEqual(one.manifest(self.data_dir), first)
        again = make(Broken(), settings={"file": 1})
        self.assertEqual(again.prepare(self.data_dir), first)
        names = {path.name for path in self.data_dir.iterdir()}
        self.assertLen(names, 2)
        for name in names:
            self.assertRegex(name, "^pets-[0-9a-f]{8}$")

    def test_damaged_files_are_named_before_training(self):
        pets = make()
        copy_prepared(self.data_dir)
        path = pets.record_files(self.data_dir, "train")[1]
        content = pathlib.Path(path).read_bytes()
        pathlib.Path(path).write_bytes(content[:-1])
        with self.assertRaisesRegex(errors.UserError, path):
            pets.record_files(self.data_dir, "train")
        pathlib.Path(path).unlink()
        with self.assertRaisesRegex(errors.UserError, path):
            pets.record_files(self.data_dir, "train")
        manifest = self.data_dir / "pets" / "manifest.json"
        manifest.write_text(json.dumps({"format": 1})[:5])
        with self.assertRaisesRegex(errors.UserError, str(manifest)):
            pets.record_files(self.data_dir, "train")

    def test_missing_splits_are_named(self):
        pets = make()
        copy_prepared(self.data_dir)
        with self.assertRaisesRegex(errors.UserError, "train, dev.*'test'"):
            pets.pairs("test")
        for ask in (pets.record_files, pets.lines):
            with self.assertRaisesRegex(errors.UserError, "no.*'test'"):
                ask(self.data_dir, "test")

    def test_training_text_without_a_usable_pair_is_refused(self):
        for train in ([], [("a", "")]):
            with self.assertRaisesRegex(errors.UserError, "training pairs"):
                make(train).prepare(self.data_dir)
        self.assertEmpty(list(self.data_dir.iterdir()))

    def test_a_split_without_lines_is_refused(self):
        with self.assertRaisesRegex(errors.UserError, "dev set of pets"):
            make(dev=[]).prepare(self.data_dir)
        self.assertEmpty(list(self.data_dir.iterdir()))

    def test_pairs_of_too_many_tokens_are_dropped_and_counted(self):
        # A character without a piece takes several bytes, each a token.
        rare = "".join(chr(0x4E00 + i) for i in range(700))
        pets = make([*TRAIN * 99, (rare, rare)], character_coverage=0.98)
        manifest = pets.prepare(self.data_dir)
        self.assertEqual(manifest["cleaning"]["tokens"], 1)
        self.assertEqual(manifest["counts"]["train"], 31 * 99)

    def test_a_given_tokenizer_is_taken_and_has_a_folder_of_its_own(self):
        copy_prepared(self.data_dir)
        path = self.data_dir / "given.model"
        pieces.train(["a b c d"] * 9, path, 280)
        pets = make(tokenizer_file=str(path))
        self.assertFalse(pets.is_prepared(self.data_dir))
        pets.prepare(self.data_dir)
        self.assertNotEqual(
            pets.folder(self.data_dir), make().folder(self.data_dir)
        )
        self.assertTrue(make().is_prepared(self.data_dir))
        found = pathlib.Path(pets.tokenizer_path(self.data_dir))
        self.assertEqual(found.name, "tokenizer.model")
        self.assertEqual(found.read_bytes(), path.read_bytes())
        self.assertEqual(self.texts(pets, "train"), self.texts(make(), "train"))
        pieces.train(["a b c d e"] * 9, path, 280)
        self.assertFalse(pets.is_prepared(self.data_dir))

    def test_the_vocabulary_is_learnt_from_an_even_sample(self):
        # Were it the first pairs only, "dogs" would have no piece.
        train = [("bird fly", "Vogel")] * 400 + [("dogs bark", "Hunde")] * 400
        pets = make(train, tokenizer_pairs=40, vocab_size=350)
        pets.prepare(self.data_dir)
        pieces = tokenizer.Tokenizer(
            pets.tokenizer_path(self.data_dir)
        ).pieces()
        self.assertContainsSubset(["▁bird", "▁dogs"], pieces)


if __name__ == "__main__":
    absltest.main()
