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

    pairs: list[tuple[str, str | None]]
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
        verdict: str. Which label is better; "" if unknown.
        conditions: str. The problem, the test set and the training.
        warnings: list of str.
        sections: The blocks of each section, by title. None is empty.
    """

    title: str
    verdict: str
    conditions: str
    warnings: list[str]
    sections: dict[str, list[Block]]


def build(report: reading.Report, has_figures: bool) -> Document:
    """Returns the content of a report's pages.

    Args:
        report: dict, as in report.json; anything may be missing.
        has_figures: bool. Whether to draw figures, which needs matplotlib.
    """
    report = reading.complete(report)
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    sections: dict[str, list[Block]] = {
        "Scores": [tables.scores(report), Code(_signatures(report))],
        "Cost": [tables.cost(report)],
        "Differences between labels": [tables.pairs(report)],
        "BLEU by length of the source": [tables.by_length(report)],
        "Learning curves": [],
        "Hyper-parameters that differ": [_hparams(report)],
        "Translations": _samples(report),
        "Attention": [],
        "Runs": [tables.runs(report)],
        "Command and versions": [Code(report["command"]), Paragraph(versions)],
    }
    if has_figures:
        for title, blocks in _figures(report).items():
            sections[title] += blocks
    filled = {
        title: [block for block in blocks if not _is_empty(block)]
        for title, blocks in sections.items()
    }
    return Document(
        title=report["title"] or "Comparison",
        verdict=report["verdict"],
        conditions=_conditions(report),
        warnings=report["warnings"],
        sections={title: blocks for title, blocks in filled.items() if blocks},
    )


def _is_empty(block: Block) -> bool:
    if isinstance(block, tables.Table):
        return not block.rows
    if isinstance(block, Folded):
        return not block.blocks
    return not block[0]


def _conditions(report) -> str:
    lines = reading.numbers(n for _, n in reading.length_buckets(report))
    steps = [f"{n:,}" for n in reading.values(report, "train_steps")]
    seeds = reading.values(report, "seed")
    facts = [
        f"Problem {report['problem']}" if report["problem"] else "",
        f"{report['split']} split" if report["split"] else "",
        f"{sum(lines):,.0f} lines" if lines else "",
        f"{' or '.join(steps)} updates in each run" if steps else "",
        f"seeds {', '.join(map(str, seeds))}" if seeds else "",
    ]
    return "; ".join(filter(None, facts))


def _signatures(report) -> str:
    """Returns the signatures of the scores, without which none is given."""
    lines = []
    for name, field in (("BLEU", "bleu"), ("chrF", "chrf")):
        signatures = reading.values(report, f"{field}_signature")
        if signatures:
            lines.append(f"{name}: {' or '.join(signatures)}")
    return "\n".join(lines)


def _hparams(report) -> Block:
    if report["labels"] and not report["hparams_diff"]:
        return Paragraph("All labels have the same hyper-parameters.")
    return tables.hparams(report)


def _samples(report) -> list[Block]:
    samples: list[Block] = []
    for number, sample in enumerate(report["samples"], start=1):
        reference = sample.get("reference")
        pairs = [("source", sample.get("source")), ("reference", reference)]
        for label, line in (sample.get("translations") or {}).items():
            is_same = bool(line) and line == reference
            pairs.append((f"{label} =" if is_same else label, line))
        samples.append(Terms(pairs, str(number)))
    if not samples:
        return []
    note = (
        "From short to long lines, by the first seed of each label. "
        "=: equal to the reference."
    )
    return [Paragraph(note), *samples]


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
        "Scores": [_side_by_side(figures.scores(report))],
        "BLEU by length of the source": [
            _side_by_side(figures.scores_by_length(report))
        ],
        "Learning curves": [_side_by_side(*curves)],
        "Attention": _attention(report),
    }


def _attention(report) -> list[Block]:
    described = {
        label: report["attention"][label]
        for label in report["labels"]
        if report["attention"].get(label)
    }
    highest = max(
        map(attention_figures.highest_mean, described.values()), default=0.0
    )
    distances, norms, maps = [], [], []
    for label, one in described.items():
        distances.append(attention_figures.by_distance(one, label, highest))
        norms.append(attention_figures.table_norms(one, label))
        pictures = [
            attention_figures.maps(one, label, stack)
            for stack in ("encoder", "decoder", "cross")
        ]
        if any(pictures):
            sentence = [
                ("source", one.get("source")),
                ("translation", one.get("translation")),
            ]
            maps.append(
                Folded(
                    f"All attention weights of one sentence: {label}",
                    [Terms(sentence), _side_by_side(*pictures)],
                )
            )
    return [_side_by_side(*distances, *norms), *maps]


def _side_by_side(*pictures: figures.Picture | None) -> Figures:
    return Figures([picture for picture in pictures if picture])
