"""Applies a prescription to a running script from outside, at the places where it calls torch.

While an :class:`Operation` is entered, calls of modules, optimizers, loaders and functions go through it;
when it is left, torch is as it was.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from akeso.script.prescribed.case import ATTRIBUTE, Case, case_of, detached
from akeso.script.prescribed.functions import ACTIVATIONS, LOSSES, all_finite, tensors
from akeso.script.prescribed.ledger import Ended, Ledger
from akeso.script.prescribed.names import InReach
from akeso.script.prescribed.part import Handler, Part, trainable
from akeso.script.prescribed.parts import PARTS
from akeso.script.prescribed.parts.losses import Losses
from akeso.script.prescribed.patching import patched, wrap_constructors
from akeso.script.prescribed.places import Place, called_directly, caller, objects_above
from akeso.script.prescribed.survey import OUTSIDE, Key, Survey
from akeso.script.prescribed.unseen import unseen
from akeso.torch.surgery.modes import Mode

_PATIENCE = 3  # optimizer steps after which an edit that has had no effect is given up
_GRACE = 50  # steps a truncated run may go on where no beginning of a training step is seen


class Operation:
    """A prescription in force. ``max_steps`` ends the script when it begins a step beyond so many.

    ``hidden`` are the hidden activations called outside any model, ``training_loaders`` the numbers of the loaders
    that training takes its batches from, both known from an earlier run.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        max_steps: int | None = None,
        hidden: Iterable[tuple[str, Place]] = (),
        training_loaders: Iterable[int] = (),
    ) -> None:
        self.ledger = ledger
        self.max_steps = max_steps
        self.hidden = frozenset(hidden)
        self.training_loaders = frozenset(training_loaders)
        self.steps = 0
        self.truncated = False
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.names = InReach()  # where the last optimizer was made
        self.current_loader: Any = None  # the last one that gave a batch
        self.survey = Survey()
        self.on_training: list[Callable[[], None]] = []  # called when a training forward pass begins
        self.at_limit: Callable[[], None] | None = None  # raises, or sets another limit
        self.on_step: list[Callable[[], None]] = []
        self.on_first_step: list[Callable[[], None]] = []
        self._stack = ExitStack()
        self._quiet = False
        self._in_loss = False
        self._mode = Mode(self.seen)
        self._calls: list[nn.Module] = []  # module calls in progress
        self._paths: dict[int, str] = {}
        self._parts: list[Part] = [part(self, ledger) for part in PARTS]
        self._losses = next(part for part in self._parts if isinstance(part, Losses))
        self._handlers: dict[str, Handler] = {}
        for part in self._parts:
            for name, handler in part.handlers().items():
                self._handlers[name] = _chained(handler, self._handlers.get(name))

    # functions --------------------------------------------------------------------------------------------

    def seen(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of a torch function while the mode is on."""
        name = getattr(func, "__name__", "")
        if self._quiet:
            return func(*args, **kwargs)
        handler = self._handlers.get(name)
        if handler is not None:
            return handler(func, args, kwargs)
        if self.survey.closed or not self.models:
            return func(*args, **kwargs)
        inputs = tensors(args, kwargs)
        key = called = None
        directly = False
        if name in ACTIVATIONS and inputs:
            module = self._calls[-1] if self._calls else None
            made = module.__dict__.get("_akeso_made") if module is not None else None
            directly = made is not None and bool(module.__dict__.get("_akeso_made_directly"))
            called = caller(3)
            key = Key(
                self._paths.get(id(module), "?") if module is not None else OUTSIDE, name, made or called
            )
        result = func(*args, **kwargs)
        outputs = tensors(result if isinstance(result, tuple) else (result,))
        try:
            self.survey.follow(name, inputs, outputs, key, called, directly=directly)
        except Exception:  # the survey is a convenience; the script's run is not to suffer from it
            self.close_survey([])
        return result

    def _loss(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A loss function was called. One that calls itself again, as dispatching does, is left alone."""
        if self._quiet or self._in_loss or torch.compiler.is_compiling():
            return original(*args, **kwargs)
        self._in_loss = True
        try:
            if not self.survey.closed and torch.is_grad_enabled():
                self.close_survey(tensors(args, kwargs)[:1])
            return self._losses.call(original, args, kwargs)
        finally:
            self._in_loss = False

    def close_survey(self, outputs: list[torch.Tensor]) -> None:
        """The first training step has reached its loss: nothing is left to follow."""
        self.survey.finish(outputs)
        if not self._handlers:
            self._mode.__exit__()

    @property
    def inside_model(self) -> bool:
        """Whether a model's forward pass is going on."""
        return bool(self._calls)

    def example(self, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a model's first call."""
        return case_of(model).example

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """Step and mean loss of every evaluation, in the measure of the script's own loss."""
        self._losses.finish()
        return self._losses.evaluations

    # modules ----------------------------------------------------------------------------------------------

    def _call(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self._quiet or torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        if self._calls:
            self._calls.append(module)
            try:
                return original(module, *args, **kwargs)
            finally:
                self._calls.pop()
        if not trainable(module) or isinstance(module, torch.jit.ScriptModule):
            return original(module, *args, **kwargs)
        return self._root_call(original, module, args, kwargs)

    def _root_call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        case = case_of(module)
        training = self._is_training(module, case)
        if training:
            for listener in self.on_training:
                listener()
            if self.max_steps is not None and self.steps >= self.max_steps:
                self._truncate()
        if not any(known is module for known in self.models):
            self.models.append(module)
            self.ledger.place("model-call", caller(2))
            case.holder = _holder(module)
            self._paths.update((id(part), name) for name, part in module.named_modules())
        self._calls.append(module)
        try:
            for part in self._parts:
                args = part.on_input(module, args, training=training)
            if not case.treated:
                case.example = (detached(args), detached(kwargs))
                self.treat(module, case)
            output = original(module, *args, **kwargs)
            for part in self._parts:
                output = part.on_output(module, output, training=training)
            if self.steps == 0 and not all_finite(output):
                finite = all_finite((args, kwargs))
                self.ledger.facts["broken_from_the_start"] = "model" if finite else "inputs"
            return output
        finally:
            self._calls.pop()

    def _is_training(self, module: nn.Module, case: Case) -> bool:
        """Whether a call belongs to training: gradients are on, and the mode is the one trained in."""
        if not torch.is_grad_enabled():
            return False
        case.seen_training = case.seen_training or (module.training and self.steps > 0)
        return module.training or not case.seen_training

    def treat(self, module: nn.Module, case: Case) -> None:
        """Make the edits of the model itself."""
        case.treated = True
        with self.quietly(), unseen():
            for part in self._parts:
                part.on_model(module, case)

    def _truncate(self) -> None:
        self.truncated = True
        if self.at_limit is None:
            raise Ended("the number of steps that was asked for is reached")
        self.at_limit()
        self.truncated = False

    def _loaded(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """A new object of a treated class that is given treated weights has to be treated first."""
        case = case_of(module)
        if self.steps == 0:
            case.loaded = True
            for part in module.modules():
                part.__dict__["_akeso_loaded"] = True
        elif not case.treated:
            twin = next((m for m in self.models if type(m) is type(module) and case_of(m).treated), None)
            if twin is not None and self.ledger.prescription:
                case.example = case_of(twin).example
                self.treat(module, case)
        return original(module, *args, **kwargs)

    def _made_activation(self, module: nn.Module) -> None:
        if type(module).__name__ in ACTIVATIONS.values():
            module.__dict__["_akeso_made"] = caller(2)
            module.__dict__["_akeso_made_directly"] = called_directly(2)

    # optimizers and loaders -------------------------------------------------------------------------------

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """While this is entered, what is called is akeso's own doing and is left alone."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _made_optimizer(self, optimizer: Optimizer) -> None:
        # What only hands on to another optimizer, as Accelerate's, has no parameter groups of its own.
        if self._quiet or "param_groups" not in vars(optimizer):
            return
        self.ledger.place("optimizer", caller(2))
        self.names.look()
        self.optimizers.append(optimizer)
        for part in self._parts:
            part.on_optimizer(optimizer)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.steps < _PATIENCE:
            self.ledger.place("step", caller(2))
        if not self.survey.closed and not _has_closure(args, kwargs):
            self.close_survey([])
        if self.steps == 0:
            for listener in self.on_first_step:
                listener()
        for part in self._parts:
            part.before_step(optimizer)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        if not self.survey.closed:
            self.close_survey([])
        for part in self._parts:
            part.after_step(optimizer)
        if self.max_steps is not None and self.steps >= self.max_steps + _GRACE:
            self._truncate()
        if self.steps == _PATIENCE:
            self.settle(early=True)
        for listener in self.on_step:
            listener()

    def settle(self, *, early: bool = False) -> None:
        """Refuse the edits that should have taken effect by now."""
        reasons = {remedy: why for part in self._parts for remedy, why in part.remedies.items()}
        self.ledger.settle(reasons, early=early)

    def _make_loader(self, original: Callable[..., None], loader: Any, *args: Any, **kwargs: Any) -> None:
        place = caller(2)
        self.ledger.place("loader", place)
        bound = inspect.signature(original).bind(loader, *args, **kwargs)
        arguments = {**bound.arguments}
        arguments.update(arguments.pop("kwargs", {}))
        arguments.pop("self", None)
        for part in self._parts:
            part.on_loader(loader, arguments, place)
        original(loader, **arguments)

    def _iterate(self, original: Callable[..., Any], loader: Any) -> Any:
        self.current_loader = loader
        iterator = original(loader)
        if isinstance(iterator, _BaseDataLoaderIter):
            iterator.__dict__["_akeso_loader"] = loader
        return iterator

    def _next_batch(self, original: Callable[..., Any], iterator: Any) -> Any:
        self.current_loader = iterator.__dict__.get("_akeso_loader", self.current_loader)
        return original(iterator)

    # in force ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Operation:
        stack = self._stack
        stack.enter_context(patched(nn.Module, "__call__", self._call))
        stack.enter_context(patched(nn.Module, "load_state_dict", self._loaded))
        stack.enter_context(patched(DataLoader, "__init__", self._make_loader))
        stack.enter_context(patched(DataLoader, "__iter__", self._iterate))
        stack.enter_context(patched(_BaseDataLoaderIter, "__next__", self._next_batch))
        stack.enter_context(wrap_constructors(Optimizer, self._made_optimizer))
        for name in set(ACTIVATIONS.values()) & set(vars(nn)):
            stack.enter_context(wrap_constructors(getattr(nn, name), self._made_activation))
        # The untreated run as well: what is compiled is not seen, and cannot be followed.
        stack.enter_context(patched(torch, "compile", _uncompiled))
        stack.enter_context(patched(nn.Module, "compile", lambda *_, **__: None))
        for part in self._parts:
            stack.enter_context(part.in_force())
        stack.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        stack.callback(register_optimizer_step_post_hook(self._after_step).remove)
        for name in LOSSES:
            stack.enter_context(patched(F, name, self._loss))
        if self.ledger.one("fix-broadcast") is not None:
            for owner, names in (
                (torch.Tensor, ("__sub__", "__rsub__", "sub", "subtract")),
                (torch, ("sub", "subtract")),
            ):
                for name in names:
                    stack.enter_context(patched(owner, name, self._losses.subtract))
        if self.ledger.prescription:
            self.survey.finish([])  # the untreated run has one already
        if self._handlers or not self.survey.closed:
            self._mode.__enter__()
        stack.callback(self._mode.__exit__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        for model in self.models:
            model.__dict__.pop(ATTRIBUTE, None)


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an optimizer is given the function that makes its training step, which is yet to come."""
    return any(callable(one) and not isinstance(one, Optimizer) for one in (*args, *kwargs.values()))


def _holder(module: nn.Module) -> nn.Module | None:
    """The outermost module that a model is part of where one of its methods calls it, as training steps do."""
    above = [one for one in objects_above(2) if isinstance(one, nn.Module) and one is not module]
    holding = [one for one in above if any(part is module for part in one.modules())]
    return holding[-1] if holding else None


def _chained(outer: Handler, inner: Handler | None) -> Handler:
    """Let two parts take over the same function: what the outer one calls goes through the inner one."""
    if inner is None:
        return outer
    held = inner

    def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        @functools.wraps(func)
        def through(*inner_args: Any, **inner_kwargs: Any) -> Any:
            return held(func, inner_args, inner_kwargs)

        return outer(through, args, kwargs)

    return call


def _uncompiled(original: Callable[..., Any], model: Any = None, **options: Any) -> Any:
    """Treated models run uncompiled: a compiled one would keep the functions it was traced with."""
    if isinstance(model, nn.Module):
        model.__dict__["_orig_mod"] = model  # where scripts look for what they had compiled
    return model if model is not None else (lambda later: later)
