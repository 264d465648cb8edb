"""The targets by name."""

from fuzz.folds import folds
from fuzz.formula import formula
from fuzz.gibbs import gibbs
from fuzz.kernels import kernels
from fuzz.load import blocks, load, network
from fuzz.predict import predict

TARGETS = {
    target.__name__: target
    for target in (formula, kernels, predict, load, network, blocks, gibbs, folds)
}
