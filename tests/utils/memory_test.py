"""Tests of the peak memory, and of the reuse of freed memory."""

import os
import platform
import unittest

from absl.testing import absltest

from tests.bin import calls

_PEAKS = """
from relpos_tf.utils import memory
before = memory.peak_mb()
b"x" * (int(before + 97) * 2**20)
print(before, memory.peak_mb())
"""
# Twelve times 48 MiB are taken, written to and given back; pages are 4 KiB.
_CHILD = """
import subprocess, sys
held = b"x" * (300 * 2**20)
code = "from relpos_tf.utils import memory; print(memory.peak_mb())"
subprocess.run([sys.executable, "-c", code], check=True)
"""
_FAULTS = """
import resource
from relpos_tf.utils import memory
memory.keep_freed()
def faults(times=48 * 2**20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(12):
        b"x" * times
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


class PeakTest(absltest.TestCase):
    def test_freed_memory_counts(self):
        before, after = map(float, calls.python("-c", _PEAKS).stdout.split())
        # Memory that was held before may have been freed since.
        self.assertBetween(after, before + 97, 2 * before + 150)

    @unittest.skipUnless(
        os.path.exists("/proc/self/status"), "The system counts its parent's."
    )
    def test_memory_of_the_process_that_started_it_does_not_count(self):
        peak = float(calls.python("-c", _CHILD).stdout)
        self.assertBetween(peak, 1, 250)


@unittest.skipUnless(
    platform.libc_ver()[0] == "glibc", "Needs the C library of GNU."
)
class KeepFreedTest(absltest.TestCase):
    def test_freed_memory_is_reused(self):
        number = int(calls.python("-c", _FAULTS).stdout)
        self.assertLess(number, 1000)
