"""The commands in docs/recipes.md, run at small size."""

import itertools
import os
import pathlib

from absl.testing import absltest
from tensorflow.python.framework import config

from relpos_tf.bin import command
from relpos_tf.bin import decoder
from relpos_tf.bin import trainer
from relpos_tf.problems.generated import phrases
from tests import documents
from tests.bin import calls
from tests.problems import problem_test

TEXT = pathlib.Path(__file__).parents[1].joinpath("docs/recipes.md").read_text()
PAIRS, LINES, STEPS = 150, 40, 6
SMALL = (
    "--hparams_set=transformer_relative_tiny",
    "--hparams=hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "batch_size=256,beam_size=1,extra_length=2,"
    "self_attention_type=dot_product,pos=timing",  # quick to trace
    "--vocab_size=400",
    f"--train_steps={STEPS}",
    "--schedule=train",
    "--deterministic",
)


def execute(main, *arguments):
    """Runs a command that must succeed; returns its messages."""
    code, _, error = calls.execute(main, *arguments)
    if code:
        raise RuntimeError(error)
    return error


class BackTranslationTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.addCleanup(config.disable_op_determinism)  # See `SMALL`.
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        pairs = iter(phrases.pairs("train"))
        for name, number in (("train", PAIRS), ("dev", 5), ("mono", LINES)):
            sides = zip(*itertools.islice(pairs, number), strict=True)
            for language, lines in zip(("en", "de"), sides, strict=True):
                text = "".join(f"{line}\n" for line in lines)
                pathlib.Path(f"{name}.{language}").write_text(text)
        # What a system would draw that was trained for longer.
        self.translated = pathlib.Path("mono.en").read_text()
        pathlib.Path("mono.en").unlink()

    def test_the_commands_lead_to_a_tagged_system(self):
        commands = [
            words
            for words in documents.commands(TEXT)
            if words[0] in ("relpos-trainer", "relpos-decoder")
            and len(words) > 1
        ]
        names = ["relpos-trainer", "relpos-decoder", "relpos-trainer"]
        self.assertEqual([name for name, *_ in commands], names)
        back, draw, tagged = (words for _, *words in commands)
        execute(trainer.main, *back, *SMALL)
        execute(decoder.main, *draw)
        drawn = pathlib.Path("mono.en")
        self.assertLen(drawn.read_bytes().split(b"\n"), LINES + 1)
        drawn.write_text(self.translated)
        messages = execute(trainer.main, *tagged, *SMALL)
        share = "50 % of the training pairs, read"
        self.assertIn(f"Corpus 1: {PAIRS} pairs, {share}", messages)
        self.assertIn(f"Corpus 2, tag BT: {LINES} pairs, {share}", messages)
        self.check_tags(tagged, LINES)

    def check_tags(self, words, lines):
        """Checks that the second corpus has tags and the first has none."""
        command.parse(trainer.FLAGS, [*words, *SMALL])
        problem = command.make_problem(trainer.FLAGS)
        corpora = problem.corpora("data")
        self.assertEqual([c.pairs for c in corpora], [PAIRS, lines])
        from relpos_tf.data import tokenizer

        tokens = tokenizer.Tokenizer(problem.tokenizer_path("data"))
        self.assertIn("\u2581BT", tokens.pieces())
        texts = problem_test.texts(problem, "data", "train")
        self.assertLen(texts, PAIRS + lines)
        for part, is_tagged in ((texts[:PAIRS], False), (texts[PAIRS:], True)):
            for source, target in part:
                self.assertEqual(source.startswith("BT "), is_tagged)
                self.assertFalse(target.startswith("BT "))
