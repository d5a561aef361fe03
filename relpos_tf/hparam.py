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

_CHOICES = {
    "pos": ("timing", "emb", "none"),
    "self_attention_type": (
        "dot_product",
        "dot_product_relative",
        "dot_product_alibi",
        "dot_product_rotary",
    ),
    "attention_score": ("dot_product", "additive"),
    "encoder_attention_direction": ("both", "forward", "backward", "split"),
    "localness": ("none", "fixed", "layer", "query"),
    "layer_preprocess_sequence": ("none", "n"),
    "layer_postprocess_sequence": ("da", "dan"),
    "relative_attention_implementation": ("auto", "reshape", "compact"),
    "optimizer": ("adam",),
    "activation_dtype": ("float32", "bfloat16"),
}
# What else to say to a choice that others have.
_WHY_NOT = {
    ("activation_dtype", "float16"): (
        " The gradients of float16 underflow unless the loss is scaled, which "
        "is not done here; bfloat16 is as fast and has the range of float32."
    ),
}
# What a learning_rate_schedule may be the product of; see `schedules`.
SCHEDULE_FACTORS = (
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_hidden_size",
)
# Rows of tensor2tensor's table of target spaces.
TARGET_SPACES = 32
_AT_LEAST_ONE = (
    "vocab_size",
    "hidden_size",
    "filter_size",
    "num_heads",
    "num_hidden_layers",
    "max_length",
    "batch_size",
    "min_length_bucket",
    "learning_rate_warmup_steps",
    "beam_size",
    "train_steps",
    "localness_window",
)
# More means nothing: it runs for ever, takes all memory or overflows inside.
MOST = {
    "vocab_size": 10_000_000,
    "hidden_size": 100_000,
    "filter_size": 1_000_000,
    "num_hidden_layers": 1000,
    "num_encoder_layers": 1000,
    "num_decoder_layers": 1000,
    "max_relative_position": 10_000,
    "attention_window": 1_000_000,
    "localness_window": 1_000_000,
    "batch_size": 1_000_000,
    "max_length": 1_000_000,
    "min_length_bucket": 1_000_000,
    # 20,000 ids to this power are a float32, and to three times it are none.
    "alpha": 10,
    "extra_length": 10_000,
}
LARGEST_INT = 2**31 - 1  # what TensorFlow's int32 holds
# Of all other fields. A float32 holds 3e38.
_MOST_OF = {int: LARGEST_INT, float: 1e30}
_FRACTIONS = (
    "layer_prepostprocess_dropout",
    "attention_dropout",
    "relu_dropout",
    "label_smoothing",
    "optimizer_adam_beta1",
    "optimizer_adam_beta2",
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

    # Model.
    vocab_size: int = 32768  # the tokenizer's size replaces it at run time
    hidden_size: int = 512  # d_x
    filter_size: int = 1024  # inner size of the feed-forward layers
    num_heads: int = 8
    num_hidden_layers: int = 6  # in the encoder, and again in the decoder
    num_encoder_layers: int = 0  # 0: num_hidden_layers
    num_decoder_layers: int = 0  # likewise
    pos: str = "timing"  # absolute positions: timing | emb | none
    # dot_product, or dot_product_ with relative, alibi or rotary
    self_attention_type: str = "dot_product"
    max_relative_position: int = 16  # k, where distances are clipped
    add_relative_to_keys: bool = True  # a^K, equation 4
    add_relative_to_values: bool = True  # a^V, equation 3
    heads_share_relative_embedding: bool = False
    relative_attention_implementation: str = "auto"
    attention_score: str = "dot_product"  # or additive, Bahdanau's
    attention_window: int = 0  # distance that self-attention sees; 0: any
    encoder_attention_direction: str = "both"  # forward | backward | split
    localness: str = "none"  # fixed | layer | query: Yang et al. (2018)
    localness_window: int = 10  # D of localness=fixed
    layer_preprocess_sequence: str = "none"  # n: norm before each sublayer
    layer_postprocess_sequence: str = "dan"  # dropout, add, [norm]
    norm_epsilon: float = 1e-6
    shared_embedding: bool = True  # one table for source and target
    shared_embedding_and_softmax_weights: bool = True
    use_target_space_embedding: bool = False  # added to the source, as in T2T
    target_space_id: int = 0  # which of its rows

    # What training computes with; weights, softmax, norms and losses are
    # float32 all the same, and a trained model translates in float32.
    activation_dtype: str = "float32"

    # Regularisation.
    layer_prepostprocess_dropout: float = 0.1  # P_drop of the paper
    attention_dropout: float = 0.0
    relu_dropout: float = 0.0
    label_smoothing: float = 0.1

    # Optimisation.
    train_steps: int = 100_000
    optimizer: str = "adam"
    optimizer_adam_beta1: float = 0.9
    optimizer_adam_beta2: float = 0.98
    optimizer_adam_epsilon: float = 1e-9
    # noam | legacy | factors joined by *, as in constant*rsqrt_decay
    learning_rate_schedule: str = "noam"
    learning_rate: float = 0.1  # of the schedule legacy alone
    learning_rate_constant: float = 1.0  # of all others
    learning_rate_warmup_steps: int = 4000
    clip_grad_norm: float = 0.0  # global norm of an update; 0: no clipping
    # Batches of an update, for each replica. 0 and 1: one. Steps are updates
    # here; in tensor2tensor they are batches.
    optimizer_multistep_accumulate_steps: int = 0

    # Batches.
    batch_size: int = 4096  # padded tokens of the longer side, per replica
    max_length: int = 256  # longer pairs are not trained on; size of pos=emb
    min_length_bucket: int = 8
    length_bucket_step: float = 1.1

    # Decoding.
    beam_size: int = 4
    alpha: float = 0.6  # of the length penalty ((5 + length) / 6)^alpha
    extra_length: int = 50  # an output may exceed its input by this many ids
    average_checkpoints: int = 0  # how many of the last ones; 0: none

    def __post_init__(self):
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise errors.UserError(
                    f"`{name}` must be one of {', '.join(choices)}. "
                    f"Received: {getattr(self, name)!r}."
                    + _WHY_NOT.get((name, getattr(self, name)), "")
                )
        for name in _AT_LEAST_ONE:
            self._check(name, getattr(self, name) >= 1, "at least 1")
        for name in _FRACTIONS:
            self._check(
                name, 0.0 <= getattr(self, name) < 1.0, "in the range [0, 1)"
            )
        for name in (
            "max_relative_position",
            "alpha",
            "clip_grad_norm",
            "extra_length",
            "average_checkpoints",
            "num_encoder_layers",
            "num_decoder_layers",
            "attention_window",
            "optimizer_multistep_accumulate_steps",
        ):
            self._check(name, getattr(self, name) >= 0, "at least 0")
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
        self._check(
            "target_space_id",
            0 <= self.target_space_id < TARGET_SPACES,
            f"in the range [0, {TARGET_SPACES})",
        )
        schedule = self.learning_rate_schedule
        self._check(
            "learning_rate_schedule",
            schedule in ("noam", "legacy")
            or set(schedule.split("*")) <= set(SCHEDULE_FACTORS),
            "noam, legacy, or a product of some of "
            f"{'*'.join(SCHEDULE_FACTORS)}",
        )
        self._check(
            "length_bucket_step", self.length_bucket_step > 1.0, "above 1"
        )
        self._check_sizes()

    def _check_sizes(self):
        """Refuses numbers that are too large to mean anything."""
        for name, kind in field_types().items():
            value = getattr(self, name)
            if kind is float:
                self._check(name, math.isfinite(value), "a finite number")
                self._check(name, value >= 0, "at least 0")
            if kind in _MOST_OF:
                most = MOST.get(name, _MOST_OF[kind])
                self._check(name, value <= most, f"at most {most}")

    def _check(self, name: str, good: bool, expected: str):
        if not good:
            raise errors.UserError(
                f"`{name}` must be {expected}. "
                f"Received: {name}={getattr(self, name)}."
            )

    def replace(self, **changes: Any) -> "HParams":
        """Returns a copy with some fields changed; refuses unknown names."""
        known = field_types()
        unknown = sorted(set(changes) - set(known))
        if unknown:
            hints = [errors.did_you_mean(name, known) for name in unknown]
            raise errors.UserError(
                f"Unknown hparams {unknown}.{''.join(hints)} "
                f"Known: {sorted(known)}."
            )
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
        changes = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = item.partition("=")
            if not equals:
                raise errors.UserError(
                    "hparams must read `name=value,name=value`. "
                    f"Received: {item!r}."
                )
            changes[name.strip()] = value.strip()
        types = field_types()
        parsed = {
            name: _parse(name, value, types[name]) if name in types else value
            for name, value in changes.items()
        }
        return self.replace(**parsed)

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
    return {field.name: field.type for field in dataclasses.fields(HParams)}


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


def _parse(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() in ("true", "1", "yes"):
            return True
        if text.lower() in ("false", "0", "no"):
            return False
    else:
        try:
            return kind(text)
        except ValueError:
            pass  # the message below serves both
    raise errors.UserError(
        f"`{name}` must be of type {kind.__name__}. Received: {text!r}."
    )
