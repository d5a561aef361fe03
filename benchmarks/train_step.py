"""Times one training step of a model of any size; reports its peak memory.

    python benchmarks/train_step.py --relative 1 --k 16 --batch 64 --len 32

The batch is random, without padding, and the same for every step. The timed
step is the trainer's: forward, loss, gradients, Adam. Prints one JSON line.
Compare ratios of runs on the same idle machine, never single numbers.
"""

import json

import common


def make_step(args, tf):
    """Returns a function that makes one update and returns its loss.

    Args:
        args: flags of `common.model_parser`.
        tf: the module.
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
    batch = {
        name: common.random_ids(tf, args, seed)
        for seed, name in enumerate(("inputs", "targets"))
    }
    spec = dict.fromkeys(batch, tf.TensorSpec([None, None], tf.int32))
    step = train_step.compile_step(
        strategy, model, optimizer, spec, jit_compile=bool(args.xla)
    )
    return lambda: float(step(batch)["loss"])


def main():
    args = common.model_parser(__doc__).parse_args()
    step = make_step(args, common.import_tensorflow(args.threads))
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
