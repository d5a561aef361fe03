"""Tests of the registered problems and of the user's own files."""

import dataclasses
import gzip
import os
import pathlib
import shutil
import urllib.error
import urllib.request

import sacrebleu
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.data import tokenizer
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import multi30k
from relpos_tf.problems import own_files
from relpos_tf.problems import translate
from tests import folders
from tests.problems import problem_test


class RegisteredTest(parameterized.TestCase):
    def test_problems_have_their_names_and_three_splits(self):
        for name in set(registry.list_problems()) - {"translate_files"}:
            made = registry.problem(name)
            self.assertEqual(made.name, name)
            self.assertEqual(list(made.splits)[:3], ["train", "dev", "test"])


class Multi30kTest(folders.TestCase):
    """Of its test sets, three are prepared only if they are at hand."""

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
        self.files = self.folder / "multi30k"
        self.files.mkdir()
        for stem, size in self.SIZES.items():
            for language in ("en", "fr"):
                # Untidy, as they come.
                line = f" {language} %d  stone &amp; tile \n"
                text = "".join(map(line.__mod__, range(size)))
                path = self.files / f"{stem}.{language}.gz"
                path.write_bytes(gzip.compress(text.encode()))
        self.urlopen = self.enter_context(
            absltest.mock.patch.object(
                urllib.request,
                "urlopen",
                side_effect=urllib.error.URLError("no network"),
            )
        )
        self.data_dir = self.folder / "data"
        self.made = registry.problem("translate_enfr_multi30k")

    def prepare(self, made=None, **options):
        made = made or self.made
        return made.prepare(self.data_dir, str(self.folder), **options)

    def test_captions_are_tidied_but_references_are_not(self):
        manifest = self.prepare()
        self.assertEqual(
            manifest["counts"],
            {
                "train": 41,
                "dev": 5,
                "test": 3,
                "test_2017_flickr": 7,
                "test_2017_mscoco": 2,
                "test_2018_flickr": 4,
            },
        )
        for split, size in (("test", 3), ("test_2017_mscoco", 2)):
            source, target = self.made.lines(self.data_dir, split)
            self.assertEqual(
                source, [f"en {i} stone & tile" for i in range(size)]
            )
            self.assertEqual(
                target, [f" fr {i}  stone &amp; tile " for i in range(size)]
            )
        self.assertEqual(
            problem_test.texts(self.made, self.data_dir, "train"),
            [
                (f"en {i} stone & tile", f"fr {i} stone & tile")
                for i in range(41)
            ],
        )
        self.assertEmpty(self.urlopen.mock_calls)

    def test_missing_test_sets_are_named_and_left_out(self):
        for name in ("test_2017_flickr.en", "test_2018_flickr.fr"):
            (self.files / f"{name}.gz").unlink()
        with self.assertLogs("relpos_tf", level="INFO") as logs:
            manifest = self.prepare()
        self.assertEqual(
            manifest_lib.test_sets(manifest), ["test", "test_2017_mscoco"]
        )
        line = logs.output[1]
        for word in (
            "test_2017_flickr, test_2018_flickr",
            "no network",
            "test_2017_flickr.en",
            str(self.files),
        ):
            self.assertIn(word, line)

    def test_test_sets_are_added_when_data_are_prepared_again(self):
        required = ("train", "dev", "test")
        old = dataclasses.replace(
            self.made, splits={s: self.made.splits[s] for s in required}
        )
        first = self.prepare(old)
        self.assertEqual(self.prepare(), first)
        self.assertEqual(manifest_lib.test_sets(first), ["test"])
        more = self.prepare(anew=True)
        self.assertLen(manifest_lib.test_sets(more), 4)
        # Runs are trained on these data still.
        self.assertContainsSubset(
            manifest_lib.fingerprints(first).items(),
            manifest_lib.fingerprints(more).items(),
        )

    def test_checksums_are_those_of_sacrebleu(self):
        remotes = {}
        for target in ("de", "fr"):
            side = multi30k.splits(target)["test_2018_flickr"][0].target
            remotes[side.remote.address] = side.remote.checksum
        known = sacrebleu.DATASETS["multi30k/2018"]
        known = dict(zip(known.data, known.md5, strict=True))
        self.assertEqual({name: known[name] for name in remotes}, remotes)


class FilesProblemTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.data_dir = self.folder / "data"
        self.files = {
            name: self.write(name, *lines)
            for name, lines in {
                "train.en": [f"{i} dogs" for i in range(23)],
                "train.de": [f"{i} Hunde" for i in range(23)],
                "dev.en": ["2 cats", ""],
                "dev.de": ["2 Katzen", "leer"],
            }.items()
        }

    def write(self, name, *lines):
        return str(super().write(name, *lines))

    def make(self, train=None, test=None, vocab_size=300, **more):
        """Returns the problem of the files, some of which are replaced."""
        files = self.files
        train = train or (files["train.en"], files["train.de"])
        named = [*train, files["dev.en"], files["dev.de"], *(test or ())]
        given = dict(zip(command.FILE_FLAGS, named, strict=False))
        given |= {f"train_{name}": value for name, value in more.items()}
        return translate.files_problem(given, vocab_size)

    def test_corpora_have_tags_and_weights_and_patterns_are_one_corpus(self):
        for name in "part-0", "part-1", "c,d":
            for language in ("en", "de"):
                self.write(f"{name}.{language}", f"{name[5:]} {language}")
        alone = self.make([f"{self.folder}/c,d.{s}" for s in ("en", "de")])
        self.assertEqual([*alone.splits["train"](None)], [(" en", " de")])
        given = [
            f"{self.folder}/part-*.{language},{self.files[f'train.{language}']}"
            for language in ("en", "de")
        ]
        plain = self.make(given)
        self.assertEqual((plain.train_weights, plain.train_tags), ((), ()))
        pairs = list(plain.splits["train"](None))
        self.assertEqual(
            pairs[:3],
            [("0 en", "0 de"), ("1 en", "1 de"), ("0 dogs", "0 Hunde")],
        )
        tagged = self.make(given, weights="2,1", tags="<p>,")
        text = tagged.splits["train"](None)
        self.assertEqual([*map(len, text)], [2, 23])
        places = [
            made.folder(self.data_dir)
            for made in (
                plain,
                tagged,
                self.make(given, weights="2,1"),
                self.make(given, tags="<q>,"),
            )
        ]
        self.assertLen(set(places), 4)
        # The files do not depend on the weights.
        again = self.make(given, weights="1,7", tags="<p>,")
        self.assertEqual(again.folder(self.data_dir), places[1])

    @parameterized.parameters(
        ({"weights": "1,2"}, ["--train_weights", "each (1)", "1,2"]),
        ({"weights": "3"}, ["--train_weights of several corpora", "3"]),
        ({"train": ("a,b", "c,d"), "weights": "2,-1"}, ["positive", "-1"]),
        ({"train": ("a,b", "c,d"), "weights": "1,nan"}, ["positive", "nan"]),
        (
            {"train": ("a,b", "c,d"), "weights": "1e308,1e308"},
            ["finite sum", "1e308,1e308"],
        ),
        ({"tags": "<a>,<b>"}, ["--train_tags of 1", "<a>,<b>"]),
        ({"tags": "<a> <b>"}, ["--train_tags", "<a> <b>"]),
        ({"tags": "\u200b"}, ["--train_tags of 1"]),
        ({"train": ("none-*.en", "none-*.de")}, ["none-*.en", "no file"]),
        ({"train": ("a.en,b.en", "a.de")}, ["--train_target", "2", "1"]),
        ({"train": ("a.en,", "a.de,")}, ["one comma", "a.en,"]),
        ({"test": ("a.en", "")}, ["--test_target", "a.en"]),
        ({"test": ("a.en,b.en", "a.de")}, ["as many files", "2", "1"]),
    )
    def test_what_does_not_fit_is_named(self, given, words):
        with self.assertRaises(errors.UserError) as raised:
            self.make(**given)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_shards_belong_together_by_what_their_pattern_stands_for(self):
        for name in "a-9.en", "a-10.en", "a-9.de", "a-10.de":
            self.write(f"x/{name}", name)
        given = [f"{self.folder}//x/a-*.{s}" for s in ("en", "de")]
        expected = [(f"a-{n}.en", f"a-{n}.de") for n in (10, 9)]
        train = self.make(given).splits["train"](None)
        self.assertEqual([*train], expected)
        (self.folder / "x/a-9.de").rename(self.folder / "x/a-8.de")
        with self.assertRaisesRegex(errors.UserError, "2 and 2 .*/a-8.de with"):
            self.make(given)

    @parameterized.parameters(
        ("train.en", "train.de", "dev.eng", "dev.de-AT", ""),
        ("train.en", "train.de", "dev.src", "dev.txt", ""),
        ("train.src", "train.tgt", "dev.de", "dev.en", ""),
        ("train.en", "train.de", "dev.de", "dev.en", "de to en; .* en to de"),
        ("train.en", "train.txt", "dev.txt", "dev.fr", ""),
        ("a.en,b.fra", "a.de,b.de", "dev.fr.gz", "dev.deu", ""),
        ("a.en,b.fra", "a.de,b.de", "dev.cs", "dev.de", "cs .* en/fr to de"),
        ("a.zho", "a.cmn", "dev.zh_Hans", "dev.zh-CN", ""),
    )
    def test_held_out_files_in_other_languages_are_doubted(self, *names):
        *names, expected = names
        paths = [
            ",".join(self.write(name, "a") for name in each.split(","))
            for each in names
        ]
        made = translate.files_problem(
            dict(zip(command.TEXTS, paths, strict=True))
        )
        self.assertLen(made.doubts, bool(expected))
        for doubt in made.doubts:
            self.assertRegex(doubt, f"The dev set.*{expected}")

    def test_suffixes_of_any_form_are_languages(self):
        for code, suffixes in {
            "zh": "zho cmn zh-CN zh_Hans.xz",
            "ja": "jpn",
            "de": "deu DE de-AT",
            "pt": "pt_br",
            "yue": "yue",
            "target": "txt tok v2 bpe src de-lowercase",
        }.items():
            for one in suffixes.split():
                self.assertEqual(own_files.language(f"a.{one}", "target"), code)

    def test_characters_of_stray_lines_get_no_pieces(self):
        text = [f"{i} dogs and {i + 1} cats" for i in range(3000)]
        rare = "".join(map(chr, range(0x4E00, 0x5000)))
        source = self.write("a.en", *text, rare)
        made = self.make((source, self.write("a.de", *text, "cat " * 50)))
        made.prepare(self.data_dir)
        tokens = tokenizer.Tokenizer(made.tokenizer_path(self.data_dir))
        self.assertNoCommonElements(tokens.pieces(), rare)
        self.assertContainsSubset("dogsct", tokens.pieces())
        self.assertEqual(tokens.decode(tokens.encode(rare)), rare)

    def test_several_files_are_several_test_sets(self):
        two = self.write("two.en", *"AB"), self.write("two.de", *"ab")
        dev = self.files["dev.en"], self.files["dev.de"]
        made = self.make(test=(f"{dev[0]},{two[0]}", f"{dev[1]},{two[1]}"))
        self.assertEqual(
            (made.name, made.source_language, made.target_language),
            ("translate_files", "en", "de"),
        )
        manifest = made.prepare(self.data_dir)
        self.assertEqual(manifest_lib.test_sets(manifest), ["test", "test_2"])
        self.assertEqual(
            made.lines(self.data_dir, "test_2"), (["A", "B"], ["a", "b"])
        )

    def test_missing_files_are_refused_at_once(self):
        with self.assertRaisesRegex(FileNotFoundError, "nowhere.en"):
            self.make(test=("nowhere.en", "nowhere.de"))
        pathlib.Path(self.files["dev.en"]).unlink()
        with self.assertRaisesRegex(FileNotFoundError, self.files["dev.en"]):
            self.make()
        os.mkfifo(self.files["dev.en"])
        with self.assertRaisesRegex(errors.UserError, "read again"):
            self.make()  # rather than wait for the other end

    def test_each_text_has_a_folder_of_its_own(self):
        first = self.make()
        made = first.prepare(self.data_dir)
        self.assertFalse(self.make(vocab_size=301).is_prepared(self.data_dir))
        # One letter of many, the size as before.
        self.write("train.de", *(f"{i} hunde" for i in range(23)))
        changed = self.make()
        self.assertFalse(changed.is_prepared(self.data_dir))
        changed.prepare(self.data_dir)
        tokens = tokenizer.Tokenizer(changed.tokenizer_path(self.data_dir))
        self.assertIn("▁hunde", tokens.pieces())
        self.assertEqual(first.manifest(self.data_dir), made)
        self.assertLen(list(self.data_dir.iterdir()), 2)

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
