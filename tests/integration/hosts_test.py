"""Two hosts train together: two processes that talk over the loopback."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
from absl.testing import absltest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HPARAMS = (
    "--hparams=hidden_size=8,filter_size=12,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,learning_rate_warmup_steps=20,batch_size=128,"
    "layer_prepostprocess_dropout=0.2"
)


def free_addresses(number):
    """Returns addresses of ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return [f"127.0.0.1:{port}" for port in ports]


def start(addresses, index, *arguments):
    """Starts a trainer as one host of several."""
    task = {"type": "worker", "index": index}
    config = {"cluster": {"worker": addresses}, "task": task}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    if len(addresses) > 1:
        environment["TF_CONFIG"] = json.dumps(config)
    return subprocess.Popen(
        [sys.executable, "trainer.py", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )


def weights(prefix):
    """Returns every array of a checkpoint, by its key."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        key: reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
        if "OBJECT_GRAPH" not in key
    }


def contents(folder):
    """Returns a checksum of every file, by its name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


class HostsTest(absltest.TestCase):
    def arguments(self, name, steps):
        return (
            "--problem=algorithmic_reverse",
            f"--data_dir={self.folder / 'data'}",
            f"--output_dir={self.folder / name}",
            "--schedule=train",
            "--log_step_count_steps=5",
            "--local_eval_frequency=5",
            f"--train_steps={steps}",
            HPARAMS,
        )

    def start(self, *arguments):
        process = start(*arguments)
        self.addCleanup(process.kill)
        return process

    def finish(self, process, expected_code):
        """Returns what a process wrote, once it has ended."""
        _, error = process.communicate(timeout=200)
        self.assertEqual(process.returncode, expected_code, error)
        self.assertNotIn("Traceback", error)
        return error

    def test_lost_host_resume_and_equality_with_one_host(self):
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        addresses = free_addresses(2)
        hosts = [
            self.start(addresses, i, *self.arguments("run", 100_000))
            for i in range(2)
        ]
        run = self.folder / "run"
        while not (run / "ckpt-5.index").is_file():
            self.assertIsNone(hosts[0].poll(), "The chief has ended.")
            time.sleep(0.02)
        hosts[1].send_signal(signal.SIGKILL)
        error = self.finish(hosts[0], 1)
        self.assertEqual(error.count(" has ended or cannot be reached."), 1)
        self.assertIn(f"Host 1 ({addresses[1]})", error.split("\n")[-2])
        self.finish(hosts[1], -signal.SIGKILL)
        for path in run.glob("ckpt-*"):
            if int(path.name.split("-")[1].split(".")[0]) > 5:
                path.unlink()  # of steps before the signal came

        # The other host gets a copy, to see that it writes nothing.
        copy = self.folder / "copy"
        shutil.copytree(run, copy)
        before = contents(copy)
        hosts = [
            self.start(addresses, 0, *self.arguments("run", 10)),
            self.start(addresses, 1, *self.arguments("copy", 10)),
        ]
        self.assertIn("Going on from", self.finish(hosts[0], 0))
        error = self.finish(hosts[1], 0)
        self.assertEqual(
            error,
            f"This is host 1 ({addresses[1]}). The chief tells the rest.\n",
        )
        self.assertEqual(contents(copy), before)

        one = self.start(
            ["one"], 0, *self.arguments("one", 10), "--num_logical_cpus=2"
        )
        self.finish(one, 0)
        expected = weights(self.folder / "one" / "ckpt-10")
        actual = weights(run / "ckpt-10")
        self.assertEqual(actual.keys(), expected.keys())
        for key, value in expected.items():
            np.testing.assert_allclose(
                actual[key], value, rtol=0, atol=1e-6, err_msg=key
            )


if __name__ == "__main__":
    absltest.main()
