"""Translations of checkpoints: found, scored, tabulated."""

import json

from relpos_tf import errors
from relpos_tf.comparison import checkpoint_scores
from tests import folders

REFERENCE = ("a b c d e", "f g h i j")
HALF = ("a b c d e", "f g h i x")
NONE = ("k l m n o", "p q r s t")
# See bleu_test for the value.
BLEU_OF_HALF = 100 * (9 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** 0.25


class CheckpointScoresTest(folders.TestCase):
    def score(self, reference=REFERENCE):
        """Scores the translations that were written, and saves the scores."""
        found = checkpoint_scores.CheckpointScores(
            "dev",
            self.write("reference", *reference),
            self.folder,
        )
        for one in checkpoint_scores.find_translations(self.folder):
            found.add(one)
        found.save()
        return found

    def test_translations_are_found_by_step_and_nothing_else(self):
        for name in (
            "dev-900 dev-1000 dev-20 dev-average-900 dev.bleu.json dev-3.part "
            "dev- -5 notes-2a"
        ).split():
            (self.folder / name).touch()
        (self.folder / "dev-7").mkdir()
        translations = checkpoint_scores.find_translations(self.folder, "", 21)
        self.assertEqual(
            translations,
            [
                checkpoint_scores.translation_of(self.folder, "dev", *one)
                for one in ((900, False), (900, True), (1000, False))
            ],
        )
        self.assertEqual(translations[1].path.name, "dev-average-900")
        (self.folder / "test-1").touch()
        with self.assertRaisesRegex(errors.UserError, "dev, test"):
            checkpoint_scores.find_translations(self.folder)
        (one,) = checkpoint_scores.find_translations(self.folder, "test")
        self.assertEqual(one.step, 1)

    def test_table_marks_the_first_of_the_best(self):
        self.write("dev-20", *NONE)
        self.write("dev-3", *HALF)
        for step in (20, 30):
            self.write(f"dev-average-{step}", *REFERENCE)
        found = self.score()
        table = found.table().splitlines()
        self.assertEqual(
            [line.split()[:2] for line in table[:2]],
            [["step", "BLEU"], ["3", f"{BLEU_OF_HALF:.2f}"]],
        )
        self.assertRegex(table[1], r" 50\.00$")
        self.assertRegex(table[3], "average 20( +100.00){3} +best$")
        self.assertEqual(sum("best" in line for line in table), 1)
        self.assertStartsWith(table[5], "BLEU signature: nrefs:1|case:mixed")
        self.assertStartsWith(table[6], "chrF signature: nrefs:1|")
        record = json.loads((self.folder / "dev.bleu.json").read_text())
        self.assertEqual(record["best"], {"step": 20, "is_average": True})
        self.assertEqual(
            [(s["step"], s["exact_match"]) for s in record["scores"]],
            [(3, 50.0), (20, 0.0), (20, 100.0), (30, 100.0)],
        )
        self.assertIn("bleu_signature", record["scores"][0])
