"""An export is used as it was written, or an error names the file."""

import json
import pathlib
import shutil
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from tensorflow.core.protobuf import saved_model_pb2

from relpos_tf import errors
from relpos_tf.data import tokenizer
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import export_files
from relpos_tf.decoding import saved_model_engine
from relpos_tf.export import saved_model
from relpos_tf.models import run_dir
from relpos_tf.utils import checked_json
from tests import tiny_run

SETTINGS = {"beam_size": 3, "alpha": 0.6, "extra_length": 7}


class ExportEngineTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = tiny_run.path() / "checked_export"
        saved_model.export_saved_model(tiny_run.path(), cls.whole)

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.folder = folder / "export"
        shutil.copytree(self.whole, self.folder)
        self.info = self.folder / "export_info.json"

    def test_a_length_to_cut_lines_to_is_refused_before_any_line(self):
        engine = saved_model_engine.ExportEngine(self.folder)
        with self.assertRaisesRegex(errors.UserError, "`max_input_size` does"):
            engine.complete(decode_hparam.DecodeHParams(max_input_size=3))

    def test_every_file_is_described(self):
        files = checked_json.loads(self.info.read_bytes())["files"]
        there = {
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        }
        self.assertEqual(files.keys(), there - {"export_info.json"})
        self.assertIn("assets.extra/tf_serving_warmup_requests", there)
        self.assertEqual(files, export_files.file_checksums(self.folder))

    @parameterized.parameters(
        {"files": ["saved_model.pb"]},
        {"files": {"saved_model.pb": 7}},
        {"decode_hparams": [4]},
        {"decode_hparams": SETTINGS | {"beam_size": 2.5}},
        {"decode_hparams": SETTINGS | {"beam_size": [4]}},
        {"decode_hparams": SETTINGS | {"alpha": "x"}},
        {"decode_hparams": {"no_such": 1}},
        {"format": 3},
    )
    def test_words_of_another_type_are_refused(self, **fields):
        info = checked_json.loads(self.info.read_bytes()) | fields
        self.info.write_text(json.dumps(info))
        with self.assertRaisesRegex(
            errors.UserError, "must be of type|Unknown hparams"
        ):
            saved_model_engine.ExportEngine(self.folder)

    @parameterized.parameters(
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    )
    def test_a_damaged_file_is_named(self, name):
        path = self.folder / name
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 4
        path.write_bytes(content)
        with self.assertRaisesRegex(errors.UserError, f"{path} is damaged"):
            saved_model_engine.ExportEngine(self.folder)
        path.unlink()
        with self.assertRaisesRegex(errors.UserError, f"{path} is missing"):
            saved_model_engine.ExportEngine(self.folder)

    def test_damaged_words_about_it_are_refused(self):
        text = self.info.read_text()
        self.info.write_text(text.replace('"alpha": 0.6', '"alpha": 0.5'))
        with self.assertRaisesRegex(errors.UserError, "checksum"):
            saved_model_engine.ExportEngine(self.folder)
        for text in ("{", "[]", '{"decode_hparams": []}', "{}"):
            self.info.write_text(text)
            with self.assertRaisesRegex(errors.UserError, str(self.folder)):
                saved_model_engine.ExportEngine(self.folder)
        self.info.unlink()
        with self.assertRaisesRegex(errors.UserError, "without export_info"):
            saved_model_engine.ExportEngine(self.folder)

    def test_damage_that_no_checksum_shows_is_told(self):
        info = checked_json.loads(self.info.read_bytes()) | {"files": {}}
        self.info.write_text(json.dumps(info))
        for path in sorted(self.folder.rglob("variables*")):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:99])
                with self.assertRaisesRegex(
                    errors.UserError, "Expected a SavedModel"
                ):
                    saved_model_engine.ExportEngine(self.folder)

    def hostile(self, details):
        """Puts a program beside the words of an export: returns its engine."""
        module = tf.Module()
        lines = tf.TensorSpec([None], tf.string, "inputs")
        module.details = tf.function(details, [lines])
        module.count_ids = tf.function(tf.strings.length, [lines])
        tf.saved_model.save(
            module, str(self.folder), signatures={"details": module.details}
        )
        info = checked_json.loads(self.info.read_bytes())
        info["files"] = export_files.file_checksums(self.folder)
        self.info.write_text(checked_json.dumps(info))

    @parameterized.parameters(
        ("'WriteFile', which could read or write files", "write"),
        ("'ReadFile', which could read or write files", "read"),
        ("'SaveV2', which could read or write files", "save"),
        ("'PrintV2', which could read or write files", "print"),
        ("'EagerPyFunc', which could run Python", "python"),
        ("'TextLineDataset', which could read or write files", "dataset"),
        ("'Acos'", "unknown"),
    )
    def test_a_program_of_other_operations_is_not_loaded(self, message, name):
        path = str(self.folder.parent / "written")
        calls = {
            "write": lambda text: tf.io.write_file(path, text),
            "read": lambda text: tf.io.read_file(path),
            "save": lambda text: tf.raw_ops.SaveV2(
                prefix=path,
                tensor_names=["a"],
                shape_and_slices=[""],
                tensors=[text],
            ),
            "print": lambda text: tf.print(
                text, output_stream=f"file://{path}"
            ),
            "python": lambda text: tf.py_function(len, [text], tf.int32),
            "dataset": lambda text: tf.data.TextLineDataset([path]).reduce(
                text, lambda old, new: new
            ),
            "unknown": lambda text: tf.acos(1.0),
        }

        def details(inputs):
            def once(number):
                calls[name](inputs[0])
                return number + 1

            # In a function of a function.
            tf.while_loop(lambda number: number < 1, once, [tf.constant(0)])
            return {"beam_outputs": inputs}

        self.hostile(details)
        with mock.patch.object(tf.saved_model, "load") as load:
            with self.assertRaisesRegex(
                errors.UserError, f"saved_model.pb is refused: .*{message}"
            ):
                saved_model_engine.ExportEngine(self.folder)
        load.assert_not_called()
        self.assertFalse(pathlib.Path(path).exists())

    def test_what_saves_the_variables_may_not_be_called(self):
        path = self.folder / "saved_model.pb"
        content = path.read_bytes()
        function_library = saved_model_engine.function_library

        def refused(change):
            model = saved_model_pb2.SavedModel.FromString(content)
            (meta_graph,) = model.meta_graphs
            saver, other = (
                next(
                    function
                    for function in function_library(
                        meta_graph.graph_def
                    ).function
                    if name in function.signature.name
                )
                for name in ("traced_save", "inference_details")
            )
            change(meta_graph, saver, other)
            path.write_bytes(model.SerializeToString())
            with self.assertRaisesRegex(errors.UserError, "'SaveV2', which"):
                saved_model_engine.check_operations(self.folder)

        def as_signature(meta_graph, saver, other):
            for node in meta_graph.object_graph_def.nodes:
                if node.HasField("bare_concrete_function"):
                    node.bare_concrete_function.concrete_function_name = (
                        saver.signature.name
                    )

        def by_call(meta_graph, saver, other):
            node = other.node_def.add(name="call", op="PartitionedCall")
            node.attr["f"].func.name = saver.signature.name

        def by_exchange(meta_graph, saver, other):
            for function in (saver, other):
                function.attr["api_implements"].s = b"same"

        def in_the_graph(meta_graph, saver, other):
            meta_graph.graph_def.node.add(name="save", op="SaveV2")

        def as_gradient(meta_graph, saver, other):
            function_library(meta_graph.graph_def).gradient.add(
                function_name=other.signature.name,
                gradient_func=saver.signature.name,
            )

        for change in (
            *(as_signature, by_call, by_exchange),
            *(in_the_graph, as_gradient),
        ):
            with self.subTest(change.__name__):
                refused(change)
        path.write_bytes(content)
        saved_model_engine.check_operations(self.folder)

    @parameterized.parameters("version_1", "asset", "two_graphs", "no_graph")
    def test_a_program_of_another_kind_is_not_loaded(self, kind):
        path = self.folder / "saved_model.pb"
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        (meta_graph,) = model.meta_graphs
        if kind == "version_1":
            meta_graph.ClearField("object_graph_def")
        elif kind == "asset":
            meta_graph.asset_file_def.add(filename="../../secret")
        elif kind == "two_graphs":
            model.meta_graphs.append(meta_graph)
        else:
            model.ClearField("meta_graphs")
        path.write_bytes(model.SerializeToString())
        with self.assertRaisesRegex(errors.UserError, "pb is refused"):
            saved_model_engine.check_operations(self.folder)

    @parameterized.parameters(
        {
            "localness": "layer",
            "attention_window": 2,
            "shared_embedding": False,
            "use_target_space_embedding": True,
            "layer_preprocess_sequence": "n",
            "layer_postprocess_sequence": "da",
        },
        {
            "localness": "query",
            "encoder_attention_direction": "split",
            "attention_score": "additive",
            "heads_share_relative_embedding": True,
            "pos": "none",
        },
        {
            "localness": "fixed",
            "self_attention_type": "dot_product_rotary",
            "pos": "emb",
            "beam_size": 1,
        },
        {
            "relative_attention_implementation": "reshape",
            "decoder_self_attention_type": "dot_product_alibi",
            "pos": "timing",
            "max_position_shift": 9,
        },
        {
            "self_attention_type": "dot_product_relative_bias",
            "decoder_max_relative_position": 1,
            "max_relative_position_right": 0,
        },
        {
            "attention_score": "feature_wise",
        },
        {
            "attention_window": 5,
            "attention_window_heads": 3,
            "attention_window_layers": 1,
        },
    )
    def test_exports_of_every_kind_of_model_are_known(self, **changes):
        run = run_dir.RunDir(tiny_run.path())
        hparams = run.read_hparams().replace(num_hidden_layers=1, **changes)
        module = saved_model.TextTranslator(
            tiny_run.random_model(hparams),
            tokenizer.Tokenizer(run.tokenizer_path),
            decode_hparam.DecodeHParams().fill(hparams),
        )
        tf.saved_model.save(
            module, str(self.folder), signatures={"details": module.details}
        )
        saved_model_engine.check_operations(self.folder)

    def test_variables_that_promise_too_much_are_refused(self):
        # TensorFlow would end the process.
        prefix = str(self.folder / "variables" / "variables")
        data = pathlib.Path(f"{prefix}.data-00000-of-00001")
        data.write_bytes(data.read_bytes()[:-1])
        info = checked_json.loads(self.info.read_bytes()) | {"files": {}}
        self.info.write_text(json.dumps(info))
        with mock.patch.object(tf.saved_model, "load") as load:
            with self.assertRaisesRegex(errors.UserError, "promises more"):
                saved_model_engine.ExportEngine(self.folder)
        load.assert_not_called()

    @parameterized.parameters(
        "../secret", "/etc/passwd", "variables/../../secret", "", ".."
    )
    def test_names_do_not_lead_out_of_the_folder(self, name):
        with self.assertRaisesRegex(errors.UserError, "in its folder"):
            export_files.file_of(self.folder, name)
        with self.assertRaisesRegex(errors.UserError, "in its folder"):
            export_files.check_files(self.folder, {"files": {name: "0" * 64}})

    def test_names_inside_the_folder_are_followed(self):
        self.assertEqual(
            export_files.file_of(self.folder, "variables/..data"),
            self.folder / "variables" / "..data",
        )


if __name__ == "__main__":
    absltest.main()
