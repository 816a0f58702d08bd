"""What every family of models promises, as tests that each family's own test class inherits.

A family subclasses ``ModelContract`` and says how its configurations look: see the attributes and
methods that raise NotImplementedError.
"""

import pickle
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_costs import bytes_kept_per_example, flops_and_output, peak_training_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from models.base import PARAM_GROUPS, ModelConfig
from models.counts import checked_build, train_memory_bytes

M = TypeVar("M", bound=nn.Module)

# Every family's class runs the inherited tests, which hypothesis would take for a mistake.
_PROPERTY = settings(
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.differing_executors,
    ],
)


def images(config: Any, batch_size: int = 1) -> Tensor:
    """Return random images for a model of images."""
    return torch.randn(batch_size, config.in_chans, config.image_size, config.image_size)


def trained_a_little(model: M, alpha: float = 0.1) -> M:
    """Move every parameter, so that zero biases, gains of 1 and small weights hide nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=alpha)
    return model


def check_skipping(config: Any, seed: int) -> None:
    """Check that leaving out tokens that are not read changes neither outputs nor gradients."""
    torch.manual_seed(seed)
    every = trained_a_little(config.build().double())
    skipping = replace(config, skip_unread_tokens=True).build().double()
    skipping.load_state_dict(every.state_dict())
    x = images(config, batch_size=3).double()
    outputs = []
    for model in (every, skipping):
        torch.manual_seed(seed)  # the same blocks are dropped
        outputs.append(model(x))
        outputs[-1].square().sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0])
    for (name, parameter), twin in zip(
        every.named_parameters(), skipping.parameters(), strict=True
    ):
        torch.testing.assert_close(twin.grad, parameter.grad, msg=name)


class ModelContract:
    """Subclass it as ``class TestViT(ModelContract)`` and fill in what raises.

    Attributes:
        coupled, decoupled: small configurations to train a step, ``head_dim`` free or given.
        realistic: name -> (configuration, batch size) of published size, for the memory's peak.
        impossible: (settings that break ``coupled``, a pattern of the complaint).
        published: (configuration, millions of parameters that it is known to have).
    """

    coupled: ClassVar[Any]
    decoupled: ClassVar[Any]
    realistic: ClassVar[dict[str, tuple[Any, int]]]
    impossible: ClassVar[list[tuple[dict[str, Any], str]]]
    published: ClassVar[list[tuple[Any, float]]] = []

    @staticmethod
    def configs() -> st.SearchStrategy[Any]:
        """Return a strategy for small random configurations, coupled and decoupled."""
        raise NotImplementedError

    @staticmethod
    def inputs(config: Any, batch_size: int) -> Tensor:
        """Return a random input of the model, for a batch of examples."""
        raise NotImplementedError

    @staticmethod
    def group_of(parameter: str) -> str:
        """Return which of ``PARAM_GROUPS`` the parameter of that name belongs to."""
        raise NotImplementedError

    @staticmethod
    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Return a training loss; cross entropy over the last axis unless overridden."""
        logits = model(*batch)
        targets = torch.zeros(logits.shape[:-1], dtype=torch.long)
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten())

    @_PROPERTY
    @given(data=st.data())
    def test_counted_parameters_are_the_built_ones_in_every_group(self, data: Any) -> None:
        config = data.draw(self.configs())
        built = dict.fromkeys(PARAM_GROUPS, 0)
        for name, parameter in checked_build(config).named_parameters():
            built[self.group_of(name)] += parameter.numel()
        assert built == config.counts().params

    @_PROPERTY
    @given(data=st.data())
    def test_counted_operations_and_outputs_are_torchs(self, data: Any) -> None:
        config = data.draw(self.configs())
        flops, output = flops_and_output(config.build(), self.inputs(config, 1))
        assert config.counts().forward_flops == pytest.approx(flops, rel=0.01)
        assert config.counts().output_elements == output.numel()

    @_PROPERTY
    @given(data=st.data())
    def test_counted_activations_are_what_autograd_keeps(self, data: Any) -> None:
        config = data.draw(self.configs())
        measured = bytes_kept_per_example(config.build(), self.inputs(config, 1)) / 4
        assert config.counts().activation_elements == pytest.approx(measured, rel=0.15)

    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_estimated_memory_is_the_peak_of_a_training_step(self, precision: str) -> None:
        for name, (config, batch_size) in self.realistic.items():
            measured = peak_training_bytes(
                config,
                lambda config=config, size=batch_size: (self.inputs(config, size),),  # type: ignore[misc]
                self.loss,
                bfloat16=precision == "bfloat16",
            )
            estimate = train_memory_bytes(
                config.counts(), batch_size=batch_size, optimizer="adamw", precision=precision
            )
            assert estimate == pytest.approx(measured, rel=0.15), name

    @pytest.mark.parametrize("kind", ["coupled", "decoupled"])
    def test_a_training_step_gives_every_parameter_a_finite_gradient(self, kind: str) -> None:
        config: ModelConfig = getattr(self, kind)
        torch.manual_seed(0)
        model = config.build()
        self.loss(model, (self.inputs(config, 3),)).backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name

    @pytest.mark.parametrize("kind", ["coupled", "decoupled"])
    def test_the_same_seed_builds_the_same_weights_and_outputs(self, kind: str) -> None:
        config: ModelConfig = getattr(self, kind)
        outputs = []
        for _ in range(2):
            torch.manual_seed(7)
            model = config.build().eval()
            outputs.append(model(self.inputs(config, 2)))
        assert torch.equal(*outputs)

    def test_a_compiled_model_is_one_graph_and_computes_the_same(self) -> None:
        torch.manual_seed(0)
        model = self.decoupled.build()
        x = self.inputs(self.decoupled, 4)
        # Neither backend needs a compiler; what is held is that there is one graph to compile.
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        results = []
        for network in (model, compiled):
            torch.manual_seed(1)  # of dropped paths and numbers
            loss = self.loss(network, (x,))
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            results.append((loss.detach(), *gradients))
        torch.compiler.reset()
        torch.testing.assert_close(*results)

    def test_bfloat16_gives_close_outputs_and_gradients(self) -> None:
        torch.manual_seed(0)
        model = self.decoupled.build()
        x = self.inputs(self.decoupled, 16)
        results = []
        for bfloat16 in (False, True):
            torch.manual_seed(1)
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                loss = self.loss(model, (x,))
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            results.append((loss.detach(), torch.cat([each.flatten() for each in gradients])))
        (loss, gradient), (narrow_loss, narrow_gradient) = results
        assert narrow_loss.item() == pytest.approx(loss.item(), rel=0.03)
        assert narrow_gradient.isfinite().all()
        assert F.cosine_similarity(gradient, narrow_gradient, dim=0) > 0.99

    def test_published_shapes_have_their_parameter_counts_built_and_counted(self) -> None:
        for config, millions in self.published:
            checked_build(config)
            assert round(config.counts().num_params / 1e6, 3) == millions, config

    def test_an_impossible_shape_is_refused_by_rule_and_values(self) -> None:
        for changes, complaint in self.impossible:
            settings_of = {name: getattr(self.coupled, name) for name in self.coupled.__slots__}
            with pytest.raises(ValueError, match=complaint):
                type(self.coupled)(**{**settings_of, **changes})

    def test_a_configuration_travels_to_workers_and_keeps_its_identity(self) -> None:
        for config in (self.coupled, self.decoupled):
            assert pickle.loads(pickle.dumps(config)) == config
            assert hash(pickle.loads(pickle.dumps(config))) == hash(config)
            assert isinstance(config, ModelConfig)
            assert (config.head_dim is None) is (config is self.coupled)
