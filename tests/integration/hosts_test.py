"""Two hosts train together: two processes that talk over the loopback."""

import json
import shutil
import signal

import numpy as np

from relpos_tf.bin import trainer
from relpos_tf.models import checkpoints
from tests import folders
from tests.bin import calls
from tests.campaigns import kill
from tests.training import cluster_test

OPTIONS = (
    *"--problem=translate_files --train_weights=1,2 --train_tags=,BT".split(),
    *("--vocab_size=300", "--schedule=train", "--log_step_count_steps=3"),
    "--local_eval_frequency=3",
    "--hparams=hidden_size=8,filter_size=12,num_heads=2,num_hidden_layers=1,"
    "self_attention_type=dot_product,pos=timing,"  # quick to trace
    "learning_rate_warmup_steps=20,batch_size=128,"
    "layer_prepostprocess_dropout=0.2,symbol_dropout=0.1,"
    "weight_decay=0.3,moving_average_decay=0.9,"
    "bpe_dropout=0.2,pair_concatenation=0.4",
)


class HostsTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.addresses = cluster_test.free_addresses(2)
        for name, number in (("a", 67), ("b", 23)):
            for side, word in (("en", "house"), ("de", "Haus")):
                lines = [f"{word} {i} {name * (i % 7)}" for i in range(number)]
                self.write(f"{name}.{side}", *lines)

    def arguments(self, name, steps):
        place = self.folder
        return (
            *OPTIONS,
            f"--train_source={place}/a.en,{place}/b.en",
            f"--train_target={place}/a.de,{place}/b.de",
            f"--dev_source={place}/b.en",
            f"--dev_target={place}/b.de",
            f"--data_dir={place / 'data'}",
            f"--output_dir={place / name}",
            f"--train_steps={steps}",
        )

    def start(self, index, name, steps):
        """Starts a trainer as one of two hosts."""
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": self.addresses}, "task": task}
        flags = self.arguments(name, steps)
        host = kill.Run(self.folder, flags, TF_CONFIG=json.dumps(config))
        self.addCleanup(host.process.kill)
        return host

    def finish(self, host, expected_code):
        """Returns the messages of a host, once it has ended."""
        code, error = host.finish(200), host.text()
        self.assertEqual(code, expected_code, error)
        self.assertNotIn("Traceback", error)
        return error

    def test_lost_host_resume_and_equality_with_one_host(self):
        run = self.folder / "run"
        hosts = [self.start(i, "run", 100_000) for i in range(2)]
        self.assertTrue(hosts[0].wait_for(r"^Saved .*ckpt-3\."))
        hosts[1].process.send_signal(signal.SIGKILL)
        error = self.finish(hosts[0], 1)
        self.assertEqual(error.count("another host has ended"), 1)
        self.assertIn("the same command", error.split("\n")[-1])
        self.finish(hosts[1], -signal.SIGKILL)
        for path in run.glob("ckpt-*"):
            if not path.name.startswith("ckpt-3."):
                path.unlink()  # a step between the checkpoint and the signal

        # The other host gets a copy, to see that it writes nothing.
        copy = self.folder / "copy"
        shutil.copytree(run, copy)
        before = folders.checksums(copy)
        hosts = [self.start(0, "run", 6), self.start(1, "copy", 6)]
        self.assertIn("Resuming from", self.finish(hosts[0], 0))
        error = self.finish(hosts[1], 0)
        self.assertEqual(
            error,
            f"This is host 1 ({self.addresses[1]}). The chief logs the "
            "progress.",
        )
        self.assertEqual(folders.checksums(copy), before)

        # This process stands for one host with two replicas.
        code, _, error = calls.execute(trainer.main, *self.arguments("one", 6))
        self.assertEqual(code, 0, error)
        self.assertIn("2 x 128 tokens", error)
        self.assertIn("Corpus 2, tag BT: 23 pairs", error)
        actual, expected = (
            checkpoints.read(self.folder / name / "ckpt-6")
            for name in ("run", "one")
        )
        self.assertEqual(actual.keys(), expected.keys())
        for key, value in expected.items():
            np.testing.assert_allclose(
                actual[key], value, rtol=0, atol=1e-6, err_msg=key
            )
