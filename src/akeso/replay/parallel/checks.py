"""What cannot give the same bits on any number of processes is refused before the first step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from akeso.errors import BadInput, Refused
from akeso.replay import digests
from akeso.replay.parallel.exchange import Exchange


def check_modules(modules: Sequence[torch.nn.Module]) -> None:
    """Refuse modules whose results depend on the number of processes."""
    if not modules:
        raise BadInput("no module was given; virtual ranks need the model whose gradients they combine")
    for root in modules:
        if isinstance(root, DistributedDataParallel):
            raise Refused(
                "the model is wrapped in DistributedDataParallel, which adds gradients in an order that "
                "depends on the number of processes; pass the bare model (model.module)"
            )
        if isinstance(root, DataParallel):
            raise Refused(
                "the model is wrapped in DataParallel, which splits batches by the number of devices; "
                "pass the bare model (model.module)"
            )
        for path, module in root.named_modules():
            if isinstance(module, torch.nn.SyncBatchNorm):
                raise Refused(
                    f"{path or 'the model'} is a SyncBatchNorm: it exchanges statistics between processes "
                    "during the forward pass, so its result depends on how many there are; use BatchNorm, "
                    "whose statistics are then per virtual rank and averaged in a fixed order"
                )
        for name, parameter in root.named_parameters():
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
                raise BadInput(
                    f"parameter {name} is not initialised yet; run one forward pass of the lazy module first"
                )
            if type(parameter.data).__name__ == "DTensor":
                raise Refused(
                    f"parameter {name} is sharded over processes (DTensor); virtual ranks need whole "
                    "parameters"
                )


def check_replicas(modules: Sequence[torch.nn.Module], exchange: Exchange) -> None:
    """Refuse to start when the processes do not hold the same model, or do not calculate alike."""
    state = [tensor for root in modules for tensor in (*root.parameters(), *root.buffers())]
    checksum = int(str(digests.of_tensors(state)), 16) & ((1 << 63) - 1)
    threads = torch.get_num_threads()
    everybody = exchange.gather_integers([checksum, threads])
    if len({row[1] for row in everybody}) > 1:
        raise Refused(
            f"the processes use different numbers of threads ({[row[1] for row in everybody]}), and sums "
            "depend on that; call torch.set_num_threads with the same number in each"
        )
    if len({row[0] for row in everybody}) > 1:
        raise Refused(
            "the processes start from different parameters; seed each alike before building the model, or "
            "load the same checkpoint in each"
        )
