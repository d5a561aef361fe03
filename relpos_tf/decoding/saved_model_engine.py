"""An engine of an exported SavedModel.

A SavedModel is a program. Before it is loaded, every operation in it is
compared with the list of the operations that exports have; none of these
touches a file, the network or Python.

Shapes: N lines, B beams, T target length.
"""

import operator
import pathlib
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import saved_model_pb2

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import export_files
from relpos_tf.decoding import one_line
from relpos_tf.models import checkpoint_index
from relpos_tf.utils import extras
from relpos_tf.utils import paths

with extras.imports("translate", "a SavedModel"):
    import tensorflow_text  # noqa: F401  # registers the tokenizer's operations

SAVED_MODEL = "saved_model.pb"
# The operations in exports of every kind of model.
OPERATIONS = frozenset(
    """
    Abs AddV2 All Any ArgMax AsString Assert AssignVariableOp
    BatchMatMulV2 BiasAdd BiasAddGrad BroadcastTo Cast ConcatV2 Const
    Cos Cumsum DenseBincount DisableCopyOnRead Einsum Equal Exp
    ExpandDims Fill FloorDiv FloorMod GatherV2 Greater GreaterEqual
    HashTableV2 Identity IdentityN If Less LessEqual Log LogicalAnd
    LogicalNot LogicalOr LookupTableFindV2 LookupTableImportV2 MatMul
    MatrixDiagPartV3 MatrixSetDiagV3 Max Maximum Mean Min Minimum Mul
    Neg NoOp NotEqual OneHot OnesLike Pack Pad PartitionedCall
    Placeholder Pow Prod RaggedGather RaggedRange RaggedTensorToTensor
    Range ReadVariableOp RealDiv ReduceJoin Relu Reshape ResourceGather
    ReverseV2 Rsqrt Select SelectV2 SentencepieceDetokenizeOp
    SentencepieceOp SentencepieceTokenizeOp Shape Sigmoid Sin Size
    Softmax Square Squeeze StatefulPartitionedCall StaticRegexFullMatch
    StaticRegexReplace StopGradient StridedSlice StringJoin StringLength
    StringSplitV2 StringToNumber Sub Substr Sum Tanh TensorListConcatV2
    TensorListReserve TensorListSetItem TensorScatterUpdate Tile TopKV2
    Transpose UnicodeDecode UnicodeEncode UnicodeTranscode Unpack
    UnsortedSegmentJoin UnsortedSegmentSum UpperBound VarHandleOp Where
    While WordpieceTokenizeWithOffsets
    """.split()
)
# The operations with which TensorFlow saves and restores the variables, in
# functions that only a session would call.
SAVING = frozenset(
    "MergeV2Checkpoints RestoreV2 SaveV2 ShardedFilename".split()
)
# What other operations could do, for messages.
_COULD = {
    "read or write files": r"(Read|Write|Matching)Files?|.*(Dataset|Reader).*|"
    r"ImmutableConst|InitializeTableFromText.*|.*(Save|Restore|Summary|Print)"
    r".*|MergeV2Checkpoints|ShardedFilename|.*Debug.*",
    "use the network": r"_?(Host)?(Send|Recv)|RemoteCall|Collective.*|.*Rpc.*",
    "run Python": r".*PyFunc.*",
}
# Exceptions from a damaged export without checksums.
_DAMAGE = (
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    tf.errors.OpError,
)


def check_operations(folder: str | pathlib.Path) -> None:
    """Refuses a SavedModel with operations that exports do not have.

    None of its operations has been run then.

    Raises:
        UserError: it has such operations, or cannot be read.
    """
    path = pathlib.Path(folder, SAVED_MODEL)
    try:
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except (OSError, message.DecodeError) as error:
        raise errors.UserError(
            "Expected a SavedModel made by relpos-export. Received: "
            f"{folder}, whose {SAVED_MODEL} is missing or damaged."
        ) from error
    wrong = _not_of_an_export(model)
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise errors.UserError(
            f"{path} is refused: expected the operations of an export. "
            f"Received: {', '.join(wrong[:5])}{more}. Nothing of it has been "
            "run. If it is an export, make it again with this version."
        )


# The functions of a GraphDef, and their gradients.
function_library = operator.attrgetter("library")


def _not_of_an_export(model: saved_model_pb2.SavedModel) -> list[str]:
    """Returns the parts of a SavedModel that exports do not have."""
    if len(model.meta_graphs) != 1:
        return [f"{len(model.meta_graphs)} graphs"]
    (meta_graph,) = model.meta_graphs
    if not meta_graph.HasField("object_graph_def"):
        return ["a graph of TensorFlow 1"]
    library = function_library(meta_graph.graph_def)
    nodes = list(meta_graph.graph_def.node)
    savers = []
    for function in library.function:
        nodes.extend(function.node_def)
        if SAVING.intersection(node.op for node in function.node_def):
            savers.append(function.signature.name.encode())
    used = {node.op for node in nodes}
    wrong = [_described(name) for name in sorted(used - OPERATIONS - SAVING)]
    if meta_graph.asset_file_def or any(
        node.WhichOneof("kind") == "asset"
        for node in meta_graph.object_graph_def.nodes
    ):
        wrong.append("other files")
    # Only the graph itself, which is never run, may call the savers.
    callers = [meta_graph.object_graph_def, *library.gradient]
    callers += [*library.registered_gradients]
    callers += [f for f in library.function if "api_implements" in f.attr]
    callers += [
        f for f in library.function if f.signature.name.encode() not in savers
    ]
    outside = {node.op for node in meta_graph.graph_def.node}
    texts = [caller.SerializeToString() for caller in callers]
    if outside & SAVING or any(
        name in text for name in savers for text in texts
    ):
        wrong += [_described(name) for name in sorted(used & SAVING)]
    return wrong


def _described(operation: str) -> str:
    """Returns the name of an operation and, if known, what it could do."""
    for what, names in _COULD.items():
        if re.fullmatch(names, operation):
            return f"{operation!r}, which could {what}"
    return repr(operation)


class _Line(NamedTuple):
    """The content of an `engines.Item`."""

    text: bytes
    ids: np.ndarray | None = None  # int32, EOS last; of lines alone


class ExportEngine:
    """An `engines.Engine` of a SavedModel.

    Args:
        folder: str or path. What `saved_model.export_saved_model` wrote.

    Raises:
        UserError: there is none, or it is damaged.
    """

    def __init__(self, folder: str | pathlib.Path):
        self.info = export_files.read_info(folder)
        export_files.check_files(folder, self.info)
        check_operations(folder)
        try:
            checkpoint_index.check(f"{folder}/variables/variables")
            self._decode_hparams = decode_hparam.DecodeHParams.from_json(
                self.info["decode_hparams"]
            )
            self._module = tf.saved_model.load(paths.plain(folder))
            self._function = self._module.signatures["details"]
            self._count_ids = self._module.count_ids
            # TensorFlow finds the graph of concrete functions sooner.
            self._encode, self._decode, search = (
                function.get_concrete_function()
                for function in (
                    self._module.encode,
                    self._module.decode,
                    self._module.one_line,
                )
            )
            self._programs = one_line.Programs(search)
        except _DAMAGE as error:
            reason = " ".join(str(error).split())
            raise errors.UserError(
                "Expected a SavedModel made by relpos-export. "
                f"Received: {folder} ({reason})."
            ) from error

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Replaces None by the values of the export.

        Raises:
            UserError: other values are wanted.
        """
        decode_hparams.check_plain("An export")
        if decode_hparams.max_input_size:
            self._refuse_to_cut(decode_hparams.max_input_size)
        fixed = self._decode_hparams
        decode_hparams.check_fixed(fixed, *fixed.search_settings())
        return decode_hparams.fill(self._decode_hparams)

    def items(self, lines: list[str]) -> list[engines.Item]:
        """Encodes lines; the SavedModel counts their ids."""
        strings = [line.encode("utf-8", errors="replace") for line in lines]
        if len(strings) == 1:
            (ids,) = self._encode(tf.constant(strings)).numpy()
            return [engines.Item(_Line(*strings, ids), len(ids))]
        sizes = self._count_ids(tf.constant(strings)).numpy()
        return list(map(engines.Item, map(_Line, strings), sizes.tolist()))

    def truncate(self, item: engines.Item, size: int) -> engines.Item:
        """Refuses: only ids can be cut, and these are inside the graph."""
        del item
        self._refuse_to_cut(size)

    def _refuse_to_cut(self, size):
        raise errors.UserError(
            f"`max_input_size` does not work with an export. Received: {size}."
        )

    def translate(
        self,
        items: list[engines.Item],
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[engines.Translation]:
        """Translates lines in one batch."""
        del decode_hparams  # part of the graph
        found = self._translate_one(*items, n_best) if len(items) == 1 else None
        if found is not None:
            return [found]
        outputs = self._function(
            inputs=tf.constant([item.content.text for item in items])
        )
        return [
            engines.Translation([text.decode() for text in texts], *others)
            for texts, *others in zip(
                outputs["beam_outputs"][:, :n_best].numpy().tolist(),
                outputs["beam_scores"][:, :n_best].numpy().tolist(),
                outputs["is_complete"].numpy().tolist(),
                strict=True,
            )
        ]

    def _translate_one(self, item, n_best):
        """Translates one line with a compiled program, or returns None."""
        ids = item.content.ids
        if ids is None or not one_line.is_possible():
            return None
        fixed = self._decode_hparams
        found = self._programs.translate(
            ids, item.limit(fixed.extra_length), fixed.alpha
        )
        if found is None:
            return None
        ids, scores = found  # [1, B, T], [1, B]
        texts = self._decode(tf.constant(ids[0, :n_best])).numpy()
        return engines.Translation(
            [text.decode() for text in texts],
            scores[0, :n_best].tolist(),
            bool((ids[0, 0] == tokenizer_lib.EOS_ID).any()),
        )
