"""A prepared folder is what was written, or an error names the file."""

import json
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import records
from relpos_tf.problems import prepared
from tests.problems import problem_test


class PreparedTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.data_dir = pathlib.Path(self.create_tempdir().full_path)
        self.pets = problem_test.make()
        self.manifest = self.pets.prepare(self.data_dir)
        self.folder = self.data_dir / "pets"

    def rewrite(self, **fields):
        """Writes another manifest, as somebody else might."""
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

    def test_folders_of_before_there_were_checksums_are_read(self):
        del self.manifest["lengths"]
        self.rewrite()
        self.assertEqual(self.pets.manifest(self.data_dir), self.manifest)
        self.assertLen(self.pets.record_files(self.data_dir, "train"), 3)
        self.assertIsNone(prepared.longer_than(self.manifest, 1))

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

    def test_what_a_killed_process_left_is_removed(self):
        lost, working = (
            self.data_dir / f".pets.{name}" for name in ("abcdefgh", "12345678")
        )
        other = self.data_dir / ".pets-2.abcdefgh"
        for folder in (lost, working, other):
            folder.mkdir()
            (folder / "dev.source").write_text("half")
        code = (
            "import sys; from relpos_tf import claims; "
            "claims.claim(sys.argv[1]); print(); input()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(working)],
            cwd=pathlib.Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            process.stdout.readline()
            self.pets.prepare(self.data_dir)  # nothing to do
            self.assertTrue(lost.exists())
            problem_test.make(vocab_size=290).prepare(self.data_dir)
            self.assertFalse(lost.exists())
            self.assertTrue(working.exists())
            self.assertTrue(other.exists())
            process.communicate(b"\n")
        problem_test.make(vocab_size=295).prepare(self.data_dir)
        self.assertFalse(working.exists())

    def test_fingerprints_are_of_the_content_of_each_split(self):
        first = prepared.fingerprints(self.manifest)
        self.assertEqual(first.keys(), {"train", "dev"})
        again = problem_test.make().prepare(self.data_dir / "again")
        self.assertEqual(prepared.fingerprints(again), first)
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
            found = prepared.fingerprints(other)
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
        self.assertEqual(prepared.longer_than(self.manifest, 0), 31)
        self.assertEqual(
            prepared.longer_than(self.manifest, min(lengths)),
            31 - lengths[min(lengths)],
        )
        self.assertEqual(prepared.longer_than(self.manifest, max(lengths)), 0)
        records.check(files, self.manifest["vocab_size"])


if __name__ == "__main__":
    absltest.main()
