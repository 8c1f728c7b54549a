"""Changes to a loop that a library's trainer makes: they are made in what the trainer is given."""

from __future__ import annotations

import ast

from akeso.script.draft import Draft, name_of


def without_schedule(draft: Draft) -> bool:
    """No schedule where a trainer is given one, or told which to make."""
    done = False
    for call in _settings(draft):
        draft.set_argument(call, "lr_scheduler_type", '"constant"')
        done = True
    for given in _given_to_lightning(draft):
        if isinstance(given, ast.Dict):
            named = [k for k in given.keys if getattr(k, "value", "") == "optimizer"]
            if named and any(getattr(k, "value", "") == "lr_scheduler" for k in given.keys):
                draft.replace(given, draft.text(given.values[given.keys.index(named[0])]))
                done = True
        elif isinstance(given, ast.Tuple) and len(given.elts) == 2 and isinstance(given.elts[1], ast.List):
            draft.replace(given.elts[1], "[]")
            done = True
    return done


def schedule_by_epoch(draft: Draft) -> bool:
    """A schedule that is advanced once for every pass over the data, where Lightning is told how often."""
    done = False
    for node in ast.walk(draft.tree):
        keys = [getattr(key, "value", "") for key in node.keys] if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.Dict) and {"scheduler", "interval"} <= set(keys):
            draft.replace(node.values[keys.index("interval")], '"epoch"')
            done = True
    return done


def clipping_by_a_trainer(draft: Draft, name: str, limit: str) -> bool:
    """Clipping as an argument of Lightning's trainer."""
    kind = "value" if name == "clip_grad_value_" else "norm"
    calls = [call for call in draft.calls({"Trainer"}) if "lightning" in draft.source]
    for call in calls:
        draft.set_argument(call, "gradient_clip_val", limit)
        draft.set_argument(call, "gradient_clip_algorithm", f'"{kind}"')
    return bool(calls)


def _settings(draft: Draft) -> list[ast.Call]:
    """The calls that make the settings of a trainer of Transformers."""
    return [call for call in draft.calls() if name_of(call).endswith("TrainingArguments")]


def _given_to_lightning(draft: Draft) -> list[ast.expr]:
    """What ``configure_optimizers`` returns."""
    return [
        part.value
        for function in ast.walk(draft.tree)
        if isinstance(function, ast.FunctionDef) and function.name == "configure_optimizers"
        for part in ast.walk(function)
        if isinstance(part, ast.Return) and part.value is not None
    ]
