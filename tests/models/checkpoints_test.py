"""Checkpoints are complete, survive a kill, and are averaged by name."""

import collections
import errno
import io
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import zipfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import averages
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.training import devices
from relpos_tf.utils import signals
from relpos_tf.utils import system_errors
from tests import folders
from tests.models import example


def variables(*values):
    """Returns variables with the kind of names that Keras gives."""
    return {
        f"m/layer_{i}.x/q/kernel": tf.Variable(tf.constant(value))
        for i, value in enumerate(values)
    }


def values_of(model):
    return [v.numpy().tolist() for v in model.values()]


def damage(path):
    path.write_bytes(path.read_bytes()[:-30])


class CheckpointManagerTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.model = variables([1.0, 2.0], [[3.0]])
        self.position = tf.Variable(0, dtype=tf.int64)
        self.manager = self.make(self.model)

    def make(self, model, **options):
        groups = {"model": model, "training": {"position": self.position}}
        return checkpoints.CheckpointManager(self.folder, groups, **options)

    def test_a_checkpoint_is_a_file_of_arrays_that_restores_every_group(self):
        self.position.assign(5)
        prefix = self.manager.save(10)
        self.assertEqual(os.listdir(self.folder), ["ckpt-10.npz"])
        for restore in (
            lambda model: self.make(model).restore(),
            lambda model: checkpoints.restore_model(prefix, model),
        ):
            self.position.assign(0)
            other = variables([0.0, 0.0], [[0.0]])
            restore(other)
            self.assertEqual(values_of(other), [[1.0, 2.0], [[3.0]]])
        # The model alone ignores the other groups.
        self.assertEqual(int(self.position), 0)
        self.manager.restore()
        self.assertEqual(int(self.position), 5)
        with np.load(self.folder / "ckpt-10.npz") as arrays:
            found = {k: (v.dtype.name, v.tolist()) for k, v in arrays.items()}
        self.assertEqual(
            found,
            {
                "model/m/layer_0.x/q/kernel": ("float32", [1.0, 2.0]),
                "model/m/layer_1.x/q/kernel": ("float32", [[3.0]]),
                "training/position": ("int64", 5),
            },
        )

    def test_names_what_is_missing_unwanted_or_of_another_shape(self):
        prefix = self.manager.save(10)
        model = variables([5.0, 7.0], [[11.0]])
        for training, words in (
            ({}, "position is not wanted"),
            ({"position": tf.Variable(2.0)}, "int64 .* not float32"),
        ):
            groups = {"model": model, "training": training}
            other = checkpoints.CheckpointManager(self.folder, groups)
            with self.assertRaisesRegex(errors.UserError, words):
                other.restore()
            self.assertEqual(values_of(model), [[5.0, 7.0], [[11.0]]])
        for model, expected in (
            (variables([0.0, 0.0], [[0.0]], [7.0]), "layer_2.x/q/kernel is m"),
            (variables([0.0, 0.0]), "layer_1.x/q/kernel is not wanted"),
            (variables([0.0], [[0.0]]), r"kernel is float32 \[2\] and not f"),
        ):
            before = values_of(model)
            with self.assertRaisesRegex(errors.UserError, expected):
                checkpoints.restore_model(prefix, model)
            self.assertEqual(values_of(model), before)

    def assert_unreadable(self, error):
        """Checks that an error ends in its sentence, and changes nothing."""
        for restore in (
            self.manager.restore,
            lambda: checkpoints.resolve(self.folder),
        ):
            with self.assertRaises(OSError) as raised:
                restore()
            self.assertEqual(
                system_errors.explanation(raised.exception),
                f"{self.folder}/ckpt-20.npz: {os.strerror(error).lower()}.",
            )
        self.assertEqual(run_dir.all_steps(self.folder), [10, 20])

    @parameterized.parameters(
        (OSError(errno.EIO, "broken"), errno.EIO), (MemoryError(), errno.ENOMEM)
    )
    def test_what_the_system_cannot_read_is_not_damaged(self, error, number):
        self.manager.save(10)
        prefix = self.manager.save(20)
        reads = 0

        class File(io.FileIO):
            """Fails at one of its reads."""

            def readinto(self, buffer):
                nonlocal reads
                reads -= 1
                if not reads:
                    raise error
                return super().readinto(buffer)

            def readall(self):
                self.readinto(bytearray(0))
                return super().readall()

        with mock.patch.object(io, "FileIO", File):
            checkpoints.read(prefix)
            number_of_reads = -reads
            self.assertGreater(number_of_reads, 2)
            for place in range(1, number_of_reads + 1):
                reads = place
                with self.assertRaises(OSError) as raised:
                    checkpoints.read(prefix)
                self.assertEqual(raised.exception.errno, number, place)

    def test_what_cannot_be_opened_is_not_damaged(self):
        self.manager.save(10)
        path = pathlib.Path(f"{self.manager.save(20)}.npz")
        with mock.patch.object(
            np.lib.format, "read_array", side_effect=MemoryError
        ):
            self.assert_unreadable(errno.ENOMEM)
        path.rename(self.folder / "elsewhere")
        path.symlink_to(self.folder / "nowhere")
        self.assert_unreadable(errno.ENOENT)
        path.unlink()
        path.mkdir()
        self.assert_unreadable(errno.EISDIR)

    def test_a_checkpoint_that_goes_meanwhile_gives_way_silently(self):
        self.write("hparams.json")
        self.manager.save(10)
        self.manager.save(20)
        with (
            self.assertNoLogs("relpos_tf", "WARNING"),
            mock.patch.object(run_dir, "all_steps", return_value=[10, 30]),
        ):
            found = checkpoints.resolve(self.folder)
        self.assertEqual(found, str(self.folder / "ckpt-10"))

    @parameterized.parameters((2, [5, 11, 20]), (0, [5, 7, 11, 20]))
    def test_the_newest_and_protected_ones_are_kept(self, keep_max, kept):
        manager = self.make(self.model, keep_max=keep_max)
        manager.save(5)
        manager.protect(5)
        for step in (7, 11, 20):
            manager.save(step)
        self.assertEqual(manager.all_steps(), kept)

    def test_a_damaged_checkpoint_gives_way_to_the_one_before_and_the_next(
        self,
    ):
        self.manager.save(10)
        self.model["m/layer_1.x/q/kernel"].assign([[9.0]])
        self.manager.save(30)
        damage(self.folder / "ckpt-30.npz")
        manager = self.make(self.model, keep_max=1)
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            self.assertTrue(manager.restore().endswith("ckpt-10"))
        self.assertIn("ckpt-30", logs.output[0])
        self.assertEqual(values_of(self.model), [[1.0, 2.0], [[3.0]]])
        self.assertEqual(manager.all_steps(), [10])
        # The damaged one has a later step: it must not push the new one out.
        manager.save(25)
        self.assertEqual(manager.all_steps(), [25])
        self.assertTrue(manager.restore().endswith("ckpt-25"))

    def test_the_checkpoint_of_a_stop_goes_when_the_next_is_saved(self):
        manager = self.make(self.model, keep_max=2)
        for step, is_stop, kept in (
            (3, True, [3]),
            (5, False, [5]),
            (6, True, [5, 6]),
            (7, True, [5, 7]),
            (10, False, [5, 10]),
            (15, False, [10, 15]),
            (16, True, [10, 15, 16]),
            # The step becomes regular, and stays so.
            (16, False, [15, 16]),
            (16, True, [15, 16]),
            (17, True, [15, 16, 17]),
        ):
            manager.save(step, is_stop)
            self.assertEqual(manager.all_steps(), kept, step)

    def test_a_run_may_begin_and_end_to_keep_moving_averages(self):
        self.manager.save(10)
        average = variables([5.0, 7.0])
        groups = {
            "model": variables([0.0, 0.0], [[0.0]]),
            "training": {"position": tf.Variable(0, dtype=tf.int64)},
            "moving_average": average,
        }
        manager = checkpoints.CheckpointManager(self.folder, groups)
        manager.restore()
        self.assertEqual(values_of(average), [[5.0, 7.0]])
        self.assertEqual(values_of(groups["model"]), values_of(self.model))
        manager.save(20)
        next(iter(average.values())).assign([0.0, 0.0])
        manager.restore()
        self.assertEqual(values_of(average), [[5.0, 7.0]])
        self.manager.restore()
        groups["training"]["later"] = tf.Variable(2.0)
        with self.assertRaisesRegex(errors.UserError, "later is missing"):
            checkpoints.CheckpointManager(self.folder, groups).restore()

    def test_saved_on_two_replicas_restored_on_one(self):
        with devices.strategy().scope():
            mirrored = variables([1.0, 2.0], [[3.0]])
        prefix = self.make(mirrored).save(10)
        checkpoints.restore_model(prefix, variables([0.0, 0.0], [[0.0]]))
        mirrored["m/layer_1.x/q/kernel"].assign([[0.0]])
        self.make(mirrored).restore()
        for copy in mirrored["m/layer_1.x/q/kernel"].values:
            self.assertEqual(copy.numpy().tolist(), [[3.0]])

    def test_a_signal_waits_until_the_checkpoint_is_there(self):
        replace = os.replace

        def signalled(*paths):
            signal.raise_signal(signal.SIGTERM)
            replace(*paths)

        with (
            mock.patch.object(os, "replace", signalled),
            self.assertRaises(signals.Stopped),
            signals.caught(),
        ):
            self.manager.save(10)
        self.assertEqual(os.listdir(self.folder), ["ckpt-10.npz"])
        self.manager.restore()

    def test_left_overs_of_a_kill_are_removed(self):
        self.manager.save(10)
        for name in ("ckpt-20.npz.0123abcd", "dev.de.0123abcd", "own"):
            (self.folder / f"{name}.part").write_bytes(b"x")
        self.assertTrue(self.make(self.model).restore().endswith("ckpt-10"))
        self.assertCountEqual(
            os.listdir(self.folder), ["ckpt-10.npz", "own.part"]
        )

    @parameterized.parameters("dev.de", "ckpt-7.npz")
    def test_what_another_process_is_writing_stays(self, name):
        write = (
            "import sys; from relpos_tf.utils import files\n"
            "with files.replacing(sys.argv[1]) as file:\n"
            "    print(flush=True), sys.stdin.read(), file.write(b'lines')\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", write, self.folder / name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as writer:
            writer.stdout.readline()
            self.make(self.model)
            writer.stdin.close()
        self.assertEqual(writer.returncode, 0)
        self.assertEqual((self.folder / name).read_bytes(), b"lines")


class DamageTest(folders.TestCase):
    """A damaged file is an error, or has the values that were saved."""

    def setUp(self):
        super().setUp()
        self.model = {
            f"m/{i}": tf.Variable(tf.random.stateless_normal([i, 5], [i, 3]))
            for i in range(1, 4)
        }
        manager = checkpoints.CheckpointManager(
            self.folder, {"model": self.model}
        )
        self.path = pathlib.Path(f"{manager.save(7)}.npz")

    def restored(self, content):
        """Returns the variables restored from a content; None: refused."""
        self.path.write_bytes(content)
        found = {
            name: tf.Variable(tf.zeros_like(v))
            for name, v in self.model.items()
        }
        try:
            checkpoints.restore_model(str(self.path)[:-4], found)
        except errors.UserError:
            for value in found.values():
                self.assertFalse(value.numpy().any())
            return None
        return values_of(found)

    def test_a_flipped_bit_anywhere_is_refused_or_does_not_matter(self):
        content = self.path.read_bytes()
        expected = values_of(self.model)
        outcomes = collections.Counter()
        for place in range(0, len(content), 3):
            damaged = bytearray(content)
            damaged[place] ^= 1 << place % 8
            found = self.restored(damaged)
            self.assertIn(found, [None, expected], place)
            outcomes[found is None] += 1
        # The others are dates, versions and permissions of the archive.
        self.assertGreater(outcomes[True], 3 * outcomes[False])

    def test_a_file_that_is_cut_or_has_a_gap_is_refused(self):
        content = self.path.read_bytes()
        for place in range(0, len(content) - 16, 37):
            self.assertIsNone(self.restored(content[:place]))
            self.assertIsNone(
                self.restored(content[:place] + content[place + 16 :])
            )

    @parameterized.parameters(
        {"compression": zipfile.ZIP_DEFLATED},
        {"compression": zipfile.ZIP_LZMA},
        {"times": 99},  # in one place
        {"group": "other"},
        {"value": {}},  # a pickle
    )
    def test_members_that_are_no_arrays_of_a_checkpoint_are_refused(
        self, compression=zipfile.ZIP_STORED, times=1, group="model", value=1.0
    ):
        content = io.BytesIO()
        np.lib.format.write_array(content, np.array([[value] * 5]))
        with zipfile.ZipFile(self.path, "w") as archive:
            name = f"{group}/m/1.npy"
            archive.writestr(name, content.getvalue(), compression)
            archive.filelist *= times
        with self.assertRaisesRegex(errors.UserError, "ckpt-7 is damaged"):
            checkpoints.read(self.folder / "ckpt-7")


class AverageTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.prefixes = []
        for step, value in ((1, 0.1), (2, 0.7), (3, -0.3)):
            groups = {
                "model": variables([value, 2.0], [[3 * value]]),
                "optimizer": variables([7.0]),
            }
            manager = checkpoints.CheckpointManager(self.folder, groups)
            self.prefixes.append(manager.save(step))

    def test_average_of_one_and_of_equal_ones_keeps_every_bit(self):
        values = np.float32([-0.0, 1e-45, 3.4e38, 0.1])
        model = {"w": tf.Variable(values)}
        manager = checkpoints.CheckpointManager(self.folder, {"model": model})
        for step in (7, 11, 13):
            manager.save(step)
        for steps in ([7], [7, 11, 13]):
            (self.folder / "average").mkdir(exist_ok=True)
            (self.folder / "average/ckpt-7.npz.0123abcd.part").touch()
            output = averages.write(self.folder, steps, 13)
            self.assertEmpty(list(self.folder.rglob("*.part")))  # of a kill
            model["w"].assign([1.0, 1.0, 1.0, 1.0])
            checkpoints.restore_model(output, model)
            self.assertEqual(model["w"].numpy().tobytes(), values.tobytes())

    def test_is_the_mean_with_the_steps_and_no_optimizer(self):
        output = averages.write(self.folder, (1, 2, 3), 9)
        self.assertEqual(output, f"{self.folder}/average/ckpt-9")
        model = variables([0.0, 0.0], [[0.0]])
        checkpoints.restore_model(output, model)
        first, second = model.values()
        np.testing.assert_allclose(first, [0.5 / 3, 2.0], 1e-7, 1e-7)
        np.testing.assert_allclose(second, [[0.5]], 1e-7, 1e-7)
        prefix = self.folder / "average/ckpt-9"
        found = checkpoints.read(prefix)
        groups = {name.split("/")[0] for name in found}
        self.assertEqual(groups, {"model", "training"})
        self.assertEqual(found["training/step"], 3)
        self.assertEqual(checkpoints.averaged_steps(prefix), [1, 2, 3])
        self.assertEqual(checkpoints.averaged_steps(self.prefixes[0]), [])

    def test_resolve_says_what_is_there(self):
        (self.folder / "none").mkdir()
        (self.folder / "none" / "notes").write_text("x")
        for name, words in (
            ("nowhere", "does not exist"),
            ("none", "is none of them"),
            ("ckpt-11", "The steps there: 1, 2, 3"),
        ):
            with self.assertRaisesRegex(errors.UserError, words):
                checkpoints.resolve(self.folder / name)


class ResultTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.run = run_dir.RunDir(self.folder / "run")
        self.run.write_hparams(hparam.HParams(train_steps=1500))

    def make(self, *names):
        for name in names:
            path = self.run.path / name
            path.parent.mkdir(exist_ok=True)
            step = run_dir.checkpoint_step(path)
            checkpoints.write_model(str(path), {"w": np.float32(step)}, step)

    def name(self, path=""):
        """Returns what a path of the run stands for, and what is logged."""
        with self.assertLogs("relpos_tf", "INFO") as logs:
            found = checkpoints.resolve(self.run.path / path)
        return os.path.relpath(found, self.run.path), logs.output

    @parameterized.parameters(
        (["ckpt-8", "ckpt-9", "ckpt-10"], "ckpt-10", None),
        (["ckpt-9", "ckpt-10", "average/ckpt-10"], "average/ckpt-10", None),
        (["ckpt-9", "ckpt-10", "average/ckpt-9"], "ckpt-10", "average/ckpt-9"),
        (["average/ckpt-9", "average/ckpt-10"], "average/ckpt-10", None),
        (["ckpt-9", "average/ckpt-10"], "average/ckpt-10", None),
    )
    def test_a_run_stands_for_its_result(self, names, expected, older):
        self.make(*names)
        # Copies have times of their own.
        os.utime(self.run.path / f"{expected}.npz", (1, 1))
        for path in ("", "."):
            found, logs = self.name(path)
            self.assertEqual(found, expected)
            self.assertLen(logs, 1)
            self.assertIn(f"/{expected}", logs[0])
        self.assertEqual("older" in logs[0], older is not None)
        self.assertIn(older or "", logs[0])
        self.assertEqual(
            checkpoints.candidates(self.run.path)[0],
            str(self.run.path / expected),
        )

    def test_damaged_results_give_way_with_a_warning(self):
        self.make("ckpt-9", "average/ckpt-10", "ckpt-10", "average/ckpt-9")
        for name, expected in (
            ("average/ckpt-10", "ckpt-10"),
            ("ckpt-10", "average/ckpt-9"),
            ("average/ckpt-9", "ckpt-9"),
        ):
            damage(self.run.path / f"{name}.npz")
            found, logs = self.name()
            self.assertEqual(found, expected)
            self.assertIn(name, logs[-2])
        damage(self.run.path / "ckpt-9.npz")
        with self.assertRaisesRegex(errors.UserError, "Expected a checkpoint"):
            checkpoints.resolve(self.run.path)

    def test_a_path_below_the_run_stands_for_what_is_there(self):
        self.make("average/ckpt-10", "average/ckpt-9", "ckpt-10", "ckpt-11")
        self.assertEqual(self.name("average")[0], "average/ckpt-10")
        self.run.write_flags("--train_steps=20\n")
        with self.assertNoLogs("relpos_tf"):
            for end in ("", ".npz", "/"):
                found = checkpoints.resolve(f"{self.run.path}/ckpt-10{end}")
                self.assertEqual(found, str(self.run.path / "ckpt-10"))

    def test_best_is_the_one_that_is_marked(self):
        self.make("ckpt-9", "ckpt-10", "average/ckpt-10")
        path = self.run.path / "best"
        with self.assertRaisesRegex(errors.UserError, "best, which does not"):
            checkpoints.resolve(path)
        self.assertNotIn("(best", self.name()[1][0])
        self.run.mark(run_dir.BEST, 9)
        self.run.mark(run_dir.BEST, 11)  # somebody has removed it
        for name in ("best", "best/", "./best", "average/../best"):
            found, said = self.name(name)
            self.assertEqual(found, "ckpt-9")
            self.assertNotIn("(best", said[0])
        self.assertIn("(best: ckpt-9)", self.name()[1][0])
        manager = checkpoints.CheckpointManager(self.run.path, {}, keep_max=1)
        manager.save(12)
        self.assertEqual(manager.all_steps(), [9, 12])
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.run.path)
        self.assertEqual(checkpoints.resolve("best"), "ckpt-9")
        # A folder is a folder.
        path.mkdir()
        with self.assertRaisesRegex(errors.UserError, "is none of them"):
            checkpoints.resolve(path)
        self.make("best/ckpt-7")
        self.assertEqual(self.name("best")[0], "best/ckpt-7")

    @parameterized.parameters(
        ("--train_steps=1000\n", "200 of 1,000 updates"),
        ("--train_steps=0\n", "200 of 1,500 updates"),
        ("--train_steps=\n", "200 of 1,500 updates"),
    )
    def test_a_run_that_has_not_ended_says_so(self, flags, expected):
        self.make("ckpt-100", "ckpt-200")
        self.assertLen(self.name()[1], 1)  # It is imported.
        self.run.write_flags(flags)
        self.run.mark(run_dir.END, 100)  # before it went on
        self.run.mark(run_dir.BEST, 100)
        self.make("average/ckpt-100")
        for path in ("", "best", "average"):
            self.assertIn(expected, self.name(path)[1][1])
        self.run.mark(run_dir.END, 200)
        for path in ("", "best", "average"):
            self.assertLen(self.name(path)[1], 1)
        self.run.truncate(200)  # Its training goes on.
        self.assertIn(expected, self.name()[1][1])

    def test_after_the_last_update_only_an_average_can_be_missing(self):
        self.make("ckpt-100", "ckpt-200")
        self.run.write_flags("--train_steps=200\n")
        self.assertLen(self.name()[1], 1)
        hparams = self.run.read_hparams().replace(average_checkpoints=2)
        self.run.write_hparams(hparams)
        self.assertIn("200 of 200 updates, without the", self.name()[1][1])
        self.make("average/ckpt-200")
        self.assertLen(self.name()[1], 1)


_CHILD = """
    import sys
    import tensorflow as tf
    from relpos_tf.models import checkpoints

    model = {f"m/{i}": tf.Variable(tf.ones([200_003])) for i in range(7)}
    groups = {"model": model}
    manager = checkpoints.CheckpointManager(sys.argv[1], groups, 2)
    for step in range(1, 10**6):
        for variable in model.values():
            variable.assign(tf.fill([200_003], float(step)))
        manager.save(step)
        print(step, flush=True)
"""


class KilledProcessTest(folders.TestCase):
    def test_the_newest_checkpoint_of_a_killed_process_is_whole(self):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_CHILD), str(self.folder)],
            cwd=pathlib.Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            for line in process.stdout:
                if int(line) >= 7:
                    process.send_signal(signal.SIGKILL)
                    break
            reported = [7, *map(int, process.stdout.read().split())]
        model = {f"m/{i}": tf.Variable(tf.zeros([200_003])) for i in range(7)}
        manager = checkpoints.CheckpointManager(self.folder, {"model": model})
        step = int(manager.restore().rpartition("-")[2])
        self.assertGreaterEqual(step, reported[-1])
        for variable in model.values():
            np.testing.assert_array_equal(variable.numpy(), np.float32(step))
        self.assertEmpty(list(self.folder.glob("*.part")))


class RoomTest(folders.TestCase):
    def test_full_disk_is_one_line_and_leaves_the_one_before(self):
        model = {"a": tf.Variable(np.arange(1000, dtype=np.float32))}
        manager = checkpoints.CheckpointManager(self.folder, {"model": model})
        manager.save(1)
        with example.files_up_to(1000), self.assertRaises(OSError) as raised:
            manager.save(2)
        path = self.folder / "ckpt-2.npz"
        self.assertEqual(
            system_errors.explanation(raised.exception),
            f"{path}: file too large. Make room in {self.folder}.",
        )
        self.assertEqual(os.listdir(self.folder), ["ckpt-1.npz"])
