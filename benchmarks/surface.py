"""How a model translates text as people type it.

    python benchmarks/surface.py --output_dir=runs/noisy --source=test.en \
        --reference=test.de

Prints BLEU and chrF without case, where ß is ss, of the first lines as they
are, in other capitals and with other signs; then, for each class of tokens, how
many of them come out letter by letter. A token stands in the middle of a line;
the tokens are not those of `examples/surface_noise.py`. `--export_dir` takes
the place of `--output_dir`.
"""

import itertools
import logging
import re

import common

TOKENS = {  # five of each
    "URL": "https://www.tensorflow.org/install | http://example.com/a?b=1 | "
    "www.uni-bonn.de | github.com/google/jax | https://t.co/Ab3Xy",
    "mail": "info@example.com | anna.schmidt@web.de | j_doe99@mail.co.uk | "
    "support@tensorflow.org | a.b-c@d.io",
    "emoji": "😀 | 🎉 | 🐶 | ❤ | 🚲",
    "number": "7 | 42 | 1,250 | 3.14 | 98765",
    "year": "1984 | 2024 | 1517 | 2001 | 1789",
    "date": "24.12.2023 | 2024-02-29 | 7/4/1976 | 10:30 | 18:05",
    "price": "$9.99 | €45 | £1,200 | $3 | 12.50€",
    "name": "Schwarzenegger | Kowalczyk | Nguyen | McDonald | OpenAI",
    "{0}": "{0} | {1} | {name} | {{user}} | ${total}",
    "%s": "%s | %d | %1$s | %(count)s | %i",
    "<b>": "<b> | </i> | <br/> | <p> | </span>",
    '<g id="1">': '<g id="1"> | <x id="3"/> | </g> | <ph1/> | <bpt id="2">',
    "{\\an8}": "{\\an8} | {\\i1} | {\\pos} | {\\b0} | {\\fs20}",
    "C++": "C++ | C# | F# | v2.1 | README.md",
    "Greek, Cyrillic": "Ελλάδα | Москва | Київ | λόγος | мир",
    "Chinese, Japanese": "中国 | 東京 | さくら | カメラ | 你好",
    "#tag": "#tbt | #MachineLearning | #2024 | #nofilter | #Berlin",
    "@user": "@john | @berlin_tours | @AnnaK | @tf2 | @_me_",
    "path": "/usr/bin/python | C:\\Users\\me | ~/notes.txt | ../data | main.c",
}


def in_middle(line, token):
    """Puts a token behind half of the words."""
    words = line.split()
    half = len(words) // 2
    return " ".join([*words[:half], token, *words[half:]])


FORMS = {
    "as it is": lambda line: line,
    "lower case": str.lower,
    "Title Case": str.title,
    "ALL CAPS": str.upper,
    "one word in CAPITALS": lambda line: " ".join(
        w.upper() if i == 1 else w for i, w in enumerate(line.split())
    ),
    "without the last sign": lambda line: line.rstrip(" .!?"),
    "in quotes": lambda line: f'"{line}"',
}


def main():
    """Prints the two tables."""
    parser = common.make_parser(__doc__)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--output_dir", default="")
    model.add_argument("--export_dir", default="")
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--lines", type=int, default=500)
    args = parser.parse_args()
    common.import_tensorflow(1)
    logging.getLogger("relpos_tf").setLevel(logging.ERROR)
    import sacrebleu

    import relpos_tf
    from relpos_tf import errors
    from relpos_tf.problems import test_sets
    from relpos_tf.utils import text

    try:
        sources = list(text.read_nonempty(args.source))
        references = test_sets.paired_lines([args.reference], len(sources))
        model = args.output_dir or args.export_dir
        translator = relpos_tf.Translator.load(model)
    except (OSError, errors.UserError) as error:
        parser.error(str(error))
    number = max(1, args.lines)
    sources, references = sources[:number], references[:number]
    print(f"{'without case':24}{'BLEU':>6}{'chrF':>6}")
    for name, change in FORMS.items():
        found = translator.translate([change(line) for line in sources])
        found = [line.casefold() for line in found]
        expected = [[line.casefold() for line in references]]
        bleu = sacrebleu.corpus_bleu(found, expected).score
        chrf = sacrebleu.corpus_chrf(found, expected).score
        print(f"{name:24}{bleu:6.1f}{chrf:6.1f}", flush=True)
    print(f"\n{'token':24}{'kept of 100':>12}")
    lines = list(itertools.islice(itertools.cycle(sources), 100))
    for name, tokens in TOKENS.items():
        wanted = tokens.split(" | ") * 20
        found = translator.translate(
            [in_middle(*pair) for pair in zip(lines, wanted, strict=True)]
        )
        kept = sum(
            bool(re.search(rf"(?a)(?<!\w){re.escape(token)}(?!\w)", line))
            for token, line in zip(wanted, found, strict=True)
        )
        print(f"{name:24}{kept:12}", flush=True)


if __name__ == "__main__":
    main()
