"""Tests of the registered problems and of the user's own files."""

import dataclasses
import gzip
import os
import pathlib
import shutil
import tempfile
import unittest

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.data import batching
from relpos_tf.data import tokenizer
from relpos_tf.problems import parallel
from relpos_tf.problems import translate

_SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_needs_shared = unittest.skipUnless(
    _SHARED.is_dir(), f"needs the corpora in {_SHARED}"
)


def write_multi30k(folder, target, sizes):
    """Writes captions in Multi30k's layout, untidy as they come."""
    folder.mkdir()
    for stem, size in sizes.items():
        for language in ("en", target):
            lines = (
                f" {language} {i}  stone &amp; tile \n" for i in range(size)
            )
            path = folder / f"{stem}.{language}.gz"
            path.write_bytes(gzip.compress("".join(lines).encode()))


class RegisteredTest(parameterized.TestCase):
    def test_the_promised_problems_are_registered(self):
        self.assertContainsSubset(
            [
                "translate_ende_multi30k",
                "translate_enfr_multi30k",
                "translate_ende_tatoeba",
                "translate_ende_wmt14",
                "translate_enfr_wmt14",
                "translate_ende_phrases",
                "translate_ende_lists",
            ],
            registry.list_problems(),
        )
        for name in set(registry.list_problems()) - {"translate_files"}:
            made = registry.problem(name)
            self.assertEqual(made.name, name)
            self.assertEqual(list(made.splits), ["train", "dev", "test"])

    @parameterized.parameters(
        ("translate_ende_wmt14", "de", 32768),
        ("translate_enfr_wmt14", "fr", 32768),
        ("translate_ende_tatoeba", "de", 8000),
    )
    def test_languages_and_sizes_are_the_papers_or_usual(
        self, name, target, size
    ):
        made = registry.problem(name)
        self.assertEqual(made.source_language, "en")
        self.assertEqual(made.target_language, target)
        self.assertEqual(made.vocab_size, size)

    def test_captions_are_tidied_but_references_are_not(self):
        sizes = {"train": 41, "val": 5, "test_2016_flickr": 3}
        with tempfile.TemporaryDirectory() as tmp_dir:
            write_multi30k(pathlib.Path(tmp_dir, "multi30k"), "de", sizes)
            with self.assertRaisesRegex(errors.UserError, "29000 lines"):
                registry.problem("translate_ende_multi30k").pairs(
                    "train", tmp_dir
                )
            with absltest.mock.patch.object(
                translate, "_MULTI30K_LINES", sizes
            ):
                made = registry.problem("translate_ende_multi30k")
                data_dir = pathlib.Path(tmp_dir, "data")
                manifest = made.prepare(data_dir, tmp_dir)
                tokens = tokenizer.Tokenizer(made.tokenizer_path(data_dir))
                source, target = made.lines(data_dir, "test")
                train = [
                    tokens.decode(row)
                    for batch in batching.evaluation_batches(
                        made.record_files(data_dir, "train"), batch_size=997
                    ).as_numpy_iterator()
                    for row in batch["targets"]
                ]
        self.assertEqual(manifest["counts"], {"train": 41, "dev": 5, "test": 3})
        tidy = [f"{i} stone & tile" for i in range(41)]
        self.assertEqual(source, [f"en {line}" for line in tidy[:3]])
        self.assertEqual(
            target, [f" de {i}  stone &amp; tile " for i in range(3)]
        )
        self.assertCountEqual(train, [f"de {line}" for line in tidy])

    @_needs_shared
    def test_multi30k_prepares_from_the_downloaded_files(self):
        made = dataclasses.replace(  # a vocabulary that is learnt quickly
            registry.problem("translate_ende_multi30k"),
            vocab_size=500,
            tokenizer_pairs=1000,
        )
        with tempfile.TemporaryDirectory() as data_dir:
            manifest = made.prepare(data_dir, str(_SHARED))
            self.assertEqual(
                manifest["counts"], {"train": 29000, "dev": 1014, "test": 1000}
            )
            tokens = tokenizer.Tokenizer(made.tokenizer_path(data_dir))
            self.assertEqual(tokens.vocab_size, made.vocab_size)
            source, target = made.lines(data_dir, "dev")
            for line in source + target:
                self.assertEqual(tokens.decode(tokens.encode(line)), line)
            rows = sum(
                len(batch["inputs"])
                for batch in batching.evaluation_batches(
                    made.record_files(data_dir, "dev"), batch_size=4096
                )
            )
            self.assertEqual(rows, 1014)

    @_needs_shared
    def test_tatoeba_and_newstest_open_from_the_downloaded_files(self):
        tatoeba = registry.problem("translate_ende_tatoeba")
        self.assertLen(list(tatoeba.pairs("test", str(_SHARED))), 2000)
        for target in ("de", "fr"):
            made = registry.problem(f"translate_en{target}_wmt14")
            self.assertLen(list(made.pairs("dev", str(_SHARED))), 3000)


class FilesProblemTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.data_dir = self.folder / "data"
        self.files = {
            name: self.write(name, "".join(f"{line}\n" for line in lines))
            for name, lines in {
                "train.en": [f"{i} dogs" for i in range(23)],
                "train.de": [f"{i} Hunde" for i in range(23)],
                "dev.en": ["2 cats", ""],
                "dev.de": ["2 Katzen", "leer"],
            }.items()
        }

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    def make(self, **arguments):
        return translate.files_problem(
            self.files["train.en"],
            self.files["train.de"],
            self.files["dev.en"],
            self.files["dev.de"],
            **{"vocab_size": 300, **arguments},
        )

    def test_ones_own_files_become_a_problem(self):
        made = self.make()
        manifest = made.prepare(self.data_dir)
        self.assertEqual(manifest["counts"], {"train": 23, "dev": 2})
        self.assertEqual(made.name, "translate_files")
        self.assertEqual(
            (made.source_language, made.target_language), ("en", "de")
        )
        self.assertEqual(
            made.lines(self.data_dir, "dev"),
            (["2 cats", ""], ["2 Katzen", "leer"]),
        )

    def test_a_test_set_is_optional_but_whole(self):
        dev = self.files["dev.en"], self.files["dev.de"]
        made = self.make(test_source=dev[0], test_target=dev[1])
        self.assertEqual(
            list(made.pairs("test")), [("2 cats", "2 Katzen"), ("", "leer")]
        )
        with self.assertRaisesRegex(errors.UserError, "--test_target"):
            self.make(test_source=dev[0])

    def test_unequal_files_are_refused_before_anything_is_written(self):
        for name, content in (("dev.de", "eine\n"), ("train.de", "")):
            whole = pathlib.Path(self.files[name]).read_text()
            path = self.write(name, content)
            with self.assertRaises(errors.UserError) as raised:
                self.make().prepare(self.data_dir)
            count = content.count("\n")
            self.assertIn(f"{path} has {count} lines", str(raised.exception))
            self.assertFalse(self.data_dir.exists())
            self.write(name, whole)

    def test_missing_files_are_refused_at_once(self):
        pathlib.Path(self.files["dev.en"]).unlink()
        with self.assertRaisesRegex(errors.UserError, self.files["dev.en"]):
            self.make()
        os.mkfifo(self.files["dev.en"])
        with self.assertRaisesRegex(errors.UserError, "more than once"):
            self.make()  # rather than wait for the other end

    def test_changed_files_are_prepared_again(self):
        self.make().prepare(self.data_dir)
        self.assertTrue(self.make().is_prepared(self.data_dir))
        self.assertFalse(self.make(vocab_size=301).is_prepared(self.data_dir))
        # One letter of many, the size as before.
        self.write("train.de", "".join(f"{i} hunde\n" for i in range(23)))
        changed = self.make()
        self.assertFalse(changed.is_prepared(self.data_dir))
        changed.prepare(self.data_dir)
        tokens = tokenizer.Tokenizer(changed.tokenizer_path(self.data_dir))
        self.assertIn("▁hunde", tokens.pieces())

    def test_each_corpus_has_a_folder_of_its_own(self):
        first = self.make()
        made = first.prepare(self.data_dir)
        own = self.data_dir / "translate_files"  # as raw text may lie
        own.mkdir()
        (own / "notes.txt").write_text("mine")
        pieces = pathlib.Path(first.tokenizer_path(self.data_dir)).read_bytes()
        self.write("train.de", "".join(f"{i} hunde\n" for i in range(23)))
        self.make().prepare_anew(self.data_dir)
        self.assertEqual(first.manifest(self.data_dir), made)
        self.assertEqual(
            pathlib.Path(first.tokenizer_path(self.data_dir)).read_bytes(),
            pieces,
        )
        self.assertEqual((own / "notes.txt").read_text(), "mine")
        folders = [path.name for path in self.data_dir.iterdir()]
        self.assertLen(folders, 3)

    def test_the_same_text_elsewhere_is_prepared_already(self):
        first = self.make()
        first.prepare(self.data_dir)
        there = self.folder / "copied"
        there.mkdir()
        self.files = {
            name: shutil.copy(path, there) for name, path in self.files.items()
        }
        copied = self.make()
        self.assertTrue(copied.is_prepared(self.data_dir))
        self.assertEqual(
            copied.folder(self.data_dir), first.folder(self.data_dir)
        )

    def test_a_change_in_the_middle_of_a_large_file_is_noticed(self):
        # 4 MB, of which the ends are the same.
        found = [
            self.make().folder(self.write("train.de", text) and self.data_dir)
            for text in (
                "7 Hunde\n" * 500_000,
                "7 Hunde\n" * 250_000 + "7 Bunde\n" + "7 Hunde\n" * 249_999,
            )
        ]
        self.assertNotEqual(*found)

    def test_reading_is_by_line_feeds_only(self):
        self.write("train.en", "a\u2028b\r\n" * 23)
        self.assertEqual(
            next(self.make().pairs("train")), ("a\u2028b", "0 Hunde")
        )
        self.assertIsInstance(
            self.make().splits["train"](None), parallel.ParallelText
        )


if __name__ == "__main__":
    absltest.main()
