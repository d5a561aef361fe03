"""The bleu command: what it prints, writes and refuses."""

import contextlib
import io
import json
import pathlib

from absl.testing import absltest

from relpos_tf.bin import bleu
from relpos_tf.bin import command


def execute(*arguments):
    """Returns (exit code, standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.execute(bleu.main, arguments)
    return code, out.getvalue(), err.getvalue()


class BleuTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def file(self, name, *lines):
        """Writes a file; returns the flag that names it."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return f"--{name}={path}"

    def test_scores_are_printed_with_their_signature(self):
        # Right are 9 of 10 words, 7 of 8 pairs, 5 of 6 triples and 3 of 4
        # runs of four: BLEU is their geometric mean, without length penalty.
        code, out, err = execute(
            self.file("translation", "a b c d e", "f g h i x"),
            self.file("reference", "a b c d e", "f g h i j"),
        )
        self.assertEqual((code, err), (0, ""))
        precisions = (9 / 10) * (7 / 8) * (5 / 6) * (3 / 4)
        self.assertIn(f"BLEU = {100 * precisions**0.25:.2f}\n", out)
        self.assertIn("exact match = 50.00 %\n", out)
        self.assertIn("lines = 2, empty = 0\n", out)
        self.assertRegex(out, r"BLEU signature: nrefs:1\|case:mixed\|")

    def test_json_holds_what_is_printed(self):
        path = self.folder / "score.json"
        _, out, _ = execute(
            self.file("translation", "a b c d e", "f g h i x"),
            self.file("reference", "a b c d e", "f g h i j"),
            f"--score_json={path}",
        )
        scores = json.loads(path.read_text(encoding="utf-8"))
        self.assertIn(f"BLEU = {scores['bleu']:.2f}\n", out)
        self.assertIn(f"chrF = {scores['chrf']:.2f}\n", out)
        self.assertIn(scores["bleu_signature"], out)

    def test_other_number_of_lines_is_refused(self):
        translation = self.file("translation", "a", "b", "c")
        code, out, err = execute(translation, self.file("reference", "a", "b"))
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"3 .*2 ")

    def test_source_with_another_number_of_lines_is_refused(self):
        code, out, err = execute(
            self.file("translation", "a", "b"),
            self.file("reference", "a", "b"),
            self.file("source", "a", "b", "c"),
        )
        self.assertEqual((code, out), (1, ""))
        self.assertIn("2 lines in", err)
        self.assertIn("and 3 in", err)

    def test_suspicious_text_is_scored_with_a_warning(self):
        line = "he said , she said , they said , all said"
        code, out, err = execute(
            self.file("translation", line), self.file("reference", line)
        )
        self.assertEqual(code, 0)
        self.assertIn("BLEU = 100.00\n", out)
        self.assertStartsWith(err, "warning: ")

    def test_missing_file_is_one_line(self):
        code, _, err = execute(
            "--translation=no/such/file", self.file("reference", "a")
        )
        self.assertEqual(code, 1)
        self.assertRegex(err, r"\Arelpos-bleu: .*no/such/file[^\n]*\n\Z")

    def test_reference_is_required(self):
        code, _, err = execute(self.file("translation", "a"))
        self.assertEqual(code, 2)
        self.assertStartsWith(err, "relpos-bleu: --reference is required: ")


if __name__ == "__main__":
    absltest.main()
