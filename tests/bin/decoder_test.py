"""The decoder's files, streams, messages and exit codes."""

import errno
import gzip
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import decoder
from relpos_tf.decoding import loading
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.utils import terminal
from tests import ctranslate2_runs
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.decoding import translator_test
from tests.models import example
from tests.problems import problem_test
from tests.problems import sacrebleu_sets_test

ROOT = pathlib.Path(__file__).resolve().parents[2]


class StoppedEngine(translator_test.EchoEngine):
    """Translates a few batches, and is stopped at the next."""

    def __init__(self, number, stop):
        super().__init__()
        self._number, self._stop = number, stop

    def translate(self, items, decode_hparams):
        if len(self.batches) == self._number:
            self._stop()
        return super().translate(items, decode_hparams)


def interrupt():
    signal.raise_signal(signal.SIGINT)


def terminate():
    signal.raise_signal(signal.SIGTERM)


def fail():
    raise errors.UserError("Line 3 does not fit into memory.")


class DecoderTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.engine = translator_test.EchoEngine()
        self.engine.name = "there"

    def decode(self, *arguments, stdin=b"", isatty=False):
        """Runs the command on an echo: (exit code, output, messages)."""
        with mock.patch.object(
            translator_lib.Translator,
            "load",
            lambda path: translator_lib.Translator(engine=self.engine),
        ):
            if not any(word.startswith("--output_dir") for word in arguments):
                arguments = f"--output_dir={tiny_run.path()}", *arguments
            return calls.execute(
                decoder.main, *arguments, stdin=stdin, isatty=isatty
            )

    def write_bytes(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def test_one_line_comes_out_for_each_line(self):
        text = "a\n\n \t\nb\u2028c\x0b\x0cd\x85\r\ne\r\x00\n".encode()
        text += b"\xff two \xe2\x80\nlast"
        more = b"x\n" * 100  # One of 20 lines may be broken.
        text = b"\xef\xbb\xbf" + more + text
        code, out, err = self.decode(stdin=text)
        self.assertEqual(code, 0)
        expected = "X\n" * 100
        expected += "A\n\n\nB\u2028C\x0b\x0cD\x85\nE\r\x00\n"
        expected += "\ufffd TWO \ufffd\nLAST\n"
        self.assertEqual(out, expected.encode())
        target = self.folder / "target"
        code, nothing, said = self.decode(
            f"--decode_from_file={self.write_bytes('source', text)}",
            f"--decode_to_file={target}",
        )
        self.assertIn(f" a second. {target} is written.\n", said)
        self.assertEqual((code, nothing, target.read_bytes()), (0, b"", out))
        self.assertCountEqual(os.listdir(self.folder), ["source", "target"])
        self.assertIn("Using there.", err)

    def test_lines_are_split_into_sentences_and_put_together(self):
        text = "It is Mr. Fox.  He runs.\n\nBye.\n"
        with mock.patch.object(terminal, "show") as show:
            code, out, _ = self.decode("--split_sentences", stdin=text.encode())
        self.assertEqual((code, out), (0, text.upper().encode()))
        # A blank line counts as one.
        shown = show.call_args[0][0]()
        self.assertRegex(shown, r"\Asentence 4  [\d,.]+ sentences/s\Z")
        sentences = sum(map(len, self.engine.batches))
        self.assertEqual(sentences, 3)

    @parameterized.parameters((interrupt, 130), (terminate, 143), (fail, 1))
    def test_stopped_keeps_the_lines_that_are_finished(self, stop, expected):
        outside = self.write_bytes("own", b"mine")
        target = self.write_bytes("target", b"old")
        kept = self.folder / "target.first-2-lines-more"
        (self.folder / "target.first-2-lines").symlink_to(outside)
        self.engine = StoppedEngine(2, stop)
        # Typed lines are translated one by one.
        lines = b"one\ntwo\nthree\nfour\n"
        code, _, err = self.decode(
            f"--decode_to_file={target}", stdin=lines, isatty=True
        )
        self.assertEqual(code, expected)
        self.assertEqual(pathlib.Path(target).read_bytes(), b"old")
        self.assertEqual(kept.read_bytes(), b"ONE\nTWO\n")
        self.assertEqual(pathlib.Path(outside).read_bytes(), b"mine")
        self.assertLen(os.listdir(self.folder), 4)
        (line,) = (x for x in err.split("\n") if "first-2-lines" in x)
        self.assertIn(f"The 2 finished lines are in {kept}. To resume,", line)
        self.assertIn("from line 3 on", line)

    @parameterized.parameters(
        (None, errno.EFBIG, "file too large. Make room in {}.", 1),
        ("fsync", errno.EIO, "input/output error.", 3),
        ("fsync", errno.EDQUOT, "disk quota exceeded. Make room in {}.", 3),
        ("replace", errno.ENOSPC, "no space left on device. Make room", 3),
    )
    def test_what_was_written_stays_though_the_end_fails(
        self, step, number, reason, kept
    ):
        target = self.folder / "target"
        fault = example.files_up_to(6)
        if step:  # The first call fails, the next is of the lines to keep.
            failure = OSError(number, os.strerror(number))
            effects = itertools.chain([failure], itertools.repeat(mock.DEFAULT))
            fault = mock.patch.object(
                os, step, wraps=getattr(os, step), side_effect=effects
            )
        with fault:
            code, _, err = self.decode(
                f"--decode_to_file={target}", stdin=b"one\ntwo\nthree\n"
            )
        self.assertEqual(code, 1)
        *_, said, last, _ = err.split("\n")
        self.assertIn(f"The {kept} finished lines are in {target}.first", said)
        self.assertStartsWith(
            last, f"relpos-decoder: {target}: {reason.format(self.folder)}"
        )
        (path,) = self.folder.iterdir()
        self.assertEqual(path.name, f"target.first-{kept}-lines")
        lines = b"ONE\nTWO\nTHREE\n".splitlines(True)[:kept]
        self.assertEqual(path.read_bytes(), b"".join(lines))

    def test_a_stop_within_a_group_keeps_those_before(self):
        self.engine = StoppedEngine(9, interrupt)  # the first group has 8
        source = self.write_bytes("source", b"one\n" * 2000)
        code, _, err = self.decode(
            f"--decode_from_file={source}",
            f"--decode_to_file={self.folder / 'out'}",
        )
        self.assertEqual(code, 130)
        kept = (self.folder / "out.first-1024-lines").read_bytes()
        self.assertEqual(kept, b"ONE\n" * 1024)

    def test_progress_has_the_total_and_the_time_left(self):
        source = self.write_bytes("source", gzip.compress(b"one\n" * 1000))
        shown = []
        with (
            mock.patch.object(
                terminal, "show", lambda make, **_: shown.append(make())
            ),
            mock.patch.object(time, "monotonic", itertools.count().__next__),
        ):
            self.decode(f"--decode_from_file={source}")
            self.decode(stdin=b"one\n" * 5)
        # Each look at the clock is a second: two, then one for each batch.
        first, *_, last, _, start, end = shown[1:]
        self.assertEqual(first, "line 0/1,000")
        self.assertEqual(shown[2], "line 128/1,000  64.0 lines/s  14 s left")
        self.assertRegex(last, r"\Aline 1,000/1,000  \d+ lines/s\Z")
        self.assertEqual([start, end], ["line 0", "line 5  2.5 lines/s"])

    def test_typed_lines_are_answered_at_once(self):
        self.decode(stdin=b"a\nb\n", isatty=True)
        self.assertEqual(self.engine.batches, [["a"], ["b"]])
        self.decode(stdin=b"a\nb\n")
        self.assertEqual(self.engine.batches[2:], [["a", "b"]])
        self.assertEqual(self.decode()[:2], (0, b""))

    @parameterized.parameters(
        ("n_best=2", b"a\tb\n\n", b"A B\tA B1\n\t\n"),
        ("n_best=2,write_beam_scores=true", b"a", b"A\t0.0000\tA1\t-1.0000\n"),
        ("return_alignments=1", b"a\tb\n\nc", b"A B\t0-0\n\t\nC\t0-0\n"),
        ("return_alignments=1,n_best=2", b"a", b"A\t0-0\tA1\t0-0\n"),
        (
            "return_alignments=1,n_best=2,write_beam_scores=1",
            b"a",
            b"A\t0.0000\t0-0\tA1\t-1.0000\t0-0\n",
        ),
    )
    def test_fields_of_a_line_are_separated_by_tabs(self, settings, text, line):
        if "alignments" in settings:
            self.engine = translator_test.AlignedEngine()
        _, out, _ = self.decode(f"--decode_hparams={settings}", stdin=text)
        self.assertEqual(out, line)

    def test_exports_have_no_alignments(self):
        target = self.folder / "target"
        code, out, err = self.decode(
            "--decode_hparams=return_alignments=true",
            f"--decode_to_file={target}",
            stdin=b"a",
        )
        self.assertEqual((code, out), (1, b""))
        self.assertIn("An export has no attention", err)
        self.assertFalse(target.exists())

    @parameterized.parameters(
        (["A B C D\nX\n"], 1), (["A B\nX\n", "a\nY\n"], 2)
    )
    def test_scores_go_to_standard_output_beside_a_file(self, contents, number):
        references = [
            self.write_bytes(f"reference{i}", content.encode())
            for i, content in enumerate(contents)
        ]
        record = self.folder / "score.json"
        words = [
            f"--decode_reference={','.join(references)}",
            f"--decode_to_file={self.folder / 'target'}",
            f"--score_json={record}",
        ]
        code, out, _ = self.decode(*words, stdin=b"a b c d\ny\n")
        self.assertEqual(code, 0)
        self.assertRegex(
            out.decode(), rf"BLEU = [\d.]+ \(nrefs:{number}\|case:mixed"
        )
        self.assertIn(b"exact match = 50.00% of 2 lines, 0 empty", out)
        found = json.loads(record.read_text())
        self.assertEqual(found["exact_match"], 50.0)
        self.assertEqual((found["beam_size"], found["alpha"]), (3, 0.6))
        self.assertEqual(found["n_best"], 1)
        self.assertNotIn("sampling_temp", found)  # It has no effect.
        self.assertEqual(found["model"], "there")
        self.assertEqual(found["reference"], ",".join(references))
        code, _, err = self.decode(*words, stdin=b"a b c d\n")
        self.assertEqual(code, 1)
        self.assertIn(f"1 lines in {references[0]}", err)

    def run_of(self, **languages):
        """Makes a run whose problem has three test sets, prepared."""
        sets = {
            "dev": [("u", "U")],
            "test": [("a b c d", "A B C D"), ("e", "X")],
            "test_2": [("f g h i", "F G H I"), ("j", "J"), ("k", "k")],
            "test_mine": [("l m n o", "l m n o")],
        }
        run = run_dir.RunDir(self.folder / "run")
        run.copy_tokenizer(tiny_run.path() / "tokenizer.model")
        (run.path / "ckpt-7.npz").touch()
        pets = problem_test.make(
            splits={
                split: lambda tmp_dir, pairs=pairs: pairs
                for split, pairs in {"train": [("a", "b")], **sets}.items()
            },
            tokenizer_file=run.tokenizer_path,
        )
        manifest = pets.prepare(self.folder / "data")
        run.write_hparams(tiny_run.HPARAMS)
        run.write_flags(f"--data_dir={self.folder / 'data'}\n")
        data = manifest_lib.fingerprints(manifest)
        del data["test_2"]  # prepared after the run was trained
        run.write_problem(
            {**tiny_run.PROBLEM, "problem": "pets", "data": data, **languages}
        )
        return f"--output_dir={run.path}"

    GERMAN = {"source_language": "en", "target_language": "de"}

    def test_all_test_sets_are_translated_and_scored(self):
        target, record = self.folder / "out", self.folder / "score.json"
        code, out, err = self.decode(
            self.run_of(**self.GERMAN),
            "--test_set=all",
            f"--decode_to_file={target}",
            f"--score_json={record}",
        )
        self.assertEqual(code, 0, err)
        self.assertFalse(target.exists())
        files = [
            self.folder / f"out.{n}" for n in ("test", "test_2", "test_mine")
        ]
        self.assertEqual(
            [path.read_bytes() for path in files],
            [b"A B C D\nE\n", b"F G H I\nJ\nK\n", b"L M N O\n"],
        )
        blocks = re.split(r"^(test\w*):\n", out.decode(), flags=re.MULTILINE)
        self.assertEqual(blocks[1::2], ["test", "test_2", "test_mine"])
        matches = [re.findall(r"exact match = (\S+)%", b) for b in blocks[2::2]]
        self.assertEqual(matches, [["50.00"], ["66.67"], ["0.00"]])
        # The case is wrong everywhere in the last set.
        self.assertRegex(
            blocks[6], r"\ABLEU = \d\d?\.[^$]*\ntokenized BLEU = 100.00 \("
        )
        found = json.loads(record.read_text())
        self.assertEqual((found["beam_size"], found["alpha"]), (3, 0.6))
        rows = found["test_sets"]
        self.assertEqual([r["test_set"] for r in rows], blocks[1::2])
        self.assertLess(rows[2]["bleu"], 50)
        self.assertAlmostEqual(rows[2]["tokenized_bleu"], 100)
        self.assertIn("tok:moses-de", rows[2]["tokenized_bleu_signature"])
        self.assertIn("tok:13a", rows[2]["bleu_signature"])
        self.assertEndsWith(rows[1]["reference"], "test_2.target")

    def test_one_set_has_the_file_and_the_streams_of_any_text(self):
        run, target = self.run_of(), self.folder / "out"
        code, out, err = self.decode(run, "--test_set=test_2")
        self.assertEqual((code, out), (0, b"F G H I\nJ\nK\n"))
        self.assertIn("\nBLEU = ", err)
        self.assertNotIn("tokenized", err)  # an unknown language
        code, out, _ = self.decode(
            run, "--test_set=dev,dev", f"--decode_to_file={target}"
        )
        self.assertEqual((code, target.read_bytes()), (0, b"U\n"))
        self.assertStartsWith(out, b"dev:\nBLEU = ")

    def test_missing_sets_and_data_are_named(self):
        run = self.run_of()
        for words, expected, message in (
            (["--test_set=test_9"], 1, "test, test_2, test_mine, dev. Rec"),
            (["--test_set=multi30k/2016"], 2, "Give --language_pair"),
            (["--test_set=newstest"], 2, "a test set that sacreBLEU knows"),
            (
                ["--test_set=all", f"--data_dir={self.folder / 'x'}"],
                1,
                "Received: none. Prepare them with relpos-datagen",
            ),
            (
                ["--test_set=all", "--decode_to_file=/nowhere/out"],
                2,
                "--decode_to_file: Cannot write",
            ),
        ):
            code, out, err = self.decode(run, *words)
            self.assertEqual((code, out), (expected, b""), err)
            self.assertIn(message, err)
        self.assertEmpty(self.engine.batches)

    def test_sacrebleus_sets_have_the_languages_of_the_run(self):
        sacrebleu_sets_test.fill(
            self.folder, source="a b c d\n", reference="a b c d\n"
        )
        record = self.folder / "score.json"
        with sacrebleu_sets_test.sacrebleu_folder(self.folder):
            code, out, err = self.decode(
                self.run_of(**self.GERMAN),
                "--test_set=multi30k/2016,test_mine",
                f"--decode_to_file={self.folder / 'out'}",
                f"--score_json={record}",
            )
            self.assertEqual(code, 0, err)
            path = self.folder / "out.multi30k_2016"
            self.assertEqual(path.read_bytes(), b"A B C D\n")
            self.assertStartsWith(out, b"multi30k/2016:\nBLEU = ")
            names = [
                r["test_set"]
                for r in json.loads(record.read_text())["test_sets"]
            ]
            self.assertEqual(names, ["multi30k/2016", "test_mine"])

    def test_bleu_has_the_tokenizer_of_the_language_or_of_the_run(self):
        chinese_ = "我们在学校里学习很多东西"
        reference = self.write("reference", chinese_)
        run = self.run_of(source_language="en", target_language="zh")
        flags = self.folder / "run" / "flags.txt"
        with_flag = "--bleu_tokenize=char\n"
        for more, recorded, name in (
            ([], "", "13a"),
            (["--language_pair=en-zh"], "", "zh"),
            ([run], "", "zh"),
            ([run, "--language_pair=en-de"], "", "13a"),
            ([run], with_flag, "char"),
            ([run, "--bleu_tokenize=intl"], with_flag, "intl"),
        ):
            flags.write_text(recorded)
            code, _, err = self.decode(
                f"--decode_reference={reference}",
                *more,
                stdin=chinese_.encode(),
            )
            self.assertEqual(code, 0, err)
            self.assertIn(f"|tok:{name}|", err)
            self.assertEqual("blanks between words" in err, name == "13a")

    def test_interactive_without_terminal_answers_line_by_line(self):
        code, out, err = self.decode(
            "--decode_interactive", stdin=b"a\n\n:quit\nb"
        )
        self.assertEqual((code, out), (0, b"A\n\n:QUIT\nB\n"))
        self.assertEqual(self.engine.batches, [["a"], [":quit"], ["b"]])
        self.assertNotIn("> ", err)
        self.engine = StoppedEngine(0, interrupt)
        code, out, _ = self.decode("--decode_interactive", stdin=b"a\n")
        self.assertEqual((code, out), (130, b""))

    def test_launcher_answers_a_program_before_it_asks_again(self):
        ctranslate2_runs.skip_without_library()  # it starts quickly
        export = ctranslate2_runs.export_of()
        child = subprocess.Popen(
            [sys.executable, "decoder.py", "--decode_interactive"]
            + [f"--export_dir={export}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)  # first
        translator = translator_lib.Translator.load(export)
        (expected,) = translator.translate(["twenty-one days"])
        with child.stdin, child.stdout, child.stderr:
            for _ in range(2):
                child.stdin.write(b"twenty-one days\n")
                child.stdin.flush()
                answer = child.stdout.readline().decode()
                self.assertEqual(answer, f"{expected}\n")
            child.stdin.close()
            self.assertEqual((child.stdout.read(), child.wait()), (b"", 0))
            self.assertNotIn(b"Traceback", child.stderr.read())

    def test_pairs_are_scored_and_a_ruined_model_is_named(self):
        model = loading.load_model(tiny_run.path())
        self.engine = model_engine.ModelEngine(
            model, loading.load_tokenizer(tiny_run.path())
        )
        self.engine.name = "there/ckpt-7"
        path = self.write("pairs", "7\tsieben", "8\tacht")
        flag = f"--score_file={path}"
        code, out, _ = self.decode(flag)
        self.assertEqual(code, 0)
        self.assertRegex(out.decode(), r"^(-\d+\.\d{6}\n){2}$")
        table = model.softmax_embedding.embeddings
        table.assign(np.full(table.shape, np.nan))
        _, out, err = self.decode(flag)
        self.assertEqual(out, b"nan\nnan\n")
        self.assertIn("NaN logits. The weights of there/ckpt-7 are", err)
