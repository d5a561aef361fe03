"""Tests of calls in several processes: order, errors, deaths."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.problems import processes


class OrderedMapTest(absltest.TestCase):
    def test_few_calls_start_no_process(self):
        found = processes.ordered_map(_process, range(4), 2)
        self.assertEqual(set(found), {os.getpid()})
        found = processes.ordered_map(_process, range(9), 2)
        self.assertNotIn(os.getpid(), found)

    def test_arguments_are_taken_as_they_are_needed(self):
        taken = []

        def numbers():
            for i in range(100):
                taken.append(i)
                yield i

        results = processes.ordered_map(abs, numbers(), 2)
        next(results)
        self.assertLess(len(taken), 10)
        results.close()

    def test_a_killed_process_is_noticed(self):
        with self.assertRaisesRegex(
            errors.UserError, "relpos-datagen with --num_processes=1"
        ):
            list(processes.ordered_map(_kill, range(9), 2))

    def test_processes_end_when_the_first_one_is_killed(self):
        code = (
            "import time\n"
            "from relpos_tf.problems import processes\n"
            "from tests.problems import processes_test\n"
            "if __name__ == '__main__':\n"
            "    found = processes.ordered_map(\n"
            "        processes_test._process, range(99), 2\n"
            "    )\n"
            "    print(next(found), next(found), flush=True)\n"
            "    time.sleep(60)\n"
        )
        script = pathlib.Path(self.create_tempdir().full_path, "first.py")
        script.write_text(code)
        first = subprocess.Popen(
            [sys.executable, script],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        workers = list(map(int, first.stdout.readline().split()))
        self.assertNotEmpty(workers)
        first.kill()
        first.wait()
        first.stdout.close()
        deadline = time.monotonic() + 30
        while any(map(_lives, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(any(map(_lives, workers)))


def _process(_):
    return os.getpid()


def _kill(number):
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _lives(process):
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
