"""Slow and obvious: a training loop over characters, and the bits per character of a text."""

import itertools
import math

import torch
from torch import nn

from normgeom.models import CharLM
from normgeom.training import Corpus, NextCharacter

TEXT = "the cat sat on the mat and the dog sat on the log; " * 8


def small(*, core=nn.LSTM, length=5, batch_size=4, seed=0, dtype=torch.float32, **options):
    """A model with its task, small enough for a test."""
    task = NextCharacter(Corpus.from_string(TEXT), length=length, batch_size=batch_size, **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return CharLM(core(task.classes, 6), task.classes).to(dtype), task


def train_by_hand(model, corpus, optimizer, *, length, streams, steps, clip):
    """Truncated backpropagation through time over lists of characters, one stream at a time."""
    ids = corpus.training.tolist()
    width = (len(ids) - 1) // streams
    rows = [ids[k * width : (k + 1) * width + 1] for k in range(streams)]
    place, states, losses = 0, [None] * streams, []
    for _ in range(steps):
        if place + length > width:
            place, states = 0, [None] * streams
        loss = 0
        for k, row in enumerate(rows):
            inputs = torch.tensor(row[place : place + length])[:, None]
            targets = torch.tensor(row[place + 1 : place + length + 1])
            logits, state = model(inputs, states[k])
            states[k] = tuple(s.detach() for s in state)
            loss = loss - logits[:, 0].log_softmax(-1)[range(length), targets].sum()
        loss = loss / (length * streams)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient * min(1.0, clip / (norm + 1e-6))
        optimizer.step()
        losses.append((float(loss.detach()) / math.log(2), norm))
        place += length
    return losses


@torch.no_grad()
def bits_by_hand(model, pieces):
    """Bits per character of texts given as lists of ids, character by character."""
    bits, right, count = 0.0, 0, 0
    for ids in pieces:
        state = None
        for here, following in itertools.pairwise(ids):
            logits, state = model(torch.tensor([[here]]), state)
            probabilities = logits[0, 0].double().softmax(-1)
            bits -= math.log2(float(probabilities[following]))
            right += int(probabilities.argmax()) == following
            count += 1
    return bits / count, right / count, count
