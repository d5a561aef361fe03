"""Times one training step of a model of any size, and its peak memory.

    python benchmarks/train_step.py --relative 1 --k 16 --batch 64 --len 32

The batch is random, without padding, the same for every step; what is timed is
the trainer's own step: forward, loss, gradients, Adam. Prints one JSON line.
Compare ratios of runs on the same idle machine, never single numbers.
"""

import argparse
import json
import resource
import statistics
import time

from relpos_tf.bin import command


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--hidden", type=int, default=256)
    add("--filter", type=int, default=1024)
    add("--heads", type=int, default=4)
    add("--layers", type=int, default=3)
    add("--vocab", type=int, default=8000)
    add("--batch", type=int, default=64, help="sentence pairs")
    add("--len", type=int, default=32, help="ids on either side")
    add("--relative", type=int, default=1, choices=(0, 1))
    add("--k", type=int, default=16, help="clipping distance")
    add("--per_head", type=int, default=0, choices=(0, 1))
    add("--implementation", default="auto")
    add("--dropout", type=float, default=0.1)
    add("--steps", type=int, default=10)
    add("--warmup", type=int, default=3)
    add("--threads", type=int, default=0, help="0: TensorFlow's choice")
    add("--xla", type=int, default=0, choices=(0, 1))
    return parser.parse_args()


def make_step(args, tf):
    """Returns a function that makes one update."""
    import keras

    from relpos_tf import hparam
    from relpos_tf import optimizers
    from relpos_tf import train_step
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
    model = transformer.Transformer(hparams)
    optimizer = optimizers.adam(
        hparams, {v.path: v.value for v in model.trainable_variables}
    )
    shape = [args.batch, args.len]
    batch = {
        name: tf.random.stateless_uniform(
            shape, [1, seed], 2, args.vocab, tf.int32
        )
        for seed, name in enumerate(("inputs", "targets"))
    }
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in batch}
    step = train_step.compile_step(
        tf.distribute.get_strategy(),
        model,
        optimizer,
        spec,
        jit_compile=bool(args.xla),
    )
    return lambda: float(step(batch)["loss"])


def main():
    args = parse()
    tf = command.import_tensorflow()
    if args.threads:
        tf.config.threading.set_intra_op_parallelism_threads(args.threads)
        tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    step = make_step(args, tf)
    for _ in range(args.warmup):
        loss = step()
    wall, cpu = [], []
    for _ in range(args.steps):
        start = time.perf_counter(), time.process_time()
        loss = step()
        wall.append(1000 * (time.perf_counter() - start[0]))
        cpu.append(1000 * (time.process_time() - start[1]))
    median = statistics.median(wall)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {
        "relative": args.relative,
        "k": args.k if args.relative else None,
        "batch": args.batch,
        "len": args.len,
        "median_ms": round(median, 1),
        "min_ms": round(min(wall), 1),
        "cpu_ms": round(statistics.median(cpu), 1),
        "target_tokens_per_second": round(
            args.batch * args.len / median * 1000
        ),
        "peak_memory_mb": round(peak_kb / 1024),
        "loss_per_token": round(loss / (args.batch * args.len), 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
