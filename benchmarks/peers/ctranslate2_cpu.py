"""Times CTranslate2's beam search on a CPU.

    python benchmarks/peers/ctranslate2_cpu.py --compute_type int8

The model is that of benchmarks/decode.py, exported. README.md in this directory
describes the comparison.
"""

import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common
import decode


def load(args, words):
    """Exports a model of random weights; returns a `Translator` of it."""
    common.import_tensorflow()
    import ctranslate2

    from relpos_tf.export import ctranslate2_spec

    spec = ctranslate2_spec.model_spec(common.make_model(args), words)
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        return ctranslate2.Translator(
            folder,
            device="cpu",
            inter_threads=1,
            intra_threads=args.threads,
            compute_type=args.compute_type,
        )


def main():
    parser = common.search_parser(__doc__)
    parser.add_argument(
        "--compute_type", default="float32", help="float32 or int8"
    )
    args = parser.parse_args()
    words = [f"w{i}" for i in range(args.vocab)]
    translator = load(args, words)
    pick = random.Random(1).choices
    # Without padding and EOS, which CTranslate2 adds.
    sources = [pick(words[3:], k=args.len - 1) for _ in range(args.batch)]

    def decode_batch():
        results = translator.translate_batch(
            sources,
            beam_size=args.beam,
            max_decoding_length=args.decode_length,
            # Rules out the end of a sentence before that length.
            min_decoding_length=args.decode_length,
        )
        lengths = [len(result.hypotheses[0]) for result in results]
        decode.check_lengths(lengths, args)

    name = f"CTranslate2, {args.compute_type}"
    decode.report(name, decode_batch, args, args.decode_length)


if __name__ == "__main__":
    main()
