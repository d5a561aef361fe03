"""The flags of every command: its help, its refusals, the documents."""

import functools
import importlib
import json
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
# Runs commands with a flag each, and `--diff`; prints what they do, and whether
# TensorFlow was imported.
RUN = """
import contextlib, importlib, io, json, sys
found = []
runs = [[x, y] for x in sys.argv[1:] for y in ("--help", "--no_such_flag")]
for name, *flags in [*runs, ["compare", "--diff", "--preset=table1"]]:
    module = importlib.import_module(f"relpos_tf.bin.{name}")
    sys.argv = [name, *flags]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            module.run()
        except SystemExit as end:
            code = end.code
    found.append([name, flags[0], code or 0, out.getvalue(), err.getvalue()])
print(json.dumps([found, "tensorflow" in sys.modules]))
"""


def execute(*arguments):
    """Runs Python; returns its standard output."""
    return subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


@functools.cache
def results():
    """Returns (exit code, output, error) by command and flag."""
    found, has_tensorflow = json.loads(execute("-c", RUN, *COMMANDS))
    assert not has_tensorflow
    return {(name, flag): result for name, flag, *result in found}


def flags_of(command):
    """Returns the names of a command's flags."""
    module = importlib.import_module(f"relpos_tf.bin.{command}")
    return {module.FLAGS[name].name for name in module.FLAGS}


class HelpTest(parameterized.TestCase):
    @parameterized.parameters(*COMMANDS)
    def test_help_lists_our_flags_only_and_needs_no_tensorflow(self, command):
        code, out, err = results()[command, "--help"]
        self.assertEqual((code, err), (0, ""))
        listed = re.findall(r"^  --(?:\[no\])?(\w+)$", out, re.MULTILINE)
        self.assertCountEqual(listed, flags_of(command))

    @parameterized.parameters(*COMMANDS)
    def test_unknown_flag_is_refused_with_the_list(self, command):
        code, out, err = results()[command, "--no_such_flag"]
        self.assertEqual((code, out), (2, ""))
        self.assertStartsWith(
            err, f"relpos-{command}: unknown flag --no_such_flag."
        )
        known = re.findall(r"--(\w+)", err.splitlines()[1])
        self.assertCountEqual(known, flags_of(command))

    def test_difference_of_sets_needs_no_tensorflow(self):
        code, out, err = results()["compare", "--diff"]
        self.assertEqual((code, err), (0, ""))
        self.assertIn("self_attention_type", out)

    @parameterized.parameters(*LAUNCHERS)
    def test_launcher_is_the_command(self, name):
        out = execute(f"{name}.py", "--help")
        self.assertEqual(out, results()[name, "--help"][1])
