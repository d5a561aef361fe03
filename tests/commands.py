"""Starts Python processes without the cost of importing TensorFlow.

`Popen` and `run` take the arguments of their namesakes in `subprocess`. On
Linux, a call of this Python (`-c CODE`, `-m MODULE` or a script) is forked from
a server. The server has imported TensorFlow and the package except the
commands, and has computed nothing. A fork starts in a tenth of a second; the
import takes more than three. The fork is an ordinary child of the caller, with
its own arguments, environment, folder, streams and signals. All other calls
start an ordinary process. `folder` names another folder from which the package
is imported, such as one into which a wheel was installed.

Use `subprocess` to test what a process imports, what happens during the import
of TensorFlow, or the effect of environment variables named PYTHON...
"""

import atexit
import builtins
import ctypes
import functools
import gc
import importlib.util
import inspect
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
_SET_CHILD_SUBREAPER = 36  # of prctl
_LENGTH = struct.Struct("!I")


class Popen(subprocess.Popen):
    """A `subprocess.Popen` that forks calls of this Python from the server."""

    def __init__(self, *args, folder=ROOT, **kwargs):
        self._folder = folder
        super().__init__(*args, **kwargs)

    def _execute_child(self, *args, **kwargs):
        start = super()._execute_child
        call = inspect.signature(start).bind(*args, **kwargs).arguments
        words, env = call["args"], call["env"]
        if not _can_fork(words, call):
            return start(*args, **kwargs)
        pipes = call["p2cread"], call["c2pwrite"], call["errwrite"]
        self.pid = _server(self._folder).start(
            {
                "argv": [os.fspath(word) for word in words],
                "cwd": os.fspath(call["cwd"] or os.getcwd()),
                "env": dict(os.environ if env is None else env),
                "is_new_session": call["start_new_session"],
            },
            [
                number if pipe == -1 else pipe
                for number, pipe in enumerate(pipes)
            ],
        )
        self._child_created = True
        self._close_pipe_fds(
            *(
                call[name]
                for name in (
                    *("p2cread", "p2cwrite", "c2pread", "c2pwrite"),
                    *("errread", "errwrite"),
                )
            )
        )


def run(words, input=None, check=False, timeout=None, **kwargs):
    """Is `subprocess.run` with this module's `Popen`."""
    if input is not None:
        kwargs["stdin"] = subprocess.PIPE
    if kwargs.pop("capture_output", False):
        kwargs |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(words, **kwargs) as process:
        try:
            output, error = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, output, error)
    if check:
        done.check_returncode()
    return done


def _can_fork(words, call):
    """Whether a call can be forked from the server."""
    return (
        sys.platform == "linux"
        and not isinstance(words, str)
        and not call["shell"]
        and call["preexec_fn"] is None
        and words[0] == sys.executable
        and (words[1] in ("-c", "-m") or not str(words[1]).startswith("-"))
    )


@functools.cache
def _server(folder):
    return _Server(folder)


class _Server:
    """A process that forks on request, and the connection to it."""

    def __init__(self, folder):
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()
        self._socket, other = socket.socketpair()
        own = filter(None, [os.environ.get("PYTHONPATH")])
        path = os.pathsep.join([str(folder), str(ROOT), *own])
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.commands", str(other.fileno())],
                cwd=folder,
                env=os.environ
                | {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": path},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
            )
        atexit.register(self._close)

    def start(self, request, streams):
        """Forks a process that becomes a child of this one.

        Args:
            request: dict; see `_become`.
            streams: list of three file descriptors.

        Returns:
            int, the process ID.
        """
        data = json.dumps(request).encode()
        with self._lock:
            # A subreaper adopts the orphans of its descendants.
            _set_subreaper(True)
            try:
                head = _LENGTH.pack(len(data))
                socket.send_fds(self._socket, [head], streams)
                self._socket.sendall(data)
                answer = self._socket.recv(_LENGTH.size)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
            finally:
                _set_subreaper(False)
        if not answer:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")
            raise RuntimeError(f"The server of processes has ended:\n{text}")
        return _LENGTH.unpack(answer)[0]

    def _close(self):
        self._socket.close()
        self._process.wait()
        self._errors.close()


def _set_subreaper(value):
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(value), 0, 0, 0)


def _serve(number):
    """Forks a process for each request, and returns in that process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests.
    _import_package()
    gc.freeze()  # At its end, a fork need not search these objects.
    connection = socket.socket(fileno=number)
    while True:
        head, streams, *_ = socket.recv_fds(connection, _LENGTH.size, 3)
        if not head:
            os._exit(0)
        (length,) = _LENGTH.unpack(head)
        data = connection.recv(length, socket.MSG_WAITALL)
        pid = _fork_orphan()
        if pid == 0:
            connection.close()
            return json.loads(data), streams
        for stream in streams:
            os.close(stream)
        connection.sendall(_LENGTH.pack(pid))


def _fork_orphan():
    """Forks a process whose parent has ended.

    Returns:
        int. 0 in that process; in this one, its ID.
    """
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        # The orphan goes on once its parent's end closes the pipe.
        own_reader, own_writer = os.pipe()
        ending = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(own_writer)
            os.read(own_reader, 1)
            # The system may close the pipe before it gives the orphan away.
            while os.getppid() == ending:
                time.sleep(0.001)
            for end in (own_reader, reader, writer):
                os.close(end)
            return 0
        os.write(writer, _LENGTH.pack(pid))
        os._exit(0)
    os.waitpid(parent, 0)
    (pid,) = _LENGTH.unpack(os.read(reader, _LENGTH.size))
    os.close(reader)
    os.close(writer)
    return pid


def _import_package():
    """Imports the modules that commands import, but no command."""
    import sacrebleu  # noqa: F401
    import tensorflow_text  # noqa: F401

    import relpos_tf

    package = pathlib.Path(relpos_tf.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path.stem != "__init__" and path.parent.name != "bin":
            parts = path.relative_to(package.parent).with_suffix("").parts
            importlib.import_module(".".join(parts))


def _become(request, streams):
    """Makes this process the requested one, as if Python had just started.

    Args:
        request: dict of "argv" (of the whole process), "cwd", "env" and
            "is_new_session".
        streams: list of the file descriptors of the standard streams.

    Returns:
        (code, globals): the arguments of `exec`.
    """
    import numpy as np

    if request["is_new_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.random.seed()  # Python's own generator is seeded anew by the fork.
    _open_streams()
    sys.orig_argv = request["argv"]
    _, first, *rest = request["argv"]
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        return compile(rest[0], "<string>", "exec"), vars(module)
    if first == "-m":
        sys.path[0] = os.getcwd()
        importlib.invalidate_caches()
        spec = importlib.util.find_spec(rest[0])
        if spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        sys.argv = [spec.origin, *rest[1:]]
        module.__spec__, module.__package__ = spec, spec.parent
        module.__file__ = spec.origin
        return spec.loader.get_code(spec.name), vars(module)
    sys.argv = [first, *rest]
    path = pathlib.Path(first).resolve()
    sys.path[0] = str(path.parent)
    module.__file__ = str(path)
    return compile(path.read_bytes(), str(path), "exec"), vars(module)


def _open_streams():
    """Opens the standard streams on the new file descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        by_line = name == "stderr" or os.isatty(number)
        stream = open(
            number,
            "r" if name == "stdin" else "w",
            buffering=1 if by_line else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    exec(*_become(*_serve(int(sys.argv[1]))))
