import re
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import strategies as st
from model_contract import ModelContract, images, trained_a_little
from torch import Tensor

from models.torchvision_compat import make_torchvision_importable
from models.volo import VOLO, volo_d3, volo_d4

SMALL = VOLO(
    embed_dim=(8, 12, 12, 12),
    depth=(2, 1, 2, 1),
    heads=(2, 3, 4, 2),
    head_dim=5,
    image_size=16,
    patch_size=4,
    stem_hidden_dim=4,
    num_classes=6,
)
LEAN_D3: dict[str, Any] = {"depth": (4, 4, 8, 2), "heads": (16, 32, 32, 32)}
LEAN_D4: dict[str, Any] = {"depth": (4, 4, 8, 2), "heads": (24, 32, 32, 32)}
GROUPS = {
    "embedding": r"patch_embed\.(conv\.[036]|proj)\.|network\.1\.|pos_embed|cls_token",
    "attention": r"(network|post_network)\..*attn\.",
    "mlp": r"(network|post_network)\..*mlp\.",
    "norm": r"patch_embed\.conv\.[147]\.|(network|post_network)\..*norm[12]\.|norm\.",
    "head": r"head\.|aux_head\.",
}


@st.composite
def configs(draw: st.DrawFn) -> VOLO:
    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(4))

    patch_size = draw(st.sampled_from([4, 4, 8]))
    heads = each(st.integers(1, 4))
    coupled = draw(st.booleans())
    fine = heads[0] * draw(st.integers(1, 5))
    # 12 is a multiple of every number of heads drawn.
    coarse = 12 * draw(st.integers(1, 2)) if coupled else draw(st.integers(4, 24))
    widths = st.one_of(st.integers(1, 8), st.tuples(*[st.integers(1, 8)] * 4))
    return VOLO(
        embed_dim=(fine, coarse, coarse, coarse),
        depth=draw(st.permutations([1, 1, 1, 2])),
        heads=heads,
        head_dim=None if coupled else draw(widths),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        image_size=2 * patch_size * draw(st.integers(1, 3 if patch_size == 4 else 1)),
        patch_size=patch_size,
        stem_hidden_dim=draw(st.integers(1, 6)),
        in_chans=draw(st.integers(1, 4)),
        num_classes=draw(st.integers(1, 12)),
        drop_path=draw(st.sampled_from([0.0, 0.2])),
    )


class TestVOLO(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {"lean": (volo_d3(**LEAN_D3), 16)}
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (2, 3, 4)}, "^heads must have one value or 4, one for each stage, not 3"),
        ({"head_dim": (4, 4)}, "^head_dim must have one value or 4, one for each stage, not 2"),
        ({"head_dim": (4, 4, 0, 4)}, "^head_dim of stage 2 must be "),
        ({"heads": (2, 5, 4, 2)}, "12 is not a multiple of 5; give head_dim to decouple"),
        ({"heads": (3, 3, 4, 2), "head_dim": 4}, "8 is not a multiple of 3; give head_dim"),
        ({"heads": (2, 3, 4, 13), "head_dim": 4}, "cannot be more than its .*: 13 is more than 12"),
        ({"embed_dim": (8, 12, 24, 12)}, r"^embed_dim must be the same .* not \(12, 24, 12\)"),
        ({"mlp_ratio": 0}, "^mlp_ratio must be positive"),
        ({"mlp_ratio": (1, 1, 0.01, 1)}, "^mlp_ratio must leave at least one hidden unit"),
        ({"num_classes": 2.5}, "^num_classes must be "),
        ({"drop_path": 1.0}, "^drop_path must lie in "),
        ({"patch_size": 6}, r"^patch_size must be one of \(4, 8, 16\), not 6"),
        ({"image_size": 20}, r"^image_size must be a multiple of .*: 20 is not a multiple of 8"),
    ]
    published: ClassVar = [
        (volo_d3(), 86.325),
        (volo_d3(**LEAN_D3), 47.454),
        (volo_d3(**LEAN_D3, mlp_ratio=2), 38.532),
        (volo_d3(**LEAN_D3, mlp_ratio=4), 56.376),
        (volo_d3(**LEAN_D3, head_dim=32), 62.134),
        (volo_d4(), 192.962),
        (volo_d4(**LEAN_D4), 105.557),
        (volo_d4(**LEAN_D4, mlp_ratio=2), 85.489),
        (volo_d4(**LEAN_D4, mlp_ratio=4), 125.625),
        (volo_d4(**LEAN_D4, head_dim=48), 138.587),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(images)

    @staticmethod
    def group_of(parameter: str) -> str:
        (group,) = [group for group, names in GROUPS.items() if re.match(names, parameter)]
        return group


def test_a_value_for_all_stages_and_one_for_each_are_the_same_model() -> None:
    one = replace(SMALL, embed_dim=12, depth=2, heads=3, head_dim=4, mlp_ratio=2)
    four = replace(
        SMALL,
        embed_dim=[12] * 4,
        depth=(2, 2, 2, 2),
        heads=(3, 3, 3, 3),
        head_dim=(None, 4, 4, 4),
        mlp_ratio=(2, 2.0, 2, 2),
    )
    assert (one, hash(one)) == (four, hash(four))
    assert one.heads == (3, 3, 3, 3)
    assert replace(SMALL, head_dim=(None,) * 4) == replace(SMALL, head_dim=None)


def test_one_head_width_leaves_the_outlookers_coupled_and_four_do_not() -> None:
    assert [stage.head_width for stage in replace(SMALL, head_dim=7).stages] == [4, 7, 7, 7]
    assert replace(SMALL, head_dim=(None, 7, 7, 7)) == replace(SMALL, head_dim=7)
    mixed = replace(SMALL, head_dim=(9, None, 7, 7))
    assert [stage.head_width for stage in mixed.stages] == [9, 4, 7, 7]
    assert [stage.seq_len for stage in mixed.stages] == [16, 4, 4, 4]


def test_the_class_blocks_heads_share_the_width_whatever_the_head_width_is() -> None:
    for head_dim in (None, 7, (9, 9, 9, 9)):
        assert replace(SMALL, head_dim=head_dim).class_stage.inner_dim == 12
    uneven = replace(SMALL, heads=(2, 3, 4, 5), head_dim=7)
    assert uneven.class_stage.inner_dim == 10  # as timm rounds it: five heads of 12 // 5


@pytest.mark.parametrize("training", [True, False])
def test_a_coupled_model_equals_timms_own_in_training_and_evaluation(training: bool) -> None:
    make_torchvision_importable()
    from timm.models import volo as timm_volo

    config = replace(SMALL, head_dim=None, image_size=24, mlp_ratio=(3, 2, 2.5, 4))
    own = timm_volo.VOLO(
        layers=[2, 1, 2, 1],
        img_size=24,
        patch_size=4,
        stem_hidden_dim=4,
        embed_dims=[8, 12, 12, 12],
        num_heads=[2, 3, 4, 2],
        mlp_ratio=(3, 2, 2.5, 4),
        num_classes=6,
    )
    torch.manual_seed(0)
    ours = trained_a_little(config.build())
    own.load_state_dict(ours.state_dict())
    x = images(config, batch_size=4)
    logits = ours.train(training)(x)
    assert logits.shape == (4, 6)
    torch.testing.assert_close(logits, own.train(training)(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["OutlookAttention", "GridAttention", "ClassAttention"])
def test_attention_whose_heads_fill_the_width_equals_timms(name: str) -> None:
    make_torchvision_importable()
    from timm.models import volo as timm_volo

    from models import timm_blocks as ours

    theirs = {
        "OutlookAttention": lambda: timm_volo.OutlookAttention(24, 3, stride=2),
        "GridAttention": lambda: timm_volo.Attention(24, 3),
        "ClassAttention": lambda: timm_volo.ClassAttention(24, 3),
    }[name]()
    torch.manual_seed(1)
    grid = {"kernel": 3, "stride": 2} if name == "OutlookAttention" else {}
    own = "VOLOClassAttention" if name == "ClassAttention" else name
    attention = getattr(ours, own)(24, 3, 8, **grid)
    trained_a_little(attention)
    theirs.load_state_dict(attention.state_dict())
    x = torch.randn(2, 6, 4, 24)
    if name == "ClassAttention":
        x = x.flatten(1, 2)
    torch.testing.assert_close(attention(x), theirs(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, head_dim=(9, 5, 7, 6))])
def test_a_projection_reads_every_heads_output_side_by_side(config: VOLO) -> None:
    model = config.build().eval()
    seen: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if name.endswith("attn.proj"):
            module.register_forward_pre_hook(
                lambda _, inputs, name=name: seen.__setitem__(name, inputs[0])
            )
    model(images(config, batch_size=2))
    parts = ("network.0", "network.2", "network.3", "network.4", "post_network")
    stages = (*config.stages, config.class_stage)
    inner = {part: stage.inner_dim for part, stage in zip(parts, stages, strict=True)}
    tokens = {"network.0": 16, "post_network": 1}
    assert len(seen) == sum(stage.depth for stage in config.stages) + 2
    for name, heads in seen.items():
        part = re.match(r"post_network|network\.\d", name).group()  # type: ignore[union-attr]
        assert heads.shape == (2, tokens.get(part, 4), inner[part]), name


def test_outlook_heads_are_side_by_side_in_the_projections_input() -> None:
    from models.timm_blocks import OutlookAttention

    attention = OutlookAttention(6, 2, 5, kernel=3, stride=2)
    with torch.no_grad():
        attention.v.weight[5:] = 0  # the second head's values
    inputs: list[Tensor] = []
    attention.proj.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    attention(torch.randn(1, 4, 4, 6))
    assert inputs[0][..., :5].abs().min() > 0
    assert inputs[0][..., 5:].abs().max() == 0


def test_fresh_weights_are_spread_as_timms_and_biases_start_at_zero() -> None:
    torch.manual_seed(0)
    model = replace(SMALL, embed_dim=48, heads=4, head_dim=24).build()
    for name, parameter in model.named_parameters():
        if ".attn." in name and name.endswith("weight"):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
        elif ".attn." in name:
            assert parameter.count_nonzero() == 0, name
