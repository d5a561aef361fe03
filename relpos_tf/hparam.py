"""Typed hyper-parameters, named as in tensor2tensor.

A set of hyper-parameters is a frozen `HParams`. The values below are those of
Shaw et al. (2018), section 4.1, for the base model with sinusoids; the sets in
`hparams/` derive from one another by `replace`.
"""

import dataclasses
import json
import math
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.fields import choice
from relpos_tf.fields import number

# What a learning_rate_schedule may be the product of; see `schedules`.
SCHEDULE_FACTORS = (
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_hidden_size",
)
# Rows of tensor2tensor's table of target spaces.
TARGET_SPACES = 32
_NO_FLOAT16 = (
    "The gradients of float16 underflow unless the loss is scaled, which is "
    "not done here; bfloat16 is as fast and has the range of float32."
)


@dataclasses.dataclass(frozen=True)
class HParams:
    """Every choice that defines a model, its training and its decoding.

    Raises:
        UserError: a value is outside what its field can hold.

    Example:

    >>> HParams().replace(hidden_size=256).hidden_size
    256
    >>> HParams().override("hidden_size=64,pos=none").pos
    'none'
    """

    # Model. Numbers beyond `most` mean nothing: they would run for ever, take
    # all memory or overflow inside.
    # The tokenizer's size replaces vocab_size at run time.
    vocab_size: int = number(32768, least=1, most=10_000_000)
    hidden_size: int = number(512, least=1, most=100_000)  # d_x
    # Inner size of the feed-forward layers.
    filter_size: int = number(1024, least=1, most=1_000_000)
    num_heads: int = number(8, least=1)
    # Of the encoder, and of the decoder.
    num_hidden_layers: int = number(6, least=1, most=1000)
    num_encoder_layers: int = number(0, most=1000)  # 0: num_hidden_layers
    num_decoder_layers: int = number(0, most=1000)  # 0: num_hidden_layers
    pos: str = choice("timing", "emb", "none")  # absolute positions
    self_attention_type: str = choice(
        "dot_product",
        "dot_product_relative",
        "dot_product_alibi",
        "dot_product_rotary",
    )
    # k, the distance at which relative positions are clipped.
    max_relative_position: int = number(16, most=10_000)
    add_relative_to_keys: bool = True  # a^K, equation 4
    add_relative_to_values: bool = True  # a^V, equation 3
    heads_share_relative_embedding: bool = False
    relative_attention_implementation: str = choice(
        "auto", "reshape", "compact"
    )
    # Bahdanau et al. (2015) score additively.
    attention_score: str = choice("dot_product", "additive")
    # The farthest position that self-attention sees; 0: any.
    attention_window: int = number(0, most=1_000_000)
    encoder_attention_direction: str = choice(
        "both", "forward", "backward", "split"
    )
    # Yang et al. (2018).
    localness: str = choice("none", "fixed", "layer", "query")
    # D of localness=fixed.
    localness_window: int = number(10, least=1, most=1_000_000)
    # n: layer normalisation before each sublayer.
    layer_preprocess_sequence: str = choice("none", "n")
    # After each sublayer: dropout, residual, [layer normalisation].
    layer_postprocess_sequence: str = choice("dan", "da")
    norm_epsilon: float = number(1e-6)
    shared_embedding: bool = True  # one table for source and target
    shared_embedding_and_softmax_weights: bool = True
    # A learned vector, added to the source as in tensor2tensor; its row.
    use_target_space_embedding: bool = False
    target_space_id: int = number(0, most=TARGET_SPACES - 1)

    # The type that training computes with. Weights, softmax, norms and losses
    # are float32 with either; a trained model translates in float32.
    activation_dtype: str = choice("float32", "bfloat16", float16=_NO_FLOAT16)

    # Regularisation.
    layer_prepostprocess_dropout: float = number(0.1, below=1)  # P_drop
    attention_dropout: float = number(0.0, below=1)
    relu_dropout: float = number(0.0, below=1)
    label_smoothing: float = number(0.1, below=1)

    # Augmentation of training pairs, drawn anew in every epoch.
    # The share of merges that are left out, on both sides (Provilkov et al.,
    # 2020).
    bpe_dropout: float = number(0.0, most=1)
    # The share of pairs that are joined with another one, as far as max_length
    # allows (Varis and Bojar, 2021).
    pair_concatenation: float = number(0.0, most=1)

    # Optimisation.
    train_steps: int = number(100_000, least=1)
    optimizer: str = choice("adam")
    optimizer_adam_beta1: float = number(0.9, below=1)
    optimizer_adam_beta2: float = number(0.98, below=1)
    optimizer_adam_epsilon: float = number(1e-9)
    # noam | legacy | factors joined by *, as in constant*rsqrt_decay
    learning_rate_schedule: str = "noam"
    learning_rate: float = number(0.1)  # of the schedule legacy alone
    learning_rate_constant: float = number(1.0)  # of all other schedules
    learning_rate_warmup_steps: int = number(4000, least=1)
    # The global norm at which an update is clipped; 0: no clipping.
    clip_grad_norm: float = number(0.0)
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
    average_checkpoints: int = number(0)  # the last so many; 0: none

    def __post_init__(self):
        fields.check(self)
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
        schedule = self.learning_rate_schedule
        self._check(
            "learning_rate_schedule",
            schedule in ("noam", "legacy")
            or set(schedule.split("*")) <= set(SCHEDULE_FACTORS),
            "noam, legacy, or a product of some of "
            f"{'*'.join(SCHEDULE_FACTORS)}",
        )

    def _check(self, name: str, good: bool, expected: str):
        if not good:
            fields.refuse(name, getattr(self, name), expected)

    def replace(self, **changes: Any) -> "HParams":
        """Returns a copy with some fields changed.

        Raises:
            UserError: an unknown name, or a value of another type. A float
                may be given as an int.
        """
        known = field_types()
        fields.check_names(changes, known)
        for name, value in changes.items():
            if known[name] is float and type(value) is int:
                changes[name] = _to_float(value)
            elif type(value) is not known[name]:
                raise errors.UserError(
                    f"`{name}` must be of type {known[name].__name__}. "
                    f"Received: {value!r}."
                )
        return dataclasses.replace(self, **changes)

    def override(self, text: str) -> "HParams":
        """Applies a comma-separated list such as `"alpha=1,pos=none"`."""
        return self.replace(**fields.parse(text, HParams))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields in their order."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Returns the fields as a JSON object, one a line, in their order."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "HParams":
        """Reads what `to_json` wrote; fields that are missing keep defaults."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise errors.UserError(f"hparams are not JSON: {error}.") from error
        if not isinstance(values, dict):
            raise errors.UserError(
                f"hparams must be a JSON object. Received: {text[:40]!r}."
            )
        return cls().replace(**values)

    @property
    def is_relative(self) -> bool:
        """Whether self-attention sees relative positions."""
        return self.self_attention_type == "dot_product_relative"

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


def differences(first: HParams, second: HParams) -> dict[str, tuple[Any, Any]]:
    """Returns `{name: (first's value, second's)}` where the two differ."""
    values = zip(
        first.to_dict().items(), second.to_dict().values(), strict=True
    )
    return {name: (a, b) for (name, a), b in values if a != b}


def _to_float(value: int) -> float:
    """Returns a whole number as the nearest float, which may be infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
