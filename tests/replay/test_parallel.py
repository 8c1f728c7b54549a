from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akeso.errors import BadInput, Refused
from akeso.replay.parallel import VirtualRanks, step, virtual_ranks, virtual_slices
from akeso.replay.parallel.tree import merges, owner


@given(st.integers(0, 300), st.integers(1, 24), st.data())
def test_slices_cover_the_batch_and_do_not_depend_on_the_number_of_processes(
    size: int, virtual: int, data: st.DataObject
) -> None:
    world = data.draw(st.integers(1, virtual))
    together = [part for rank in range(world) for part in virtual_slices(size, virtual, rank, world)]
    assert tuple(together) == virtual_slices(size, virtual)
    assert [index for part in together for index in range(part.start, part.stop)] == list(range(size))
    lengths = {part.stop - part.start for part in together}
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 24), st.data())
def test_the_tree_adds_the_same_nodes_for_any_number_of_processes(virtual: int, data: st.DataObject) -> None:
    world = data.draw(st.integers(1, virtual))
    plan = merges(virtual, world)
    assert [merge.node for merge in plan] == [merge.node for merge in merges(virtual)]
    for merge in plan:
        assert merge.left_owner == owner(merge.node[0], virtual, world)
        assert merge.right_owner == owner(merge.right[0], virtual, world)


def test_more_processes_than_virtual_ranks_are_refused() -> None:
    with pytest.raises(BadInput, match="8 processes cannot share 4 virtual ranks"):
        virtual_ranks(4, rank=0, world=8)


def model_and_batch(samples: int = 12) -> tuple[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return model, (torch.randn(samples, 5), torch.randint(0, 3, (samples,)))


def sum_over(
    ranks: VirtualRanks,
    model: torch.nn.Module,
    batch: torch.Tensor,
    after: Callable[[], object] = lambda: None,
    only_first: bool = False,
) -> None:
    with ranks:
        for part in ranks.split(batch):
            ranks.backward(model(part).sum())
            after()
            if only_first:
                break


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("samples", [12, 13, 3])
def test_uneven_and_empty_shares_give_the_mean_over_the_batch(samples: int) -> None:
    model, (inputs, targets) = model_and_batch(samples)
    expected_loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    expected_loss.backward()
    expected = gradients(model)
    model.zero_grad()
    ranks = VirtualRanks(model, virtual=4)
    with ranks:
        for part, goal in ranks.split((inputs, targets)):
            ranks.backward(torch.nn.functional.cross_entropy(model(part), goal))
    torch.testing.assert_close(gradients(model), expected)
    torch.testing.assert_close(ranks.loss.float(), expected_loss.detach())


def test_a_share_whose_targets_are_all_ignored_does_not_poison_the_gradient() -> None:
    model, (inputs, targets) = model_and_batch(8)
    targets[:2] = -100
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    expected = gradients(model)
    model.zero_grad()
    ranks = VirtualRanks(model, virtual=4)
    with ranks:
        for part, goal in ranks.split((inputs, targets)):
            loss = torch.nn.functional.cross_entropy(model(part), goal)
            ranks.backward(loss, weight=(goal != -100).sum())
    torch.testing.assert_close(gradients(model), expected)


def test_sums_are_added_and_earlier_gradients_are_kept() -> None:
    model, (inputs, targets) = model_and_batch()
    torch.nn.functional.cross_entropy(model(inputs), targets, reduction="sum").backward()
    expected = [2 * gradient for gradient in gradients(model)]
    ranks = VirtualRanks(model, virtual=4, reduction="sum")
    with ranks:
        for part, goal in ranks.split((inputs, targets)):
            ranks.backward(torch.nn.functional.cross_entropy(model(part), goal, reduction="sum"))
    torch.testing.assert_close(gradients(model), expected)


def test_every_virtual_rank_and_step_draws_other_dropout_masks_and_the_generators_are_put_back() -> None:
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 2)
    before = torch.get_rng_state()
    masks = []
    ranks = VirtualRanks(model, virtual=3, seed=1)
    for _ in range(2):
        with ranks:
            for _ in ranks.each():
                masks.append(tuple(torch.bernoulli(torch.full((64,), 0.5)).tolist()))
                ranks.backward(model(torch.ones(1, 2)).sum())
    assert len(set(masks)) == 6
    assert torch.equal(torch.get_rng_state(), before)


def test_batch_norm_statistics_start_equal_and_are_averaged() -> None:
    torch.manual_seed(0)
    model = torch.nn.BatchNorm1d(3)
    inputs = torch.randn(16, 3)
    ranks = VirtualRanks(model, virtual=4)
    with ranks:
        for part in ranks.split(inputs):
            ranks.backward(model(part).square().mean())
    each = [0.1 * inputs[low : low + 4].mean(0) for low in range(0, 16, 4)]
    torch.testing.assert_close(model.running_mean, torch.stack(each).mean(0))
    assert model.num_batches_tracked == 1


class Remembers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("last", torch.zeros(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.last.copy_(inputs.mean(0))
        return self.layer(inputs)


def test_a_buffer_nobody_can_combine_is_refused_and_the_model_left_as_it_was() -> None:
    model = Remembers()
    ranks = VirtualRanks(model, virtual=2)
    with pytest.raises(Refused, match="buffer last"):
        sum_over(ranks, model, torch.randn(4, 3))
    assert torch.equal(model.last, torch.zeros(3))
    assert model.layer.weight.grad is None


def test_an_optimizer_step_inside_the_block_is_refused() -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ranks = VirtualRanks(model, virtual=2)
    with pytest.raises(Refused, match="was changed while virtual rank 0"):
        sum_over(ranks, model, torch.randn(4, 3), after=optimizer.step)


def test_leaving_the_split_early_is_an_error() -> None:
    model = torch.nn.Linear(3, 1)
    ranks = VirtualRanks(model, virtual=4)
    with pytest.raises(BadInput, match=r"virtual ranks \[1, 2, 3\] were not computed"):
        sum_over(ranks, model, torch.randn(8, 3), only_first=True)


def test_models_whose_result_depends_on_the_number_of_processes_are_refused() -> None:
    with pytest.raises(Refused, match="SyncBatchNorm"):
        VirtualRanks(torch.nn.Sequential(torch.nn.SyncBatchNorm(3)), virtual=2)
    with pytest.raises(Refused, match="DataParallel"):
        VirtualRanks(torch.nn.DataParallel(torch.nn.Linear(2, 2)), virtual=2)


def test_sparse_gradients_are_refused() -> None:
    model = torch.nn.Embedding(5, 2, sparse=True)
    ranks = VirtualRanks(model, virtual=2)
    with pytest.raises(Refused, match="sparse"):
        sum_over(ranks, model, torch.tensor([0, 1, 2, 3]))


def test_texts_and_numbers_in_a_batch_are_cut_or_passed_whole() -> None:
    model = torch.nn.Linear(2, 1)
    batch = {"x": torch.arange(8.0).view(4, 2), "names": ["a", "b", "c", "d"], "temperature": 0.5}
    seen = []
    ranks = VirtualRanks(model, virtual=2)
    with ranks:
        for part in ranks.split(batch):
            seen.append((part["x"][:, 0].tolist(), part["names"], part["temperature"]))
            ranks.backward(model(part["x"]).sum())
    assert seen == [([0.0, 2.0], ["a", "b"], 0.5), ([4.0, 6.0], ["c", "d"], 0.5)]


def test_a_whole_step_with_scaler_and_clipping_equals_the_same_step_by_hand() -> None:
    model, batch = model_and_batch()
    twin = copy.deepcopy(model)

    def loss_of(net: torch.nn.Module, micro: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(net(micro[0]), micro[1])

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = step(
        VirtualRanks(model, 4), optimizer, batch, lambda m: loss_of(model, m), clip_norm=0.1, scaler=scaler
    )
    loss_of(twin, batch).backward()
    torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
    torch.optim.SGD(twin.parameters(), lr=0.5).step()
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    assert loss.item() == pytest.approx(loss_of(twin, batch).item(), rel=0.2)


def test_local_samples_are_taken_where_the_global_size_is_given() -> None:
    model = torch.nn.Linear(1, 1)
    ranks = VirtualRanks(model, virtual=2)
    with pytest.raises(BadInput, match="should hold 6 of the batch's 6 samples, but was given 4"), ranks:
        list(ranks.split(torch.zeros(4, 1), size=6))
