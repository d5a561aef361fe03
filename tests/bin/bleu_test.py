"""The bleu command: its output, its files and its errors."""

import json

from relpos_tf.bin import bleu
from tests import chinese
from tests import folders
from tests.bin import calls
from tests.problems import sacrebleu_sets_test


def execute(*arguments):
    """Returns (exit code, standard output, standard error)."""
    code, out, err = calls.execute(bleu.main, *arguments)
    return code, out.decode(), err


class BleuTest(folders.TestCase):
    def file(self, name, *lines):
        """Writes a file; returns the flag that names it."""
        return f"--{name}={self.write(name, *lines)}"

    def test_scores_are_printed_with_their_signature(self):
        # Right are 9 of 10 words, 7 of 8 pairs, 5 of 6 triples and 3 of 4
        # runs of four: BLEU is their geometric mean, without length penalty.
        path = self.folder / "score.json"
        code, out, err = execute(
            self.file("translation", "a b c d e", "f g h i x"),
            self.file("reference", "a b c d e", "f g h i j"),
            f"--score_json={path}",
        )
        self.assertEqual((code, err), (0, ""))
        precisions = (9 / 10) * (7 / 8) * (5 / 6) * (3 / 4)
        self.assertIn(f"BLEU = {100 * precisions**0.25:.2f} (", out)
        self.assertIn("\nTER = 10.00 (nrefs:1|", out)  # one of ten words
        self.assertIn("exact match = 50.00% of 2 lines, 0 empty\n", out)
        self.assertRegex(out, r"BLEU = .* \(nrefs:1\|case:mixed\|")
        scores = json.loads(path.read_text(encoding="utf-8"))
        self.assertIn(f"BLEU = {scores['bleu']:.2f} (", out)
        self.assertIn(f"chrF = {scores['chrf']:.2f} (", out)
        self.assertIn(scores["bleu_signature"], out)
        self.assertIn("nc:6|nw:2", scores["chrfpp_signature"])
        self.assertIn(f"\nchrF++ = {scores['chrfpp']:.2f} (", out)

    def test_an_edit_of_chinese_is_of_a_character(self):
        files = (
            self.file("translation", "我喜欢狗。", "你好"),
            self.file("reference", "我喜欢猫。", "你好"),
        )
        for flag in "--language_pair=en-zh", "--bleu_tokenize=zh":
            _, out, _ = execute(*files, flag)
            self.assertRegex(out, r"\nTER = 14\.29 \(.*asian:yes")  # 1 of 7
        flags = "--language_pair=en-de-AT", "--bleu_tokenize=char"
        _, out, _ = execute(*files, *flags)
        self.assertRegex(out, r"(?s)tok:moses-de\|.*\|asian:no")

    def test_the_scale_of_tokenized_bleu_is_chosen(self):
        files = (
            self.file("translation", "Der Hund rennt, und die Katze schläft."),
            self.file("reference", "der hund rennt, und die katze schläft."),
        )
        _, out, _ = execute(*files, "--language_pair=en-de")
        self.assertIn("\ntokenized BLEU = 100.00 (", out)
        code, out, err = execute(
            *files, "--language_pair=en-de", "--scale=wmt14"
        )
        self.assertEqual((code, err), (0, ""))
        self.assertIn("|tok:moses-de-atat|", out)
        self.assertNotIn("\ntokenized BLEU = 100.00 (", out)
        code, _, err = execute(*files, "--language_pair=en-ja", "--scale=wmt14")
        self.assertEqual(code, 2, err)
        self.assertIn("--scale: Expected a language that Moses'", err)

    def test_sacrebleus_reference_is_found_by_name(self):
        sacrebleu_sets_test.fill(self.folder)
        translation = self.file("translation", "Ein Hund", "Zwei Katzen")
        reference = self.file(
            "reference", "Ein Hund", "Zwei Hunde und eine Katze  "
        )
        words = ["--test_set=multi30k/2016", "--language_pair=en-de"]
        with sacrebleu_sets_test.sacrebleu_folder(self.folder):
            _, by_name, _ = execute(translation, *words)
        code, out, _ = execute(translation, reference, words[1])
        self.assertEqual((code, by_name), (0, out))
        self.assertRegex(out, r"\ntokenized BLEU = \S+ \(nrefs:1\|case:lc")

    def test_the_language_or_a_flag_gives_the_tokenizer(self):
        lines = (
            self.file("translation", *chinese.HYPOTHESES),
            self.file("reference", *chinese.REFERENCES),
        )
        right = f"BLEU = {chinese.BLEU:.2f} ("
        for more, tokenizer in (
            (["--language_pair=en-zh"], "zh"),
            (["--language_pair=en-x", "--bleu_tokenize=char"], "char"),
        ):
            code, out, err = execute(*lines, *more)
            self.assertEqual((code, err), (0, ""))
            self.assertStartsWith(out, right)
            self.assertIn(f"|tok:{tokenizer}|", out)

    def test_several_references_are_one_score(self):
        translation = self.file("translation", "a b c d e", "f g h i x")
        paths = (
            self.write("r1", "a b c d e", "x"),
            self.write("r2", "x", "f g h i x"),
            self.write("r1, more", "a b", "f g h i x"),
        )
        flag = f"--reference={paths[0]},{paths[1]}"
        code, out, err = execute(translation, flag)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("BLEU = 100.00 (nrefs:2|", out)
        self.assertIn("exact match = 100.00% of 2 lines", out)
        code, _, err = execute(translation, f"{flag},")
        self.assertEqual(code, 2)
        self.assertIn("--reference: Expected names of files with one", err)
        # Blanks beside a comma; one file of such a name.
        more = self.folder / "r1, more"
        for name, number in (f"{paths[0]} , {paths[1]}", 2), (more, 1):
            _, out, _ = execute(translation, f"--reference={name}")
            self.assertIn(f"(nrefs:{number}|", out)
