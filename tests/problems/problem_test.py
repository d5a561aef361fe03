"""Tests of prepared folders: complete or not at all, and damage is named."""

import atexit
import functools
import hashlib
import os
import pathlib
import shutil
import tempfile
from unittest import mock

import numpy as np
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer
from relpos_tf.problems import problem
from relpos_tf.utils import files
from tests import folders

TRAIN = [(f"  {i} dogs & {i + 1} cats ", f"{i} Hunde\0") for i in range(31)]
DEV = [("", "leer"), (" a dog ", " ein Hund "), ("x\ufffd", ""), ("y", "z")]


def make(train=TRAIN, dev=DEV, **fields):
    """Returns a problem with the given pairs."""
    settings = {
        "name": "pets",
        "source_language": "en",
        "target_language": "de",
        "vocab_size": 300,
        "splits": {"train": lambda tmp_dir: train, "dev": lambda tmp_dir: dev},
        **fields,
    }
    return problem.Problem(**settings)


@functools.cache
def prepared_once():
    """Returns a folder where `make()` is prepared."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    make().prepare(folder)
    return pathlib.Path(folder)


def texts(pets, data_dir, split):
    """Returns the pairs of texts of a split, from its ids."""
    tokens = pets.tokens(data_dir, split)
    words = tokenizer.load(pets.tokenizer_path(data_dir))
    pairs = []
    for number, sizes in enumerate(tokens.lengths.astype(int)):
        [starts] = tokens.starts(np.array([number]))
        sides = np.split(tokens.rows(starts, sizes).ids, sizes[:1])
        pairs.append(tuple(map(words.decode, sides)))
    return pairs


class Interrupted:
    """Pairs that cannot be read to the end."""

    def __init__(self, error):
        self._error = error

    def __iter__(self):
        yield from TRAIN
        raise self._error


class PetsTestCase(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.data_dir, self.folder = self.folder, self.folder / "pets"

    def copy(self):
        """Copies the prepared folder of `make()`; returns the problem."""
        shutil.copytree(prepared_once() / "pets", self.folder)
        return make()


class ProblemTest(PetsTestCase):
    def test_training_pairs_are_all_there_clean_and_in_order(self):
        pets = make([*TRAIN, ("lost", ""), ("a" * 5000, "b" * 5000)])
        manifest = pets.prepare(self.data_dir)
        self.assertEqual(manifest["counts"], {"train": 31, "dev": 4})
        expected = {"read": 33, "nul": 31, "blank": 1, "long": 1}
        self.assertEqual(manifest["cleaning"], expected)
        clean = [(f"{i} dogs & {i + 1} cats", f"{i} Hunde") for i in range(31)]
        self.assertEqual(texts(pets, self.data_dir, "train"), clean)

    def test_held_out_lines_keep_their_places_and_references(self):
        pets = make(normalize=str.lower)
        pets.prepare(self.data_dir)
        source, target = pets.lines(self.data_dir, "dev")
        self.assertEqual(source, ["", " a dog ", "x\ufffd", "y"])
        self.assertEqual(target, ["leer", " ein Hund ", "", "z"])
        self.assertEqual(
            texts(pets, self.data_dir, "dev"),
            [("", "leer"), ("a dog", "ein Hund"), ("x\ufffd", ""), ("y", "z")],
        )

    def test_the_longest_pairs_allowed_are_kept(self):
        lines = ["a b", "a " * 1022 + "a", "a " * 1023 + "a"]
        train = [(line, line) for line in lines]
        manifest = make(train).prepare(self.data_dir)
        self.assertEqual(manifest["counts"]["train"], 2)
        self.assertEqual(manifest["cleaning"]["tokens"], 1)
        longest = make(train).tokens(self.data_dir, "train").lengths.max()
        self.assertEqual(longest, 1024)

    def test_a_side_of_invisible_characters_is_empty(self):
        pairs = [*TRAIN[:3], ("\u200b \ufeff", "b"), ("a", "\u00ad\u200d")]
        for tags in ((), ("<t>",)):
            made = make(pairs, train_tags=tags)
            manifest = made.prepare(self.data_dir / f"{tags}")
            self.assertEqual(manifest["counts"]["train"], 3)
            self.assertEqual(manifest["cleaning"]["blank"], 2)

    @parameterized.parameters(
        (("<a>",), ["<a> x", " ", "<a>"], None),
        (("<a>",), ["x y", "<a> z"], "1 of 2 .* <a>: one with 'x'"),
        (("<a>", "<b>"), ["<c> x"], "1 of 1 .* <a>, <b>: one with '<c>'"),
        (("", "<b>"), ["x", "<b> x", "<3", "< >", "<i>A</i> b"], None),
        (("", "<b>"), ["x", "<c> x"], "1 of 2 .* <b>: one with '<c>'"),
        ((), ["<c> x"], None),
        ((), ["a"] * 5000, None),
        ((), ["a"] * 5001, "5,001 lines"),
        ((), [*"abcd", "a long line " * 1250], "dev set .*line 5 .* sentences"),
    )
    def test_development_sets_that_do_not_fit_or_take_long_are_warned_of(
        self, tags, sources, expected
    ):
        train = (TRAIN,) * max(len(tags), 1)
        pets = make(train, [(s, "y") for s in sources], train_tags=tags)
        pets.prepare(self.data_dir)
        found = pets.warnings(self.data_dir)
        self.assertLen(found, expected is not None)
        for line in found:
            self.assertRegex(line, expected)

    def test_a_prepared_folder_is_used_again(self):
        pets = self.copy()
        with mock.patch.object(pieces, "learn", side_effect=AssertionError):
            pets.prepare(self.data_dir)

    def test_a_folder_of_other_settings_is_refused_by_name(self):
        self.copy()
        for anew in (False, True):
            with self.assertRaisesRegex(errors.UserError, str(self.folder)):
                make(vocab_size=290).prepare(self.data_dir, anew=anew)
        self.assertTrue(make().is_prepared(self.data_dir))

    def test_settings_and_a_given_tokenizer_have_another_folder(self):
        model = self.data_dir / "other.model"
        pieces.learn(pieces.count_words(["a dog", "ein Hund"]), model, 290)
        given = make(tokenizer_file=str(model))
        others = [given, make(settings={"a": 1}), make(settings={"a": 2})]
        names = {pets.folder(self.data_dir) for pets in (make(), *others)}
        self.assertLen(names, 4)
        given.prepare(self.data_dir)
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        self.assertEqual(given.folder(self.data_dir).name, f"pets-{digest[:8]}")
        stored = pathlib.Path(given.tokenizer_path(self.data_dir))
        self.assertEqual(stored.read_bytes(), model.read_bytes())

    @parameterized.parameters(OSError("gone"), KeyboardInterrupt())
    def test_a_failure_leaves_no_trace_and_keeps_the_data(self, error):
        self.copy()
        broken = make(Interrupted(error))
        with self.assertRaises(type(error)):
            broken.prepare(self.data_dir, anew=True)
        self.assertEqual(os.listdir(self.data_dir), ["pets"])
        self.assertLen(texts(make(), self.data_dir, "train"), 31)

    def test_what_a_killed_preparation_left_is_removed(self):
        pets = make(Interrupted(SystemExit()))
        child = os.fork()
        if not child:
            with mock.patch.object(shutil, "rmtree"):
                try:
                    pets.prepare(self.data_dir)
                except SystemExit:
                    os._exit(0)
        os.waitpid(child, 0)
        [left] = os.listdir(self.data_dir)
        self.assertRegex(left, r"^\.pets\..*\.part$")
        with files.new_folder(self.folder) as living:
            self.assertEqual(os.listdir(self.data_dir), [living.name])
            make().prepare(self.data_dir)
            self.assertCountEqual(
                os.listdir(self.data_dir), ["pets", living.name]
            )

    def test_the_second_of_two_preparations_uses_the_first_ones_folder(self):
        class Slow:
            """Pairs in whose middle another preparation ends."""

            def __iter__(self):
                yield from TRAIN
                if not make().is_prepared(data_dir):
                    make().prepare(data_dir)

        data_dir = self.data_dir
        make(Slow()).prepare(data_dir)
        self.assertEqual(os.listdir(data_dir), ["pets"])
        self.assertLen(texts(make(), data_dir, "train"), 31)

    def test_missing_splits_are_named(self):
        pets = self.copy()
        for call in (
            lambda: pets.tokens(self.data_dir, "test"),
            lambda: pets.lines(self.data_dir, "test"),
        ):
            with self.assertRaisesRegex(errors.UserError, "'test'|file test"):
                call()

    @parameterized.parameters(
        ([("", "x")] * 3, DEV, "side is empty"),
        (TRAIN, [], "dev set of pets.* 0 lines"),
        (TRAIN, [("dog", "\u2003 "), ("", "")], "dev set of pets.* 2 lines"),
    )
    def test_splits_without_pairs_are_refused(self, train, dev, message):
        with self.assertRaisesRegex(errors.UserError, message):
            make(train, dev).prepare(self.data_dir)
        self.assertEmpty(os.listdir(self.data_dir))

    def test_the_vocabulary_is_learnt_from_an_even_sample(self):
        train = [(c * 9, c * 9) for c in "abcdefgh" for _ in range(5)]

        class Counted(list):
            """Pairs whose number is known."""

        pets = make(Counted(train), tokenizer_pairs=8)
        with mock.patch.object(pieces, "learn", wraps=pieces.learn) as learn:
            pets.prepare(self.data_dir)
        counts = learn.call_args.args[0]
        self.assertEqual(counts, {c * 9: 2 for c in "abcdefgh"})


class DamageTest(PetsTestCase):
    def setUp(self):
        super().setUp()
        self.copy()

    def use(self):
        """Opens what training and evaluation open."""
        make().tokenizer_path(self.data_dir)
        make().tokens(self.data_dir, "train")
        make().tokens(self.data_dir, "dev")
        make().lines(self.data_dir, "dev")

    @parameterized.product(
        name="train.ids train.lengths dev.ids dev.source tokenizer.model "
        "manifest.json".split(),
        damage=["flip", "cut", "missing", "foreign"],
    )
    def test_a_damaged_file_is_named_with_what_to_do(self, name, damage):
        path = self.folder / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        changed = {
            "flip": content,
            "cut": content[:-3],
            "foreign": b"something else",
        }
        path.unlink()
        if damage != "missing":
            path.write_bytes(changed[damage])
        elif name == "manifest.json":
            return  # Then it is no prepared folder.
        with self.assertRaisesRegex(
            errors.UserError, f"{path} is .*damaged: .*--generate_data"
        ):
            self.use()

    def test_a_file_that_changes_later_is_noticed(self):
        self.use()
        path = self.folder / "dev.target"
        path.write_bytes(path.read_bytes().swapcase())
        os.utime(path, ns=(1, 1))
        with self.assertRaisesRegex(errors.UserError, "dev.target"):
            self.use()

    @parameterized.parameters("notes.txt", "train.ids.old")
    def test_files_of_the_user_are_never_replaced(self, name):
        (self.folder / name).write_text("mine")
        with self.assertRaisesRegex(errors.UserError, name):
            make().prepare(self.data_dir, anew=True)
        self.assertEqual((self.folder / name).read_text(), "mine")
