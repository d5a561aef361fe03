"""The content of a report's pages, in order, as plain data.

`build` turns the dict of report.json into a `Document`: titled sections of
blocks. `markdown` and `html` render it.
"""

from typing import NamedTuple

from relpos_tf.comparison.report import attention_figures
from relpos_tf.comparison.report import figures
from relpos_tf.comparison.report import reading
from relpos_tf.comparison.report import tables


class Paragraph(NamedTuple):
    """Text in small print."""

    text: str


class Terms(NamedTuple):
    """Terms with a text for each, perhaps under a title."""

    pairs: list[tuple[str, str]]
    title: str = ""


class Code(NamedTuple):
    """Text that keeps its spaces and line ends."""

    text: str


class Figures(NamedTuple):
    """Figures, side by side where there is room."""

    pictures: list[figures.Picture]


class Folded(NamedTuple):
    """Blocks that are hidden until a reader opens them by their title."""

    title: str
    blocks: list["Block"]


Block = Paragraph | tables.Table | Terms | Code | Figures | Folded


class Document(NamedTuple):
    """A report, ready to be rendered.

    Attributes:
        title: str.
        verdict: str. Which label is better.
        conditions: str. The problem, the test set and the training.
        warnings: list of str.
        sections: The blocks of each section, by title.
    """

    title: str
    verdict: str
    conditions: str
    warnings: list[str]
    sections: dict[str, list[Block]]


def build(report: reading.Report, has_figures: bool) -> Document:
    """Returns the content of a report's pages.

    Args:
        report: dict, as in report.json.
        has_figures: bool. Whether to draw figures, which needs matplotlib.
    """
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    sections: dict[str, list[Block | None]] = {
        "Scores": [tables.scores(report), Code(_signatures(report))],
        "Further test sets": _further(report),
        "Cost": [tables.cost(report)] if reading.has_runs(report) else [],
        "Differences between labels": _pairs(report),
        "BLEU by length of the source": [tables.by_length(report)],
        "Words by frequency": [tables.words(report)],
        "Learning curves": _folded_if_large(
            report, "BLEU by step as a table", tables.learning_curve(report)
        ),
        "Tuning": _tuning(report),
        "Hyper-parameters": _hparams(report),
        "Translations": _samples(report),
        "Sentences that differ most": _gaps(report),
        "Attention": [],
        "Runs": _folded_if_large(
            report, f"All {len(report['runs'])} runs", tables.runs(report)
        ),
        "Command and versions": [Code(report["command"]), Paragraph(versions)],
    }
    if has_figures:
        for title, blocks in _figures(report).items():
            # Figures of many labels say more than their tables.
            where = 0 if tables.is_large(report) else len(sections[title])
            sections[title][where:where] = blocks
    filled = {
        title: [block for block in blocks if block and block[0]]
        for title, blocks in sections.items()
    }
    return Document(
        title=report["title"],
        verdict=report["verdict"],
        conditions=_conditions(report),
        warnings=report["warnings"],
        sections={title: blocks for title, blocks in filled.items() if blocks},
    )


def _conditions(report) -> str:
    lines = sum(number for _, number in reading.length_buckets(report))
    steps = [f"{n:,}" for n in reading.values(report, "train_steps")]
    others = reading.labels_without_run(report)
    seeds = sorted(
        {
            run["seed"]
            for run in report["runs"]
            if run["label"] not in others and run["seed"] is not None
        }
    )
    parts = [
        f"Problem {report['problem']}, {report['split']} split, {lines:,} lines"
    ]
    if steps:
        parts.append(f"{' or '.join(steps)} updates in each run")
    if seeds:
        parts.append(f"seeds {', '.join(map(str, seeds))}")
    text = f"{'; '.join(parts)}."
    if others:
        text += f" Only translations are known of {', '.join(others)}."
    return text


def _folded_if_large(report, title, *found) -> list[Block | None]:
    """Returns blocks; of many labels, hidden under a title."""
    blocks = [block for block in found if block]
    if tables.is_large(report) and blocks:
        return [Folded(title, blocks)]
    return blocks


def _pairs(report) -> list[Block | None]:
    """Returns the differences in BLEU, in other measures, and of all pairs."""
    in_bleu, *more = tables.pairs(report) or [None]
    blocks = [in_bleu, *_folded_if_large(report, "In other measures", *more)]
    if all_pairs := tables.matrix(report):
        title = f"All {len(report['all_pairs'])} pairs in BLEU"
        blocks.append(Folded(title, [all_pairs]))
    return blocks


def _further(report) -> list[Block]:
    further = tables.further_scores(report)
    if not further:
        return []
    note = (
        "The same models, with the signatures above. Other differences, "
        f"lengths and translations below are of the {report['split']} split."
    )
    return [
        Paragraph(note),
        *further,
        *_folded_if_large(
            report,
            "Differences on these test sets",
            *tables.further_pairs(report),
        ),
    ]


def _hparams(report) -> list[Block]:
    if not reading.has_runs(report):
        return []
    no_difference = Paragraph("All labels have the same hyper-parameters.")
    return [tables.hparams(report) or no_difference]


def _tuning(report) -> list[Block]:
    tuned = tables.tuning(report)
    if not tuned:
        return []
    note = (
        "Every label was trained at every point of the grid with one seed, and "
        "scored on the development set alone. The point with the highest BLEU "
        "(of equal ones, with the lowest loss) was trained with all seeds and "
        "scored above; test scores of the others were not computed. The "
        "chosen run is one of those with that seed, and luck helped to choose "
        "it: with this seed, scores of all labels are a little too high."
    )
    if tables.is_large(report):
        folded = Folded("Every point with its loss", tuned)
        return [Paragraph(note), tables.tuning_of_all(report), folded]
    return [Paragraph(note), *tuned]


def _signatures(report) -> str:
    """Returns the signatures of the scores."""
    signatures = {
        name: reading.values(report, f"{field}_signature")
        for name, field in (
            ("BLEU", "bleu"),
            ("chrF", "chrf"),
            ("tokenized BLEU", "tokenized_bleu"),
        )
    }
    return "\n".join(
        f"{name}: {' or '.join(of_runs)}"
        for name, of_runs in signatures.items()
        if of_runs
    )


def _samples(report) -> list[Block]:
    samples: list[Block] = []
    for number, sample in enumerate(report["samples"], start=1):
        pairs = [(name, sample[name]) for name in ("source", "reference")]
        for label, line in sample["translations"].items():
            is_same = line and line == sample["reference"]
            pairs.append((f"{label} =" if is_same else label, line))
        if tables.is_large(report):
            title = f"{number}: {sample['source']}"
            samples.append(Folded(title, [Terms(pairs)]))
        else:
            samples.append(Terms(pairs, str(number)))
    if not samples:
        return []
    note = (
        "From short to long lines, by the first seed of each label. "
        "=: equal to the reference."
    )
    return [Paragraph(note), *samples]


def _gaps(report) -> list[Block]:
    """Returns the sentences that one label translates better than another."""
    blocks: list[Block] = []
    for gap in report["gaps"]:
        sentences: list[Block] = []
        for number, one in enumerate(gap["sentences"], start=1):
            pairs = [(name, one[name]) for name in ("source", "reference")]
            for label, line in one["translations"].items():
                pairs.append((f"{label} ({one['scores'][label]:.1f})", line))
            sentences.append(Terms(pairs, str(number)))
        if sentences:
            title = f"{gap['better']} above {gap['worse']}"
            blocks.append(Folded(title, sentences))
    if not blocks:
        return []
    note = (
        "The sentences whose chrF, the mean over seeds, is most above that of "
        "another label. In brackets: this mean; the translations are of the "
        "first seed. Chosen for their difference, they say nothing about all "
        "sentences."
    )
    return [Paragraph(note), *blocks]


def _figures(report) -> dict[str, list[Block]]:
    """Returns the figures of each section."""
    curves = [
        figures.learning_curve(report, split, column, axis)
        for split, column, axis in (
            ("dev", 2, "dev BLEU"),
            ("dev", 1, "dev loss"),
            ("train", 1, "training loss"),
        )
    ]
    return {
        "Scores": [Figures([figures.scores(report)])],
        "BLEU by length of the source": [
            _without_none(figures.scores_by_length(report))
        ],
        "Learning curves": [_without_none(*curves)],
        "Attention": _attention(report),
    }


def _attention(report) -> list[Block]:
    """Returns the figures of the first run of each label."""
    by_label = report["attention"]
    if not by_label:
        return []
    highest = max(map(attention_figures.highest_mean, by_label.values()))
    means, norms, maps, labels = [], [], [], []
    for label, described in by_label.items():
        means.append(attention_figures.by_distance(described, label, highest))
        norms.append(attention_figures.table_norms(described, label))
        sentence = [(k, described[k]) for k in ("source", "translation")]
        pictures = [
            attention_figures.maps(described, label, stack)
            for stack in ("encoder", "decoder", "cross")
        ]
        maps.append(
            Folded(
                f"All attention weights of one sentence: {label}",
                [Terms(sentence), Figures(pictures)],
            )
        )
        labels.append(
            Folded(
                f"Attention of {label}",
                [_without_none(means[-1], norms[-1]), maps[-1]],
            )
        )
    if tables.is_large(report):
        return labels
    return [_without_none(*means, *norms), *maps]


def _without_none(*pictures: figures.Picture | None) -> Figures:
    return Figures([picture for picture in pictures if picture])
