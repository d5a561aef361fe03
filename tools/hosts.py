"""Plays faults between two hosts and checks how each of them ends.

    python -m tools.hosts
    python -m tools.hosts --only=kill

Two processes on the loopback interface stand for two hosts. Each row is one
run: the fault comes when step 5 has been saved (or at the moment that the row
names). Both processes must end with the expected exit codes and messages, and
without a traceback. The seconds are those from the fault to the end.
"""

import argparse
import dataclasses
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
HPARAMS = (
    "hidden_size=8,filter_size=12,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,learning_rate_warmup_steps=20,batch_size=128,"
    "beam_size=4,extra_length=100"
)
LOST = "has ended or cannot be reached"
PATIENCE = 20


@dataclasses.dataclass
class Case:
    """A row of the table.

    Attributes:
        name: str.
        codes: expected exit codes, of the chief and of host 1.
        says: text on the standard error of each.
        fault: function of the two processes; called at the moment.
        moment: "save": once step 5 is saved; "evaluation": while the chief
            evaluates; "": at once.
        flags: of both hosts.
        own_flags: further flags of host 1.
        environment: variables of host 1 that differ.
        absent: hosts that are not started.
        one_says: text that at least one host writes.
    """

    name: str
    codes: tuple[int, int]
    says: tuple[str, str] = ("", "")
    fault: Callable | None = None
    moment: str = ""
    flags: tuple[str, ...] = ()
    own_flags: tuple[str, ...] = ()
    environment: dict | None = None
    absent: tuple[int, ...] = ()
    one_says: str = ""


def send(number, *indices):
    """Returns a fault: a signal to hosts."""

    def fault(hosts):
        for index in indices:
            hosts[index].send_signal(number)

    return fault


TRAIN = ("--schedule=train", "--train_steps=100000")
EVALUATE = ("--train_steps=100000",)


def cases(folder, addresses):
    """Returns the rows."""
    return [
        *training_cases(),
        *evaluation_cases(),
        *absent_cases(),
        *refused_cases(folder, addresses),
    ]


def training_cases():
    """Returns the rows in which hosts are hit while both train."""
    rows = []
    for title, number in (
        ("kill", signal.SIGKILL),
        ("freeze", signal.SIGSTOP),
    ):
        for index in (0, 1):
            # A frozen host is killed in the end.
            codes = [1, 1]
            codes[index] = -signal.SIGKILL
            says = ["", ""]
            says[1 - index] = LOST
            rows.append(
                Case(
                    f"{title} host {index}",
                    tuple(codes),
                    tuple(says),
                    send(number, index),
                    "save",
                    TRAIN,
                )
            )
    for title, number in (("SIGTERM", signal.SIGTERM), ("^C", signal.SIGINT)):
        for indices in ((0,), (1,), (0, 1)):
            rows.append(
                Case(
                    f"{title} to {' and '.join(map(str, indices))}",
                    (0, 0),
                    ("Stopped at step", ""),
                    send(number, *indices),
                    "save",
                    TRAIN,
                )
            )
    return rows


def evaluation_cases():
    """Returns the rows in which a host is hit while the chief evaluates."""
    return [
        Case(
            "kill host 1 while the chief evaluates",
            (1, -signal.SIGKILL),
            (LOST, ""),
            send(signal.SIGKILL, 1),
            "evaluation",
            EVALUATE,
        ),
        Case(
            "kill the chief while it evaluates",
            (-signal.SIGKILL, 1),
            ("", LOST),
            send(signal.SIGKILL, 0),
            "evaluation",
            EVALUATE,
        ),
        Case(
            "SIGTERM to the chief while it evaluates",
            (0, 1),
            ("Stopped at step", LOST),
            send(signal.SIGTERM, 0),
            "evaluation",
            EVALUATE,
        ),
    ]


def absent_cases():
    """Returns the rows in which one host does not start."""
    return [
        Case(
            "host 1 never comes",
            (1, 0),
            (f"Waited {PATIENCE} s for host 1", ""),
            flags=TRAIN,
            absent=(1,),
        ),
        Case(
            "the chief never comes",
            (0, 1),
            ("", f"Waited {PATIENCE} s for the chief"),
            flags=TRAIN,
            absent=(0,),
        ),
        Case(
            "^C while waiting",
            (0, 130),
            ("", "interrupted"),
            lambda hosts: (time.sleep(15), send(signal.SIGINT, 1)(hosts)),
            flags=TRAIN,
            absent=(0,),
        ),
    ]


def refused_cases(folder, addresses):
    """Returns the rows in which host 1 is started in a wrong way."""
    return [
        Case(
            "other flags",
            (1, 1),
            (LOST, "--random_seed"),
            flags=TRAIN,
            own_flags=("--random_seed=7",),
        ),
        Case(
            "other hparams",
            (1, 1),
            (LOST, "--hparams, num_heads"),
            flags=TRAIN,
            own_flags=(f"--hparams={HPARAMS.replace('heads=2', 'heads=4')}",),
        ),
        Case(
            "folders of its own",
            (1, 1),
            (LOST, "on a file system that all hosts share"),
            flags=TRAIN,
            own_flags=(f"--data_dir={folder / 'else'}",),
        ),
        Case(
            "one that is not JSON",
            (1, 1),
            (
                f"Waited {PATIENCE} s for host 1",
                "TF_CONFIG is not valid",
            ),
            flags=TRAIN,
            environment={"TF_CONFIG": "{"},
        ),
        Case(
            "same index twice",
            (1, 1),
            one_says="in use",
            flags=TRAIN,
            environment={"TF_CONFIG": config(addresses, 0)},
        ),
    ]


def config(addresses, index):
    """Returns TF_CONFIG."""
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def play(case, folder, addresses):
    """Plays a row; returns its failures, or "", and the seconds."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    hosts, files = {}, {}
    for index in {0, 1} - set(case.absent):
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RELPOS_TF_HOSTS_TIMEOUT": str(PATIENCE),
            "TF_CONFIG": config(addresses, index),
        }
        if index == 1:
            environment |= case.environment or {}
        files[index] = open(folder / f"error{index}", "w+")
        arguments = [
            "--problem=algorithmic_reverse",
            f"--data_dir={folder / 'data'}",
            f"--output_dir={run}",
            f"--hparams={HPARAMS}",
            "--log_step_count_steps=5",
            "--local_eval_frequency=5",
            *case.flags,
            *(case.own_flags if index == 1 else ()),
        ]
        hosts[index] = subprocess.Popen(
            [sys.executable, "trainer.py", *arguments],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=files[index],
            env=environment,
        )
    try:
        return finish(case, run, hosts, files)
    finally:
        for process in hosts.values():
            process.kill()
            process.wait()
        for file in files.values():
            file.close()


def finish(case, run, hosts, files):
    """Waits for the moment, plays the fault, and checks both ends."""
    if case.moment:
        while not (run / "ckpt-5.npz").is_file():
            if any(process.poll() is not None for process in hosts.values()):
                break
            time.sleep(0.02)
        if case.moment == "evaluation":
            time.sleep(0.5)
    begin = time.monotonic()
    if case.fault:
        case.fault(hosts)
    wrong = []
    for index, process in hosts.items():
        if case.codes[index] == -signal.SIGKILL:
            continue  # It may be frozen.
        try:
            process.wait(timeout=150)
        except subprocess.TimeoutExpired:
            wrong.append(f"host {index} hangs")
    seconds = time.monotonic() - begin
    is_said = False
    for index, process in hosts.items():
        if process.poll() is None:
            process.kill()
        code = process.wait()
        files[index].seek(0)
        error = files[index].read()
        last = error.rstrip().split("\n")[-1]
        if code != case.codes[index]:
            wrong.append(f"host {index}: code {code}, {last!r}")
        is_said |= case.one_says in error
        if "Traceback" in error or case.says[index] not in error:
            wrong.append(f"host {index} says {last!r}")
    if not is_said:
        wrong.append(f"nobody says {case.one_says!r}")
    return "; ".join(wrong), seconds


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
                print(
                    f"{case.name:42} {case.codes!s:10} {seconds:6.1f} s  "
                    f"{wrong or 'as expected'}",
                    flush=True,
                )
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
