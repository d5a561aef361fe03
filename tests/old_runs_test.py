"""Runs of earlier versions still translate and export.

tests/reference/runs_0_1 holds two runs of commit ed609bd with random weights,
and the translations of that code.
"""

import json
import pathlib

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

import relpos_tf
from relpos_tf.export import saved_model

RUNS = pathlib.Path(__file__).parent / "reference" / "runs_0_1"
REFERENCE = (
    pathlib.Path(__file__)
    .resolve()
    .parents[2]
    .joinpath("shared", "reference", "run_ed609bd")
)


class OldRunsTest(parameterized.TestCase):
    def assert_translates(self, translator, kind):
        expected = json.loads(
            (RUNS / kind / "translated.json").read_text("utf-8")
        )
        found = translator.translate(
            expected["lines"], n_best=2, return_scores=True
        )
        self.assertEqual([texts for texts, _ in found], expected["texts"])
        np.testing.assert_allclose(
            [scores for _, scores in found], expected["scores"], rtol=1e-5
        )

    @parameterized.parameters("relative", "localness")
    def test_old_runs_translate_as_they_did(self, kind):
        self.assert_translates(relpos_tf.Translator.load(RUNS / kind), kind)

    def test_an_old_run_is_exported(self):
        folder = pathlib.Path(self.create_tempdir().full_path, "export")
        saved_model.export_saved_model(RUNS / "relative", folder)
        self.assert_translates(relpos_tf.Translator.load(folder), "relative")

    @absltest.skipUnless(REFERENCE.is_dir(), "needs ../shared")
    @parameterized.parameters("", "export")
    def test_the_reference_run_translates_to_the_byte(self, folder):
        translator = relpos_tf.Translator.load(REFERENCE / folder)
        source, expected = (
            (REFERENCE / name).read_text("utf-8").split("\n")[:50]
            for name in ("test.source", "test.translated")
        )
        self.assertEqual(translator.translate(source), expected)


if __name__ == "__main__":
    absltest.main()
