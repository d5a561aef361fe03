"""Times one training step of a model of any size; reports its peak memory.

    python benchmarks/train_step.py --relative 1 --k 16 --batch 64 --len 32

The batch is random, without padding, and the same for every step. The timed
step is the trainer's: forward, loss, gradients, Adam. Prints one JSON line.
Compare ratios of runs on the same idle machine, never single numbers.
"""

import json

import common


def make_parser(doc, **defaults):
    """Returns a parser with the flags of `make_step`."""
    parser = common.model_parser(doc, **defaults)
    parser.add_argument(
        "--replicas", type=int, default=1, help="parts of the processor"
    )
    return parser


def make_step(args, tf, batch=None):
    """Returns a function that makes one update and returns its loss.

    Args:
        args: flags of `make_parser`.
        tf: the module.
        batch: dict of `inputs` [B, S] and `targets` [B, T], int32. By default
            random ids without padding.
    """
    from relpos_tf.training import devices
    from relpos_tf.training import optimizers
    from relpos_tf.training import train_step

    strategy = devices.strategy()
    with strategy.scope():
        model = common.make_model(args)
        optimizer = optimizers.Adam(
            model.hparams, {v.path: v.value for v in model.trainable_variables}
        )
    batch = batch or {
        "inputs": common.random_ids(tf, args, 0),
        "targets": common.random_ids(tf, args, 1),
    }
    element_spec = {
        name: tf.TensorSpec([None, None], tf.int32) for name in batch
    }
    if args.replicas > 1:
        batch, element_spec = split(tf, strategy, batch, args.replicas)
    step = train_step.compile_step(
        strategy, model, optimizer, element_spec, jit_compile=bool(args.xla)
    )
    return lambda: float(step(batch)["loss"])


def split(tf, strategy, batch, replicas):
    """Gives each replica its part of a batch; returns it and its spec."""
    parts = {name: tf.split(ids, replicas) for name, ids in batch.items()}
    parts = {name: tf.stack(each) for name, each in parts.items()}
    data = tf.data.Dataset.from_tensor_slices(parts)
    data = strategy.distribute_datasets_from_function(lambda _: data)
    return next(iter(data)), data.element_spec


def main():
    args = make_parser(__doc__).parse_args()
    tf = common.import_tensorflow(args.threads)
    common.set_replicas(tf, args.replicas)
    step = make_step(args, tf)
    times = common.measure(step, args)
    tokens = args.batch * args.len
    result = {
        "relative": args.relative,
        "k": args.k if args.relative else None,
        "batch": args.batch,
        "len": args.len,
        **times,
        "target_tokens_per_second": common.per_second(tokens, times),
        "loss_per_token": round(step() / tokens, 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
