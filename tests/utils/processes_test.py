"""Tests of a pool of processes: order, errors, deaths."""

import operator
import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.utils import processes


def squares(numbers, pool):
    """Returns the squares of numbers, by functions of the library."""
    return list(pool.map(operator.methodcaller("__pow__", 2), numbers))


class PoolTest(absltest.TestCase):
    def test_results_come_in_order_for_any_number_of_processes(self):
        expected = [i * i for i in range(40)]
        for number in (1, 2, 3):
            with processes.Pool(number) as pool:
                self.assertEqual(squares(range(40), pool), expected)

    def test_few_calls_start_no_process(self):
        with processes.Pool(2) as pool:
            self.assertEqual(set(pool.map(_process, range(4))), {os.getpid()})
            self.assertNotIn(os.getpid(), pool.map(_process, range(9)))

    def test_arguments_are_taken_as_they_are_needed(self):
        taken = []

        def numbers():
            for i in range(100):
                taken.append(i)
                yield i

        with processes.Pool(2) as pool:
            results = pool.map(abs, numbers())
            next(results)
            self.assertLess(len(taken), 10)
            results.close()

    def test_errors_are_those_of_the_function(self):
        with processes.Pool(2) as pool:
            with self.assertRaisesRegex(errors.UserError, "no such file"):
                list(pool.map(_refuse, range(9)))

    def test_a_value_that_a_process_cannot_load_is_no_death(self):
        with processes.Pool(2) as pool:
            with self.assertRaisesRegex(ZeroDivisionError, "in loading"):
                list(pool.map(type, map(Unloadable, range(9))))

    def test_a_killed_process_is_noticed(self):
        with processes.Pool(2) as pool:
            with self.assertRaisesRegex(
                processes.LostError,
                "killed.*Run again.*relpos-datagen with --num_processes=1",
            ):
                list(pool.map(_kill, range(9)))

    def test_processes_end_when_the_first_one_is_killed(self):
        code = (
            "import os, time\n"
            "from relpos_tf.utils import processes\n"
            "if __name__ == '__main__':\n"
            "    with processes.Pool(2) as pool:\n"
            "        found = pool.map(os.getpgid, [0] * 99)\n"
            "        next(found)\n"
            "        workers = [p.pid for p in "
            "pool._executor._processes.values()]\n"
            "        print(*workers, flush=True)\n"
            "        time.sleep(60)\n"
        )
        script = pathlib.Path(self.create_tempdir().full_path, "first.py")
        script.write_text(code)
        first = subprocess.Popen(
            [sys.executable, script], stdout=subprocess.PIPE, text=True
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


class Unloadable:
    """Can be sent, and not be received."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _fail_to_load, ()


def _fail_to_load():
    raise ZeroDivisionError("in loading")


def _process(_):
    return os.getpid()


def _refuse(_):
    raise errors.UserError("no such file")


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


if __name__ == "__main__":
    absltest.main()
