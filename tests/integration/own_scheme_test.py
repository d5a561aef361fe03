"""A scheme of a user's own, by the steps of docs/positions.md."""

import pathlib
import re
import shlex

import numpy as np
import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.bin import decoder
from relpos_tf.bin import trainer
from relpos_tf.decoding import loading
from tests import folders
from tests import testing
from tests.bin import calls
from tests.layers import schemes

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
    def execute(self, main, *arguments):
        code, _, error = calls.execute(main, *arguments)
        self.assertEqual(code, 0, error)

    def test_the_steps_of_the_page(self):
        self.enter_folder()
        # Tests after this one, in the same process, list the shipped kinds.
        kinds = hparam.SELF_ATTENTION_TYPES
        self.addCleanup(kinds.__setitem__, slice(None), [*kinds])
        own, export = blocks("python")
        train, translate = (
            shlex.split(block.replace("\\\n", " ")) for block in blocks("sh")
        )
        self.write("mine/__init__.py", own)
        self.assertEqual(train[0], "relpos-trainer")
        hparams = next(word for word in train if word.startswith("--hparams="))
        train[train.index(hparams)] = f"{hparams},{SMALL}"
        self.execute(
            trainer.main, *train[1:], "--train_steps=5", "--schedule=train"
        )
        self.check_steps(loading.load_model("runs/decay"))
        exec(compile(export, PAGE.name, "exec"), {})
        echo, line, bar, name, *flags = translate
        self.assertEqual([echo, bar, name], ["echo", "|", "relpos-decoder"])
        self.write("in.txt", line)
        outputs = []
        for source in (flags, ["--output_dir=runs/decay"]):
            self.execute(
                decoder.main,
                *source,
                "--decode_from_file=in.txt",
                "--decode_to_file=out.txt",
            )
            outputs.append(pathlib.Path("out.txt").read_text("utf-8"))
        self.assertEqual(outputs[0], outputs[1])
        self.assertEndsWith(outputs[0], "\n")

    def check_steps(self, model):
        """Compares the rates, the rows of cached steps, and loops."""
        for block in (*model.encoder_blocks, *model.decoder_blocks):
            layer = block.self_attention
            layer.decay_rates.assign([0.5, 2.0])
            x = tf.constant(testing.normal(1, 1, 5, 16), tf.float32)
            output, found = layer(x, use_causal_mask=True, return_weights=True)
            layer.decay_rates.assign([0.0, 0.0])
            _, plain = layer(x, use_causal_mask=True, return_weights=True)
            expected = plain.numpy()
            for h, i, j in np.ndindex(2, 5, 5):
                rate = 0.5 * [0.5, 2.0][h]
                expected[0, h, i, j] *= np.exp(-rate * abs(i - j))
            expected /= expected.sum(-1, keepdims=True)
            self.assertTrue(np.allclose(found, expected, 1e-4, 1e-5))
            layer.decay_rates.assign([0.5, 2.0])
            first, cache = layer.step(x[:, :3], layer.init_cache(1), start=0)
            last, _ = layer.step(x[:, 3:], cache, start=3)
            rows = np.concatenate([first, last], 1)
            self.assertTrue(np.allclose(rows, output, 1e-4, 1e-5))
        for dtype in "mixed_bfloat16", "float64":
            other = schemes.made(16, 2, *layer.positions, dtype=dtype)
            self.assertEqual(other(x).dtype, other.compute_dtype)
