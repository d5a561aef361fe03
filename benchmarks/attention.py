"""Times one attention, forward and backward, by length and implementation.

    python benchmarks/attention.py --impl none,compact,reshape --n 128,256,512

Each length and implementation runs in its own process, because a process's
peak memory never decreases. `none` has no relative term. Prints one JSON line
for each; `added_memory_mb` is the peak beyond that of the inputs.
"""

import json
import sys

import common


def make_parser():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--impl", default="none,compact,reshape", help="implementations")
    add("--n", default="128,256,512", help="lengths")
    add("--batch", type=int, default=4)
    add("--heads", type=int, default=8)
    add("--depth", type=int, default=64)
    add("--k", type=int, default=16)
    add("--causal", type=int, default=0, choices=(0, 1))
    add("--steps", type=int, default=10)
    add("--warmup", type=int, default=2)
    add("--threads", type=int, default=0)
    return parser


def run_one(args):
    """Measures one implementation at one length."""
    tf = common.import_tensorflow(args.threads)
    from relpos_tf.layers import pairs
    from relpos_tf.layers.positions import shaw

    length = int(args.n)
    shape = [args.batch, args.heads, length, args.depth]
    inputs = [tf.random.stateless_normal(shape, [1, i]) for i in range(3)]
    bias = None
    if args.causal:
        bias = pairs.Pairs(length, length, causal=True).bias()
    if args.impl != "none":
        table = [2 * args.k + 1, args.depth]
        inputs += [tf.random.stateless_normal(table, [2, i]) for i in range(2)]

    @tf.function
    def gradients(inputs):
        tables = inputs[3:] or [None, None]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output, _ = shaw.relative_attention(
                *inputs[:3],
                *tables,
                bias=bias,
                implementation="auto" if args.impl == "none" else args.impl,
                causal=bool(args.causal),
            )
            total = tf.reduce_sum(output * output)
        return tape.gradient(total, inputs)

    before = common.peak_mb()
    times = common.measure(lambda: gradients(inputs)[0].numpy(), args)
    times["added_memory_mb"] = round(common.peak_mb() - before)
    print(json.dumps({"impl": args.impl, "n": length, **times}))


def main():
    args = make_parser().parse_args()
    cases = [(i, n) for n in args.n.split(",") for i in args.impl.split(",")]
    if len(cases) == 1:
        run_one(args)
        return
    for impl, length in cases:
        flags = common.as_flags(**vars(args) | {"impl": impl, "n": length})
        [result] = common.run([sys.executable, __file__, *flags])
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
