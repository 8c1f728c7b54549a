"""A dispatch mode that writes down every operation of a step with digests of what went in and came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from akeso.replay import digests
from akeso.replay.trace.lines import own_line
from akeso.replay.trace.modules import address_of
from akeso.replay.trace.operation import Operation

# Reading one number out of a tensor computes nothing; programs that only log more would seem to differ.
_READS = {"aten._local_scalar_dense.default", "aten.equal.default", "aten.is_same_size.default"}
_UNWRITTEN = ("aten.empty", "aten.new_empty", "aten.resize")
_OVERWRITING = ("copy_", "fill_", "zero_", "bernoulli_", "normal_", "uniform_", "random_", "exponential_")
_LIMIT = 200_000


class Tracer(TorchDispatchMode):
    """Records operations while it is entered. Values and random numbers are not changed by it.

    Args:
        phase: Gives the phase of the step at any moment.
        module: Gives the path of the module whose forward pass runs.
        names: Gives names of known tensors by the address of their storage.
    """

    def __init__(
        self,
        phase: Callable[[], str] = lambda: "forward",
        module: Callable[[], str] = lambda: "",
        names: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._phase, self._module, self._names = phase, module, names
        self.operations: list[Operation] = []
        self.truncated = False
        self._born: dict[int, int] = {}
        self._by_sequence: dict[int, str] = {}
        self._blank: dict[int, int] = {}
        self._known: Mapping[int, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if name in _READS or name.startswith("profiler."):
            return func(*args, **kwargs)
        if len(self.operations) >= _LIMIT:
            self.truncated = True
            return func(*args, **kwargs)
        number = len(self.operations)
        given, _ = tree_flatten((args, kwargs))
        tensors = [value for value in given if _plain(value)]
        written = [tensor for tensor in _written(func, args, kwargs) if _plain(tensor)]
        overwritten = {id(tensor) for tensor in written} if _overwrites(name) else set()
        sources = self._describe(tensors)
        inputs = tuple("" if id(tensor) in overwritten else self._digest(tensor) for tensor in tensors)
        mutates = tuple(self._born.get(address_of(tensor), -1) for tensor in written)
        module, phase = self._where()
        result = func(*args, **kwargs)
        made = [value for value in tree_flatten(result)[0] if _plain(value)]
        if not made:
            made = written  # foreach operators change their arguments and return nothing
        before = {address_of(tensor) for tensor in tensors}
        for tensor in made:
            address = address_of(tensor)
            if address not in before:
                self._born[address] = number
                self._blank.pop(address, None)
                if name.startswith(_UNWRITTEN):
                    self._blank[address] = _bytes(tensor)
        for tensor in written:
            self._fill(tensor)
        self.operations.append(
            Operation(
                name=name,
                phase=phase,
                module=module,
                line=own_line(),
                constants=", ".join(
                    _constant(value) for value in given if not isinstance(value, torch.Tensor)
                ),
                shapes=tuple(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors),
                inputs=inputs,
                sources=sources,
                outputs=tuple(self._digest(tensor) for tensor in made),
                random=torch.Tag.nondeterministic_seeded in func.tags,
                mutates=mutates,
            )
        )
        return result

    def _describe(self, tensors: list[torch.Tensor]) -> tuple[str, ...]:
        found = []
        for tensor in tensors:
            address = address_of(tensor)
            if address in self._born:
                found.append("")
                continue
            if address not in self._known:
                self._known = self._names()
            found.append(self._known.get(address, "outside"))
        return tuple(found)

    def _digest(self, tensor: torch.Tensor) -> str:
        # Memory that nobody has written to holds whatever was there before: it is not part of the
        # computation.
        return "" if address_of(tensor) in self._blank else str(digests.of_tensors([tensor]))

    def _fill(self, tensor: torch.Tensor) -> None:
        address = address_of(tensor)
        if address in self._blank:
            self._blank[address] -= tensor.numel() * tensor.element_size()
            if self._blank[address] <= 0:
                del self._blank[address]

    def _where(self) -> tuple[str, str]:
        """Module and phase: in the backward pass, those of the forward operation it belongs to."""
        node = torch._C._current_autograd_node() if hasattr(torch._C, "_current_autograd_node") else None
        if node is not None:
            return self._by_sequence.get(node._sequence_nr(), ""), "backward"
        module = self._module()
        if module and hasattr(torch._C._autograd, "_get_sequence_nr"):
            # The node of this operation, if it has one, was just made: its number is the last one given out.
            self._by_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, module)
        return module, self._phase()


def _plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter)


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def _overwrites(name: str) -> bool:
    operator, _, overload = name.removeprefix("aten.").partition(".")
    return operator in _OVERWRITING or overload.endswith("out")


def _written(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments an operator writes to, by its schema."""
    found: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found.extend(value if isinstance(value, list | tuple) else [value])
    return found


def _constant(value: object) -> str:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, torch.Generator):
        return "generator"
    return (
        str(value)
        if isinstance(value, bool | int | str | torch.dtype | torch.device | None)
        else type(value).__name__
    )
