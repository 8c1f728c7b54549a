"""Where akeso listens to torch: official global hooks, and a handful of functions wrapped while it watches.

One set of taps serves every :class:`~akeso.torch.listener.Listener` of the process. It is installed with the first
listener and taken out with the last, and then torch is as it was. Nothing a listener raises reaches the training,
except :class:`akeso.errors.Stop`, which is the user's own wish.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as _module
from torch.optim import optimizer as _optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from akeso.torch.keras.taps import KerasTaps, backend
from akeso.torch.listener import Listener


def _called_by_torch() -> bool:
    """Whether the block two frames up belongs to torch itself (its optimizers enter ``no_grad`` too), or to Keras.

    Of what Keras does without gradients only its passes over batches, called ``one_step_on_data``, are evaluations.
    """
    frame = sys._getframe(2)
    name = frame.f_globals.get("__name__", "")
    if name == "torch.utils._contextlib":  # the decorator form: look at what is decorated
        name = getattr(frame.f_locals.get("func"), "__module__", "") or ""
    if str(name).startswith("keras."):
        return frame.f_code.co_name != "one_step_on_data"
    return str(name).startswith("torch.")


def _inside_forward() -> bool:
    """Whether a module is running: what it does without gradients is no evaluation, but a part of its work."""
    frame = sys._getframe(2).f_back
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code is _CALL_CODE:
            return True
        frame = frame.f_back
    return False


#: Has ``home`` in threads in which somebody listens, or did.
_HERE = threading.local()


class Taps:
    """The wrapped functions and global hooks, and who listens to them."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()  # whoever begins or ends to listen does so alone
        self._restore: list[Callable[[], None]] = []
        self._guarded = False
        self._capturing = False
        self._keras = False

    def add(self, listener: Listener) -> None:
        """Let ``listener`` hear from now on."""
        with self._lock:
            if not self._guarded:
                # a forked worker is not the training; asking for the process at every step would cost a system call
                self._guarded = True
                os.register_at_fork(after_in_child=self._forked)
            if not self._listeners:
                self._install()
            listener.home = _HERE.home = threading.get_ident()
            self._listeners = [*self._listeners, listener]
            self.meet_keras()

    def remove(self, listener: Listener) -> None:
        """``listener`` hears nothing any more; the last one to go takes the taps out."""
        with self._lock:
            if listener not in self._listeners:
                return
            self._listeners = [other for other in self._listeners if other is not listener]
            if not self._listeners:
                for restore in reversed(self._restore):
                    restore()
                self._restore.clear()
                self._keras = False

    @property
    def _hearing(self) -> list[Listener]:
        """Those to whom it matters what happens here: the listeners of this thread, of trainings side by side.

        Where nobody has ever listened, it may be anybody's training: a script may train in a thread of its own.
        """
        home = getattr(_HERE, "home", 0)
        return (
            [listener for listener in self._listeners if listener.home == home] if home else self._listeners
        )

    def tell(self, where: str, *args: Any) -> None:
        """Call the method ``where`` of every listener; an error switches that one method off."""
        if self._capturing:
            return
        for listener in self._hearing:
            try:
                getattr(listener, where)(*args)
            except Exception as error:
                setattr(listener, where, _nothing)
                listener.failed(where, error)

    def stepping(self, optimizer: Any, *, closure: bool) -> None:
        """An optimizer is about to step: tell those who want to know."""
        for listener in self._hearing:
            if not listener.calm:
                self.tell("before_step", optimizer, closure)
                return

    def concerns(self, model: torch.nn.Module) -> bool:
        """Whether anybody wants to hear of a model."""
        return any(listener.concerned(model) for listener in self._hearing)

    @property
    def listening(self) -> bool:
        """Whether anybody hears."""
        return bool(self._listeners)

    @property
    def looking(self) -> bool:
        """Whether anybody wants the step under way looked into."""
        return any(listener.looking for listener in self._hearing)

    @property
    def calm(self) -> bool:
        """Whether nobody wants more of the step under way than its loss and its end."""
        return all(listener.calm for listener in self._hearing)

    def meet_keras(self, *, arrived: bool = False) -> None:
        """Listen to Keras too, where it is there (or said to have ``arrived``) and is not listened to yet."""
        if not self._listeners or self._keras:
            return
        found = backend(arrived=arrived)
        self._keras = bool(found)
        if found == "torch":
            KerasTaps(self).install()
        elif found in ("tensorflow", "jax"):
            from akeso.keras.taps import Loops  # with TensorFlow or JAX: where they are there

            Loops(self, found).install()

    def _forked(self) -> None:
        self._listeners = []

    # installation -------------------------------------------------------------------------------------

    def at_removal(self, restore: Callable[[], None]) -> None:
        """Have this called when the taps are taken out."""
        self._restore.append(restore)

    def replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Put ``wrap`` of a function in its place until the taps are taken out."""
        original = getattr(owner, name)
        own = name in vars(owner)
        replacement = wrap(original)
        setattr(owner, name, replacement)

        def restore() -> None:
            if vars(owner).get(name) is not replacement:
                return  # somebody wrapped us in turn; our wrapper only passes on from now on
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        self._restore.append(restore)

    def _install(self) -> None:
        tell = self.tell

        def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            self.stepping(optimizer, closure=_has_closure(args, kwargs))

        def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            tell("after_step", optimizer, (len(args) > 1 or bool(kwargs)) and _has_closure(args, kwargs))

        for handle in (
            _optimizer.register_optimizer_step_pre_hook(before),
            _optimizer.register_optimizer_step_post_hook(after),
        ):
            self._restore.append(handle.remove)

        self.replace(torch.autograd, "backward", self._wrap_backward)
        self.replace(torch.amp.GradScaler, "scale", self._wrap_scale)
        for name, kind in (("clip_grad_norm_", "norm"), ("clip_grad_value_", "value")):
            for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
                self.replace(owner, name, functools.partial(self._wrap_clip, kind))
        for context in (torch.no_grad, torch.inference_mode):
            self.replace(context, "__enter__", functools.partial(self._wrap_context, "gradients_off", False))
            self.replace(context, "__exit__", functools.partial(self._wrap_context, "gradients_on", True))
        self.replace(torch.nn.Module, "train", self._wrap_mode)
        self.replace(DataLoader, "__iter__", self._wrap_loader)
        self.replace(_BaseDataLoaderIter, "__next__", self._wrap_fetch)
        self.replace(torch, "compile", self._wrap_compile)
        self.replace(torch.cuda.CUDAGraph, "capture_begin", self._wrap_capture_begin)
        self.replace(torch.cuda.CUDAGraph, "capture_end", self._wrap_capture_end)

    def _wrap_backward(self, original: Any) -> Any:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._keras and "keras" in sys.modules:
                self.meet_keras()  # it came after us, and its optimizer steps next
            self.tell("before_backward", tensors)
            result = original(tensors, *args, **kwargs)
            for listener in self._hearing:
                if listener.follows:
                    self.tell("after_backward")
                    break
            return result

        return backward

    def _wrap_scale(self, original: Any) -> Any:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            self.tell("loss_scaled", outputs, scaled, scaler)
            return scaled

        return scale

    def _wrap_clip(self, kind: str, original: Any) -> Any:
        @functools.wraps(original)
        def clip(parameters: Any, limit: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(parameters, limit, *args, **kwargs)
            self.tell("clipped", kind, float(limit), result if isinstance(result, torch.Tensor) else None)
            return result

        @functools.wraps(original)
        def clip_by_name(*args: Any, **kwargs: Any) -> Any:
            for name in ("max_norm", "clip_value"):
                if name in kwargs:
                    parameters = args[0] if args else kwargs.pop("parameters")
                    return clip(parameters, kwargs.pop(name), *args[1:], **kwargs)
            if "parameters" in kwargs:
                return clip(kwargs.pop("parameters"), *args, **kwargs)
            return clip(*args, **kwargs)

        return clip_by_name

    def _wrap_context(self, where: str, last: bool, original: Any) -> Any:
        @functools.wraps(original)
        def switch(context: Any, *args: Any) -> Any:
            mine = not _called_by_torch() and not _inside_forward()
            if mine and not last:
                self.tell(where)
            result = original(context, *args)
            if mine and last:
                self.tell(where)
            return result

        return switch

    def _wrap_mode(self, original: Any) -> Any:
        @functools.wraps(original)
        def train(module: torch.nn.Module, mode: bool = True) -> Any:
            result = original(module, mode)
            # train() recurses into children through this very method; only the outermost call is news.
            if sys._getframe(1).f_code is not _TRAIN_CODE:
                self.tell("mode_set", module, mode)
            return result

        return train

    def _wrap_loader(self, original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            self.tell("loader_started", loader)
            return original(loader)

        return __iter__

    def _wrap_fetch(self, original: Any) -> Any:
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            self.tell("fetching")
            return original(iterator)

        return __next__

    def _wrap_compile(self, original: Any) -> Any:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else kwargs.get("model")
            made = original(*args, **kwargs)
            off = made is given if given is not None else kwargs.get("disable")
            if not off:  # what is told not to be compiled is handed back as it is
                self.tell("compiling", given)
            return made

        return compile

    def _wrap_capture_begin(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            # Whatever a listener did on the card would become part of the graph, and reading back would break it.
            self.tell("capturing", True)
            self._capturing = True
            return original(graph, *args, **kwargs)

        return capture_begin

    def _wrap_capture_end(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_end(graph: Any) -> Any:
            try:
                return original(graph)
            finally:
                self._capturing = False
                self.tell("capturing", False)

        return capture_end


_TRAIN_CODE = torch.nn.Module.train.__code__
_CALL_CODE = torch.nn.Module._call_impl.__code__
#: How far up it is looked for a module that is running.
_FRAMES = 40


def _nothing(*_: Any) -> None:
    """Stands in for a listener's method that failed."""


def _has_closure(args: Any, kwargs: Any) -> bool:
    # the optimizer itself comes first among the positional arguments of a step hook
    return (len(args) > 1 and callable(args[1])) or callable(kwargs.get("closure"))


#: The taps of this process.
TAPS = Taps()


class ForwardTap:
    """Global forward hooks that are in place only while somebody wants to see forward passes.

    They are global because hooks on a user's modules would be pickled and copied with them, and would push
    torch's transformer layers off their fast path.
    """

    def __init__(
        self,
        enter: Callable[[torch.nn.Module, Any], None],
        leave: Callable[[torch.nn.Module, Any, Any], None],
    ) -> None:
        self._enter, self._leave = enter, leave
        self._handles: list[Any] = []

    @property
    def on(self) -> bool:
        """Whether the hooks are in place."""
        return bool(self._handles)

    def open(self) -> None:
        """Put the hooks in place."""
        if not self._handles:
            self._handles = [
                _module.register_module_forward_pre_hook(self._enter),
                _module.register_module_forward_hook(self._leave),
            ]

    def close(self) -> None:
        """Take them out again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
