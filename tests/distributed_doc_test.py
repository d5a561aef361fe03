"""The scripts of docs/distributed.md set the right TF_CONFIG."""

import os
import pathlib
import re
import subprocess
import textwrap
from unittest import mock

from absl.testing import absltest

from relpos_tf.training import cluster

ROOT = pathlib.Path(__file__).parents[1]
TEXT = ROOT / "docs/distributed.md"
# In place of the commands of Slurm, and of the trainer.
STAND_INS = """
scontrol() { printf 'node1\\nnode2\\n'; }
relpos-trainer() { printf '%s' "$TF_CONFIG"; }
exec() { "$@"; }
srun() {
  while [[ $1 == -* ]]; do shift; done
  "$@"
}
export -f scontrol relpos-trainer exec
"""


def blocks():
    """Returns the indented blocks of the page."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", TEXT.read_text(), re.M)
    return [textwrap.dedent(block).strip("\n") for block in found]


def only_block(start):
    [block] = [b for b in blocks() if b.startswith(start)]
    return block


def cluster_of(script, **environment):
    """Returns the cluster of the TF_CONFIG that a shell script sets."""
    config = subprocess.run(
        ["bash", "-c", f"{STAND_INS}\n{script}"],
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    with mock.patch.dict("os.environ", {"TF_CONFIG": config}):
        return cluster.from_environment()


class DistributedDocTest(absltest.TestCase):
    def test_by_hand(self):
        found = cluster_of(only_block("export TF_CONFIG"))
        self.assertEqual(found.addresses, ("host1:2222", "host2:2222"))
        self.assertEqual(found.index, 0)

    def test_slurm(self):
        script = only_block("#!/bin/bash\n#SBATCH --nodes")
        for index in (0, 1):
            found = cluster_of(
                script,
                SLURM_JOB_ID="123456",
                SLURM_JOB_NODELIST="node[1-2]",
                SLURM_NODEID=str(index),
            )
            self.assertEqual(found.addresses, ("node1:23456", "node2:23456"))
            self.assertEqual(found.index, index)

    def test_slurm_puts_a_stopped_job_back(self):
        script = only_block("#!/bin/bash\n#SBATCH --nodes")
        for code, expected in ((138, "requeue 7"), (143, "requeue 7"), (1, "")):
            fakes = f"scontrol() {{ echo $*; }}; srun() {{ return {code}; }}"
            done = subprocess.run(
                ["bash", "-c", f"{fakes}\n{script}"],
                env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"},
                capture_output=True,
                text=True,
            )
            self.assertEqual(
                (done.stdout.strip(), done.returncode), (expected, code)
            )

    def test_kubernetes(self):
        job = ROOT.joinpath("deploy/kubernetes.yaml").read_text()
        script = re.search(r"args:\n +- \|\n((?: {10,}.*\n)+)", job)[1]
        script = textwrap.dedent(re.split(r"\n +resources:", script)[0])
        for index in (0, 1):
            found = cluster_of(script, JOB_COMPLETION_INDEX=str(index))
            self.assertEqual(
                found.addresses,
                ("relpos-0.relpos:2222", "relpos-1.relpos:2222"),
            )
            self.assertEqual(found.index, index)
