"""The flags of every command: its help, its refusals, the documents."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import parameterized

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = tuple(
    path.stem
    for path in sorted((ROOT / "relpos_tf" / "bin").glob("*.py"))
    if path.stem not in ("__init__", "command", "scores")
)
LAUNCHERS = ("trainer", "decoder")
NO_TENSORFLOW = """
import sys
from relpos_tf.bin import {name}
try:
    {name}.run()
finally:
    if "tensorflow" in sys.modules:
        sys.stderr.write("tensorflow was imported")
"""


def flags_of(command):
    """Returns the names of a command's flags."""
    module = importlib.import_module(f"relpos_tf.bin.{command}")
    return {module.FLAGS[name].name for name in module.FLAGS}


def execute(*arguments):
    """Runs Python; returns (exit code, standard output, standard error)."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


class HelpTest(parameterized.TestCase):
    @parameterized.parameters(*COMMANDS)
    def test_help_lists_our_flags_only_and_needs_no_tensorflow(self, command):
        code, out, err = execute(
            "-c", NO_TENSORFLOW.format(name=command), "--help"
        )
        self.assertEqual((code, err), (0, ""))
        listed = re.findall(r"^  --(?:\[no\])?(\w+)$", out, re.MULTILINE)
        self.assertCountEqual(listed, flags_of(command))

    @parameterized.parameters(*COMMANDS)
    def test_unknown_flag_is_refused_with_the_list(self, command):
        code, out, err = execute(
            "-c", NO_TENSORFLOW.format(name=command), "--no_such_flag"
        )
        self.assertEqual((code, out), (2, ""))
        self.assertStartsWith(
            err, f"relpos-{command}: unknown flag --no_such_flag."
        )
        known = re.findall(r"--(\w+)", err.splitlines()[1])
        self.assertCountEqual(known, flags_of(command))

    @parameterized.parameters(*LAUNCHERS)
    def test_launcher_is_the_command(self, name):
        self.assertEqual(
            execute(f"{name}.py", "--help"),
            execute("-m", f"relpos_tf.bin.{name}", "--help"),
        )

    @parameterized.parameters(*COMMANDS)
    def test_every_flag_says_what_it_does(self, command):
        module = importlib.import_module(f"relpos_tf.bin.{command}")
        silent = [n for n in module.FLAGS if not module.FLAGS[n].help]
        self.assertEmpty(silent)
