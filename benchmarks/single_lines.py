"""Times a run and its exports: single lines and batches, greedy and beams.

    python benchmarks/single_lines.py --output_dir=runs/mine \
        --source=test.en --target=test.de --threads=1

The run is exported as a SavedModel, for CTranslate2 (float32 and int8) and for
LiteRT. Each engine then translates the file in a process of its own, once for
each `--beams` and `--batches`. The table has lines per second, the median time
of a batch (of one line: how long a reader waits), BLEU, the size on disk and
the peak memory of the process.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import common


def export(run, folder, beam):
    """Exports a run; returns the folder of each engine by its name."""
    from relpos_tf.export import ctranslate2_export
    from relpos_tf.export import litert_export
    from relpos_tf.export import saved_model

    found = {"run": run}
    for name, write, options in (
        ("SavedModel", saved_model.export_saved_model, {}),
        ("CTranslate2 float32", ctranslate2_export.export_ctranslate2, {}),
        (
            "CTranslate2 int8",
            ctranslate2_export.export_ctranslate2,
            {"quantization": "int8"},
        ),
        ("LiteRT", litert_export.export_litert, {}),
    ):
        found[name] = write(run, folder / name, beam_size=beam, **options)
    return found


def size_on_disk(path):
    """Returns what must be copied to translate elsewhere, in MB."""
    path = pathlib.Path(path)
    found = path.rglob("*") if path.is_dir() else [f"{path}.npz"]
    files = [p for p in map(pathlib.Path, found) if p.is_file()]
    if checkpoints := sorted(p for p in files if p.name.startswith("ckpt-")):
        files = [max(checkpoints, key=lambda p: p.stat().st_mtime)]
    return round(sum(p.stat().st_size for p in files) / 2**20, 1)


def measure(args):
    """Translates the file with one engine; prints the figures."""
    import relpos_tf
    from relpos_tf.decoding import engine_kinds
    from relpos_tf.training import metrics

    kind = engine_kinds.of(args.engine)
    if kind.needs_tensorflow:
        common.import_tensorflow(args.threads)
    sources, references = (
        pathlib.Path(path).read_text("utf-8").removesuffix("\n").split("\n")
        for path in (args.source, args.target)
    )
    beam, batch = int(args.beams), int(args.batches)
    translator = relpos_tf.Translator.load(
        args.engine, jit_compile=kind == engine_kinds.RUN and batch == 1
    )

    def translate(lines):
        return translator.translate(lines, beam_size=beam, batch_size=batch)

    # Of every size of a source, since a run compiles a search for each.
    translate(sources if batch == 1 else sources[: 3 * batch])
    times, found = [], []
    for start in range(0, len(sources), batch):
        begun = time.perf_counter()
        found += translate(sources[start : start + batch])
        times.append(time.perf_counter() - begun)
    result = {
        "lines_per_second": round(len(sources) / sum(times), 1),
        "median_ms": round(1000 * statistics.median(times), 1),
        "bleu": round(metrics.corpus_bleu(found, references).bleu, 2),
        common.MEMORY: round(common.peak_mb()),
    }
    print(json.dumps(result))


def main():
    parser = common.make_parser(__doc__)
    add = parser.add_argument
    add("--output_dir", help="a run, or a checkpoint")
    add("--source", required=True, help="a file of lines")
    add("--target", required=True, help="their translations")
    add("--threads", type=int, default=1)
    add("--beams", default="1,5")
    add("--batches", default="1,32", help="lines of a batch")
    add("--engine", help="a folder: measure this one, in this process")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # of CTranslate2
    if args.engine:
        measure(args)
        return
    rows = []
    common.import_tensorflow()
    for beam in map(int, args.beams.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            folders = export(args.output_dir, pathlib.Path(folder), beam)
            for name, path in folders.items():
                for batch in args.batches.split(","):
                    flags = {"engine": path, "beams": beam, "batches": batch}
                    for shared in "source", "target", "threads":
                        flags[shared] = getattr(args, shared)
                    [row] = common.run(
                        [sys.executable, __file__, *common.as_flags(**flags)]
                    )
                    print(name, beam, batch, row, file=sys.stderr, flush=True)
                    disk = size_on_disk(path)
                    rows.append([name, beam, batch, *row.values(), disk])
    head = ["engine", "beams", "batch", "lines/s", "median ms", "BLEU"]
    print(common.table([*head, "peak MB", "MB on disk"], rows))


if __name__ == "__main__":
    main()
