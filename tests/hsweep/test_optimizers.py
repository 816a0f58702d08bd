"""Our AdamW is torch's to the bit, and leaves torch's compiler alone."""

import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hsweep.training.optimizers import AdamW

ROOT = Path(__file__).parents[2]


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.LayerNorm(7), nn.Linear(7, 2))


def optimizer(kind: type[torch.optim.AdamW], trained: nn.Module) -> torch.optim.AdamW:
    matrices = [p for p in trained.parameters() if p.ndim > 1]
    vectors = [p for p in trained.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return kind(groups, lr=1e-2, betas=(0.9, 0.99), fused=True)


def train(trained: nn.Module, by: torch.optim.AdamW, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    for step in range(4):
        for group in by.param_groups:
            group["lr"] = 1e-2 / (step + 1)
        by.zero_grad()
        trained(torch.randn(16, 5, generator=random)).square().mean().backward()
        by.step()


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["param_groups"] == other["param_groups"]
    states = one["state"], other["state"]
    assert states[0].keys() == states[1].keys()
    for key, state in states[0].items():
        assert state.keys() == states[1][key].keys()
        assert all(torch.equal(value, states[1][key][name]) for name, value in state.items())


def test_weights_and_moments_are_torchs_to_the_bit() -> None:
    ours, theirs = model(), model()
    our_optimizer, their_optimizer = optimizer(AdamW, ours), optimizer(torch.optim.AdamW, theirs)
    train(ours, our_optimizer, 0)
    train(theirs, their_optimizer, 0)
    for mine, torchs in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, torchs)
    assert_same(our_optimizer.state_dict(), their_optimizer.state_dict())


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(AdamW, torch.optim.AdamW),
                                                     (torch.optim.AdamW, AdamW)])  # fmt: skip
def test_one_goes_on_from_what_the_other_saved(
    saved_by: type[torch.optim.AdamW], loaded_by: type[torch.optim.AdamW]
) -> None:
    first, second = model(), model()
    saved = optimizer(saved_by, first)
    train(first, saved, 0)
    second.load_state_dict(first.state_dict())
    loaded = optimizer(loaded_by, second)
    loaded.load_state_dict(deepcopy(saved.state_dict()))
    train(first, saved, 1)
    train(second, loaded, 1)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_whole_trial_does_not_import_torchs_compiler(tmp_path: Path) -> None:
    program = f"""
import sys
from copy import deepcopy
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned
from hsweep.training.train import train
trial = planned(tiny_sweep())[0]
reports = list(train(assignment_of(trial, Path({str(tmp_path)!r})), torch.device("cpu")))
assert reports[-1].is_last
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
