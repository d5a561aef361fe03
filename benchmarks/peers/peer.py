"""What the peers share: flags, and the JSON line of benchmarks/decode.py.

Needs the standard library only, since it runs in the peers' environments.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common


def size_parser(doc):
    """Returns a parser with the flags of benchmarks/decode.py that apply."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    add = parser.add_argument
    add("--hidden", type=int, default=256)
    add("--filter", type=int, default=1024)
    add("--heads", type=int, default=4)
    add("--layers", type=int, default=3)
    add("--vocab", type=int, default=8000)
    add("--batch", type=int, default=32, help="sentences")
    add("--src_len", type=int, default=30, help="ids of a source sentence")
    add("--out_len", type=int, default=32, help="ids of a translation")
    add("--beam", type=int, default=4)
    add("--relative", type=int, default=1, choices=(0, 1))
    add("--k", type=int, default=16, help="clipping distance")
    add("--threads", type=int, default=1)
    add("--steps", type=int, default=10, help="runs that count")
    add("--warmup", type=int, default=3, help="runs before them")
    return parser


def report(engine, decode, args):
    """Times `decode()` and prints one JSON line.

    Args:
        engine: str. Name and version of what decodes.
        decode: Function that translates the batch and returns the lengths of
            the best hypotheses.
        args: The parsed flags.
    """
    lengths = [int(length) for length in decode()]
    if lengths != [args.out_len] * args.batch:
        raise SystemExit(
            f"Expected {args.batch} translations of {args.out_len} ids each. "
            f"Received lengths: {lengths}."
        )
    times = common.measure(decode, args)
    tokens = args.batch * args.out_len
    result = {
        "engine": engine,
        "relative": args.relative,
        "batch": args.batch,
        "len": args.src_len,
        "decode_length": args.out_len,
        "beam": args.beam,
        **times,
        "tokens_per_second": round(1000 * tokens / times["median_ms"]),
    }
    print(json.dumps(result))
