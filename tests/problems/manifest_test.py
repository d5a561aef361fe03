"""Tests of prepared folders: a changed file is named in an error."""

import contextlib
import hashlib
import json
import pathlib
import subprocess
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import records
from relpos_tf.problems import blocks
from relpos_tf.problems import manifest
from relpos_tf.problems import parts
from tests.problems import problem_test


@contextlib.contextmanager
def another_process(use, folder):
    """Runs a process that has a folder, by a function of `locks`."""
    code = (
        "import sys; from relpos_tf.utils import locks; "
        f"locks.{use}(sys.argv[1]); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        cwd=pathlib.Path(__file__).resolve().parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        if not process.stdout.readline():
            raise RuntimeError(f"No `{use}` of {folder}.")
        yield
        process.communicate(b"\n")


def content(folder):
    """Returns the content of all files below a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class PreparedTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.data_dir = pathlib.Path(self.create_tempdir().full_path)
        self.pets = problem_test.make()
        self.manifest = problem_test.copy_prepared(self.data_dir)
        self.folder = self.data_dir / "pets"

    def rewrite(self, **fields):
        """Writes a manifest without checksum, as an attacker might."""
        values = self.manifest | fields
        (self.folder / "manifest.json").write_text(json.dumps(values))

    def test_a_cut_file_is_named_with_its_record(self):
        path = self.folder / "train-00001-of-00003.tfrecord"
        path.write_bytes(path.read_bytes()[:-30])
        with self.assertRaisesRegex(
            errors.UserError, f"{path} .*Record 10 of .*--generate_data"
        ):
            self.pets.record_files(self.data_dir, "train")

    def test_a_lost_record_is_noticed_though_the_rest_is_whole(self):
        path = self.folder / "train-00001-of-00003.tfrecord"
        content = path.read_bytes()
        first = 16 + int.from_bytes(content[:8], "little")
        path.write_bytes(content[first:])
        with self.assertRaisesRegex(errors.UserError, f"{path}.* 9 records"):
            self.pets.record_files(self.data_dir, "train")

    @parameterized.parameters("tokenizer.model", "dev.source", "dev.target")
    def test_a_flipped_byte_of_a_small_file_is_noticed(self, name):
        path = self.folder / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        for damage in (path.write_bytes, lambda content: path.unlink()):
            damage(content)
            with self.assertRaisesRegex(
                errors.UserError, f"{path} is (dam|mi)"
            ):
                self.pets.tokenizer_path(self.data_dir)
                self.pets.lines(self.data_dir, "dev")

    def test_a_flipped_number_in_the_manifest_is_noticed(self):
        path = self.folder / "manifest.json"
        text = path.read_text()
        size = f'"vocab_size": {self.manifest["vocab_size"]}'
        path.write_text(text.replace(size, '"vocab_size": 299'))
        with self.assertRaisesRegex(errors.UserError, f"{path} is dam.*check"):
            self.pets.manifest(self.data_dir)
        with self.assertRaisesRegex(errors.UserError, "--generate_data"):
            self.pets.prepare(self.data_dir)

    @parameterized.parameters("[]", "3", '{"files": {}}', "{", '{"counts": 1}')
    def test_a_manifest_of_another_kind_is_refused(self, text):
        (self.folder / "manifest.json").write_text(text)
        for use in (self.pets.manifest, self.pets.is_prepared):
            with self.assertRaisesRegex(errors.UserError, "is damaged: "):
                use(self.data_dir)

    @parameterized.parameters(
        {"files": ["dev.source"]},
        {"files": {"dev.source": {"bytes": "9", "sha256": "x"}}},
        {"files": {"dev.source": {"bytes": 9, "sha256": 7}}},
        {"counts": {"train": "7"}},
        {"counts": {}},
        {"vocab_size": "300"},
        {"vocab_size": True},
        {"lengths": [1]},
        {"lengths": {"x": 1}},
        {"lengths": {"9": "x"}},
    )
    def test_values_of_another_type_are_refused(self, **fields):
        self.rewrite(**fields)
        with self.assertRaisesRegex(errors.UserError, "is damaged: it"):
            self.pets.manifest(self.data_dir)

    def test_folders_of_before_there_were_checksums_are_read(self):
        del self.manifest["lengths"]
        self.rewrite()
        self.assertEqual(self.pets.manifest(self.data_dir), self.manifest)
        self.assertLen(self.pets.record_files(self.data_dir, "train"), 3)
        self.assertIsNone(manifest.longer_than(self.manifest, 1))

    @parameterized.parameters(
        "train-/../../../secret.tfrecord",
        "train-00000-of-00001.tfrecord/../x.tfrecord",
        "/train-00000-of-00001.tfrecord",
    )
    def test_names_do_not_lead_out_of_the_folder(self, name):
        self.rewrite(files={name: {"bytes": 0, "sha256": ""}})
        with self.assertRaisesRegex(errors.UserError, "no records of .*train"):
            self.pets.record_files(self.data_dir, "train")

    def test_a_file_that_is_not_described_is_not_used(self):
        files = dict(self.manifest["files"])
        del files["tokenizer.model"]
        files["train-00001-of-00003.tfrecord"] = 7
        self.rewrite(files=files)
        for use in (
            self.pets.tokenizer_path,
            lambda data_dir: self.pets.record_files(data_dir, "train"),
        ):
            with self.assertRaisesRegex(errors.UserError, "does not describe"):
                use(self.data_dir)

    def test_remains_of_killed_processes_are_removed(self):
        lost, working = (
            self.data_dir / f".pets.preparing.{name}"
            for name in ("abcdefgh", "12345678")
        )
        others = (
            self.data_dir / ".pets-2.preparing.abcdefgh",
            self.data_dir / ".pets.original",
        )
        for folder in (lost, working, *others):
            folder.mkdir()
            (folder / "dev.source").write_text("half")
        with another_process("acquire_exclusive", working):
            self.pets.prepare(self.data_dir)  # nothing to do
            self.assertTrue(lost.exists())
            problem_test.make(vocab_size=290).prepare(self.data_dir)
            self.assertFalse(lost.exists())
            self.assertTrue(working.exists())
        problem_test.make(vocab_size=295).prepare(self.data_dir)
        self.assertFalse(working.exists())
        for folder in others:
            self.assertTrue(folder.exists())

    def test_old_data_that_a_killed_process_put_aside_come_back(self):
        self.folder.rename(self.data_dir / ".pets.preparing.abcdefgh.old")
        with self.assertRaises(OSError):
            problem_test.make(problem_test.Broken()).prepare(self.data_dir)
        self.assertEqual(self.pets.manifest(self.data_dir), self.manifest)

    def test_fingerprints_are_of_the_content_of_each_split(self):
        first = manifest.fingerprints(self.manifest)
        self.assertEqual(first.keys(), {"train", "dev"})
        train, dev = problem_test.TRAIN, problem_test.DEV
        for number, (other_train, other_dev, shards, changed) in enumerate(
            (
                # A reference is part of its split, whatever its ids.
                (train, [*dev[:-1], ("y", "z\0")], 3, {"dev"}),
                (train, dev, 2, {"train"}),
                (train[::-1], dev, 3, {"train"}),
            )
        ):
            other = problem_test.make(other_train, other_dev).prepare(
                self.data_dir / str(number), num_shards=shards
            )
            found = manifest.fingerprints(other)
            self.assertEqual(
                {s for s in first if found[s] != first[s]}, changed
            )

    def test_pairs_are_counted_by_length(self):
        lengths = {}
        files = self.pets.record_files(self.data_dir, "train")
        for inputs, targets in problem_test.read(files):
            length = max(len(inputs), len(targets))
            lengths[length] = lengths.get(length, 0) + 1
        self.assertEqual(
            self.manifest["lengths"],
            {str(length): number for length, number in lengths.items()},
        )
        self.assertEqual(manifest.longer_than(self.manifest, 0), 31)
        self.assertEqual(
            manifest.longer_than(self.manifest, min(lengths)),
            31 - lengths[min(lengths)],
        )
        self.assertEqual(manifest.longer_than(self.manifest, max(lengths)), 0)
        records.check(files, self.manifest["vocab_size"])

    def test_records_say_which_tokenizer_made_them(self):
        sha256 = hashlib.sha256(
            (self.folder / "tokenizer.model").read_bytes()
        ).hexdigest()
        mark = int(sha256[:8], 16)
        names = [n for n in self.manifest["files"] if n.endswith("tfrecord")]
        self.assertLen(names, 4)
        for name in names:
            found = tf.data.TFRecordDataset(str(self.folder / name))
            pairs = []
            for record in found.as_numpy_iterator():
                example = tf.train.Example.FromString(record)
                value = example.features.feature.pop("tokenizer").int64_list
                self.assertEqual(list(value.value), [mark])
                pairs.append(example.SerializeToString(deterministic=True))
            # The checksum of the file without marks is that of earlier
            # versions, whose runs know their data by it.
            path = self.data_dir / "unmarked"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for pair in pairs:
                    writer.write(pair)
            self.assertEqual(
                self.manifest["files"][name]["sha256_unmarked"],
                hashlib.sha256(path.read_bytes()).hexdigest(),
            )


class ReplacementTest(parameterized.TestCase):
    """Tests of the replacement of prepared folders."""

    def setUp(self):
        super().setUp()
        self.data_dir = pathlib.Path(self.create_tempdir().full_path) / "data"
        self.folder = self.data_dir / "pets"

    @parameterized.parameters(
        ("notes.txt",), ("raw/train.en",), ("train.source", "dev.source")
    )
    def test_a_folder_of_the_users_own_files_is_refused(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        before = content(self.data_dir)
        for prepare in ("prepare", "prepare_anew"):
            with self.assertRaisesRegex(
                errors.UserError,
                f"{self.folder}, .*{names[-1].split('/')[0]}.* elsewhere",
            ):
                getattr(problem_test.make(), prepare)(self.data_dir)
            self.assertEqual(content(self.data_dir), before)

    def test_a_file_of_the_users_among_prepared_ones_is_refused(self):
        problem_test.copy_prepared(self.data_dir)
        (self.folder / "notes.txt").write_text("mine")
        (self.folder / "manifest.json.bak").mkdir()
        before = content(self.data_dir)
        for problem, prepare in (
            (problem_test.make(vocab_size=290), "prepare"),
            (problem_test.make(), "prepare_anew"),
        ):
            with self.assertRaisesRegex(
                errors.UserError, "has manifest.json.bak, notes.txt. Move"
            ):
                getattr(problem, prepare)(self.data_dir)
            self.assertEqual(content(self.data_dir), before)
        problem_test.make().prepare(self.data_dir)  # nothing to do

    def test_a_file_that_appears_meanwhile_stays(self):
        problem_test.copy_prepared(self.data_dir)

        def late(tmp_dir):
            (self.folder / "notes.txt").write_text("mine")
            return problem_test.DEV

        splits = {"train": lambda tmp_dir: problem_test.TRAIN, "dev": late}
        before = content(self.data_dir)
        with self.assertRaisesRegex(errors.UserError, "notes.txt"):
            problem_test.make(splits=splits, vocab_size=290).prepare(
                self.data_dir
            )
        self.assertEqual(
            content(self.data_dir), before | {"pets/notes.txt": b"mine"}
        )

    def test_refused_at_the_end_the_work_is_kept(self):
        problem_test.copy_prepared(self.data_dir)
        notes = self.folder / "notes.txt"

        def late(tmp_dir):
            notes.write_text("mine")
            return problem_test.DEV

        splits = {"train": lambda tmp_dir: problem_test.TRAIN, "dev": late}
        made = problem_test.make(splits=splits, vocab_size=290)
        with mock.patch.object(blocks, "LINES", 5):
            with self.assertRaisesRegex(errors.UserError, "notes.txt"):
                made.prepare(self.data_dir)
            notes.unlink()
            with (
                mock.patch.object(parts, "_write") as write,
                self.assertRaisesRegex(errors.UserError, "notes.txt"),
            ):
                made.prepare(self.data_dir)
            write.assert_not_called()
            notes.unlink()
            problem_test.make(vocab_size=290).prepare(self.data_dir)
        self.assertLen(list(self.data_dir.iterdir()), 1)

    def test_a_file_in_place_of_the_folder_is_refused(self):
        self.data_dir.mkdir()
        self.folder.write_text("mine")
        with self.assertRaisesRegex(errors.UserError, f"{self.folder}"):
            problem_test.make().prepare_anew(self.data_dir)
        self.assertEqual(self.folder.read_text(), "mine")

    def test_an_empty_folder_is_taken(self):
        self.folder.mkdir(parents=True)
        problem_test.make().prepare(self.data_dir)
        self.assertTrue(problem_test.make().is_prepared(self.data_dir))

    def test_old_data_stay_until_new_ones_are_complete(self):
        pets = problem_test.make()
        made = problem_test.copy_prepared(self.data_dir)
        before = content(self.data_dir)

        def missing(tmp_dir):
            raise errors.UserError("Cannot download.")

        splits = {"train": missing, "dev": lambda tmp_dir: problem_test.DEV}
        for broken, error in (
            (problem_test.make(splits=splits), errors.UserError),
            (problem_test.make(problem_test.Broken()), OSError),
            (problem_test.make(dev=[]), errors.UserError),
        ):
            self.assertRaises(error, broken.prepare_anew, self.data_dir)
            self.assertEqual(content(self.data_dir), before)
        self.assertEqual(pets.manifest(self.data_dir), made)
        fewer = problem_test.make(problem_test.TRAIN[:7])
        fewer.prepare_anew(self.data_dir)
        self.assertEqual(fewer.manifest(self.data_dir)["counts"]["train"], 7)
        self.assertLen(list(self.data_dir.iterdir()), 1)

    @parameterized.parameters(True, False)
    def test_a_linked_folder_is_replaced_where_the_link_leads(self, is_there):
        elsewhere = self.data_dir.parent / "disk" / "pets"
        elsewhere.parent.mkdir()
        if is_there:
            elsewhere.mkdir()
        self.data_dir.mkdir()
        self.folder.symlink_to(elsewhere)
        for train in (problem_test.TRAIN, problem_test.TRAIN[:7]):
            pets = problem_test.make(train)
            pets.prepare_anew(self.data_dir)
            self.assertTrue(self.folder.is_symlink())
            self.assertLen(list(elsewhere.parent.iterdir()), 1)
            self.assertEqual(
                pets.manifest(self.data_dir)["counts"]["train"], len(train)
            )

    def test_the_same_data_are_not_replaced_unless_damaged(self):
        pets = problem_test.make()
        problem_test.copy_prepared(self.data_dir)
        inode = self.folder.stat().st_ino
        with another_process("acquire_shared", self.folder):
            pets.prepare_anew(self.data_dir)
        self.assertEqual(self.folder.stat().st_ino, inode)
        whole = content(self.data_dir)
        path = self.folder / "train-00001-of-00003.tfrecord"
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        pets.prepare_anew(self.data_dir)
        self.assertEqual(content(self.data_dir), whole)
        self.assertLen(list(self.data_dir.iterdir()), 1)

    def test_data_that_another_process_reads_are_not_replaced(self):
        problem_test.copy_prepared(self.data_dir)
        before = content(self.data_dir)
        other = problem_test.make(problem_test.TRAIN[:7], vocab_size=290)
        fewer = problem_test.make(problem_test.TRAIN[:7])
        with another_process("acquire_shared", self.folder):
            with another_process(
                "acquire_shared", self.folder
            ):  # any number may
                pass
            for problem, prepare in (
                (other, "prepare"),
                (fewer, "prepare_anew"),
            ):
                with self.assertRaisesRegex(
                    errors.UserError, f"training .*{self.folder}.*--data_dir"
                ):
                    getattr(problem, prepare)(self.data_dir)
                self.assertEqual(content(self.data_dir), before)
        other.lock(self.data_dir)  # A process may replace its own data.
        other.prepare(self.data_dir)
        self.assertEqual(other.manifest(self.data_dir)["counts"]["train"], 7)
        with another_process("acquire_shared", self.folder):
            pass

    @parameterized.parameters("prepare", "prepare_anew")
    def test_two_processes_may_prepare_the_same_at_once(self, prepare):
        case = self

        class Slow:
            """Pairs that another process prepares while they are read."""

            def __iter__(self):
                yield from problem_test.TRAIN
                problem_test.make().prepare(case.data_dir)

        made = getattr(problem_test.make(Slow()), prepare)(self.data_dir)
        self.assertEqual(problem_test.make().manifest(self.data_dir), made)
        self.assertLen(list(self.data_dir.iterdir()), 1)


if __name__ == "__main__":
    absltest.main()
