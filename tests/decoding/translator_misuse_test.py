"""What users try first with a `Translator` works, or is one sentence."""

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import translator as translator_lib
from tests.decoding import translator_test

LINES = "`lines` must be a list of lines, each a str"
# What is no list of lines, and how the message names it.
NO_LINES = {
    "str": ("two days", "the str 'two days'"),
    "none": (None, "the NoneType None"),
    "number": (7, "the int 7"),
    "path": (pathlib.Path("a"), "the PosixPath PosixPath\\('a'\\)"),
}
# Elements that are no str, after two that are.
NO_STR = {
    "bytes": (b"c", "the bytes b'c', line 3"),
    "none": (None, "the NoneType None, line 3"),
    "nan": (float("nan"), "the float nan, line 3"),
    "number": (3, "the int 3, line 3"),
    "tensor": (tf.constant("c"), "the EagerTensor .*, line 3"),
    "list": (["c"], r"the list \['c'\], line 3"),
}
OPTIONS = {
    "beam_size": ("4", "`beam_size` must be of type int. Received: '4'"),
    "alpha": ("0.6", "`alpha` must be of type float. Received: '0.6'"),
    "min_length": (2.5, "`min_length` must be of type int. Received: 2.5"),
    "random_seed": (True, "`random_seed` must be of type int. Received: True"),
    "sampling_method": (1, "`sampling_method` must be of type str"),
    "n_best": (2.0, "`n_best` must be 1 to beam_size=3. Received: 2.0"),
    "chunk_lines": (0, r"Unknown options \['chunk_lines'\]"),
    "num_beams": (4, r"Unknown options \['num_beams'\].*Known: \['alpha', 'ba"),
    "beem_size": (4, "Did you mean beam_size"),
    "batch_size": (-1, "`batch_size` must be at least 0"),
    "return_beams": (True, r"Unknown options \['return_beams'\].*'n_best'"),
    "return_alignments": (True, r"Unknown options .*'return_attention'"),
    "prefix": ("Der", "`prefix` must be a list of lines, each a str"),
}


class Prefixes(translator_test.EchoEngine):
    """Takes prefixes, as a model does, and ignores them."""

    is_steerable = True


def echo(engine=None):
    engine = engine or translator_test.EchoEngine()
    return translator_lib.Translator(engine=engine)


class MisuseTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*NO_LINES)
    def test_what_is_no_list_of_lines_is_refused_at_once(self, case):
        lines, received = NO_LINES[case]
        for name in ("translate", "translations"):
            with self.assertRaisesRegex(
                errors.UserError, f"{LINES}. Received: {received}"
            ):
                getattr(echo(), name)(lines)

    @parameterized.parameters(*NO_STR)
    def test_what_is_no_str_is_named_by_its_number(self, case):
        wrong, received = NO_STR[case]
        lines = ["a", "b", wrong, "d"]
        with self.assertRaisesRegex(errors.UserError, f"{LINES}.*{received}"):
            echo().translate(lines)
        found = echo().translations(iter(lines), chunk_lines=1)
        texts = [next(found).texts, next(found).texts]
        self.assertEqual(texts, [["A"], ["B"]])
        with self.assertRaisesRegex(errors.UserError, received):
            next(found)
        with self.assertRaisesRegex(
            errors.UserError, f"`prefix` must.*{received}"
        ):
            echo(Prefixes()).translate(["a"] * 4, prefix=["", "", wrong, ""])

    def test_lines_of_other_kinds_are_translated(self):
        for lines in (
            ("a", "b"),
            np.array(["a", "b"]),
            np.array(["a", "b"], object),
            (line for line in "ab"),
            {"a": 1, "b": 2}.keys(),
        ):
            with self.subTest(kind=type(lines).__name__):
                self.assertEqual(echo().translate(lines), ["A", "B"])

    @parameterized.parameters(*OPTIONS)
    def test_a_wrong_option_is_refused_at_once(self, name):
        value, message = OPTIONS[name]
        with self.assertRaisesRegex(errors.UserError, message):
            echo().translate(["a"], **{name: value})

    def test_a_prefix_for_each_line_and_no_more(self):
        for number, word in ((1, "fewer"), (3, "more")):
            with self.assertRaisesRegex(errors.UserError, word):
                echo(Prefixes()).translate(["a", "b"], prefix=[""] * number)

    def test_a_translator_is_made_of_a_model_or_an_engine(self):
        for arguments in ((), ("runs/mine",), ("runs/mine", "runs/mine")):
            with self.assertRaisesRegex(
                errors.UserError, r"Translator.load\(path\) loads both"
            ):
                translator_lib.Translator(*arguments)
