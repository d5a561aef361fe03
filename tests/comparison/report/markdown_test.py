"""report.md and the terminal: the same tables as the page, as text."""

import re

from absl.testing import absltest

from relpos_tf.comparison.report import html
from relpos_tf.comparison.report import markdown
from relpos_tf.comparison.report import sections
from relpos_tf.comparison.report import tables
from tests import report_sample


class MarkdownTest(absltest.TestCase):
    def test_text_has_the_content_of_the_report(self):
        text = markdown.render(report_sample.report())
        lines = text.split("\n")
        self.assertEqual(lines[0], "# Relative against absolute")
        self.assertEqual(
            lines[2], "**relative is better than absolute by 2.00 BLEU.**"
        )
        for line in (
            "Problem translate\\_ende\\_multi30k, test split, 1,100 lines; 200 "
            "updates in each run; seeds 1, 2.",
            "- Seed 2 saw fewer tokens.",
            "| relative | 2 | 1,234,567 | 21.00 ± 1.41 | 51.50 ± 0.00 "
            "| 2.1250 ± 0.0000 | 3.25 |",
            f"    BLEU: {report_sample.SIGNATURE}",
            "| absolute | 2.50 (1.06) | 8,000 (1.06) | 1,047 |",
            "| relative | absolute | 21.00 | 19.00 | -10.50 to +14.50 "
            "| +2.00 (+0.75 to +3.25) | 0.0001 | 0.30 | 0.31 | 0.62 "
            "| +1.00, +3.00 |",
            "| relative | absolute | 51.75 | 51.25 | -10.50 to +14.50 "
            "| +2.00 (+0.75 to +3.25) | 0.0001 | 0.012 | 0.31 | 0.62 "
            "| +1.00, +3.00 |",
            "| over 10 | 1,070 | 20.00 (0.0) | 18.00 (0.0) |",
            "| never | 40 | 22.0 (21.0) | 20.0 (19.0) |",
            "| 1 to 9 | 0 | – | – |",
            "| over 9 | 9,000 | 80.5 (70.5) | 80.5 (70.5) |",
            "| 100 | 1.25 ± 0.35 | 0.50 ± 0.00 |",
            "| 200 | 12.50 ± 3.54 | 5.00 ± 0.00 |",
            "### relative above absolute",
            "- relative (95.5): Zwei Katzen",
            "- absolute (20.5): Zwei Hunde",
            "| pos | none | timing |",
            "| learning\\_rate\\_constant=0.5 | 20.25 | 2.2500 | – |",
            "| learning\\_rate\\_constant=1 | 21.50 | 2.2500 | chosen |",
            "absolute, seed 1. BLEU of the points has a range of 1.25; the "
            "best is 1.25 above the second.",
            "- relative =: Ein Hund .",
            "- absolute: Hund",
            "    python -m relpos_tf.bin.compare --seeds=1,2",
        ):
            self.assertIn(line, lines)

    def test_page_and_text_have_the_same_tables(self):
        report = report_sample.report()
        text, page = markdown.render(report), html.render(report)
        document = sections.build(report, has_figures=False)
        cells = [
            cell
            for blocks in document.sections.values()
            for block in blocks
            if isinstance(block, tables.Table)
            for row in (block.head, *block.rows)
            for cell in row
        ]
        self.assertGreater(len(cells), 100)
        columns = re.findall(r"<t[hd](?: [^>]*)?>([^<]*)<", page)
        self.assertEqual(columns, cells)
        rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
        written = [row.split(" | ") for row in rows if "---" not in row]
        self.assertEqual(
            sum(written, []), [cell.replace("_", "\\_") for cell in cells]
        )

    def test_text_is_escaped(self):
        report = report_sample.report(title="a | *b* <c>", warnings=["d\n# e"])
        report["samples"][0]["source"] = "one | <b>two</b>"
        text = markdown.render(report)
        self.assertStartsWith(text, "# a \\| \\*b\\* &lt;c>\n")
        self.assertIn("\n- d \\# e\n", text)
        self.assertIn("- source: one \\| &lt;b>two&lt;/b>\n", text)
        self.assertNotIn("<", text)

    def test_tuning_of_many_labels_is_one_table(self):
        text = markdown.render(report_sample.large_report())
        self.assertIn(
            "| label | 0.5 | 1 | range | lead |\n"
            "| --- | ---: | ---: | ---: | ---: |\n"
            "| relative | 20.25 | 21.50 \\* | 1.25 | 1.25 |\n",
            text,
        )
        self.assertIn("set by learning\\_rate\\_constant, seed 1. \\*: ", text)
        first, last = map(text.index, ("| label | 0.5", "relative, seed 1."))
        self.assertLess(first, last)

    def test_missing_number_is_a_dash(self):
        report = report_sample.report(samples=[], hparams_diff={}, tuning=[])
        report["summary"][0] |= {"steps_per_second": None, "steps_ratio": None}
        report["pairs"][0] |= {
            "p_value": None,
            "difference": None,
            "both_low": None,
            "p_corrected": None,
        }
        text = markdown.render(report)
        self.assertIn("| relative | – | 8,000 (1.00) | 1,047 |", text)
        self.assertIn("| – | – | – | 0.30 | 0.31 | – | +1.00, +3.00 |", text)
        self.assertIn("All labels have the same hyper-parameters.", text)
        self.assertNotIn("## Translations", text)
        self.assertNotIn("## Tuning", text)
        self.assertNotIn("absolute above relative", text)
        self.assertNotIn("None", text)

    def test_correction_and_level_are_explained(self):
        self.assertIn(
            "is corrected for the number of pairs (Holm, 1979), and a label is "
            "called better only if the corrected p is below 0.05: with equally",
            markdown.render(report_sample.report()),
        )

    def test_half_a_square_has_the_row_minus_the_column(self):
        report = report_sample.large_report()
        for falling in (False, True):
            if falling:  # Now the first label is the best.
                for line in report["summary"]:
                    line["bleu_mean"] = 60.0 - line["bleu_mean"]
                for pair in report["all_pairs"]:
                    for side in ("score_a", "score_b"):
                        pair[side] = 60.0 - pair[side]
            means = {x["label"]: x["bleu_mean"] for x in report["summary"]}
            table = tables.matrix(report)
            self.assertEqual(
                [*table.head[1:], table.rows[-1][0]],
                sorted(means, key=means.get, reverse=True),
            )
            for number, row in enumerate(table.rows, start=1):
                for other, cell in zip(table.head[1:], row[1:], strict=True):
                    if number:
                        number -= 1
                        difference = means[row[0]] - means[other]
                        self.assertStartsWith(cell, f"{difference:+.2f}")
                    else:
                        self.assertEqual(cell, " ")
        self.assertEqual(table.rows[1][1], "-2.00 (0.013)*")
        self.assertEqual(table.rows[2][1], "-3.00")

    def test_terminal_gets_a_short_table(self):
        lines = tables.short_text(report_sample.report()).split("\n")
        self.assertRegex(
            lines[0], r"^ +BLEU +chrF +loss +exact match, % +steps"
        )
        self.assertRegex(lines[1], r"^rel.* 2\.1250 ± 0\.0000 +3\.25 +2\.50$")
        self.assertEqual({len(line) for line in lines[:3]}, {len(lines[0])})
        self.assertEqual(lines[4], report_sample.report()["verdict"])


if __name__ == "__main__":
    absltest.main()
