"""Tests of the registered problems and of the user's own files."""

import dataclasses
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import unittest
import urllib.error
import urllib.request

import sacrebleu
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.data import batching
from relpos_tf.data import tokenizer
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import multi30k
from relpos_tf.problems import own_files
from relpos_tf.problems import parallel
from relpos_tf.problems import problem as problem_lib
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
            with absltest.mock.patch.dict(multi30k.NUM_LINES, sizes):
                made = dataclasses.replace(
                    registry.problem("translate_ende_multi30k"),
                    further_tests=problem_lib.no_further_tests,
                )
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
            further_tests=problem_lib.no_further_tests,
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


class FurtherTestSetsTest(absltest.TestCase):
    """Multi30k has test sets that are prepared only if they are at hand."""

    SIZES = {
        "train": 41,
        "val": 5,
        "test_2016_flickr": 3,
        "test_2017_flickr": 7,
        "test_2017_mscoco": 2,
        "test_2018_flickr": 4,
    }

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp_dir = pathlib.Path(folder.name, "tmp")
        self.tmp_dir.mkdir()
        self.files = self.tmp_dir / "multi30k"
        self.data_dir = pathlib.Path(folder.name, "data")
        write_multi30k(self.files, "fr", self.SIZES)
        self.enter_context(
            absltest.mock.patch.dict(multi30k.NUM_LINES, self.SIZES)
        )
        self.urlopen = self.enter_context(
            absltest.mock.patch.object(
                urllib.request,
                "urlopen",
                side_effect=urllib.error.URLError("no network"),
            )
        )
        self.made = registry.problem("translate_enfr_multi30k")

    def remove(self, *names):
        for name in names:
            (self.files / f"{name}.gz").unlink()

    def counts(self, **expected):
        return {"train": 41, "dev": 5, "test": 3, **expected}

    def test_all_are_prepared_like_the_first(self):
        manifest = self.made.prepare(self.data_dir, str(self.tmp_dir))
        expected = self.counts(
            test_2017_flickr=7, test_2017_mscoco=2, test_2018_flickr=4
        )
        self.assertEqual(manifest["counts"], expected)
        self.assertEqual(
            manifest_lib.test_sets(self.made.manifest(self.data_dir)),
            [
                "test",
                "test_2017_flickr",
                "test_2017_mscoco",
                "test_2018_flickr",
            ],
        )
        self.assertEqual(
            self.made.lines(self.data_dir, "test_2017_mscoco"),
            (
                ["en 0 stone & tile", "en 1 stone & tile"],
                [" fr 0  stone &amp; tile ", " fr 1  stone &amp; tile "],
            ),
        )
        self.assertLen(
            self.made.record_files(self.data_dir, "test_2018_flickr"), 1
        )
        self.assertEmpty(self.urlopen.mock_calls)

    def test_missing_ones_are_named_and_left_out_after_one_attempt(self):
        self.remove(
            "test_2017_flickr.en",
            "test_2017_flickr.fr",
            "test_2018_flickr.fr",
        )
        with self.assertLogs("relpos_tf", level="INFO") as logs:
            manifest = self.made.prepare(self.data_dir, str(self.tmp_dir))
        self.assertEqual(manifest["counts"], self.counts(test_2017_mscoco=2))
        self.assertLen(self.urlopen.mock_calls, 1)
        (line,) = [r.getMessage() for r in logs.records]
        self.assertStartsWith(
            line,
            "Left out, since they are not required and not at hand: "
            "test_2017_flickr, test_2018_flickr (<urlopen error no network>). "
            "To add them, put",
        )
        self.assertIn(
            "put test_2017_flickr.en, test_2017_flickr.fr, "
            f"test_2018_flickr.fr, plain or .gz, into {self.files} and",
            line,
        )
        self.assertNotIn("\n", line)

    def test_a_download_that_is_not_the_published_file_is_left_out(self):
        self.remove("test_2017_mscoco.fr")
        self.urlopen.side_effect = None
        answer = self.urlopen.return_value.__enter__.return_value
        answer.headers = {}
        answer.read.side_effect = [b"<html>", b""]
        with self.assertLogs("relpos_tf", level="INFO") as logs:
            manifest = self.made.prepare(self.data_dir, str(self.tmp_dir))
        self.assertNotIn("test_2017_mscoco", manifest["counts"])
        self.assertIn("4995d10954a804d3cdfd907b9fd093e8", logs.output[0])
        self.assertFalse((self.files / "test_2017_mscoco.fr.gz").exists())

    def test_other_files_of_the_same_name_are_refused(self):
        path = self.files / "test_2018_flickr.fr.gz"
        path.write_bytes(gzip.compress(b"un\n"))
        with self.assertRaisesRegex(errors.UserError, f"{path} has 1 lines"):
            self.made.prepare(self.data_dir, str(self.tmp_dir))
        self.assertFalse(self.data_dir.exists())

    def test_data_with_one_test_set_stay_valid_until_prepared_again(self):
        old = dataclasses.replace(
            self.made, further_tests=problem_lib.no_further_tests
        )
        first = old.prepare(self.data_dir, str(self.tmp_dir))
        # The settings of folders before there were further test sets.
        self.assertEqual(
            first["settings"],
            {"format": 1, "vocab_size": 5000, "character_coverage": 1.0},
        )
        self.assertTrue(self.made.is_prepared(self.data_dir))
        again = self.made.prepare(self.data_dir, str(self.tmp_dir))
        self.assertEqual(again, first)
        self.assertEqual(manifest_lib.test_sets(again), ["test"])
        more = self.made.prepare_anew(self.data_dir, str(self.tmp_dir))
        self.assertLen(manifest_lib.test_sets(more), 4)
        fingerprints = manifest_lib.fingerprints(more)
        self.assertEqual(
            {split: fingerprints[split] for split in first["counts"]},
            manifest_lib.fingerprints(first),
        )

    def test_one_can_be_read_without_preparing(self):
        pairs = self.made.pairs("test_2017_flickr", str(self.tmp_dir))
        self.assertLen(list(pairs), 7)
        with self.assertRaisesRegex(
            errors.UserError, "test_2018_flickr. Received: 'test_2019'"
        ):
            self.made.pairs("test_2019", str(self.tmp_dir))

    def test_every_file_has_a_published_checksum(self):
        corpora = [
            multi30k.corpus(stem, target)
            for stem in multi30k.NUM_LINES
            for target in ("de", "fr")
        ]
        remotes = {
            side.remote.address: side.remote.md5
            for corpus in corpora
            for side in (corpus.source, corpus.target)
        }
        self.assertLen(remotes, 18)
        self.assertLen(set(remotes.values()), 18)
        # sacreBLEU knows the references of 2018 as well.
        known = sacrebleu.DATASETS["multi30k/2018"]
        shared = set(known.data) & set(remotes)
        self.assertLen(shared, 2)
        for address, md5 in zip(known.data, known.md5, strict=True):
            if address in shared:
                self.assertEqual(remotes[address], md5)


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

    def make(self, **given):
        """Returns the problem of the files, some of which are replaced."""
        files = {
            "train_source": self.files["train.en"],
            "train_target": self.files["train.de"],
            "dev_source": self.files["dev.en"],
            "dev_target": self.files["dev.de"],
            "test_source": None,
            "test_target": None,
            **given,
        }
        return translate.files_problem(
            own_files.Training(files["train_source"], files["train_target"]),
            own_files.Sides(files["dev_source"], files["dev_target"]),
            own_files.Sides(files["test_source"], files["test_target"]),
            files.get("vocab_size", 300),
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

    def test_several_files_are_several_test_sets(self):
        two = self.write("two.en", "A\nB\n"), self.write("two.de", "a\nb\n")
        one = self.files["dev.en"], self.files["dev.de"]
        made = self.make(
            test_source=f"{one[0]},{two[0]}", test_target=f"{one[1]},{two[1]}"
        )
        manifest = made.prepare(self.data_dir)
        self.assertEqual(manifest_lib.test_sets(manifest), ["test", "test_2"])
        self.assertEqual(
            made.lines(self.data_dir, "test_2"), (["A", "B"], ["a", "b"])
        )
        self.assertEqual(
            manifest["settings"]["test_2_source"],
            {"bytes": 4, "sha256": hashlib.sha256(b"A\nB\n").hexdigest()},
        )
        with self.assertRaisesRegex(
            errors.UserError, "as many files.* 1, .* 2"
        ):
            self.make(test_source=one[0], test_target=f"{one[1]},{two[1]}")
        with self.assertRaisesRegex(errors.UserError, "nowhere.de"):
            self.make(
                test_source=f"{one[0]},{two[0]}",
                test_target=f"{one[1]},nowhere.de",
            )

    def test_one_test_file_keeps_its_folder_and_may_have_a_comma(self):
        plain = self.make(
            test_source=self.files["dev.en"], test_target=self.files["dev.de"]
        )
        comma = self.make(
            test_source=self.write("a,b.en", "2 cats\n\n"),
            test_target=self.write("a,b.de", "2 Katzen\nleer\n"),
        )
        self.assertEqual(comma.settings, plain.settings)
        self.assertEqual(
            [name for name in plain.settings if name.startswith("test")],
            ["test_source", "test_target"],
        )
        self.assertEqual(
            plain.folder("data").name, self.expected_folder(plain.settings)
        )

    def expected_folder(self, settings):
        """Returns a folder's name, computed as of version 0.1.0."""
        values = {"format": 1, "vocab_size": 300, "character_coverage": 1.0}
        content = json.dumps(
            values | dict(settings), sort_keys=True, separators=(",", ":")
        )
        checksum = hashlib.sha256(content.encode()).hexdigest()
        return f"translate_files-{checksum[:8]}"

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
