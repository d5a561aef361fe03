"""Plays faults between two hosts and checks how each of them ends.

    python -m tools.hosts
    python -m tools.hosts --only=kill

Two processes on the loopback interface stand for two hosts. Each row is one
run: the fault comes when step 5 has been saved (or at the moment that the row
names). Both processes must end with the expected exit codes and messages, and
without a traceback. The seconds are those from the fault to the end.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from relpos_tf.training import cluster
from tests.campaigns import kill

HPARAMS = (
    "hidden_size=8,filter_size=12,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,learning_rate_warmup_steps=20,batch_size=128,"
    "beam_size=4,extra_length=100"
)
PATIENCE = 20
LOST = "has ended or cannot be reached"
WAITED = f"Waited {PATIENCE} s for "
STOPPED = "Stopped; saved up to step", "relpos-trainer: stopped by SIG"
KILLED = -signal.SIGKILL


class Case(NamedTuple):
    """A row of the table.

    Attributes:
        name: str.
        codes: expected exit codes, of the chief and of host 1; None for a host
            that is not started.
        says: text on the standard error of each.
        fault: function of the two processes.
        moment: "save": the fault comes once step 5 is saved; "evaluation":
            while the chief evaluates; "": at once.
        flags: flags of host 1, in place of the usual ones or besides.
        config: TF_CONFIG of host 1, if it differs.
    """

    name: str
    codes: tuple
    says: tuple = ("", "")
    fault: Callable = lambda hosts: None
    moment: str = ""
    flags: tuple = ()
    config: str = ""


def send(number, *indices, after=0):
    """Returns a fault: a signal to hosts, after some seconds."""

    def fault(hosts):
        time.sleep(after)
        for index in indices:
            hosts[index].send_signal(number)

    return fault


def cases(folder, addresses):
    """Yields the rows: both train, the chief evaluates, one host is wrong."""
    for title, number in (
        ("kill", signal.SIGKILL),
        ("freeze", signal.SIGSTOP),  # killed in the end
    ):
        hit = send(number, 0)
        yield Case(f"{title} host 0", (KILLED, 1), ("", LOST), hit, "save")
        hit = send(number, 1)
        yield Case(f"{title} host 1", (1, KILLED), (LOST, ""), hit, "save")
    for title, number, code in (
        ("SIGTERM", signal.SIGTERM, 143),
        ("SIGUSR1", signal.SIGUSR1, 138),
        ("^C", signal.SIGINT, -signal.SIGINT),
    ):
        for indices in ((0,), (1,), (0, 1)):
            name = f"{title} to {' and '.join(map(str, indices))}"
            hit = send(number, *indices)
            yield Case(name, (code, code), STOPPED, hit, "save")
    while_ = "while the chief evaluates"
    for title, codes, says, hit in (
        ("kill host 1", (1, KILLED), (LOST, ""), send(signal.SIGKILL, 1)),
        ("kill the chief", (KILLED, 1), ("", LOST), send(signal.SIGKILL, 0)),
        ("SIGTERM to it", (143, 143), STOPPED, send(signal.SIGTERM, 0)),
    ):
        yield Case(f"{title} {while_}", codes, says, hit, "evaluation")
    yield Case("host 1 never comes", (1, None), (f"{WAITED}host 1", ""))
    yield Case("the chief never comes", (None, 1), ("", f"{WAITED}the chief"))
    hit = send(signal.SIGINT, 1, after=15)
    said = "stopped by SIGINT"
    yield Case("^C while waiting", (None, -signal.SIGINT), ("", said), hit)
    heads = HPARAMS.replace("heads=2", "heads=4")
    for name, said, flag in (
        ("other flags", "--random_seed", "--random_seed=7"),
        ("other hparams", "--hparams, num_heads", f"--hparams={heads}"),
        (
            "folders of its own",
            "on a file system that all hosts share",
            f"--data_dir={folder / 'else'}",
        ),
    ):
        yield Case(name, (1, 1), (LOST, said), flags=(flag,))
    says = f"{WAITED}host 1", "TF_CONFIG is not valid"
    yield Case("a config that is not JSON", (1, 1), says, config="{")
    yield Case("same index twice", (1, 1), config=config(addresses, 0))


def config(addresses, index):
    """Returns TF_CONFIG."""
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def start(case, index, folder, addresses, stderr):
    """Starts one of the two hosts."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(kill.ROOT),
        cluster.TIMEOUT_VARIABLE: str(PATIENCE),
        "TF_CONFIG": config(addresses, index),
    }
    if index == 1 and case.config:
        environment["TF_CONFIG"] = case.config
    flags = [
        "--problem=algorithmic_reverse",
        f"--data_dir={folder / 'data'}",
        f"--output_dir={folder / 'run'}",
        f"--hparams={HPARAMS}",
        "--train_steps=100000",
        "--log_step_count_steps=5",
        "--local_eval_frequency=5",
        *(() if case.moment == "evaluation" else ("--schedule=train",)),
        *(case.flags if index == 1 else ()),
    ]
    by_name = {flag.partition("=")[0]: flag for flag in flags}
    return subprocess.Popen(
        [sys.executable, "trainer.py", *by_name.values()],
        cwd=kill.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=environment,
    )


def play(case, folder, addresses):
    """Plays a row; returns its failures, and the seconds."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    hosts, wrong = {}, []
    for index, code in enumerate(case.codes):
        if code is not None:
            with open(folder / f"error{index}", "w") as file:
                hosts[index] = start(case, index, folder, addresses, file)
    saved = folder / "run" / "ckpt-5.npz"
    while case.moment and not saved.is_file():
        if any(process.poll() is not None for process in hosts.values()):
            break
        time.sleep(0.02)
    if case.moment == "evaluation":
        time.sleep(0.5)
    begin = time.monotonic()
    case.fault(hosts)
    for index, process in hosts.items():
        if case.codes[index] != KILLED:  # It may be frozen.
            try:
                process.wait(timeout=150)
            except subprocess.TimeoutExpired:
                wrong.append(f"host {index} hangs")
    seconds = time.monotonic() - begin
    for index, process in hosts.items():
        process.kill()
        code = process.wait()
        said = (folder / f"error{index}").read_text()
        last = said.rstrip().split("\n")[-1]
        if code != case.codes[index]:
            wrong.append(f"host {index}: code {code}, {last!r}")
        if "Traceback" in said or case.says[index] not in said:
            wrong.append(f"host {index} says {last!r}")
    return wrong, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Part of a row's name.")
    only = parser.parse_args().only
    failures = 0
    # Shells ignore SIGINT in background jobs. Processes inherit that, but they
    # do not inherit handlers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
        for one in sockets:
            one.close()
        for case in cases(folder, addresses):
            if only in case.name:
                wrong, seconds = play(case, folder, addresses)
                failures += bool(wrong)
                end = "; ".join(wrong) or "as expected"
                print(f"{case.name:42} {seconds:6.1f} s  {end}", flush=True)
    sys.exit(f"{failures} failures" if failures else 0)


if __name__ == "__main__":
    main()
