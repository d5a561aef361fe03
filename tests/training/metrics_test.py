"""Tests of the scores: against sacreBLEU's command and by hand."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unicodedata
from unittest import mock

import sacrebleu
from absl.testing import absltest
from absl.testing import parameterized
from sacrebleu.tokenizers import tokenizer_ja_mecab
from sacrebleu.tokenizers import tokenizer_ko_mecab

from relpos_tf import errors
from relpos_tf.comparison import corpus_measures
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer
from relpos_tf.training import metrics
from tests import chinese

REFERENCES = (
    "The cat sat on the mat, and it did not move.",
    "Prices rose by 3.5% in 2018.",
    "Elle est partie hier à Genève.",
    "A well-known author wrote it.",
    "NASA's probe is gone!",
)
HYPOTHESES = (
    "the cat sat on the mat, and it didn't move.",
    "Prices rose by 3.5% in 2018.",
    "Elle est allée hier à Genève",
    "",
    "NASA's probe has gone!",
)


def command_scores(folder, hypotheses, references):
    """Returns the output of `sacrebleu -m bleu chrf`, as a list of dicts."""
    paths = pathlib.Path(folder, "hypotheses"), pathlib.Path(folder, "refs")
    for path, lines in zip(paths, (hypotheses, references), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", paths[1], "-i", paths[0]]
    command += ["-m", "bleu", "chrf", "-w", "9"]
    environment = os.environ | {"PYTHONUTF8": "1"}
    return json.loads(subprocess.check_output(command, env=environment))


class CorpusBleuTest(parameterized.TestCase):
    def test_scores_are_those_of_the_sacrebleu_command(self):
        scores = metrics.corpus_bleu(HYPOTHESES, REFERENCES)
        with tempfile.TemporaryDirectory() as folder:
            bleu, chrf = command_scores(folder, HYPOTHESES, REFERENCES)
        self.assertGreater(scores.bleu, 0)
        self.assertAlmostEqual(scores.bleu, bleu["score"], places=7)
        self.assertAlmostEqual(scores.chrf, chrf["score"], places=7)
        self.assertEqual(scores.bleu_signature, bleu["signature"])
        self.assertEqual(scores.chrf_signature, chrf["signature"])
        self.assertIn(
            f"BP = {scores.brevity_penalty:.3f}", bleu["verbose_score"]
        )

    def test_exact_match_is_a_percentage_of_lines(self):
        scores = metrics.corpus_bleu(
            ["one", " two ", "Three", "four", ""], ["one", "two", "x", "y", "z"]
        )
        self.assertEqual(scores.exact_match, 40)
        self.assertEqual(scores.lines, 5)
        self.assertEqual(scores.empty_lines, 1)

    @parameterized.parameters(
        ("<seg id='1'>Prices rose.</seg>", '1 lines of the {} hold "<seg"'),
        ('<DOC docid="x">', '1 lines of the {} hold "<DOC"'),
        ("a well @-@ known one", '1 lines of the {} hold " @-@ "'),
        ("Ein gro@@ ßer Hund", '1 lines of the {} hold "@@ "'),
        ("Das ist gro@@", '1 lines of the {} hold "@@"'),
        ("▁Ein ▁Hund", '1 lines of the {} hold "▁"'),
        ("Zwei Hunde\tEin Hund", '1 lines of the {} hold "\\t"'),
        ("a , b , c , d, e", '1 lines of the {} hold " , "'),
    )
    def test_text_that_is_not_plain_warns_about_its_side(self, line, warning):
        plain = dict.fromkeys(("hypotheses", "references"), ["plain text"])
        for side in plain:
            found, *_ = metrics.corpus_bleu(**plain | {side: [line]}).warnings
            self.assertStartsWith(found, warning.format(side))

    def test_a_few_lines_may_hold_what_looks_like_pieces(self):
        for number, warned in (2, 0), (3, 2):
            lines = ["a user@@ host"] * number + ["plain"] * (100 - number)
            self.assertLen(metrics.corpus_bleu(lines, lines).warnings, warned)


class UnicodeFormTest(parameterized.TestCase):
    @parameterized.parameters(
        unicodedata.normalize("NFD", "Ein Hörgerät ist schön für Männer."),
        "वह स\u095cक पर बहुत तेज दौ\u095cता है",
        "গা\u09dcি এবং বা\u09dcি খুব ব\u09dc হ\u09df",
        unicodedata.normalize("NFD", "Tiếng Việt rất đẹp và khó học"),
        unicodedata.normalize("NFD", "저는 학교에서 한국어를 배웁니다"),
        "ខ្ញុំ\u200bចង់\u200bទៅ\u200bសាលា\u200bរៀន",
        "Donau\u00addampf\u00adschiff fährt auf der\u00a0Donau heute.",
    )
    def test_a_perfect_translation_of_any_form_has_full_marks(self, line):
        references = [line, line + " 12", "No other form here at all."]
        with tempfile.TemporaryDirectory() as folder:
            pieces.learn(
                pieces.count_words(references), f"{folder}/a.model", 500
            )
            tokens = tokenizer.Tokenizer(f"{folder}/a.model")
        perfect = [tokens.decode(tokens.encode(one)) for one in references]
        scores = metrics.corpus_bleu(perfect, references, "char")
        self.assertAlmostEqual(scores.bleu, 100)
        self.assertAlmostEqual(scores.chrf, 100)
        self.assertEqual(scores.exact_match, 100)
        as_it_is = sacrebleu.corpus_bleu(
            perfect, [references], tokenize="char"
        ).score
        self.assertEndsWith(scores.warnings[0], f"BLEU {as_it_is:.2f}.")
        # Of two sides of that form, the score is the same.
        alike = metrics.corpus_bleu(references, references, "char").warnings
        self.assertEmpty(alike)
        score, _ = tokenized_bleu(perfect, references, "de")
        self.assertAlmostEqual(score, 100)
        # A worse one: sacreBLEU's numbers of the vocabulary's own spelling.
        worse = [one[:-2] + "x" for one in perfect]
        scores = metrics.corpus_bleu(worse, references)
        bleu = sacrebleu.corpus_bleu(worse, [perfect]).score
        chrf = sacrebleu.corpus_chrf(worse, [perfect]).score
        self.assertAlmostEqual(scores.bleu, bleu)
        self.assertAlmostEqual(scores.chrf, chrf)
        measure = corpus_measures.bleu()
        counts = measure.counts(worse, references).sum(axis=0)
        self.assertAlmostEqual(measure.score(counts), bleu)


class TokenizerTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        # What a test pretends to be installed is not for the next.
        for function in (metrics.bleu, metrics.tokenizer_of):
            function.cache_clear()
            self.addCleanup(function.cache_clear)

    @parameterized.parameters(
        ("zh ZH zh-TW zh_Hant zho cmn yue chi-TW", "", "zh"),
        ("th khm lo mya_MM bo bod", "", "char"),
        ("deu de target", "", "13a"),
        ("zh", "13a", "13a"),
        ("ja", "intl", "intl"),
    )
    def test_it_is_that_of_the_language_or_the_one_asked_for(
        self, languages, asked, name
    ):
        for language in languages.split():
            self.assertEqual(metrics.tokenizer_of(language, asked), name)
        self.assertEqual(metrics.tokenizer_of("", asked), asked or "13a")

    @parameterized.parameters(
        ("ja", tokenizer_ja_mecab), ("ko", tokenizer_ko_mecab)
    )
    def test_without_its_packages_characters_count_and_a_line_says_so(
        self, language, module
    ):
        with mock.patch.object(module, "MeCab", None):
            with self.assertLogs("relpos_tf", "WARNING") as logged:
                self.assertEqual(metrics.tokenizer_of(language), "char")
                self.assertEqual(metrics.tokenizer_of(language), "char")
            with self.assertRaisesRegex(
                errors.UserError, f"{language}-mecab: .*sacrebleu.{language}"
            ):
                metrics.bleu(f"{language}-mecab")
        (line,) = logged.output
        self.assertIn("tok:char", line)
        self.assertIn(f"pip install sacrebleu[{language}]", line)

    @parameterized.parameters(
        ("zh", chinese.BLEU), ("char", chinese.BLEU), ("13a", 0.0)
    )
    def test_one_wrong_character_in_each_line_of_chinese(self, name, expected):
        lines = chinese.HYPOTHESES, chinese.REFERENCES
        scores = metrics.corpus_bleu(*lines, name)
        self.assertAlmostEqual(scores.bleu, expected)
        theirs = sacrebleu.corpus_bleu(
            lines[0], [lines[1]], tokenize=name, force=True
        )
        self.assertAlmostEqual(scores.bleu, theirs.score)
        self.assertIn(f"|tok:{name}|", scores.bleu_signature)
        self.assertLen(scores.warnings, name == "13a")

    @parameterized.parameters(
        (["我们在家。", "好。"], 5, 7),
        (["ฉันรักคุณ มาก และ เธอ", "ไป ไหน มา"], 25, 30),
        (["ខ្ញុំ ចង់ ទៅ"], 10, 12),
        (["こんにちは、 John Smith!"], 5, 18),
    )
    def test_scripts_without_blanks_name_the_flag(self, lines, number, total):
        (warning,) = metrics.reference_warnings(lines, "13a")
        self.assertStartsWith(warning, f"{number} of {total} characters")
        self.assertIn("--bleu_tokenize=zh", warning)
        others = [*REFERENCES, "저는 학교에 갑니다", "Он дома", "我 is Chinese"]
        self.assertEqual(metrics.reference_warnings(others, "13a"), [])

    def test_other_names_are_refused(self):
        for name in ("zz", "ZH", " "):
            with self.assertRaisesRegex(
                errors.UserError, "none, zh, 13a, .*Received: "
            ):
                metrics.bleu(name)


def tokenized_bleu(hypotheses, references, *scale):
    """Returns BLEU of Moses' tokens, and its signature."""
    measure = corpus_measures.TokenizedBleu(*scale)
    sums = measure.counts(hypotheses, references).sum(axis=0)
    return measure.score(sums).item(), measure.signature()


class SeveralReferencesTest(absltest.TestCase):
    def test_scores_are_those_of_sacrebleu(self):
        columns = REFERENCES, ("The cat sat there.", *HYPOTHESES[1:])
        rows = list(zip(*columns, strict=True))
        scores = metrics.corpus_bleu(HYPOTHESES, rows)
        theirs = sacrebleu.corpus_bleu(HYPOTHESES, columns)
        self.assertAlmostEqual(scores.bleu, theirs.score)
        self.assertStartsWith(scores.bleu_signature, "nrefs:2|")
        theirs = sacrebleu.corpus_chrf(HYPOTHESES, columns)
        self.assertAlmostEqual(scores.chrf, theirs.score)
        self.assertEqual(scores.exact_match, 60)
        score, signature = tokenized_bleu(
            ["x b c d e"], [("a", "X b c d e")], "de"
        )
        self.assertAlmostEqual(score, 100)
        self.assertStartsWith(signature, "nrefs:2|")

    def test_a_blank_reference_beside_another_is_none(self):
        found = metrics.exact_matches(
            ["", "", "Dog"], [("Hund", ""), ("", ""), ("Dog", "Hund")]
        )
        self.assertEqual(found, [False, True, True])
        # sacreBLEU counts it as a short one, which a warning says.
        rows = [("a b c d e f g h i j", ""), ("The cat sat .",) * 2]
        found = metrics.corpus_bleu(["a b c d", "The cat sat ."], rows)
        self.assertEqual(found.brevity_penalty, 1)
        self.assertStartsWith(found.warnings[0], "1 of 2 lines have a blank")


class TokenizedBleuTest(absltest.TestCase):
    def test_counts_lower_case_tokens_of_moses_without_smoothing(self):
        # Ten tokens on each side, of which the ninth alone differs.
        score, signature = tokenized_bleu(
            ["Der Hund im T-Shirt rennt, und er schläft."],
            ["der hund im t-shirt rennt, und er ruht."],
            "de",
        )
        precisions = (9 / 10) * (7 / 9) * (6 / 8) * (5 / 7)
        self.assertAlmostEqual(score, 100 * precisions**0.25)
        self.assertStartsWith(signature, "nrefs:1|case:lc|")
        score, _ = tokenized_bleu(["a b c d"], ["a b c e"], "en")
        self.assertEqual(score, 0.0)

    def test_wmt14_splits_compounds_and_keeps_capitals(self):
        # As get_ende_bleu.sh: unicode punctuation, Moses, hyphens once.
        hypotheses, [references] = metrics.moses_tokens(
            ["Der „Rich-Text-Teil“ kostet 3,5 % – ja!", "a-b-c, 1-2 - d"],
            ["“Ja”， sagte er…", "x"],
            "de",
            "wmt14",
        )
        self.assertEqual(
            [*hypotheses, references[0]],
            [
                "Der „ Rich ##AT##-##AT## Text ##AT##-##AT## Teil &quot; "
                "kostet 3,5 % – ja !",
                "a ##AT##-##AT## b-c , 1 ##AT##-##AT## 2 - d",
                "&quot; Ja &quot; , sagte er ...",
            ],
        )
        # Ten tokens on each side, of which the fourth alone differs.
        score, signature = tokenized_bleu(
            ["Das T-Shirt aus Rom ist sehr schön."],
            ["Das T-shirt aus Rom ist sehr schön."],
            "de",
            "wmt14",
        )
        precisions = (9 / 10) * (7 / 9) * (5 / 8) * (3 / 7)
        self.assertAlmostEqual(score, 100 * precisions**0.25)
        self.assertStartsWith(
            signature,
            "nrefs:1|case:mixed|eff:no|norm:unicode-punctuation|"
            "tok:moses-de-atat|smooth:none|",
        )


class RefusalTest(parameterized.TestCase):
    @parameterized.parameters(
        (metrics.corpus_bleu, "aaaaa", "bbb", "5 hyp.* and 3 ref"),
        (metrics.corpus_bleu, "", "", "Received: 0 references"),
        (metrics.corpus_bleu, "aa", ["", " "], "Received: 2 ref"),
        (tokenized_bleu, "ab", "a", "2 hypotheses and 1", "de"),
    )
    def test_refusals(self, call, lines, references, words, *more):
        with self.assertRaisesRegex(errors.UserError, words):
            call(list(lines), list(references), *more)
