"""The messages and exit codes of a command.

Each function below is a `main`; this module is its command, whose docstring
and `FLAGS` the harness reads.
"""

import errno
import os
import pathlib
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.bin import decoder
from relpos_tf.bin import trainer
from relpos_tf.utils import signals
from tests.bin import calls

FLAGS = command.Flags()
FLAGS.define_string("problem", None, "The data\n set.")
FLAGS.define_integer("steps", 7, "How long.", 1)
FLAGS.define_bool("xla", False, "Compiles.")
FLAGS.define_enum("mode", "a", ["a", "b"], "Way.")
FLAGS.define_list("files", [], "Names.")
FLAGS.define_numbers("numbers", [], "Numbers.")
FLAGS.exclusive("xla", "files")
FLAGS.needs("problem", "files")


def show_flags():
    values = FLAGS.problem, FLAGS.steps, FLAGS.xla, FLAGS.mode, FLAGS.files
    sys.stdout.write(repr(values))


def need_problem():
    command.require(FLAGS, "steps", "problem")


def raising(error):
    """Returns a `main` of this module that raises an error."""

    def main():
        raise error

    return main


def blame_flag():
    with command.flag_value("problem"):
        raise errors.UserError("Unknown problem `x`.")


def open_missing():
    with open("no/such/file", encoding="utf-8"):
        pass


def stop_within_a_library():
    with signals.caught():
        try:
            signal.raise_signal(signal.SIGUSR2)
        except signals.Stopped as error:
            raise SystemError("bad argument to internal function") from error


def write_foreign_text():
    command.write("a\x1b[31m\tb\n")
    command.logger().info("file \x1b]0;title\x07\r of\ntwo lines")
    command.logger().warning("a")


def have_a_bug():
    raise ZeroDivisionError("division by zero")


# Makes the code of another process a command.
COMMAND = """
import os, subprocess, sys
from relpos_tf.bin import command
FLAGS = command.Flags()
FLAGS.define_string("name", "", "Name.")
__file__ = "x.py"
"""


def run(code, *arguments, **environment):
    """Runs a command in another process; returns the finished process."""
    code = COMMAND + textwrap.dedent(code)
    return calls.python("-c", code, *arguments, **environment)


class FlagsTest(parameterized.TestCase):
    def test_flags_have_the_values_of_the_command_line(self):
        _, out, _ = calls.execute(
            show_flags, "--problem=p", "--steps", "5", "--files=a,b"
        )
        self.assertEqual(out, b"('p', 5, False, 'a', ['a', 'b'])")
        # Those of an earlier call are reset.
        _, out, _ = calls.execute(show_flags)
        self.assertEqual(out, b"(None, 7, False, 'a', [])")

    @parameterized.parameters(
        (["--steps=abc"], "--steps=abc"),
        (["--steps=0"], "--steps=0"),
        (["--mode=c"], "a|b"),
        (["--problem"], "--problem"),
        (["--steps=5", "p.txt"], "'p.txt'"),
        (["--flagfile=no/f"], "no/f"),
        ([f"--flagfile={sys.executable}"], "--flagfile must be UTF-8"),
        (["--steps=5", "--steps=5"], "--steps=5"),
        (["--numbers=1,x"], "--numbers"),
        (["--xla", "--mode=b", "--files=a"], "--xla, --files"),
        (["--files=a", "--problem="], "has no effect: it needs --problem"),
    )
    def test_bad_command_line_is_one_line(self, arguments, expected):
        code, out, err = calls.execute(show_flags, *arguments)
        self.assertEqual((code, out), (2, b""))
        self.assertRegex(err, r"\Arelpos-command_test: [^\n]+\.\n\Z")
        self.assertIn(expected, err)

    def test_lists_go_on_where_they_are_given_again(self):
        values = command.Flags()
        values.define_strings(hparams="a=1", outputs="a")
        values.define_list("files", ["x"], "Names.")
        values.join(";", "hparams")
        command.parse(values, ["--hparams=a=1", "--files=a,b", "--hparams=b=2"])
        self.assertEqual(
            (values.hparams, values.files), ("a=1;b=2", ["a", "b"])
        )
        command.parse(values, ["--files=a", '--files="b,c",d'])
        self.assertEqual(values.files, ["a", "b,c", "d"])
        for flags in (["--outputs=a", "--outputs", "a"], ["--nob", "--b"]):
            values.define_bool("b", None, "B.", allow_override=True)
            with self.assertRaisesRegex(command.UsageError, "already defined"):
                command.parse(values, flags)

    def test_what_is_typed_replaces_the_flags_of_files(self):
        folder = self.create_tempdir()
        file = folder.create_file("f", "--problem=p\n--xla\n--steps=3\n")
        more = folder.create_file("g", f"--flagfile={file.full_path}\n")
        for flag in (
            [f"--flagfile={more.full_path}"],
            ["--flagfile", file.full_path],
        ):
            for typed in (
                [*flag, "--steps=5", "--noxla"],
                ["--steps", "5", "--noxla", *flag],
            ):
                _, out, err = calls.execute(show_flags, *typed)
                self.assertEqual(out, b"('p', 5, False, 'a', [])", err)

    def test_the_flags_of_a_run_are_of_the_folder_where_they_lie(self):
        folder = self.create_tempdir()
        flags = folder.create_file(
            "flags.txt", "--problem=p\n--output_dir=old/place\n"
        )
        for made, typed, expected in (
            ("problem.json", (), "old/place"),  # of the user, not of a run
            ("hparams.json", (), folder.full_path),
            ("hparams.json", ("--output_dir=typed",), "typed"),
        ):
            folder.create_file(made)
            values = command.Flags()
            values.define_strings(problem="P.", output_dir="O.")
            command.parse(values, [f"--flagfile={flags.full_path}", *typed])
            self.assertEqual(
                (values.problem, values.output_dir), ("p", expected)
            )

    def test_only_a_typed_flag_is_refused_for_want_of_another(self):
        # A value is no typed flag.
        file = self.create_tempfile(content="--steps=3\n--xla\n").full_path
        typed = [f"--flagfile={file}", "--problem", "steps"]
        _, out, err = calls.execute(show_flags, *typed)
        self.assertEqual(out, b"('steps', 3, True, 'a', [])", err)
        file = self.create_tempfile(content="--files=a\n").full_path
        code, out, _ = calls.execute(show_flags, f"--flagfile={file}")
        self.assertEqual((code, out), (0, b"(None, 7, False, 'a', ['a'])"))
        code, _, err = calls.execute(show_flags, "--files=a", "--steps=3")
        self.assertEqual(code, 2)
        self.assertIn("has no effect: it needs --problem.", err)

    @parameterized.parameters(
        "--problem=gs://bucket/run",
        "--problem=a,x=s3://b",
        "--problem=file:///a",
    )
    def test_an_address_is_no_path(self, flag):
        _, out, err = calls.execute(show_flags, "--problem=/data/a:/b")
        self.assertEqual(out, b"('/data/a:/b', 7, False, 'a', [])", err)
        code, _, err = calls.execute(show_flags, flag)
        self.assertEqual(code, 2)
        self.assertRegex(err, r"\A[^\n]*must be local.*://.* copy it[^\n]*\n\Z")

    @parameterized.parameters(
        (trainer, "batch_size", " Write --hparams=batch_size=..."),
        (decoder, "beam_size", " Write --decode_hparams=beam_size=..."),
        (trainer, "seed", " There are --random_seed."),
        (trainer, "problme", " Did you mean --problem?"),
        (trainer, "save_checkpoints_steps", ""),
        (trainer, "num_gpus", ""),
        (decoder, "model_dir", ""),
    )
    def test_unknown_flag_gets_a_hint_that_does_not_mislead(
        self, module, name, hint
    ):
        code, _, err = calls.execute(module.main, f"--{name}=1")
        self.assertEqual(code, 2)
        self.assertIn(f"unknown flag --{name}.{hint}\n", err)

    @parameterized.parameters("--help", "-h", "--helpfull")
    def test_help_is_the_docstring_and_our_flags(self, flag):
        code, out, err = calls.execute(have_a_bug, "--steps=abc", flag)
        self.assertEqual((code, err), (0, ""))
        text = out.decode()
        self.assertStartsWith(text, "The messages and exit codes of a command.")
        self.assertIn("\n  --problem\n      The data set.\n", text)
        self.assertIn("\n  --steps\n      How long. Default: 7.\n", text)
        self.assertIn("\n  --[no]xla\n      Compiles. Default: false.\n", text)
        self.assertNotIn("flagfile", text)

    def test_each_flag_is_one_line_whatever_its_value(self):
        values = command.Flags()
        values.define_string("a", "x\n--b=7", "help")
        values.define_integer("b", 3, "help")
        values.define_bool("c", None, "help")
        command.parse(values, [])
        self.assertEqual(command.flags_text(values), "--a=x\\n--b=7\n--b=3\n")


class ExitCodeTest(parameterized.TestCase):
    @parameterized.parameters(
        (need_problem, 2, "--problem is required: The data set."),
        (blame_flag, 2, "--problem: Unknown problem `x`."),
        (open_missing, 1, "no/such/file: no such file or directory."),
        (
            raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
            1,
            "no space left on device. Make room.",
        ),
        (raising(KeyboardInterrupt), 130, "stopped by SIGINT."),
        (raising(signals.Stopped(signal.SIGTERM)), 143, "stopped by SIGTERM."),
        (stop_within_a_library, 140, "stopped by SIGUSR2."),
        (raising(MemoryError), 1, "Out of memory. Take a smaller batch_size "),
        (
            raising(
                errors.UserError("Received: \x1b[2J\x9b31m\u202e, spoken.")
            ),
            1,
            "Received: \\x1b[2J\\x9b31m\\u202e, spoken.",
        ),
    )
    def test_failure_is_one_line(self, main, expected_code, expected):
        code, out, err = calls.execute(main)
        self.assertEqual((code, out), (expected_code, b""))
        self.assertStartsWith(err, f"relpos-command_test: {expected}")
        self.assertEqual(err.count("\n"), 1)

    @parameterized.parameters(
        (have_a_bug, ZeroDivisionError),
        (raising(OSError(errno.EINVAL, "odd")), OSError),
    )
    def test_bugs_keep_their_traceback(self, main, kind):
        with signals.caught():
            pass  # forgets the signals of earlier tests
        with self.assertRaises(kind):
            calls.execute(main)

    def test_a_reader_that_closes_the_pipe_is_no_error(self):
        code = """
            def main():
                for line in range(100_000):
                    print(line)
            command.run(main)
            """
        writer = subprocess.Popen(
            [sys.executable, "-c", COMMAND + textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.assertEqual(writer.stdout.readline(), b"0\n")
        writer.stdout.close()
        self.assertEqual(writer.stderr.read(), b"")
        writer.stderr.close()
        self.assertEqual(writer.wait(), 1)


# Messages in every way, then a result.
SPEAK = """
import logging, warnings
def main():
    log = logging.getLogger("other")
    log.addHandler(logging.StreamHandler())
    for _ in range(3):
        command.logger().info("a line")
        log.warning("of a library")
        warnings.warn("again", stacklevel=1)
        print("x" * 100_000, file=sys.stderr, flush=True)
        print("no line end", end="", file=sys.__stderr__ or sys.stderr)
    # Other files do not get the descriptor, not even of a closed stream.
    assert os.open(os.devnull, os.O_RDONLY) > 2
    print("result", sys.stderr.isatty(), sys.stderr.fileno())
    return FLAGS.name and int(FLAGS.name)
command.run(main)
"""


READ = """
def main():
    text = sys.stdin.read() if sys.stdin.fileno() == 0 else "another file"
    command.write(f"read {text!r}")
command.run(main)
"""


class UnreadMessagesTest(parameterized.TestCase):
    """Messages that cannot be written do not change the result."""

    def speak(self, *arguments, **streams):
        return subprocess.run(
            [sys.executable, "-c", f"import sys\n{COMMAND}{SPEAK}", *arguments],
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            **{"stdout": subprocess.PIPE, "text": True} | streams,
        )

    def assert_result(self, done, isatty=False):
        self.assertEqual(
            (done.returncode, done.stdout), (0, f"result {isatty} 2\n")
        )

    def test_a_full_disk(self):
        with open("/dev/full", "w") as full:
            self.assert_result(self.speak(stderr=full))
            done = self.speak(stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"no space left on device.*\n\Z")
            self.assertEqual(self.speak("--name=3", stderr=full).returncode, 3)
            self.assertEqual(self.speak("--no", stderr=full).returncode, 2)
            done = self.speak("--help", stdout=full, stderr=subprocess.PIPE)
            self.assertRegex(done.stderr, r"\Arelpos-.*no space left.*\n\Z")

    def test_streams_that_are_closed(self):
        for closed, code in (("<&-", 0), (">&-", 1), ("<&- >&- 2>&-", 1)):
            line = shlex.join([sys.executable, "-c", f"{COMMAND}{READ}"])
            done = subprocess.run(
                ["sh", "-c", f"{line} {closed}"], capture_output=True, text=True
            )
            self.assertEqual(done.returncode, code)
            self.assertEqual("is closed" in done.stderr, closed == ">&-")
            self.assertEqual(done.stdout, "read ''" * (1 - code))

    def test_a_reader_that_has_gone(self):
        end, start = os.pipe()
        terminal, slave = pty.openpty()
        for closed, stream in ((end, start), (terminal, slave)):
            os.close(closed)
            self.assert_result(self.speak(stderr=stream))
            os.close(stream)

    def test_a_reader_that_is_slow(self):
        end, start = os.pipe()
        os.set_blocking(start, False)
        self.assert_result(self.speak(stderr=start))
        os.close(start)
        with open(end) as file:
            self.assertIn("a line\nof a library\n", file.read())

    def test_a_closed_stream(self):
        self.assert_result(self.speak(preexec_fn=lambda: os.close(2)))

    def test_a_reader_gets_all(self):
        done = self.speak(stderr=subprocess.PIPE)
        self.assert_result(done)
        self.assertEqual(done.stderr.count("x" * 100_000), 3)
        self.assertEqual(done.stderr.count("a line\nof a library\n"), 3)
        self.assertEndsWith(done.stderr, "no line end")


class ProcessTest(parameterized.TestCase):
    @parameterized.parameters(
        ("trainer.py", "python trainer.py '--a=b c'"),
        ("bin/relpos-trainer", "bin/relpos-trainer '--a=b c'"),
        ("/bin/relpos-trainer", "relpos-trainer '--a=b c'"),
    )
    def test_commands_are_named_as_a_shell_takes_them(self, name, this):
        argv = [name, "--a=b c"]
        with (
            mock.patch.multiple(sys, argv=argv, orig_argv=["python", *argv]),
            mock.patch.object(registry, "usr_dirs", ["my own"]),
            mock.patch.object(shutil, "which", lambda name: f"/bin/{name}"),
        ):
            self.assertEqual(command.command_line(), this)
            self.assertEqual(
                command.call_of("decoder", "--a"),
                "relpos-decoder --a '--usr_dir=my own'",
            )

    def test_control_c_ends_a_loop_of_bash(self):
        code = """
            def main():
                print("begun", flush=True)
                os.killpg(0, 2)  # as a terminal does, to bash as well
            command.run(main)
            """
        loop = 'for k in 1 2 3; do "$0" -c "$1"; done; echo over'
        done = subprocess.run(
            [
                "bash",
                "-c",
                loop,
                sys.executable,
                COMMAND + textwrap.dedent(code),
            ],
            capture_output=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(2, signal.SIG_DFL),
            text=True,
        )
        self.assertEqual(done.stdout, "begun\n")
        self.assertEqual(done.stderr, "relpos-x: stopped by SIGINT.\n")
        self.assertEqual(done.returncode, -signal.SIGINT)

    def test_a_users_folder_is_imported_first_without_lines_of_libraries(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        code = """
            import logging, os, sys
            import keras  # is not to take another backend, nor to speak
            os.write(2, b"from a library\\n")
            print("own", keras.backend.backend(), file=sys.stderr)
            logging.getLogger("own").addHandler(logging.StreamHandler())
            """
        (folder / "__init__.py").write_text(textwrap.dedent(code))
        code = """
            command.define_usr_dir(FLAGS)
            def main():
                import logging
                logging.getLogger("own").warning("later")
            command.run(main)
            """
        done = run(
            code,
            f"--usr_dir={folder}",
            TF_CPP_MIN_LOG_LEVEL="3",
            KERAS_BACKEND="none",
        )
        self.assertEqual(done.stderr, "own tensorflow\nlater\n")

    def test_a_missing_package_is_named_before_tensorflow_loads(self):
        for name in ("keras", "sentencepiece"):
            code = f"""
                def main():
                    sys.modules["{name}"] = None
                    try:
                        command.import_tensorflow()
                    finally:
                        print("tensorflow" in sys.modules)
                command.run(main)
                """
            done = run(code)
            self.assertEqual((done.returncode, done.stdout), (1, "False\n"))
            words = f"relpos-x: Expected the package {name}, .*translate"
            self.assertRegex(done.stderr, rf"\A{words}[^\n]*\n\Z")


class OutputTest(absltest.TestCase):
    def test_a_device_may_be_read_and_written(self):
        given = command.Flags()
        given.define_strings(source="A file.", target="A file.", log="A file.")
        device = "/dev/null"
        command.parse(given, [f"--{name}={device}" for name in given])
        command.check_outputs(given, ["target", "log"], ["source"])

    def test_messages_show_no_controls(self):
        _, out, err = calls.execute(write_foreign_text)
        self.assertEqual(
            err, "file \\x1b]0;title\\x07\\r of\ntwo lines\nwarning: a\n"
        )
        self.assertEqual(out, b"a\x1b[31m\tb\n")  # as it is, for programs
        screen = calls.Stream(isatty=True)
        with mock.patch.object(sys, "stdout", screen):
            command.execute(write_foreign_text, [])
        self.assertEqual(screen.getvalue(), b"a\\x1b[31m\tb\n")
