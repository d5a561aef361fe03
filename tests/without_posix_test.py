"""Windows, as far as Linux can show it: without what Windows lacks."""

import shutil

from tests import ctranslate2_runs
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.conformance import help_test

WINDOWS = r"""
import os, signal, sys, warnings
for name in "fcntl", "grp", "pwd", "resource", "termios":
    sys.modules[name] = None  # no import finds it
for name in "SIGHUP", "SIGUSR1", "SIGUSR2", "pthread_sigmask":
    delattr(signal, name)
for name in "O_NOFOLLOW", "fork", "getuid", "sched_getaffinity", "statvfs":
    delattr(os, name)
os.sep = "\\"
warnings.filterwarnings("error", "", EncodingWarning, "relpos_tf")
"""
WORK = """
import os, sys
os.chdir(sys.argv[1])
from relpos_tf import Translator
print(Translator.load(sys.argv[2]).translate(["7", "twenty-one days"]))

import keras, relpos_tf
keras.utils.set_random_seed(1)
layer = relpos_tf.RelativeMultiHeadAttention(2, 3, max_relative_position=2)
block = relpos_tf.TransformerAttention(4, 2)
x = keras.random.normal([2, 5, 4])
print(layer(x, x).numpy().tolist(), block(x).numpy().tolist())
"""
REFUSED = """
import importlib
from relpos_tf import Translator
from relpos_tf.bin import command
from relpos_tf.utils import files

for name in sys.argv[3:]:
    main = importlib.import_module(f"relpos_tf.bin.{name}").main
    print(command.execute(main, []), end=" ", flush=True)
for task in Translator.load, lambda path: files.write(path / "x", ""):
    try:
        task(__import__("pathlib").Path(sys.argv[2]))
    except Exception as error:
        print(type(error).__name__, error)
"""


class WindowsTest(folders.TestCase):
    def python(self, code, *words):
        words = "-X", "warn_default_encoding", "-c", code, self.folder, *words
        done = calls.python(*map(str, words))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_exports_for_ctranslate2_and_layers_work(self):
        ctranslate2_runs.skip_without_library()
        for path in ("plain", "c:/a\\b"):
            shutil.copytree(ctranslate2_runs.export_of(), self.folder / path)
        self.assertEqual(
            self.python(WINDOWS + WORK, "c:/a\\b").stdout,
            self.python(WORK, "plain").stdout,
        )

    def test_all_else_is_refused_in_a_sentence(self):
        names = help_test.COMMANDS
        done = self.python(WINDOWS + REFUSED, tiny_run.path(), *names)
        sentence = "Expected Linux or macOS, which {} needs. Received: linux, "
        lines = done.stderr.splitlines()
        for name, line in zip(names, lines, strict=True):
            want = f"relpos-{name}: {sentence.format(f'relpos-{name}')}"
            self.assertStartsWith(line, want)
        *codes, load, write = done.stdout.replace("1 ", "1\n").splitlines()
        self.assertEqual(codes, ["1"] * len(names))
        self.assertStartsWith(load, f"UserError {sentence.format('a run')}")
        want = f"UserError {sentence.format('writing files')}"
        self.assertStartsWith(write, want)
        self.assertEqual(list(tiny_run.path().glob("x*")), [])
