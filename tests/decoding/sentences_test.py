"""Text is split into sentences, and nothing of it is lost."""

import contextlib
import html
import logging
import re
import sys
import time
from html import parser
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import given
from hypothesis import strategies

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import sentences
from relpos_tf.decoding import translator as translator_lib
from tests.decoding import translator_test

PARTS = strategies.sampled_from(
    [
        *"aB1.!?。 \n\r\t\v\x1c\x85\xa0\u2028\u3000\ud800«»\"'(é\u0301😀",
        "Mr. ",
        "J.",
    ]
)
HTML_PARTS = strategies.sampled_from(
    ["A b", "c.", " ", "7", "&amp;", "&lt;b", " < ", "é&eacute;", "d! E"]
    + ["<p>", "</p>", "<br/>", '<b title="x > y" c=\'"\'>', "<!-- it's -->"]
    + ['<i translate="no">j<i>k</i></i>', "<i>", "</i>"]
    + ["<script>a<b;</script>"]
)
LANGUAGES = strategies.sampled_from(["", "de", "en", "ja", "ru", "xx", "zh"])
# Eight phrases on one line.
PHRASES = (
    "It is five o'clock. Where is the station? Mr. Fox is late. Go! "
    'We came on 3 May. It costs 3.50 euros. "Yes." The end.'
)


class Events(parser.HTMLParser):
    """The tags of HTML, and the text between them, as the library reads it."""

    def __init__(self, text):
        super().__init__()
        self.found = [""]
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, attrs), ""]

    def handle_endtag(self, tag):
        self.found += [tag, ""]

    def handle_data(self, data):
        self.found[-1] = re.sub(" +", " ", self.found[-1] + data)

    def handle_comment(self, data):
        self.found += [{data}, ""]


def translator_of(source="en", target="de", engine=None):
    engine = engine or translator_test.EchoEngine()
    return sentences.SentenceTranslator(
        translator_lib.Translator(engine=engine), source, target
    )


class SplitTest(parameterized.TestCase):
    @parameterized.parameters(
        ("en", PHRASES, 8),
        ("de", "Am 3. Mai kam Dr. Fuchs z.B. heim. Gut.", 2),
        ("DE_at", "Am 3. Mai kam Dr. Fuchs z.B. heim. Gut.", 2),
        ("zh", "我很好。你呢?好的!", 3),
        ("ja", "元気です。はい。", 2),
        ("", "No code. Two sentences.", 2),
        ("en", "one phrase\nanother one\r\n\r\nand. A last", 4),
        ("en", " \n ", 0),
        ("en", "", 0),
    )
    def test_sentences_of(self, language, text, number):
        found = sentences.split(text, language)
        self.assertLen(found.texts, number)
        self.assertEqual(found.join(found.texts, language), text)

    @given(strategies.lists(PARTS, max_size=40).map("".join), LANGUAGES)
    def test_parts_and_blanks_are_the_text(self, text, language):
        found = sentences.split(text, language)
        self.assertLen(found.gaps, len(found.texts) + 1)
        whole = found.gaps[0]
        for sentence, gap in zip(found.texts, found.gaps[1:], strict=True):
            self.assertEqual(sentence, sentence.strip())
            self.assertTrue(any(map(str.isalpha, sentence)))
            self.assertLen(sentence.splitlines(), 1)
            whole += sentence + gap
        self.assertEqual(whole, text)
        self.assertFalse(any(map(str.isalpha, "".join(found.gaps))))

    @parameterized.parameters(
        ("1. A dog runs.", ["1. A dog runs."]),
        (
            "A dog. (2026) It is 5. 10:30 ...",
            ["A dog.", "(2026) It is 5. 10:30 ..."],
        ),
        ("Yes. 😀\n***\n- No. 7", ["Yes. 😀", "- No. 7"]),
        (
            "1\n00:00:01,000 --> 00:00:02,000\nA dog. It barks.\n\n2\n",
            ["A dog.", "It barks."],
        ),
        ("1。一只狗。2。", ["1。一只狗。2。"]),
        ("-\n2026\n10:30\n(...)\n😀\n\u200d\n***\n1. 2. 3.\n½ € _ ²", []),
    )
    def test_what_has_no_letter_is_no_sentence(self, text, expected):
        self.assertEqual(sentences.split(text, "en").texts, expected)

    @given(strategies.lists(HTML_PARTS, max_size=15).map("".join))
    def test_tags_stay_around_the_text_between_them(self, text):
        found = sentences.split_html(text, "en")
        whole = found.gaps[0]
        for sentence, gap in zip(found.texts, found.gaps[1:], strict=True):
            whole += html.escape(sentence, quote=False) + gap
        self.assertEqual(Events(whole).found, Events(text).found)

    @parameterized.parameters(
        (
            "<p>A &amp; B. It &lt;3 <b>runs</b> 7 &gt; 5.</p>",
            ["A & B.", "It <3", "runs"],
        ),
        ('Hi <span translate="no"><a>@<span>bob</span></a> x</span>!', ["Hi"]),
        (
            "<code>if a</code> <img translate=no> it <script>x<y</script>",
            ["it"],
        ),
        ("a <b and c > d & e", ["a", "d & e"]),
        ("A<!-- no -->B", ["A", "B"]),
        # As browsers read it.
        (
            'it <input translate="no"> is <wbr translate=no>so',
            ["it", "is", "so"],
        ),
        ('<p title="how to translate=no x">A dog.</p>', ["A dog."]),
        ("<ul><li translate=no>a</li><li>b</li></ul>", ["b"]),
        ('a <span translate="no"/> b <code/> c', ["a", "b", "c"]),
        ("<code class=x/>a</code>b", ["b"]),
        ("if a <b, it's fine.<p>A dog runs.</p>", ["if a", "A dog runs."]),
        ("<b\ntranslate = 'NO'>a<B>b</B>c</b>d", ["d"]),
        ('<b translate="no">a<i translate="yes">b</i>c</b>d', ["b", "d"]),
        ("<b translate=no><b translate=''>a</b>b</b>c", ["a", "c"]),
        ("<b translate=no translate>a</b>b", ["b"]),
        ("<a href=it's>a</a> b", ["a", "b"]),
        ('<script src="x"/>a</SCRIPT >b', ["b"]),
        ("<!--->a<!-->b<!-- c -- d --!>e", ["a", "b", "e"]),
        ("<hr-x translate=no>a</hr-x>b<image translate=no>c", ["b", "c"]),
        ("<xmp><b></xmp>a</3 b", ["a</3 b"]),
        ("a &#0" + "9" * 5000 + ";", ["a \ufffd"]),
        ("A\n  dog<PRE>a\nb</pre>c\r\nd", ["A dog", "a", "b", "c d"]),
    )
    def test_text_of_html(self, text, expected):
        self.assertEqual(sentences.split_html(text, "en").texts, expected)

    @parameterized.parameters(
        *("a <b and c", '<a href="x>A dog', "<!-- a > b", "<code>a"),
        "<script src='x'/> a",
        "<li translate=no>a<li>b</li>",
        "<b " + "x " * 9999 + ">a</b>",
    )
    def test_html_that_may_hide_text_is_refused(self, text):
        with self.assertRaisesRegex(errors.UserError, "end of .<.*&lt;"):
            sentences.split_html(text, "en")

    @parameterized.parameters("<b>a", "<b>", "<b>7", "<td>.</td>", "A! ")
    def test_what_is_too_much_is_refused_early(self, part):
        text, begun = part * (900_000 // len(part)), time.process_time()
        with self.assertRaisesRegex(errors.UserError, "at most 512 sentences"):
            sentences.split_html(text, "en", 512)
        # A third at most; without a limit, seconds.
        self.assertLess(time.process_time() - begun, 1)

    def test_lines_without_a_letter_cost_next_to_nothing(self):
        text, begun = "½\n" * 450_000, time.process_time()
        self.assertEqual(sentences.split(text, "en"), ([], [text]))
        self.assertLess(time.process_time() - begun, 0.7)  # 0.14; else 1.4

    def test_windows_end_between_sentences(self):
        text = "Where is the station? " * 1000  # 22,000 characters on a line
        found = sentences.split(text, "en")
        self.assertEqual(set(found.texts), {"Where is the station?"})
        self.assertLen(found.texts, 1000)
        (found,) = sentences.split("1. " * 9000 + "Yes.", "en").texts
        self.assertLess(len(found), 2 * sentences.WINDOW)

    @parameterized.parameters(
        *("好。", "« a. ", "a", "\n", "word ", "1. ", "½\n", "&amp;", "<a "),
        *("<!--", "<a x='", "<script>", "<b", "</", "<!"),
    )
    def test_time_does_not_grow_with_the_square(self, part):
        before = time.process_time()
        text = part * (300_000 // len(part))
        found = sentences.split(text, "zh")
        with contextlib.suppress(errors.UserError):
            sentences.split_html(text, "zh")
        # Ten times what it takes; in one window, "好。" would take 40 s.
        self.assertLess(time.process_time() - before, 20)
        pairs = zip(found.texts, found.gaps[1:], strict=True)
        self.assertEqual(found.gaps[0] + "".join(map("".join, pairs)), text)

    def test_blanks_are_those_of_the_target(self):
        text = "One.  Two.\n  Three. Four"
        found = sentences.split(text, "en")
        for language, expected in (
            ("de", "A  B\n  C D"),
            ("", "A  B\n  C D"),
            ("zh", "AB\n  CD"),
            ("zh-Hans", "AB\n  CD"),
            ("ja", "AB\n  CD"),
        ):
            self.assertEqual(found.join("ABCD", language), expected)
        found = sentences.split("我很好。你呢?\n好的!", "zh")
        self.assertEqual(found.join("ABC", "en"), "A B\nC")
        self.assertEqual(found.join("ABC", "ja"), "AB\nC")

    def test_a_missing_package_is_named_with_its_extra(self):
        with mock.patch.dict(sys.modules, {"sentencex": None}):
            with self.assertRaisesRegex(errors.UserError, r"\[sentences\]"):
                sentences.split("A. B.", "en")


class SentenceTranslatorTest(absltest.TestCase):
    def test_each_sentence_is_translated_alone_and_lines_stay_lines(self):
        engine = translator_test.EchoEngine()
        lines = [PHRASES, "7.", " \t", "  one phrase ", "A.\rB!\u2028C?\x85D"]
        found = translator_of(engine=engine).translations(lines)
        self.assertEqual(
            [one.texts for one in found],
            [[PHRASES.upper()], ["7."], [""], ["ONE PHRASE"], ["A. B! C? D"]],
        )
        (batch,) = engine.batches
        self.assertIn("Where is the station?", batch)
        self.assertLen(batch, 8 + 1 + 3)  # "A." is an initial

    def test_lines_are_answered_while_others_are_read(self):
        read = []
        lines = (read.append(i) or f"a{i}. B." for i in range(5))
        found = translator_of().translations(lines, chunk_lines=1)
        self.assertEqual(next(found).texts, ["A0. B."])
        self.assertEqual(read, [0])
        self.assertLen(list(found), 4)

    def test_a_line_is_complete_if_all_its_sentences_are(self):
        found = translator_of().translations(["A dog. Be cut. Yes.", "A. B."])
        self.assertEqual([one.is_complete for one in found], [False, True])

    def test_sentences_are_not_named_as_long(self):
        engine = translator_test.EchoEngine()
        engine.longest_source = 30
        line = "Where is the station? " * 8
        with self.assertNoLogs("relpos_tf", logging.WARNING):
            (found,) = translator_of(engine=engine).translations([line])
        self.assertEqual(found.texts, [line.strip().upper()])
        with self.assertLogs("relpos_tf", logging.WARNING):
            translator_lib.Translator(engine=engine).translate([line])

    def test_what_a_line_of_sentences_does_not_have(self):
        for wanted in ({"n_best": 2}, {"return_alignments": True}):
            wanted = decode_hparam.DecodeHParams(**wanted)
            with self.assertRaisesRegex(errors.UserError, "one sentence a"):
                translator_of().translations(["A."], wanted)
