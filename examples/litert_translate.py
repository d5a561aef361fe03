r"""Translates standard input with a LiteRT export.

    python litert_translate.py --export_dir=runs/demo/export_litert \
        < test.en > test.de

Needs the packages ai_edge_litert, sentencepiece and numpy only. Programs in
other languages do the same: LiteRT and SentencePiece exist for Android, iOS and
C++.
"""

import argparse
import json
import pathlib
import re
import sys

import numpy as np

END = 1  # the id behind the last piece


class Translator:
    """A model and its tokenizer.

    Args:
        folder: str. What `relpos-export --format=litert` wrote.
        threads: int. How many threads one line uses.
    """

    def __init__(self, folder, threads=1):
        import sentencepiece
        from ai_edge_litert import interpreter

        folder = pathlib.Path(folder)
        info = json.loads((folder / "export_info.json").read_text("utf-8"))
        if info["format"] != "litert":
            sys.exit(f"Expected an export for LiteRT. Received: {folder}.")
        if not info["tokenizer"].endswith(".model"):
            sys.exit(
                "Expected a tokenizer of SentencePiece. Received: "
                f"{info['tokenizer']}."
            )
        self.extra_length = info["decode_hparams"]["extra_length"]
        self.pieces = sentencepiece.SentencePieceProcessor()
        self.pieces.LoadFromSerializedProto(
            (folder / info["tokenizer"]).read_bytes()
        )
        self.model = interpreter.Interpreter(
            model_path=str(folder / "model.tflite"), num_threads=threads
        )
        self.run = self.model.get_signature_runner("translate")

    def translate(self, line):
        """Returns the best translation of a line."""
        ids = [*self.pieces.encode(line.strip()), END]
        if len(ids) == 1:  # a blank line
            return ""
        limit = len(ids) + self.extra_length
        found = self.run(
            inputs=np.array([ids], np.int32), limits=np.array([limit], np.int32)
        )
        ids = found["ids"][0, 0].tolist()
        if END in ids:  # else the limit cut the translation off
            ids = ids[: ids.index(END)]
        # Id 0 is padding. Byte pieces can spell the end of a line.
        text = self.pieces.decode([i for i in ids if i])
        return re.sub(r"[\r\n]", " ", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export_dir", required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    try:
        translator = Translator(arguments.export_dir, arguments.threads)
    except ImportError as error:
        sys.exit(
            "This needs the packages ai_edge_litert and sentencepiece: "
            f"{error}."
        )
    except OSError as error:
        sys.exit(f"Expected an export for LiteRT. Received: {error}.")
    for line in sys.stdin.buffer:
        text = translator.translate(line.decode("utf-8", errors="replace"))
        sys.stdout.buffer.write(text.encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
