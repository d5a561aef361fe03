"""Helpers that the benchmarks share: flags, models, timing, processes, tables.

Importing this module needs the standard library only: benchmarks/peers/ imports
it in the environment of another engine.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Measure this checkout, whether or not the package is installed.
sys.path.insert(0, str(HERE.parent))

MEMORY = "peak_memory_mb"
_READY = "ready\n"  # what a process says that waits for its turn


def make_parser(doc):
    """Returns a parser with the first line of a module's docstring."""
    return argparse.ArgumentParser(description=doc.splitlines()[0])


def model_parser(doc, **defaults):
    """Returns a parser with the flags of a model, its batch and its timing."""
    parser = make_parser(doc)
    add = parser.add_argument
    add("--hidden", type=int, default=256)
    add("--filter", type=int, default=1024)
    add("--heads", type=int, default=4)
    add("--layers", type=int, default=3)
    add("--vocab", type=int, default=8000)
    add("--relative", type=int, default=1, choices=(0, 1))
    add("--k", type=int, default=16, help="clipping distance")
    add("--hparams", default="", help="changes to the other flags' hparams")
    add("--dropout", type=float, default=0.1)
    add("--bfloat16", type=int, default=0, choices=(0, 1))
    add("--xla", type=int, default=0, choices=(0, 1))
    add("--batch", type=int, default=64, help="sentences, or sentence pairs")
    add("--len", type=int, default=32, help="ids of a sentence")
    add("--steps", type=int, default=10, help="timed runs")
    add("--warmup", type=int, default=3, help="untimed runs before them")
    add("--threads", type=int, default=0, help="0: TensorFlow's choice")
    add("--in_turn", type=int, default=0, help="1: see `turns`")
    parser.set_defaults(**defaults)
    return parser


def search_parser(doc):
    """Returns a `model_parser` with the flags of a beam search."""
    parser = model_parser(doc)
    parser.add_argument("--decode_length", type=int, default=16, help="ids out")
    parser.add_argument("--beam", type=int, default=4)
    parser.set_defaults(batch=8, len=16)
    return parser


def import_tensorflow(threads=0):
    """Imports TensorFlow without its messages; limits its threads, if not 0."""
    from relpos_tf.bin import command

    tf = command.import_tensorflow()
    set_threads(tf, threads)
    return tf


def set_threads(tf, threads):
    """Limits TensorFlow to a number of threads; 0 leaves its choice."""
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def make_model(args):
    """Returns a model of random weights, the same in every process."""
    import keras

    from relpos_tf import hparam
    from relpos_tf.models import transformer

    kind = "dot_product_relative" if args.relative else "dot_product"
    hparams = hparam.HParams(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        filter_size=args.filter,
        num_heads=args.heads,
        num_hidden_layers=args.layers,
        max_relative_position=args.k,
        heads_share_relative_embedding=True,
        layer_prepostprocess_dropout=args.dropout,
        pos="none" if args.relative else "timing",
        self_attention_type=kind,
    )
    keras.utils.set_random_seed(1)
    policy = "mixed_bfloat16" if args.bfloat16 else "float32"
    return transformer.Transformer(hparams.override(args.hparams), dtype=policy)


def random_ids(tf, args, seed):
    """Returns `[batch, len]` ids without padding, as another engine needs."""
    shape = [args.batch, args.len]
    return tf.random.stateless_uniform(
        shape, [1, seed], 3, args.vocab, tf.int32
    )


def measure(function, args):
    """Calls a function; returns its times in ms and the peak memory in MB."""
    for _ in range(args.warmup):
        function()
    wall, cpu = [], []
    for _ in turns(args):
        start = time.perf_counter(), time.process_time()
        function()
        wall.append(1000 * (time.perf_counter() - start[0]))
        cpu.append(1000 * (time.process_time() - start[1]))
    return {
        "median_ms": round(statistics.median(wall), 1),
        "min_ms": round(min(wall), 1),
        "cpu_ms": round(statistics.median(cpu), 1),
        MEMORY: round(peak_mb()),
    }


def turns(args):
    """Yields for each timed run; with `--in_turn`, when a line asks for it."""
    if not getattr(args, "in_turn", 0):
        yield from range(args.steps)
        return
    print(end=_READY, flush=True)
    for _ in sys.stdin:
        yield
        print(end=_READY, flush=True)


def take_turns(functions, steps, warmup):
    """Calls functions in turn; returns the times of each in ms, by name.

    A round calls every function once, and the order rotates from round to
    round, so that other load on the machine affects all alike.
    """
    times = {name: [] for name in functions}
    order = list(functions)
    for number in range(warmup + steps):
        for name in order:
            start = time.perf_counter()
            functions[name]()
            if number >= warmup:
                times[name].append(1000 * (time.perf_counter() - start))
        order.append(order.pop(0))
    return times


def median_ratio(times, base):
    """Returns the median of the ratios of single rounds."""
    pairs = zip(times, base, strict=True)
    return round(statistics.median(a / b for a, b in pairs), 3)


def per_second(count, times):
    """Returns a rate: a number of items in the median time of `measure`."""
    return round(1000 * count / times["median_ms"])


def peak_mb():
    """Returns the peak memory: the GPU's, if there is one, or the process's."""
    tf = sys.modules.get("tensorflow")
    if tf is not None and tf.config.list_physical_devices("GPU"):
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        return peak / 2**20
    from relpos_tf.utils import memory  # of this checkout

    return memory.peak_mb()


def as_flags(**values):
    """Returns `--name=value` for each value."""
    return [f"--{name}={value}" for name, value in values.items()]


def run(command):
    """Runs a benchmark in its own process; returns the objects it prints.

    Args:
        command: list. The program and its arguments.

    Raises:
        SystemExit: It failed; with the end of its standard error.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shown = " ".join(map(str, command))
        raise SystemExit(f"{shown} failed.\n{done.stderr[-2000:]}")
    lines = done.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def run_in_turn(commands, rounds, steps):
    """Runs benchmarks, a step of each in turn; prints results and a table.

    All processes stay while one of them works, so that a machine whose speed
    changes affects all alike. Each round starts them anew: two processes of
    one program can differ by three percent.

    Args:
        commands: dict from a name to a command that takes `--in_turn=1`. The
            last one is what the others are compared with, by the median of
            the ratios of all turns.
        rounds: int.
        steps: int. Turns of a round that count, after one that does not.
    """
    times, results = ({name: [] for name in commands} for _ in range(2))
    for _ in range(rounds):
        with contextlib.ExitStack() as stack:
            processes = {
                name: stack.enter_context(_Process(command))
                for name, command in commands.items()
            }
            functions = {name: each.step for name, each in processes.items()}
            for name, new in take_turns(functions, steps, warmup=1).items():
                times[name] += new
            for name, process in processes.items():
                results[name].append(process.result())
    rows, base = [], times[list(times)[-1]]
    for name, each in times.items():
        result = {
            "ratio": median_ratio(each, base),
            "median_ms": round(statistics.median(each), 1),
            "cpu_ms": statistics.median(r["cpu_ms"] for r in results[name]),
            MEMORY: max(r[MEMORY] for r in results[name]),
        }
        print(json.dumps({"name": name, **result}), flush=True)
        rows.append([name, *result.values()])
    ratio = f"time / {list(commands)[-1]}"
    print(f"\n{table(['', ratio, 'median ms', 'CPU ms', 'peak MB'], rows)}")


class _Process(contextlib.AbstractContextManager):
    """A benchmark in its own process, which takes a step when it is asked."""

    def __init__(self, command):
        self._command = " ".join(map(str, command))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, "--in_turn=1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._wait()

    def __exit__(self, *error):
        self._process.kill()
        self._process.wait()

    def step(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._wait()

    def result(self):
        """Returns what the benchmark prints at its end."""
        return json.loads(self._process.communicate()[0].splitlines()[-1])

    def _wait(self):
        for line in self._process.stdout:
            if line == _READY:
                return
        self._errors.seek(0)
        end = self._errors.read()[-2000:]
        raise SystemExit(f"{self._command} failed.\n{end}")


def table(head, rows):
    """Returns a Markdown table."""
    import tabulate

    return tabulate.tabulate(rows, head, "github", disable_numparse=True)
