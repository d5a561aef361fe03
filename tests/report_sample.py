"""A small report of a comparison, as report.json has it."""

import copy
from typing import Any

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def _run(label, seed, bleu, dev):
    return {
        "label": label,
        "hparams_set": "transformer_relative_tiny",
        "hparams": "" if label == "relative" else "pos=timing",
        "seed": seed,
        "train_steps": 200,
        "target_tokens": 345678,
        "beam_size": 4,
        "alpha": 0.6,
        "parameters": 1234567,
        "steps_per_second": 2.5,
        "tokens_per_second": 8000.4,
        "peak_memory_mb": 1047.3,
        "loss": 2.125,
        "bleu": bleu,
        "bleu_signature": SIGNATURE,
        "chrf": 51.5,
        "chrf_signature": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no",
        "exact_match": 3.25,
        "bleu_by_length": [
            {"up_to": 10, "lines": 30, "bleu": bleu + 2, "exact_match": 6.0},
            {"up_to": None, "lines": 1070, "bleu": bleu - 1, "exact_match": 0},
        ],
        "words_by_frequency": [
            {"up_to": 0, "words": 40, "recall": bleu, "f1": bleu + 1},
            {"up_to": 9, "words": 0, "recall": None, "f1": None},
            {"up_to": None, "words": 9000, "recall": 70.5, "f1": 80.5},
        ],
        "output_dir": f"out/runs/{label}-seed{seed}",
        "minutes": 5.25,
        "learning_curve": {
            "train": [[50, 6.5], [100, 4.5], [200, 3.5]],
            "dev": [[100, 4.0 - dev, dev], [200, 3.0 - dev, 10 * dev]],
        },
    }


def _described(heads, tables):
    """What `attention_maps.describe` says, with weights that are simple."""
    flat = [[0.25, 0.75], [0.5, 0.5]]
    stack = {"weights": [[flat] * heads], "distances": [-1, 0, 1]}
    return {
        "source": "A dog .",
        "translation": "Ein Hund .",
        "source_pieces": ["▁dog", "</s>"],
        "target_pieces": ["▁Hund", "</s>"],
        "sentences": 1200,
        "encoder": stack | {"by_distance": [[[0.1, 0.2, None]] * heads]},
        "decoder": {
            "weights": [[[[1.0, 0.0], [0.5, 0.5]]] * heads],
            "distances": [-1, 0],
            "by_distance": [[[0.9, 0.3]] * heads],
        },
        "cross": {"weights": [[flat] * heads]},
        "tables": tables,
    }


def _tables():
    return [
        {"stack": stack, "layer": 0, "kind": kind, "norms": [[1.0, 3.0, 2.0]]}
        for stack in ("encoder", "decoder")
        for kind in ("keys", "values")
    ]


def _pair(measure, score_a, score_b, p_value_seeds):
    return {
        "a": "relative",
        "b": "absolute",
        "measure": measure,
        "score_a": score_a,
        "score_b": score_b,
        "both_low": -10.5,
        "both_high": 14.5,
        "difference": 2.0,
        "difference_low": 0.75,
        "difference_high": 3.25,
        "p_value": 0.00009999,
        "p_value_seeds": p_value_seeds,
        "p_value_both": 0.3125,
        "p_corrected": 0.625,
        "test": "paired approximate randomisation, seed 12345",
        "by_seed": [1.0, 3.0],
    }


_REPORT = {
    "title": "Relative against absolute",
    "verdict": "relative is better than absolute by 2.00 BLEU.",
    "command": "python -m relpos_tf.bin.compare --seeds=1,2",
    "problem": "translate_ende_multi30k",
    "split": "test",
    "length_unit": "pieces",
    "labels": ["relative", "absolute"],
    "runs": [
        _run("relative", 1, 20.0, 1.0),
        _run("relative", 2, 22.0, 1.5),
        _run("absolute", 1, 19.0, 0.5),
        _run("absolute", 2, 19.0, 0.5),
    ],
    "summary": [
        {
            "label": label,
            "seeds": [1, 2],
            "parameters": 1234567,
            "bleu_mean": mean,
            "bleu_spread": spread,
            "chrf_mean": 51.5,
            "chrf_spread": 0.0,
            "loss_mean": 2.125,
            "loss_spread": 0.0,
            "exact_match_mean": 3.25,
            "steps_per_second": 2.5,
            "steps_ratio": ratio,
            "tokens_per_second": 8000.4,
            "tokens_ratio": ratio,
            "peak_memory_mb": 1047.3,
        }
        for label, mean, spread, ratio in (
            ("relative", 21.0, 1.4142, 1.0),
            ("absolute", 19.0, 0.0, 1.0625),
        )
    ],
    "further_test_sets": [],
    "pairs": [_pair("BLEU", 21.0, 19.0, 0.2952)],
    "pairs_by_measure": {"chrF": [_pair("chrF", 51.75, 51.25, 0.0123)]},
    "all_pairs": [],
    "gaps": [
        {
            "better": "relative",
            "worse": "absolute",
            "sentences": [
                {
                    "source": "Two cats .",
                    "reference": "Zwei Katzen .",
                    "scores": {"relative": 95.55, "absolute": 20.5},
                    "translations": {
                        "relative": "Zwei Katzen",
                        "absolute": "Zwei Hunde",
                    },
                }
            ],
        },
        {"better": "absolute", "worse": "relative", "sentences": []},
    ],
    "hparams_diff": {"pos": {"relative": "none", "absolute": "timing"}},
    "tuning": [
        {
            "label": label,
            "seed": 1,
            "chosen": "learning_rate_constant=1",
            "points": [
                {
                    "hparams": f"learning_rate_constant={rate}",
                    "bleu": bleu,
                    "loss": 2.25,
                    "is_chosen": rate == 1,
                    "run": f"{label}+learning_rate_constant={rate}-seed1",
                }
                for rate, bleu in ((0.5, 20.25), (1, 21.5))
            ],
            "range": 1.25,
            "lead": 1.25,
            "at_edge": ["learning_rate_constant"],
        }
        for label in ("relative", "absolute")
    ],
    "samples": [
        {
            "source": "A dog .",
            "reference": "Ein Hund .",
            "translations": {"relative": "Ein Hund .", "absolute": "Hund"},
        }
    ],
    "attention": {
        "relative": _described(2, _tables()),
        "absolute": _described(2, []),
    },
    "warnings": ["Seed 2 saw fewer tokens."],
    "versions": {"tensorflow": "2.21.0"},
}


def large_report(number: int = 10) -> dict[str, Any]:
    """Returns a report of many labels, two seeds each; the last is a file."""
    made = report()
    labels = [f"label-{n}" for n in range(number)]
    made |= {"labels": labels, "runs": [], "summary": [], "pairs": []}
    for n, label in enumerate(labels):
        runs = [_run(label, seed, 20.0 + n, 1.0 + n / 10) for seed in (1, 2)]
        (line,) = report()["summary"][:1]
        line |= {"label": label, "bleu_mean": 20.0 + n}
        if n == number - 1:
            runs = runs[:1]
            runs[0] |= {"train_steps": None, "seed": None, "loss": None}
            runs[0]["learning_curve"] = {"train": [], "dev": []}
            line |= {"seeds": [None], "loss_mean": None, "loss_spread": None}
        made["runs"] += runs
        made["summary"].append(line)
    made["all_pairs"] = [
        _pair("BLEU", 20.0 + a, 20.0 + b, 0.3)
        | {"a": labels[a], "b": labels[b]}
        for a in range(number)
        for b in range(a + 1, number)
    ]
    made["all_pairs"][1]["p_corrected"] = 0.0125
    made["all_pairs"][2]["p_corrected"] = None
    made["pairs"] = made["all_pairs"][: number - 1]
    made["pairs_by_measure"] = {"chrF": made["pairs"]}
    made["attention"] = {
        label: _described(2, _tables()) for label in labels[:-1]
    }
    made["hparams_diff"] = {"pos": dict.fromkeys(labels[:-1], "none")}
    made["samples"][0]["translations"] = dict.fromkeys(labels, "Hund")
    return made


def report(**changes: Any) -> dict[str, Any]:
    """Returns a report of two labels and two seeds, some parts replaced."""
    return copy.deepcopy(_REPORT) | changes
