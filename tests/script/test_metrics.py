"""Metrics in printed lines: found where they are, not seen where they are not."""

from __future__ import annotations

import math

import pytest

from akeso.errors import BadInput
from akeso.script.metrics import ChosenMetric, PrintedMetrics, printed_metrics, unknown_figures

FOUND = {
    "val_acc: 0.93": [("val_accuracy", 0.93)],
    "Test accuracy 91.2%": [("test_accuracy", 0.912)],
    "val loss=0.31": [("val_loss", 0.31)],
    "Epoch 3/10 - loss: 0.69 - acc: 0.51 - val_loss: 0.70 - val_acc: 0.50": [
        ("loss", 0.69), ("accuracy", 0.51), ("val_loss", 0.70), ("val_accuracy", 0.50),
    ],
    "Test set: Average loss: 0.0456, Accuracy: 9850/10000 (98%)": [
        ("test_loss", 0.0456), ("test_accuracy", 0.985),
    ],
    "Accuracy of the network on the 10000 test images: 55 %": [("test_accuracy", 0.55)],
    "{'eval_loss': 0.3123, 'eval_accuracy': 0.871, 'epoch': 2.0}": [
        ("val_loss", 0.3123), ("val_accuracy", 0.871),
    ],
    "update 5 episodic_return 10.9": [("reward", 10.9)],
    "Episode 10 | Reward: 23.0 | Avg return -12.5": [("reward", 23.0)],
    "success rate 0.167 value loss 0.02": [("reward", 0.167), ("loss", 0.02)],
    "epoch 8 c-index 0.330": [("concordance", 0.33)],
    "val PR-AUC 0.31 val auc 0.9": [("val_auprc", 0.31), ("val_auc", 0.9)],
    "auc_pr: 0.4": [("auprc", 0.4)],
    "Epoch 3 loss 0.4 test R^2 = 0.91": [("loss", 0.4), ("test_r2", 0.91)],
    "val R²: 0.5, val R-squared 0.25": [("val_r2", 0.5), ("val_r2", 0.25)],
    "RMSE train 48.4  RMSE test 45.7": [("train_rmse", 48.4), ("test_rmse", 45.7)],
    "loss: train 0.5, val 0.6 | acc (train) 0.9 acc (val) 0.8": [
        ("train_loss", 0.5), ("val_loss", 0.6), ("train_accuracy", 0.9), ("val_accuracy", 0.8),
    ],
    "[3] score(test)=0.93": [("test_score", 0.93)],
    "accuracy - test loss: 0.3": [("test_loss", 0.3)],
    "epoch 3: MAE on test set: $7,300.31": [("test_mae", 7300.31)],
    "val RMSE: € 1,250,000 | loss 0.5, 200 batches": [("val_rmse", 1250000.0), ("val_loss", 0.5)],
    "R2 = -0.2, top-1: 0.81, top-1 acc: 0.75": [("r2", -0.2), ("accuracy", 0.81), ("accuracy", 0.75)],
    "step 100: train loss 2.4561, val loss 2.5012": [("train_loss", 2.4561), ("val_loss", 2.5012)],
    "loss: 1.2e-05": [("loss", 1.2e-05)],
    "train/loss 0.5 valAcc=0.75": [("train_loss", 0.5), ("val_accuracy", 0.75)],
    "validation f1 score: 0.81": [("val_f1", 0.81)],
    "test error: 3.5%": [("test_error", 0.035)],
    "Loss after epoch 3: 0.42": [("loss", 0.42)],
    "acc=tensor(0.8125)": [("accuracy", 0.8125)],
    "Val Acc (%): 91.5": [("val_accuracy", 0.915)],
    "perplexity 23.4": [("perplexity", 23.4)],
    "Epoch 5  loss 0.0637  val IoU 0.9239": [("loss", 0.0637), ("val_iou", 0.9239)],
    "val mIoU 61.2% | test Spearman: 0.7": [("val_iou", 0.612), ("test_correlation", 0.7)],
    "[Train] Loss 0.25 | [Valid] Loss 0.5": [("train_loss", 0.25), ("val_loss", 0.5)],
    "epoch 2 val pinball 0.123": [("val_pinball", 0.123)],
    "epoch=2 test RRSE 0.481": [("test_rrse", 0.481)],
    "{'eval_loss': '0.69', 'eval_accuracy': '0.516', 'epoch': '1'}": [("val_loss", 0.69), ("val_accuracy", 0.516)],
    "dev_ppl=31.5 held-out WER 0.25": [("val_perplexity", 31.5), ("test_wer", 0.25)],
    "epoch 4: nll 0.5, token error rate 0.31": [("loss", 0.5), ("error", 0.31)],
    "phone_error_rate=0.125": [("error", 0.125)],
    "val err rate: 12.5 %": [("val_error", 0.125)],
    "CER: 0.08 | WER 0.21": [("cer", 0.08), ("wer", 0.21)],
    "recall@5 0.31 recall@10 0.44 | HR@10: 0.5": [("recall", 0.31), ("hits", 0.5)],
    "ndcg@10 = 0.2 mAP@0.5:0.95 0.33": [("ndcg", 0.2), ("map", 0.33)],
}  # fmt: skip

UNKNOWN = {
    "epoch 3 val zeal 0.123": [("val_zeal", 0.123)],
    "[dev] chunkiness: 31.2 | lr 0.1": [("val_chunkiness", 31.2)],
    "held-out zest = 1.5e-2": [("test_zest", 0.015)],
    "epoch 3 | train zeal 0.5 | valid/zeal 0.25": [("val_zeal", 0.25)],
    "val_acc: 0.93": [],
    "val 0.5": [],
    "val samples: 400, test set: 0.2, val fraction 0.1": [],
    "val batches 20, validation took 12.5 s": [],
    "val epoch: 3, test time: 1.5": [],
    "validate every 100 steps, evaluating 5": [],
    "a value of 0.5 was tested, latest zeal 0.5": [],
}

NOTHING = [
    "chosen reward -0.52, rejected_reward: -1.3, intrinsic reward 0.01",
    "returned 5 samples, return 3",
    "error 3, error: 0.5 in total, recall 0.4",
    "took 2 hr 0.5, map 3.5, wer 0.5",
    "epoch 3/10",
    "epoch: 3, time: 12.5s, lr: 0.001",
    "learning_rate=0.01 batch_size=64 dropout=0.5",
    "loss computed in 3.2 s",
    "val time: 12.5",
    "Error: 3 files are missing",
    "error code: 7",
    "Best loss at epoch: 3",
    "loss_weight=0.5",
    "accuracy of step: 5",
    "using CrossEntropyLoss with 10 classes",
    "glossary 0.5",
    "account 12",
    "loss 3/10",
    "loss 12ms",
    "torch 2.4.0 loss 1.2.3",
    "100%|██████████| 50/50 [00:03<00:00, 14.2it/s]",
    "2026-01-05 12:30:00 INFO started",
    "train 1600 samples, val 400 samples, test 400",
    "",
]


@pytest.mark.parametrize("line", FOUND)
def test_printed_metrics_are_found(line: str) -> None:
    assert printed_metrics(line) == [(name, pytest.approx(value)) for name, value in FOUND[line]]


@pytest.mark.parametrize("line", UNKNOWN)
def test_a_word_between_held_out_data_and_a_number_names_a_figure(line: str) -> None:
    assert unknown_figures(line) == UNKNOWN[line]


def test_only_figures_that_are_printed_again_and_again_are_kept() -> None:
    heard = PrintedMetrics()
    for step in range(4):
        heard.hear(f"val zeal {0.5 + step} val alike 0.25", step)
    heard.hear("test once 0.5", 4)
    heard.hear("test zest 0.5 test zest 0.75 test zest 1.5", 4)
    assert heard.others() == {"val_zeal": [[step, 0.5 + step] for step in range(4)]}


@pytest.mark.parametrize("line", NOTHING)
def test_other_numbers_are_no_metrics(line: str) -> None:
    assert printed_metrics(line) == []


def test_a_loss_that_is_not_a_number_is_read_as_such() -> None:
    ((name, value),) = printed_metrics("train loss: nan")
    assert name == "train_loss"
    assert math.isnan(value)


def test_an_error_beyond_one_is_a_percentage_only_where_that_is_written() -> None:
    heard = PrintedMetrics()
    for line in ("val error 1.6159", "val error 0.3227", "test error: 12.5 %"):
        heard.hear(line, 1)
    assert heard.as_fact() == {"val_error": [[1, 1.6159], [1, 0.3227]], "test_error": [[1, 0.125]]}


def test_percentages_without_a_sign_are_brought_to_shares() -> None:
    heard = PrintedMetrics()
    for step, accuracy in enumerate((0.9, 55.0, 91.5)):
        heard.hear(f"val acc {accuracy}", step)
    ((label, values),) = heard.as_fact().items()
    assert label == "val_accuracy"
    assert values == [[0, pytest.approx(0.009)], [1, pytest.approx(0.55)], [2, pytest.approx(0.915)]]


def test_what_is_kept_is_bounded_and_covers_the_whole_run() -> None:
    heard = PrintedMetrics()
    told = [step for step in range(10_000) if heard.hear(f"loss: {step + 0.5}", step)]
    assert told[0] == 3
    assert len(told) < 15
    (values,) = heard.as_fact().values()
    assert len(values) <= PrintedMetrics.VALUES
    assert values[0] == [0, 0.5]
    assert values[-1][0] > 9900


def test_a_chosen_metric_is_read_wherever_it_matches() -> None:
    metric = ChosenMetric(r"score=([-\d.e]+%?)")
    assert metric.values("a score=0.5 b score=-1e-3, score=. score=7%") == [0.5, -0.001, 7.0]
    assert metric.values("nothing here") == []


@pytest.mark.parametrize("pattern", ["(", "no group", "(two) (groups)"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="--metric"):
        ChosenMetric(pattern)
