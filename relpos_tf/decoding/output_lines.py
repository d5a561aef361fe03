"""What is written of a line's translations. No TensorFlow."""

import json
from typing import Any


def translation_line(settings, texts: list[str], scores: list[float]) -> str:
    """Returns the line of one or all translations.

    Args:
        settings: `decode_hparam.DecodeHParams`.
        texts: The translations, best first.
        scores: Theirs.
    """
    if not settings.return_beams:
        return texts[0]
    fields = []
    for one, score in zip(texts, scores, strict=True):
        fields.append(one.replace("\t", " "))
        if settings.write_beam_scores:
            fields.append(f"{score:.4f}")
    return "\t".join(fields)


def attention_line(look: Any) -> str:
    """Returns where a translation looked, as a JSON object in one line.

    Its `attention` has a row for each target piece, with the mean weight of
    each source piece over all layers and heads; its `alignment` the number of
    the source piece with the largest, counted from 0. A blank line has none.

    Args:
        look: `engines.Attention`, or None for a blank line.
    """
    if look is None:
        return json.dumps({"source": [], "target": [], "attention": []})
    mean = look.weights.mean(axis=(0, 1))
    record = {
        "source": look.source,
        "target": look.target,
        "alignment": mean.argmax(axis=1).tolist(),
        "attention": [[round(w, 4) for w in row] for row in mean.tolist()],
    }
    return json.dumps(record, ensure_ascii=False)
