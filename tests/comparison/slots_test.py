"""Tests of how a machine is divided among processes."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.comparison import slots


@absltest.skipUnless(hasattr(os, "sched_getaffinity"), "Linux only.")
class DivideTest(parameterized.TestCase):
    def divide(self, number, cores, gpus=""):
        """Divides a machine of these cores and CUDA_VISIBLE_DEVICES."""
        with (
            mock.patch.object(os, "sched_getaffinity", lambda pid: cores),
            mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=gpus),
        ):
            return slots.divide(number)

    def test_cores_are_divided_equally(self):
        for gpus in ("", "-1"):  # hidden
            found = self.divide(3, {2, 3, 5, 7, 11, 13, 17}, gpus)
            cores = [part.cores for part in found.parts]
            self.assertEqual(cores, [(2, 3), (5, 7), (11, 13)])
            self.assertEqual(found.sharing, {"jobs": 3, "cores": 7, "gpus": 0})

    def test_every_slot_has_a_gpu_if_there_are_some(self):
        found = self.divide(2, {0}, "4, GPU-7,9")
        gpus = [
            part.environment["CUDA_VISIBLE_DEVICES"] for part in found.parts
        ]
        self.assertEqual(gpus, ["4", "GPU-7"])
        self.assertEqual(found.sharing, {"jobs": 2, "cores": 1, "gpus": 2})

    def test_one_slot_is_the_whole_machine(self):
        found = self.divide(1, {0, 1}, "4,7")
        self.assertEqual(found.parts, (slots.Slot(),))
        self.assertIsNone(found.sharing)

    @parameterized.parameters(
        ({0, 1}, "", "one process for each core, 2 here. Received: 3."),
        ({0, 1, 2, 3}, "0,1", "one process for each GPU, 2 here. Received: 3."),
    )
    def test_more_than_there_are_parts_are_refused(self, cores, gpus, message):
        with self.assertRaisesRegex(errors.UserError, message):
            self.divide(3, cores, gpus)
