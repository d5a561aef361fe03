"""Tests of a run's directory and data, before the first update."""

import pathlib
import shutil
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer
from relpos_tf.models import run_dir
from relpos_tf.training import hosts
from relpos_tf.training import run_setup
from relpos_tf.utils import checked_json
from tests import folders
from tests import tiny_run
from tests.problems import problem_test

HPARAMS = hparam.HParams(hidden_size=16, num_heads=2)
WIDER = HPARAMS.replace(hidden_size=32)
WARMER = {"hparams": HPARAMS.replace(learning_rate_warmup_steps=7)}
OTHER = {"data": "other"}


def write_run(folder, pets, data_dir, hparams=HPARAMS, flags=""):
    """Prepares data and opens a run; returns the run and its hparams."""
    hparams = hparams.replace(vocab_size=pets.prepare(data_dir)["vocab_size"])
    run = run_dir.RunDir(folder)
    run_setup.write_run(run, hparams, pets, str(data_dir), flags)
    return run, hparams


class OpenRunTest(folders.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = pathlib.Path(cls.create_tempdir(cls()).full_path)
        pieces.learn(
            pieces.count_words(["7 dogs & cats", "Hunde"] * 9),
            cls.made / "a.model",
            280,
        )
        # Other text then does not have another vocabulary.
        cls.model = str(cls.made / "a.model")

    def setUp(self):
        super().setUp()
        self.data_dir, self.run_dir = self.folder / "data", self.folder / "run"
        if not (self.made / "run").exists():
            self.open()
            (self.run_dir / "ckpt-7.npz").touch()
            shutil.copytree(self.folder, self.made, dirs_exist_ok=True)
        shutil.copytree(self.made, self.folder, dirs_exist_ok=True)

    def open(
        self, hparams=HPARAMS, data="data", flags="--flags", start="", **fields
    ):
        """Opens the run with a problem."""
        fields = {"tokenizer_file": self.model} | fields
        data_dir = self.data_dir / data
        pets = run_setup.with_tokenizer_of(
            problem_test.make(**fields), data_dir, start
        )
        return write_run(self.run_dir, pets, data_dir, hparams, flags)

    def content(self):
        """Returns the content of the run's files, but the versions."""
        return {path.name: path.read_bytes() for path in self.run_dir.iterdir()}

    def test_an_unchanged_run_is_reopened(self):
        before = self.content()
        with self.assertNoLogs("relpos_tf", "WARNING"):
            run, hparams = self.open(data="prepared elsewhere")
        self.assertEqual(self.content(), before)
        self.assertEqual(run.read_hparams(), hparams)
        self.assertEqual(hparams.vocab_size, 280)

    @parameterized.parameters(
        (WARMER, "learning_rate_warmup_steps was 4000"),
        (OTHER | {"dev": problem_test.DEV[1:]}, "The dev set has changed"),
    )
    def test_what_does_not_prevent_resuming_is_a_warning(self, changes, words):
        with self.assertNoLogs("relpos_tf", "WARNING"):
            self.open(flags="--bleu_tokenize=zh\n--x=2\n")
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            self.open(**changes)
        self.assertLen(logs.output, 1)
        self.assertRegex(logs.output[0], words)

    @parameterized.parameters(
        ({"hparams": WIDER}, "hidden_size=16 .now 32"),
        *(
            (OTHER | {"train": train}, "training data.*--warm_start_from={}")
            for train in (
                problem_test.TRAIN[:-1],
                [*problem_test.TRAIN[1::-1], *problem_test.TRAIN[2:]],
                [*problem_test.TRAIN[:-1], ("7 dogs", "7 cats")],
            )
        ),
    )
    def test_another_model_and_other_training_data_are_refused(
        self, changes, words
    ):
        before = self.content()
        with self.assertRaisesRegex(
            errors.UserError, words.format(self.run_dir)
        ):
            self.open(**changes)
        self.assertEqual(self.content(), before)

    def test_a_run_of_which_the_average_is_left_is_kept(self):
        (self.run_dir / "average").mkdir()
        (self.run_dir / "ckpt-7.npz").rename(
            self.run_dir / "average/ckpt-7.npz"
        )
        with self.assertRaisesRegex(errors.UserError, "hidden_size=16 .now 32"):
            self.open(WIDER)
        with self.assertRaisesRegex(errors.UserError, "no checkpoint to go on"):
            self.open(HPARAMS)

    def test_checkpoints_of_an_unknown_model_are_no_run(self):
        (self.run_dir / "hparams.json").unlink()
        with self.assertRaisesRegex(errors.UserError, "no hparams.json that"):
            self.open(HPARAMS)

    def test_a_run_without_a_checkpoint_begins_anew(self):
        # As after memory that did not suffice for the first update.
        (self.run_dir / "ckpt-7.npz").unlink()
        other = self.made / "other.model"
        pieces.learn(
            pieces.count_words(["8 birds & mice", "Katzen"] * 9), other, 279
        )
        with self.assertNoLogs("relpos_tf", "WARNING"):
            run, hparams = self.open(
                WIDER,
                data="others",
                train=problem_test.TRAIN[1:],
                dev=problem_test.DEV[1:],
                tokenizer_file=str(other),
                flags="--bleu_tokenize=char",
            )
        self.assertEqual((hparams.hidden_size, hparams.vocab_size), (32, 279))
        self.assertEqual(run.read_hparams(), hparams)
        kept = pathlib.Path(run.tokenizer_path).read_bytes()
        self.assertEqual(kept, other.read_bytes())

    @parameterized.parameters("bpe_dropout", "pair_concatenation")
    def test_vocabularies_without_augmentation_are_an_error_before_training(
        self, name
    ):
        letters = sorted(set("7 dogs & catsHunde_\\;0123456789u"))
        pieces = ["<pad>", "<EOS>", *letters, *(f"{x}_" for x in letters)]
        vocabulary = self.made / "a.subwords"
        vocabulary.write_text("".join(f"'{piece}'\n" for piece in pieces))
        before = self.content()
        with self.assertRaisesRegex(errors.UserError, f"Set {name}=0"):
            self.open(
                HPARAMS.replace(**{name: 0.1}, beam_size=2),
                data="of tensor2tensor",
                tokenizer_file=str(vocabulary),
            )
        self.assertEqual(self.content(), before)

    def test_a_test_set_may_be_added(self):
        train, dev = (
            lambda tmp_dir, pairs=pairs: pairs
            for pairs in (problem_test.TRAIN, problem_test.DEV)
        )
        splits = {"train": train, "dev": dev, "test": dev}
        with self.assertNoLogs("relpos_tf", "WARNING"):
            self.open(splits=splits, data="other")
        known = checked_json.loads((self.run_dir / "problem.json").read_bytes())
        self.assertEqual(known["data"].keys(), {"train", "dev", "test"})

    def test_a_damaged_tokenizer_is_an_error(self):
        path = self.run_dir / "tokenizer.model"
        # Still a model: a field that SentencePiece does not know.
        path.write_bytes(path.read_bytes() + b"\xa0\x06\x01")
        with self.assertRaisesRegex(errors.UserError, f"{path} is damaged"):
            self.open(start=self.run_dir)
        path.unlink()
        self.open(start=self.run_dir)
        self.assertEqual(
            path.read_bytes(), pathlib.Path(self.model).read_bytes()
        )

    def test_pairs_that_are_too_long_are_counted(self):
        train = [("7 " * n, "7 " * n + "s") for n in range(1, 41)]
        self.run_dir = self.run_dir.parent / "new"
        hparams = HPARAMS.replace(max_length=20)
        with self.assertLogs("relpos_tf", "INFO") as logs:
            run, _ = self.open(hparams, train=train, data="other")
        sources, targets = (
            list(map(tokenizer.Tokenizer(self.model).encode, side))
            for side in zip(*train, strict=True)
        )
        longer = sum(len(row) > 20 for row in targets)
        self.assertBetween(longer, 5, 35)
        self.assertRegex(
            logs.output[-1],
            f":{longer} of 40 training pairs are left out.*max_length=20 ",
        )
        longest = len(sources[40 - longer - 1])
        self.assertLess(longest, 20)
        self.assertEqual(run.longest_source(), longest)
        hparams = hparams.replace(pair_concatenation=0.1)
        run, _ = self.open(hparams, train=train, data="other")
        self.assertEqual(run.longest_source(), 20)


class StartTest(parameterized.TestCase):
    def test_hosts_compare_the_code_before_the_flags(self):
        compared, one = [], mock.create_autospec(hosts.Hosts)
        one.check_same.side_effect = compared.append
        for checksum in "ab":
            with mock.patch.object(registry, "sources", lambda c=checksum: c):
                run_setup.check_same_start(one, {}, hparam.HParams())
        code = [values["relpos_tf sources"] for values in compared[::2]]
        self.assertEqual(code, ["a", "b"])
        self.assertEqual(compared[1], compared[3])


class WarmStartTest(folders.TestCase):
    def test_other_models_than_the_runs_are_refused(self):
        start, own = str(tiny_run.path()), tiny_run.HPARAMS
        own = own.replace(num_hidden_layers=1)
        more = {"vocab_size": 9, "train_steps": 7, "max_length": 9}
        run_setup.check_same_model(start, own.replace(**more))
        for name, value in (
            ("hidden_size", 20),
            ("num_decoder_layers", 5),
            ("norm_epsilon", 1e-4),
        ):
            with self.assertRaisesRegex(
                errors.UserError, rf"{name}=\S+ \(now {value}\)\. Give"
            ):
                run_setup.check_same_model(start, own.replace(**{name: value}))


class VocabularyTest(folders.TestCase):
    def described(self, pets, folder, step, warm_start_from=""):
        """Returns the last record that a run logs about its data."""
        trainer = mock.Mock(hparams=HPARAMS, step=step, total_steps=5)
        trainer.model.count_params.return_value = 5
        trainer.config.warm_start_from = warm_start_from
        with self.assertLogs("relpos_tf") as logs:
            run_setup.describe(pets, str(folder), trainer)
        return logs.records[-1]

    @parameterized.parameters(
        ("7 dogs", "INFO", "1\\.\\d\\d ids a word, 0.0% bytes; on the text of"),
        ("щука", "WARNING", "not fit.* 9\\.00 ids a word, 88.9% bytes; on the"),
    )
    def test_the_fit_of_another_runs_vocabulary_is_logged(
        self, line, level, expected
    ):
        folder = self.folder
        pets = problem_test.make([("dogs 7", "dogs")], [("dogs", "dogs")])
        old = str(folder / "old")
        write_run(old, pets, folder)
        given = run_setup.with_tokenizer_of(
            problem_test.make([(line, line)] * 3, [("dogs", "dogs")]), "", old
        )
        given.prepare(folder)
        # The development text of both may be the same.
        record = self.described(given, folder, 0, old)
        self.assertEqual(record.levelname, level)
        self.assertRegex(record.getMessage(), expected)
