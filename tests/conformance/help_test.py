"""The flags of every command: its help, its refusals, the documents."""

import ast
import functools
import importlib
import json
import re

from absl.testing import parameterized

import relpos_tf
from tests.bin import calls

COMMANDS = tuple(
    path.stem
    for path in sorted((calls.ROOT / "relpos_tf" / "bin").glob("*.py"))
    if path.stem not in ("__init__", "command", "scores")
)
LAUNCHERS = ("trainer", "decoder")
# Runs commands with `--help`, `--version`, `--diff`; prints what they do, and
# whether TensorFlow was imported.
RUN = """
import contextlib, importlib, io, json, sys
from relpos_tf.bin import command
found = []
runs = [[x, flag] for x in sys.argv[1:] for flag in ("--help", "--version")]
for name, *flags in [*runs, ["compare", "--diff", "--preset=table1"]]:
    module = importlib.import_module(f"relpos_tf.bin.{name}")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.execute(module.main, flags)
    found.append([name, flags[0], code, out.getvalue(), err.getvalue()])
print(json.dumps([found, "tensorflow" in sys.modules]))
"""


def execute(*arguments):
    """Runs Python; returns its standard output."""
    done = calls.python(*arguments, PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def results():
    """Returns (exit code, output, error) by command and flag."""
    found, has_tensorflow = json.loads(execute("-c", RUN, *COMMANDS))
    assert not has_tensorflow
    return {(name, flag): result for name, flag, *result in found}


class HelpTest(parameterized.TestCase):
    @parameterized.parameters(*COMMANDS)
    def test_help_lists_our_flags_only_and_needs_no_tensorflow(self, command):
        code, out, err = results()[command, "--help"]
        self.assertEqual((code, err), (0, ""))
        listed = re.findall(r"^  --(?:\[no\])?(\w+)$", out, re.MULTILINE)
        module = importlib.import_module(f"relpos_tf.bin.{command}")
        self.assertCountEqual(
            listed, [module.FLAGS[name].name for name in module.FLAGS]
        )

    @parameterized.parameters(*COMMANDS)
    def test_version_is_that_of_the_package(self, command):
        line = f"relpos-{command} {relpos_tf.__version__}\n"
        self.assertEqual(results()[command, "--version"], [0, line, ""])

    @parameterized.parameters(*COMMANDS)
    def test_what_reads_a_run_or_looks_names_up_takes_own_ones(self, command):
        flags = importlib.import_module(f"relpos_tf.bin.{command}").FLAGS
        names = {"output_dir", "checkpoint_path", "model", "runs", "problem"}
        reads = command != "import_t2t" and any(x in flags for x in names)
        self.assertEqual("usr_dir" in flags, reads)

    def test_difference_of_sets_needs_no_tensorflow(self):
        code, out, err = results()["compare", "--diff"]
        self.assertEqual((code, err), (0, ""))
        self.assertIn("self_attention_type", out)

    @parameterized.parameters(*LAUNCHERS)
    def test_launcher_is_the_command(self, name):
        out = execute(f"{name}.py", "--help")
        self.assertEqual(out, results()[name, "--help"][1])

    @parameterized.product(
        name=LAUNCHERS,
        case=(
            (
                "sys.version_info, sys.version = (3, 9), '3.9.1 x'",
                "Python 3.9.1. ",
            ),
            ("sys.modules['absl'] = None", "the package absl. "),
        ),
    )
    def test_launcher_says_in_one_line_what_it_cannot_run_with(
        self, name, case
    ):
        # Of a Python that is too old, it is at least read.
        source = (calls.ROOT / f"{name}.py").read_text("utf-8")
        ast.parse(source, feature_version=(3, 7))
        run = f"runpy.run_path('{name}.py', run_name='__main__')"
        done = calls.python("-c", f"import runpy, sys; {case[0]}; {run}")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, rf"\A{name}.py needs [^\n]*\n\Z")
        self.assertIn(case[1], done.stderr)
