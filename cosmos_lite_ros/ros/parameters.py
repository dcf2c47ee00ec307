# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""ROS parameters declared from a frozen settings dataclass, strictly.

A settings dataclass is plain Python (no ROS), so that it may live beside what it configures::

    @dataclass(frozen=True)
    class GripperSettings:
        close_above: float = field(
            default=0.6,
            metadata={"description": "closes above this", "unit": "0..1", "range": (0.0, 1.0)},
        )

    @dataclass(frozen=True)
    class Settings:
        mode: Literal["sync", "async"] = field(default="sync", metadata={"description": "..."})
        gripper: GripperSettings = field(default_factory=GripperSettings)  # gripper.close_above

Metadata keys, all optional: ``description``, ``unit``, ``range`` (inclusive low and high;
infinities allowed), ``choices``, ``length`` (allowed lengths of a tuple), ``read_only`` (default
True: the value is fixed when the process starts; False: it may be set while the node runs). A
``Literal`` annotation gives its choices by itself. Types: bool, int, float, str, ``Literal`` of
strings, ``tuple[T, ...]`` of float, int or str, and nested dataclasses. ``__post_init__`` may
refuse combinations by raising ``BadInputError``.

Every mistake is a ``ParameterError``: an unknown name, a wrong type, a value out of range. It is
raised while the node is constructed, so ``run_node`` prints one line and the process ends with exit
code 2 before anything runs. A whole number given for a float parameter is accepted.
"""

from __future__ import annotations

import array
import dataclasses
import difflib
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    ParameterType,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from cosmos_lite_ros.errors import BadInputError

Value = bool | int | float | str | tuple[float, ...] | tuple[int, ...] | tuple[str, ...]
S = TypeVar("S")

_METADATA = {"description", "unit", "range", "choices", "length", "read_only"}
_SCALARS: Mapping[type, int] = {
    bool: ParameterType.PARAMETER_BOOL,
    int: ParameterType.PARAMETER_INTEGER,
    float: ParameterType.PARAMETER_DOUBLE,
    str: ParameterType.PARAMETER_STRING,
}
_ARRAYS: Mapping[type, int] = {
    int: ParameterType.PARAMETER_INTEGER_ARRAY,
    float: ParameterType.PARAMETER_DOUBLE_ARRAY,
    str: ParameterType.PARAMETER_STRING_ARRAY,
}


class ParameterError(BadInputError):
    """A ROS parameter that does not exist or cannot have that value."""


@dataclass(frozen=True)
class Spec:
    """One parameter: its ROS name, type (``item`` of a tuple when ``many``) and limits."""

    name: str
    item: type
    many: bool
    default: Value
    description: str
    low: float
    high: float
    choices: tuple[str, ...]
    lengths: tuple[int, ...]
    read_only: bool

    @property
    def type_words(self) -> str:
        """The type as a user would say it."""
        word = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        return f"a list of {self.item.__name__}" if self.many else word[self.item]

    def check(self, value: object) -> Value:
        """The value in the declared Python type.

        Raises:
            ParameterError: wrong type, out of range, or not one of the choices.
        """
        if self.many:
            if value is None:  # what an empty list in YAML becomes
                value = ()
            if isinstance(value, str | bytes) or not isinstance(value, Iterable):
                raise self._refuse(value, self.type_words)
            items = [self._one(item) for item in value]
            if self.lengths and len(items) not in self.lengths:
                wanted = " or ".join(str(n) for n in self.lengths)
                raise self._refuse(value, f"{wanted} values")
            return typing.cast(Value, tuple(items))
        return typing.cast(Value, self._one(value))

    def _one(self, value: object) -> Any:
        if self.item is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not self.item:
            hint = " (put it in quotes)" if self.item is str else ""
            raise self._refuse(value, self.type_words + hint)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # Not "value < low or value > high": that would let NaN through.
            if not self.low <= value <= self.high:
                raise self._refuse(value, self._range_words())
        elif self.choices and value not in self.choices:
            raise self._refuse(value, "one of " + ", ".join(self.choices))
        return value

    def _range_words(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low:g}" if math.isfinite(self.low) else "a number"
        if math.isinf(self.low):
            return f"at most {self.high:g}"
        return f"{self.low:g} to {self.high:g}"

    def _refuse(self, value: object, expected: str) -> ParameterError:
        shown = list(value) if isinstance(value, array.array | tuple) else value
        return ParameterError(f"parameter {self.name} is {shown!r}, expected {expected}")

    def descriptor(self) -> ParameterDescriptor:
        """What ``ros2 param describe`` shows."""
        found = ParameterDescriptor(
            name=self.name,
            type=_ARRAYS[self.item] if self.many else _SCALARS[self.item],
            description=self.description,
            read_only=self.read_only,
            # rclpy takes an empty list for one of bytes; ``check`` guards the type instead.
            dynamic_typing=self.many,
        )
        if self.choices:
            found.additional_constraints = "one of " + ", ".join(self.choices)
        bounded = math.isfinite(self.low) or math.isfinite(self.high)
        if not self.many and self.item is float and bounded:
            found.floating_point_range = [
                FloatingPointRange(from_value=self.low, to_value=self.high, step=0.0)
            ]
        elif not self.many and self.item is int and bounded:
            low = int(self.low) if math.isfinite(self.low) else -(1 << 63)
            high = int(self.high) if math.isfinite(self.high) else (1 << 63) - 1
            found.integer_range = [IntegerRange(from_value=low, to_value=high, step=0)]
        return found

    def ros_value(self, value: Value) -> Any:
        """The value as rclpy wants it."""
        return list(typing.cast(Any, value)) if self.many else value


def specs(kind: type, prefix: str = "") -> dict[str, Spec]:
    """Every parameter of a settings dataclass by its dotted name, in order of declaration.

    Raises:
        TypeError: a field that cannot be a parameter (a mistake in the program).
    """
    hints = typing.get_type_hints(kind)
    found: dict[str, Spec] = {}
    for field in dataclasses.fields(kind):
        name, hint = prefix + field.name, hints[field.name]
        if dataclasses.is_dataclass(hint):
            # Its defaults may differ from those of its type, so they are read off the object.
            default = _default(field)
            for key, spec in specs(typing.cast(type, hint), f"{name}.").items():
                value: Any = default
                for part in key.removeprefix(f"{name}.").split("."):
                    value = getattr(value, part)
                found[key] = dataclasses.replace(spec, default=value)
            continue
        found[name] = _spec(name, hint, field)
    return found


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"setting {field.name} has no default value")


def _spec(name: str, hint: Any, field: dataclasses.Field[Any]) -> Spec:
    metadata = dict(field.metadata)
    if unknown := set(metadata) - _METADATA:
        raise TypeError(f"setting {name} has unknown metadata {sorted(unknown)}")
    item, many, choices = hint, False, tuple(metadata.get("choices", ()))
    if typing.get_origin(hint) is typing.Literal:
        item, choices = str, choices or typing.get_args(hint)
    elif typing.get_origin(hint) is tuple:
        arguments = typing.get_args(hint)
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            raise TypeError(f"setting {name} is a {hint}, expected tuple[type, ...]")
        item, many = arguments[0], True
    if item not in (_ARRAYS if many else _SCALARS):
        raise TypeError(f"setting {name} has type {hint}, which no parameter can have")
    low, high = metadata.get("range", (-math.inf, math.inf))
    description, unit = str(metadata.get("description", "")), str(metadata.get("unit", ""))
    length = metadata.get("length", ())
    spec = Spec(
        name=name,
        item=item,
        many=many,
        default=_default(field),
        description=f"{description} [{unit}]" if unit else description,
        low=float(low),
        high=float(high),
        choices=tuple(str(choice) for choice in choices),
        lengths=(length,) if isinstance(length, int) else tuple(length),
        read_only=bool(metadata.get("read_only", True)),
    )
    spec.check(spec.default)
    return spec


def build(kind: type[S], values: Mapping[str, Value]) -> S:
    """The settings dataclass from values by dotted name; names that are absent keep their default.

    Raises:
        BadInputError: what ``__post_init__`` of the dataclass refuses.
    """
    defaults = {name: spec.default for name, spec in specs(kind).items()}
    return _build(kind, {**defaults, **values}, "")


def _build(kind: type[S], values: Mapping[str, Value], prefix: str) -> S:
    hints = typing.get_type_hints(kind)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, kind)):
        name, hint = prefix + field.name, hints[field.name]
        if dataclasses.is_dataclass(hint):
            arguments[field.name] = _build(typing.cast(type[Any], hint), values, f"{name}.")
        else:
            arguments[field.name] = values[name]
    return kind(**arguments)


def unknown_names(names: Iterable[str], known: Iterable[str]) -> str:
    """One line naming what is unknown and the nearest known name; empty when all are known."""
    listed = sorted(known)
    lines = []
    for name in sorted(set(names) - set(listed)):
        near = difflib.get_close_matches(name, listed, n=1, cutoff=0.5)
        lines.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return ", ".join(lines)


def flatten(settings: object, prefix: str = "") -> dict[str, Value]:
    """Values of a settings dataclass by dotted name."""
    found: dict[str, Value] = {}
    for field in dataclasses.fields(typing.cast(Any, settings)):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found.update(flatten(value, f"{prefix}{field.name}."))
        else:
            found[prefix + field.name] = value
    return found


class Parameters(Generic[S]):
    """The declared parameters of one node; ``settings`` is always the valid current value.

    Call it once in the node's constructor, after every other parameter has been declared.

    Raises:
        ParameterError: an unknown, mistyped or out-of-range parameter, before the node runs.
    """

    def __init__(
        self, node: Node, kind: type[S], *, on_change: Callable[[S], None] | None = None
    ) -> None:
        self._kind = kind
        self._specs = specs(kind)
        self._on_change = on_change
        overrides = given_parameters(node)
        declared = {name for name in overrides if node.has_parameter(name)}
        problem = unknown_names(overrides, {*declared, *self._specs})
        if problem:
            raise ParameterError(
                f"unknown parameter {problem} of node {node.get_fully_qualified_name()}: remove it "
                "or correct its name"
            )
        self._values = {
            name: spec.check(overrides[name]) if name in overrides else spec.default
            for name, spec in self._specs.items()
        }
        self.settings: S = build(kind, self._values)
        node.declare_parameters(
            "",
            [
                (name, spec.ros_value(self._values[name]), spec.descriptor())
                for name, spec in self._specs.items()
            ],
            ignore_override=True,
        )
        node.add_on_set_parameters_callback(self._set)

    def _set(self, changes: list[Parameter]) -> SetParametersResult:
        """Accept or refuse a change while the node runs, all or nothing."""
        ours = [change for change in changes if change.name in self._specs]
        if not ours:
            return SetParametersResult(successful=True)
        try:
            values = {
                **self._values,
                **{c.name: self._specs[c.name].check(c.value) for c in ours},
            }
            settings = build(self._kind, values)
        except BadInputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        self._values, self.settings = values, settings
        if self._on_change is not None:
            self._on_change(settings)
        return SetParametersResult(successful=True)


def given_parameters(node: Node) -> dict[str, object]:
    """What the user gave by ``-p`` or a YAML file for this node, by name.

    rclpy ignores what is not declared and has no public list of it; the overrides that it keeps
    have had this name in every distribution since Foxy.
    """
    return {name: parameter.value for name, parameter in node._parameter_overrides.items()}
