"""The messages and exit codes of a command.

Each function below is a `main`; this module is its command, whose docstring
and `FLAGS` the harness reads.
"""

import contextlib
import errno
import io
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.utils import signals

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = command.Flags()
FLAGS.define_string("problem", None, "The data\n set.")
FLAGS.define_integer("steps", 7, "How long.", 1)
FLAGS.define_bool("xla", False, "Compiles.")
FLAGS.define_enum("mode", "a", ["a", "b"], "Way.")
FLAGS.define_list("files", [], "Names.")


def show_flags():
    values = FLAGS.problem, FLAGS.steps, FLAGS.xla, FLAGS.mode, FLAGS.files
    sys.stdout.write(repr(values))


def need_problem():
    command.require(FLAGS, "steps", "problem")


def return_three():
    return 3


def raise_user_error():
    raise errors.UserError("The file is empty. Received: x.")


def blame_flag():
    with command.flag_value("problem"):
        raise errors.UserError("Unknown problem `x`.")


def open_missing():
    with open("no/such/file", encoding="utf-8"):
        pass


def fill_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def press_control_c():
    raise KeyboardInterrupt


def be_terminated():
    with signals.caught():
        signal.raise_signal(signal.SIGTERM)


def need_memory():
    raise MemoryError


def need_device_memory():
    import tensorflow as tf

    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nx")


def fill_tensorflows_disk():
    import tensorflow as tf

    raise tf.errors.ResourceExhaustedError(
        None, None, "append to d/e.v2: No space left on device\nwhile flushing"
    )


def raise_foreign_text():
    raise errors.UserError("Received: \x1b[2J\x9b31m\u202e, spoken.")


def write_foreign_text():
    command.write("a\x1b[31m\tb\n")
    command.logger().info("file \x1b]0;title\x07\r of\ntwo lines")


def read_input():
    sys.stdin.buffer.read()


def have_a_bug():
    raise ZeroDivisionError("division by zero")


def fail_without_path():
    raise OSError(errno.EINVAL, "odd")


def log_lines():
    command.logger().info("100 steps")
    command.logger().warning("3 lines were empty")


def execute(main, *arguments):
    """Returns (exit code, standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.execute(main, arguments)
    return code, out.getvalue(), err.getvalue()


def python(code, **environment):
    """Runs Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


class FlagsTest(parameterized.TestCase):
    def test_flags_have_the_values_of_the_command_line(self):
        code, out, err = execute(
            show_flags, "--problem=p", "--steps", "5", "--xla", "--files=a,b"
        )
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "('p', 5, True, 'a', ['a', 'b'])")

    def test_flags_of_an_earlier_run_are_reset(self):
        execute(show_flags, "--problem=p", "--steps=5", "--xla", "--mode=b")
        _, out, _ = execute(show_flags)
        self.assertEqual(out, "(None, 7, False, 'a', [])")

    @parameterized.named_parameters(
        ("value_of_another_type", ["--steps=abc"], "--steps=abc"),
        ("value_out_of_range", ["--steps=0"], "--steps=0"),
        ("value_that_is_no_choice", ["--mode=c"], "a|b"),
        ("missing_value", ["--problem"], "--problem"),
        ("word_that_is_no_flag", ["--steps=5", "p.txt"], "'p.txt'"),
        ("flag_file_that_is_missing", ["--flagfile=no/f"], "no/f"),
    )
    def test_bad_command_line_is_one_line(self, arguments, expected):
        code, out, err = execute(show_flags, *arguments)
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, r"\Arelpos-command_test: [^\n]+\.\n\Z")
        self.assertIn(expected, err)

    def test_unknown_flag_gets_a_suggestion_and_the_list(self):
        code, _, err = execute(show_flags, "--problme=x")
        self.assertEqual(code, 2)
        self.assertEqual(
            err,
            "relpos-command_test: unknown flag --problme. "
            "Did you mean --problem?\n"
            "Known flags: --files --mode --problem --steps --xla\n",
        )

    def test_unknown_flag_unlike_all_others_gets_no_suggestion(self):
        _, _, err = execute(show_flags, "--qqqqqqqq")
        self.assertNotIn("Did you mean", err)

    @parameterized.parameters("--help", "-h", "--helpfull")
    def test_help_is_the_docstring_and_our_flags(self, flag):
        code, out, err = execute(have_a_bug, "--steps=abc", flag)
        self.assertEqual((code, err), (0, ""))
        self.assertStartsWith(
            out, "The messages and exit codes of a command.\n"
        )
        self.assertEndsWith(
            out,
            textwrap.dedent(
                """\
                Flags:

                  --problem
                      The data set.
                  --steps
                      How long. Default: 7.
                  --[no]xla
                      Compiles. Default: false.
                  --mode
                      <a|b>: Way. Default: a.
                  --files
                      Names.
                """
            ),
        )


class ExitCodeTest(parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "user_error",
            raise_user_error,
            1,
            "The file is empty. Received: x.",
        ),
        (
            "missing_flag",
            need_problem,
            2,
            "--problem is required: The data set.",
        ),
        (
            "unknown_name_in_a_flag",
            blame_flag,
            2,
            "--problem: Unknown problem `x`.",
        ),
        (
            "missing_file",
            open_missing,
            1,
            "no/such/file: no such file or directory.",
        ),
        ("full_disk", fill_disk, 1, "no space left on device. Make room."),
        ("control_c", press_control_c, 130, "interrupted."),
        ("sigterm", be_terminated, 143, "terminated."),
        (
            "memory",
            need_memory,
            1,
            "Out of memory. Take a smaller batch_size, a smaller beam or "
            "shorter lines.",
        ),
        (
            "device_memory",
            need_device_memory,
            1,
            "Out of memory. Take a smaller batch_size, a smaller beam or "
            "shorter lines.",
        ),
        (
            "disk_that_tensorflow_filled",
            fill_tensorflows_disk,
            1,
            "Cannot write: append to d/e.v2: No space left on device. "
            "Make room.",
        ),
    )
    def test_failure_is_one_line(self, main, expected_code, expected):
        code, out, err = execute(main)
        self.assertEqual((code, out), (expected_code, ""))
        self.assertEqual(err, f"relpos-command_test: {expected}\n")

    def test_return_value_is_the_exit_code(self):
        self.assertEqual(execute(return_three), (3, "", ""))

    @parameterized.parameters(
        (have_a_bug, ZeroDivisionError), (fail_without_path, OSError)
    )
    def test_bugs_keep_their_traceback(self, main, kind):
        with self.assertRaises(kind):
            execute(main)

    def test_a_reader_that_closes_the_pipe_is_no_error(self):
        code = """
            import sys
            from relpos_tf.bin import command
            FLAGS = command.Flags()
            __file__ = "x.py"
            def main():
                for line in range(100_000):
                    sys.stdout.write(f"{line}\\n")
            command.run(main)
            """
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.assertEqual(writer.stdout.readline(), b"0\n")
        writer.stdout.close()
        self.assertEqual(writer.stderr.read(), b"")
        writer.stderr.close()
        self.assertEqual(writer.wait(), 1)

    @parameterized.named_parameters(
        ("installed", ["-P"], "False"),
        ("from_its_folder", [], "True"),
    )
    def test_its_children_see_modules_of_the_working_folder_if_it_does(
        self, options, expected
    ):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "wave.py").write_text("open = None\n")
        code = """
            import subprocess, sys
            from relpos_tf.bin import command
            FLAGS = command.Flags()
            __file__ = "x.py"
            def main():
                child = "import wave; print(wave.open is None)"
                subprocess.run([sys.executable, "-c", child], check=True)
            command.run(main)
            """
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONSAFEPATH", None)
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.assertEqual(done.stdout.strip(), expected)


class AgainTest(parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "by_python",
            ["trainer.py", "--a=b c"],
            ["python", "trainer.py", "--a=b c"],
            "python trainer.py '--a=b c'",
        ),
        (
            "as_a_module",
            ["x/bin/trainer.py", "--a=$b"],
            ["python3", "-m", "relpos_tf.bin.trainer", "--a=$b"],
            "python3 -m relpos_tf.bin.trainer '--a=$b'",
        ),
        (
            "installed",
            ["bin/relpos-trainer", "--steps", "5"],
            ["python3.12", "bin/relpos-trainer", "--steps", "5"],
            "bin/relpos-trainer --steps 5",
        ),
    )
    def test_command_line_is_that_of_the_user(self, argv, orig_argv, expected):
        with mock.patch.multiple(sys, argv=argv, orig_argv=orig_argv):
            self.assertEqual(command.command_line(), expected)

    @parameterized.named_parameters(
        (
            "installed",
            ["bin/relpos-trainer"],
            ["python3", "bin/relpos-trainer"],
            ("relpos-decoder", "relpos-export"),
        ),
        (
            "launcher",
            ["trainer.py"],
            ["python", "trainer.py"],
            ("python decoder.py", "python -m relpos_tf.bin.export"),
        ),
        (
            "as_a_module",
            [str(ROOT / "relpos_tf" / "bin" / "trainer.py")],
            ["python", "-m", "relpos_tf.bin.trainer"],
            (
                "python -m relpos_tf.bin.decoder",
                "python -m relpos_tf.bin.export",
            ),
        ),
        (
            "other_program",
            [str(ROOT / "tests" / "bin" / "command_test.py")],
            ["python", "tests/bin/command_test.py"],
            ("relpos-decoder", "relpos-export"),
        ),
    )
    def test_other_commands_are_called_in_the_same_way(
        self, argv, orig_argv, expected
    ):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)
        with mock.patch.multiple(sys, argv=argv, orig_argv=orig_argv):
            for name, call in zip(("decoder", "export"), expected, strict=True):
                self.assertEqual(command.call_of(name), call)


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


class OutputTest(absltest.TestCase):
    def test_errors_show_no_controls(self):
        _, _, err = execute(raise_foreign_text)
        self.assertEndsWith(err, "Received: \\x1b[2J\\x9b31m\\u202e, spoken.\n")

    def test_messages_show_no_controls(self):
        _, out, err = execute(write_foreign_text)
        self.assertEqual(err, "file \\x1b]0;title\\x07\\r of\ntwo lines\n")
        self.assertEqual(out, "a\x1b[31m\tb\n")  # as it is, for programs

    def test_results_show_no_controls_at_a_terminal(self):
        with mock.patch.object(sys, "stdout", Screen()) as screen:
            command.execute(write_foreign_text, [])
        self.assertEqual(screen.getvalue(), "a\\x1b[31m\tb\n")

    def test_a_closed_stream_is_one_line_or_silence(self):
        with mock.patch.object(sys, "stdin", None):
            code, _, err = execute(read_input)
        self.assertEqual(code, 1)
        self.assertRegex(err, r"Standard input is closed.*\n\Z")
        err = io.StringIO()
        with mock.patch.multiple(sys, stdout=None, stderr=err):
            self.assertEqual(command.execute(write_foreign_text, []), 1)
        self.assertRegex(err.getvalue(), r"Standard output is closed.*\n\Z")
        with mock.patch.object(sys, "stderr", None):
            self.assertEqual(command.execute(log_lines, []), 0)
            sys.stderr.close()

    def test_files_do_not_take_the_descriptors_of_closed_streams(self):
        # Else libraries would write their messages into checkpoints.
        code = """if True:
            import os
            from relpos_tf.bin import command
            command._replace_closed_streams()
            print(os.open(os.devnull, os.O_RDONLY))
        """
        done = subprocess.run(
            ["sh", "-c", 'exec "$0" -c "$1" <&- 2>&-', sys.executable, code],
            capture_output=True,
            text=True,
        )
        self.assertGreater(int(done.stdout), 2)

    def test_log_lines_are_plain_and_warnings_are_marked(self):
        _, out, err = execute(log_lines)
        self.assertEqual(out, "")
        self.assertEqual(err, "100 steps\nwarning: 3 lines were empty\n")

    def test_tensorflow_starts_silently_with_the_requested_cpus(self):
        done = python(
            """
            from relpos_tf.bin import command
            tf = command.import_tensorflow(num_logical_cpus=3)
            print(len(tf.config.list_logical_devices("CPU")))
            tf.get_logger().warning("once")
            """,
            TF_CPP_MIN_LOG_LEVEL="3",
            KERAS_BACKEND="no_such_backend",
        )
        self.assertEqual(done.stdout, "3\n")
        self.assertEqual(done.stderr, "warning: once\n")

    def test_hidden_lines_are_shown_when_the_import_fails(self):
        done = python(
            """
            import os
            from relpos_tf.bin import command
            try:
                with command._hidden_stderr():
                    os.write(2, b"from a library\\n")
                    raise ImportError
            except ImportError:
                os.write(2, b"after\\n")
            try:
                with command._hidden_stderr():
                    os.write(2, b"from a library\\n")
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                os.write(2, b"interrupted\\n")
            """
        )
        self.assertEqual(done.stderr, "from a library\nafter\ninterrupted\n")


class FlagsTextTest(absltest.TestCase):
    def test_each_flag_is_one_line_whatever_its_value(self):
        values = command.Flags()
        values.define_string("a", "x\n--b=7", "help")
        values.define_integer("b", 3, "help")
        values.define_bool("c", None, "help")
        command.parse(values, [])
        self.assertEqual(command.flags_text(values), "--a=x\\n--b=7\n--b=3\n")


if __name__ == "__main__":
    absltest.main()
