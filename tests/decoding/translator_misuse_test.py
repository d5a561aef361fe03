"""What users try first with a `Translator` works, or is one sentence."""

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import translator as translator_lib
from tests.decoding import translator_test

MANY = {"sampling_method": "random"}
# Arguments of `translate`, and the words that must be named.
REFUSED = {
    "a_str_for_lines": ({"lines": "two days"}, "`lines`", "the str 'two days'"),
    "a_path": ({"lines": pathlib.Path("a")}, "PosixPath('a')"),
    "bytes": ({"lines": ["a", "b", b"c"]}, "`lines`", "the bytes b'c', line 3"),
    "nan": ({"lines": ["a", float("nan")]}, "the float nan, line 2"),
    "a_str_for_prefix": ({"prefix": "Der"}, "`prefix` must be a list of lines"),
    "bytes_in_prefix": (
        {"lines": ["a"] * 2, "prefix": ["", b"c"]},
        "`prefix`",
        "the bytes b'c', line 2",
    ),
    "fewer_prefixes": ({"lines": ["a", "b"], "prefix": [""]}, "fewer"),
    "more_prefixes": ({"lines": ["a"], "prefix": ["", ""]}, "more"),
    "str_for_int": ({"beam_size": "4"}, "`beam_size`", "int", "'4'"),
    "negative": ({"alpha": -1.0}, "`alpha` must be at least 0"),
    "more_than_beams": ({"n_best": 4}, "`n_best` must be 1 to beam_size=3"),
    "none_drawn": ({"n_best": 0} | MANY, "must be at least 1"),
    "too_many_drawn": ({"n_best": 1025} | MANY, "must be 1 to 1024"),
    "an_internal_name": ({"chunk_lines": 0}, "Unknown options ['chunk_lines']"),
    "another_name": ({"num_beams": 4}, "['num_beams']", "Known: ['alpha', 'ba"),
    "a_misspelled_name": ({"beem_size": 4}, "Did you mean beam_size"),
    "a_flag": ({"write_beam_scores": True}, "'return_scores'"),
    "alignments": ({"return_alignments": True}, "'return_attention'"),
}


class Prefixes(translator_test.EchoEngine):
    """Takes prefixes, as a model does, and ignores them."""

    is_steerable = True


def echo():
    return translator_lib.Translator(engine=Prefixes())


class MisuseTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*REFUSED)
    def test_is_refused_by_name(self, case):
        arguments, *words = REFUSED[case]
        with self.assertRaises(errors.UserError) as caught:
            echo().translate(**({"lines": ["a"]} | arguments))
        for word in words:
            self.assertIn(word, str(caught.exception))

    @parameterized.parameters("chunk_lines", "first_lines")
    def test_no_lines_at_a_time_are_refused(self, name):
        with self.assertRaisesRegex(errors.UserError, f"`{name}`.* at least 1"):
            echo().translations(["a"], **{name: 0})

    def test_lines_before_the_one_that_is_no_str_are_translated(self):
        found = echo().translations(iter(["a", "b", 3]), chunk_lines=1)
        texts = [next(found).texts, next(found).texts]
        self.assertEqual(texts, [["A"], ["B"]])
        with self.assertRaisesRegex(errors.UserError, "the int 3, line 3"):
            next(found)

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

    def test_a_translator_is_made_of_a_model_or_an_engine(self):
        for arguments in ((), ("runs/mine",), ("runs/mine", "runs/mine")):
            with self.assertRaisesRegex(
                errors.UserError, r"Translator.load\(path\) loads both"
            ):
                translator_lib.Translator(*arguments)
            with self.assertRaisesRegex(errors.UserError, "an engine alone"):
                translator_lib.Translator(*arguments or [8], engine=object())
