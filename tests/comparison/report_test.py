"""The page: self-contained, escaped and complete."""

import csv
import html.parser
import json
import re
from unittest import mock

from absl.testing import parameterized

from relpos_tf.comparison import figures
from relpos_tf.comparison import report as report_lib
from tests.comparison import content_test

HOSTILE = "</td></dd><script>alert(1)</script><img src=//x.org onerror=a> &amp;"
# Elements that have no end.
OTHERS = "chrF", "chrF++", "TER"
SUFFIXES = "csv", "tex"
VOID = frozenset({"meta", "link", "img", "br", "hr"})


class Page(html.parser.HTMLParser):
    """Parses a page, and collects elements that are not closed."""

    def __init__(self, content):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong = [], []
        self.elements, self.texts = [], []
        self.feed(content)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.texts.append(" ".join(data.split()))

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        return " ".join(filter(None, self.texts))


def hostile(value):
    """Returns a report in which every word is hostile, and every label."""
    if isinstance(value, dict):
        return {
            hostile(key) if key in ("rel", "abs") else key: part
            if key == "field"
            else hostile(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [hostile(part) for part in value]
    return f"{HOSTILE}{value}" if isinstance(value, str) else value


class ReportHtmlTest(content_test.ContentTestCase):
    def page(self, report, has_figures=False):
        """Renders a report; without figures it is quick."""
        available = mock.patch.object(
            figures, "is_available", return_value=has_figures
        )
        with available:
            self.content = report_lib.page(report)
        page = Page(self.content)
        self.assertEmpty(page.wrong)
        return page

    def assert_self_contained(self, page):
        """Checks that a page asks for nothing and runs nothing."""
        self.assertEmpty(page.all("script"))
        for tag, attributes in page.elements:
            for name, value in attributes.items():
                self.assertNotStartsWith(name, "on")
                if name in ("src", "href", "srcset", "action", "data"):
                    self.assertStartsWith(value, "data:", tag)
        (policy,) = (
            m["content"]
            for m in page.all("meta")
            if len(m) == 2 and m.get("http-equiv")
        )
        self.assertStartsWith(policy, "default-src 'none';")
        (style,) = re.findall("<style>(.*?)</style>", self.content, re.DOTALL)
        self.assertNotRegex(style, r"url\(|@import|//")

    def test_page_has_the_content_of_the_report(self):
        report = self.sample()
        page = self.page(report)
        self.assert_self_contained(page)
        self.assertIn(figures.HOW_TO_INSTALL, page.text)
        for words in (
            "p_x: rel, abs",
            report["verdict"],
            "test split, 4 lines; 5 updates in each run; seeds 1, 2.",
            "label BLEU chrF chrF++ TER length ratio brevity penalty loss",
            "rel 94.60 ± 7.64 99.75 ± 0.35 99.40 ± 0.84 3.12 ± 4.42 1.060 "
            "1.000 2.000 ± 1.414 87.50 3.00",
            "abs 2 90 1.50 (0.50) 150 (0.50) 20",
            "only if p is below 0.05: with equally good labels",
            "abs BLEU 94.60 29.06 +65.54 -51.50 to +182.58 0.11 +5.09 to "
            "+125.99 +57.65, +73.43",
            "In other measures",
            "abs chrF 99.75 51.08 +48.67 -202.32 to +299.66 0.28 +0.29 to",
            "label up to 3 (2 lines) over 3 (2 lines) rel 75.00 (75.0) "
            "100.00 (100.0)",
            "rel 2 2: 1.50; 5: 15.00",
            "alpha=1 21.50 2.2500 chosen",
            "pos none timing",
            "rel = a | *line* of <b>signs</b> abs <i>abs",
            "Seed 2 saw fewer tokens.",
            "BLEU: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:",
            "chrF: nrefs:1|case:mixed|",
            "relpos-compare --seeds=1,2",
            f"tensorflow {report['versions']['tensorflow']}",
            report["runs"][3]["output_dir"],
        ):
            self.assertIn(words, page.text)

    @parameterized.parameters(False, figures.is_available())
    def test_hostile_words_stay_words(self, has_figures):
        report = self.sample()
        page = self.page(hostile(report), has_figures)
        self.assert_self_contained(page)
        plain = self.page(report)
        if has_figures:
            images = page.all("img")
            self.assertLen(images, 5)  # scores, lengths, 3 curves
            for image in images:  # Words for those who cannot see them.
                self.assertGreater(len(image["alt"]), 20)
                self.assertStartsWith(image["src"], "data:image/svg+xml;base64")
            self.assertLen(page.all("figcaption"), 5)
        else:
            self.assertEqual(
                [tag for tag, _ in page.elements],
                [tag for tag, _ in plain.elements],
            )
        words = " ".join(HOSTILE.split())
        # Title twice, verdict, a warning, a sample's source, two labels ...
        self.assertGreater(page.text.count(words), 30)
        self.assertNotIn(words.lower(), plain.text.lower())

    @parameterized.parameters(False, figures.is_available())
    def test_missing_number_is_a_dash(self, has_figures):
        report = self.sample() | {"samples": [], "tuning": []}
        report["hparams_diff"] = {}
        for part in ("summary", "pairs"):
            for row in report[part]:
                bleu = {"score_a", "score_b", "bleu_mean", "by_seed", "digits"}
                for name, value in row.items():
                    if not isinstance(value, (str, list)) and name not in bleu:
                        row[name] = None
        for run in report["runs"]:
            numbers = {"loss": None, "minutes": None, "seed": None}
            run |= numbers | {"learning_curve": {"train": [], "dev": []}}
        page = self.page(report, has_figures)
        self.assertLen(page.all("img"), 2 * has_figures)
        self.assertIn("rel 94.60 – – – – – –", page.text)
        self.assertIn("rel 2 – – – –", page.text)
        self.assertIn("94.60 29.06 +65.54 – – – +57.65", page.text)
        self.assertIn("All labels have the same hyper-parameters.", page.text)
        for missing in ("Translations", "Tuning"):
            self.assertNotIn(missing, page.text)
        self.assertNotRegex(page.text, r"\b(None|nan|null)\b")

    def test_files_hold_what_pages_and_encodings_cannot(self):
        self.enter_context(
            mock.patch.object(figures, "is_available", return_value=False)
        )
        report = self.sample() | {"title": "\ud800 漢字 \x00"}
        report_lib.write(report, self.folder / "out")
        page, content, paper = report_lib.paths(self.folder / "out")
        page, content = (x.read_text(encoding="utf-8") for x in (page, content))
        self.assertIn("<title>? 漢字 \\x00</title>", page)
        self.assertEqual(json.loads(content)["title"], "? 漢字 \x00")
        lines = (paper / "scores.csv").read_text().rstrip().split("\n")
        table = list(csv.reader(lines))
        self.assertEqual(table[0][:3], ["label", "BLEU", "chrF"])
        self.assertEqual([row[0] for row in table[1:]], ["rel", "abs"])
        self.assertEqual(table[1][1], "94.60 ± 7.64")
        latex = (paper / "scores.tex").read_text(encoding="utf-8")
        self.assertRegex(latex, r"(?s)\\toprule.*\n rel +& +94.60 ± 7.64 +&")
        self.assertIn(r"exact match, \%", latex)
        lines = (paper / "differences.csv").read_text().rstrip().split("\n")
        table = list(csv.reader(lines))
        self.assertEqual(
            table[1][:7],
            "rel abs BLEU 94.60 29.06 +65.54".split() + ["-51.50 to +182.58"],
        )
        self.assertEqual({row[2] for row in table[1:]}, {"BLEU", *OTHERS})
        setup = (paper / "setup.txt").read_text(encoding="utf-8")
        self.assertIn("5 updates of 4,096 padded tokens", setup)
        self.assertIn("seed 1 or 2", setup)

    def test_further_test_sets_and_labels_of_latex_signs_are_for_papers(self):
        self.enter_context(
            mock.patch.object(figures, "is_available", return_value=False)
        )
        report = self.sample()
        for row, label in zip(report["summary"], ("[a]", "*\x1b"), strict=True):
            row["label"] = label
        row = report["summary"][0] | {"bleu_mean": 12.345, "label": "rel"}
        further = {
            "name": "test_2017",
            "lines": 2,
            "summary": [row],
            "pairs": [],
        }
        report_lib.write(report | {"further_test_sets": [further]}, self.folder)
        paper = report_lib.paths(self.folder)[-1]
        latex = (paper / "scores.tex").read_text(encoding="utf-8")
        self.assertRegex(latex, r"\n{}\[a\] .*\n{}\*\\textbackslash{}x1b")
        lines = (paper / "scores-test_2017.csv").read_text().split("\n")
        self.assertStartsWith(lines[1], "rel,12.35 ± ")
        files = [path.name for path in paper.glob("*-test_2017.*")]
        # LaTeX has no table without pairs.
        self.assertCountEqual(
            files, [f"scores-test_2017.{x}" for x in SUFFIXES]
        )
        # An earlier report may have had more; files of the user's stay.
        self.write("paper/scores-of-mine.tex", "mine")
        report_lib.write(report | {"further_test_sets": []}, self.folder)
        self.assertCountEqual(
            [path.name for path in paper.iterdir()],
            ["scores-of-mine.tex", "setup.txt"]
            + [f"{n}.{s}" for n in ("scores", "differences") for s in SUFFIXES],
        )

    def test_the_figures_are_files_as_well(self):
        if not figures.is_available():
            self.skipTest("needs matplotlib")
        report_lib.write(self.sample(), self.folder)
        found = [x.name for x in sorted((self.folder / "paper").glob("*.svg"))]
        self.assertEqual(
            found,
            [f"curves-{n}.svg" for n in (1, 2, 3)]
            + ["lengths-1.svg", "scores-1.svg"],
        )
