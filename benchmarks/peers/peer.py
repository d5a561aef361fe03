"""Shared by the peers: flags, and the JSON line of benchmarks/decode.py.

Needs the standard library only, since it runs in the peers' environments.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common


def size_parser(doc):
    """Returns a parser with the flags of benchmarks/decode.py that apply."""
    parser = common.size_parser(doc, batch=32, threads=1)
    add = parser.add_argument
    add("--src_len", type=int, default=30, help="ids of a source sentence")
    add("--out_len", type=int, default=32, help="ids of a translation")
    add("--beam", type=int, default=4)
    return parser


def report(engine, decode, args):
    """Times `decode()` and prints one JSON line.

    Args:
        engine: str. Name and version of the engine.
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
    result = {
        "engine": engine,
        "relative": args.relative,
        "batch": args.batch,
        "len": args.src_len,
        "decode_length": args.out_len,
        "beam": args.beam,
        **times,
        "tokens_per_second": common.per_second(
            args.batch * args.out_len, times
        ),
    }
    print(json.dumps(result))
