"""What the benchmarks share: a model's flags, and timing."""

import argparse
import pathlib
import resource
import statistics
import sys
import time

# The checkout itself is measured, installed or not.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

MEMORY = "peak_memory_mb"


def model_parser(doc, **defaults):
    """Returns a parser with the flags of a model's size."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    add = parser.add_argument
    add("--hidden", type=int, default=256)
    add("--filter", type=int, default=1024)
    add("--heads", type=int, default=4)
    add("--layers", type=int, default=3)
    add("--vocab", type=int, default=8000)
    add("--batch", type=int, default=64, help="sentence pairs")
    add("--len", type=int, default=32, help="ids of a sentence")
    add("--relative", type=int, default=1, choices=(0, 1))
    add("--k", type=int, default=16, help="clipping distance")
    add("--per_head", type=int, default=0, choices=(0, 1))
    add("--implementation", default="auto")
    add("--dropout", type=float, default=0.1)
    add("--bfloat16", type=int, default=0, choices=(0, 1))
    add("--xla", type=int, default=0, choices=(0, 1))
    add("--steps", type=int, default=10, help="runs that count")
    add("--warmup", type=int, default=3, help="runs before them")
    add("--threads", type=int, default=0, help="0: TensorFlow's choice")
    parser.set_defaults(**defaults)
    return parser


def set_threads(tf, threads):
    """Limits TensorFlow to that many threads; 0 leaves its choice."""
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def set_replicas(tf, replicas):
    """Splits the CPU into that many devices."""
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        part = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [part] * replicas)


def make_model(args):
    """Returns a model of random weights, the same in every process."""
    import keras

    from relpos_tf import hparam
    from relpos_tf.models import transformer

    hparams = hparam.HParams().replace(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        filter_size=args.filter,
        num_heads=args.heads,
        num_hidden_layers=args.layers,
        max_relative_position=args.k,
        heads_share_relative_embedding=not args.per_head,
        relative_attention_implementation=args.implementation,
        layer_prepostprocess_dropout=args.dropout,
        pos="none" if args.relative else "timing",
        self_attention_type=(
            "dot_product_relative" if args.relative else "dot_product"
        ),
    )
    keras.utils.set_random_seed(1)
    policy = "mixed_bfloat16" if args.bfloat16 else "float32"
    return transformer.Transformer(hparams, dtype=policy)


def random_ids(tf, args, seed):
    """Returns `[batch, len]` ids without padding."""
    shape = [args.batch, args.len]
    return tf.random.stateless_uniform(
        shape, [1, seed], 2, args.vocab, tf.int32
    )


def measure(function, args):
    """Calls a function; returns its times in ms, and the process's memory."""
    for _ in range(args.warmup):
        function()
    wall, cpu = [], []
    for _ in range(args.steps):
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


def peak_mb():
    """Returns the most memory that was in use: the GPU's, if there is one."""
    tf = sys.modules.get("tensorflow")
    if tf is not None and tf.config.list_physical_devices("GPU"):
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        return peak / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
