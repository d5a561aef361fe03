"""Times a training step with every scheme of positions, over sinusoids.

    python benchmarks/position_schemes.py
    python benchmarks/position_schemes.py --schemes "ALiBi; rotary" \
        --sizes 64x32 --steps 40
    python benchmarks/position_schemes.py --what memory

For each size, batch x length, one process holds a model of every scheme and
makes one step of each in turn (`common.take_turns`). The ratio to sinusoids is
the median of the ratios of single rounds. Then each scheme takes a few steps in
a process of its own, whose peak memory is read: the peak of a process never
decreases. Prints a JSON line for each scheme and size, and a table.

`--what time` and `--what memory` measure one of the two. Times need otherwise
idle cores, memory does not. With all schemes and 20 rounds, expect half an hour
on two cores, and 10 GB of memory. Other flags are those of train_step.py.
"""

import argparse
import json
import statistics
import sys

import common
import train_step

BASE = "sinusoids"
_RELATIVE = "pos=none,self_attention_type=dot_product_relative"
_CONVOLUTIONAL = "attention_window=5,attention_window_layers=3"
# A scheme joins with a line: its name, and what it changes in a model with
# sinusoids.
SCHEMES = {
    BASE: "",
    "sinusoids, shifted": "max_position_shift=500",
    "no positions": "pos=none",
    "learned": "pos=emb",
    "Shaw, tables shared by heads": _RELATIVE,
    "Shaw, a table for each head": (
        f"{_RELATIVE},heads_share_relative_embedding=false"
    ),
    "Shaw and sinusoids": "self_attention_type=dot_product_relative",
    "T5's bias": "pos=none,self_attention_type=dot_product_relative_bias",
    "ALiBi": "pos=none,self_attention_type=dot_product_alibi",
    "rotary": "pos=none,self_attention_type=dot_product_rotary",
    "localness, fixed": "localness=fixed",
    "localness, layer": "localness=layer",
    "localness, query": "localness=query",
    "window": "attention_window=5",
    "convolutional, 1D": _CONVOLUTIONAL,
    "convolutional, 2D": f"{_CONVOLUTIONAL},attention_window_heads=3",
    "convolutional, 2D, Shaw": (
        f"{_RELATIVE},{_CONVOLUTIONAL},attention_window_heads=3"
    ),
    "directions": "encoder_attention_direction=split",
    "additive": "attention_score=additive",
    "feature-wise": "attention_score=feature_wise",
}
MEMORY_STEPS = 3
KINDS = "time", "memory"


def parse():
    parser = train_step.make_parser(__doc__, steps=20, relative=0)
    add = parser.add_argument
    names = "; ".join(SCHEMES)
    add("--schemes", default=names, help=f"some of: {names}")
    add("--sizes", default="64x32,16x128", help="batch x length, each")
    add("--what", choices=KINDS, help="the one to measure; default: both")
    add("--in_turn", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.schemes = args.schemes.split("; ")
    if unknown := set(args.schemes) - set(SCHEMES):
        parser.error(f"Expected some of {names}. Received: {unknown}")
    if BASE not in args.schemes:
        args.schemes.insert(0, BASE)
    return args


def time_in_turn(args):
    """Makes steps of all models in this process; prints times as JSON."""
    tf = common.import_tensorflow(args.threads)
    steps = {}
    for name in args.schemes:
        flags = vars(args) | {"hparams": SCHEMES[name]}
        steps[name] = train_step.make_step(argparse.Namespace(**flags), tf)
    times = common.take_turns(steps, args)
    for name, each in times.items():
        result = {
            "scheme": name,
            "steps_per_second": 1000 / statistics.median(each),
            "ratio": common.median_ratio(each, times[BASE]),
        }
        print(json.dumps(result))


def measure_size(args, batch, length):
    """Returns a dict from each scheme to its figures at one size."""
    known = "hidden", "filter", "heads", "layers", "vocab", "k", "threads"
    known += "dropout", "bfloat16", "xla", "implementation", "per_head"
    shared = {name: getattr(args, name) for name in known}
    shared |= {"batch": batch, "len": length, "relative": 0}
    figures = {name: {"scheme": name} for name in args.schemes}
    if args.what != "memory":
        flags = common.as_flags(
            **shared,
            in_turn=1,
            steps=args.steps,
            warmup=args.warmup,
            schemes="; ".join(args.schemes),
        )
        for row in common.run([sys.executable, __file__, *flags]):
            figures[row["scheme"]] = row
    script = common.HERE / "train_step.py"
    for name, row in figures.items():
        if args.what != "time":
            flags = common.as_flags(
                **shared, hparams=SCHEMES[name], steps=MEMORY_STEPS, warmup=0
            )
            (result,) = common.run([sys.executable, script, *flags])
            row[common.MEMORY] = result[common.MEMORY]
        print(json.dumps({"batch": batch, "len": length} | row), flush=True)
    return figures


def print_table(figures):
    """Prints a row for each scheme, and its figures at each size."""
    head = ["scheme"]
    rows = {}
    for size, schemes in figures.items():
        for name, row in schemes.items():
            cells = {}
            if "ratio" in row:
                cells[f"steps/s, {size}"] = f"{row['steps_per_second']:.2f}"
                cells["time / sinusoids"] = f"{row['ratio']:.2f}"
            if common.MEMORY in row:
                cells[f"peak MB, {size}"] = row[common.MEMORY]
            rows.setdefault(name, [name]).extend(cells.values())
        head += cells
    print("\n" + common.table(head, rows.values()), end="")


def main():
    args = parse()
    if args.in_turn:
        time_in_turn(args)
        return
    sizes = [tuple(map(int, s.split("x"))) for s in args.sizes.split(",")]
    print_table(
        {
            f"{batch} x {length}": measure_size(args, batch, length)
            for batch, length in sizes
        }
    )


if __name__ == "__main__":
    main()
