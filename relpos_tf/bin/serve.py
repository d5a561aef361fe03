r"""Answers requests to translate, and shows a page to try models with.

  relpos-serve --model=runs/mine
      loads a run or an export; the page is at http://127.0.0.1:8000/

  relpos-serve --model=relative=runs/relative --model=int8=runs/int8
      serves two models, by their names; the page shows them side by side

  curl http://127.0.0.1:8000/translate -H 'Content-Type: application/json' \
      -d '{"lines": ["A dog runs."]}'
      translates; docs/serve.md has the fields, limits and status codes

A run stands for its result: the average of its end, else its newest checkpoint;
RUN/best is the checkpoint of the best BLEU in training.

Requests of many users are joined into batches. Ctrl-C and other signals stop
the server once the requests under way are answered. pip install
'relpos_tf[serve]' first.
"""

import atexit
import logging
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

from relpos_tf.bin import command
from relpos_tf.models import run_dir
from relpos_tf.serving import limits as limits_lib
from relpos_tf.utils import extras

_HOST = re.compile(r"\*|(\*\.)?[\w.-]+|\[[\w:.]+\]")
# As browsers write it: in small letters, without the usual port.
_ORIGIN = re.compile(r"\*|http(s)?://(?!.*:(?(1)443|80)$)[a-z\d_.\[\]:-]+")


def _all(pattern: re.Pattern[str]) -> Callable[[list[str]], bool]:
    """Returns the check that all values of a flag are like a pattern."""
    return lambda found: all(map(pattern.fullmatch, found or []))


FLAGS = command.Flags()
FLAGS.define_multi_string(
    "model",
    [],
    "A run, RUN/best, a checkpoint or an export, but Argos'; NAME=PATH gives "
    "it a name. Default: the newest run in runs/",
)
command.define_usr_dir(FLAGS)
FLAGS.define_string(
    "host", "127.0.0.1", "Address to listen at. 0.0.0.0 lets other machines in."
)
FLAGS.check("host", bool, "must be a name or an address")
FLAGS.define_integer(
    "port",
    8000,
    "Port to listen at; 0: any that is free.",
    lower_bound=0,
    upper_bound=65535,
)
FLAGS.define_multi_string(
    "cors_origin",
    [],
    "Origin, as https://example.org, whose pages may read answers; * for all. "
    "Default: the server's own page alone",
)
FLAGS.check("cors_origin", _all(_ORIGIN), "must be as https://example.org")
FLAGS.define_multi_string(
    "allowed_hosts",
    [],
    "Host that requests may name, without a port, beside localhost and "
    "loopback addresses; * for any. Default: none, if only this machine "
    "reaches the server; else any",
)
FLAGS.check("allowed_hosts", _all(_HOST), "must be as example.org, no port")
FLAGS.define_fields(limits_lib.Limits)
# What precedes "=" in --model, if it is a name.
_NAME = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
# Seconds for the thread of a model to end between two batches.
_LAST_WAIT_S = 0.5


def main() -> None:
    """Serves until a signal."""
    limits = FLAGS.record(limits_lib.Limits)
    paths = models_of_flags()
    from relpos_tf.decoding import engine_kinds  # imports SentencePiece

    with extras.imports("serve", "relpos-serve"):
        from relpos_tf.serving import app as app_lib
        from relpos_tf.serving import batching
        from relpos_tf.serving import prometheus
        from relpos_tf.serving import server

    listener = server.listen(FLAGS.host, FLAGS.port)
    log = command.logger()
    log.addFilter(_is_ours)
    workers = {}
    try:
        with command.flag_value("model"):
            for path in paths.values():  # all, before one is loaded
                engine_kinds.of(path)
        metrics = prometheus.Metrics()
        for name, path in paths.items():
            model = load(name, path)
            workers[name] = batching.Worker(
                model, limits, metrics, model.warm_up_steps()
            )
        hosts = FLAGS.allowed_hosts or server.own_hosts(listener)
        hosts = [*hosts, "localhost"]  # the page's own address, and probes
        app = app_lib.make_app(
            workers, limits, metrics, FLAGS.cors_origin, hosts
        )
        for worker in workers.values():
            worker.start()
        log.info("Listening at %s", server.url_of(listener))
        running = server.Server(app, limits)
        running.run([listener])
    finally:
        listener.close()
        log.removeFilter(_is_ours)
    # A batch may be under way: a second Ctrl-C came, or everybody who asked for
    # it has hung up. Python's own end would crash: it frees TensorFlow's
    # objects, which the batch still uses.
    if stop := running.stopped:
        if not all(worker.close(_LAST_WAIT_S) for worker in workers.values()):
            atexit.register(os._exit, stop.exit_code)
        raise stop


def models_of_flags() -> dict[str, str]:
    """Returns the paths of the models by their names.

    Raises:
        UserError: two models have one name.
    """
    found: dict[str, str] = {}
    for word in FLAGS.model or [run_dir.latest_run("runs", "--model")]:
        match = _NAME.fullmatch(str(word))
        name, path = match.groups() if match else ("", str(word))
        name = name or pathlib.Path(path).resolve().name
        if name in found:
            raise command.UsageError(
                f"--model: expected different names. Received: {name!r} for "
                f"{found[name]} and {path}. Write --model=NAME=PATH."
            )
        found[name] = path
    return found


def load(name: str, path: str) -> Any:
    """Loads a model, which its worker warms up later."""
    from relpos_tf.decoding import engine_kinds
    from relpos_tf.decoding import translator as translator_lib
    from relpos_tf.serving import served

    begun = time.monotonic()
    command.logger().info("Loading %s from %s.", name, path)
    with command.flag_value("model"):
        kind = engine_kinds.of(path)
        if kind.needs_tensorflow:
            command.import_tensorflow(task=kind.folder)
        translator = translator_lib.Translator.load(
            path, jit_compile=kind is engine_kinds.RUN
        )
    model = served.ServedModel(name, translator, description_of(path))
    seconds = time.monotonic() - begun
    command.logger().info("Loaded %s from %s in %.0f s.", name, path, seconds)
    return model


def description_of(path: str) -> dict[str, str]:
    """Returns what is known of a model besides its settings.

    Returns:
        `kind`, which is `run` or the format of an export, and the codes of
        its languages, "" where unknown.
    """
    from relpos_tf.decoding import engine_kinds
    from relpos_tf.decoding import export_files

    kind = "run"
    if engine_kinds.of(path) is not engine_kinds.RUN:
        kind = export_files.read_info(path)["format"]
    return {"kind": kind, **engine_kinds.languages(path)}


def _is_ours(record: logging.LogRecord) -> bool:
    """Drops warnings about lines by numbers that they have in a batch.

    Answers say it of each line.
    """
    return record.module != "translator"


run = command.program(main)
