"""The files of deploy/ are valid, and start what there is, without rights."""

import pathlib
import re
import shutil
import subprocess
import sys

import yaml
from absl.testing import absltest

from tests.bin import calls
from tests.conformance import packaging_test

DEPLOY = packaging_test.ROOT / "deploy"


def run(name, *words):
    """Returns the code and the text of a tool; skips without the tool."""
    beside = pathlib.Path(sys.executable).with_name(name)
    path = beside if beside.exists() else shutil.which(name)
    if not path:
        raise absltest.SkipTest(f"{name} is not installed.")
    done = subprocess.run([path, *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class DeployTest(absltest.TestCase):
    def check_command(self, *flags):
        """Checks that the server takes flags, and misses the model alone."""
        done = calls.python("-m", "relpos_tf.bin.serve", *flags, "--port=0")
        (model,) = (x for x in flags if x.startswith("--model="))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"Received: {model.partition('=')[2]}", done.stderr)

    def test_hadolint_finds_nothing_in_the_dockerfile(self):
        self.assertEqual(run("hadolint", DEPLOY / "Dockerfile"), (0, ""))

    def test_the_image_has_what_it_installs_and_no_root(self):
        text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
        text = text.replace("\\\n", "")
        self.assertRegex(re.findall(r"^USER (.*)", text, re.M)[-1], r"^[1-9]")
        for names in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M):
            for name in names.split():
                self.assertTrue((packaging_test.ROOT / name).exists(), name)
        (extras,) = re.findall(r"'\.\[(.*)\]'", text)
        known = packaging_test.distribution().extras_require
        self.assertContainsSubset(extras.split(","), known)
        words = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])", text, re.M)
        (name, *flags), more = map(yaml.safe_load, words)
        self.assertEndsWith(name, "/bin/relpos-serve")
        self.check_command(*flags, *more)

    def test_compose_writes_nothing_and_listens_to_this_machine(self):
        text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
        (service,) = yaml.safe_load(text)["services"].values()
        build = service["build"]
        path = DEPLOY / build["context"] / build["dockerfile"]
        self.assertTrue(path.samefile(DEPLOY / "Dockerfile"))
        self.assertIs(service["read_only"], True)
        self.assertEqual(service["cap_drop"], ["ALL"])
        self.assertEqual(service["ports"], ["127.0.0.1:8000:8000"])
        self.check_command(*service["command"])

    def test_systemd_takes_the_unit(self):
        text = (DEPLOY / "relpos-serve.service").read_text(encoding="utf-8")
        (command,) = re.findall(r"^ExecStart=(.*)", text, re.M)
        name, *flags = command.split()
        unit = pathlib.Path(self.create_tempdir()) / "relpos-serve.service"
        unit.write_text(text.replace(name, sys.executable), encoding="utf-8")
        self.check_command(*flags)
        self.assertEqual(run("systemd-analyze", "verify", unit), (0, ""))
