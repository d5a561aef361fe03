"""What the comparison refuses, and the words that the message must have."""

import functools
import pathlib

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import grid
from relpos_tf.comparison import outputs
from relpos_tf.comparison import runs
from relpos_tf.comparison import variants
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from tests import folders

TINY = "transformer_relative_tiny"


def read(*items):
    """Reads translations of the two test sets of two lines."""
    here = pathlib.Path()
    sets = [
        test_sets.TestSet(name, ["x", "y"], ["u", "v"], here, here)
        for name in ("test", "flickr")
    ]
    (one,) = outputs.parse(items)
    return outputs.read(one, sets)


def expand(text):
    one = variants.Variant("a", "transformer_tiny", "", hparam.HParams())
    return grid.expand(text, [one])


def expand_preset(text, *preset):
    return grid.expand(text, variants.of_preset(*preset))


def plan(*labels):
    """Plans runs whose directories may be those of others."""
    made = [
        variants.Variant(label, "set", "x", hparam.HParams())
        for label in labels
    ]
    return runs.of_variants(
        made, [1], pathlib.Path("runs"), {"problem": "p"}, 10
    )


REFUSALS = (
    (outputs.parse, ["x=none"], "'x=none' 0 files 0 are new"),
    (outputs.parse, ["x=a.txt", "x=b.txt", "x:test_2=a.txt"], "2, 1."),
    (read, "x=long.txt", "2 lines long.txt 3."),
    (read, "x:test_2=a.txt", "test, flickr a.txt test_2."),
    (read, "x:flickr=a.txt", "x for test, files for flickr only"),
    (runs.find, "x=none*", "'x=none*' no run"),
    (runs.find, "run,run", "twice run"),
    (runs.find, "b=run,b=other", "twice b"),
    (functools.partial(plan, "a/b"), "a b", "a/b, a b"),
    (grid.axes, "alpha=1,beam_size=2", "with a semicolon"),
    (grid.axes, ";", "each once none"),
    (grid.axes, "alpha=1;alpha=2", "each once alpha, alpha"),
    (grid.axes, "alpha=1,1.0", "alpha once 1,1.0"),
    (grid.axes, "train_steps=5,6", "train_steps the same in all runs"),
    (expand, "learning_rate=1,2", "`learning_rate` no effect =legacy"),
    (
        expand_preset,
        ("max_relative_position=4,8", "depth", TINY, ""),
        "`max_relative_position` is set for k=1-layers=1: preset",
    ),
    (
        expand_preset,
        ("alpha=1,2;max_length=5,6", "table1", TINY, "", "max_length=9"),
        "`max_length` relative: --train_max_length",
    ),
    (
        variants.of_sets,
        (
            ["transformer_tiny", TINY],
            "transformer_tiny:max_relative_position=3",
        ),
        "`max_relative_position` no effect =dot_product_relative",
    ),
    # Settings that others override, or that make labels false.
    (
        variants.of_preset,
        ("depth", TINY, "k=2-layers=1:num_encoder_layers=3"),
        "`num_encoder_layers` --preset=depth compares",
    ),
    (
        variants.of_preset,
        ("table1", TINY, "decoder_self_attention_type=dot_product_fire"),
        "`decoder_self_attention_type` --preset=table1 compares",
    ),
    (
        variants.of_sets,
        ([TINY], "max_length=128", "max_length=9"),
        "`max_length=128` no effect --train_max_length",
    ),
    (
        variants.of_sets,
        (["a=" + TINY, "b=" + TINY], "alpha=1;a:alpha=2;b:alpha=3"),
        "`alpha=1.0` no effect label",
    ),
)


class RefusalsTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_folder()
        for name, lines in (("a", "12"), ("b", "3")):
            self.write(f"{name}.txt", *lines)
        self.write("long.txt", *"123")
        for name in ("run", "other"):
            run_dir.RunDir(pathlib.Path(name)).write_hparams(hparam.HParams())

    @parameterized.parameters(*REFUSALS)
    def test_message_names_what_was_received(self, call, given, words):
        arguments = given if isinstance(given, tuple) else (given,)
        with self.assertRaises(errors.UserError) as caught:
            call(*arguments)
        message = str(caught.exception)
        for word in words.split():
            self.assertIn(word, message)
        self.assertNotIn("\n", message)
