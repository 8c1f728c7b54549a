"""One family of edits, as the moments of a training at which it may act."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn
from torch.optim import Optimizer

from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.places import Place

if TYPE_CHECKING:
    from akeso.script.prescribed.case import Case
    from akeso.script.prescribed.operation import Operation

#: Takes over one call of a torch function: the function, its arguments, its keyword arguments.
Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Part:
    """Applies the edits of one family. Every method is a moment; the ones not needed do nothing."""

    #: Remedies this part applies, each with the reason to give where nothing was found to apply it to.
    remedies: ClassVar[Mapping[str, str]] = {}

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        self.operation = operation
        self.ledger = ledger

    def handlers(self) -> dict[str, Handler]:
        """Functions of torch, by name, whose calls this part takes over."""
        return {}

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Entered while the operation is."""
        yield

    def on_model(self, model: nn.Module, case: Case) -> None:
        """A model is about to make its first forward pass, with the example in ``case``."""

    def on_input(self, model: nn.Module, args: tuple[Any, ...], *, training: bool) -> tuple[Any, ...]:
        """A model is called; returns the positional arguments it shall get."""
        return args

    def on_output(self, model: nn.Module, output: Any, *, training: bool) -> Any:
        """A model was called; returns what the script shall get."""
        return output

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer was made."""

    def on_loader(self, loader: Any, arguments: dict[str, Any], place: Place | None) -> None:
        """A loader is about to be made at a place of the script with these arguments, which may be changed."""

    def before_step(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step."""

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""


def trainable(module: nn.Module) -> bool:
    """Whether a module has parameters of its own or below."""
    return next(module.parameters(), None) is not None
