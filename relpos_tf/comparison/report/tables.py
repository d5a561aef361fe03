"""The tables of a comparison's report, as plain data.

Each function takes the dict of report.json. Cells are text; a missing value is
a dash.
"""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf.comparison import pairs as pairs_lib
from relpos_tf.comparison import significance
from relpos_tf.comparison import variants
from relpos_tf.comparison.report import reading

MISSING = "–"
_BLANK = " "  # a cell that has no value, rather than a missing one
_MOST_STEPS = 12  # rows of a learning curve
# Columns of the table of runs that hold numbers, and their decimals.
_RUN_NUMBERS = {
    "train_steps": 0,
    "target_tokens": 0,
    "parameters": 0,
    "loss": 4,
    "bleu": 2,
    "chrf": 2,
    "tokenized_bleu": 2,
    "exact_match": 2,
    "beam_size": 0,
    "alpha": 2,
    "steps_per_second": 2,
    "tokens_per_second": 0,
    "peak_memory_mb": 0,
    "minutes": 1,
}


class Table(NamedTuple):
    """A table.

    Attributes:
        caption: str. What it shows.
        head: The names of the columns.
        rows: The cells; the first of a row is its name.
        text_columns: Indices of the other columns that hold text, no numbers.
    """

    caption: str
    head: list[str]
    rows: list[list[str]]
    text_columns: tuple[int, ...] = ()


def number(value: float | None, digits: int = 0) -> str:
    """Writes a number with so many decimals; a dash for None.

    Example:

    >>> number(12345), number(0.5, 2), number(None)
    ('12,345', '0.50', '–')
    """
    return MISSING if value is None else f"{value:,.{digits}f}"


def with_spread(mean: float | None, spread: float | None, digits: int) -> str:
    """Writes mean and spread; only the mean if the spread is missing.

    Example:

    >>> with_spread(35.5, 0.25, 2), with_spread(35.5, None, 2)
    ('35.50 ± 0.25', '35.50')
    """
    if spread is None:
        return number(mean, digits)
    return f"{number(mean, digits)} ± {number(spread, digits)}"


def scores(report: reading.Report) -> Table:
    """Returns the scores of each label."""
    rows = [
        [
            line["label"],
            len(line["seeds"]),
            number(line["parameters"]),
            *_score_cells(report, line),
        ]
        for line in _from_the_best(report["summary"])
    ]
    caption = (
        "From the highest BLEU on. Mean over seeds ± standard deviation "
        "between seeds."
    )
    if reading.has_runs(report):
        caption += (
            " Loss in nats per target token, given the reference's previous "
            "tokens."
        )
    if reading.has_tokenized_bleu(report):
        caption += (
            " BLEU is cased and of plain text. Tokenized BLEU is another "
            "scale: lower-cased, tokenized as by Moses, as in papers on "
            "multimodal translation."
        )
    head = ["label", "seeds", "parameters", *_score_names(report)]
    return _table(caption, *_only_known(report, head, rows))


def further_scores(report: reading.Report) -> list[Table]:
    """Returns a table of scores for each further test set."""
    return [
        _table(
            f"{one['name']}, {number(one['lines'])} lines. Mean over seeds ± "
            "standard deviation between seeds.",
            ["label", *_names_of_means(report)],
            [
                [line["label"], *_cells_of_means(report, line)]
                for line in _from_the_best(one["summary"])
            ],
        )
        for one in report["further_test_sets"]
    ]


def further_pairs(report: reading.Report) -> list[Table]:
    """Returns the differences in BLEU on each further test set."""
    return [
        _pairs_table(
            "BLEU",
            one["pairs"],
            f"{one['name']}: differences in BLEU, corrected for the pairs of "
            "this table.",
        )
        for one in report["further_test_sets"]
        if one["pairs"]
    ]


def cost(report: reading.Report) -> Table:
    """Returns speed and memory of each label."""
    rows = [
        [
            line["label"],
            *(
                number(line[f"{unit}_per_second"], digits)
                + _in_brackets(line[f"{unit}_ratio"], 2)
                for unit, digits in (("steps", 2), ("tokens", 0))
            ),
            number(line["peak_memory_mb"]),
        ]
        for line in report["summary"]
    ]
    return _table(
        "Medians over the training run, without evaluations. In brackets: the "
        "ratio to the first label. Peak memory is that of the whole process."
        + _conditions_of_time(report),
        ["label", "steps/s", "tokens/s", "peak memory, MiB"],
        rows,
    )


def pairs(report: reading.Report) -> list[Table]:
    """Returns the differences between labels in each measure."""
    if not report["pairs"]:
        return []
    more = report["pairs_by_measure"].items()
    return [
        _pairs_table("BLEU", report["pairs"], _caption_of_pairs(report)),
        *(
            _pairs_table(name, own, f"The same in {name}, corrected by itself.")
            for name, own in more
        ),
    ]


def matrix(report: reading.Report) -> Table | None:
    """Returns the differences of all pairs in BLEU, as half a square."""
    found = {}
    for pair in report["all_pairs"]:
        difference = pair["score_a"] - pair["score_b"]
        p = pair["p_corrected"]
        found[pair["a"], pair["b"]] = difference, p
        found[pair["b"], pair["a"]] = -difference, p
    if not found:
        return None
    labels = [line["label"] for line in _from_the_best(report["summary"])]
    rows = [
        [label]
        + [_difference_with_p(*found[label, other]) for other in labels[:index]]
        + [_BLANK] * (len(labels) - 1 - index)
        for index, label in enumerate(labels)
        if index
    ]
    return _table(
        "BLEU of the row minus BLEU of the column, both from the highest BLEU "
        "on. In brackets: the largest of the three p, corrected for all pairs "
        "of this table (Holm); missing where it is unknown, as with one seed. "
        f"*: below {pairs_lib.LEVEL}.",
        ["label", *labels[:-1]],
        rows,
    )


def _difference_with_p(difference, p) -> str:
    text = f"{difference:+.2f}"
    if p is None:
        return text
    star = "*" if p < pairs_lib.LEVEL else ""
    return f"{text} ({pairs_lib.format_p(p)}){star}"


def _caption_of_pairs(report) -> str:
    family = ""
    if report["all_pairs"]:
        family = (
            f"Each label is compared with the first, {report['labels'][0]}; p "
            "is corrected for the pairs of this table. "
        )
    return family + (
        "Both: seeds and test sentences together. The 95 % interval of the "
        "mean difference joins the standard error over seeds, with the "
        "quantile of t, and the standard error over sentences. It assumes that "
        "seeds are drawn independently, with normal effects, and sentences "
        "independently of them and of each other. Sentences: the 95 % interval "
        f"by the paired bootstrap ({significance.RESAMPLES:,} resamples), of "
        "the translations of all seeds together. p, sentences: "
        f"{report['pairs'][0]['test']}; all translations of a sentence change "
        "sides together. p, seeds: a t-test over the seeds' differences, which "
        "needs at least two of them. The largest of the three p is corrected "
        "for the number of pairs (Holm, 1979), and a label is called better "
        f"only if the corrected p is below {pairs_lib.LEVEL}: with equally "
        "good labels, that happens in at most 5 of 100 comparisons. With one "
        "seed, no label is called better."
    )


def _pairs_table(name, pairs, caption) -> Table:
    """Returns the differences between labels in a measure.

    If all are compared with the same label, that is b, and the best is first.
    """
    if len(pairs) > 1 and len({pair["a"] for pair in pairs}) == 1:
        pairs = sorted(
            map(_exchanged, pairs), key=lambda pair: -(pair["score_a"] or 0)
        )
    rows = [
        [
            pair["a"],
            pair["b"],
            number(pair["score_a"], 2),
            number(pair["score_b"], 2),
            _interval(pair["both_low"], pair["both_high"]),
            _difference(pair),
            *(
                _p_value(pair[f"p_{kind}"])
                for kind in ("value", "value_seeds", "value_both")
            ),
            _p_value(pair["p_corrected"]),
            ", ".join(f"{value:+.2f}" for value in pair["by_seed"]),
        ]
        for pair in pairs
    ]
    return _table(
        caption,
        ["a", "b", f"{name} of a", f"{name} of b", "a - b: 95 %, both"]
        + ["a - b (95 %), sentences", "p, sentences", "p, seeds", "p, both"]
        + ["largest p, Holm", "a - b by seed"],
        rows,
        text_columns=[1],
    )


def is_large(report: reading.Report) -> bool:
    """Returns whether a report has too many labels for columns side by side."""
    return len(report["labels"]) > pairs_lib.MOST_FOR_ALL_PAIRS


def _with_labels(
    report: reading.Report,
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    are_texts: bool = False,
) -> Table:
    """Returns a table with a column for each label; for many, with a row."""
    if is_large(report):
        first, *columns = zip(head, *rows, strict=True)
        head, rows = ["label", *first[1:]], columns
    texts = range(1, len(head)) if are_texts else ()
    return _table(caption, head, rows, texts)


def _exchanged(pair) -> dict[str, Any]:
    """Returns a pair with its labels exchanged."""

    def minus(name):
        return None if pair[name] is None else -pair[name]

    return {
        **pair,
        "a": pair["b"],
        "b": pair["a"],
        "score_a": pair["score_b"],
        "score_b": pair["score_a"],
        "both_low": minus("both_high"),
        "both_high": minus("both_low"),
        "difference": minus("difference"),
        "difference_low": minus("difference_high"),
        "difference_high": minus("difference_low"),
        "by_seed": [-value for value in pair["by_seed"]],
    }


def by_length(report: reading.Report) -> Table:
    """Returns the scores of each label by the length of the source."""
    rows = []
    for index, (name, lines) in enumerate(reading.length_buckets(report)):
        row = [name, number(lines)]
        for label in report["labels"]:
            bleu, exact_match = (
                reading.mean_in_bucket(report, label, index, score)
                for score in ("bleu", "exact_match")
            )
            row.append(number(bleu, 2) + _in_brackets(exact_match, 1))
        rows.append(row)
    unit = report["length_unit"]
    eos = ", EOS included" if unit == "pieces" else ""
    return _with_labels(
        report,
        f"BLEU by length of the source in {unit}{eos}; mean over seeds. In "
        "brackets: exact match, %. BLEU is missing where no reference has four "
        "words.",
        [unit, "lines", *report["labels"]],
        rows,
    )


def words(report: reading.Report) -> Table | None:
    """Returns how many words are right, by their frequency in training."""
    rows = []
    for index, (name, words) in enumerate(reading.word_buckets(report)):
        row = [name, number(words)]
        for label in report["labels"]:
            f1, recall = (
                reading.mean_in_bucket(
                    report, label, index, score, "words_by_frequency"
                )
                for score in ("f1", "recall")
            )
            row.append(number(f1, 1) + _in_brackets(recall, 1))
        rows.append(row)
    if not rows:
        return None
    return _with_labels(
        report,
        "Words of the references, tokenized as for BLEU, by how often they "
        "occur in the target text of the training pairs, without those that "
        "are longer than max_length. F1 of the words of the translations, %; "
        "mean over seeds. In brackets: recall, %, the share of these words "
        "that are in the translation of their line.",
        ["times in training", "words", *report["labels"]],
        rows,
    )


def learning_curve(report: reading.Report) -> Table | None:
    """Returns BLEU on the development set by step."""
    by_label = reading.curves(report, "dev", 2)
    means = {k: reading.mean_curve(own) for k, own in by_label.items()}
    spreads = {k: reading.spread_curve(own) for k, own in by_label.items()}
    steps = sorted(set().union(*means.values()))
    if not steps:
        return None
    # So many rows at most, the last step among them.
    every = -(-len(steps) // _MOST_STEPS)
    rows = [
        [
            number(step),
            *(
                with_spread(mean.get(step), spreads[label].get(step), 2)
                for label, mean in means.items()
            ),
        ]
        for step in steps[::-1][::every][::-1]
    ]
    return _with_labels(
        report,
        "BLEU on the development set during training: mean over seeds ± "
        "standard deviation between seeds.",
        ["step", *means],
        rows,
    )


def hparams(report: reading.Report) -> Table | None:
    """Returns the hyper-parameters that differ between labels."""
    rows = [
        [name, *map(variants.hparam_text, values.values())]
        for name, values in report["hparams_diff"].items()
    ]
    if not rows:
        return None
    labels = list(next(iter(report["hparams_diff"].values())))
    return _with_labels(
        report,
        "Every hyper-parameter that is not the same for all labels.",
        ["hparam", *labels],
        rows,
        are_texts=True,
    )


def tuning(report: reading.Report) -> list[Table]:
    """Returns the points of the grid that were tried for each label."""
    tables = []
    for entry in report["tuning"]:
        rows = [
            [
                point["hparams"],
                number(point["bleu"], 2),
                number(point["loss"], 4),
                "chosen" if point["is_chosen"] else "",
            ]
            for point in entry["points"]
        ]
        lead = ""
        if entry["lead"] is not None:
            lead = (
                f" BLEU of the points has a range of "
                f"{number(entry['range'], 2)}; the best is "
                f"{number(entry['lead'], 2)} above the second."
            )
        tables.append(
            _table(
                f"{entry['label']}, seed {entry['seed']}.{lead}",
                ["point", "dev BLEU", "dev loss", "choice"],
                rows,
                text_columns=[3],
            )
        )
    return tables


def tuning_of_all(report: reading.Report) -> Table | None:
    """Returns a row for each label with its BLEU at all points of the grid."""
    entries = report["tuning"]
    points = list(
        dict.fromkeys(
            point["hparams"] for entry in entries for point in entry["points"]
        )
    )
    rows = []
    for entry in entries:
        cells = {
            point["hparams"]: number(point["bleu"], 2)
            + " *" * point["is_chosen"]
            for point in entry["points"]
        }
        rows.append(
            [
                entry["label"],
                *(cells.get(point) for point in points),
                number(entry["range"], 2),
                number(entry["lead"], 2),
            ]
        )
    if not rows:
        return None
    axis, heads = "point", points
    if not any("," in point for point in points):
        # Of one field, the values alone fit on a narrow page.
        axis = points[0].partition("=")[0]
        heads = [point.partition("=")[2] for point in points]
    return _table(
        f"BLEU on the development set by {axis}, seed {entries[0]['seed']}. *: "
        "chosen. Range: the highest minus the lowest; lead: the highest minus "
        "the second.",
        ["label", *heads, "range", "lead"],
        rows,
    )


def runs(report: reading.Report) -> Table:
    """Returns every run, with the names of report.json."""
    texts = ["label", "seed", "hparams_set", "hparams"]
    numbers = dict(_RUN_NUMBERS)
    if not reading.has_tokenized_bleu(report):
        del numbers["tokenized_bleu"]
    rows = [
        [
            *(run[name] for name in texts),
            *(number(run[name], n) for name, n in numbers.items()),
            run["output_dir"],
        ]
        for run in report["runs"]
    ]
    head = [*texts, *numbers, "output_dir"]
    text_columns = 2, 3, len(head) - 1
    if not reading.has_runs(report):
        head, rows = _only_known(report, head, rows)
        text_columns = (len(head) - 1,)
    return _table(
        "Every run, with the names of report.json; peak_memory_mb is in MiB."
        + _conditions_of_time(report),
        head,
        rows,
        text_columns,
    )


def short_text(report: reading.Report) -> str:
    """Returns the scores and the verdict as lines for a terminal."""
    rows = [
        [
            line["label"],
            *_score_cells(report, line),
            number(line["steps_per_second"], 2),
        ]
        for line in _from_the_best(report["summary"])
    ]
    head = ["", *_score_names(report), "steps/s"]
    head, rows = _only_known(report, head, rows)
    lines = [*_aligned([head, *rows]), ""]
    for table, one in zip(
        further_scores(report), report["further_test_sets"], strict=True
    ):
        head = [one["name"], *table.head[1:]]
        lines += [*_aligned([head, *table.rows]), ""]
    if conditions := reading.conditions_of_time(report):
        lines += [f"steps/s: {conditions}", ""]
    return "\n".join([*lines, report["verdict"]]) + "\n"


def _only_known(report: reading.Report, head, rows):
    """Returns head and rows; without a run of ours, not all of their columns.

    A column that has no value is left out. Beside a run, it remains.
    """
    if reading.has_runs(report):
        return head, rows
    known = [
        index
        for index in range(len(head))
        if any(row[index] not in (None, "", MISSING) for row in rows)
    ]
    return (
        [head[index] for index in known],
        [[row[index] for index in known] for row in rows],
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of cells as lines, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        ).rstrip()
        for row in rows
    ]


def _table(
    caption: str,
    head: Sequence[Any],
    rows: Iterable[Iterable[Any]],
    text_columns: Iterable[int] = (),
) -> Table:
    """Returns a table in which every cell is text."""
    return Table(
        caption,
        list(map(_text, head)),
        [list(map(_text, row)) for row in rows],
        tuple(text_columns),
    )


def _text(value: Any) -> str:
    return MISSING if value is None or value == "" else str(value)


def _from_the_best(summary: Iterable[Any]) -> list[Any]:
    """Returns the rows of a summary from the highest BLEU on."""
    return sorted(
        summary,
        key=lambda line: (line["bleu_mean"] is None, -(line["bleu_mean"] or 0)),
    )


def _score_names(report: reading.Report) -> list[str]:
    """Returns the names of the cells of `_score_cells`."""
    return [*_names_of_means(report), "loss", "exact match, %"]


def _score_cells(report: reading.Report, line) -> list[str]:
    """Returns the scores of a row of the summary."""
    loss = with_spread(line["loss_mean"], line["loss_spread"], 4)
    exact_match = number(line["exact_match_mean"], 2)
    return [*_cells_of_means(report, line), loss, exact_match]


def _names_of_means(report: reading.Report) -> list[str]:
    """Returns the names of the cells of `_cells_of_means`."""
    names = ["BLEU", "chrF"]
    return names + ["tokenized BLEU"] * reading.has_tokenized_bleu(report)


def _cells_of_means(report: reading.Report, line) -> list[str]:
    """Returns the scores that every test set has."""
    fields = ["bleu", "chrf"]
    fields += ["tokenized_bleu"] * reading.has_tokenized_bleu(report)
    return [
        with_spread(line[f"{name}_mean"], line[f"{name}_spread"], 2)
        for name in fields
    ]


def _conditions_of_time(report: reading.Report) -> str:
    """Returns the end of a caption, with a space before it."""
    conditions = reading.conditions_of_time(report)
    return f" {conditions}" if conditions else ""


def _in_brackets(value: float | None, digits: int) -> str:
    return "" if value is None else f" ({number(value, digits)})"


def _difference(pair) -> str:
    """Returns BLEU of a minus BLEU of b, with its interval."""
    if pair["difference"] is None:
        return MISSING
    interval = _interval(pair["difference_low"], pair["difference_high"])
    return f"{pair['difference']:+.2f} ({interval})"


def _interval(low: float | None, high: float | None) -> str:
    return MISSING if low is None else f"{low:+.2f} to {high:+.2f}"


def _p_value(value: float | None) -> str:
    return MISSING if value is None else pairs_lib.format_p(value)
