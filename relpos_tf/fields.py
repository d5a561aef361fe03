"""Dataclass fields that know their limits, and their text `name=value,...`.

`HParams` and `DecodeHParams` are `Record`s. A field says beside its default
what it may hold, and on which condition it has an effect. `Record.override`
reads `--hparams` and `--decode_hparams`:

>>> @dataclasses.dataclass(frozen=True)
... class Settings(Record):
...     pos: str = choice("timing", "emb", "none")
...     dropout: float = number(0.1, below=1)
...     max_length: int = number(256, when="pos=emb")
>>> Settings().override("dropout=0.3,pos=emb,max_length=9")
Settings(pos='emb', dropout=0.3, max_length=9)
>>> Settings(dropout=1.5)
Traceback (most recent call last):
    ...
relpos_tf.errors.UserError: `dropout` must be below 1. Received: dropout=1.5.
>>> Settings().override("max_length=9")
Traceback (most recent call last):
    ...
relpos_tf.errors.UserError: `max_length` has no effect: it needs pos=emb. ...
"""

import dataclasses
import functools
import math
import numbers
import re
import types
import typing
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors

LARGEST_INT = 2**31 - 1  # of TensorFlow's int32
_LARGEST_FLOAT = 1e30  # a float32 holds 3e38
_TERM = re.compile(r"([\w|]+)(?:(!?=)(.*))?")  # of a condition
_BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes"), True),
    **dict.fromkeys(("false", "0", "no"), False),
}


@dataclasses.dataclass(frozen=True)
class Number:
    """The limits of an int or a float; None: no such limit."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def expected(self, value: float) -> str:
        """Returns what `value` should be; empty if it is within the limits."""
        if not -math.inf < value < math.inf:
            return "a finite number"
        if self.least is not None and value < self.least:
            return f"at least {self.least}"
        if self.above is not None and value <= self.above:
            return f"above {self.above}"
        if self.below is not None and value >= self.below:
            return f"below {self.below}"
        if self.most is not None and value > self.most:
            return f"at most {self.most}"
        return ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The values of a str field; `more` are registered."""

    choices: tuple[str, ...]
    more: Collection[str] | None = None

    def expected(self, value: str) -> str:
        """Returns what `value` should be; empty if it is a choice."""
        known = dict.fromkeys([*self.choices, *(self.more or ())])
        if value in known:
            return ""
        listed = f"one of {', '.join(known)}"
        if self.more is None:
            return listed
        return (
            f"{listed}; `{value}` is not registered: name its folder with "
            "--usr_dir, or in Python import the module that registers it"
        )


@dataclasses.dataclass(frozen=True)
class Record:
    """The base of a frozen dataclass of such fields.

    Raises:
        UserError: a value is outside what its field can hold.
    """

    def __post_init__(self):
        check(self)

    def has_effect(self, name: str) -> bool:
        """Returns whether the condition of a field is met."""
        when = condition(type(self), name)
        return not when or is_met(when, functools.partial(getattr, self))

    def override(self, text: str) -> Any:
        """Applies a comma-separated list such as `"alpha=1,pos=none"`.

        Raises:
            UserError: the text cannot be read, or a field that it names has no
                effect.
        """
        changes = parse(text, type(self))
        changed = dataclasses.replace(self, **changes)
        check_effect(changes, [changed])
        return changed


def number(
    default: float | None,
    least: float | None = 0,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    when: str = "",
    help: str = "",
) -> Any:
    """Returns a field for an int or a float.

    Args:
        default: int, float, or None. Its type decides the largest value where
            neither `most` nor `below` is given: what int32 and float32 hold.
        least: int or float, the least value. Default: 0.
        most: int or float, the largest value.
        above: int or float that the value must exceed.
        below: int or float that must exceed the value.
        when: str. The condition, see `is_met`.
        help: str. What it means, where the field is also a flag.
    """
    if most is None and below is None:
        most = _LARGEST_FLOAT if isinstance(default, float) else LARGEST_INT
    return _field(default, Number(least, most, above, below), when, help)


def switch(default: bool | None, when: str = "", help: str = "") -> Any:
    """Returns a field for a bool, or None; see `number`."""
    return _field(default, None, when, help)


def choice(
    default: str,
    *others: str,
    of: Collection[str] | None = None,
    when: str = "",
    help: str = "",
) -> Any:
    """Returns a field for one of several str, of which the first is usual.

    Args:
        default: str.
        *others: str, the other choices.
        of: further choices, to which modules of users add theirs.
        when: str. The condition, see `is_met`.
        help: str. What it means, where the field is also a flag.
    """
    return _field(default, Choice((default, *others), of), when, help)


def like(cls: type, name: str, when: str = "") -> Any:
    """Returns a field that may be None, with the limits of a second field.

    Args:
        cls: dataclass.
        name: str. Its field.
        when: str. The condition, see `is_met`.
    """
    return _field(None, limits(cls, name), when)


def _field(default, limits, when, help=""):
    metadata = {"limits": limits, "when": when, "help": help}
    return dataclasses.field(default=default, metadata=metadata)


def limits(cls: Any, name: str) -> Number | Choice | None:
    """Returns the limits of a field, or None if it has none."""
    return cls.__dataclass_fields__[name].metadata.get("limits")


def condition(cls: Any, name: str) -> str:
    """Returns the condition on which a field has an effect; "": always."""
    return cls.__dataclass_fields__[name].metadata.get("when", "")


def is_met(condition: str, value_of: Callable[[str], Any]) -> bool:
    """Evaluates a condition: terms, with `and` and then `or` between them.

    A term is `name=value`, `name!=value` or, for any value that is not empty,
    `name`. Several names or values have `|` between them: one suffices. A value
    `a*b` is both `a` and `b`. Other words are for people, and never met.

    Args:
        condition: str.
        value_of: function from a name to its value.

    Example:
    >>> is_met("a=1 and b|c=x|y", {"a": 1, "b": "z", "c": "x*w"}.get)
    True
    """
    return any(
        all(_holds(term, value_of) for term in terms.split(" and "))
        for terms in condition.split(" or ")
    )


def _holds(term, value_of):
    if (match := _TERM.fullmatch(term)) is None:
        return False
    names, sign, text = match.groups("")
    values = [value_of(name) for name in names.split("|")]
    if not sign:
        return any(values)
    known = set(text.split("|"))
    found = [not known.isdisjoint(str(v).lower().split("*")) for v in values]
    return any(found) if sign == "=" else not all(found)


def check_effect(names: Iterable[str], records: Sequence[Record]) -> None:
    """Refuses a field that has an effect in none of some records.

    Raises:
        UserError: naming the field, what it needs, and the fields that have an
            effect in its place.
    """
    for name in names:
        if not any(record.has_effect(name) for record in records):
            first, cls = records[0], type(records[0])
            when = condition(cls, name)
            keys = _names_in(when)
            now = [f"{k}={getattr(first, k)}".lower() for k in sorted(keys)]
            others = [
                other
                for other in filter(first.has_effect, kinds(cls))
                if keys & _names_in(condition(cls, other))
            ]
            raise errors.UserError(
                f"`{name}` has no effect: it needs {when}. Received: "
                f"{', '.join(now or [name])}. With an effect: "
                f"{', '.join(others) or 'none like it'}."
            )


def _names_in(condition):
    """Returns the names in a condition."""
    groups = re.findall(r"[\w|]+(?=!?=)", condition)
    return {name for group in groups for name in group.split("|")}


def check(instance: Any) -> None:
    """Holds the fields of a dataclass to their types and limits.

    The int of a float field becomes a float.

    Raises:
        UserError: naming the field, its limits and its value.
    """
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        bounds = limits(type(instance), field.name)
        check_value(field.name, value, field.type, bounds)
        if value is not None and _kind(field.type) is float:
            object.__setattr__(instance, field.name, float(value))


def check_value(
    name: str, value: Any, kind: Any, bounds: Number | Choice | None = None
) -> None:
    """Holds a value to its type and limits.

    Args:
        name: str. What the message calls it.
        value: The value.
        kind: A type such as `str`, `int | None`, `dict[str, int]` or
            `list[str]`. A bool is not an int; an int is a float.
        bounds: Its limits, if it has any.

    Raises:
        UserError: naming what the value must be, and the value.
    """
    if not _has_type(value, kind):
        raise errors.UserError(
            f"`{name}` must be of type {getattr(kind, '__name__', kind)}. "
            f"Received: {value!r:.40}."
        )
    expected = bounds.expected(value) if bounds and value is not None else ""
    if expected:
        refuse(name, value, expected)


def refuse(name: str, value: Any, expected: str) -> None:
    """Raises the UserError about a field's value.

    Args:
        name: str. The field.
        value: its value.
        expected: str. What the value must be.
    """
    raise errors.UserError(
        f"`{name}` must be {expected}. Received: {name}={value!r}."
    )


def kinds(cls: type) -> dict[str, type]:
    """Returns the name and type of every field; of `int | None`, int."""
    return {field.name: _kind(field.type) for field in dataclasses.fields(cls)}


def parse(text: str, cls: type) -> dict[str, Any]:
    """Reads `name=value,name=value` as values of a dataclass' fields.

    Args:
        text: str. Spaces around names and values are dropped.
        cls: dataclass with fields of type int, float, bool or str.

    Returns:
        dict of values by name, in the order of the text. The values have the
        fields' types; their limits are not checked.

    Raises:
        UserError: an item without `=`, an unknown name, a name with two values,
            or a value that is not of the field's type.
    """
    known = kinds(cls)
    values: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or "=" in value:
            raise errors.UserError(
                "Expected name=value,name=value, with commas between them. "
                f"Received: {item!r}."
            )
        check_names([name], known)
        kind = known[name]
        try:
            parsed = _BOOLEANS[value.lower()] if kind is bool else kind(value)
        except (KeyError, ValueError) as error:
            raise errors.UserError(
                f"`{name}` must be of type {kind.__name__}. Received: "
                f"{value!r}."
            ) from error
        if values.setdefault(name, parsed) not in [parsed]:  # NaN is itself
            raise errors.UserError(f"Expected `{name}` once. Received: {text}.")
    return values


def check_names(
    names: Iterable[str], known: Collection[str], what: str = "hparams"
) -> None:
    """Raises UserError if a name is not known, with the nearest that is."""
    if unknown := sorted(set(names) - set(known)):
        told = [name[:40] for name in unknown[:5]]  # of any number, any length
        hint = errors.did_you_mean(told[0], known)
        raise errors.UserError(
            f"Unknown {what} {told}.{hint} Known: {sorted(known)}."
        )


def _kind(annotation):
    """Returns the type of an annotation without its None."""
    if isinstance(annotation, types.UnionType):
        return typing.get_args(annotation)[0]
    return typing.get_origin(annotation) or annotation


def _has_type(value, kind):
    """Returns whether a value and its elements are of a type."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_has_type(value, option) for option in arguments)
    kind = typing.get_origin(kind) or kind
    kinds = {int: numbers.Integral, float: numbers.Real}.get(kind, kind)
    is_bool = isinstance(value, bool)
    if not isinstance(value, kinds) or is_bool != (kind is bool):
        return False
    if not arguments:
        return True
    if kind is dict:
        value, arguments = value.values(), arguments[1:]
    if not typing.get_args(arguments[0]):
        value = {type(element): element for element in value}.values()
    return all(_has_type(element, arguments[0]) for element in value)
