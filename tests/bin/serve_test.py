"""The serve command: its flags, its models, its start and its end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from absl.testing import absltest

import relpos_tf
from relpos_tf.bin import command
from relpos_tf.bin import serve
from tests import ctranslate2_runs
from tests import tiny_run
from tests import without_tensorflow
from tests.bin import calls
from tests.serving import servers

READY = "tiny is ready for every kind of request.\n"


def post(url, content):
    """Posts JSON to /translate and returns the translations."""
    request = urllib.request.Request(
        f"{url}translate", json.dumps(content).encode(), servers.JSON
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["translations"]


def get(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return json.load(response)


class FlagsTest(absltest.TestCase):
    def assert_error(self, code, message, *arguments):
        found, _, err = calls.execute(serve.main, *arguments)
        self.assertEqual(found, code, err)
        self.assertLen(err.splitlines(), 1)
        self.assertIn(message, err)

    def test_an_address_that_is_taken_is_said(self):
        with servers.server_lib.listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            self.assert_error(
                1, "Choose another port", "--model=none", f"--port={port}"
            )
        self.assert_error(
            1, "Choose another host", "--model=none", "--host=192.0.2.1"
        )

    def test_missing_packages_are_named(self):
        packages = "starlette uvicorn prometheus_client python_multipart"
        for package in packages.split():
            program = (
                f"import sys; sys.modules['{package}'] = None\n"
                "from relpos_tf.bin import serve; serve.run()"
            )
            found = calls.python("-c", program, "--model=none")
            self.assertEqual(found.returncode, 1)
            self.assertIn(f"the package {package}, which", found.stderr)
            self.assertIn("relpos_tf[serve]", found.stderr)
            self.assertNotIn("Traceback", found.stderr)

    def test_models_have_names(self):
        for words, expected in (
            (["--model=runs/mine"], {"mine": "runs/mine"}),
            (
                ["--model=a=runs/mine", "--model=b.2=x=y"],
                {"a": "runs/mine", "b.2": "x=y"},
            ),
            (["--model=runs/alpha=1"], {"alpha=1": "runs/alpha=1"}),
        ):
            command.parse(serve.FLAGS, words)
            self.assertEqual(serve.models_of_flags(), expected)


# The command, which compiles no searches for single lines. TensorFlow starts
# without lines of its own, where Keras has another backend and no folder is
# there for temporary files.
QUICK = """
import os, tempfile
os.environ["KERAS_BACKEND"] = "no_such"
tempfile._candidate_tempdir_list = list
from relpos_tf.bin import command, serve
tf = command.import_tensorflow(num_logical_cpus=3)
assert len(tf.config.list_logical_devices("CPU")) == 3
tf.get_logger().warning("once")
from relpos_tf.decoding import model_engine
model_engine.SIZES = (0,)
model_engine.ModelEngine.warm_up_steps = lambda engine: []
serve.run()
"""


class ServeTest(absltest.TestCase):
    def start(self, *flags, program=("-c", QUICK), **kwargs):
        """Starts the command; returns its process and address."""
        process = subprocess.Popen(
            [sys.executable, *program, "--port=0", *flags],
            cwd=tiny_run.path(),
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.match(r"Listening at (http://127\S+)$", line):
                return process, found[1], said
        raise AssertionError("".join(said))

    def test_a_run_is_served_until_a_second_ctrl_c(self):
        process, url, said = self.start(
            f"--model=tiny={tiny_run.path()}", "--max_extra_length=9000"
        )
        self.assertLen(said, 5, said)
        self.assertEqual(said[0], "warning: once\n")
        loading = f"Loading tiny from {tiny_run.path()}.\n"
        self.assertEqual(said[1], loading)
        self.assertIn(f"{tiny_run.path()}/ckpt-7", said[2])
        self.assertStartsWith(said[3], f"Loaded tiny from {tiny_run.path()} in")
        self.assertEqual(process.stderr.readline(), READY)
        self.assertEqual(get(f"{url}health")["status"], "ok")
        (found,) = post(url, {"lines": ["twenty-one days"], "n_best": 3})
        texts = [one["text"] for one in found["hypotheses"]]
        self.assertBetween(len(texts), 2, 3)
        self.assertLen(set(texts), len(texts))
        (model,) = get(f"{url}models")["models"]
        self.assertEqual(
            (model["name"], model["kind"], model["attention"]),
            ("tiny", "run", True),
        )
        # TensorFlow would crash under a batch that is still translated.
        content = {"lines": ["a"] * 64, "beam_size": 16, "min_length": 9000}
        body = json.dumps(content | {"extra_length": 9000}).encode()
        address = urllib.parse.urlsplit(url)
        with socket.create_connection(
            (address.hostname, address.port)
        ) as client:
            head = (
                "POST /translate HTTP/1.0\r\nHost: localhost\r\n"
                "Content-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            client.sendall(head.encode() + body)
            time.sleep(2)
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            # The process ends before Python does, which would die of SIGINT.
            self.assertEqual(process.wait(10), 130)
        self.assertEqual(
            process.stderr.read().splitlines(),
            [
                "Stopping: 1 requests are under way.",
                "relpos-serve: stopped by SIGINT.",
            ],
        )

    def test_an_export_is_served_without_tensorflow_until_sigterm(self):
        ctranslate2_runs.skip_without_library()
        without_tensorflow.skip_without_packages(self)
        folder = ctranslate2_runs.export_of(seed=2)
        packages = without_tensorflow.folder("ctranslate2", "serve")
        process, url, _ = self.start(
            f"--model=tiny={folder}",
            program=("-S", "-m", "relpos_tf.bin.serve"),
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join(
                    map(str, (packages, without_tensorflow.ROOT))
                )
            },
        )
        self.assertEqual(process.stderr.readline(), READY)
        self.assertEqual(get(f"{url}health")["status"], "ok")
        (model,) = get(f"{url}models")["models"]
        self.assertEqual(model["kind"], "ctranslate2")
        lines = list(ctranslate2_runs.LINES)
        translator = relpos_tf.Translator.load(folder)
        self.assertEqual(
            [
                found["hypotheses"][0]["text"]
                for found in post(url, {"lines": lines})
            ],
            translator.translate(lines),
        )
        process.send_signal(signal.SIGTERM)
        text = process.stderr.read()
        self.assertEqual(process.wait(30), 143, text)
        self.assertEqual(
            text.splitlines(),
            [
                "Stopping: 0 requests are under way.",
                "relpos-serve: stopped by SIGTERM.",
            ],
        )
