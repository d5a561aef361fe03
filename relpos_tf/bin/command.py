"""The harness of every command: flags, help, exit codes and messages.

A command module looks like this:

    \"\"\"Says what the command does, with examples: the text of --help.\"\"\"

    from relpos_tf.bin import command

    FLAGS = command.Flags()
    FLAGS.define_string("problem", None, "Data set.")


    def main():
        command.require(FLAGS, "problem")
        tf = command.import_tensorflow()
        ...


    run = command.program(main)

Exit codes: 0 done, 1 failed, 2 bad flags, 128 + N stopped by signal N: 129 by
SIGHUP, 130 by SIGINT, 138 by SIGUSR1, 140 by SIGUSR2, 143 by SIGTERM.
A mistake of the user ends in one line on standard error; a traceback means a
bug. A message that cannot be written is dropped.
"""

import collections
import contextlib
import dataclasses
import errno
import functools
import logging
import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
from typing import Any
from typing import NoReturn

from absl import flags

import relpos_tf
from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.decoding import decode_hparam
from relpos_tf.models import run_dir
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import locks
from relpos_tf.utils import memory
from relpos_tf.utils import paths
from relpos_tf.utils import signals
from relpos_tf.utils import system_errors
from relpos_tf.utils import terminal
from relpos_tf.utils import text as text_lib

# Looked for before TensorFlow, which is slow, is imported.
_NEEDED = "tensorflow keras sentencepiece sacrebleu tensorflow_text".split()
_HELP_FLAGS = {"-h", "--h", "-help", "--help", "--helpshort", "--helpfull"}
_KINDS = {bool: "bool", float: "float", int: "integer", str: "string"}
_NOT_PATHS = {"cors_origin", "host", "train_tags"}  # may have a colon
# The flags of text of the user's own, and what they name.
FILE_FLAGS = {
    "train_source": "training text, plain or compressed. Several files, "
    "separated by commas, or patterns such as part-*.en, are several corpora",
    "train_target": "the translation of --train_source, in as many files",
    "dev_source": "development text",
    "dev_target": "the translation of --dev_source",
    "test_source": "test text. Several files, separated by commas, are several "
    "test sets",
    "test_target": "the translation of --test_source, in as many files",
    "train_weights": "a number for each corpus, separated by commas: its share "
    "of the training pairs, as in 1,4. Default: each pair comes once in an "
    "epoch",
    "train_tags": "a word for each corpus, separated by commas, to put before "
    "the source lines of the corpus, as in ,<bt>",
}

TEXTS = list(FILE_FLAGS)[:4]  # the required ones


def _define_text(*args: Any, flag_values: Any, **kwargs: Any) -> None:
    """Defines a text: its parser, serializer, name, default and help."""
    flags.DEFINE_flag(_Text(*args, **kwargs), flag_values)


def _definer(define: Callable[..., Any], **defaults: Any) -> Any:
    """Returns a method that defines a flag of its object."""

    def method(self, *args: Any, **kwargs: Any) -> None:
        kwargs = {"allow_overwrite": False, **defaults, **kwargs}
        define(*args, flag_values=self, **kwargs)

    return method


class _Text(flags.Flag):
    """A text; where it may be given again, it is put behind a sign."""

    sign = ","

    def parse(self, argument):
        if self.present and self.allow_overwrite:
            before = self.serializer.serialize(self.value)
            argument = f"{before}{self.sign}{argument}"
        super().parse(argument)


class Flags(flags.FlagValues):
    """The flags of one command, apart from those of every other module.

    `define_KIND(name, default, help, ...)` are the functions `DEFINE_KIND` of
    absl. An integer is limited to what TensorFlow's int32 holds. A flag that is
    no list is given once. What is typed replaces what a --flagfile has.

    Attributes:
        typed: set. The names of the flags that are typed.
    """

    typed: Set[str] = frozenset()

    def read_flags_from_files(
        self, argv: Sequence[str], force_gnu: bool = True
    ) -> list[str]:
        """Returns the flags of the files that are not typed, then the typed."""
        in_files, typed, words = [], [], iter(argv)
        for word in words:
            if word.lstrip("-").partition("=")[0] != "flagfile":
                typed.append(word)
                continue
            file = word if "=" in word else f"{word}={next(words, '')}"
            found = super().read_flags_from_files([file], force_gnu)
            path = pathlib.Path(file.partition("=")[2]).expanduser()
            run = run_dir.RunDir(path.parent)  # which may have been moved
            if path.name == run_dir.FLAGS and run.has_hparams():
                own = f"--output_dir={run.path}"
                found = [
                    own if line.startswith("--output_dir=") else line
                    for line in found
                ]
            in_files += found
        names = [word for word in typed if word.startswith("-")]
        self.__dict__["typed"] = frozenset(map(self._name, names))
        kept = [line for line in in_files if self._name(line) not in self.typed]
        return kept + typed

    def _name(self, word: str) -> str:
        """Returns the name of the flag in a word of the command line."""
        name = word.lstrip("-").partition("=")[0]
        return name if name in self else name.removeprefix("no")

    def define_bools(self, **help_by_name: str) -> None:
        """Defines flags that are false by default."""
        for name, text in help_by_name.items():
            self.define_bool(name, False, text)

    def define_strings(self, **help_by_name: str) -> None:
        """Defines flags that are empty by default."""
        for name, text in help_by_name.items():
            self.define_string(name, "", text)

    def define_integers(self, **help_by_name: str) -> None:
        """Defines flags that are 0 by default, and never less."""
        for name, text in help_by_name.items():
            self.define_integer(name, 0, text, 0)

    def define_lists(self, **help_by_name: str) -> None:
        """Defines lists of words that are empty by default."""
        for name, text in help_by_name.items():
            self.define_list(name, [], text)

    def define_fields(self, cls: type, *names: str) -> None:
        """Defines flags by the fields of a `fields.Record` with a help text.

        Args:
            cls: The record.
            *names: The fields, which get no conditions. Without names: all
                fields, with their conditions.
        """
        for field in dataclasses.fields(cls):
            name, when, help, limits = (
                field.name,
                *map(field.metadata.get, ("when", "help", "limits")),
            )
            if not help or (names and name not in names):
                continue
            kind, about = _KINDS[fields.kinds(cls)[name]], [help]
            bounds = {}
            if isinstance(limits, fields.Choice):
                kind, about = "enum", [limits.choices, help]
            elif limits:
                bounds["lower_bound"] = limits.least
                bounds["upper_bound"] = limits.most
            define = getattr(self, f"define_{kind}")
            define(name, field.default, *about, **bounds)
            if when and not names:
                self.needs(when, name)

    def record(self, cls: type) -> Any:
        """Returns a `fields.Record` of flags that `define_fields` defined."""
        return cls(**{name: getattr(self, name) for name in fields.kinds(cls)})

    def join(self, sign: str, *names: str) -> None:
        """Lets texts be given again: the sign then stands between them."""
        for name in names:
            flag: Any = self[name]
            flag.sign, flag.allow_overwrite = sign, True

    define_bool = _definer(flags.DEFINE_bool)
    define_enum = _definer(flags.DEFINE_enum)
    define_float = _definer(flags.DEFINE_float)
    define_integer = _definer(
        flags.DEFINE_integer, upper_bound=fields.LARGEST_INT
    )
    define_list = _definer(
        functools.partial(
            _define_text, flags.ListParser(), flags.CsvListSerializer(",")
        ),
        allow_overwrite=True,
    )
    define_multi_string = _definer(flags.DEFINE_multi_string)
    define_string = _definer(
        functools.partial(
            _define_text, flags.ArgumentParser(), flags.ArgumentSerializer()
        )
    )

    def define_numbers(self, name: str, default: list[str], help: str) -> None:
        """Defines a list of whole numbers; `numbers` returns its value."""
        self.define_list(name, default, help)
        self.check(
            name,
            lambda words: all(
                word.strip().isdecimal() and int(word) <= fields.LARGEST_INT
                for word in words
            ),
            f"must be whole numbers up to {fields.LARGEST_INT}, with commas "
            "between them",
        )

    def numbers(self, name: str) -> list[int]:
        """Returns the numbers of `define_numbers`, each once, in order."""
        return [*dict.fromkeys(map(int, getattr(self, name)))]

    def check(
        self, name: str, is_right: Callable[[Any], bool], message: str
    ) -> None:
        """Refuses values of a flag that are not right."""
        flags.register_validator(name, is_right, message, flag_values=self)

    def exclusive(self, *names: str) -> None:
        """Refuses command lines with more than one of these flags."""
        flags.register_multi_flags_validator(
            names,
            lambda values: sum(map(bool, values.values())) < 2,
            f"give only one of --{', --'.join(names)}",
            flag_values=self,
        )

    def needs(self, condition: str, *names: str) -> None:
        """Refuses typed flags while a condition is not met.

        Args:
            condition: str, see `fields.is_met`, with flags as names.
            *names: The flags that have no effect without it.
        """
        text = f"has no effect: it needs --{condition}"
        if condition.endswith("="):
            text = f"has no effect with --{condition[:-1]}"

        def is_met(name: str, value: Any) -> bool:
            del value
            return name not in self.typed or fields.is_met(
                condition, functools.partial(getattr, self)
            )

        for name in names:
            self.check(name, functools.partial(is_met, name), text)


class UsageError(errors.UserError):
    """A flag is missing or has a bad value: one line, exit code 2."""


def program(main: Callable[[], int | None]) -> Callable[[], NoReturn]:
    """Returns what runs `main` as a command; runs it if it is the program.

    Args:
        main: As for `execute`.
    """
    if main.__module__ == "__main__":
        run(main)
    return functools.partial(run, main)


def run(main: Callable[[], int | None]) -> NoReturn:
    """Runs a command on `sys.argv` and ends the process with its exit code."""
    terminal.drop_failed_messages()
    for name, mode in (("stdin", "r"), ("stdout", "w")):
        if getattr(sys, name) is None:  # `<&-`: no other file may get it
            empty = os.open(os.devnull, os.O_RDONLY)  # which refuses results
            setattr(sys, name, os.fdopen(empty, mode, encoding="utf-8"))
    code = execute(main, sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes once more at its end. That must not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code == signals.Stopped(signal.SIGINT).exit_code:
        # Python dies of SIGINT then. After an exit, bash would go on with the
        # next command of a loop.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    sys.exit(code)


def execute(main: Callable[[], int | None], arguments: Sequence[str]) -> int:
    """Parses `arguments` into the command's flags and calls `main()`.

    Args:
        main: function without arguments, defined in a command module (see
            above) that has a docstring and `FLAGS`. It returns the exit code
            or None, which is 0.
        arguments: list of str, without the program's name.

    Returns:
        int, the exit code.

    Raises:
        Exception: a bug; it is not caught.
    """
    module: Any = sys.modules[main.__module__]
    name = "relpos-" + pathlib.Path(module.__file__).stem
    logger()
    try:
        if _HELP_FLAGS.intersection(arguments):
            about = help_text(module.__doc__, module.FLAGS)
            main = functools.partial(write, about)
        elif "--version" in arguments:
            main = functools.partial(write, f"{name} {relpos_tf.__version__}\n")
        else:
            locks.check_system(name)
            parse(module.FLAGS, arguments)
            if path := module.FLAGS.flag_values_dict().get("usr_dir"):
                _import_usr_dir(path)
            if module.FLAGS.flag_values_dict().get("registry_help"):
                main = show_registry
        code = main()
        sys.stdout.flush()
        return code or 0
    except UsageError as error:
        return _fail(name, error, 2)
    except KeyboardInterrupt as error:  # Python's own is of SIGINT.
        stop = signals.Stopped(getattr(error, "number", signal.SIGINT))
        return _fail(name, f"{stop}.", stop.exit_code)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and not error.filename:
            return 1  # The reader (`| head`) has closed standard output.
        is_bad = getattr(error, "errno", None) == errno.EBADF
        if is_bad and sys.__stdout__ is None:  # `>&-`
            return _fail(name, "Standard output is closed.", 1)
        if (text := system_errors.explanation(error)) is None:
            if (raised := signals.raised()) is None:
                raise
            return _fail(name, f"{raised}.", raised.exit_code)
        return _fail(name, text, 1)
    finally:
        terminal.clear()  # before a traceback
        _Lines.path, _Lines.waiting = "", collections.deque(maxlen=1000)


def parse(flag_values: Flags, arguments: Sequence[str]) -> None:
    """Sets the flags from a command line.

    Args:
        flag_values: the command's `Flags`.
        arguments: list of str, without the program's name.

    Raises:
        UsageError: for an unknown flag, a bad or missing value, or a word
            that is not a flag.
    """
    # Parsing twice in one process must not keep the values of the first time.
    for name in flag_values:
        flag_values[name].unparse()
    try:
        words = flag_values(["relpos", *arguments])[1:]
        for name in flag_values:
            if name not in _NOT_PATHS:
                paths.check_local(f"--{name}", flag_values[name].value)
    except flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown_flag(flag_values, error.flagname)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--flagfile must be UTF-8: {error}.") from error
    except (flags.Error, errors.UserError) as error:
        raise UsageError(f"{_one_line(error)}.") from error
    if words:
        raise UsageError(
            "options are written --name=value. "
            f"Received: {words[0]!r}, which is not an option."
        )


def define_problem_flags(flag_values: Flags, default: str | None) -> None:
    """Defines the flags that name a problem and the folders of its data."""
    define = flag_values.define_string
    define(
        "problem",
        default,
        "Name of the data to learn; translate_files is text of your own.",
    )
    define("data_dir", "data", "Folder of prepared data.")
    define(
        "tmp_dir",
        "downloads",
        "Folder of raw files; missing files are downloaded to it.",
    )
    define_usr_dir(flag_values)
    flag_values.define_strings(
        **{n: f"translate_files: {text}." for n, text in FILE_FLAGS.items()},
    )
    limits: Any = fields.limits(hparam.HParams, "vocab_size")
    flag_values.define_integer(
        "vocab_size",
        8000,
        "translate_files: pieces of the vocabulary.",
        lower_bound=1,
        upper_bound=limits.most,
    )
    flag_values.join(",", *FILE_FLAGS)
    flag_values.needs("problem=translate_files", *FILE_FLAGS, "vocab_size")


def define_usr_dir(flag_values: Flags) -> None:
    """Defines --usr_dir, which `execute` imports."""
    flag_values.define_strings(
        usr_dir="Folder of your own hparams sets, problems and position "
        "schemes, which is imported."
    )


def _import_usr_dir(path):
    """Imports --usr_dir, whose modules may import TensorFlow."""
    # Shows what they write, then and later: loggers keep it.
    own = open(  # noqa: SIM115
        os.dup(2), "w", 1, "utf-8", "backslashreplace", closefd=False
    )
    with flag_value("usr_dir"), _quietly(), contextlib.redirect_stderr(own):
        registry.import_usr_dir(path)


def make_problem(flag_values: Flags) -> Any:
    """Returns the `Problem` that the flags name.

    Raises:
        UsageError: the problem is unknown, or flags are missing.
        UserError: the files of `translate_files` cannot be used.
    """
    name = flag_values.problem
    if name != "translate_files":
        with flag_value("problem"):
            return registry.problem(name)
    require(flag_values, *TEXTS)
    from relpos_tf.problems import translate

    return translate.files_problem(
        {name: getattr(flag_values, name) for name in FILE_FLAGS},
        flag_values.vocab_size,
    )


def require(flag_values: Flags, *names: str) -> None:
    """Refuses to go on while one of the named flags has no value.

    Raises:
        UsageError: naming the first flag that is None or empty.
    """
    for name in names:
        value = flag_values[name].value
        if value in (None, []) or not str(value).strip(","):
            text = _one_line(flag_values[name].help)
            raise UsageError(f"--{name} is required: {text}.")


def check_train_steps(flag_values: Flags) -> None:
    """Refuses another number of updates beside a typed --train_steps.

    A --flagfile may have another one.

    Raises:
        UsageError: one is typed in --hparams or --grid.
    """
    steps, typed = flag_values.train_steps, flag_values.typed
    if not steps or "train_steps" not in typed:
        return
    for name in {"hparams", "grid"} & typed:
        text = getattr(flag_values, name)
        if {*re.findall(r"\btrain_steps *= *(\w+)", text)} - {str(steps)}:
            raise UsageError(
                f"--{name}: `train_steps` has no effect beside --train_steps."
            )


@contextlib.contextmanager
def flag_value(name: str) -> Iterator[None]:
    """Names a flag in every `UserError` raised in the block (exit code 2).

    Example:
    >>> with flag_value("problem"):
    ...     raise errors.UserError("Unknown problem 'x'.")
    Traceback (most recent call last):
        ...
    relpos_tf.bin.command.UsageError: --problem: Unknown problem 'x'.
    """
    try:
        yield
    except UsageError:
        raise
    except errors.UserError as error:
        raise UsageError(f"--{name}: {error}") from error


def help_text(doc: str | None, flag_values: Flags) -> str:
    """Returns the text of `--help`: the docstring, then our own flags."""
    lines = [textwrap.dedent(doc or "").strip(), "", "Flags:", ""]
    for flag in map(flag_values.__getitem__, flag_values):
        sign = "--[no]" if flag.boolean else "--"
        text = f"{_one_line(flag.help)}."
        if flag.default not in (None, "", []):
            text += f" Default: {str(flag.default_as_str).strip(chr(39))}."
        lines.append(f"  {sign}{flag.name}")
        text = textwrap.fill(text, 72, **terminal.WHOLE_WORDS)
        lines.append(textwrap.indent(text, " " * 6))
    return "\n".join(lines) + "\n"


def show_registry() -> None:
    """Writes the registered names, and what each set is, to standard output."""
    sets = [
        f"{x}  {registry.about_hparams(x)}" for x in registry.list_hparams()
    ]
    lines = ["Problems:", *registry.list_problems(), "Hparams sets:", *sets]
    write(terminal.wrapped("\n".join(lines), sys.stdout) + "\n")


def flags_text(flag_values: Flags) -> str:
    r"""Returns all flags as lines `--name=value`, for the record.

    A line end in a value is written as `\n`: it would begin another flag.
    """
    return "".join(
        flag_values[name].serialize().replace("\n", "\\n") + "\n"
        for name in sorted(flag_values)
        if flag_values[name].value is not None
    )


def check_outputs(
    flag_values: Flags, outputs: Sequence[str], inputs: Sequence[str] = ()
) -> None:
    """Checks the files to write before the work begins.

    Args:
        flag_values: the command's `Flags`.
        outputs: Names of flags whose files are written, if they have a value.
        inputs: Names of flags whose files are read and must stay.

    Raises:
        UsageError: a file cannot be written, or two flags name it.
    """
    seen = {}
    for name in inputs:
        with flag_value(name):
            for path in paths.listed(getattr(flag_values, name)):
                seen[os.path.realpath(path)] = name
    for name in outputs:
        if not (path := getattr(flag_values, name)):
            continue
        with flag_value(name):
            paths.check_file(path)
            if path.endswith(text_lib.COMPRESSED):
                raise errors.UserError(
                    "Expected a name for plain text, which can be compressed "
                    f"afterwards. Received: {path}."
                )
            if os.path.exists(path) and not os.path.isfile(path):
                continue  # a device or a pipe, as /dev/null
            if other := seen.get(os.path.realpath(path)):
                raise errors.UserError(
                    f"--{other} names the same file. Received: {path}."
                )
            seen[os.path.realpath(path)] = name


def command_line() -> str:
    """Returns the command that was typed, quoted for a shell."""
    path, *arguments = sys.argv
    if path.endswith(".py"):  # a script or a module
        return shlex.join(sys.orig_argv)
    name = os.path.basename(path)
    is_found = shutil.which(name) == path  # The shell has given the path.
    return shlex.join([name if is_found else path, *arguments])


def call_of(name: str, *arguments: str) -> str:
    """Returns how to call another command, quoted for a shell.

    Args:
        name: str. The command's module, such as `decoder`.
        *arguments: Its arguments, besides --usr_dir.
    """
    own = [f"--usr_dir={path}" for path in registry.usr_dirs]
    return shlex.join([f"relpos-{name}", *arguments, *own])


def write(text: str) -> None:
    """Writes a result to standard output, without terminal controls.

    A file or a pipe receives the text unchanged.
    """
    if sys.stdout.isatty():
        terminal.clear()
        text = terminal.printable(text)
    sys.stdout.write(text)


def log_to(path: str) -> None:
    """Appends to a file, with times, what the command said and will say."""
    _Lines.path = path


def logger() -> logging.Logger:
    """Returns the package's logger, writing plain lines to standard error."""
    log = logging.getLogger("relpos_tf")
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())
        log.setLevel(logging.INFO)
        log.propagate = False
    return log


def import_tensorflow(
    num_logical_cpus: int = 0, task: str = "this command"
) -> Any:
    """Imports TensorFlow without its start-up messages.

    They are shown with a `TF_CPP_MIN_LOG_LEVEL` below 3 in the environment.

    Args:
        num_logical_cpus: int. Above 1, the CPU is split into that many
            devices, to try replicas, and GPUs are left out.
        task: str. What needs TensorFlow, if it is not installed.

    Returns:
        The `tensorflow` module.

    Raises:
        MissingPackageError: TensorFlow is not installed.
        RuntimeError: `num_logical_cpus` is above 1 and TensorFlow has started
            its devices before.
    """
    modules: dict[str, Any] = sys.modules
    terminal.show(lambda: "Loading TensorFlow ...")
    with _quietly():
        # Keras would import it, which takes time and may write a folder.
        is_hidden = modules.setdefault("matplotlib") is None
        extras.check("translate", task, *_NEEDED)
        # Slow: only once the flags are known good.
        import tensorflow as tf

        if is_hidden:
            del modules["matplotlib"]
        cpus = tf.config.list_physical_devices("CPU")
        tf.config.list_physical_devices("GPU")
        if num_logical_cpus > 1:
            tf.config.set_visible_devices([], "GPU")
            tf.config.set_logical_device_configuration(
                cpus[0],
                [tf.config.LogicalDeviceConfiguration()] * num_logical_cpus,
            )
    # TensorFlow's warnings in our form, and not from the root logger as well.
    tf.get_logger().handlers[:] = [_Lines()]
    tf.get_logger().propagate = False
    return tf


@contextlib.contextmanager
def _quietly():
    """Prepares the import of TensorFlow, and hides writes to descriptor 2.

    The C++ libraries write there whatever the log level is.
    """
    memory.keep_freed()
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # A keras.json that names another backend would break every layer.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # as in a container that is read-only
        tempfile.tempdir = os.curdir  # TensorFlow asks for the name alone.
    if level in ("0", "1", "2"):
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


class _Lines(logging.Handler):
    """Writes log records as plain lines to the current `sys.stderr`.

    A record may quote a file or another host, so terminal controls in it are
    made visible.

    Attributes:
        path: str. The file of `log_to`.
        waiting: What it is to get.
    """

    path, waiting = "", collections.deque[str](maxlen=1000)

    def emit(self, record):
        is_doubt = logging.WARNING <= record.levelno < logging.CRITICAL
        prefix = f"{record.levelname.lower()}: " if is_doubt else ""
        line = terminal.printable(f"{prefix}{self.format(record)}")
        terminal.clear()
        sys.stderr.write(f"{terminal.wrapped(line, sys.stderr)}\n")
        sys.stderr.flush()
        _Lines.waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
        if not (path := _Lines.path):
            return
        text = "".join(_Lines.waiting).encode(errors="backslashreplace")
        # A full disk or a removed folder ends no command here.
        with contextlib.suppress(OSError), files.open_appending(path) as file:
            file.write(text)
            _Lines.waiting.clear()


def _fail(name, error, code):
    """Says why the command ends, without a prefix; returns the exit code."""
    logger().critical("%s: %s", name, error)
    return code


def _one_line(text):
    """Joins the lines of a message and drops its final full stop."""
    return " ".join(str(text).split()).removesuffix(".")


def _unknown_flag(flag_values, received):
    """Returns the message for a flag that the command does not have."""
    known = sorted(flag_values)
    hint = errors.did_you_mean(received, known, "--")
    for name, cls in (
        ("hparams", hparam.HParams),
        ("decode_hparams", decode_hparam.DecodeHParams),
    ):
        if name in flag_values and received in fields.kinds(cls):
            hint = f" Write --{name}={received}=..."
    listed = " ".join(f"--{name}" for name in known)
    return f"unknown flag --{received}.{hint}\nKnown flags: {listed}"
