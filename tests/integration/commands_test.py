"""The commands as a user types them, each in a process of its own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest

from relpos_tf.models import run_dir as run_dir_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = (
    "--hparams=hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,learning_rate_warmup_steps=20,batch_size=256,"
    "layer_prepostprocess_dropout=0.2,extra_length=5,beam_size=2"
)


def start(command, *arguments):
    """Starts a command in the repository."""
    return subprocess.Popen(
        [sys.executable, *command.split(), *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def run(command, *arguments, stdin=b""):
    """Runs a command; returns exit code, standard output and error."""
    process = start(command, *arguments)
    output, error = process.communicate(stdin, timeout=300)
    return process.returncode, output, error.decode()


def wait_for(path, seconds=200):
    """Returns when a file is there."""
    deadline = time.monotonic() + seconds
    while not path.is_file():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear in {seconds} seconds.")
        time.sleep(0.02)


class CommandsTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.create_tempdir(cls()).full_path)

    def arguments(self, name, *more):
        return (
            "--problem=algorithmic_reverse",
            f"--data_dir={self.folder / 'data'}",
            f"--output_dir={self.folder / name}",
            "--log_step_count_steps=10",
            "--local_eval_frequency=10",
            SMALL,
            *more,
        )

    def train(self, name, *more):
        code, _, error = run("trainer.py", *self.arguments(name, *more))
        self.assertEqual(code, 0, error)
        return error

    def test_train_decode_export_and_load(self):
        error = self.train("whole", "--train_steps=20")
        self.assertIn("step 20/20", error)
        self.assertIn("BLEU", error)
        self.assertNotIn("Traceback", error)
        run_dir = self.folder / "whole"
        for name in (
            "hparams.json flags.txt versions.json tokenizer.model "
            "ckpt-20.index metrics.jsonl"
        ).split():
            self.assertTrue((run_dir / name).is_file(), name)
        events = [
            json.loads(line)
            for line in (run_dir / "metrics.jsonl").read_text().split("\n")[:-1]
        ]
        self.assertEqual(
            [(e["step"], e["split"]) for e in events],
            [(10, "train"), (10, "dev"), (20, "train"), (20, "dev")],
        )
        self.assertIn("tok:13a", events[-1]["bleu_signature"])

        lines = "ba do mi\n\ngi ku\u2028ta\n  \nbu".encode()
        code, decoded, error = run(
            "decoder.py", f"--output_dir={run_dir}", stdin=lines
        )
        self.assertEqual(code, 0, error)
        self.assertEqual(decoded.count(b"\n"), 5)
        self.assertEqual(decoded.split(b"\n")[1::2], [b"", b"", b""])
        code, _, error = run(
            "-m relpos_tf.bin.export", f"--output_dir={run_dir}"
        )
        self.assertEqual(code, 0, error)
        code, loaded, error = run(
            "examples/load_export.py",
            f"--export_dir={run_dir / 'export'}",
            stdin=lines,
        )
        self.assertEqual(code, 0, error)
        self.assertEqual(loaded, decoded)

    def test_interrupt_saves_and_says_how_to_go_on(self):
        arguments = self.arguments("stopped", "--train_steps=100000")
        # A shell that runs the tests in the background ignores SIGINT for
        # them, and a process inherits that; a handler it does not.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        process = start("trainer.py", *arguments)
        self.addCleanup(process.kill)
        wait_for(self.folder / "stopped" / "ckpt-10.index")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, error.decode())
        self.assertNotIn("Traceback", error.decode())
        self.assertIn("The same command goes on", error.decode())
        self.assertGreaterEqual(
            run_dir_lib.all_steps(self.folder / "stopped")[-1], 10
        )

    def test_two_replicas_train_and_one_goes_on(self):
        error = self.train(
            "replicas", "--train_steps=10", "--num_logical_cpus=2"
        )
        self.assertIn("2 x 256 tokens", error)
        error = self.train("replicas", "--train_steps=20")
        self.assertIn("steps 10 to 20", error)

    def test_other_architecture_is_refused(self):
        self.train("first", "--train_steps=10")
        code, _, error = run(
            "trainer.py",
            *self.arguments("first", "--train_steps=20")[:-2],
            "--hparams=hidden_size=32,num_heads=2",
        )
        self.assertEqual(code, 1)
        self.assertIn("hidden_size=16 (now 32)", error)
        self.assertEqual(error.count("\n"), error.rstrip().count("\n") + 1)


class MistakesTest(absltest.TestCase):
    """One clear line, an exit code, and nothing half-written."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        for name, text in (
            ("a.en", "one\ntwo\n"),
            ("a.de", "eins\nzwei\n"),
            ("short.de", "eins\n"),
            ("empty.en", ""),
        ):
            (self.folder / name).write_text(text)

    def refuse(self, expected_code, *expected, arguments):
        code, output, error = run(
            "trainer.py",
            f"--data_dir={self.folder / 'data'}",
            f"--output_dir={self.folder / 'run'}",
            *arguments,
        )
        self.assertEqual(code, expected_code, error)
        self.assertEqual(output, b"")
        self.assertNotIn("Traceback", error)
        last = error.rstrip().split("\n")[-1]
        for text in expected:
            self.assertIn(text, error)
        self.assertFalse((self.folder / "run").exists(), last)
        self.assertFalse((self.folder / "data").exists(), last)

    def files(self, source, target):
        return (
            "--problem=translate_files",
            f"--train_source={self.folder / source}",
            f"--train_target={self.folder / target}",
            f"--dev_source={self.folder / 'a.en'}",
            f"--dev_target={self.folder / 'a.de'}",
        )

    def test_unknown_set(self):
        self.refuse(
            2, "transformer_relative_tiny", arguments=["--hparams_set=x"]
        )

    def test_unknown_hparam(self):
        self.refuse(2, "hidden_size", arguments=["--hparams=hiden_size=3"])

    def test_unknown_flag(self):
        self.refuse(2, "--problem", arguments=["--problm=x"])

    def test_missing_file(self):
        self.refuse(1, "no.en", arguments=self.files("no.en", "a.de"))

    def test_unequal_line_counts(self):
        self.refuse(
            1, "short.de", "2", "1", arguments=self.files("a.en", "short.de")
        )

    def test_empty_file(self):
        self.refuse(1, "empty.en", arguments=self.files("empty.en", "empty.en"))

    def test_xla_on_several_devices(self):
        self.refuse(
            1,
            "--xla_compile works on one device",
            arguments=["--xla_compile", "--num_logical_cpus=2"],
        )


if __name__ == "__main__":
    absltest.main()
