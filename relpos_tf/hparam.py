r"""Typed hyper-parameters, named as in tensor2tensor.

A set of hyper-parameters is a frozen `HParams`. The defaults are those of Shaw
et al. (2018), section 4.1, for the base model with sinusoids; the sets in
`hparams/` derive from one another by `replace`, and `--hparams` changes them:

    relpos-trainer --hparams_set=transformer_relative_small \
        --hparams=max_relative_position=8,batch_size=4096

A field without effect is refused: one that needs `a | b = x | y` has an effect
where a or b is x or y. A run that is resumed may not change the model.
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
    "dot_product_kerple",
    "dot_product_fire",
    "dot_product_transformer_xl",
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
# tables of them; several heads with these; the tables of the encoder and of the
# decoder; and T5's positions.
_SHAW = "self_attention_type|decoder_self_attention_type=dot_product_relative"
_HAS_TABLES = "add_relative_to_keys|add_relative_to_values=true"
_TABLES = f"{_SHAW} and {_HAS_TABLES}"
_SHARED = f"{_TABLES} and num_heads!=1"
_OF_ENCODER = f"self_attention_type=dot_product_relative and {_HAS_TABLES}"
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

    # tools/reference.py reads the comments of the fields; one before a blank
    # line is a heading. Numbers beyond `most` mean nothing: they would run for
    # ever, take all memory or overflow inside, as a float32 does where 20,000
    # ids have an alpha of 30. A run that is resumed may not change the fields
    # up to activation_dtype, see `models.run_dir.check_same_architecture`. The
    # gradients of float16 would underflow.

    # Model

    # Pieces of the vocabulary; the tokenizer's size replaces it at run time.
    vocab_size: int = number(
        32768, 1, 10_000_000, when="a tokenizer of this size (--vocab_size)"
    )
    # Features of each position, d_x; a multiple of num_heads.
    hidden_size: int = number(512, least=1, most=100_000)
    # Inner size of the feed-forward layers.
    filter_size: int = number(1024, least=1, most=1_000_000)
    num_heads: int = number(8, least=1)  # Attention heads.
    # Layers of the encoder, and of the decoder.
    num_hidden_layers: int = number(
        6, least=1, most=1000, when="num_encoder_layers|num_decoder_layers=0"
    )
    # Layers of the encoder; 0: num_hidden_layers.
    num_encoder_layers: int = number(0, most=1000)
    # Layers of the decoder; 0: num_hidden_layers.
    num_decoder_layers: int = number(0, most=1000)
    # Absolute positions: sinusoids (timing), learned (emb) or none.
    pos: str = choice("timing", "emb", "none")
    # Absolute positions of the decoder; same: as pos.
    decoder_pos: str = choice("same", "timing", "emb", "none")
    # SHAPE (Kiyono et al., 2021): in training, sinusoids begin at a random
    # position of at most this number.
    max_position_shift: int = number(
        0, 0, 10_000, when="pos|decoder_pos=timing"
    )
    # Relative positions: none, Shaw's, T5's bias, ALiBi, rotary, KERPLE, FIRE
    # or Transformer-XL's.
    self_attention_type: str = choice(*SELF_ATTENTION_TYPES, of=OWN_TYPES)
    # Relative positions of the decoder; same: as self_attention_type.
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
    # k of the encoder's keys after the query (w2v-BERT 2.0: 64 before, 8
    # after); -1: max_relative_position.
    max_relative_position_right: int = number(-1, -1, 10_000, when=_OF_ENCODER)
    # k in the decoder; -1: max_relative_position.
    decoder_max_relative_position: int = number(
        -1, -1, 10_000, when=_OF_DECODER
    )
    # Whether a vector of the distance is added to keys: a^K, equation 4.
    add_relative_to_keys: bool = switch(True, when=_SHAW)
    # Whether a vector of the distance is added to values: a^V, equation 3.
    add_relative_to_values: bool = switch(True, when=_SHAW)
    # Whether the heads of a layer share the tables of these vectors.
    heads_share_relative_embedding: bool = switch(False, when=_SHARED)
    # How Shaw's attention is computed; the result is the same up to rounding.
    relative_attention_implementation: str = choice(
        "auto", "reshape", "compact", "gather", when=_TABLES
    )
    # Buckets of distances of T5's bias (Raffel et al., 2020); even.
    relative_attention_num_buckets: int = number(32, 4, 1000, when=_T5)
    # Keys from this distance on share a bucket.
    relative_attention_max_distance: int = number(128, 2, 10_000, when=_T5)
    # The farthest position that self-attention sees; 0: any.
    attention_window: int = number(0, most=1_000_000)
    # Only this number of the lowest encoder layers have the window, as in Yang
    # et al. (2019); 0: all layers of both stacks.
    attention_window_layers: int = number(0, most=1000, when="attention_window")
    # Gaussian bias (Yang et al., 2018): its width is fixed, or predicted for
    # each layer or query.
    localness: str = choice("none", "fixed", "layer", "query")
    # The fixed width; sigma is half of it.
    localness_window: int = number(10, 1, 1_000_000, when="localness=fixed")
    # Only this number of the lowest encoder layers have the Gaussian bias; 0:
    # all layers of both stacks.
    localness_layers: int = number(3, most=1000, when="localness!=none")
    # Before each sublayer; n: layer normalisation.
    layer_preprocess_sequence: str = choice("none", "n")
    # After each sublayer: dropout (d), residual connection (a), and layer
    # normalisation (n).
    layer_postprocess_sequence: str = choice("dan", "da")
    # Added to the variance in layer normalisation.
    norm_epsilon: float = number(
        1e-6, when="layer_preprocess_sequence|layer_postprocess_sequence=n|dan"
    )
    # Whether source and target share an embedding table.
    shared_embedding: bool = True
    # Whether the softmax uses the target's embedding table.
    shared_embedding_and_softmax_weights: bool = True
    # Whether a learned vector is added to the source, as in tensor2tensor.
    use_target_space_embedding: bool = False
    # The row of that vector.
    target_space_id: int = number(
        0, most=TARGET_SPACES - 1, when="use_target_space_embedding=true"
    )

    # Precision and regularisation

    # The type that training and its evaluations compute with. Weights, softmax,
    # norms and losses are float32 with either, as all is in other commands.
    activation_dtype: str = choice("float32", "bfloat16")
    # Dropout of embeddings and of each sublayer's output: P_drop.
    layer_prepostprocess_dropout: float = number(0.1, below=1)
    # Dropout of attention weights.
    attention_dropout: float = number(0.0, below=1)
    # Dropout inside the feed-forward layers.
    relu_dropout: float = number(0.0, below=1)
    # The probability that the loss spreads over all pieces.
    label_smoothing: float = number(0.1, below=1)
    # The fraction of input symbols, of source and target, whose embedding is
    # zero in training: token cutoff (Shen et al., 2020).
    symbol_dropout: float = number(0.0, below=1)
    # SimCut (Gao et al., 2022): the weight, 3 in the paper, of the divergence
    # between predictions without and with symbol_dropout; the cross-entropy is
    # of those without. On a CPU, a step takes three times as long.
    consistency_loss: float = number(0.0, when="symbol_dropout!=0.0")

    # Augmentation of training pairs, drawn anew in every epoch

    # The share of BPE merges that are left out, on both sides (Provilkov et
    # al., 2020).
    bpe_dropout: float = number(0.0, most=1)
    # The share of pairs that are joined with a second pair, as far as
    # max_length allows (Varis and Bojar, 2021).
    pair_concatenation: float = number(0.0, most=1)

    # Optimisation

    # Updates of a training; --train_steps overrides it.
    train_steps: int = number(100_000, least=1)
    # A row of `training.optimizers.OPTIMIZERS`.
    optimizer: str = choice("adam")
    # Decay of Adam's mean of gradients.
    optimizer_adam_beta1: float = number(0.9, most=0.999999)
    # Decay of Adam's mean of squared gradients.
    optimizer_adam_beta2: float = number(0.98, most=0.999999)
    # Added to the root of that mean.
    optimizer_adam_epsilon: float = number(1e-9, 1e-30)
    # A product of factors of `training.schedules.FACTORS`, such as
    # constant*rsqrt_decay.
    learning_rate_schedule: str = "noam"
    # tensor2tensor's factor of the rate, for its first two versions.
    learning_rate: float = number(0.1, when="learning_rate_schedule=legacy")
    # A factor of the learning rate.
    learning_rate_constant: float = number(
        1.0, when="learning_rate_schedule=noam|constant"
    )
    # Updates in which the learning rate rises.
    learning_rate_warmup_steps: int = number(
        4000,
        1,
        when="learning_rate_schedule=noam|legacy|linear_warmup|rsqrt_decay",
    )
    # The global norm at which an update is clipped; 0: no clipping.
    clip_grad_norm: float = number(0.0)
    # Times the learning rate, the part of each matrix and table that an update
    # subtracts; decoupled (Loshchilov and Hutter, 2019).
    weight_decay: float = number(0.0, most=1000)
    # Decay of the weights' moving averages, which evaluations and translations
    # use in place of the weights; 0: no averages.
    moving_average_decay: float = number(0.0, below=1)
    # Batches of an update, for each replica; 0 and 1: one. Steps are updates.
    optimizer_multistep_accumulate_steps: int = number(0)

    # Batches

    # Padded tokens of a batch's longer side, for each replica.
    batch_size: int = number(4096, least=1, most=1_000_000)
    # Most ids of a side in training; longer pairs are left out. Also the number
    # of positions of pos=emb.
    max_length: int = number(256, least=1, most=1_000_000)
    # Length of the shortest bucket.
    min_length_bucket: int = number(8, least=1, most=1_000_000)
    # Ratio of a bucket's length to that of the one before; with XLA at least
    # 1.25.
    length_bucket_step: float = number(1.1, above=1)

    # Decoding

    # Hypotheses of the beam search; 1: greedy search.
    beam_size: int = number(4, least=1)
    # Exponent of the length penalty ((5 + length) / 6)^alpha.
    alpha: float = number(0.6, most=10)
    # Ids by which a translation may exceed its source.
    extra_length: int = number(50, most=10_000)
    # Checkpoints averaged at the end of training: the last N; 0: none.
    average_checkpoints: int = number(0)
    # Instead, those at the ends of the last N epochs of the data, which are
    # then saved (Wu et al., 2021); 0: none.
    average_epochs: int = number(0)

    def __post_init__(self):
        super().__post_init__()
        self._check(
            "hidden_size",
            self.hidden_size % self.num_heads == 0,
            f"a multiple of num_heads = {self.num_heads}",
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
        for name in ("average_checkpoints", "average_epochs"):
            self._check(name, getattr(self, name) != 1, "0 or at least 2")
        self._check(
            "learning_rate_schedule",
            set(self.learning_rate_schedule.split("*")) <= {*SCHEDULE_FACTORS},
            f"a product, as in a*b, of some of {', '.join(SCHEDULE_FACTORS)}",
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
        changes: dict[str, Any] = {}
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


def changes(old: HParams, new: HParams) -> dict[str, str]:
    """Returns `{name: "name=old (now new)"}` where the two differ."""
    found = differences(old, new)
    return {name: f"{name}={a} (now {b})" for name, (a, b) in found.items()}
