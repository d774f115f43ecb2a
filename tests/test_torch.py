"""PyTorch modules: the numbers that JAX gets, limits that are told, modules left as they were."""

import copy
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

import counterflow as cf
import counterflow.torch
import same_network
from counterflow.cli import main
from counterflow.data.digits import digits
from counterflow.networks.paper_network import cross_entropy, glorot_uniform
from counterflow.problem.tree import distance, norm
from counterflow.runs.run import open_run
from users import import_as_users_do

torch.set_num_threads(1)
DOUBLE = torch.float64


def relative(one, other):
    return float(distance(one, other) / norm(other))


# --- the same network in both ---------------------------------------------------------------

DIGITS = digits()
INPUTS, TARGETS = DIGITS.inputs[:200], DIGITS.targets[:200]
NAMES = {"input": "0.weight", "hidden": "2.weight", "readout": "4.weight"}


def as_jax(params):
    return {ours: params[theirs].T for ours, theirs in NAMES.items()}


@pytest.fixture(scope="module")
def both():
    """The paper's network: our problem and params, PyTorch's problem and params, the module."""
    ours = glorot_uniform((64, 6, 5, 10))
    module = nn.Sequential(
        nn.Linear(64, 6, bias=False),
        nn.SiLU(),
        nn.Linear(6, 5, bias=False),
        nn.BatchNorm1d(5, eps=1e-300, affine=False),
        nn.Linear(5, 10, bias=False),
    ).double()
    counterflow.torch.load(module, {NAMES[name]: leaf.T for name, leaf in ours.items()})
    theirs, params = cf.torch.problem(module, nn.CrossEntropyLoss(), INPUTS, TARGETS, 1e-3)
    return cf.Problem(cross_entropy, (INPUTS, TARGETS), 1e-3), ours, theirs, params, module


def test_the_gradient_and_its_derivative_are_those_of_jax(both):
    problem, ours, module_problem, params, _ = both
    assert relative(as_jax(params), ours) == 0
    np.testing.assert_allclose(module_problem.loss(params), problem.loss(ours), rtol=1e-14)
    gradient = jax.jit(module_problem.gradient)(params)
    assert relative(as_jax(gradient), problem.gradient(ours)) < 1e-12
    product = jax.jit(module_problem.hessian_vector_product)(params, gradient)
    expected = problem.hessian_vector_product(ours, problem.gradient(ours))
    assert relative(as_jax(product), expected) < 1e-12


def test_the_first_counter_term_is_that_of_jax(both):
    problem, ours, module_problem, params, _ = both
    expected = cf.counter_term(problem, ours, 0)
    for method in ("taylor", "lie"):
        term = cf.counter_term(module_problem, params, 0, method=method)
        assert relative(as_jax(term), expected) < 1e-12


def test_error_curves_and_verdict_are_those_of_jax(both):
    problem, ours, module_problem, params, _ = both

    def results(problem, params):
        flow = cf.EquationOfMotion(problem, 0.01, order=2, method="orbit")
        options = {"orders": (0, 1, 2), "records": [2, 5], "method": "orbit", "rtol": 1e-9}
        run = cf.compare(problem, params, 0.01, 5, **options, predict=False)
        return run.error, flow.convergence(params).verdict

    curves, verdict = results(module_problem, params)
    expected, expected_verdict = results(problem, ours)
    assert verdict == expected_verdict
    np.testing.assert_allclose(curves, expected, rtol=1e-5, atol=1e-12)


def test_the_network_of_all_libraries_is_the_same_here(tmp_path):
    start = same_network.weights()
    widths = same_network.WIDTHS
    module = nn.Sequential(
        nn.Linear(*widths[:2], bias=False),
        nn.SiLU(),
        nn.Linear(*widths[1:3], bias=False),
        nn.BatchNorm1d(widths[2], eps=same_network.EPSILON, affine=False),
        nn.Linear(*widths[2:], bias=False),
    ).double()
    cf.torch.load(module, {NAMES[name]: leaf.T for name, leaf in start.items()})
    images, classes = same_network.data()
    problem, params = cf.torch.problem(
        module, nn.CrossEntropyLoss(), images, classes, same_network.WEIGHT_DECAY
    )

    def leaves(params):
        return as_jax(params).values()

    same_network.assert_same(problem, params, leaves, method="orbit")
    expected = same_network.claims(same_network.problem(), start, tmp_path / "jax")
    assert {"symmetries", "errors", "learning_rates", "charges"} <= expected[0].keys()
    assert same_network.claims(problem, params, tmp_path / "torch") == expected


def test_symmetries_are_found(both):
    *_, problem, params, _ = both
    kinds = {(type(found).__name__, str(found)) for found in cf.find_symmetries(problem, params)}
    assert kinds == {
        ("Scale", "Scale('2.weight', axis=0)"),
        ("Translation", "Translation('4.weight', axis=1)"),
    }


def test_a_file_goes_to_a_report(tmp_path, capsys):
    file = Path(__file__).parents[1] / "examples" / "torch_model.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 20
    settings = "--learning-rate 0.1 --steps 4 --orders 0 1 --records 2".split()
    assert main(["run", f"{file}:problem", *settings, "--folder", str(tmp_path)]) == 0
    assert "claims hold" in capsys.readouterr().out
    (run,) = tmp_path.iterdir()
    assert (run / "report.html").is_file()
    assert open_run(run).configuration.method == "orbit"
    # What needs third derivatives is refused before a run is made.
    taylor = ["--method", "taylor", "--folder", str(tmp_path / "none")]
    assert main(["run", f"{file}:problem", *settings, *taylor]) == 2
    shown = capsys.readouterr().err
    assert "`method` must be 'orbit' for this problem" in shown
    assert "no third derivatives" in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "none").exists()


def test_the_module_is_left_as_it_was_and_does_not_change_the_problem():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    before = copy.deepcopy(module.state_dict())
    inputs, targets = torch.randn(9, 3, dtype=DOUBLE), torch.randn(9, 1, dtype=DOUBLE)
    threads = torch.get_num_threads()
    problem, params = cf.torch.problem(module, F.mse_loss, inputs, targets, threads=2)
    value = problem.loss(params)
    problem.hessian_vector_product(params, problem.gradient(params))
    jax.jit(problem.gradient)(params)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert module.training
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert torch.get_num_threads() == threads
    module.eval()
    counterflow.torch.load(module, jax.tree.map(jnp.zeros_like, params))
    inputs.zero_()
    targets.zero_()
    with torch.no_grad():
        assert problem.loss(params) == value
        assert norm(problem.gradient(params)) > 0


# --- params and modules ---------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 3)
        self.decode = nn.Linear(3, 3, bias=False)
        self.decode.weight = self.encode.weight
        self.frozen = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)

    def forward(self, x):
        return self.frozen * self.decode(torch.tanh(self.encode(x)))


def test_tied_params_come_once_and_frozen_ones_not_at_all():
    module, x = Tied().double(), torch.randn(5, 3, dtype=DOUBLE)
    problem, params = cf.torch.problem(module, F.mse_loss, x, x)
    assert {name: leaf.shape for name, leaf in params.items()} == {
        "encode.weight": (3, 3),
        "encode.bias": (3,),
    }
    F.mse_loss(module(x), x).backward()
    gradient = problem.gradient(params)
    for name, leaf in module.named_parameters():
        if leaf.requires_grad:
            np.testing.assert_allclose(gradient[name], leaf.grad, rtol=1e-13)
    moved = jax.tree.map(lambda leaf: leaf + 1, params)
    assert counterflow.torch.load(module, moved) is module
    np.testing.assert_array_equal(module.decode.weight.detach(), moved["encode.weight"])
    np.testing.assert_array_equal(module.frozen.detach(), [2.0, 2.0, 2.0])
    again = cf.torch.problem(module, F.mse_loss, x, x)[1]
    assert relative(again, moved) == 0


def test_gradient_descent_is_that_of_pytorch():
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    x = torch.randn(8, 2, dtype=DOUBLE)
    problem, params = cf.torch.problem(module, F.mse_loss, x, x[:, :1], weight_decay=0.1)
    run = cf.solve(cf.GradientDescent(problem, 0.5), params, [10 * 0.5])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, weight_decay=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        F.mse_loss(module(x), x[:, :1]).backward()
        optimizer.step()
    for name, leaf in module.named_parameters():
        np.testing.assert_allclose(run.params[name][-1], leaf.detach(), rtol=1e-12)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True)

    def forward(self, x, y):
        return self.layer(x + y)[..., 0]


@pytest.mark.parametrize(
    "module",
    [
        Attention(),
        nn.Sequential(nn.Flatten(), nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU()),
        nn.Sequential(nn.Conv1d(3, 2, 2), nn.GroupNorm(1, 2), nn.MaxPool1d(2), nn.Flatten()),
        nn.Sequential(nn.Flatten(), nn.Linear(12, 1)).eval(),
    ],
    ids=["attention with two inputs", "ReLU", "convolution", "eval mode that changes nothing"],
)
def test_products_are_differences_of_gradients(module):
    module, x = module.double(), torch.randn(50, 3, 4, dtype=DOUBLE)
    inputs = (x, 2 * x) if isinstance(module, Attention) else x
    problem, params = cf.torch.problem(module, lambda y, _: (y**4).mean(), inputs, x)
    vector = jax.tree.map(jnp.ones_like, params)
    product = problem.hessian_vector_product(params, vector)
    ahead, behind = (
        problem.gradient(jax.tree.map(lambda p, h=h: p + h, params)) for h in (1e-8, -1e-8)
    )
    quotient = jax.tree.map(lambda a, b: (a - b) / 2e-8, ahead, behind)
    assert relative(product, quotient) < 1e-5


def test_a_loss_that_is_linear_has_no_hessian():
    x = torch.randn(5, 3, dtype=DOUBLE)
    problem, params = cf.torch.problem(nn.Linear(3, 1).double(), lambda y, _: y.mean(), x, x)
    assert norm(problem.hessian_vector_product(params, params)) == 0


# --- what works with it ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    x = torch.randn(20, 2, dtype=DOUBLE)
    return cf.torch.problem(module, F.mse_loss, x, torch.sin(x[:, :1]))


THIRD = 'no third derivatives: use method="orbit"'


@pytest.mark.parametrize(
    "call",
    [
        lambda problem, params: cf.counter_term(problem, params, 1),
        lambda problem, params: cf.counter_term(problem, params, 1, method="lie"),
        lambda problem, params: cf.EquationOfMotion(problem, 0.1, 2).velocity(params),
        lambda problem, params: cf.EquationOfMotion(problem, 0.1, 1).convergence(params),
        lambda problem, params: cf.solve(cf.EquationOfMotion(problem, 0.1, 2), params, [1.0]),
        lambda problem, params: cf.compare(problem, params, 0.1, 2),
        lambda problem, params: cf.predict_error(problem, params, 0.1, 2, order=1),
        lambda problem, params: jax.jit(lambda p: cf.counter_term(problem, p, 1))(params),
    ],
)
def test_third_derivatives_are_refused_with_a_remedy(small, call):
    with pytest.raises(NotImplementedError, match=THIRD):
        call(*small)


def test_what_needs_two_derivatives_or_gradients_alone_works(small):
    problem, params = small
    first = cf.EquationOfMotion(problem, 0.1, 1).velocity(params)
    orbit = cf.EquationOfMotion(problem, 0.1, 1, "orbit").velocity(params)
    assert relative(orbit, first) < 0.05
    prediction = cf.predict_error(problem, params, 0.01, 10)
    comparison = cf.compare(problem, params, 0.01, 10, (0, 1), records=1, method="orbit")
    assert prediction.propagated.norms[-1] == pytest.approx(comparison.error[0, -1], rel=0.05)
    assert comparison.error[1, -1] < comparison.error[0, -1] / 10
    bound = cf.learning_rate_bound(problem, params, time=0.1, tolerance=1e-3)
    assert 0 < float(bound) < 10
    options = {"time": 0.1, "tolerance": 1e-5, "order": 1, "verify": True}
    first = cf.learning_rate_bound(problem, params, method="orbit", kind="propagated", **options)
    assert 0.8 < first.slack <= 1
    ahead = cf.fast_forward(problem, params, learning_rate=0.01, steps=500, tolerance=1e-4)
    assert ahead.relative_error < 1e-4


def test_the_report_measures_what_there_is(small):
    report = cf.check_problem(*small)
    assert report.ok, report
    assert "2 continuous derivatives" in report["smoothness"].message
    assert "orbit works; taylor and lie are not available" in report["methods"].message
    assert "not available (see methods)" in report["smoothness"].message
    assert str(report).count("no third derivatives") == 1


# --- bad input ------------------------------------------------------------------------------


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x**2

    @staticmethod
    def backward(ctx, slope):
        return 3 * slope


class WrongDoubleBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return 2 * x.detach() * slope


class Noise(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.randn(len(x), 1, dtype=DOUBLE)


def linear(**options):
    return nn.Linear(3, 1, **options).double()


X, Y = torch.randn(6, 3, dtype=DOUBLE), torch.randn(6, 1, dtype=DOUBLE)
NORMALIZED = nn.Sequential(linear(), nn.BatchNorm1d(1, dtype=DOUBLE))
INTEGERS = nn.Linear(3, 1).double()
INTEGERS.weight = nn.Parameter(torch.ones(1, 3, dtype=torch.int64), requires_grad=False)
INTEGERS.bias.requires_grad_(False)
ELSEWHERE = linear()
with FakeTensorMode():  # as if there were a GPU
    ELSEWHERE.weight = nn.Parameter(torch.empty(1, 3, dtype=DOUBLE, device="cuda"))

BAD = {
    "a function": ((lambda x: x, F.mse_loss, X, Y), TypeError, ["`torch.nn.Module`", "function"]),
    "eval mode with batch normalization": (
        (copy.deepcopy(NORMALIZED).eval(), F.mse_loss, X, Y),
        ValueError,
        ["must be in training mode", "module.train()"],
    ),
    "one layer in eval mode": (
        (nn.Sequential(linear(), copy.deepcopy(NORMALIZED[1]).eval()), F.mse_loss, X, Y),
        ValueError,
        ["must be in training mode"],
    ),
    "eval mode with dropout": (
        (nn.Sequential(linear(), nn.Dropout()).eval(), F.mse_loss, X, Y),
        ValueError,
        ["must be in training mode", "dropout has to go"],
    ),
    "dropout": (
        (nn.Sequential(linear(), nn.Dropout()), F.mse_loss, X, Y),
        ValueError,
        ["must be deterministic", "take out '1', or set p=0"],
    ),
    "noise": ((Noise(3, 1).double(), F.mse_loss, X, Y), ValueError, ["must be deterministic"]),
    "float32 parameters": (
        (nn.Linear(3, 1), F.mse_loss, X, Y),
        TypeError,
        ["'weight' is of float32", "`copy.deepcopy(module).double()`"],
    ),
    "float16 parameters": (
        (nn.Linear(3, 1).half(), F.mse_loss, X, Y),
        TypeError,
        ["float16", "`copy.deepcopy(module).double()`"],
    ),
    "integer parameters": (
        (INTEGERS, F.mse_loss, X, Y),
        ValueError,
        ["must have a trainable parameter", "'weight' of int64"],
    ),
    "no parameters": ((nn.Tanh(), F.mse_loss, X, X), ValueError, ["none at all"]),
    "a loss per sample": (
        (linear(), nn.MSELoss(reduction="none"), X, Y),
        ValueError,
        ["must return one number", "(6, 1)", 'reduction="mean"'],
    ),
    "a loss that is a float": ((linear(), lambda y, _: 1.0, X, Y), ValueError, ["got float"]),
    "a loss that is no function": ((linear(), 3, X, Y), TypeError, ["loss(outputs, targets)"]),
    "a loss in float32": (
        (linear(), lambda y, _: y.float().mean(), X, Y),
        TypeError,
        ["float32", ".float()"],
    ),
    "float32 inputs": (
        (linear(), F.mse_loss, X.float(), Y),
        TypeError,
        ["`inputs` must be of float64", "float32", "inputs.double()"],
    ),
    "float32 targets": (
        (linear(), F.mse_loss, X, Y.float().numpy()),
        TypeError,
        ["`targets` must be of float64", "targets.double()"],
    ),
    "inputs that are no tensor": ((linear(), F.mse_loss, "x", Y), TypeError, ["`inputs`", "str"]),
    "a module elsewhere": (
        (ELSEWHERE, F.mse_loss, X, Y),
        ValueError,
        ["on the CPU", "'weight' is on 'cuda:0'", "`copy.deepcopy(module).cpu()`"],
    ),
    "inputs elsewhere": (
        (linear(), F.mse_loss, ELSEWHERE.weight.detach(), Y),
        ValueError,
        ["`inputs` must be on the CPU", "'cuda:0'", "`inputs.cpu()`"],
    ),
    "a module nowhere": (
        (linear(device="meta"), F.mse_loss, X, Y),
        ValueError,
        ["'weight' of `module` must hold numbers, but is on 'meta'", "to_empty"],
    ),
    "inputs nowhere": (
        (linear(), F.mse_loss, X.to("meta"), Y),
        ValueError,
        ["`inputs` must hold numbers, but is on 'meta'"],
    ),
    "a loss that does not depend on the parameters": (
        (linear(), lambda y, _: y.detach().mean(), X, Y),
        ValueError,
        ["must depend on the parameters", ".detach()"],
    ),
    "a loss that is not finite": (
        (linear(), lambda y, _: y.mean() / 0, X, Y),
        ValueError,
        ["must be finite"],
    ),
    "a wrong backward": (
        (linear(), lambda y, _: WrongBackward.apply(y).mean(), X, Y),
        ValueError,
        ["the gradient that PyTorch computes", "off a central finite difference by"],
    ),
    "a wrong double backward": (
        (linear(), lambda y, _: WrongDoubleBackward.apply(y).mean(), X, Y),
        ValueError,
        ["the Hessian-vector product that PyTorch computes", "custom backward"],
    ),
    "no double backward": (
        (linear(), lambda y, z: torch.cdist(y, z, p=3.0).mean(), X, Y),
        ValueError,
        ["twice differentiable", "_cdist_backward", "double backward"],
    ),
    "no threads": ((linear(), F.mse_loss, X, Y, 0.0, 0), ValueError, ["`threads`", "got 0"]),
    "negative weight decay": ((linear(), F.mse_loss, X, Y, -1.0), ValueError, ["weight_decay"]),
}


@pytest.fixture(scope="module")
def as_users():
    return import_as_users_do("counterflow.torch")[0]


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told(as_users, name):
    arguments, error, words = BAD[name]
    with pytest.raises(error) as told:
        as_users.problem(*arguments)
    assert [word for word in words if word not in str(told.value)] == [], told.value


def test_single_precision_in_jax_is_told():
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        cf.torch.problem(linear(), F.mse_loss, X, Y)


def test_params_that_do_not_fit_are_told(as_users):
    module = linear()
    with pytest.raises(ValueError, match=r"\['bias', 'weight'\], got \['weight'\]"):
        as_users.load(module, {"weight": np.ones((1, 3))})
    with pytest.raises(ValueError, match="got list"):
        as_users.load(module, [np.ones((1, 3))])
    with pytest.raises(ValueError, match="take one"):
        as_users.load(module, {"weight": np.ones((5, 1, 3)), "bias": np.ones((5, 1))})
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        as_users.load(None, {})


# --- a training loop that is watched --------------------------------------------------------------


def test_a_monitor_watches_a_training_loop():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    inputs = torch.linspace(-1, 1, 30, dtype=DOUBLE).reshape(10, 3)
    targets = torch.sin(3 * inputs[:, :1])
    problem, start = cf.torch.problem(module, nn.MSELoss(), inputs, targets, weight_decay=1e-2)
    monitor = cf.Monitor(problem, 0.05, every=20, budget=np.inf)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, weight_decay=1e-2)
    for step in range(41):
        monitor(step, lambda: cf.torch.params(module))
        optimizer.zero_grad()
        nn.MSELoss()(module(inputs), targets).backward()
        optimizer.step()
    assert list(monitor.records) == [0, 20, 40]
    reached = cf.solve(cf.GradientDescent(problem, 0.05), start, [20 * 0.05]).at(0)
    flow = cf.solve(cf.GradientFlow(problem), start, [20 * 0.05], rtol=1e-10).at(0)
    found = monitor.records[20]
    assert found["loss"] == pytest.approx(float(problem.loss(reached)), rel=1e-10)
    assert found["measured_error"] == pytest.approx(float(distance(flow, reached)), rel=0.05)
    assert found["propagated_error"] == pytest.approx(found["measured_error"], rel=0.1)


def test_the_loop_of_the_page_is_watched_in_single_precision():
    page = (Path(__file__).parents[1] / "docs" / "monitor.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"## In PyTorch\n.*?```py\n(.*?)```", page, re.DOTALL)
    for given, tried in {"every=1000": "every=20, budget=float('inf')", "10_001": "41"}.items():
        assert block.count(given) == 1
        block = block.replace(given, tried)
    block = block.replace("1e-2", "0.05")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    inputs, loss = torch.randn(10, 3), nn.CrossEntropyLoss()
    targets = torch.arange(10) % 3
    names = {"torch": torch, "module": module, "loss": loss, "inputs": inputs, "targets": targets}
    exec(block, names)
    monitor = names["monitor"]
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert list(monitor.records) == [0, 20, 40]
    assert monitor.records[40]["mismatch"] < 0.1
    assert monitor.records[40]["loss"] == pytest.approx(loss(module(inputs), targets).item(), 0.01)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_params_are_copies_in_double_precision(dtype):
    layer = nn.Linear(2, 1, bias=False, dtype=dtype)
    found = cf.torch.params(layer)
    assert found["weight"].dtype == np.float64
    before = np.array(found["weight"])
    np.testing.assert_array_equal(before, layer.weight.detach().double())
    with torch.no_grad():
        layer.weight += 1
    np.testing.assert_array_equal(found["weight"], before)


def test_params_without_numbers_are_told():
    with pytest.raises(ValueError, match=r"'weight' of `module` must hold numbers.*'meta'"):
        cf.torch.params(linear(device="meta"))
