"""Graph Transformers, against PyG's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GPSConv
from torch_geometric.nn.models import SGFormer as PyGs

from gnnsafe import Outputs
from gnnsafe.models import GPS, SGFormer
from gnnsafe.models.gps import GPSLayer
from gnnsafe.models.sgformer import simple_attention


def pygs_sgformer(model: SGFormer) -> PyGs:
    width = model.head.in_features
    other = PyGs(
        model.in_channels, width, model.head.out_features, len(model.queries), 1, 0.0, len(model.convolutions), 0.0,
        model.graph_weight,
    )  # fmt: skip
    state = {"fc.weight": model.head.weight, "fc.bias": model.head.bias}
    everywhere, near = (part.T for part in model.weight.detach().chunk(2, dim=1))
    state |= {"trans_conv.fcs.0.weight": everywhere, "trans_conv.fcs.0.bias": model.bias}
    state |= {"graph_conv.fcs.0.weight": near, "graph_conv.fcs.0.bias": torch.zeros(width)}
    for index, parts in enumerate(zip(model.queries, model.keys, model.values, strict=True)):
        state |= {
            f"trans_conv.attns.{index}.{name}.weight": part.weight for name, part in zip("qkv", parts, strict=True)
        }
    for index, part in enumerate(model.convolutions):
        state |= {
            f"graph_conv.convs.{index}.lin.weight": part.weight,
            f"graph_conv.convs.{index}.bias": torch.zeros(width),
        }
    for branch, norms in (("trans_conv", model.layer_norms), ("graph_conv", model.norms)):
        for index, norm in enumerate(norms):
            state |= {f"{branch}.bns.{index}.{name}": value for name, value in norm.state_dict().items()}
    other.load_state_dict(state)
    return other.train(model.training)


def shaken(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_sgformer_is_pygs(graph, training, layers):
    torch.manual_seed(0)
    model = shaken(SGFormer(graph.x.shape[1], 8, 3, attention_layers=layers, graph_weight=0.3)).train(training)
    other = pygs_sgformer(model)
    expected = other(graph.x, graph.edge_index, torch.zeros(len(graph.x), dtype=torch.int64))
    logits = model(graph.x, graph.edge_index)
    torch.testing.assert_close(logits.log_softmax(dim=1), expected, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(expected)
    (logits.log_softmax(dim=1) * direction).sum().backward()
    (expected * direction).sum().backward()
    torch.testing.assert_close(model.head.weight.grad, other.fc.weight.grad, rtol=1e-3, atol=1e-4)
    theirs = other.trans_conv.attns[0].q.weight.grad
    torch.testing.assert_close(model.queries[0].weight.grad, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_of_gps_is_pygs(graph, training):
    torch.manual_seed(0)
    model = shaken(GPS(graph.x.shape[1], 8, 3, num_layers=1)).train(training)
    ours = model.layers[0]
    assert isinstance(ours, GPSLayer)
    kwargs = {"head_channels": 8, "attn_out_bias": False}
    other = GPSConv(8, GCNConv(8, 8, bias=False), attn_type="performer", attn_kwargs=kwargs).train(training)
    state = {"conv.lin.weight": ours.convolution.weight, "attn.attn_out.weight": ours.out.weight}
    state |= {
        f"attn.{name}.weight": part.weight for name, part in zip("qkv", (ours.query, ours.key, ours.value), strict=True)
    }
    state |= {"attn.fast_attn.projection_matrix": ours.projection}
    state |= {"mlp.0.weight": ours.widen.weight, "mlp.0.bias": ours.widen.bias}
    state |= {"mlp.3.weight": ours.narrow.weight, "mlp.3.bias": torch.zeros(8)}
    for number, norm in enumerate(ours.norms, 1):
        state |= {f"norm{number}.module.{name}": value for name, value in norm.state_dict().items()}
    other.load_state_dict(state)
    hidden = graph.x @ model.weight.detach() + model.bias.detach()
    expected = other(hidden, graph.edge_index)
    logits = model(graph.x, graph.edge_index)
    torch.testing.assert_close(logits, expected @ model.head.weight.T + model.head.bias, rtol=1e-3, atol=1e-4)


def test_the_projection_has_orthogonal_rows():
    projection = GPSLayer(8, 0.0)
    projection.reset_parameters()
    first = projection.projection[:8]
    torch.testing.assert_close(first @ first.T, torch.eye(8), atol=1e-5, rtol=0)
    assert projection.projection.shape == (16, 8)  # 8 log 8 = 16.6


def test_zeros_in_queries_and_keys():
    assert simple_attention(torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(3, 2)).isfinite().all()


@pytest.mark.parametrize("kind", [SGFormer, GPS])
def test_one_channel_and_one_node(kind):
    model = kind(2, 1, 2).eval()
    data = Outputs.of(
        model, type("Graph", (), {"x": torch.rand(1, 2), "edge_index": torch.empty(2, 0, dtype=torch.int64)})()
    )
    assert data.logits.isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGFormer(2, 4, 2, graph_weight=2.0), r"'graph_weight' must lie in \[0, 1\]"),
        (lambda: SGFormer(2, 4, 2, attention_layers=0), "'attention_layers' must be"),
        (lambda: SGFormer(2, 4, 2, dropout=1.0), "'dropout' must lie"),
        (lambda: GPS(2, 0, 2), "'hidden_channels' must be"),
        (lambda: GPS(2, 4, 2, dropout=-0.1), "'dropout' must lie"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
