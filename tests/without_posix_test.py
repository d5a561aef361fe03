"""Windows, as far as Linux can show it: without what Windows lacks."""

import shutil

from tests import ctranslate2_runs
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.conformance import help_test

WINDOWS = r"""
import os, signal, sys, warnings
# No import finds them.
sys.modules |= dict.fromkeys("fcntl grp pwd resource termios".split())
del signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.pthread_sigmask
del os.O_NOFOLLOW, os.fork, os.getuid, os.sched_getaffinity, os.statvfs
os.sep = "\\"
warnings.filterwarnings("error", "", EncodingWarning, "relpos_tf")
"""
WORK = """
import os, sys
os.chdir(sys.argv[2])
import keras, relpos_tf
translator = relpos_tf.Translator.load(sys.argv[1])
print(translator.translate(["7", "twenty-one days"]))
keras.utils.set_random_seed(1)
layer = relpos_tf.RelativeMultiHeadAttention(2, 3, max_relative_position=2)
block = relpos_tf.TransformerAttention(4, 2)
x = keras.random.normal([2, 5, 4])
print(layer(x, x).numpy().tolist(), block(x).numpy().tolist())
"""
REFUSED = """
import importlib, relpos_tf
from relpos_tf.bin import command
from relpos_tf.utils import files
for name in sys.argv[2:]:
    command.execute(importlib.import_module("relpos_tf.bin." + name).main, [])
for task in relpos_tf.Translator.load, lambda path: files.write(path + "x", ""):
    try:
        task(sys.argv[1])
    except relpos_tf.errors.UserError as error:
        print(error, file=sys.stderr)
"""


class WindowsTest(folders.TestCase):
    def python(self, *words):
        code, *words = map(str, words)
        done = calls.python("-X", "warn_default_encoding", "-c", code, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_exports_for_ctranslate2_and_layers_work(self):
        ctranslate2_runs.skip_without_library()
        for path in ("plain", "c:/a\\b"):
            shutil.copytree(ctranslate2_runs.export_of(), self.folder / path)
        found = self.python(WINDOWS + WORK, "c:/a\\b", self.folder).stdout
        self.assertEqual(found, self.python(WORK, "plain", self.folder).stdout)

    def test_all_else_is_refused_in_a_sentence(self):
        names = help_test.COMMANDS
        done = self.python(WINDOWS + REFUSED, tiny_run.path(), *names)
        tasks = [*(f"relpos-{x}" for x in names), "a run", "writing files"]
        for line, task in zip(done.stderr.splitlines(), tasks, strict=True):
            self.assertIn(f"Expected Linux or macOS, which {task} needs", line)
