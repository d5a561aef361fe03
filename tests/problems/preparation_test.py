"""Tests of preparing text in blocks, processes, shares, and after a kill."""

import contextlib
import errno
import gzip
import hashlib
import io
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.bin import datagen
from relpos_tf.data import pieces
from relpos_tf.data import records
from relpos_tf.data import tokenizer
from relpos_tf.problems import blocks
from relpos_tf.problems import cleaning
from relpos_tf.problems import own_files
from relpos_tf.problems import parallel
from relpos_tf.problems import parts
from relpos_tf.problems import problem as problem_lib
from relpos_tf.problems import translate
from relpos_tf.problems import writing
from relpos_tf.utils import locks

LINES = 700
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Prepares the text in a folder with small blocks.
SCRIPT = """
import pathlib, sys
from relpos_tf.problems import blocks, own_files, translate

blocks.LINES = blocks._STEP = 20
if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    train, dev = ([str(folder / f"{s}.{side}") for side in ("en", "de")]
                  for s in ("train", "dev"))
    translate.files_problem(
        own_files.Training(*train), own_files.Sides(*dev), vocab_size=330
    ).prepare(folder / "data", num_processes=int(sys.argv[2]))
"""

# A folder of registrations; the function leaves the number of its process.
OWN_PROBLEM = """
import os, pathlib
from relpos_tf import registry
from relpos_tf.problems import problem

FOLDER = pathlib.Path(__file__).parent

def lower(line):
    (FOLDER / f"{os.getpid()}.ran").touch()
    return line.lower()

@registry.register_problem
def of_the_preparation_test():
    pairs = [(f"A House {i}", f"Ein Haus {i}") for i in range(211)]
    return problem.Problem(
        "of_the_preparation_test", "en", "de", 330,
        {split: lambda tmp_dir: pairs for split in ("train", "dev")},
        normalize=lower,
    )
"""


def text(number=LINES, seed=1):
    """Returns lines of two sides, some of which cleaning drops or changes."""
    generator = random.Random(seed)
    sides = [], []
    for i in range(number):
        words = generator.choices("der die\tdas ein eine  und oder".split(" "))
        line = f"{i} {' '.join(words * generator.randint(1, 9))}"
        pair = [line, f"{line} auch"]
        kind = generator.random()
        if kind < 0.05:
            pair[generator.randrange(2)] = " "
        elif kind < 0.08:
            pair[0] = "a\0 b\r"
        elif kind < 0.1:
            pair[1] = "x" * 5000
        elif kind < 0.12:
            letters = generator.choices("abcdefgh", k=3000)  # many ids
            pair = ["".join(letters)] * 2
        for side, one in zip(sides, pair, strict=True):
            side.append(one)
    return sides


def write_text(folder, number=LINES):
    """Writes training text and development text."""
    for split, size in (("train", number), ("dev", 7)):
        for language, lines in zip(("en", "de"), text(size), strict=True):
            path = folder / f"{split}.{language}"
            path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def make(folder):
    """Returns the problem of the text in a folder."""
    train, dev = (
        [str(folder / f"{split}.{language}") for language in ("en", "de")]
        for split in ("train", "dev")
    )
    return translate.files_problem(
        own_files.Training(*train),
        own_files.Sides(*dev),
        vocab_size=330,
    )


def checksums(folder):
    """Returns the checksum of each file of a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "manifest.json"
    }


class PreparationTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        write_text(self.folder)
        self.data = self.folder / "data"
        self.enter_context(mock.patch.object(blocks, "LINES", 20))
        self.enter_context(mock.patch.object(blocks, "_STEP", 20))

    def prepared(self, name, num_processes=1, made=None):
        """Returns the manifest and the checksums of a folder's files."""
        made = made or make(self.folder)
        data = self.folder / name
        manifest = made.prepare(data, num_shards=3, num_processes=num_processes)
        return manifest, checksums(made.folder(data))

    def reference(self):
        """Returns the checksums of files written in one go by TensorFlow."""
        folder = self.folder / "reference"
        folder.mkdir()
        pairs = list(
            cleaning.clean_pairs(
                zip(*text(), strict=True), mock.MagicMock(name="counts")
            )
        )
        model = folder / "tokenizer.model"
        pieces.train([side for pair in pairs for side in pair], model, 330)
        tokens = tokenizer.Tokenizer(model)
        ids = [tuple(map(tokens.encode, pair)) for pair in pairs]
        ids = [pair for pair in ids if max(map(len, pair)) <= 1024]
        names = writing.shard_paths(folder, "train", 3)
        records.write(ids, names)
        for number, name in enumerate(names):
            records.shuffle_file(name, 429459 + number)
            records.mark(name, records.tokenizer_mark(model))
        return checksums(folder)

    def test_files_are_those_of_a_single_pass_by_tensorflow(self):
        manifest, found = self.prepared("one")
        reference = self.reference()
        self.assertEqual({n: found[n] for n in reference}, reference)
        counts = dict(manifest["cleaning"])
        for rule in ("blank", "nul", "long", "tokens"):
            self.assertGreater(counts[rule], 0, rule)
        self.assertEqual(counts.pop("read"), LINES)
        del counts["nul"]
        self.assertEqual(
            manifest["counts"]["train"], LINES - sum(counts.values())
        )

    @parameterized.parameters(2, 3)
    def test_any_number_of_processes_gives_the_same(self, number):
        self.assertEqual(
            self.prepared("one"), self.prepared("many", num_processes=number)
        )

    def test_any_blocks_and_buckets_give_the_same(self):
        expected = self.prepared("one")
        for lines, size in ((1, 100), (7, 3000), (LINES, 1 << 30)):
            with (
                mock.patch.object(blocks, "LINES", lines),
                mock.patch.object(blocks, "_STEP", min(lines, 512)),
                mock.patch.object(parts, "BUCKET_BYTES", size),
            ):
                found = self.prepared(f"{lines}")
            self.assertEqual(found, expected)

    def test_a_block_ends_when_it_is_large(self):
        made = make(self.folder).splits["train"](None)
        with (
            mock.patch.object(blocks, "LINES", 1000),
            mock.patch.object(blocks, "_BYTES", 500),
        ):
            cut = list(blocks.cut(made))
        self.assertGreater(len(cut), 10)
        pairs = [pair for block in cut for pair in block.read().pairs]
        self.assertEqual(pairs, list(made))

    def test_a_sample_of_the_pairs_is_that_of_one_pass(self):
        made = problem_lib.dataclasses.replace(
            make(self.folder), tokenizer_pairs=90
        )
        _, found = self.prepared("one", made=made)
        counts = mock.MagicMock(name="counts")
        pairs = cleaning.clean_pairs(zip(*text(), strict=True), counts)
        generator, sample = random.Random(429459), []
        for count, pair in enumerate(pairs):
            if count < 90:
                sample.append(pair)
            elif (index := generator.randrange(count + 1)) < 90:
                sample[index] = pair
        path = self.folder / "expected.model"
        pieces.train([side for pair in sample for side in pair], path, 330)
        self.assertEqual(
            found["tokenizer.model"],
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        # The number of lines of generated pairs is not known before.
        generated = problem_lib.Reiterable(lambda: zip(*text(), strict=True))
        other = problem_lib.dataclasses.replace(
            made, splits={**made.splits, "train": lambda tmp_dir: generated}
        )
        self.assertEqual(self.prepared("two", made=other)[1], found)

    def test_functions_that_cannot_be_sent_are_applied_before(self):
        lower = problem_lib.dataclasses.replace(
            make(self.folder), normalize=lambda line: line.lower()
        )
        self.assertEqual(
            self.prepared("one", made=lower),
            self.prepared("two", num_processes=2, made=lower),
        )

    def own_problem(self):
        """Returns a problem of a folder of the user's own, and the folder."""
        usr_dir = self.folder / "my_problems"
        usr_dir.mkdir()
        (usr_dir / "__init__.py").write_text(OWN_PROBLEM, encoding="utf-8")
        registry.import_usr_dir(str(usr_dir))
        name = "of_the_preparation_test"
        made = registry.problem(name)
        self.addCleanup(registry._problems._makers.pop, name)
        self.addCleanup(sys.modules.pop, made.normalize.__module__)
        return made, usr_dir

    def test_functions_of_the_users_folder_are_applied_in_all_processes(self):
        made, usr_dir = self.own_problem()
        found = self.prepared("many", num_processes=2, made=made)
        there = {int(path.stem) for path in usr_dir.glob("*.ran")}
        self.assertNotEmpty(there - {os.getpid()})
        self.assertEqual(self.prepared("one", made=made), found)
        sources, _ = made.lines(self.folder / "many", "dev")
        self.assertEqual(sources[7], "a house 7")
        before = problem_lib.dataclasses.replace(
            made, normalize=lambda line: line.lower()
        )
        self.assertEqual(self.prepared("before", made=before), found)

    def test_parts_of_functions_of_ones_own_are_those_of_what_they_return(
        self,
    ):
        made, _ = self.own_problem()
        expected = self.prepared("one", made=made)
        for task in range(2):
            made.prepare_share(self.data, num_shards=3, task=(task, 2))
        other = problem_lib.dataclasses.replace(made, normalize=str.upper)
        with mock.patch.object(parts, "_write", side_effect=parts._write) as w:
            other.prepare_share(self.data, num_shards=3)
            self.assertEqual(w.call_count, 11)
            found = made.prepare(self.data, num_shards=3)
            self.assertEqual(w.call_count, 11)
        self.assertEqual((found, checksums(made.folder(self.data))), expected)

    def test_shares_of_several_tasks_are_joined(self):
        expected = self.prepared("one")
        made = make(self.folder)
        counts = [
            made.prepare_share(self.data, num_shards=3, task=(task, 3))
            for task in range(3)
        ]
        self.assertEqual(sum(counts), LINES)
        self.assertFalse(made.is_prepared(self.data))
        with (
            mock.patch.object(parts, "_write") as write,
            mock.patch.object(writing.pieces, "learn") as learn,
        ):
            found = made.prepare(self.data, num_shards=3)
        write.assert_not_called()
        learn.assert_not_called()
        self.assertEqual((found, checksums(made.folder(self.data))), expected)
        self.assertLen(list(self.data.iterdir()), 1)

    def test_parts_of_other_text_or_settings_are_not_used(self):
        make(self.folder).prepare_share(self.data, num_shards=3)
        with mock.patch.object(parts, "_described", side_effect=AssertionError):
            make(self.folder).prepare_share(self.data, num_shards=4)
        lines = (self.folder / "train.de").read_bytes().split(b"\n")
        lines[0] += b" neu"
        (self.folder / "train.de").write_bytes(b"\n".join(lines))
        other = make(self.folder)
        name = other.folder(self.data).name
        [share] = self.data.glob(".*.preparing.*")
        share.rename(self.data / f".{name}.preparing.abcdefgh")
        found = other.prepare(self.data, num_shards=3)
        self.assertEqual(
            (found, checksums(other.folder(self.data))), self.prepared("two")
        )

    def finished_parts(self):
        return list(self.data.glob(".*/parts/part-*[0-9a-f]"))

    def kill(self, number):
        """Kills a preparation once it has so many finished parts."""
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, self.folder, "2"], cwd=ROOT
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if len(self.finished_parts()) >= number:
                break
        process.kill()
        process.wait()

    def test_killed_and_started_again_is_undisturbed(self):
        expected = make(self.folder).prepare(self.folder / "undisturbed")
        generator = random.Random(time.time_ns())
        for number in (0, generator.randint(1, 34)):
            self.kill(number)
        made = make(self.folder)
        self.assertFalse(made.is_prepared(self.data))
        there = len(self.finished_parts())
        self.assertGreaterEqual(there, 1)
        with mock.patch.object(parts, "_write", side_effect=parts._write) as w:
            found = made.prepare(self.data)
        self.assertLessEqual(w.call_count, LINES // 20 - there)
        self.assertEqual(found, expected)
        self.assertEqual(
            checksums(made.folder(self.data)),
            checksums(made.folder(self.folder / "undisturbed")),
        )
        self.assertLen(list(self.data.iterdir()), 1)

    def test_finished_shards_are_used_again(self):
        made, gather = make(self.folder), parts.gather
        with mock.patch.object(
            parts, "gather", side_effect=[mock.DEFAULT, KeyboardInterrupt]
        ) as stopped:
            stopped.side_effect = lambda task: (
                gather(task) if task.shard < 2 else _interrupt()
            )
            with self.assertRaises(KeyboardInterrupt):
                made.prepare(self.data, num_shards=3)
        self.assertLen(list(self.data.glob(".*/parts/shard-*.json")), 2)
        with mock.patch.object(
            parts, "_Ordered", side_effect=parts._Ordered
        ) as ordered:
            found = made.prepare(self.data, num_shards=3)
        self.assertEqual(ordered.call_count, 1)
        self.assertEqual(
            (found, checksums(made.folder(self.data))), self.prepared("one")
        )

    @parameterized.parameters(
        (
            OSError(errno.EFBIG, "File too large"),
            "Cannot write in .*preparing.*: file too large. Make room and run",
        ),
        (MemoryError("too little"), "too little"),
        (errors.UserError("too late"), "too late"),
    )
    def test_no_error_in_the_last_step_costs_finished_parts(
        self, error, message
    ):
        made = make(self.folder)
        for task in range(2):
            made.prepare_share(self.data, num_shards=3, task=(task, 2))
        with mock.patch.object(parts, "gather", side_effect=error):
            with self.assertRaisesRegex(
                (errors.UserError, MemoryError), message
            ):
                made.prepare(self.data, num_shards=3)
        self.assertLen(self.finished_parts(), LINES // 20)
        with mock.patch.object(parts, "_write") as write:
            made.prepare(self.data, num_shards=3)
        write.assert_not_called()
        self.assertLen(list(self.data.iterdir()), 1)

    def test_without_locks_shares_that_have_ended_are_used(self):
        expected = self.prepared("one")
        made = make(self.folder)
        self.enter_context(
            mock.patch.object(locks.fcntl, "flock", side_effect=no_locks)
        )
        for task in range(3):
            made.prepare_share(self.data, num_shards=3, task=(task, 3))
        killed = sorted(self.data.iterdir())[0]
        (killed / "ended").unlink()
        with (
            mock.patch.object(parts, "gather", side_effect=MemoryError),
            self.assertLogs("relpos_tf", "WARNING") as logs,
            self.assertRaises(MemoryError),
        ):
            made.prepare(self.data, num_shards=3)
        [line] = logs.output
        self.assertIn(f"{self.data} has no locks", line)
        self.assertIn(killed.name, line)
        self.assertLen(list(self.data.iterdir()), 2)
        (killed / "ended").touch()
        with (
            mock.patch.object(parts, "_write") as write,
            self.assertNoLogs("relpos_tf", "WARNING"),
        ):
            found = made.prepare(self.data, num_shards=3)
        write.assert_not_called()
        self.assertEqual((found, checksums(made.folder(self.data))), expected)
        self.assertLen(list(self.data.iterdir()), 1)

    def test_compressed_files_and_patterns_give_the_same(self):
        expected = self.prepared("one")[1]
        for language in ("en", "de"):
            lines = (self.folder / f"train.{language}").read_bytes()
            lines = lines.splitlines(keepends=True)
            for number, part in enumerate((lines[:300], lines[300:])):
                path = self.folder / f"part-{number}.{language}.gz"
                path.write_bytes(gzip.compress(b"".join(part)))
        names = [str(self.folder / f"dev.{side}") for side in ("en", "de")]
        for sources in (
            f"{self.folder}/part-*.en.gz",
            f"{self.folder}/part-0.en.gz,{self.folder}/part-1.en.gz",
        ):
            made = translate.files_problem(
                own_files.Training(sources, sources.replace(".en", ".de")),
                own_files.Sides(*names),
                vocab_size=330,
            )
            self.assertEqual(
                (made.source_language, made.target_language), ("en", "de")
            )
            self.assertEqual(self.prepared("two", made=made)[1], expected)
            shutil.rmtree(self.folder / "two")

    @parameterized.parameters("", ".gz")
    def test_blocks_have_the_pairs_of_the_files(self, suffix):
        mark = b"\xef\xbb\xbf"
        lines = [b"%d \xff\xe2\x82\r\n" % i for i in range(70)]
        sides = (
            mark + b"".join(lines) + b"last",
            mark + mark + b"\n" * 70 + b"x",
        )
        names = []
        for language, content in zip(("en", "de"), sides, strict=True):
            names.append(self.folder / f"odd.{language}{suffix}")
            names[-1].write_bytes(gzip.compress(content) if suffix else content)
        made = parallel.ParallelText([tuple(names)] * 2, [71, 71])
        found = [pair for b in blocks.cut(made) for pair in b.read().pairs]
        self.assertEqual(found, list(made))
        self.assertLen(found, len(made))
        self.assertEqual(found[0], ("0 \ufffd\ufffd", "\ufeff"))
        self.assertEqual(found[70], ("last", "x"))
        self.assertEqual(found[71:], found[:71])

    def test_text_that_has_changed_since_it_was_counted_is_refused(self):
        made = make(self.folder).splits["train"](None)
        with open(self.folder / "train.en", "a") as file:
            file.write("more\n")
        with self.assertRaisesRegex(errors.UserError, "changed since"):
            list(blocks.cut(made))

    @parameterized.parameters(
        ({"weights": "1"}, "2 positive numbers.*Received: '1'"),
        ({"weights": "1,0"}, "2 positive numbers"),
        ({"weights": "1,inf"}, "2 positive numbers"),
        ({"weights": "1,x"}, "2 positive numbers"),
        ({"tags": ",a b"}, "2 words"),
        ({"tags": "a,b,c"}, "2 words.*Received: 'a,b,c'"),
    )
    def test_weights_and_tags_that_do_not_fit_are_refused(self, given, message):
        with self.assertRaisesRegex(errors.UserError, message):
            self.two_corpora(**given)

    def two_corpora(self, **given):
        """Returns the problem of the training text and the development text."""
        sides = [
            f"{self.folder}/train.{side},{self.folder}/dev.{side}"
            for side in ("en", "de")
        ]
        dev = [f"{self.folder}/dev.{side}" for side in ("en", "de")]
        return translate.files_problem(
            own_files.Training(*sides, **given),
            own_files.Sides(*dev),
            vocab_size=330,
        )

    def test_corpora_with_weights_or_tags_are_kept_apart(self):
        manifests = {
            name: self.prepared(name, made=made)[0]
            for name, made in (
                ("one", self.two_corpora()),
                ("weights", self.two_corpora(weights="1,4")),
                ("others", self.two_corpora(weights="2,3")),
                ("tags", self.two_corpora(tags=",BT")),
            )
        }
        count = manifests["one"]["counts"]["train"]
        self.assertNotIn("corpora", manifests["one"])
        # Weights are for training, whichever they are.
        self.assertEqual(manifests["weights"], manifests["others"])
        for name in ("weights", "tags"):
            self.assertEqual(manifests[name]["counts"]["train"], count)
            first, second = manifests[name]["corpora"]
            self.assertEqual(first["pairs"] + second["pairs"], count)
            self.assertBetween(second["pairs"], 4, 7)
            self.assertEqual((first["files"], second["files"]), (3, 3))
        made = self.two_corpora(weights="1,4")
        found = made.training_corpora(self.folder / "weights")
        self.assertEqual([c.weight for c in found], [1.0, 4.0])
        self.assertEqual(
            [records.count_records(c.paths) for c in found],
            [c["pairs"] for c in manifests["weights"]["corpora"]],
        )
        [only] = self.two_corpora().training_corpora(self.folder / "one")
        self.assertEqual((only.pairs, only.weight), (count, count))

    @parameterized.parameters(
        ("schön\n".encode("latin1"), "7: a side is not UTF-8"),
        (b" \n", "7: a side is empty"),
        (b"a" * 3000 + b"\n", "7: one side is far longer than the other"),
    )
    def test_a_corpus_of_which_nothing_is_left_is_named(self, line, reason):
        (self.folder / "dev.en").write_bytes(b"a house\n" * 7)
        (self.folder / "dev.de").write_bytes(line * 7)
        for given in ({"weights": "1,4"}, {"tags": "A,B"}):
            with self.assertRaisesRegex(
                errors.UserError,
                f"corpus 2 of 2 .{self.folder}/dev.en, {self.folder}/dev.de. "
                f"with 7 pairs, all of which are dropped .*{reason}",
            ):
                self.two_corpora(**given).prepare(self.data)

    @parameterized.parameters(
        ("part-*.en", "x.de", "which no file fits"),
        ("a.en,b.en", "a.de", "as many files in --train_source as.*2, .*1, "),
        ("train.*", "train.de", "as many files that fit.*2 and 1"),
    )
    def test_files_that_do_not_fit_are_refused(self, sources, targets, message):
        sources, targets = (
            ",".join(f"{self.folder}/{name}" for name in names.split(","))
            for names in (sources, targets)
        )
        with self.assertRaisesRegex(errors.UserError, message):
            translate.files_problem(
                own_files.Training(sources, targets), own_files.Sides("x", "y")
            )


def no_locks(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def _interrupt():
    raise KeyboardInterrupt


class DatagenTest(absltest.TestCase):
    def execute(self, *arguments):
        """Returns (exit code, standard error)."""
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            code = command.execute(datagen.main, arguments)
        return code, error.getvalue()

    def test_text_of_ones_own_is_prepared_and_its_losses_are_listed(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        write_text(folder)
        flags = [
            "--problem=translate_files",
            f"--train_source={folder}/train.en",
            f"--train_target={folder}/train.de",
            f"--dev_source={folder}/dev.en",
            f"--dev_target={folder}/dev.de",
            "--vocab_size=330",
            f"--data_dir={folder}/data",
        ]
        for task in range(2):
            share = "--num_tasks=2", f"--task_id={task}"
            code, err = self.execute(*flags, *share)
            self.assertEqual(code, 0, err)
            self.assertIn(f"Share {task} of 2 is encoded", err)
        code, err = self.execute(*flags, "--num_processes=1")
        self.assertEqual(code, 0, err)
        made = make(folder)
        manifest = made.manifest(folder / "data")
        self.assertIn(f"{LINES}   100.00  read\n", err)
        for rule, reason in (
            ("blank", "a side is empty"),
            ("long", "more than 4,000 characters"),
            ("tokens", "more than 1,024 ids"),
        ):
            number = manifest["cleaning"][rule]
            self.assertRegex(err, f" {number} +[0-9.]+  dropped: .*{reason}\n")
        self.assertRegex(err, f"{manifest['counts']['train']} .*  written\n")
        code, err = self.execute(*flags, "--num_tasks=2", "--task_id=2")
        self.assertEqual(code, 2)
        self.assertIn("--task_id=2 must be below --num_tasks=2", err)

    def test_files_of_another_problem_are_a_bad_flag(self):
        code, err = self.execute("--problem=algorithmic_copy", "--dev_source=x")
        self.assertEqual(code, 2)
        self.assertIn("--dev_source goes with --problem=translate_files", err)
        for size in (8000, 5000):  # the default, too, if it is given
            code, err = self.execute(
                "--problem=algorithmic_copy", f"--vocab_size={size}"
            )
            self.assertEqual(code, 2)
            self.assertIn("--vocab_size goes with --problem=translate_f", err)


if __name__ == "__main__":
    absltest.main()
