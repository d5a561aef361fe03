"""The flags of the examples."""

import contextlib
import io
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tests import examples

PARTS = examples.load("parts")


def parse(*words):
    with absltest.mock.patch.object(sys, "argv", ["example", *words]):
        return PARTS.parse_flags("What it does.\n", steps=400, seed=1)


class PartsTest(parameterized.TestCase):
    def test_flags_have_defaults_and_other_values(self):
        self.assertEqual(vars(parse()), {"steps": 400, "seed": 1})
        self.assertEqual(
            vars(parse("--steps=1", "--seed=0")), {"steps": 1, "seed": 0}
        )

    @parameterized.parameters(
        ("--steps=0", "--steps: expected 1 or more, not 0"),
        ("--seed=-1", "--seed: expected 0 or more, not -1"),
        ("--steps=1.5", "--steps: invalid integer value: '1.5'"),
    )
    def test_other_numbers_are_refused(self, word, message):
        stderr = io.StringIO()
        with (
            contextlib.redirect_stderr(stderr),
            self.assertRaises(SystemExit) as raised,
        ):
            parse(word)
        self.assertEqual(raised.exception.code, 2)
        self.assertEndsWith(stderr.getvalue(), f"argument {message}\n")


if __name__ == "__main__":
    absltest.main()
