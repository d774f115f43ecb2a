"""A network of PyTorch on scikit-learn's digits, for `counterflow run`."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import counterflow.torch


def problem():
    """The problem and its initial params."""
    images, classes = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images / 8 - 1), torch.tensor(classes)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 10)).double()
    return counterflow.torch.problem(module, nn.CrossEntropyLoss(), inputs, targets, 1e-3)
