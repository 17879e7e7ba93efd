"""What every model must keep; it runs over the MODELS table."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from inspect import signature

import pytest
import scipy.sparse as sp
import torch

from gnnsafe import CrossEntropy, Outputs, train
from gnnsafe.metrics import accuracy
from gnnsafe.models import MODELS
from gnnsafe.models.base import Backbone
from gnnsafe.prepared import prepare
from gnnsafe.sparse import Sparse
from gnnsafe.staged import Staged, Whole, staged

everyone = pytest.mark.parametrize("name", MODELS)
chains = pytest.mark.parametrize("name", [name for name, model in MODELS.items() if issubclass(model, Backbone)])
BLIND = {"mlp"}  # to edges, on purpose
GLOBAL = {"sgformer", "gps"}  # in which every node hears every other, whatever the edges


@everyone
def test_logits_of_the_right_shape_and_dtype(name, directed):
    logits = MODELS[name](6, 8, 3)(directed.x, directed.edge_index)
    assert logits.shape == (5, 3)
    assert logits.dtype == torch.float32


@everyone
def test_the_order_of_nodes_does_not_matter(name, directed):
    model = MODELS[name](6, 8, 3).eval()
    order = torch.tensor([3, 0, 4, 2, 1])
    place = torch.argsort(order)
    shuffled = model(directed.x[order], place[directed.edge_index].flip(1))
    torch.testing.assert_close(shuffled, model(directed.x, directed.edge_index)[order])


@pytest.mark.parametrize("name", [name for name in MODELS if name not in BLIND | GLOBAL])
def test_a_node_hears_those_that_point_to_it(name):
    model = MODELS[name](2, 8, 2).eval()
    x, edges = torch.rand(2, 2), torch.tensor([[0], [1]])
    changed = x.clone()
    changed[1] += 1.0
    assert torch.equal(model(x, edges)[0], model(changed, edges)[0])  # nothing flows back from 1 to 0
    changed = x.clone()
    changed[0] += 1.0
    assert not torch.equal(model(x, edges)[1], model(changed, edges)[1])


@chains
def test_one_constructor(name):
    shape = [(parameter.name, parameter.kind) for parameter in signature(Backbone).parameters.values()]
    parameters = signature(MODELS[name]).parameters.values()
    assert [(parameter.name, parameter.kind) for parameter in parameters][: len(shape)] == shape
    assert all(parameter.default is not parameter.empty for parameter in list(parameters)[3:])


@chains
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 8, 3), {}, r"'in_channels' must be a whole number >= 1 \(got 0\)"),
        ((6, 8.5, 3), {}, r"'hidden_channels' must be a whole number >= 1 \(got 8.5\)"),
        ((6, 8, -3), {}, r"'out_channels' must be a whole number >= 1 \(got -3\)"),
        ((6, 8, 3, 0), {}, r"'num_layers' must be a whole number >= 1 \(got 0\)"),
        ((6, 8, 3), {"dropout": 1.0}, r"'dropout' must lie in \[0, 1\) \(got 1.0\)"),
    ],
)
def test_bad_settings(name, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        MODELS[name](*arguments, **options)


@everyone
@pytest.mark.parametrize(
    ("x", "edge_index", "message"),
    [
        (torch.rand(5, 7), None, r"'x' must have 6 features \(got 7\)"),
        (torch.rand(5), None, r"'x' must be a floating tensor of shape \[nodes, features\]"),
        (torch.rand(5, 6).double(), None, r"'x' must be torch.float32 as the model is"),
        (torch.full((5, 6), torch.nan), None, r"'x' must be finite"),
        (torch.rand(2, 6), None, r"'edge_index' must hold node ids < 2"),
        (torch.rand(5, 6), [[0], [1]], r"'edge_index' must be a torch.Tensor"),
    ],
)
def test_bad_graphs(name, directed, x, edge_index, message):
    with pytest.raises(ValueError, match=message):
        MODELS[name](6, 8, 3)(x, directed.edge_index if edge_index is None else edge_index)


@everyone
def test_sparse_features_give_the_same(name, words):
    model = MODELS[name](200, 8, 3).eval()
    sparse = Sparse(sp.csr_array(words.x.numpy())).csr
    torch.testing.assert_close(model(sparse, words.edge_index), model(words.x, words.edge_index))


@chains
@pytest.mark.parametrize("batch_norm", [True, False])
def test_the_penultimate_embedding_is_given_and_leads_to_the_logits(name, graph, batch_norm):
    model = MODELS[name](graph.x.shape[1], 8, 3, batch_norm=batch_norm)
    outputs = Outputs.of(model, graph)
    assert outputs.embeddings.dim() == 2
    assert len(outputs.embeddings) == graph.num_nodes
    assert torch.equal(outputs.again(edit=lambda embeddings: embeddings).logits, outputs.logits)
    silent = outputs.again(edit=torch.zeros_like).logits
    assert not torch.equal(silent, outputs.logits)
    alike = silent - silent.mean(dim=1, keepdim=True)  # no class is preferred: all biases of a fresh model are 0
    torch.testing.assert_close(alike, torch.zeros_like(silent))


@everyone
def test_gradients_reach_features_and_weights(name, directed):
    torch.manual_seed(0)
    model = MODELS[name](6, 8, 3).double().eval()
    x = directed.x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(x, directed.edge_index), x)
    model.train()
    (model(x, directed.edge_index) * torch.randn(5, 3)).sum().backward()
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in model.parameters())


@everyone
def test_double_precision_stays_double(name, directed):
    assert MODELS[name](6, 8, 3).double()(directed.x.double(), directed.edge_index).dtype == torch.float64


@everyone
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_nearly_the_same(name, directed, dtype):
    """GraphSAGE's averages over neighbours were refused by numpy, which has no bfloat16."""
    torch.manual_seed(0)
    model = MODELS[name](6, 8, 3).eval()
    expected = model(directed.x, directed.edge_index)
    logits = model.to(dtype)(directed.x.to(dtype), directed.edge_index)
    largest = float(expected.detach().abs().max())
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=0.05 * largest)


@everyone
def test_every_node_alone(name, directed):
    logits = MODELS[name](6, 8, 3).eval()(directed.x, torch.empty(2, 0, dtype=torch.int64))
    assert logits.isfinite().all()


@everyone
@pytest.mark.parametrize(("tensor", "place", "value"), [("edge_index", (1, 0), 4), ("x", (0, 0), 9.0)])
def test_a_graph_changed_behind_torchs_back_is_seen(name, directed, tensor, place, value):
    model = MODELS[name](6, 8, 3).eval()
    before = model(directed.x, directed.edge_index)
    getattr(directed, tensor).numpy()[place] = value
    after = model(directed.x, directed.edge_index)
    torch.testing.assert_close(after, model(directed.x.clone(), directed.edge_index.clone()))
    assert torch.equal(before, after) == (name in BLIND and tensor == "edge_index")


@everyone
def test_what_is_remembered_is_freed_with_the_graph(name):
    x, edge_index = torch.rand(5, 6), torch.tensor([[0], [1]])
    model = MODELS[name](6, 8, 3)
    model(x, edge_index)
    alive = [weakref.ref(x), weakref.ref(edge_index)]
    del x, edge_index
    gc.collect()
    assert [tensor() for tensor in alive] == [None, None]


@everyone
def test_reset_parameters_starts_over(name, directed):
    model, fresh = MODELS[name](6, 8, 3), MODELS[name](6, 8, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    model(directed.x, directed.edge_index)
    for one in (model, fresh):
        torch.manual_seed(0)
        one.reset_parameters()
    for key, value in fresh.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


@everyone
def test_dropout_only_in_training(name, directed):
    model = MODELS[name](6, 64, 3, dropout=0.5)
    first, second = (model(directed.x, directed.edge_index) for _ in range(2))
    assert torch.equal(first, second) == (name == "sgc")  # which has no hidden layer
    model.eval()
    assert torch.equal(model(directed.x, directed.edge_index), model(directed.x, directed.edge_index))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gpn"])
def test_it_learns(name, blocks):
    model = MODELS[name](8, 16, 3)
    train(model, blocks, objective=CrossEntropy(), epochs=100)
    assert accuracy(model(blocks.x, blocks.edge_index), blocks.y, blocks.test_mask) > 0.8


@everyone
@pytest.mark.parametrize("training", [True, False])
def test_stages_are_the_forward(name, directed, training):
    model = MODELS[name](6, 8, 3).train(training)
    stages = staged(model)
    inputs = stages.prepare(prepare(directed))
    torch.manual_seed(1)  # dropout
    parts = stages.tail(stages.stem(inputs), inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(parts, model(directed.x, directed.edge_index))


@everyone
def test_another_forward_is_not_passed_over(name):
    plain = MODELS[name](6, 8, 3)
    assert staged(plain) is plain

    class Louder(MODELS[name]):
        def forward(self, x, edge_index):
            return 2 * super().forward(x, edge_index)

    assert isinstance(staged(Louder(6, 8, 3)), Whole)
    plain.forward = lambda x, edge_index: x
    assert isinstance(staged(plain), Whole)
    hooked = MODELS[name](6, 8, 3)
    hooked.register_forward_hook(lambda *_: None)
    assert isinstance(staged(hooked), Whole)


@pytest.mark.parametrize("name", sorted(GLOBAL))
def test_those_that_hear_everybody_have_no_receptive_field(name, directed):
    model = MODELS[name](6, 8, 3).eval()
    assert model.reach is None
    changed = directed.x.clone()
    changed[4] += 1.0  # which no edge joins to anybody
    before, after = (model(x, directed.edge_index) for x in (directed.x, changed))
    assert (before != after).any(dim=1).all()


def test_a_model_without_stages_is_all_tail(directed):
    model = torch.nn.Module()
    model.forward = lambda x, edge_index: x * len(edge_index[0])
    stages = staged(model)
    assert isinstance(stages, Whole)
    assert isinstance(stages, Staged)
    inputs = stages.prepare(prepare(directed))
    assert torch.equal(stages.tail(stages.stem(inputs), inputs), 7 * directed.x)


@everyone
def test_it_remembers_what_it_was_constructed_with(name):
    own = {"mixhop": {"hops": 3}, "gat": {"heads": 3}, "appnp": {"steps": 3}, "gpn": {"latent_channels": 5}}
    own |= {"ensemble": {"members": 3}, "sgformer": {"graph_weight": 0.3}}
    own = own.get(name, {})
    model = MODELS[name](6, out_channels=3, hidden_channels=8, **own)
    expected = {"in_channels": 6, "hidden_channels": 8, "out_channels": 3, **own}
    assert expected.items() <= model.arguments.items()
    assert set(model.arguments) == set(signature(MODELS[name]).parameters)
    assert copy.deepcopy(model).arguments == pickle.loads(pickle.dumps(model)).arguments == model.arguments
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        MODELS[name](6, 8, 3, colour="red")
