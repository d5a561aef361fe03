"""What commands refuse before they begin: one line that names the flag."""

import os
from unittest import mock

from absl.testing import parameterized

from relpos_tf.bin import average
from relpos_tf.bin import bleu
from relpos_tf.bin import command
from relpos_tf.bin import compare
from relpos_tf.bin import datagen
from relpos_tf.bin import decoder
from relpos_tf.bin import export
from relpos_tf.bin import import_t2t
from relpos_tf.bin import serve
from relpos_tf.bin import trainer
from tests import folders
from tests import tiny_run
from tests.bin import calls

SETS = "--hparams_sets=transformer_relative_tiny,transformer_tiny"
# Of each command: its arguments, and words of the message. `a` is a file of two
# lines, `b` of one, `blank` of none; `run` is a run, `export` an export and
# `folder` an empty folder.
TABLE = {
    average: (
        ("", "--output_dir is required"),
        ("--output_dir=run --steps=7,77", "--steps Received: 77."),
        ("--output_dir=run --steps=7 --n=2", "--n --steps"),
        ("--output_dir=folder", "a run's directory folder"),
        ("--output_dir=a/b", "--output_dir Expected a folder"),
    ),
    bleu: (
        ("--translation=a --reference=b,a --score_json=a", "same file"),
        ("--translation=a", "--reference is required"),
        ("--reference=a", "--translation is required"),
        ("--translation=a --reference=b", "2 1"),
        ("--translation=a --reference=a --score_json=no/x", "--score_json"),
        (
            "--translation=a --reference=a --test_set=x",
            "--reference --test_set",
        ),
        ("--translation=a --test_set=multi30k/2016", "--language_pair"),
        ("--translation=a --reference=a --language_pair=ende", "as in en-de"),
        (
            "--translation=a --reference=a --bleu_tokenize=zz",
            "--bleu_tokenize none, zh, 13a",
        ),
        ("--translation=a --test_set=z --language_pair=en-de", "--test_set: "),
    ),
    compare: (
        ("", "one of --hparams_sets, --preset and --runs is required"),
        ("--hparams_sets=nothing", "--hparams_sets: Unknown"),
        (f"{SETS},transformer_tiny", "--hparams_sets: twice"),
        (f"{SETS} --preset=table1", "--preset from one set"),
        (
            "--preset=table1 --hparams_sets=transformer_relative_and_absolute",
            "--hparams: relative positions",
        ),
        ("--preset=length", "--train_max_length"),
        (f"{SETS} --runs=run", "--hparams_sets= no effect with --runs."),
        ("--runs=none --output_dir=x", "--runs: has no run"),
        (SETS, "--output_dir is required"),
        (f"{SETS} --output_dir=x", "--problem is required"),
        (
            f"{SETS} --output_dir=a/x --problem=algorithmic_reverse",
            "--output_dir: Expected a folder a is a file",
        ),
        (f"{SETS} --problem=nothing", "--problem: `nothing`"),
        (
            f"{SETS} --problem=algorithmic_copy --output_dir=x --scale=wmt14",
            "--scale: Moses",
        ),
        (f"{SETS} --baseline=x", "--baseline transformer_tiny. Received: x"),
        (f"{SETS} --outputs=x", "--outputs: LABEL=FILE 'x'"),
        (f"{SETS} --outputs=transformer_tiny=a", "--outputs: no run or set"),
        (f"{SETS} --hparams=x:alpha=1", "--hparams: labels"),
        (f"{SETS} --hparams=alpha", "--hparams: 'alpha'"),
        (f"{SETS} --grid=alhpa=1", "--grid: Unknown"),
        (f"{SETS} --diff --print_commands", "--print_commands no effect"),
        (f"{SETS} --diff --seeds=1,2", "--seeds no effect --diff=false"),
        (
            "--runs=run --print_commands",
            "--print_commands no effect with --runs.",
        ),
        (f"{SETS} --problem=translate_files", "--train_source is required"),
        (f"{SETS} --train_source=x", "--train_source --problem=translate_fil"),
        (f"{SETS} --seeds=3,x", "--seeds whole numbers"),
        (f"{SETS} --seeds=2147483648", "seeds up to 2147483647"),
        (
            f"{SETS} --problem=algorithmic_copy --output_dir=x --seeds=",
            "--seeds is required",
        ),
        (
            f"{SETS} --problem=algorithmic_copy --output_dir=x "
            "--hparams=transformer_tiny:train_steps=7",
            "--train_steps is required, 7,",
        ),
        (
            f"{SETS} --train_steps=9 --hparams=transformer_tiny:train_steps=7",
            "--hparams: `train_steps` no effect",
        ),
        (f"{SETS} --train_steps=9 --grid=train_steps=7,8", "--grid: no effect"),
    ),
    datagen: (
        ("", "--problem is required"),
        ("--problem=no_such", "--problem: no_such algorithmic_copy"),
        ("--problem=algorithmic_copy --data_dir=a/b", "--data_dir"),
        ("--problem=algorithmic_copy --data_dir=latin-\udce9", "--data_dir"),
        ("--problem=algorithmic_copy --data_dir=x[2]", "--data_dir * ? ["),
        ("--problem=algorithmic_copy --train_source=a", "--train_source"),
        ("--problem=translate_files --train_source=a", "--train_target"),
    ),
    decoder: (
        ("--output_dir=run --checkpoint_path=x", "--output_dir one of"),
        ("--decode_interactive --decode_from_file=a", "one of"),
        ("--score_json=x", "--score_json it needs --decode_reference|test_set"),
        ("--test_set=all --decode_from_file=a", "--test_set one of"),
        ("--bleu_tokenize=zh", "--bleu_tokenize it needs --decode_reference"),
        (
            "--output_dir=run --decode_from_file=a --decode_reference=a "
            "--language_pair=en-zh --scale=wmt14",
            "--scale: Moses 'zh'",
        ),
        ("--score_file=a --decode_hparams=alpha=1", "--decode_hparams one of"),
        ("--split_sentences --decode_hparams=n_best=2", "one sentence a line"),
        ("--data_dir=x", "--data_dir it needs --test_set"),
        (
            "--export_dir=export --test_set=dev",
            "--test_set=dev --decode_from_file",
        ),
        ("--score_file=a --export_dir=export", "--score_file one of"),
        ("--decode_hparams=beam_siez=3", "--decode_hparams: beam_size Known"),
        ("--decode_from_file=no", "no: no such file"),
        ("--decode_from_file=blank", "blank is empty"),
        ("--decode_from_file=a --decode_reference=b", "2 lines b, 1"),
        ("--score_file=a", "Line 1 input<TAB>target"),
        ("--decode_to_file=folder", "--decode_to_file: a folder"),
        ("--decode_to_file=x.gz", "--decode_to_file: plain text x.gz"),
        (
            "--decode_from_file=a --decode_reference=a --decode_to_file=x "
            "--score_json=./x",
            "--score_json: --decode_to_file same file",
        ),
        ("--decode_from_file=a --decode_to_file=./folder/../a", "same file"),
        ("--decode_from_file=a --prefix_file=b", "2 lines b, 1"),
        ("--output_dir=folder", "which is none of them"),
        ("--checkpoint_path=run/best", "does not exist evaluations"),
        ("--export_dir=folder", "which is none of them"),
        ("--output_dir=export", "a SavedModel --export_dir"),
        ("--export_dir=run", "a run --output_dir"),
        ("", "a trained run in runs/"),
    ),
    export: (
        ("--output_dir=run --quantization=int8", "--quantization --format"),
        ("--output_dir=run --checkpoint_path=x", "--output_dir one of"),
        ("--output_dir=run --decode_hparams=batch_size=2", "--decode_hparams"),
        ("--format=tflite", "--format saved_model|ctranslate2|litert|argos"),
        ("--language_pair=en-de", "--language_pair --format=argos"),
        (
            "--format=argos --decode_hparams=alpha=1",
            "--decode_hparams --format=saved_model",
        ),
    ),
    import_t2t: (
        ("", "--t2t_dir is required"),
        ("--t2t_dir=folder", "--output_dir is required"),
        ("--t2t_dir=x --output_dir=y --target_space_id=32", "space_id"),
    ),
    serve: (
        ("--model=run --max_lines=0", "--max_lines=0: [1, 2147483647]."),
        ("--model=run --timeout_s=0", "--timeout_s=0: [0.001, 3600]."),
        ("--model=run --cors_origin=example.org", "cors_origin https://"),
        ("--model=run --cors_origin=https://*.a.org", "cors_origin https://"),
        ("--model=run --cors_origin=https://a.org:443", "cors_origin https://"),
        ("--model=run --host=", "--host= a name or an address"),
        ("--model=run --model=run", "--model different names"),
        ("--port=0 --model=no", "--model: which does not exist"),
        ("--port=0 --model=a", "--model: which is none of them"),
        # Before the first is loaded, which would import TensorFlow.
        ("--port=0 --model=run --model=no", "--model: which does not exist"),
    ),
    trainer: (
        ("--vocab_size=0", "vocab_size 0"),
        ("--num_logical_cpus=1000000", "num_logical_cpus 1000000"),
        ("--hparams_set=x", "--hparams_set: x"),
        ("--problem=x", "--problem: x"),
        ("--usr_dir=x/y", "--usr_dir: x/y"),
        ("--eval_early_stopping_metric=blue", "loss chrf bleu"),
        (
            "--problem=translate_files --train_source=a --train_target=a "
            "--dev_source=a --dev_target=a --eval_use_test_set",
            "--eval_use_test_set --test_source",
        ),
        (
            "--schedule=train --eval_early_stopping_steps=5",
            "--eval_early_stopping_steps --schedule=continuous_train",
        ),
        (
            "--eval_early_stopping_metric=bleu",
            "--eval_early_stopping_metric=bleu --eval_early_stopping_steps",
        ),
        (
            "--eval_early_stopping_steps=5 "
            "--eval_early_stopping_metric_delta=nan",
            "eval_early_stopping_metric_delta finite nan",
        ),
        (
            "--problem=translate_files --train_source=, --train_target=, "
            "--dev_source=a --dev_target=a",
            "--train_source required",
        ),
        ("--schedule=train --eval_steps=100", "--eval_steps --schedule!=train"),
        ("--schedule=evaluate --train_steps=0", "--schedule!=evaluate"),
        ("--schedule=evaluate --warm_start_from=a", "--schedule!=evaluate"),
        ("--schedule=evaluate --worker_gpu=1", "--schedule!=evaluate"),
        (
            "--problem=translate_files --vocab_size=9 --warm_start_from=a",
            "--vocab_size no effect with --warm_start_from.",
        ),
        ("--num_logical_cpus=2 --worker_gpu=1", "--num_logical_cpus=1"),
        ("--hparams=learning_rate=1e-4", "--hparams: `learning_rate` =legacy"),
        ("--output_dir=gs://b/run", "--output_dir gs://b/run local"),
        ("--output_dir=a --output_dir=a", "--output_dir=a already"),
    ),
}


class RefusalsTest(folders.TestCase):
    @parameterized.named_parameters(
        (f"{module.__name__.rpartition('.')[2]}_{number}", module, *row)
        for module, rows in TABLE.items()
        for number, row in enumerate(rows)
    )
    def test_it_is_refused_in_one_line(self, module, arguments, words):
        self.enter_folder()
        for name, lines in (("a", "xy"), ("b", "x"), ("blank", "")):
            self.write(name, *lines)
        (self.folder / "folder").mkdir()
        (self.folder / "run").symlink_to(tiny_run.path())
        self.write(
            "export/export_info.json",
            '{"format": "saved_model", "files": {}, "decode_hparams": {}, '
            '"tokenizer": "", "tokenizer_sha256": "", "longest_source": 0, '
            '"max_positions": null}',
        )
        before = sorted(os.listdir())
        with mock.patch.object(
            command, "import_tensorflow", side_effect=AssertionError
        ):
            code, out, err = calls.execute(module.main, *arguments.split())
        self.assertIn(code, (1, 2))
        self.assertEqual(out, b"")
        self.assertLen(err.splitlines(), 1, err)
        for word in words.split():
            self.assertIn(word, err)
        self.assertEqual(sorted(os.listdir()), before)
