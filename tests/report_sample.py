"""A small report of a comparison, as report.json has it."""

import copy
from typing import Any

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def _by_length(bleu):
    return [
        {"up_to": 10, "lines": 30, "bleu": bleu + 2, "exact_match": 6.0},
        {"up_to": None, "lines": 1070, "bleu": bleu - 1, "exact_match": 0},
    ]


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
        "tokenized_bleu": None,
        "tokenized_bleu_signature": None,
        "exact_match": 3.25,
        "sharing": None,
        "bleu_by_length": _by_length(bleu),
        "output_dir": f"out/runs/{label}-seed{seed}",
        "minutes": 5.25,
        "learning_curve": {
            "train": [[50, 6.5], [100, 4.5], [200, 3.5]],
            "dev": [[100, 4.0 - dev, dev], [200, 3.0 - dev, 10 * dev]],
        },
    }


def _pair(measure, score_a, score_b, p_value_seeds):
    return {
        "a": "relative",
        "b": "absolute",
        "measure": measure,
        "score_a": score_a,
        "score_b": score_b,
        "both_low": -10.5,
        "both_high": 14.5,
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
    "lines": 1100,
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
            "tokenized_bleu_mean": None,
            "tokenized_bleu_spread": None,
            "exact_match_mean": 3.25,
            "bleu_by_length": _by_length(mean),
            "learning_curve": [[100, 3.0, mean / 10], [200, 2.0, mean / 2]],
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
    "warnings": ["Seed 2 saw fewer tokens."],
    "versions": {"tensorflow": "2.21.0"},
}


def report(**changes: Any) -> dict[str, Any]:
    """Returns a report of two labels and two seeds, some parts replaced."""
    return copy.deepcopy(_REPORT) | changes
