"""The commands of the documents run, at small size, in this process."""

import importlib
import os
import pathlib
import re
import shutil

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.bin import trainer
from relpos_tf.data import tokenizer
from tests import documents
from tests import tiny_run
from tests.bin import calls
from tests.comparison import examples
from tests.problems import problem_test

# Small, so that a step takes no time and a graph little.
SMALL = (
    "--vocab_size=400",
    "--hparams=max_length=128,hidden_size=16,filter_size=24,num_heads=2,"
    "num_hidden_layers=1,batch_size=256,beam_size=1,extra_length=2,"
    "self_attention_type=dot_product,pos=timing",
    *("--train_steps=1", "--schedule=train"),
    *("--test_source=test.en", "--test_target=test.de"),
)

CODE = tuple(
    str(path.relative_to(documents.ROOT))
    for folder in ("hparams", "relpos_tf/bin")
    for path in (documents.ROOT / folder).glob("*.py")
)


def installed(file):
    """Returns the installed commands of a document, without `relpos-`."""
    text = (documents.ROOT / file).read_text(encoding="utf-8")
    text = text.replace("\\\\\n", "\\\n")  # as in a docstring
    return [
        [words[0].removeprefix("relpos-"), *words[1:]]
        for words in documents.commands(text)
        if words[0].startswith("relpos-")
    ]


class DocumentedCommandsTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work = pathlib.Path(cls.create_tempdir(cls()).full_path)
        for name in ("train", "dev", "test", "mono"):
            for language, start in (("en", 0), ("de", 1)):
                lines = "\n".join(tiny_run.TEXT[start::2]) + "\n"
                times = 3 if name == "mono" else 5
                (cls.work / f"{name}.{language}").write_text(lines * times)

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.work)
        if not pathlib.Path("runs").exists():
            _, error = self.run_documented(
                "trainer --problem=translate_files",
                *SMALL,
                file="docs/own_text.md",
            )
            self.assertRegex(error, "decoder --output_dir=runs/mine\n")
            for name in ("relative", "absolute"):
                shutil.copytree("runs/mine", f"runs/{name}")

    def run_documented(self, start, *more, file="README.md"):
        """Runs the command of a document that begins with these words.

        More flags replace those of the document.
        """
        name, *words = next(
            words
            for words in installed(file)
            if " ".join(words).startswith(start)
        )
        names = [word.partition("=")[0] for word in more]
        kept = [word for word in words if word.partition("=")[0] not in names]
        return self.execute(name, *kept, *more)

    def execute(self, name, *words):
        """Runs a command that must succeed; returns what it wrote."""
        main = importlib.import_module(f"relpos_tf.bin.{name}").main
        code, out, error = calls.execute(main, *words)
        self.assertEqual(code, 0, error)
        return out.decode(), error

    def test_flags_and_names_exist(self):
        found = [
            words
            for file in (*documents.FILES, *CODE)
            for words in installed(file)
            if not any(
                "..." in word or re.fullmatch(r"--[a-z_0-9]+", word)
                for word in words
            )
        ]
        self.assertGreater(len(found), 50)
        for name, *words in found:
            module = importlib.import_module(f"relpos_tf.bin.{name}")
            command.parse(module.FLAGS, words)
            for function in ("make_problem", "make_hparams"):
                if hasattr(module, function):
                    getattr(module, function)()
        with self.assertRaisesRegex(errors.UserError, "transformer_giant"):
            command.parse(trainer.FLAGS, ["--hparams_set=transformer_giant"])
            trainer.make_hparams()

    def test_commands_that_train_translate_and_score(self):
        self.run_documented("decoder --output_dir=runs/relative --test_set")
        self.assertLen(pathlib.Path("out.de").read_text().splitlines(), 20)
        self.assertIn("bleu", pathlib.Path("score.json").read_text())
        shutil.copy("out.de", "reference.de")
        output, _ = self.run_documented("bleu", file="docs/results.md")
        self.assertIn("BLEU", output)
        output, _ = self.run_documented(
            "average --output_dir=runs/mine --n",
            "--n=1",
            file="relpos_tf/bin/average.py",
        )
        self.assertEqual(output, "runs/mine/average/ckpt-1\n")
        self.run_documented(
            "datagen --problem=translate_ende_wmt14",
            "--problem=algorithmic_copy",
            file="relpos_tf/bin/datagen.py",
        )
        prepared = pathlib.Path("data/algorithmic_copy/train.ids")
        self.assertTrue(prepared.is_file())

    def test_commands_that_export(self):
        self.run_documented(
            "export --output_dir=runs/relative", "--export_dir=exported"
        )
        files = "--decode_from_file=mono.en", "--decode_to_file=mono.out"
        self.execute("decoder", "--export_dir=exported", *files)
        self.assertLen(pathlib.Path("mono.out").read_text().splitlines(), 12)

    def test_commands_that_compare(self):
        shutil.copy("test.de", "marian.de")
        with examples.scores_in_this_process():
            output, _ = self.run_documented(
                "compare --runs=runs/relative,runs/absolute",
                "--runs=runs/relative",  # of two equal ones
                file="docs/comparing.md",
            )
        self.assertIn("marian", output)

    def test_commands_of_back_translation_lead_to_a_tagged_system(self):
        page, problem = "docs/recipes.md", "trainer --problem=translate_files"
        self.run_documented(
            f"{problem} --output_dir=runs/back", *SMALL, file=page
        )
        # What a system would draw that was trained for longer.
        drawn = pathlib.Path("mono.en")
        expected = drawn.read_text()
        self.run_documented("decoder --output_dir=runs/back", file=page)
        self.assertLen(drawn.read_bytes().split(b"\n"), 12 + 1)
        drawn.write_text(expected)
        _, messages = self.run_documented(
            f"{problem} --output_dir=runs/tagged", *SMALL, file=page
        )
        share = "50 % of the training pairs, read"
        self.assertIn(f"Corpus 1: 20 pairs, {share}", messages)
        self.assertIn(f"Corpus 2, tag BT: 12 pairs, {share}", messages)
        # The second corpus has tags and the first has none.
        made = command.make_problem(trainer.FLAGS)
        tokens = tokenizer.Tokenizer(made.tokenizer_path("data"))
        self.assertIn("\u2581BT", tokens.pieces())
        texts = problem_test.texts(made, "data", "train")
        self.assertEqual(
            [source.startswith("BT ") for source, _ in texts],
            [False] * 20 + [True] * 12,
        )
        for _, target in texts:
            self.assertFalse(target.startswith("BT "))
