"""Lines stay in order, and do not depend on one another."""

import concurrent.futures
import logging
import pathlib
import re
import shutil
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf import errors
from relpos_tf.data import spelling
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import export_files
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.export import saved_model
from tests import tiny_run

LINES = (
    *("twenty-one days", "", "Where is the station?", " \t\u2028\u00a0"),
    "It is raining, and it will rain tomorrow as well. " * 3,
    *("a\u2028b\x0b", "twenty-one days", "7"),
)


EXHAUSTED = tf.errors.ResourceExhaustedError(None, None, "no memory")


class EchoEngine(engines.Engine):
    """Translates into capitals, and records the batches."""

    def __init__(self, memory=1000, error=EXHAUSTED):
        self.batches = []
        self.memory = memory
        self.error = error

    def complete(self, decode_hparams):
        return decode_hparams.fill(tiny_run.HPARAMS)

    def items(self, lines, prefixes=()):
        return [engines.Item(line, len(line) + 1) for line in lines]

    def truncate(self, item, size):
        return item._replace(content=item.content[: size - 1], size=size)

    def translate(self, items, decode_hparams):
        if sum(item.size for item in items) > self.memory:
            raise self.error
        self.batches.append([item.content for item in items])
        n_best = decode_hparams.n_best
        return [
            engines.translation(
                (
                    engines.Hypothesis(f"{item.content.upper()}{i or ''}", -i)
                    for i in range(0 if item.content == "void" else n_best)
                ),
                n_best,
                "cut" not in item.content,
            )
            for item in items
        ]


class AlignedEngine(EchoEngine):
    """Aligns the first words."""

    is_steerable = True

    def with_attention(self, items, translations):
        one = engines.Attention(["a"], ["A"], np.ones([1, 1, 1, 1]), [0], [0])
        return [
            translation._replace(attention=[one] * len(translation.texts))
            for translation in translations
        ]


class OrderTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.engine = EchoEngine()
        self.translator = translator_lib.Translator(engine=self.engine)

    @parameterized.product(batch_size=(1, 2, 7), chunk_lines=(1, 3, 100))
    def test_each_line_has_its_translation_in_its_place(
        self, batch_size, chunk_lines
    ):
        lines = ["bb", "", "a", "  ", "dddd", "ccc", "bb", "\u3000"]
        settings = decode_hparam.DecodeHParams(batch_size=batch_size)
        found = [
            one.texts[0]
            for one in self.translator.translations(
                lines, settings, chunk_lines=chunk_lines
            )
        ]
        self.assertEqual(found, ["BB", "", "A", "", "DDDD", "CCC", "BB", ""])

    def test_progress_counts_every_line(self):
        told = []
        found = self.translator.translations(
            ["a", "", "b", "c"], chunk_lines=2, progress=told.append
        )
        self.assertLen(list(found), 4)
        self.assertEqual(told, [2, 4])

    def test_batches_are_bounded_and_long_lines_alone(self):
        sizes = [3, 50, 4, 4, 2, 9, 101]
        found = list(engines.make_batches(sizes, 3, batch_ids=20))
        self.assertEqual(found, [[6], [1], [5, 2], [3, 0, 4]])

    def test_long_translations_of_short_lines_bound_a_batch(self):
        lines = ["ab"] * 40
        found = self.translator.translate(lines, beam_size=4, extra_length=8000)
        self.assertEqual(found, ["AB"] * 40)
        # A line's 4 beams have 32,000 ids, and a batch at most 8 * 16384.
        self.assertLessEqual(max(map(len, self.engine.batches)), 4)

    def test_lines_whose_memory_is_a_square_make_small_batches(self):
        self.engine.memory = 10**6
        for linear_ids, size in ((2**31, 16), (128, 2)):
            self.engine.batches.clear()
            self.engine.linear_ids = linear_ids
            self.translator.translate(["a" * 1023] * 16, beam_size=1)
            self.assertLen(self.engine.batches[0], size)

    def test_lines_longer_than_in_training_are_named_before_they_are_tried(
        self,
    ):
        self.engine.memory, self.engine.longest_source = 10**5, 20
        lines = ["a", "", "b" * 20, "c" * 19, "d" * 70]
        with self.assertLogs("relpos_tf", logging.WARNING) as logs:
            translations = self.translator.translations(lines)
            found = [next(translations)]
            self.assertEqual(found[0].texts, ["A"])
            (warning,) = logs.output
            self.assertIn("at most 20 ids: 2 lines (3, 5)", warning)
            self.assertIn("--split_sentences", warning)
            found += translations
        self.assertLen(logs.output, 1)
        self.assertEqual(
            [one.is_long for one in found], [False, False, True, False, True]
        )
        self.engine.longest_source = 0  # it is unknown
        with self.assertNoLogs("relpos_tf", logging.WARNING):
            self.translator.translate(lines)

    @parameterized.parameters(EXHAUSTED, MemoryError(), RuntimeError())
    def test_batch_that_does_not_fit_is_halved(self, error):
        self.engine.memory, self.engine.error = 9, error
        lines = ["aa", "bbb", "c", "dd", "e"]
        if type(error) is RuntimeError:
            with self.assertRaises(RuntimeError):
                self.translator.translate(lines)
            self.assertEmpty(self.engine.batches)
        else:
            found = self.translator.translate(lines)
            self.assertEqual(found, ["AA", "BBB", "C", "DD", "E"])
            self.assertGreater(len(self.engine.batches), 1)

    def test_line_that_does_not_fit_is_named(self):
        self.engine.memory = 9
        with self.assertRaisesRegex(errors.UserError, "Line 3 of 21 ids"):
            self.translator.translate(["a", "", "x" * 20, "b"])

    @parameterized.parameters(
        (
            ["abc", "abcd", "", "abcdefg"],
            {"max_input_size": 4},
            ["ABC", "ABC", "", "ABC"],
            [["2 lines (2, 4)"]],
        ),
        (["a", "cut b", "c"], {}, ["A", "CUT B", "C"], [["1 line (2)"]]),
        (
            ["a", "void", "cut b", "void"],
            {"min_length": 9, "no_repeat_ngram_size": 1},
            ["A", "", "CUT B", ""],
            [
                ["1 line (3)", "min_length=9"],
                ["2 lines (2, 4)", "min_length=9, no_repeat_ngram_size=1"],
            ],
        ),
    )
    def test_lines_without_a_whole_translation_are_named(
        self, lines, options, expected, warnings
    ):
        with self.assertLogs("relpos_tf", logging.WARNING) as logs:
            found = self.translator.translate(lines, **options)
        self.assertEqual(found, expected)
        for message, words in zip(logs.output, warnings, strict=True):
            for word in words:
                self.assertIn(word, message)

    @parameterized.parameters(
        ({"beam_size": 3}, 20, [128, 72]),
        # As many rows as 128 lines have with 4 beams.
        ({"sampling_method": "random"}, 20, [25] * 8),
        ({"sampling_method": "random"}, 3, [128, 72]),
        ({"sampling_method": "random"}, 600, [1] * 200),
    )
    def test_batches_are_bounded_by_the_number_drawn(
        self, options, number, sizes
    ):
        self.engine.memory = 10**6
        number = min(number, options.get("beam_size", number))
        self.translator.translate(["a"] * 200, n_best=number, **options)
        self.assertEqual([len(batch) for batch in self.engine.batches], sizes)

    def test_blank_means_the_same_in_the_graph(self):
        numbers = *range(0xD800), *range(0xE000, 0x10000)  # no half characters
        characters = list(map(chr, numbers))
        characters += [f"{c}a{c}\u200d" for c in characters]
        found = saved_model.stripped([c.encode() for c in characters]).numpy()
        for one, character in zip(found, characters, strict=True):
            self.assertEqual(one.decode(), character.strip(spelling.BLANKS))
        for blank in filter(str.isspace, characters):
            self.assertIn(blank, spelling.BLANKS)


class ModelTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.translator = relpos_tf.Translator.load(tiny_run.path())
        cls.expected = cls.translator.translate(LINES, return_scores=True)

    def test_batches_and_neighbours_do_not_matter(self):
        for batch_size in (1, 3):
            found = self.translator.translate(
                LINES[::-1], batch_size=batch_size, return_scores=True
            )
            texts, scores = zip(*found[::-1], strict=True)
            want_texts, want_scores = zip(*self.expected, strict=True)
            self.assertEqual(texts, want_texts)
            self.assertAllClose(scores, want_scores, atol=1e-4)

    def test_line_ends_spelled_in_bytes_become_blanks(self):
        engine = self.translator.engine
        feed, cr = map(engine.tokenizer.pieces().index, ("<0x0A>", "<0x0D>"))
        a, b, c = (engine.tokenizer.encode(letter)[-2] for letter in "abc")
        ids = [a, feed, b, cr, c, 1]
        self.assertEqual(engine.tokenizer.decode(ids), "a\nb\rc")
        self.assertEqual(engine.text(ids), "a b c")

    def test_translations_begin_with_the_prefix(self):
        prefixes = ["Der Zug", "", "Tage", "x", " Wo ist ", "", "7", "7"]
        found = self.translator.translate(
            LINES, prefix=prefixes, return_scores=True
        )
        for line, prefix, (text, _), free in zip(
            LINES, prefixes, found, self.expected, strict=True
        ):
            if engines.is_blank(line):
                self.assertEqual(text, "")
            elif prefix:
                self.assertStartsWith(text, prefix.strip())
            else:
                self.assertEqual(text, free[0])
        # Its probability is part of the score.
        text, score = found[0]
        best, best_score = self.expected[0]
        self.assertNotEqual(text, best)
        self.assertLess(score, best_score)

    def test_capitals_are_translated_as_sentences(self):
        lines = ["WHERE IS THE STATION?", "It Is Raining, And It Will Rain"]
        plain = ["Where is the station?", "It is raining, and it will rain"]
        found = self.translator.translate(lines, n_best=3)
        upper, title = self.translator.translate(plain)
        self.assertEqual([best for best, *_ in found], [upper.upper(), title])
        self.assertEqual([len(set(texts)) for texts in found], [3, 3])
        # A given beginning stays as it is, and so does its line.
        (text,) = self.translator.translate(lines[:1], prefix=["Wo ist "])
        self.assertStartsWith(text, "Wo ist")
        # Given texts are scored as they are written.
        engine = self.translator.engine
        pairs = [(line, line) for line in (lines[0], lines[0].lower())]
        sizes = [size for _, size in engine.log_probabilities(pairs)]
        self.assertGreater(sizes[0], sizes[1])

    def test_attention_is_of_the_pieces_and_sums_to_one(self):
        found = self.translator.translate(
            LINES, n_best=2, return_attention=True
        )
        tokens = self.translator.engine.tokenizer
        word_pairs = []
        for line, (texts, attention) in zip(LINES, found, strict=True):
            if engines.is_blank(line):
                self.assertEqual(attention, [None, None])
                continue
            pieces = tokens.pieces()
            for text, one in zip(texts, attention, strict=True):
                source = [pieces[i] for i in tokens.encode(line.strip())]
                self.assertEqual(one.source, source)
                ids = [pieces.index(piece) for piece in one.target]
                self.assertEqual(
                    re.sub("[\r\n]", " ", tokens.decode(ids)), text
                )
                shape = (1, 2, len(one.target), len(one.source))
                self.assertEqual(one.weights.shape, shape)
                self.assertAllClose(
                    one.weights.sum(-1), np.ones(shape[:-1]), atol=1e-6
                )
                word_pairs += one.word_pairs()
        self.assertGreater(len(word_pairs), 10)

    def test_drawn_translations_depend_on_seed_and_line_alone(self):
        options = {"sampling_method": "random", "sampling_top_p": 0.9}
        found = self.translator.translate(LINES, **options, n_best=5)
        same = self.translator.translate(
            LINES, **options, n_best=5, batch_size=2
        )
        self.assertEqual(found, same)
        other = self.translator.translate(
            LINES, **options, n_best=5, random_seed=2
        )
        self.assertNotEqual(found, other)
        # The same line twice is drawn for twice.
        self.assertEqual(LINES[0], LINES[6])
        self.assertNotEqual(found[0], found[6])

    def test_three_threads_get_what_one_gets(self):
        engine = self.translator.engine
        lines = [line for line in LINES if len(line) < 100]  # quick ones
        expected = self.translator.translate(lines, return_scores=True)
        # A translator of its own, whose graph the threads have to build. Each
        # of them optimizes it.
        translator = translator_lib.Translator(engine.model, engine.tokenizer)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            found = list(
                pool.map(
                    lambda _: translator.translate(lines, return_scores=True),
                    range(3),
                )
            )
        self.assertEqual(found, [expected] * 3)
        # Other shapes and penalties are traced no second time.
        translator.translate(["7"] * 2, alpha=0.1)
        settings = translator.engine.complete(decode_hparam.DecodeHParams())
        function = translator.engine.function(settings)
        self.assertEqual(function.experimental_get_tracing_count(), 1)

    def test_settings_of_the_call_come_before_those_of_the_run(self):
        base, same, short = (
            self.translator.translate(LINES[:1], return_scores=True, **options)
            for options in (
                {},
                {"beam_size": 3, "alpha": 0.6, "extra_length": 7},
                {"extra_length": 0, "alpha": 0.0},
            )
        )
        self.assertEqual(base, same)
        self.assertNotEqual(base, short)
        with self.assertRaisesRegex(ValueError, "`sampling_temp` has no eff"):
            self.translator.translate(LINES[:1], sampling_temp=0.5)

    @parameterized.parameters("", "average")
    def test_a_program_in_a_run_is_not_run(self, place):
        run = pathlib.Path(self.create_tempdir().full_path, "run")
        shutil.copytree(tiny_run.path(), run)
        folder = run / place
        folder.mkdir(exist_ok=True)
        for path in run.glob("ckpt-*") if place else ():
            shutil.copy(path, folder)
        (folder / export_files.EXPORT_INFO).write_text("{}")
        (folder / "saved_model.pb").write_bytes(b"")
        with mock.patch.object(tf.saved_model, "load") as load:
            engine = relpos_tf.Translator.load(folder).engine
        self.assertIsInstance(engine, model_engine.ModelEngine)
        load.assert_not_called()
