"""Watching forward passes: which model runs, what its sites give, what the script does with its output."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch._C._functorch import peek_interpreter_stack
from torch.overrides import _get_current_function_mode

from akeso.torch.activations import ACTIVATIONS, POWER_CALLS, Sites, first_tensor, is_leaf
from akeso.torch.aligned import Aligned, aligned
from akeso.torch.axes import HEARD, Axes
from akeso.torch.by_hand import ByHand
from akeso.torch.dependence import Dependence
from akeso.torch.keras.layers import is_layer, units_last
from akeso.torch.losses import (
    DIFFERENCES,
    LOSSES,
    SIGNS,
    TRIPLETS,
    LossCall,
    broadcast_of,
    pair_given,
    recognise,
    spread_inside,
    target_first,
)
from akeso.torch.mode import Caller, Mode
from akeso.torch.naming import Names, called_as, parameters_of, unwrap
from akeso.torch.own_loss import OwnLoss, answer_of, answers_in
from akeso.torch.quiet import quiet
from akeso.torch.recurrence import Recurrence
from akeso.torch.severed import Severed
from akeso.torch.taps import TAPS, ForwardTap

#: Functions after an answer of an evaluated model in which it shows what becomes of it; a loop over single samples, as
#: for a confusion matrix that is filled by hand, may go on for long.
_TELLING = 1000
#: Losses of answers whose dependence on single tokens is asked for.
_ANSWERED = frozenset(
    {"cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"}
)
#: Functions that drop a share of what they are given while they are told that this is training.
_DROPS = frozenset(
    {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"}
)
#: Layers that take what they are fed as quantities.
_WEIGHING = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase)


class Passes:
    """Sees forward passes while it is open; closed, it costs nothing.

    ``reading`` says whether a pass is read for its activations (a sampled training step) or only followed to
    what becomes of its output (an evaluation).
    """

    def __init__(
        self,
        names: Names,
        sites: Sites,
        *,
        adopt: bool,
        on_output: Callable[[nn.Module, torch.Tensor, torch.Tensor | None], None],
        on_loss: Callable[[torch.Tensor], None],
        on_function: Caller,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._names, self._sites, self._adopt = names, sites, adopt
        self._on_output, self._on_function, self._on_error = on_output, on_function, on_error
        self._on_loss = on_loss
        self.own_loss = OwnLoss()
        self._tap = ForwardTap(self.enter, self.leave)
        self._later = ForwardTap(lambda *_: self.settle(), lambda *_: None)
        self._mode: Mode | None = None
        self._thread = threading.get_ident()
        self._stack: list[nn.Module] = []
        self._read: set[int] = set()  # roots read in this step
        self._by_hand = ByHand()
        self._outputs: deque[int] = deque(maxlen=16)  # where the last outputs of models lie
        self.reading = False
        self.broken = False
        self._aside = False  # what is called now is none of the script's
        self.forbidden = False  # compiled code is about: hooks and modes would recompile it
        self.calls: list[LossCall] = []
        self._held: list[
            LossCall
        ] = []  # calls of the step under way, while a teacher answers without gradients
        self._target_first: set[str] = set()  # losses that the script gives the target before the answer
        self.aligned: Aligned | None = None  # what was aligned with labels
        self.signs: tuple[str, torch.Tensor] | None = None  # a loss over pairs and its target
        self.margin: tuple[float, torch.Tensor] | None = None  # of a loss over triplets, and what it gave
        self.views: tuple[torch.Tensor, torch.Tensor] | None = None  # outputs whose directions were compared
        self._compared_inside: tuple[torch.Tensor, torch.Tensor] | None = None  # the same, while a model runs
        self.dependence = Dependence()
        self.axes = Axes()
        self.severed = Severed()
        self.recurrence: Recurrence | None = None  # the first layer in this step that runs along an axis
        self.directions = False  # whether outputs were compared with targets by their direction
        self.model_input: torch.Tensor | None = None
        self._given_to = 0
        self.models: list[nn.Module] = []  # that ran in this step
        self.ours = False  # whether any known module has run in this step, on its own or inside of another
        self.broadcasts: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        self.first_use: dict[str, int] = {}
        self.dropped: dict[
            str, float
        ] = {}  # shares that functions have dropped, by the module that called them
        self.module_calls = 0
        self.function_calls = 0
        self._since = 0  # functions called since the last answer
        self.seconds = 0.0  # that hooks and the mode have taken

    # opening and closing -----------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether passes are seen."""
        return self._tap.on

    def begin(self, *, reading: bool) -> None:
        """See passes from now on."""
        if self.forbidden or self.broken:
            return
        held = [*self._held, *(self.calls if self.reading else ())]
        self.reading = reading
        self._stack.clear()
        self._read.clear()
        self.models.clear()
        self.ours = False
        self.broadcasts.clear()
        self.directions = False
        self.let_go()
        if reading:
            self.calls += held
            self.dependence.begin()
        else:
            self._held = held
        self._tap.open()

    def end(self) -> None:
        """See nothing more."""
        self._tap.close()
        self._pop()
        self._stack.clear()
        if self._mode is not None:
            self._later.open()  # without an optimizer nobody else would come by

    def let_go(self) -> None:
        """Hold no tensor of the script any longer: the backward pass must find the memory that it finds without us."""
        self.calls.clear()
        self._held.clear()
        self.aligned = self.recurrence = self.signs = self.margin = self.views = None
        self._compared_inside = None
        self.own_loss.clear()
        self.dependence.clear()
        self.axes.clear()
        self.severed.clear()
        self._by_hand.clear()
        self.model_input = None

    def fetching(self) -> None:
        """What a data loader does to make a batch is none of our business, and there may be much of it."""
        if self._mode is not None and not self._stack:
            self._pop()

    def look_away(self, begins: bool) -> None:
        """Somebody else's arithmetic begins, or is over: nothing is seen from here to the next pass."""
        self._aside = begins
        if begins and not self._stack:
            self._pop()

    def settle(self) -> None:
        """Take the mode out where that was not possible before: ``backward`` itself runs inside of it."""
        self._later.close()
        if self._mode is not None and not self._tap.on:
            self._pop()

    def _push(self) -> None:
        if self._mode is None:
            self._mode = Mode(self.function)
            self._mode.__enter__()  # type: ignore[no-untyped-call]

    def _pop(self) -> None:
        # Modes are a stack: when the user has put one of his own on top, ours stays, idle, until he is done.
        if self._mode is not None and _get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._mode = None

    # hooks -------------------------------------------------------------------------------------------

    def strange(self) -> bool:
        """Whether this runs beside the training, or on tensors that are none outside of it: of ``vmap``, of a trace."""
        return (
            threading.get_ident() != self._thread
            or torch.compiler.is_compiling()
            or peek_interpreter_stack() is not None
        )

    def enter(self, module: nn.Module, inputs: Any) -> None:
        """A module begins to run."""
        if self.strange():
            return
        self.module_calls += 1
        if not self._stack:
            if self._compares(module):
                return
            began = perf_counter()
            try:
                self._root(module, inputs)
            except Exception as error:
                self._fail("forward", error)
            self.seconds += perf_counter() - began
        elif self.reading and module._parameters and self._strays(module):
            self._names.meet(module)
        self._stack.append(module)

    def _compares(self, module: nn.Module) -> bool:
        """Whether a module that is called by itself is no model: a loss, or what scores answers, kept in one."""
        if isinstance(module, nn.modules.loss._Loss):
            return True
        return not self.reading and next(parameters_of(module), None) is None

    def _strays(self, module: nn.Module) -> bool:
        """Whether a module runs inside a known root and is no part of it."""
        known = self._names.module
        return known(module) is None and known(unwrap(self._stack[0])) is not None

    def _root(self, module: nn.Module, inputs: Any) -> None:
        given = first_tensor(inputs)
        if given is not None and given.is_meta:
            return  # shapes alone are worked out
        if self._names.module(unwrap(module)) is None and (self._adopt or self._names.awaited(module)):
            self._names.add(module, called_as(module))
            if is_layer(module):
                TAPS.meet_keras()
        if self._names.module(unwrap(module)) is None:
            return
        self.models.append(module)
        # One evaluation is many passes: the last one may turn out to be trained on.
        again = not self.reading and self._given_to == id(module)
        if given is not None and (self.model_input is None or again):
            self.model_input, self._given_to = given.detach(), id(module)
        if not self.reading:
            self._pop()  # inside an evaluated model torch must take the paths it takes without us
            return
        if id(module) not in self._read:
            self._sites.begin()
        self._push()

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A module has run."""
        if self.strange() or module not in self._stack[-64:]:
            return
        while self._stack and self._stack.pop() is not module:
            pass
        began = perf_counter()
        try:
            name = self._names.module(unwrap(module))
            if name is None:
                return
            self.ours = True
            tensor = first_tensor(output)
            if tensor is not None and tensor.is_meta:
                return
            if self.reading and is_leaf(module) and self._first_time():
                self.first_use.setdefault(name, len(self.first_use))
                if self.dependence.wanted:
                    self.dependence.looked_up(module, first_tensor(inputs), output)
                with quiet():
                    if tensor is not None and tensor.requires_grad:
                        self._fed(name or type(module).__name__, module, first_tensor(inputs))
                    self._sites.layer(name or type(module).__name__, module, output)
            if self.reading and self._first_time():
                self.axes.ran(module, output)
            if self.reading and self.recurrence is None and self._first_time():
                self.recurrence = Recurrence.of(name, module, first_tensor(inputs))
            if not self._stack:
                self._finish(module, inputs, output)
        except Exception as error:
            self._fail("forward", error)
        self.seconds += perf_counter() - began

    def _fed(self, name: str, module: nn.Module, given: torch.Tensor | None) -> None:
        """Look at what a layer is fed before anything trained: it need not be what the model was given."""
        if given is None or given.requires_grad or not isinstance(module, _WEIGHING):
            return
        whole = self.model_input
        if whole is not None and place_of(given) == place_of(whole) and given.numel() == whole.numel():
            return
        self._sites.fed(name, given)

    def _finish(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._read.add(id(module))
        self._since = 0
        tensor = first_tensor(output)
        if tensor is not None:
            self._outputs.append(place_of(tensor))
            self._push()
            if self.reading:
                self.own_loss.gave(output)
                self.axes.answered(first_tensor(inputs), answers_in(output))
                if tensor.dim() == 0 and self._compared_inside is not None:
                    self.views = self._compared_inside  # a model that gives its loss and nothing else
            with quiet():
                self._on_output(module, answer_of(output, tensor), first_tensor(inputs))
                if not self.reading and not module.training:
                    self.dependence.evaluated(first_tensor(inputs), answer_of(output, tensor))
                loss = None if self.reading else self.own_loss.within(output)
                if loss is not None:
                    self._on_loss(loss)

    def _first_time(self) -> bool:
        """Whether the running root is read for the first time in this step."""
        root = self._stack[0] if self._stack else None
        return root is None or id(root) not in self._read

    def function(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A function has been called."""
        self.function_calls += 1
        if not self.reading:
            self._since += 1
            if self._since > _TELLING:
                return
        if self._aside or peek_interpreter_stack() is not None or _has_no_values(result):
            return
        began = perf_counter()
        try:
            if self.reading:
                self.severed.called(name, args, kwargs, result, inside=bool(self._stack))
            if name in _DROPS and self.reading and self._stack:
                self._drops(args, kwargs)
            if name in LOSSES:
                self._loss(name, args, kwargs, result)
            elif name in ACTIVATIONS and self._stack:
                if self.reading and self._first_time():
                    owner = self._stack[-1]
                    known = self._names.module(unwrap(owner))
                    if known is not None:
                        own = ACTIVATIONS[name] == type(owner).__name__ or not _has_children(owner)
                        self.first_use.setdefault(known, len(self.first_use))
                        last = is_layer(owner) and units_last(owner)
                        with quiet():
                            self._sites.activation(known, own, name, result, units_last=last)
            elif name in POWER_CALLS and self._stack:
                known = self._names.module(unwrap(self._stack[-1]))
                if self.reading and known is not None and self._first_time():
                    with quiet():
                        self._sites.power(known, name, args, result)
            elif name in HEARD and self._stack:
                known = self._names.module(unwrap(self._stack[-1]))
                if self.reading and known is not None and self._first_time():
                    with quiet():
                        self.axes.called(name, known, args, kwargs, result)
            elif name == "cosine_similarity" and self.reading and self._stack:
                given = [one for one in (*args[:2], *kwargs.values()) if isinstance(one, torch.Tensor)]
                if len(given) == 2 and given[0].dim() == 2 and given[0].shape == given[1].shape:
                    self._compared_inside = (given[0].detach(), given[1].detach())
            elif self.reading and not self._stack:
                self._written_out(name, args, kwargs, result)
            if not self.reading and not self._stack:
                with quiet():
                    self._on_function(name, args, kwargs, result)
        except Exception as error:
            self._fail("function", error)
        self.seconds += perf_counter() - began

    def _drops(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A share of what flows through a known module is dropped by a function that it calls."""
        owner = self._names.module(unwrap(self._stack[-1]))
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        share = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        if owner is not None and training and isinstance(share, int | float):
            self.dropped[owner] = max(float(share), self.dropped.get(owner, 0.0))

    def _written_out(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A loss may be written out as arithmetic on a prediction and a target."""
        if name == "cosine_similarity":
            self._direction([one for one in (*args[:2], *kwargs.values()) if isinstance(one, torch.Tensor)])
        one, other = (*args, None, None)[:2]
        compared = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        if name in DIFFERENCES and compared and one.requires_grad != other.requires_grad:
            prediction, target = (one, other) if one.requires_grad else (other, one)
            self._spread(prediction, target)
            self._by_hand.difference(prediction, target, result)
            return
        call = self._by_hand.called(name, args, kwargs, result)
        if call is not None:
            self.calls.append(call)

    def _direction(self, given: list[torch.Tensor]) -> None:
        """Outputs and data are compared by their direction; what a model gave without gradients is no data."""
        data = [one for one in given if not one.requires_grad]
        said = len(given) == 2 and all(place_of(one) in self._outputs for one in data)
        if said and given[0].dim() == 2 and given[0].shape == given[1].shape:
            self.views = (given[0].detach(), given[1].detach())
        if len(given) == 2 and len(data) == 1:
            self.directions |= not said

    @property
    def directions_alone(self) -> bool:
        """Whether this step compared outputs with targets by their direction, and by no difference."""
        return self.directions and not self.calls and not self._by_hand.seen

    def _spread(self, prediction: torch.Tensor, target: torch.Tensor) -> None:
        result = broadcast_of(prediction, target)
        if result is not None:
            self.broadcasts.append((tuple(prediction.shape), tuple(target.shape), result))

    def _loss(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if name == "ctc_loss":
            self.aligned = aligned(args, kwargs) if self.reading else None
        elif name in TRIPLETS and kwargs.get("reduction", "mean") == "mean" and result.dim() == 0:
            self.margin = (float(kwargs.get("margin", 1.0)), result.detach())
        elif name in SIGNS:
            signs = args[SIGNS[name]] if len(args) > SIGNS[name] else kwargs.get("target")
            self.signs = (name, signs.detach()) if isinstance(signs, torch.Tensor) else None
        elif self.dependence.wanted and self.reading and name in _ANSWERED:
            self.dependence.answered(*pair_given(args, kwargs), int(kwargs.get("ignore_index", -100)))
        turned = target_first(name, args, kwargs)
        if turned:
            self._target_first.add(name)
        # Where no gradient tells, as in evaluations, it is the order seen in training.
        call = recognise(
            name, args, kwargs, result, turned=name in self._target_first if turned is None else turned
        )
        if call is None:
            return
        if self.reading and name not in ("cross_entropy", "nll_loss"):
            self._spread(call.prediction, call.target)
            given = self.model_input
            samples = len(given) if given is not None and given.dim() else 0
            if spread_inside(call.prediction, call.target, samples):
                shape = tuple(call.prediction.shape)
                self.broadcasts.append((shape, tuple(call.target.shape), shape))
        self.calls.append(call)

    def compared(self, call: LossCall | None) -> None:
        """Somebody else has told of a loss."""
        if call is None:
            return
        self.calls.append(call)
        if not self.reading and not self._stack:
            self._on_function("", (), {}, None)

    def _fail(self, where: str, error: Exception) -> None:
        self.broken = True
        self.end()
        self._on_error(where, error)


def _has_no_values(result: Any) -> bool:
    """Whether only shapes are worked out, as Keras does where a model is built while it runs."""
    return isinstance(result, torch.Tensor) and result.is_meta


def place_of(tensor: torch.Tensor) -> int:
    """Where the values of a tensor lie; 0 for those that have no place, as sparse ones and what ``vmap`` hands out."""
    try:
        return tensor.data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _has_children(module: nn.Module) -> bool:
    return is_layer(module) or any(True for _ in module.children())
