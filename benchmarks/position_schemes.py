"""Times a training step with every scheme of positions, over sinusoids.

    python benchmarks/position_schemes.py
    python benchmarks/position_schemes.py --schemes "ALiBi; rotary" \
        --batch 16 --len 128 --steps 40
    python benchmarks/position_schemes.py --what memory

One process holds a model of every scheme and makes one step of each in turn.
The ratio to sinusoids is the median of the ratios of single rounds. With
`--what memory`, each scheme takes a few steps in its own process, whose peak
memory is read instead: the peak of a process never decreases. Prints a table.

Times need otherwise idle cores, memory does not. With all schemes and 20
rounds, expect a quarter of an hour on two cores, and 10 GB of memory. Other
flags are those of train_step.py.
"""

import argparse
import sys

import common
import compare_steps

BASE = "sinusoids"
_RELATIVE = "pos=none,self_attention_type=dot_product_relative"
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
    "KERPLE": "pos=none,self_attention_type=dot_product_kerple",
    "FIRE": "pos=none,self_attention_type=dot_product_fire",
    "Transformer-XL": "pos=none,self_attention_type=dot_product_transformer_xl",
    "localness, fixed": "localness=fixed,localness_layers=0",
    "localness, layer": "localness=layer,localness_layers=0",
    "localness, query": "localness=query,localness_layers=0",
    "window": "attention_window=5",
    "convolutional": "attention_window=5,attention_window_layers=3",
}
MEMORY_STEPS = 3


def parse():
    parser = common.model_parser(__doc__, steps=20, relative=0)
    names = "; ".join(SCHEMES)
    parser.add_argument("--schemes", default=names, help=f"some of: {names}")
    parser.add_argument("--what", choices=("time", "memory"), default="time")
    args = parser.parse_args()
    args.schemes = [name for name in args.schemes.split("; ") if name != BASE]
    args.schemes.append(BASE)  # the last is what the others are compared with
    if unknown := set(args.schemes) - set(SCHEMES):
        parser.error(f"Expected some of {names}. Received: {unknown}")
    return args


def peak_memory(flags):
    """Returns the peak of a few steps in a process of their own, in MB."""
    flags = vars(flags) | {"steps": MEMORY_STEPS, "warmup": 0}
    del flags["schemes"], flags["what"]
    script = common.HERE / "train_step.py"
    [result] = common.run([sys.executable, script, *common.as_flags(**flags)])
    return result[common.MEMORY]


def main():
    args = parse()
    models = {
        name: argparse.Namespace(**vars(args) | {"hparams": SCHEMES[name]})
        for name in args.schemes
    }
    size = f"{args.batch} x {args.len}"
    if args.what == "memory":
        head = ["scheme", f"peak MB, {size}"]
        rows = [[name, peak_memory(each)] for name, each in models.items()]
    else:
        head = ["scheme", f"steps/s, {size}", f"time / {BASE}"]
        rows = [
            [row["model"], f"{1000 / row['median_ms']:.2f}", row["ratio"]]
            for row in compare_steps.measure(models, args)
        ]
    print(common.table(head, rows))


if __name__ == "__main__":
    main()
