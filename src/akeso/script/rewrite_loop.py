"""Changes to a script's loop: optimizer, schedule, gradients, batches, what is trained."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from typing import Any

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, name_of
from akeso.script.rewrite_classes import in_module_list, method, own_name
from akeso.script.rewrite_model import trained
from akeso.script.rewrite_order import given_parameters, made_later
from akeso.script.rewrite_trainers import (
    clipping_by_a_trainer,
    schedule_by_epoch,
    without_schedule,
)

#: Weight decay that optimizers have when none is given, where that is any.
_USUAL_DECAY = {"AdamW": 1e-2}
#: Schedules under which a training does not begin at the optimizer's own rate.
_MOVING = {"CyclicLR", "OneCycleLR", "LambdaLR", "LinearLR", "ConstantLR", "SequentialLR", "ChainedScheduler"}


def _optimizers(draft: Draft, clues: Clues) -> Iterator[ast.Call]:
    """The calls that make optimizers; where a line makes other things too, the one that looks like it.

    Of several on one line that could have made it, as in the branches of a choice, none: which one did is not known.
    """
    known = [str(one.get("name", "")) for one in clues.facts.get("optimizers") or ()]
    for place in clues.places.get("optimizer", ()):
        calls = [call for call in draft.calls(None, int(place["line"])) if call.args or call.keywords]
        calls = [call for call in calls if name_of(call)[:1].isupper()] or [
            call
            for call in calls
            if given_parameters(draft, call) is not None  # getattr(torch.optim, name)(…)
        ]
        named = [call for call in calls if name_of(call) in known]
        if len(named) > 1:
            made = sum(known.count(name) for name in {name_of(call) for call in named})
            yield from named if len(named) <= made else []
            continue
        named = named or [call for call in calls if "optim" in draft.text(call.func).lower()]
        if named or len(calls) == 1:
            yield (named or calls)[0]


def _steps(draft: Draft, clues: Clues) -> Iterator[tuple[ast.stmt, str]]:
    """The statements that step, and the name of the optimizer."""
    for place in clues.places.get("step", ()):
        for call in draft.calls({"step"}, int(place["line"])):
            statement = draft.statement(call)
            if statement is not None and isinstance(call.func, ast.Attribute):
                given = call.args[0] if call.args and not _is_function(draft, call.args[0]) else None
                yield statement, draft.text(given or call.func.value)  # scaler.step(optimizer), step(closure)


def _is_function(draft: Draft, node: ast.AST) -> bool:
    """Whether a node is a function of the script, or a lambda."""
    if isinstance(node, ast.Lambda):
        return True
    made = (one.name for one in ast.walk(draft.tree) if isinstance(one, ast.FunctionDef))
    return isinstance(node, ast.Name) and node.id in made


def _number(value: float) -> str:
    return f"{value:.6g}"


def set_learning_rate(draft: Draft, edit: Edit, clues: Clues, prescription: Prescription) -> str | None:
    """Another rate where the optimizer is made."""
    done = False
    for call in _optimizers(draft, clues):
        if _unpacked(call, "lr"):
            continue
        if made := _of_its_own(call, "lr", clues):
            factor = float(edit.values.get("factor") or float(edit.values["to"]) / (made["lr"] or math.inf))
            done |= factor > 0 and _in_groups(draft, call, f'group["lr"] *= {_number(factor)}')
            continue
        if "to" in edit.values:
            value = _number(float(edit.values["to"]))
        else:
            old = next((k.value for k in call.keywords if k.arg == "lr"), None)
            old_text = draft.text(old) if old is not None else "1e-3"
            value = f"{old_text} * {_number(float(edit.values['factor']))}"
        draft.set_argument(call, "lr", value, 1)
        done = True
    rate = edit.values.get("to", f"{edit.values.get('factor')} times the old one")
    return None if done else f"set the learning rate to {rate}"


def find_learning_rate(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The rate that the range test has found stands in the notes."""
    return "set the learning rate to the one that the range test has found"


def substitute_optimizer(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another optimizer on the same parameters."""
    name, done = str(edit.values["to"]), False
    options = [
        f"{key}={_number(value) if isinstance(value, float) else value}"
        for key, value in edit.values.items()
        if key not in ("to", "from")
    ]
    for call in _optimizers(draft, clues):
        given = call.args[0] if call.args else _keyword(call, "params")
        if given is None:
            continue
        kept = [] if "weight_decay" in edit.values else _kept_decay(draft, call, name, clues)
        arguments = ", ".join([draft.text(given), *options, *kept])
        owner = f"{draft.text(call.func.value)}." if isinstance(call.func, ast.Attribute) else "torch.optim."
        draft.replace(call, f"{owner}{name}({arguments})")
        done = True
        made = _of_its_own(call, "lr", clues) if "lr" in edit.values else None
        if made and made["lr"]:
            _in_groups(draft, call, f'group["lr"] *= {_number(float(edit.values["lr"]) / made["lr"])}')
    how = f" with {', '.join(options)}" if options else ""
    return None if done else f"use torch.optim.{name}{how}, on the same parameters"


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _unpacked(call: ast.Call, name: str) -> bool:
    """Whether an argument may be among what is unpacked in a call."""
    return _keyword(call, name) is None and any(keyword.arg is None for keyword in call.keywords)


def _kept_decay(draft: Draft, call: ast.Call, new: str, clues: Clues) -> list[str]:
    """The weight decay of the old optimizer as an argument of the new one, which keeps it."""
    written = _keyword(call, "weight_decay")
    if written is not None:
        return [f"weight_decay={draft.text(written)}"]
    made = [one for one in clues.facts.get("optimizers") or () if one.get("name") == name_of(call)]
    decay = made[0].get("weight_decay") if made else None
    return [] if decay in (None, _USUAL_DECAY.get(new, 0.0)) else [f"weight_decay={_number(decay)}"]


def set_weight_decay(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another weight decay where the optimizer is made."""
    value = _number(float(edit.values["to"]))
    calls = [call for call in _optimizers(draft, clues) if not _unpacked(call, "weight_decay")]
    done = bool(calls)
    for call in calls:
        if _of_its_own(call, "weight_decay", clues):
            done &= _in_groups(
                draft, call, f'group["weight_decay"] = {value} if group["weight_decay"] else 0.0'
            )
        else:
            draft.set_argument(call, "weight_decay", value)
    return None if done else f"set the weight decay to {value}"


def _of_its_own(call: ast.Call, name: str, clues: Clues) -> dict[str, Any] | None:
    """The optimizer that a call makes, where its groups have an option of their own."""
    known = [one for one in clues.facts.get("optimizers") or () if name in one.get("own", ())]
    alike = [one for one in known if one.get("name") == name_of(call)]
    return next(iter(alike or known), None)


def _in_groups(draft: Draft, call: ast.Call, line: str) -> bool:
    """Say for each group of the optimizer that a call makes what is to be; not done where it gets no name."""
    statement = draft.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Name | ast.Attribute):
        return False
    draft.add_after(statement, f"for group in {draft.text(target)}.param_groups:", f"    {line}")
    return True


def clip_gradient(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Clipping right before the step."""
    limit = _number(float(edit.values.get("limit", 1.0)))
    function = "clip_grad_value_" if edit.values.get("kind") == "value" else "clip_grad_norm_"
    found = trained(draft, clues)
    name = f"{found[1]}.parameters()" if found is not None else "model.parameters()"
    clip = f"{draft.alias('torch')}.nn.utils.{function}"
    steps = list(_steps(draft, clues))
    for statement, optimizer in steps:
        held = f'[p for group in {optimizer}.param_groups for p in group["params"]]'
        near = found is not None and _reaches(draft, found[0], statement, found[1])
        draft.add_before(statement, f"{clip}({name if near else held}, {limit})")
    done = bool(steps) or clipping_by_a_trainer(draft, function, limit)
    return None if done else f"clip gradients before the step: {clip}({name}, {limit})"


def loosen_clipping(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another limit where the script clips."""
    limit, done = _number(float(edit.values["to"])), False
    for call in draft.calls({"clip_grad_norm_", "clip_grad_value_"}):
        name = "max_norm" if name_of(call) == "clip_grad_norm_" else "clip_value"
        draft.set_argument(call, name, limit, 1)
        done = True
    return None if done else f"clip gradients at {limit} instead of so tightly"


def keep_attached(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """No cut where the model made one."""
    done = False
    for place in clues.places.get("cut", ()):
        for call in draft.calls({"detach", "detach_"}, int(place["line"])):
            if isinstance(call.func, ast.Attribute):
                draft.replace(call, draft.text(call.func.value))
                done = True
    return None if done else "take away what cuts the model's own values off from the graph: .detach(), .data"


def shuffle_data(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The loader that training takes its batches from shuffled, the first where that is not known."""
    for place in clues.places.get("training-loader") or clues.places.get("loader", ()):
        for call in draft.calls({"DataLoader"}, int(place["line"])):
            draft.set_argument(call, "shuffle", "True", 2)
            return None
    return "shuffle the training data: DataLoader(..., shuffle=True)"


def warm_up(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """A linear warm-up, stepped with the optimizer."""
    steps = int(edit.values.get("steps", 100))
    made = [draft.statement(call) for call in _optimizers(draft, clues)]
    found = list(_steps(draft, clues))
    words = f"raise the learning rate to its value over the first {steps} steps"
    if not found or not made or made[0] is None:
        return words
    (step, optimizer), owner = found[0], own_name(draft, made[0])
    name = f"{owner}.warm_up" if optimizer.startswith(f"{owner}.") else "warm_up"
    if isinstance(made[0], ast.Return) or not _reaches(draft, made[0], step, name):
        return words
    scheduler = f"{draft.alias('torch')}.optim.lr_scheduler.LinearLR"
    draft.add_after(
        made[0],
        f"{name} = {scheduler}({optimizer}, start_factor=1 / {steps}, total_iters={max(1, steps - 1)})",
    )
    draft.add_after(step, f"{name}.step()")
    return None


def _reaches(draft: Draft, made: ast.stmt, used: ast.stmt, name: str) -> bool:
    """Whether what has a name at one statement has it at another: in one function, everywhere, or of one object."""
    home, place = method(draft, made), method(draft, used)
    if home is place or home is None:
        return True
    owner = own_name(draft, made)
    of_object = "." in name and name.startswith(f"{owner}.") and owner == own_name(draft, used)
    classes = [draft.parents.get(one) if one is not None else None for one in (home, place)]
    return of_object and isinstance(classes[0], ast.ClassDef) and classes[0] is classes[1]


def hold_learning_rate(draft: Draft, edit: Edit, clues: Clues, cure: Prescription) -> str | None:
    """The schedule no longer advanced, and what it did to the rate when it was made undone."""
    steps = list(_schedule_steps(draft))
    for statement in steps:
        draft.replace(statement, "pass  # the learning rate stays where it is")
    if steps:
        _undo_made(draft, cure)
    done = bool(steps) or without_schedule(draft)
    return None if done else "keep the learning rate where it starts: take the schedule out"


def pace_schedule(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The step of the schedule moved behind the loop over batches that it stands in."""
    done = False
    for statement in _schedule_steps(draft):
        loop: ast.AST | None = draft.parents.get(statement)
        while loop is not None and not isinstance(loop, ast.For | ast.FunctionDef):
            loop = draft.parents.get(loop)
        if isinstance(loop, ast.For):
            text = draft.text(statement)
            body = getattr(draft.parents.get(statement), "body", [])
            if len(body) == 1:
                draft.replace(statement, "pass")
            else:
                draft.drop_lines(statement)
            draft.add_after(loop, text)
            done = True
    if done or schedule_by_epoch(draft):
        return None
    return "step the schedule once after each pass over the training data, not with every batch"


def _schedule_steps(draft: Draft) -> Iterator[ast.Expr]:
    """The statements that advance a schedule."""
    made = {
        name_of(target)
        for call in draft.calls()
        if "lr_scheduler" in draft.text(call.func) or name_of(call).endswith("LR")
        for target in getattr(draft.statement(call), "targets", ())
    }
    for call in draft.calls({"step"}):
        owner = getattr(call.func, "value", call)
        called_so = isinstance(call.func, ast.Attribute) and "sched" in draft.text(owner).lower()
        statement = draft.statement(call)
        if (
            (called_so or name_of(owner) in made)
            and isinstance(statement, ast.Expr)
            and statement.value is call
        ):
            yield statement


def _undo_made(draft: Draft, cure: Prescription) -> None:
    """Schedules that cycle or warm up set the rate as soon as they are made."""
    wanted = [float(edit.values["to"]) for edit in cure.of("set-learning-rate") if "to" in edit.values]
    wanted += [float(edit.values["lr"]) for edit in cure.of("substitute-optimizer") if "lr" in edit.values]
    rate = f"{wanted[0]:g}" if wanted else 'group["initial_lr"]'
    places = {id(found): (found, call) for call in draft.calls(_MOVING) if (found := draft.statement(call))}
    for statement, call in places.values():
        if not call.args:
            continue
        undone = f'for group in {draft.text(call.args[0])}.param_groups: group["lr"] = {rate}'
        if isinstance(statement, ast.Return):  # nothing comes behind it
            margin = "\n" + " " * statement.col_offset
            lines = (f"schedule = {draft.text(statement.value or call)}", undone, "return schedule")
            draft.replace(statement, margin.join(lines))
        else:
            draft.add_after(statement, undone)


def add_zero_grad(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Gradients cleared before the backward pass that the step belongs to.

    Where a step takes the gradients of several passes together, they are cleared right after it; where the backward
    pass is in a function that the step is given, there.
    """
    for statement, name in _steps(draft, clues):
        backward = [draft.statement(call) for call in draft.calls({"backward"})]
        before = [found for found in backward if found is not None and found.lineno <= statement.lineno]
        if not before:
            continue
        nearest = max(before, key=lambda found: found.lineno)
        holder = draft.parents.get(nearest)
        given = {name_of(part) for call in draft.calls({"step"}, statement.lineno) for part in call.args}
        if holder is draft.parents.get(statement) or getattr(holder, "name", "") in given:
            draft.add_before(nearest, f"{name}.zero_grad()")
        else:
            draft.add_after(statement, f"{name}.zero_grad()")
        return None
    return "clear gradients before each backward pass: optimizer.zero_grad()"


def set_batch_size(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another batch size for the loaders that training takes its batches from, or those that shuffle."""
    done, known = False, clues.places.get("training-loader", ())
    for place in known or clues.places.get("loader", ()):
        for call in draft.calls({"DataLoader"}, int(place["line"])):
            shuffles = any(k.arg == "shuffle" and getattr(k.value, "value", True) for k in call.keywords)
            if known or shuffles or not done:
                draft.set_argument(call, "batch_size", str(int(edit.values["to"])), 1)
                done = True
    return None if done else f"train with batches of {int(edit.values['to'])}"


def unfreeze(draft: Draft, edit: Edit, clues: Clues, cure: Prescription) -> str | None:
    """Everything made trainable before the optimizer is given it."""
    found = trained(draft, clues)
    if found is None or edit.where not in ("", "all"):
        what = "every parameter" if edit.where in ("", "all") else edit.where
        return f"make {what} trainable: parameter.requires_grad_(True)"
    statement, name = found
    whole = _whole_of(draft, clues) if cure.of("add-to-optimizer") else None
    draft.add_before(
        statement, f"{draft.text(whole.value) if whole is not None else name}.requires_grad_(True)"
    )
    return None


def add_to_optimizer(draft: Draft, edit: Edit, clues: Clues, cure: Prescription) -> str | None:
    """All parameters of the model, where a part of them is given, or an optimizer made once they are there."""
    held = clues.facts.get("held") or ()
    if held and all(in_module_list(draft, part) for part in held):
        return None
    moved = [] if held else [made_later(draft, call, clues) for call in _optimizers(draft, clues)]
    if any(moved):
        return None
    others = clues.facts.get("left_out_models") or ()
    if others and not held and _given_too(draft, others, clues):
        return None
    part = _whole_of(draft, clues) if not (others or held) and False not in moved else None
    if part is not None:  # model.head.parameters()
        draft.replace(part, draft.text(part.value))
        return None
    if cure.of("unfreeze") and trained(draft, clues) is not None:
        return None  # the optimizer is given all that is trainable
    missing = list(clues.facts.get("left_out") or ())
    named = (
        f", {missing[0]}{f' and {len(missing) - 1} more' if missing[1:] else ''} as well" if missing else ""
    )
    what = "all parameters" if edit.where in ("", "all") else edit.where
    return (
        f"give the optimizer {what} of the model{named}; modules in a plain list or dict belong into an "
        "nn.ModuleList or nn.ModuleDict"
    )


def _given_too(draft: Draft, models: Sequence[str], clues: Clues) -> bool:
    """Give the one optimizer the parameters of other models beside those that it has."""
    calls = list(_optimizers(draft, clues))
    given = given_parameters(draft, calls[0]) if len(calls) == 1 else None
    if given is None:
        return False
    draft.wrap(given, "[*", "".join(f", *{model}.parameters()" for model in models) + "]")
    return True


def _whole_of(draft: Draft, clues: Clues) -> ast.Attribute | None:
    """The part of a model whose parameters alone the optimizer is given; its owner is the model."""
    if len(clues.facts.get("optimizers") or ()) > 1:
        return None  # another may have the rest
    for call in _optimizers(draft, clues):
        given = given_parameters(draft, call)
        if given is not None:
            owner = given.func
            inner = owner.value if isinstance(owner, ast.Attribute) else None
            if isinstance(inner, ast.Attribute) and _is_model(draft, inner.value):
                return inner
    return None


def _is_model(draft: Draft, owner: ast.expr) -> bool:
    """Whether what holds a part is a model itself, and not, say, a trainer that holds the whole of one."""
    if not isinstance(owner, ast.Name):
        return True
    function = method(draft, owner)
    home = draft.parents.get(function) if function is not None else None
    itself = function is not None and function.args.args and function.args.args[0].arg == owner.id
    if not itself or not isinstance(home, ast.ClassDef):
        return True
    return any(name_of(base).endswith("Module") for base in home.bases)


def reseed(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """In words."""
    return f"start from another seed ({edit.values.get('seed')})"
