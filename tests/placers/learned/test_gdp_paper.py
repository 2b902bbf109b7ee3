"""GDP as published: encoder, segment attention, superposition, PPO, and states that go from graph to graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget, Progress
from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._learner import quiet_torch
from loadmaster.placers.learned.gdp_paper import GdpPaper, _training, train_batch
from loadmaster.placers.learned.gdp_paper._inputs import Inputs, inputs_of
from loadmaster.placers.learned.gdp_paper._network import Layer, Network, segments_of
from loadmaster.placers.learned.gdp_paper._state import State
from loadmaster.placers.learned.units import units_of
from loadmaster.problem import Concurrent, Placement, Problem, Serial

SMALL = GdpPaper(width=8, heads=2, type_width=4, rounds=2, segment=4, memory=4, batch=8)


def plain(n: int = 30, seed: int = 1, devices: int = 2) -> Problem:
    graph, cluster = layered(n, width=4, seed=seed), accelerators(devices - 1, 1)
    rng = np.random.default_rng(seed)
    return Problem.make(
        graph, cluster, Serial(), time=0.5 + rng.random((n, devices)), size=rng.random(graph.tensors),
        latency=0.1 * (1 - np.eye(devices)), rate=0.2 * (1 - np.eye(devices)),
    )  # fmt: skip


def by_type(n: int = 24) -> Problem:
    """Ops of three types in a chain; which device is fast depends on the type, and moving data is free."""
    b = GraphBuilder("types")
    kinds = np.random.default_rng(n).integers(0, 3, n)
    ops = [b.op(f"op{v}", "ABC"[kind]) for v, kind in enumerate(kinds.tolist())]
    for v in range(1, n):
        b.tensor(ops[v - 1], bytes=1.0, consumers=[ops[v]])
    graph, cluster = b.build(), accelerators(2, 1)
    fast = np.array(["ABC".index(kind) for kind in graph.op_types])
    time = np.where(fast[:, None] == np.arange(3), 1.0, 2.0)
    free = np.zeros((3, 3))
    return Problem.make(graph, cluster, Serial(), time=time, latency=free, rate=free)


def network_for(problem: Problem, chosen: GdpPaper) -> tuple[Network, Inputs]:
    torch.manual_seed(0)
    units = units_of(problem, "")
    vocabulary = tuple(sorted(set(problem.graph.op_types)))
    inputs = inputs_of(units, vocabulary, problem.devices, chosen)
    made = Network(inputs.numbers.shape[1], 1 + len(vocabulary), problem.devices, chosen)
    return made, inputs


# -- the encoder ---------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(problems(Serial(), min_ops=1, max_ops=12), st.sampled_from(["both", "in", "out"]))
def test_the_encoder_is_graphsage_with_max_pooling(problem: Problem, neighbours: str) -> None:
    chosen = replace(SMALL, neighbours=neighbours)
    network, inputs = network_for(problem, chosen)
    encoder = network.encoder
    weight = {name: tensor.detach().numpy().astype(np.float64) for name, tensor in encoder.named_parameters()}
    units = units_of(problem, "")
    listens: dict[int, set[int]] = {v: set() for v in range(units.count)}
    for tail, head in zip(units.tail.tolist(), units.head.tolist(), strict=True):
        if neighbours in ("both", "in"):
            listens[head].add(tail)
        if neighbours in ("both", "out"):
            listens[tail].add(head)
    x = inputs.types.numpy() @ weight["types.weight"].T
    x = np.concatenate([x, inputs.numbers.numpy()], axis=1)
    h = np.maximum(x @ weight["enter.weight"].T + weight["enter.bias"], 0)
    for i in range(chosen.rounds):
        said = 1 / (1 + np.exp(-(h @ weight[f"message.{i}.weight"].T + weight[f"message.{i}.bias"])))
        heard = np.zeros_like(h)
        for v, others in listens.items():
            for u in others:
                heard[v] = np.maximum(heard[v], said[u])
        both = np.concatenate([h, heard], axis=1)
        h = np.maximum(both @ weight[f"mix.{i}.weight"].T + weight[f"mix.{i}.bias"], 0)
    assert encoder(inputs).detach().numpy() == pytest.approx(h, rel=1e-4, abs=1e-5)


def test_a_type_that_was_never_seen_says_nothing() -> None:
    network, inputs = network_for(plain(), SMALL)
    unknown = torch.zeros(1, inputs.types.shape[1])
    unknown[0, 0] = 1.0
    assert network.encoder.types(unknown).abs().sum() == 0


# -- segments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "length", "memory"), [(10, 4, 4), (9, 4, 2), (8, 4, 0), (3, 3, 3), (5, 1, 1)]
)
def test_segments_side_by_side_give_what_a_loop_over_them_gives(nodes: int, length: int, memory: int) -> None:
    torch.manual_seed(1)
    layer = Layer(replace(SMALL, segment=length, memory=memory), 0)
    h = torch.randn(nodes, 8)
    x, seen = segments_of(h, length, memory)
    together = layer(x, seen, None).reshape(-1, 8)[:nodes]
    past = torch.zeros(0, 8)
    attention = layer.attention
    for first in range(0, nodes, length):
        now = h[first : first + length]
        normed = layer.before(now)
        everything = torch.cat([past, normed])
        q, k, v = (
            part.linear(y).view(len(y), 2, 4)
            for part, y in (
                (attention.query, normed), (attention.key, everything), (attention.value, everything),
            )
        )  # fmt: skip
        score = torch.softmax(torch.einsum("ihc,jhc->hij", q, k) / 2.0, dim=-1)
        mixed = torch.einsum("hij,jhc->ihc", score, v).reshape(len(now), 8)
        y = now + attention.out.linear(mixed)
        y = y + layer.narrow.linear(torch.relu(layer.wide.linear(layer.between(y))))
        assert torch.allclose(together[first : first + length], y, atol=1e-5)
        past = normed[len(normed) - memory :] if memory else past


def test_no_gradient_flows_into_the_segment_before() -> None:
    torch.manual_seed(2)
    layer = Layer(SMALL, 0)
    h = torch.randn(8, 8, requires_grad=True)
    x, seen = segments_of(h, 4, 4)
    out = layer(x, seen, None)
    (gradient,) = torch.autograd.grad(out[1].sum(), h)
    assert (gradient[:4] == 0).all()
    assert gradient[4:].abs().sum() > 0
    changed = h.detach().clone()
    changed[0, 0] += 1.0
    assert not torch.allclose(layer(segments_of(changed, 4, 4)[0], seen, None)[1], out[1])


def test_within_a_segment_the_order_of_nodes_does_not_matter() -> None:
    network, _ = network_for(plain(12), replace(SMALL, segment=4, memory=4, superposition="node"))
    h = torch.randn(12, 8)
    swap = torch.tensor([2, 0, 3, 1, 4, 5, 6, 7, 11, 8, 9, 10])
    x, seen = segments_of(h, 4, 4)
    y, _ = segments_of(h[swap], 4, 4)
    context, moved = network.context(x, seen, None), network.context(y, seen, None)
    torch.nn.init.normal_(network.layers[0].wide.gate.weight)
    a = network.layers[0](x, seen, context).reshape(12, 8)
    b = network.layers[0](y, seen, moved).reshape(12, 8)
    assert torch.allclose(a[swap], b, atol=1e-5)
    across = torch.tensor([4, 1, 2, 3, 0, *range(5, 12)])
    z, _ = segments_of(h[across], 4, 4)
    assert not torch.allclose(
        a[across], network.layers[0](z, seen, network.context(z, seen, None)).reshape(12, 8), atol=1e-5
    )


# -- superposition -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["graph", "node"])
def test_the_gate_starts_at_one_and_then_matters(kind: str) -> None:
    problem = plain()
    gated, inputs = network_for(problem, replace(SMALL, superposition=kind))
    without, _ = network_for(problem, replace(SMALL, superposition="none"))
    shared = without.state_dict().keys()
    without.load_state_dict({name: value for name, value in gated.state_dict().items() if name in shared})
    assert torch.equal(gated(inputs), without(inputs))
    gated(inputs)[:, 0].sum().backward()
    assert gated.head.gate.weight.grad.abs().sum() > 0
    torch.nn.init.normal_(gated.head.gate.weight)
    assert not torch.allclose(gated(inputs), without(inputs))


@pytest.mark.parametrize("attention", [True, False])
def test_only_attention_lets_a_decision_depend_on_the_segment_before(attention: bool) -> None:
    torch.manual_seed(0)
    layer = Layer(replace(SMALL, attention=attention), 0)
    one, other, same = torch.randn(3, 4, 8)
    x, seen = segments_of(torch.cat([one, same, other, same]), 4, 4)
    out = layer(x, seen, None)
    assert torch.allclose(out[1], out[3]) is not attention


# -- PPO -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_the_objective_is_that_of_clipping_every_decision_by_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, nodes, devices, clip = 5, 4, 3, 0.2
    ratio = np.exp(rng.normal(0, 0.5, (nodes, devices)))
    choice = rng.integers(0, devices, (batch, nodes))
    advantage = rng.normal(size=batch)
    taken = ratio[np.arange(nodes), choice]
    a = advantage[:, None]
    wanted = np.minimum(taken * a, np.clip(taken, 1 - clip, 1 + clip) * a).sum()
    gain = np.zeros((2, nodes, devices))
    for row, value in zip(choice, advantage, strict=True):
        gain[int(value < 0), np.arange(nodes), row] += value
    found = _training.clipped_gain(torch.from_numpy(ratio), torch.from_numpy(gain), clip)
    assert float(found) == pytest.approx(wanted)


def test_the_baseline_is_the_mean_of_earlier_valid_trials() -> None:
    trials = _training.Trials(0.0)
    trials.advantages(np.array([-1.0, -3.0]))
    advantage = trials.advantages(np.array([-2.0, -1.0, _training.FAILED]))
    assert advantage[0] == 0.0
    assert advantage[1] == pytest.approx(1.0 / np.std([-1.0, -3.0, -2.0, -1.0]))
    assert advantage[2] == -_training.LIMIT
    assert (_training.Trials(0.0).advantages(np.full(3, _training.FAILED)) == 0).all()


def test_the_best_device_of_every_type_is_learnt() -> None:
    problem = by_type()
    budget = Budget(evaluations=1200)
    learnt = SMALL.place(problem, budget=budget)
    sampled = replace(SMALL, learn=False).place(problem, budget=budget)
    assert learnt.cost == problem.n
    assert sampled.cost > problem.n + 3


def test_placements_that_do_not_fit_are_learnt_to_be_avoided() -> None:
    graph, cluster = layered(16, width=4, seed=2), accelerators(1, 1)
    time = np.stack([np.full(16, 1.0), np.full(16, 1.25)], axis=1)
    problem = Problem.make(
        graph, cluster, Serial(), time=time, memory=np.ones(16), capacity=np.array([5.0, np.inf]),
        latency=np.zeros((2, 2)), rate=np.zeros((2, 2)),
    )  # fmt: skip
    with Search(problem, Budget(evaluations=600), "gdp-paper") as search:
        search.try_device(np.ones(16, np.int32))
        units, share = units_of(problem, ""), []
        costs = _training.learn_costs

        def noting(*given, **named):  # type: ignore[no-untyped-def]
            share.append(float(np.isinf(found := costs(*given, **named)).mean()))
            return found

        with pytest.MonkeyPatch.context() as patch, quiet_torch(1):
            patch.setattr(_training, "learn_costs", noting)
            _training.train_one(search, units, replace(SMALL, contrast=0.1), 0)
    assert np.mean(share[:3]) > 0.7
    assert np.mean(share[-10:]) < 0.35
    assert search.cost < 16 * 1.25


@pytest.mark.parametrize(
    "change",
    [{"attention": False}, {"superposition": "none"}, {"superposition": "node"}, {"memory": 0}, {"costs": False},
     {"neighbours": "in"}, {"repair": True}, {"decay": 0.5}, {"greedy": False}, {"colocate": "chain"}],
    ids=str,
)  # fmt: skip
def test_every_variant_runs_and_repeats(change: dict[str, object]) -> None:
    placer = replace(SMALL, **change)  # type: ignore[arg-type]
    one, two = (placer.place(plain(), budget=Budget(evaluations=120), seed=5) for _ in range(2))
    assert one.placement == two.placement
    assert one.evaluations == two.evaluations == 120


# -- several graphs ------------------------------------------------------------------------------------------


def test_what_is_learnt_from_some_graphs_serves_another(tmp_path: Path) -> None:
    chosen = replace(SMALL, learning_rate=1e-2)  # there are few updates
    state, found = train_batch([by_type(12), by_type(18), by_type(30)], chosen, evaluations=900)
    assert [solution.cost for solution in found] == [12, 18, 30]
    assert all(solution.evaluations <= 900 for solution in found)
    file = tmp_path / "learnt.npz"
    state.save(file)
    unseen = by_type(41)
    zero = replace(chosen, weights=str(file), learn=False).place(unseen, budget=Budget(evaluations=10))
    raw = replace(chosen, learn=False).place(unseen, budget=Budget(evaluations=10))
    assert zero.cost <= 43 < raw.cost
    tuned = replace(chosen, weights=str(file), updates=20).place(unseen, budget=Budget(evaluations=1000))
    assert tuned.cost == 41
    assert tuned.evaluations == 1 + 20 * 9 or tuned.optimal


def test_a_policy_of_more_devices_uses_only_those_that_there_are(tmp_path: Path) -> None:
    state, found = train_batch([plain(10, 1, 2), plain(12, 2, 4)], SMALL, evaluations=40)
    assert state.devices == 4
    assert found[0].placement.device.max() < 2
    state.save(tmp_path / "s.npz")
    replace(SMALL, weights=str(tmp_path / "s.npz")).place(plain(9, 3, 3), budget=Budget(evaluations=40))
    with pytest.raises(InputError, match="trained for 4 devices, the problem has 5"):
        replace(SMALL, weights=str(tmp_path / "s.npz")).place(plain(9, 3, 5), budget=Budget(evaluations=40))


def test_a_state_is_the_same_after_saving_and_brings_the_shape_of_its_network(tmp_path: Path) -> None:
    state, _ = train_batch([plain(10)], SMALL, evaluations=30, seed=4)
    again, _ = train_batch([plain(10)], SMALL, evaluations=30, seed=4)
    state.save(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = State.load(tmp_path / "a.npz", GdpPaper(learning_rate=0.5))
    assert (loaded.settings.width, loaded.settings.learning_rate) == (8, 0.5)
    _, inputs = network_for(plain(10), SMALL)
    assert torch.equal(loaded.network()(inputs), state.network()(inputs))
    (tmp_path / "c.npz").write_bytes(b"nothing of the kind")
    for name in ("c.npz", "missing.npz"):
        with pytest.raises(InputError, match=name):
            State.load(tmp_path / name, SMALL)


# -- size, interruption, settings ----------------------------------------------------------------------------


def test_memory_grows_with_the_graph_and_not_with_its_square() -> None:
    """Bytes that the largest tensor of a pass takes: attention is what could be quadratic."""
    largest = []
    for n in (1000, 4000):
        graph, cluster = layered(n, seed=1), accelerators(2, 1)
        problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
        network, inputs = network_for(problem, replace(SMALL, segment=32, memory=32))
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: (sizes.append(t.untyped_storage().nbytes()), t)[1],  # type: ignore[misc]
            lambda t: t,
        ):
            network(inputs)[:, 0].sum().backward()
        largest.append(max(sizes))
    assert largest[1] < 6 * largest[0]


def test_a_run_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, budget = plain(20, 3), Budget(evaluations=200)
    whole = SMALL.place(problem, budget=budget, seed=2)
    saving = replace(SMALL, checkpoint=str(tmp_path / "run.pt"), checkpoint_seconds=0.0)

    class Killed(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.evaluations > 100:
            raise Killed

    tell = Search.tell
    monkeypatch.setattr(Search, "tell", lambda self, *, always=False: tell(self, always=True))
    with pytest.raises(Killed):
        saving.place(problem, budget=budget, seed=2, on_progress=kill)
    resumed = saving.place(problem, budget=budget, seed=2)
    assert resumed.placement == whole.placement
    assert [(p.evaluations, p.cost) for p in resumed.history] == [
        (p.evaluations, p.cost) for p in whole.history
    ]


def test_training_leaves_the_random_numbers_and_threads_of_pytorch_alone() -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    SMALL.place(plain(), budget=Budget(evaluations=30))
    train_batch([plain()], SMALL, evaluations=30)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_ctrl_c_in_batch_training_keeps_what_was_learnt() -> None:
    def stop(update: int, best: list[float]) -> None:
        if update == 2:
            raise KeyboardInterrupt

    state, (found,) = train_batch([plain()], SMALL, evaluations=1000, on_update=stop)
    assert found.stopped == "interrupted"
    assert found.evaluations == 1 + 2 * 9
    assert isinstance(found.placement, Placement)
    assert state.devices == 2


@pytest.mark.parametrize(
    ("change", "named"), [({"memory": 200}, "memory"), ({"heads": 3}, "heads"), ({"rounds": 0}, "rounds")]
)
def test_settings_that_make_no_network_are_refused(change: dict[str, int], named: str) -> None:
    with pytest.raises(InputError, match=named):
        replace(GdpPaper(), **change)  # type: ignore[arg-type]
    assert PLACERS["gdp-paper"].name == "gdp-paper"
