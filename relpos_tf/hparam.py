"""Typed hyper-parameters, named as in tensor2tensor.

A set of hyper-parameters is a frozen `HParams`. The values below are those of
Shaw et al. (2018), section 4.1, for the base model with sinusoids; the sets in
`hparams/` derive from one another by `replace`.
"""

import dataclasses
from typing import Any

from relpos_tf import fields
from relpos_tf.fields import choice
from relpos_tf.fields import number
from relpos_tf.fields import switch

# The kinds of self-attention; the third is T5's.
SELF_ATTENTION_TYPES = (
    "dot_product",
    "dot_product_relative",
    "dot_product_relative_bias",
    "dot_product_alibi",
    "dot_product_rotary",
)
OWN_TYPES: list[str] = []  # those of users, which `registry` adds
# The factors of a learning_rate_schedule, which `training.schedules` has.
SCHEDULE_FACTORS = (
    "noam",
    "legacy",
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_hidden_size",
)
# Rows of tensor2tensor's table of target spaces.
TARGET_SPACES = 32
# Conditions of fields, see `fields.is_met`: Shaw's positions, in any stack; the
# tables of them; those of the encoder and of the decoder; and T5's.
_SHAW = "self_attention_type|decoder_self_attention_type=dot_product_relative"
_HAS_TABLES = "add_relative_to_keys|add_relative_to_values=true"
_TABLES = f"{_SHAW} and {_HAS_TABLES}"
_OF_ENCODER = f"self_attention_type=dot_product_relative and {_HAS_TABLES}"
_RIGHT = f"{_OF_ENCODER} and encoder_attention_direction!=forward"
_OF_DECODER = (
    f"{_TABLES} and decoder_self_attention_type=same|dot_product_relative"
)
_T5 = _SHAW + "_bias"


@dataclasses.dataclass(frozen=True)
class HParams(fields.Record):
    """Every choice that defines a model, its training and its decoding.

    Raises:
        UserError: a value is outside what its field can hold.

    Example:

    >>> HParams().replace(hidden_size=256).hidden_size
    256
    >>> HParams().override("hidden_size=64,pos=none").pos
    'none'
    """

    # Model. A run that goes on may not change the fields up to
    # activation_dtype; see `models.run_dir.check_same_architecture`. Numbers
    # beyond `most` mean nothing: they would run for ever, take all memory or
    # overflow inside.
    # The tokenizer's size replaces vocab_size at run time.
    vocab_size: int = number(
        32768, 1, 10_000_000, when="a tokenizer of this size (--vocab_size)"
    )
    hidden_size: int = number(512, least=1, most=100_000)  # d_x
    # Inner size of the feed-forward layers.
    filter_size: int = number(1024, least=1, most=1_000_000)
    num_heads: int = number(8, least=1)
    # Of the encoder, and of the decoder.
    num_hidden_layers: int = number(
        6, least=1, most=1000, when="num_encoder_layers|num_decoder_layers=0"
    )
    num_encoder_layers: int = number(0, most=1000)  # 0: num_hidden_layers
    num_decoder_layers: int = number(0, most=1000)  # 0: num_hidden_layers
    pos: str = choice("timing", "emb", "none")  # absolute positions
    decoder_pos: str = choice("same", "timing", "emb", "none")  # same: as pos
    # SHAPE (Kiyono et al., 2021): sinusoids of a sequence begin, in training,
    # at a random position of at most so much.
    max_position_shift: int = number(
        0, 0, 10_000, when="pos|decoder_pos=timing"
    )
    self_attention_type: str = choice(*SELF_ATTENTION_TYPES, of=OWN_TYPES)
    # same: as self_attention_type
    decoder_self_attention_type: str = choice(
        "same", *SELF_ATTENTION_TYPES, of=OWN_TYPES
    )
    # k, the distance at which relative positions are clipped.
    max_relative_position: int = number(
        16,
        most=10_000,
        when=f"{_OF_ENCODER} or decoder_{_OF_ENCODER} and "
        "decoder_max_relative_position=-1",
    )
    # k of keys after the query (w2v-BERT 2.0: 64 before, 8 after), which the
    # decoder masks; and k in the decoder; -1: max_relative_position.
    max_relative_position_right: int = number(-1, -1, 10_000, when=_RIGHT)
    decoder_max_relative_position: int = number(
        -1, -1, 10_000, when=_OF_DECODER
    )
    add_relative_to_keys: bool = switch(True, when=_SHAW)  # a^K, equation 4
    add_relative_to_values: bool = switch(True, when=_SHAW)  # a^V, equation 3
    heads_share_relative_embedding: bool = switch(False, when=_TABLES)
    relative_attention_implementation: str = choice(
        "auto", "reshape", "compact", when=_TABLES
    )
    # Of self_attention_type=dot_product_relative_bias, T5's (Raffel et al.,
    # 2020): the buckets of distances, and the distance where the last begins.
    relative_attention_num_buckets: int = number(32, 4, 1000, when=_T5)
    relative_attention_max_distance: int = number(128, 2, 10_000, when=_T5)
    # Bahdanau et al. (2015) score additively; Shen et al. (2018) each feature.
    attention_score: str = choice("dot_product", "additive", "feature_wise")
    # The farthest position that self-attention sees; 0: any.
    attention_window: int = number(0, most=1_000_000)
    # N, the heads whose keys and values self-attention sees: its own and N // 2
    # on each side. With attention_window, the window of Yang et al. (2019).
    attention_window_heads: int = number(1, least=1)
    # The lowest layers of the encoder, which alone have the two windows; 0: all
    # layers of both stacks.
    attention_window_layers: int = number(
        0, most=1000, when="attention_window!=0 or attention_window_heads!=1"
    )
    encoder_attention_direction: str = choice(
        "both", "forward", "backward", "split"
    )
    # Yang et al. (2018).
    localness: str = choice("none", "fixed", "layer", "query")
    # D of localness=fixed.
    localness_window: int = number(10, 1, 1_000_000, when="localness=fixed")
    # n: layer normalisation before each sublayer.
    layer_preprocess_sequence: str = choice("none", "n")
    # After each sublayer: dropout, residual, [layer normalisation].
    layer_postprocess_sequence: str = choice("dan", "da")
    norm_epsilon: float = number(
        1e-6, when="layer_preprocess_sequence|layer_postprocess_sequence=n|dan"
    )
    shared_embedding: bool = True  # one table for source and target
    shared_embedding_and_softmax_weights: bool = True
    # A learned vector, added to the source as in tensor2tensor; its row.
    use_target_space_embedding: bool = False
    target_space_id: int = number(
        0, most=TARGET_SPACES - 1, when="use_target_space_embedding=true"
    )

    # The type that training computes with. Weights, softmax, norms and losses
    # are float32 with either; a trained model translates in float32. The
    # gradients of float16 would underflow.
    activation_dtype: str = choice("float32", "bfloat16")

    # Regularisation.
    layer_prepostprocess_dropout: float = number(0.1, below=1)  # P_drop
    attention_dropout: float = number(0.0, below=1)
    relu_dropout: float = number(0.0, below=1)
    label_smoothing: float = number(0.1, below=1)
    # The fraction of input symbols, of source and target, whose embedding is
    # zero in training: token cutoff (Shen et al., 2020).
    symbol_dropout: float = number(0.0, below=1)

    # Augmentation of training pairs, drawn anew in every epoch.
    # The share of merges that are left out, on both sides (Provilkov et al.,
    # 2020).
    bpe_dropout: float = number(0.0, most=1)
    # The share of pairs that are joined with another one, as far as max_length
    # allows (Varis and Bojar, 2021).
    pair_concatenation: float = number(0.0, most=1)

    # Optimisation.
    train_steps: int = number(100_000, least=1)
    optimizer: str = choice("adam")  # of `training.optimizers.OPTIMIZERS`
    optimizer_adam_beta1: float = number(0.9, below=1)
    optimizer_adam_beta2: float = number(0.98, below=1)
    optimizer_adam_epsilon: float = number(1e-9)
    # Some of SCHEDULE_FACTORS, as in constant*rsqrt_decay
    learning_rate_schedule: str = "noam"
    learning_rate: float = number(0.1, when="learning_rate_schedule=legacy")
    learning_rate_constant: float = number(
        1.0, when="learning_rate_schedule=noam|constant"
    )
    learning_rate_warmup_steps: int = number(
        4000,
        1,
        when="learning_rate_schedule=noam|legacy|linear_warmup|rsqrt_decay",
    )
    # The global norm at which an update is clipped; 0: no clipping.
    clip_grad_norm: float = number(0.0)
    # Times the learning rate: the part of each matrix and table that an update
    # takes away; decoupled (Loshchilov and Hutter, 2019).
    weight_decay: float = number(0.0, most=1000)
    # Decay of the weights' moving averages, which evaluations and translations
    # use in place of the weights; 0: no averages. OpenNMT-tf's name.
    moving_average_decay: float = number(0.0, below=1)
    # Batches of an update, for each replica. 0 and 1: one. Steps are updates
    # here; in tensor2tensor they are batches.
    optimizer_multistep_accumulate_steps: int = number(0)

    # Batches. batch_size counts the padded tokens of the longer side, for
    # each replica.
    batch_size: int = number(4096, least=1, most=1_000_000)
    # Longer pairs are not trained on. It is also the size of pos=emb.
    max_length: int = number(256, least=1, most=1_000_000)
    min_length_bucket: int = number(8, least=1, most=1_000_000)
    length_bucket_step: float = number(1.1, above=1)

    # Decoding.
    beam_size: int = number(4, least=1)
    # Exponent of the length penalty ((5 + length) / 6)^alpha. 20,000 ids to
    # the power of 10 are a float32, to the power of 30 they are not.
    alpha: float = number(0.6, most=10)
    # Ids by which an output may exceed its input.
    extra_length: int = number(50, most=10_000)
    average_checkpoints: int = number(0)  # the last N; 0: none
    # Instead: those at the ends of the last N epochs of the data, which
    # are then saved (as Wu et al., 2021, do); 0: none.
    average_epochs: int = number(0)

    def __post_init__(self):
        super().__post_init__()
        self._check(
            "hidden_size",
            self.hidden_size % self.num_heads == 0,
            f"a multiple of num_heads = {self.num_heads}",
        )
        self._check(
            "encoder_attention_direction",
            self.encoder_attention_direction != "split" or self.num_heads > 1,
            "both, forward or backward where num_heads is 1",
        )
        buckets = self.relative_attention_num_buckets
        self._check("relative_attention_num_buckets", buckets % 2 == 0, "even")
        self._check(
            "relative_attention_max_distance",
            self.relative_attention_max_distance > buckets // 2,
            "above the half of relative_attention_num_buckets, which is "
            f"{buckets // 2}",
        )
        self._check(
            "average_epochs",
            not (self.average_epochs and self.average_checkpoints),
            f"0 while average_checkpoints is {self.average_checkpoints}; set "
            "one of the two to 0",
        )
        self._check(
            "learning_rate_schedule",
            set(self.learning_rate_schedule.split("*")) <= {*SCHEDULE_FACTORS},
            f"a product, as in a*b, of some of {', '.join(SCHEDULE_FACTORS)}",
        )
        heads = self.attention_window_heads
        self._check(
            "attention_window_heads",
            heads % 2 == 1 and heads < 2 * self.num_heads,
            f"odd and below {2 * self.num_heads}, twice num_heads",
        )

    def _check(self, name: str, good: bool, expected: str):
        if not good:
            fields.refuse(name, getattr(self, name), expected)

    def replace(self, **changes: Any) -> "HParams":
        """Returns a copy with some fields changed.

        Raises:
            UserError: an unknown name, or a value that its field cannot hold.
        """
        fields.check_names(changes, field_types())
        return dataclasses.replace(self, **changes)

    def has_effect(self, name: str) -> bool:
        """Returns whether a field's condition is met.

        A user's own kind of self-attention may use any field of the model.
        """
        types = {self.self_attention_type, self.decoder_self_attention_type}
        is_own = not types.isdisjoint(OWN_TYPES) and name != "vocab_size"
        return is_own and name in model_fields() or super().has_effect(name)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields in their order."""
        return dataclasses.asdict(self)

    def of_decoder(self) -> "HParams":
        """Returns a copy whose positions of both stacks are the decoder's.

        Example:

        >>> HParams(decoder_pos="none").of_decoder().pos
        'none'
        """
        changes = {}
        if self.decoder_pos != "same":
            changes["pos"] = self.decoder_pos
        if self.decoder_self_attention_type != "same":
            changes["self_attention_type"] = self.decoder_self_attention_type
        if self.decoder_max_relative_position >= 0:
            changes["max_relative_position"] = (
                self.decoder_max_relative_position
            )
        return self.replace(**changes)

    @property
    def is_relative(self) -> bool:
        """Whether self-attention sees relative positions."""
        return self.self_attention_type == "dot_product_relative"

    @property
    def num_averaged(self) -> int:
        """How many checkpoints are averaged after training, at most."""
        return self.average_checkpoints or self.average_epochs

    @property
    def encoder_layers(self) -> int:
        """Blocks of the encoder."""
        return self.num_encoder_layers or self.num_hidden_layers

    @property
    def decoder_layers(self) -> int:
        """Blocks of the decoder."""
        return self.num_decoder_layers or self.num_hidden_layers


def field_types() -> dict[str, type]:
    """Returns the name and type of every field."""
    return fields.kinds(HParams)


def model_fields() -> list[str]:
    """Returns the fields that define the model, in their order."""
    names = list(field_types())
    return names[: names.index("activation_dtype")]


def differences(first: HParams, second: HParams) -> dict[str, tuple[Any, Any]]:
    """Returns `{name: (first's value, second's)}` where the two differ."""
    a, b = first.to_dict(), second.to_dict()
    return {name: (a[name], b[name]) for name in a if a[name] != b[name]}
