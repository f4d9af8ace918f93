import signal

import pytest
import torch
from torch import nn

from normgeom.models import LNLSTM, CharLM, RowDigits
from normgeom.training import NonFiniteTraining, SequentialDigits, TrainingStopped, evaluate, train
from tests.training.oracles import small, train_by_hand


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1.0)


@pytest.mark.parametrize("core", [nn.LSTM, LNLSTM])
@pytest.mark.parametrize("clip", [0.05, 1e9])
def test_the_loop_is_the_one_written_by_hand(core, clip):
    (one, task), (other, _) = (small(core=core, length=30, dtype=torch.float64) for _ in range(2))
    assert task.batches_per_pass == 3  # 7 steps go through the streams twice
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (one, other)]
    records = list(train(one, task, optimizers[0], steps=7, clip=clip))
    by_hand = train_by_hand(other, task.corpus, optimizers[1], length=30, streams=4, steps=7, clip=clip)
    torch.testing.assert_close(parameters(one), parameters(other), rtol=1e-7, atol=1e-9)
    assert [r.step for r in records] == list(range(1, 8))
    assert all(r.gradient_norm > 0.05 for r in records), "the small one clips"
    assert [(r.bits, r.gradient_norm) for r in records] == [pytest.approx(pair) for pair in by_hand]


def test_records_of_a_schedule_and_of_evaluations():
    model, task = small()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    records = list(train(model, task, optimizer, steps=5, scheduler=scheduler, evaluate_every=2))
    assert [r.learning_rate for r in records] == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert [r.step for r in records if r.held_out_bits is not None] == [2, 4]
    assert [r.step for r in records if r.held_out_accuracy is not None] == [2, 4]


def test_an_evaluation_is_of_the_model_after_the_step():
    model, task = small()
    for record in train(model, task, sgd(model), steps=3, evaluate_every=1):
        found = evaluate(model, task)
        assert (record.held_out_bits, record.held_out_accuracy) == (found.bits, found.accuracy)


def test_text_and_digits_are_learned():
    model, task = small(core=LNLSTM, pieces=1)
    records = list(train(model, task, torch.optim.Adam(model.parameters(), lr=0.03), steps=150, clip=1.0))
    assert records[0].bits > 3.5
    assert evaluate(model, task).bits < 1.5
    digits = SequentialDigits(batch_size=32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        classifier = RowDigits(LNLSTM(8, 24))
    list(train(classifier, digits, torch.optim.Adam(classifier.parameters(), lr=0.02), steps=180, clip=1.0))
    assert evaluate(classifier, digits).accuracy > 0.8


def test_hooks_of_the_optimizer_see_every_step():
    model, task = small()
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    handle = optimizer.register_step_pre_hook(lambda *_: seen.append(model.readout.weight.grad.norm().item()))
    list(train(model, task, optimizer, steps=3, clip=1e-3))
    handle.remove()
    assert len(seen) == 3
    assert all(0 < norm < 1e-3 for norm in seen), "hooks see the clipped gradient"


def test_random_numbers_come_from_the_generator_alone():
    def run(seed):
        _, task = small()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = CharLM(nn.LSTM(task.classes, 6, 2, dropout=0.5), task.classes)
        generator = torch.Generator().manual_seed(seed)
        records = train(model, task, sgd(model), steps=3, generator=generator)
        return [r.bits for r in records if torch.rand(()) >= 0]

    before = torch.get_rng_state()
    first = run(0)
    torch.set_rng_state(before)
    model, task = small()
    list(train(model, task, sgd(model), steps=3, evaluate_every=1))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    assert run(0) == first != run(1)
    torch.set_rng_state(before)


def test_signals_are_the_caller_s_without_a_folder():
    model, task = small()
    found = signal.getsignal(signal.SIGINT)
    for _ in train(model, task, sgd(model), steps=2):
        assert signal.getsignal(signal.SIGINT) is found


def test_a_loss_that_is_not_finite_stops_before_the_update():
    model, task = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    steps = train(model, task, optimizer, steps=9)
    next(steps), next(steps)
    with torch.no_grad():
        model.readout.bias[3] = float("nan")
    before = parameters(model)
    with pytest.raises(
        NonFiniteTraining, match=r"in step 3, at learning rate 0.25, the loss is nan bits and the"
    ):
        next(steps)
    assert torch.equal(before.nan_to_num(), parameters(model).nan_to_num())


def test_a_gradient_that_is_not_finite_stops_before_the_update():
    model, task = small()
    model.readout.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = parameters(model)
    with pytest.raises(
        NonFiniteTraining, match=r"the loss is \d.* bits and the norm of the gradient (inf|nan)"
    ):
        list(train(model, task, sgd(model), steps=9, clip=1.0))
    assert torch.equal(before, parameters(model))


def test_a_huge_learning_rate_keeps_the_last_good_checkpoint(tmp_path):
    model, task = small()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 4 else 1e38)
    steps = train(model, task, optimizer, steps=20, scheduler=scheduler, folder=tmp_path, checkpoint_every=2)
    with pytest.raises(NonFiniteTraining) as why:
        list(steps)
    assert "after step 6, at learning rate 1e+38 with a gradient of norm " in str(why.value)
    assert ", the loss of the next batch is inf bits. Take a smaller learning rate" in str(why.value)
    assert f"The last good checkpoint is {tmp_path}/checkpoint-000000004.pt." in str(why.value)


def test_parameters_that_are_not_finite_are_not_saved(tmp_path):
    model, task = small()
    optimizer = sgd(model)
    records = train(model, task, optimizer, steps=1, folder=tmp_path)
    optimizer.register_step_post_hook(lambda *_: model.readout.bias.data.fill_(float("inf")))
    with pytest.raises(
        NonFiniteTraining,
        match=r"after step 1, .*, readout.bias is not.*last good checkpoint is .*-000000000.pt\.",
    ):
        list(records)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_checkpoint(number, tmp_path):
    model, task = small()
    found, made = signal.getsignal(number), []
    with pytest.raises(TrainingStopped) as why:  # noqa: PT012
        for record in train(model, task, sgd(model), steps=9, folder=tmp_path):
            made.append(record.step)
            if record.step == 2:
                signal.raise_signal(number)
    assert f"stopped by {number.name} after step 3, which {tmp_path}/checkpoint-000000003.pt" in str(
        why.value
    )
    assert (made, why.value.signal, signal.getsignal(number)) == ([1, 2, 3], number, found)


def test_a_second_signal_is_not_held_up(tmp_path):
    model, task = small()
    with pytest.raises(KeyboardInterrupt) as why:  # noqa: PT012
        for _ in train(model, task, sgd(model), steps=9, folder=tmp_path):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
    assert type(why.value) is KeyboardInterrupt


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"steps": True}, "steps must be a whole number; got True"),
        ({"evaluate_every": 1.5}, r"evaluate_every must be a whole number; got 1\.5"),
        ({"clip": "1"}, "clip must be a norm above 0, or None; got '1'"),
        ({"clip": 0.0}, "clip must be a norm above 0, or None; got 0.0"),
        ({"clip": float("nan")}, "clip must be a norm above 0"),
        ({"evaluate_every": -1}, "evaluate_every must be a number of steps, or 0 for never; got -1"),
        ({"checkpoint_every": -1}, "checkpoint_every must be a number of steps"),
        ({"resume": True}, "need a folder"),
        ({"tensorboard": True}, "need a folder"),
    ],
)
def test_numbers_out_of_range(options, message):
    model, task = small()
    with pytest.raises(ValueError, match=message):
        train(model, task, sgd(model), **{"steps": 1, **options})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", ["model", "task", "optimizer", "scheduler", "generator"])
def test_what_is_of_another_kind(wrong):
    model, task = small()
    given = {"model": model, "task": task, "optimizer": sgd(model), "steps": 1} | {wrong: "adam"}
    with pytest.raises(TypeError, match=f"{wrong} must be .*; got str"):
        train(**given)


def test_what_can_learn_nothing():
    model, task = small()
    optimizer, other = sgd(model), torch.optim.lr_scheduler.StepLR(sgd(model), 1)
    with pytest.raises(ValueError, match="scheduler must be built from the optimizer; it has another one"):
        train(model, task, optimizer, steps=1, scheduler=other)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="it has none of them that require a gradient"):
        train(model, task, optimizer, steps=1)


def test_optimizers_and_schedulers_that_do_not_fit():
    (model, task), (other, _) = small(), small()
    with pytest.raises(TypeError, match="optimizer must step without a closure; got LBFGS"):
        train(model, task, torch.optim.LBFGS(model.parameters()), steps=1)
    with pytest.raises(ValueError, match="optimizer must be over parameters of the model; it has none"):
        train(model, task, torch.optim.SGD(other.parameters(), lr=1.0), steps=1)
    optimizer = sgd(model)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(TypeError, match="scheduler must step without a metric"):
        train(model, task, optimizer, steps=1, scheduler=plateau)
