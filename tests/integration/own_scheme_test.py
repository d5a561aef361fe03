"""A scheme of a user's own, by the steps of docs/positions.md."""

import importlib
import json
import pathlib
import re

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import score_process
from relpos_tf.decoding import loading
from relpos_tf.decoding import translator
from tests import folders
from tests import registered
from tests import testing
from tests.bin import calls
from tests.comparison import examples

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "positions.md"
# So that training takes seconds.
SMALL = (
    "hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "batch_size=256,beam_size=1,extra_length=4"
)


def blocks(language):
    """Returns the blocks of code of the page's last section."""
    section = PAGE.read_text(encoding="utf-8").split("## A scheme of your own")
    return re.findall(rf"```{language}\n(.*?)```", section[1], re.DOTALL)


class OwnSchemeTest(folders.TestCase):
    def execute(self, name, *arguments, stdin=b"", expected=0):
        """Runs a command to its expected code; returns what it wrote."""
        main = importlib.import_module(f"relpos_tf.bin.{name}").main
        code, out, error = calls.execute(main, *arguments, stdin=stdin)
        self.assertEqual(code, expected, error)
        return out.decode(), error

    def work(self, arguments):
        """Stands in for the processes of a comparison."""
        name = arguments[1].rpartition(".")[2]
        if name == "score_process":
            return score_process.main(arguments[-1])
        self.execute(name, *arguments[2:])
        return 0

    def test_the_steps_of_the_page(self):
        registered.forget_after(self)
        self.enter_folder()
        (own,) = blocks("python")
        self.write("mine/__init__.py", own)
        lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
        commands = [line.rpartition("relpos-")[2].split() for line in lines]
        (train, translate, export, _, compare, again) = commands
        _, said = self.execute(
            *train, f"--hparams={SMALL}", "--train_steps=2", "--schedule=train"
        )
        self.assertRegex(said, "decoder --output_dir=runs/decay --usr_dir=mine")
        self.check_steps(loading.load_model("runs/decay"))
        self.execute(*export)
        outputs = []
        for words in translate, again:
            self.assertEqual(words[0], "decoder")
            outputs.append(self.execute(*words, stdin=b"number 7\n")[0])
        self.assertEqual(outputs[0], outputs[1])
        self.assertEndsWith(outputs[0], "\n")
        self.execute("average", "--usr_dir=mine", "--output_dir=runs/decay")
        compare = [x for x in compare if not x.startswith("--train_steps")]
        with examples.work_in_this_process(self.work):
            self.execute(*compare, f"--hparams={SMALL}", "--train_steps=2")
        report = json.loads(
            pathlib.Path("runs/compared/report.json").read_text()
        )
        self.assertEqual(report["labels"], ["decay_tiny", "transformer_tiny"])
        self.assertEqual(report["missing"], [])
        self.check_refusals()

    def check_refusals(self):
        """Looks for the sentences without the folder."""
        hparam.OWN_TYPES.remove("learned_decay")
        _, error = self.execute(
            "decoder", "--output_dir=runs/decay", expected=1
        )
        last = error.split("\n")[-2]
        self.assertRegex(last, "`learned_decay` is not reg.*--usr_dir")
        with self.assertRaisesRegex(errors.UserError, "import the module"):
            translator.Translator.load("runs/decay")

    def check_steps(self, model):
        """Compares the weights with loops."""
        for block in (*model.encoder_blocks, *model.decoder_blocks):
            layer = block.self_attention
            layer.decay_rates.assign([0.5, 2.0])
            x = tf.constant(testing.normal(1, 1, 5, 16), tf.float32)
            _, found = layer(x, use_causal_mask=True, return_weights=True)
            layer.decay_rates.assign([0.0, 0.0])
            _, plain = layer(x, use_causal_mask=True, return_weights=True)
            expected = plain.numpy()
            for h, i, j in np.ndindex(2, 5, 5):
                rate = 0.5 * [0.5, 2.0][h]
                expected[0, h, i, j] *= np.exp(-rate * abs(i - j))
            expected /= expected.sum(-1, keepdims=True)
            self.assertTrue(np.allclose(found, expected, 1e-4, 1e-5))
