"""Files with final names are written by `utils.files` alone.

A folder from a stranger may hold symbolic links under names that can be
guessed. No file is written through such a link.
"""

import ast
import contextlib
import io
import os
import pathlib
import zipfile

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.bin import bleu
from relpos_tf.bin import command
from relpos_tf.bin import translate_all
from relpos_tf.comparison import child_process
from relpos_tf.comparison import plots
from relpos_tf.comparison.report import files as report_files
from relpos_tf.data import pieces
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.problems import corpora
from relpos_tf.utils import text
from tests import report_sample
from tests import tiny_run

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "relpos_tf"
# Modules that write files in another way, and where.
OTHERS = {
    "utils.files": "",
    "export.ctranslate2_export": "into a folder it has just made",
    "export.litert_export": "into a folder it has just made",
    "export.saved_model": "into a folder it has just made",
    "t2t.t2t_import": "into a folder it has just made",
    "problems.problem": "a folder, over nothing or an empty one",
    "data.token_files": "into a folder that `problem` has just made",
    "data.pieces": "into a folder it has just made",
    "bin.translate_all": "a file without a name",
    "bin.command": "a file without a name",
    "utils.text": "keeps a file that `files` was about to remove",
    "models.checkpoints": "renames what TensorFlow writes",
}


def writes(path):
    """Yields the lines of a module that write or rename a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).split(".")[-1]
        values = [a.value for a in node.args[1:] if isinstance(a, ast.Constant)]
        values += [
            k.value.value
            for k in node.keywords
            if k.arg == "mode" and isinstance(k.value, ast.Constant)
        ]
        is_opened = name == "open" and any(
            isinstance(v, str) and set(v) & set("wax+") for v in values
        )
        is_renamed = ast.unparse(node.func) in ("os.replace", "os.rename")
        named = {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile"}
        if is_opened or is_renamed or name in named:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def write_lines(folder):
    with text.writer(folder / "x.de", None) as write:
        write("new")
    return "x.de"


def write_report(folder):
    report_files.write(report_sample.report(), folder)
    return "report.html"


def draw(folder):
    plots.scores_by_step(
        folder / "x.png", {"a": [(1, 2.0)]}, title="", score="", caption=""
    )
    return "x.png"


def learn_tokenizer(folder):
    pieces.train(tiny_run.TEXT * 5, folder / "t.model", 340)
    return "t.model"


def extract(folder):
    archive = folder / "a.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("in/x.txt", "new")
    corpora.extract(archive, "in/x.txt", folder)
    return "x.txt"


def make_plain(folder):
    (folder / "x.sgm").write_text('<seg id="1">new</seg>')
    corpora.plain_text(folder / "x.sgm")
    return "x.sgm.txt"


def average(folder):
    run = folder / "run"
    run.mkdir(exist_ok=True)
    for step in (3, 5):
        checkpoints.write_model(
            str(run / f"ckpt-{step}"), {"a": np.full([7], step)}, step
        )
    checkpoints.average(
        [str(run / "ckpt-3"), str(run / "ckpt-5")], str(folder / "ckpt-5")
    )
    return "ckpt-5.npz"


def score(folder):
    (folder / "text").write_text("a b c d\n")
    with contextlib.redirect_stdout(io.StringIO()):
        code = command.execute(
            bleu.main,
            [
                f"--translation={folder}/text",
                f"--reference={folder}/text",
                f"--score_json={folder}/score.json",
            ],
        )
    assert code == 0
    return "score.json"


def describe_translations(folder):
    translate_all.prepare_folder(folder, {"a": 1}, "dev")
    return "dev.json"


def of_a_run(name, call):
    def write(folder):
        call(run_dir.RunDir(folder))
        return name

    return write


def copy_tokenizer(run):
    run.copy_tokenizer(tiny_run.path() / "tokenizer.model")


WRITERS = {
    "lines": write_lines,
    "report": write_report,
    "plot": draw,
    "tokenizer": learn_tokenizer,
    "extracted": extract,
    "plain_text": make_plain,
    "average": average,
    "scores": score,
    "translations": describe_translations,
    "hparams": of_a_run(
        "hparams.json", lambda run: run.write_hparams(hparam.HParams())
    ),
    "flags": of_a_run("flags.txt", lambda run: run.write_flags("--x")),
    "problem": of_a_run("problem.json", lambda run: run.write_problem({})),
    "copied": of_a_run("tokenizer.model", copy_tokenizer),
}


class LinkTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.outside = pathlib.Path(self.create_tempdir().full_path) / "own"
        self.outside.write_bytes(b"mine")

    @parameterized.named_parameters(*WRITERS.items())
    def test_file_is_written_and_no_link_is_followed(self, write):
        # The first call shows the names.
        name = write(self.folder)
        whole = (self.folder / name).read_bytes()
        for path in (self.folder / name, self.folder / f"{name}.part"):
            path.unlink(missing_ok=True)
            path.symlink_to(self.outside)
        hidden = self.folder / f".{name}.part"
        hidden.symlink_to(self.outside)
        if name in ("tokenizer.model", "x.txt", "dev.json", "x.sgm.txt"):
            (self.folder / name).unlink()  # An existing file is reused.
        write(self.folder)
        self.assertEqual(self.outside.read_bytes(), b"mine")
        self.assertFalse((self.folder / name).is_symlink())
        if not name.endswith(".png"):
            self.assertEqual((self.folder / name).read_bytes(), whole)

    @parameterized.parameters(False, True)
    def test_metrics_are_not_written_through_a_link(self, is_there):
        run = run_dir.RunDir(self.folder)
        link = self.folder / "metrics.jsonl"
        target = self.outside if is_there else self.outside.with_name("none")
        link.symlink_to(target)
        with self.assertRaisesRegex(errors.UserError, "a link to .*Remove"):
            run.append_metrics({"step": 3})
        self.assertEqual(self.outside.read_bytes(), b"mine")
        self.assertEqual(os.listdir(self.outside.parent), ["own"])

    def test_the_log_of_a_process_is_not_written_through_a_link(self):
        log = self.folder / "x.log"
        log.symlink_to(self.outside)
        with self.assertRaisesRegex(errors.UserError, "a link to .*Remove"):
            child_process.run(["-c", "print(1)"], log, "It")
        self.assertEqual(self.outside.read_bytes(), b"mine")

    def test_links_among_leftovers_are_removed_and_not_followed(self):
        precious = self.outside.parent
        for name in ("ckpt-7.npz", "hparams.json"):
            path = self.folder / f"{name}.0123abcd.part"
            path.symlink_to(self.outside)
        (self.folder / "folder").symlink_to(precious)
        run_dir.remove_left_overs(self.folder)
        self.assertEqual(self.outside.read_bytes(), b"mine")
        self.assertEqual(os.listdir(precious), ["own"])
        self.assertEqual(os.listdir(self.folder), ["folder"])


class OneWayTest(absltest.TestCase):
    def test_only_utils_files_writes_under_final_names(self):
        wrong = []
        for path in sorted(PACKAGE.rglob("*.py")):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            if ".".join(parts) not in OTHERS:
                wrong += [f"{path}, {line}" for line in writes(path)]
        self.assertEmpty(wrong)

    def test_writing_is_found(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "x.py"
        path.write_text(
            "open(p, 'w')\nopen(p)\np.write_text('')\nos.replace(a, b)\n"
            "opened(p, mode='w')\np.open(mode='ab')\nopen(p, 'rb')\n"
            "text.replace('a', 'b')\n"
        )
        numbers = [line.split(":")[0] for line in writes(path)]
        self.assertEqual(numbers, ["line 1", "line 3", "line 4", "line 6"])


if __name__ == "__main__":
    absltest.main()
