"""Forked processes are like the ones that `subprocess` starts."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

from absl.testing import absltest
from absl.testing import parameterized

from tests import commands

# A script, which is run in each of the three ways.
DESCRIBE = """
import os, signal, sys
sys.stderr.write("a warning\\n")
print(sys.argv, sys.orig_argv[1:], os.getcwd(), os.environ["GIVEN"])
print(len(os.environ), __name__, sys.path[0], os.getppid(), os.getsid(0))
print(os.getpgid(0), signal.getsignal(signal.SIGTERM), sys.stdin.read())
print([s.encoding + s.errors for s in (sys.stdin, sys.stdout, sys.stderr)])
sys.exit(7)
"""
LOOP = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)"


def results(words, **kwargs):
    """Returns what `subprocess` gives, and then what `commands` gives."""
    kwargs = {"capture_output": True, "text": True} | kwargs
    return [
        module.run([sys.executable, *words], check=False, **kwargs)
        for module in (subprocess, commands)
    ]


class CommandsTest(parameterized.TestCase):
    @parameterized.parameters("-c", "-m", "script")
    def test_process_gets_what_is_given(self, kind):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "describe.py").write_text(DESCRIBE)
        words = {
            "-c": ["-c", DESCRIBE],
            "-m": ["-m", "describe"],
            "script": ["describe.py"],
        }[kind]
        expected, actual = results(
            [*words, "a b", "--c=d"],
            cwd=folder,
            env=os.environ | {"GIVEN": "\u00e9\udcff"},
            input="in\u2028put",
            encoding="utf-8",
            errors="surrogateescape",
        )
        self.assertEqual(expected.returncode, 7)
        self.assertEqual(vars(actual), vars(expected))

    @parameterized.parameters(
        "pass",
        "import sys; sys.exit('a message')",
        "import os; os.close(1); os.write(2, b'kept')",
        "import atexit; atexit.register(print, 'at the end')",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import threading, time\n"
        "threading.Thread(target=lambda: print(time.sleep(0.1))).start()",
    )
    def test_process_ends_alike(self, code):
        expected, actual = results(["-c", code])
        self.assertEqual(vars(actual), vars(expected))

    def test_exception_is_told(self):
        expected, actual = results(["-c", "1 / 0"])
        self.assertEqual(actual.returncode, expected.returncode)
        self.assertEndsWith(
            actual.stderr, expected.stderr.splitlines()[-1] + "\n"
        )

    @parameterized.parameters(signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    def test_signal_ends_it(self, number):
        with commands.Popen(
            [sys.executable, "-c", LOOP],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            self.assertIsNone(process.poll())
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=60), -number)

    def test_reader_that_goes_away_is_noticed(self):
        code = "while True: print('more')"
        codes = []
        for module in (subprocess, commands):
            with module.Popen(
                [sys.executable, "-c", code],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process:
                process.stdout.readline()
                process.stdout.close()
                self.assertIn(b"BrokenPipeError", process.stderr.read())
                codes.append(process.wait(timeout=60))
        self.assertEqual(codes[0], codes[1])

    def test_process_holds_no_files_but_its_own(self):
        code = """
            import os, sys
            sys.exit([n for n in os.listdir("/proc/self/fd") if int(n) > 3])
        """
        expected, actual = results(["-c", textwrap.dedent(code)])
        self.assertEqual(vars(actual), vars(expected))

    def test_processes_are_apart(self):
        code = (
            "import random, numpy; print(random.random(), numpy.random.rand())"
        )
        outputs = {
            number
            for _ in range(2)
            for number in commands.run(
                [sys.executable, "-c", code], capture_output=True, check=True
            ).stdout.split()
        }
        self.assertLen(outputs, 4)

    def test_tensorflow_computes_in_a_session_of_its_own(self):
        code = """
            import os, time
            begin = time.process_time()
            import tensorflow as tf
            print(time.process_time() - begin < 0.5)
            print(os.getsid(0) == os.getpid())
            print(float(tf.function(tf.reduce_sum)(tf.ones([5, 7]))))
        """
        done = commands.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            check=True,
            start_new_session=True,
        )
        self.assertEqual(done.stdout, b"True\nTrue\n35.0\n")

    def test_time_is_limited(self):
        begin = time.monotonic()
        with self.assertRaises(subprocess.TimeoutExpired):
            commands.run([sys.executable, "-c", LOOP], timeout=0.5)
        self.assertLess(time.monotonic() - begin, 60)


if __name__ == "__main__":
    absltest.main()
