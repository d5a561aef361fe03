"""Checkpoints are complete, survive a kill, and are averaged by name."""

import collections
import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import loading
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.training import devices
from tests import commands
from tests import testing

testing.use_two_cpus()


Usage = collections.namedtuple("Usage", "total used free")


class Kill(BaseException):
    """Stands for SIGKILL: nothing is cleaned up after it."""


@contextlib.contextmanager
def killed_at(number):
    """Raises in place of the file operation with that number, from 0 on."""
    left = number
    operations = {
        (os, "replace"): os.replace,
        (pathlib.Path, "unlink"): pathlib.Path.unlink,
    }

    def wrapped(operation):
        def function(*args, **kwargs):
            nonlocal left
            if left == 0:
                raise Kill
            left -= 1
            return operation(*args, **kwargs)

        return function

    with contextlib.ExitStack() as stack:
        for (owner, name), operation in operations.items():
            stack.enter_context(
                mock.patch.object(owner, name, wrapped(operation))
            )
        yield


def variables(*values):
    """Returns variables with the kind of names that Keras gives."""
    return {
        f"m/layer_{i}.x/q/kernel": tf.Variable(tf.constant(value))
        for i, value in enumerate(values)
    }


class CheckpointManagerTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model = variables([1.0, 2.0], [[3.0]])
        self.position = tf.Variable(0, dtype=tf.int64)
        self.manager = self.make(self.model)

    def make(self, model, **options):
        groups = {"model": model, "training": {"position": self.position}}
        return checkpoints.CheckpointManager(self.folder, groups, **options)

    def values(self, model):
        return [v.numpy().tolist() for v in model.values()]

    def test_restores_every_group(self):
        self.position.assign(5)
        self.manager.save(10)
        self.position.assign(0)
        other = variables([0.0, 0.0], [[0.0]])
        self.assertEqual(
            self.make(other).restore(), str(self.folder / "ckpt-10")
        )
        self.assertEqual(self.values(other), [[1.0, 2.0], [[3.0]]])
        self.assertEqual(int(self.position), 5)

    def test_model_alone_ignores_the_other_groups(self):
        prefix = self.manager.save(10)
        other = variables([0.0, 0.0], [[0.0]])
        checkpoints.restore_model(prefix, other)
        self.assertEqual(self.values(other), [[1.0, 2.0], [[3.0]]])

    def test_names_what_is_missing_unwanted_or_of_another_shape(self):
        prefix = self.manager.save(10)
        for model, expected in (
            (variables([0.0, 0.0], [[0.0]], [7.0]), "layer_2.x/q/kernel is m"),
            (variables([0.0, 0.0]), "layer_1.x/q/kernel is not wanted"),
            (variables([0.0], [[0.0]]), r"kernel has shape \[2\] and not \[1"),
        ):
            before = self.values(model)
            with self.assertRaisesRegex(errors.UserError, expected):
                checkpoints.restore_model(prefix, model)
            self.assertEqual(self.values(model), before)

    def test_keeps_the_newest(self):
        manager = self.make(self.model, keep_max=2)
        for step in (5, 100, 20):
            manager.save(step)
        self.assertEqual(manager.all_steps(), [20, 100])
        self.assertEqual(manager.latest(), str(self.folder / "ckpt-100"))

    def test_damaged_newest_gives_way_to_the_one_before(self):
        self.manager.save(10)
        self.model["m/layer_1.x/q/kernel"].assign([[9.0]])
        self.manager.save(20)
        data = self.folder / "ckpt-20.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:-3])
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            self.assertTrue(self.manager.restore().endswith("ckpt-10"))
        self.assertIn("ckpt-20", logs.output[0])
        self.assertEqual(self.values(self.model), [[1.0, 2.0], [[3.0]]])

    def test_empty_index_is_damage_too(self):
        self.manager.save(10)
        (self.folder / "ckpt-20.index").write_bytes(b"")
        self.assertTrue(
            checkpoints.resolve(self.folder).endswith("ckpt-10"),
        )

    def test_names_with_dots_and_capitals_come_back(self):
        names = ("a.Scale/w", "x..S/y", "p.q/r", "S./.S")
        model = {n: tf.Variable([3.0, float(i)]) for i, n in enumerate(names)}
        prefix = self.make(model).save(10)
        other = {name: tf.Variable([0.0, 0.0]) for name in names}
        checkpoints.restore_model(prefix, other)
        self.assertEqual(self.values(other), self.values(model))

    def test_save_after_a_damaged_checkpoint_is_kept(self):
        # The damaged one has a later step: it must not push the new one out.
        self.manager.save(10)
        self.manager.save(30)
        data = self.folder / "ckpt-30.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:-3])
        manager = self.make(self.model, keep_max=1)
        self.assertTrue(manager.restore().endswith("ckpt-10"))
        self.assertEqual(manager.all_steps(), [10])
        manager.save(25)
        self.assertEqual(manager.all_steps(), [25])
        self.assertTrue(manager.restore().endswith("ckpt-25"))

    def test_protected_checkpoints_stay(self):
        manager = self.make(self.model, keep_max=1)
        manager.save(5)
        manager.protect(5)
        for step in (7, 11):
            manager.save(step)
        self.assertEqual(manager.all_steps(), [5, 11])

    def test_keep_max_of_zero_keeps_all(self):
        manager = self.make(self.model, keep_max=0)
        for step in (2, 3, 5):
            manager.save(step)
        self.assertEqual(manager.all_steps(), [2, 3, 5])

    def test_stops_do_not_displace_the_others(self):
        manager = self.make(self.model, keep_max=2)
        for step, is_stop, kept, regular in (
            (3, True, [3], [3]),
            (5, False, [3, 5], [5]),
            (6, True, [3, 5, 6], [5, 6]),
            (7, True, [3, 5, 6, 7], [5, 7]),
            (8, True, [5, 6, 7, 8], [5, 8]),
            (9, True, [5, 7, 8, 9], [5, 9]),
            (10, False, [5, 8, 9, 10], [5, 10]),
            (15, False, [10, 15], [10, 15]),
            (16, True, [10, 15, 16], [10, 15, 16]),
            # The step becomes regular, and stays so.
            (16, False, [15, 16], [15, 16]),
            (16, True, [15, 16], [15, 16]),
        ):
            manager.save(step, is_stop)
            self.assertEqual(manager.all_steps(), kept, step)
            self.assertEqual(run_dir.regular_steps(self.folder), regular, step)
        self.assertEmpty(list(self.folder.glob("*.stop")))

    def test_restores_a_checkpoint_that_is_named(self):
        first = self.manager.save(10)
        self.model["m/layer_1.x/q/kernel"].assign([[9.0]])
        self.manager.save(20)
        self.assertEqual(self.manager.restore(first + ".index"), first)
        self.assertEqual(self.values(self.model), [[1.0, 2.0], [[3.0]]])
        self.assertEqual(self.manager.all_steps(), [10, 20])

    def test_misfit_in_one_group_changes_no_group(self):
        self.manager.save(10)
        model = variables([5.0, 7.0], [[11.0]])
        groups = {"model": model, "training": {"position": tf.Variable(2.0)}}
        other = checkpoints.CheckpointManager(self.folder, groups)
        with self.assertRaisesRegex(errors.UserError, "int64 and not float32"):
            other.restore()
        self.assertEqual(self.values(model), [[5.0, 7.0], [[11.0]]])

    def test_unexpected_group_is_named(self):
        self.manager.save(10)
        other = checkpoints.CheckpointManager(
            self.folder, {"model": self.model}
        )
        with self.assertRaisesRegex(errors.UserError, "position is not wanted"):
            other.restore()

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
        self.assertEqual(self.values(average), [[5.0, 7.0]])
        self.assertEqual(self.values(groups["model"]), self.values(self.model))
        manager.save(20)
        next(iter(average.values())).assign([0.0, 0.0])
        manager.restore()
        self.assertEqual(self.values(average), [[5.0, 7.0]])
        self.manager.restore()
        groups["training"]["later"] = tf.Variable(2.0)
        with self.assertRaisesRegex(errors.UserError, "later is missing"):
            checkpoints.CheckpointManager(self.folder, groups).restore()

    def test_tensorflow_finds_the_newest(self):
        manager = self.make(self.model, keep_max=2)
        for step in (2, 3, 5):
            manager.save(step)
            self.assertEqual(
                tf.train.latest_checkpoint(self.folder), manager.latest()
            )
        state = tf.train.get_checkpoint_state(self.folder)
        self.assertEqual(
            [os.path.basename(p) for p in state.all_model_checkpoint_paths],
            ["ckpt-3", "ckpt-5"],
        )

    def test_data_without_an_index_are_removed(self):
        self.manager.save(10)
        orphan = self.folder / "ckpt-20.data-00000-of-00001"
        orphan.write_bytes(b"x")
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            self.assertTrue(checkpoints.resolve(self.folder).endswith("-10"))
        self.assertIn("ckpt-20 has lost its index", logs.output[0])
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            manager = self.make(self.model)
        self.assertIn("ckpt-20 has lost its index", logs.output[0])
        self.assertFalse(orphan.exists())
        # What is pruned loses its index first, and is not missed.
        (self.folder / "ckpt-5.data-00000-of-00001").write_bytes(b"x")
        with self.assertNoLogs("relpos_tf", "WARNING"):
            manager = self.make(self.model)
        self.assertTrue(manager.restore().endswith("ckpt-10"))

    def test_left_overs_of_a_kill_are_removed(self):
        left_over = self.folder / "ckpt-30_temp"
        left_over.mkdir()
        (left_over / "part-00000-of-00001.data").write_bytes(b"x")
        self.make(self.model)
        self.assertFalse(left_over.exists())

    def test_resolve_says_what_is_there(self):
        with self.assertRaisesRegex(errors.UserError, "does not exist"):
            checkpoints.resolve(self.folder / "none")
        with self.assertRaisesRegex(errors.UserError, r"\['notes'\]"):
            (self.folder / "notes").write_text("x")
            checkpoints.resolve(self.folder)

    def test_saved_on_two_replicas_restored_on_one(self):
        with devices.strategy().scope():
            mirrored = variables([1.0, 2.0], [[3.0]])
        prefix = self.make(mirrored).save(10)
        checkpoints.restore_model(prefix, variables([0.0, 0.0], [[0.0]]))
        mirrored["m/layer_1.x/q/kernel"].assign([[0.0]])
        self.make(mirrored).restore()
        for copy in mirrored["m/layer_1.x/q/kernel"].values:
            self.assertEqual(copy.numpy().tolist(), [[3.0]])


class MoveTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.prefix = str(self.folder / "ckpt-20")

    def write(self, prefix, value):
        variables = {"a/b": tf.Variable(tf.fill([7], value))}
        tf.train.Checkpoint(model=variables).write(prefix)

    def restored(self):
        """Returns the value that a new process restores, or None."""
        variable = tf.Variable(tf.zeros([7]))
        manager = checkpoints.CheckpointManager(
            self.folder, {"model": {"a/b": variable}}
        )
        if not manager.latest():
            return None
        self.assertEqual(manager.restore(), self.prefix)
        self.assertEqual(len(set(variable.numpy().tolist())), 1)
        return float(variable[0])

    @parameterized.parameters(False, True)
    def test_kill_at_any_operation_leaves_one_of_the_two(self, is_replaced):
        found = []
        for number in range(20):
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            if is_replaced:
                self.write(self.prefix, 3.0)
            self.write(f"{self.prefix}_temp", 5.0)
            try:
                with killed_at(number):
                    checkpoints.move(f"{self.prefix}_temp", self.prefix)
            except Kill:
                found.append(self.restored())
            else:
                break
            names = sorted(path.suffix for path in self.folder.iterdir())
            self.assertNotIn(".part", names)
            self.assertEmpty(
                [p for p in self.folder.iterdir() if "_" in p.name]
            )
        else:
            self.fail("The move needs 20 operations or more.")
        self.assertEqual(self.restored(), 5.0)
        before = 3.0 if is_replaced else None
        self.assertEqual(found, sorted(found, key=lambda x: x == 5.0))
        self.assertEqual(set(found), {before, 5.0})

    def test_damaged_one_of_that_name_goes(self):
        pathlib.Path(f"{self.prefix}.index.damaged").write_bytes(b"x")
        self.write(f"{self.prefix}_temp", 5.0)
        checkpoints.move(f"{self.prefix}_temp", self.prefix)
        self.assertCountEqual(
            os.listdir(self.folder),
            ["ckpt-20.index", "ckpt-20.data-00000-of-00001"],
        )

    def test_half_of_a_new_one_is_removed(self):
        self.write(self.prefix, 3.0)
        half = pathlib.Path(f"{self.prefix}_new.data-00000-of-00001")
        half.write_bytes(b"x")
        (self.folder / "metrics.jsonl.0123abcd.part").write_bytes(b"x")
        self.assertEqual(self.restored(), 3.0)
        self.assertCountEqual(
            os.listdir(self.folder),
            ["ckpt-20.index", "ckpt-20.data-00000-of-00001", "checkpoint"],
        )


class AverageTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.prefixes = []
        for step, value in ((1, 0.1), (2, 0.7), (3, -0.3)):
            groups = {
                "model": variables([value, 2.0], [[3 * value]]),
                "optimizer": {"mean": tf.Variable(5.0)},
            }
            manager = checkpoints.CheckpointManager(self.folder, groups)
            self.prefixes.append(manager.save(step))

    def average(self, prefixes):
        output = str(self.folder / "mean")
        checkpoints.average(prefixes, output)
        model = variables([0.0, 0.0], [[0.0]])
        checkpoints.restore_model(output, model)
        return [v.numpy() for v in model.values()]

    def test_mean_of_three(self):
        first, second = self.average(self.prefixes)
        np.testing.assert_allclose(first, [0.5 / 3, 2.0], rtol=1e-7)
        np.testing.assert_allclose(second, [[0.5]], rtol=1e-7)

    def test_average_of_one_is_that_one(self):
        first, second = self.average(self.prefixes[:1])
        np.testing.assert_array_equal(first, np.float32([0.1, 2.0]))
        np.testing.assert_array_equal(second, np.float32([[3 * 0.1]]))

    def test_average_of_one_keeps_every_bit(self):
        values = np.float32([-0.0, 1e-45, 3.4e38, 0.1])
        model = {"w": tf.Variable(values)}
        folder = self.create_tempdir().full_path
        manager = checkpoints.CheckpointManager(folder, {"model": model})
        prefixes = [manager.save(step) for step in (7, 11, 13)]
        for number in (1, 3):
            output = os.path.join(folder, "mean")
            checkpoints.average(prefixes[:number], output)
            model["w"].assign([1.0, 1.0, 1.0, 1.0])
            checkpoints.restore_model(output, model)
            self.assertEqual(model["w"].numpy().tobytes(), values.tobytes())

    def test_has_the_last_step_and_no_optimizer(self):
        self.average(self.prefixes)
        reader = tf.train.load_checkpoint(str(self.folder / "mean"))
        keys = {k.split("/")[0] for k in reader.get_variable_to_shape_map()}
        self.assertNotIn("optimizer", keys)
        key = "training/step/.ATTRIBUTES/VARIABLE_VALUE"
        self.assertEqual(reader.get_tensor(key), 3)

    def test_refuses_what_holds_no_model(self):
        prefix = str(self.folder / "ckpt-7")
        tf.train.Checkpoint(other={"w": tf.Variable(1.0)}).write(prefix)
        with self.assertRaisesRegex(errors.UserError, "has no model"):
            checkpoints.average([prefix], str(self.folder / "mean"))

    def test_says_what_it_is_made_of(self):
        self.average(self.prefixes[1:])
        record = json.loads((self.folder / "mean.json").read_text())
        self.assertEqual(record, {"average_of": ["ckpt-2", "ckpt-3"]})
        # The file may be left behind when the checkpoint is copied.
        reader = tf.train.load_checkpoint(str(self.folder / "mean"))
        key = "training/average_of/.ATTRIBUTES/VARIABLE_VALUE"
        self.assertEqual(reader.get_tensor(key).tolist(), [2, 3])

    def test_refuses_an_average(self):
        average = str(self.folder / "ckpt-5")
        checkpoints.average(self.prefixes[:2], average)
        pathlib.Path(f"{average}.json").unlink()
        with self.assertRaisesRegex(errors.UserError, f"{average}, an aver"):
            self.average([self.prefixes[2], average])
        self.assertFalse((self.folder / "mean.index").exists())

    def test_refuses_none_and_the_same_twice(self):
        for prefixes in ([], [self.prefixes[0], self.prefixes[0] + ".index"]):
            with self.assertRaisesRegex(errors.UserError, "each once"):
                checkpoints.average(prefixes, str(self.folder / "mean"))

    def test_refuses_another_model(self):
        groups = {"model": variables([1.0])}
        other = checkpoints.CheckpointManager(
            self.create_tempdir().full_path, groups
        ).save(1)
        with self.assertRaisesRegex(errors.UserError, "of one model"):
            checkpoints.average(
                [self.prefixes[0], other], str(self.folder / "mean")
            )


_CHILD = """
    import pathlib
    import sys
    import numpy as np
    import tensorflow as tf
    from relpos_tf.models import checkpoints
    from relpos_tf.models import transformer
    from tests import testing

    folder = pathlib.Path(sys.argv[1])
    model = testing.randomize(transformer.Transformer(testing.HPARAMS))
    variables = {v.path: v.value for v in model.variables}
    groups = {"model": variables}
    checkpoints.CheckpointManager(folder / "run", groups).save(3)
    (folder / "run" / "hparams.json").write_text(testing.HPARAMS.to_json())
    logits = model(tf.constant([[3, 7, 1]]), tf.constant([[5, 2, 1]]))
    np.save(folder / "logits.npy", logits)

    model = {f"m/{i}": tf.Variable(tf.ones([200_003])) for i in range(7)}
    manager = checkpoints.CheckpointManager(folder, {"model": model}, 2)
    for step in range(1, 10**6):
        for variable in model.values():
            variable.assign(tf.fill([200_003], float(step)))
        manager.save(step)
        print(step, flush=True)
"""


class KilledProcessTest(absltest.TestCase):
    """Reads the files of a process that was killed while it saved."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="killed."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        with commands.Popen(
            [sys.executable, "-c", textwrap.dedent(_CHILD), str(cls.folder)],
            cwd=pathlib.Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            for line in process.stdout:
                if int(line) >= 7:
                    process.send_signal(signal.SIGKILL)
                    break
            cls.reported = [7, *map(int, process.stdout.read().split())]

    def test_the_newest_checkpoint_is_whole(self):
        model = {f"m/{i}": tf.Variable(tf.zeros([200_003])) for i in range(7)}
        manager = checkpoints.CheckpointManager(self.folder, {"model": model})
        step = int(manager.restore().rpartition("-")[2])
        self.assertGreaterEqual(step, self.reported[-1])
        for variable in model.values():
            np.testing.assert_array_equal(variable.numpy(), np.float32(step))
        self.assertEmpty(list(self.folder.glob("*_temp*")))

    def test_a_model_of_another_process_computes_the_same(self):
        model = loading.load_model(self.folder / "run" / "ckpt-3")
        logits = model(tf.constant([[3, 7, 1]]), tf.constant([[5, 2, 1]]))
        expected = np.load(self.folder / "logits.npy")
        np.testing.assert_array_equal(logits, expected)


class RoomTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model = {"a": tf.Variable(np.arange(1000, dtype=np.float32))}
        self.manager = checkpoints.CheckpointManager(
            self.folder, {"model": self.model}
        )

    def free(self, number):
        return mock.patch.object(
            shutil, "disk_usage", return_value=Usage(10**9, 0, number)
        )

    def test_full_disk_is_one_line_and_leaves_the_one_before(self):
        self.manager.save(1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with self.assertRaisesRegex(
                errors.UserError, "^Cannot write checkpoint [^\n]*$"
            ):
                self.manager.save(2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEndsWith(checkpoints.resolve(self.folder), "ckpt-1")
        self.assertEmpty(list(self.folder.glob("ckpt-2*")))

    def test_too_little_room_is_said_before_training(self):
        with (
            self.free(6_999_999),
            self.assertRaisesRegex(
                errors.UserError,
                r"7\.1 MB\. Received: 7\.0 MB free\. Make room",
            ),
        ):
            checkpoints.check_room(self.folder / "not/there", 7_100_000)
        with self.free(7_100_000):
            checkpoints.check_room(self.folder / "not/there", 7_100_000)

    @parameterized.parameters((3_999, True), (90_000, False))
    def test_save_warns_when_the_next_one_would_not_fit(self, free, expected):
        logs = self.assertLogs if expected else self.assertNoLogs
        with self.free(free), logs("relpos_tf", "WARNING") as found:
            self.manager.save(7)
        if expected:
            self.assertIn("Make room now", found.output[0])


if __name__ == "__main__":
    absltest.main()
