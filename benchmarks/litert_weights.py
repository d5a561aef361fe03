"""Compares LiteRT exports with their run: ids, translations, BLEU, size.

    python benchmarks/litert_weights.py --output_dir=runs/mine \
        --source=dev.source --target=dev.target

Prints a table with the run, LiteRT with the weights that `--weights` names, a
SavedModel and CTranslate2 in int8: megabytes of the model, sacreBLEU, and the
lines translated otherwise than by the run. Below it: the lines whose ids differ
between the run and LiteRT in float32, and how far the other scores are apart.
"""

import pathlib
import tempfile

import common


def translations(translator, lines):
    """Returns an `engines.Translation` for each line: all of a search."""
    from relpos_tf.decoding import decode_hparam

    settings = translator.engine.complete(decode_hparam.DecodeHParams())
    return list(
        translator.translations(lines, settings, n_best=settings.beam_size)
    )


def sized(path):
    """Returns the megabytes of an export's model, without its tokenizer."""
    names = "*.tflite", "model.bin", "saved_model.pb", "variables/*"
    size = sum(one.stat().st_size for name in names for one in path.glob(name))
    return f"{size / 1e6:.1f}"


def ids_of(translation, number):
    """Returns the ids of the best translations, without padding."""
    return [[i for i in row if i] for row in translation.ids[:number]]


def differences(found, expected):
    """Returns a report of ids that differ, and of scores."""
    number = len(expected[0].texts)
    pairs = list(zip(found, expected, strict=True))
    others = {n: [] for n in (1, number)}
    apart = 0.0
    for i, (one, other) in enumerate(pairs):
        for n, listed in others.items():
            if ids_of(one, n) != ids_of(other, n):
                listed.append(i)
        if i not in others[number]:
            scores = zip(one.scores, other.scores, strict=True)
            apart = max(apart, *(abs(a - b) for a, b in scores))
    said = [
        f"Other ids in {len(listed)} of {len(pairs)} lines, of the best {n}."
        for n, listed in others.items()
    ]
    said.append(f"Scores of the other lines: at most {apart:.1e} apart.")
    for i in others[number]:
        said += [f"Line {i + 1}:", f"  {found[i]}", f"  {expected[i]}"]
    return said


def parse():
    """Returns the arguments of the command line."""
    from relpos_tf.export import quantizations

    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--output_dir", required=True, help="a run, or a checkpoint")
    add("--source", required=True, help="a file of lines")
    add("--target", required=True, help="their translations")
    add("--lines", type=int, default=0, help="0: all")
    add("--weights", nargs="+", default=list(quantizations.LITERT))
    return parser.parse_args()


def main():
    args = parse()
    common.import_tensorflow(1)
    import sacrebleu

    import relpos_tf
    from relpos_tf import errors
    from relpos_tf.export import ctranslate2_export
    from relpos_tf.export import litert_export
    from relpos_tf.export import saved_model

    source, target = (
        pathlib.Path(path).read_text("utf-8").removesuffix("\n").split("\n")
        for path in (args.source, args.target)
    )
    source = source[: args.lines or None]
    run = translations(relpos_tf.Translator.load(args.output_dir), source)
    best = [one.texts[0] for one in run]

    def row(name, path, texts):
        bleu = sacrebleu.corpus_bleu(texts, [target[: len(texts)]]).score
        others = sum(a != b for a, b in zip(texts, best, strict=True))
        return [name, path and sized(path), f"{bleu:.2f}", others]

    rows, said = [row("run", "", best)], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for weights in args.weights:
            path = litert_export.export_litert(
                args.output_dir, folder / weights, quantization=weights
            )
            translator = relpos_tf.Translator.load(path)
            if weights == "none":
                found = translations(translator, source)
                said += differences(found, run)
                texts = [one.texts[0] for one in found]
            else:
                texts = translator.translate(source)
            name = f"LiteRT {weights.replace('none', 'float32')}"
            rows.append(row(name, path, texts))
        try:
            path = ctranslate2_export.export_ctranslate2(
                args.output_dir, folder / "ctranslate2", quantization="int8"
            )
        except errors.UserError as error:  # not every model
            said.append(str(error))
        else:
            texts = relpos_tf.Translator.load(path).translate(source)
            rows.append(row("CTranslate2 int8", path, texts))
        path = saved_model.export_saved_model(
            args.output_dir, folder / "saved_model", warmup_lines=[]
        )
        rows.append(["SavedModel", sized(path), "", ""])
    head = ["model", "MB", "BLEU", "other lines"]
    print(common.table(head, rows), end="")
    print("\n".join(said))


if __name__ == "__main__":
    main()
