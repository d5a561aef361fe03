"""Tests of how a machine is divided among processes."""

import os
import subprocess
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import slots


class DivideTest(parameterized.TestCase):
    def divide(self, number, cores, gpus=None, smi=None):
        """Divides a machine of these cores and CUDA_VISIBLE_DEVICES."""
        environment = dict(os.environ)
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        done = subprocess.CompletedProcess([], 0, smi, "")
        with (
            mock.patch.object(os, "sched_getaffinity", lambda pid: cores),
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch("shutil.which", lambda name: smi and f"/bin/{name}"),
            mock.patch.object(subprocess, "run", return_value=done),
        ):
            return slots.divide(number)

    @absltest.skipUnless(hasattr(os, "sched_setaffinity"), "Linux only.")
    def test_cores_are_divided_equally(self):
        found = self.divide(3, {2, 3, 5, 7, 11, 13, 17})
        self.assertEqual(
            found.parts,
            (
                slots.Slot({}, (2, 3)),
                slots.Slot({}, (5, 7)),
                slots.Slot({}, (11, 13)),
            ),
        )
        self.assertEqual(found.sharing, {"jobs": 3, "cores": 7, "gpus": 0})

    @parameterized.parameters(
        ("4,7", None, ("4", "7")),
        (None, "GPU-aa\nGPU-bb\nGPU-cc\n", ("GPU-aa", "GPU-bb")),
    )
    def test_every_slot_has_a_gpu_if_there_are_some(self, gpus, smi, expected):
        found = self.divide(2, {0}, gpus, smi)
        self.assertEqual(
            found.parts,
            tuple(slots.Slot({"CUDA_VISIBLE_DEVICES": x}) for x in expected),
        )
        self.assertEqual(found.sharing, {"jobs": 2, "cores": 1, "gpus": 2})

    def test_one_slot_is_the_whole_machine(self):
        found = self.divide(1, {0, 1}, "4,7")
        self.assertEqual(found.parts, (slots.Slot(),))
        self.assertIsNone(found.sharing)

    @parameterized.parameters("", "-1")
    def test_hidden_gpus_leave_the_cores(self, gpus):
        found = self.divide(2, {0, 1}, gpus, "GPU-aa\nGPU-bb\n")
        self.assertEqual(found.sharing["gpus"], 0)

    @parameterized.parameters(
        ({0, 1}, None, "one process for each core, 2 here. Received: 3."),
        ({0, 1, 2, 3}, "0,1", "one process for each GPU, 2 here. Received: 3."),
    )
    def test_more_than_there_are_parts_are_refused(self, cores, gpus, message):
        with self.assertRaisesRegex(errors.UserError, message):
            self.divide(3, cores, gpus)


if __name__ == "__main__":
    absltest.main()
