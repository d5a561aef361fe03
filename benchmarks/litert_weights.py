"""Compares the weights that a LiteRT export can have: size and BLEU.

    python benchmarks/litert_weights.py --output_dir=runs/mine \
        --source=dev.source --target=dev.target

Prints a table with a row for float32, float16 and int8: the size of the model,
sacreBLEU, the lines translated otherwise than in float32, and the time of all.
"""

import pathlib
import tempfile
import time

import common


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--output_dir", required=True, help="a run, or a checkpoint")
    add("--source", required=True, help="a file of lines")
    add("--target", required=True, help="their translations")
    add("--lines", type=int, default=0, help="0: all")
    args = parser.parse_args()
    common.import_tensorflow(1)
    import sacrebleu

    import relpos_tf
    from relpos_tf.decoding import litert_engine
    from relpos_tf.export import litert_export
    from relpos_tf.export import quantizations

    source, target = (
        pathlib.Path(path).read_text("utf-8").removesuffix("\n").split("\n")
        for path in (args.source, args.target)
    )
    source = source[: args.lines or None]
    base, rows = None, []
    for quantization in quantizations.LITERT:
        with tempfile.TemporaryDirectory() as folder:
            path = litert_export.export_litert(
                args.output_dir,
                pathlib.Path(folder) / "export",
                quantization=quantization,
            )
            size = (path / litert_engine.MODEL).stat().st_size
            translator = relpos_tf.Translator.load(path)
            start = time.perf_counter()
            found = translator.translate(source)
            seconds = time.perf_counter() - start
        base = base or found
        bleu = sacrebleu.corpus_bleu(found, [target[: len(found)]]).score
        others = sum(a != b for a, b in zip(found, base, strict=True))
        rows.append(
            [
                quantization.replace("none", "float32"),
                f"{size / 1e6:.1f}",
                f"{bleu:.2f}",
                others,
                f"{1000 * seconds / len(found):.0f}",
            ]
        )
    head = ["weights", "MB", "BLEU", "other lines", "ms a line"]
    print(common.table(head, rows), end="")


if __name__ == "__main__":
    main()
