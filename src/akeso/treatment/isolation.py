"""Attempts in a process of their own: what kills it kills one attempt."""

from __future__ import annotations

import io
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from akeso.errors import BadInput
from akeso.treatment.assembly import assemble
from akeso.treatment.prescription import Prescription
from akeso.treatment.program import Attempt
from akeso.treatment.recipe import Recipe

#: Seconds after which a forked process that has not taken a first gradient never will.
_TO_BEGIN = 20.0


def attempt_in_child(
    recipe: Recipe, prescription: Prescription, seed: int, attempting: Callable[[], Attempt]
) -> Attempt:
    """Fork, make the attempt there, hand the result back; a crash, a kill or a time limit is told in the attempt."""
    if "fork" not in multiprocessing.get_all_start_methods():
        raise BadInput("isolate=True needs a system that can fork; leave it out here.")
    if recipe.place.type != "cpu":
        raise BadInput(f"isolate=True works on the CPU only, but the recipe's device is {recipe.place}.")
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    began = time.perf_counter()
    child = context.Process(target=_work, args=(there, attempting), daemon=True)
    child.start()
    there.close()
    answer: tuple[Attempt, bytes] | None = None
    failed = ""
    try:
        limit = recipe.time_limit
        if not here.poll(_TO_BEGIN):
            failed = (
                "the process could not begin: what was trained in this one before leaves no arithmetic to a fork of "
                "it; treat with isolate=True before anything is trained, or leave it out"
            )
        elif here.recv() and here.poll(None if limit is None else limit + 1.0):
            answer = here.recv()
        else:
            failed = f"ran longer than {limit:g} seconds"
    except EOFError:
        failed = "the process ended without an answer"
    finally:
        if answer is None:
            child.kill()
        child.join()
        here.close()
    seconds = time.perf_counter() - began
    if answer is None:
        if failed.startswith("the process") and child.exitcode:
            failed = f"the process ended with {_exit(child.exitcode)}"
        return Attempt(prescription, seed, 0, seconds, failed=failed)
    attempt, weights = answer
    return replace(attempt, seconds=seconds, model=_rebuilt(recipe, prescription, seed, weights))


def _exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def _work(there: Connection, attempting: Callable[[], Attempt]) -> None:
    # Threads of the parent's arithmetic do not survive a fork; one thread needs none.
    torch.set_num_threads(1)
    weights = torch.ones(64, 64, requires_grad=True)
    (weights @ weights).relu().sum().backward()
    there.send("begun")
    attempt = attempting()
    buffer = io.BytesIO()
    if attempt.model is not None:
        torch.save(attempt.model.state_dict(), buffer)
    there.send((replace(attempt, model=None), buffer.getvalue()))
    there.close()


def _rebuilt(recipe: Recipe, prescription: Prescription, seed: int, weights: bytes) -> Any:
    """The model in this process, with the weights that were trained in the other."""
    if not weights:
        return None
    state = torch.load(io.BytesIO(weights), weights_only=True)
    with torch.random.fork_rng(devices=[]):
        model = assemble(recipe, prescription, seed).model
    model.load_state_dict(state)
    return model
