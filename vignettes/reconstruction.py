# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reconstructing masked pixels: models without a response
#
# If a formula has no response, a single Boltzmann machine is fitted to all rows. Here we mask
# pixels of digits and reconstruct them from the others, using three models: independent pixels, all
# pairs of pixels, and a sparse machine that selects its interactions (Min et al. 2014).

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

# %% [markdown]
# ## Small digits
#
# We use the included images at half the resolution: a pixel is black if at least two of the
# original four are. Pixels with very little variation are dropped. The models do not use the digit
# labels.


# %%
def pixels(images):
    blocks = (
        images.drop(columns="y")
        .to_numpy(dtype=float)
        .reshape(len(images), 14, 2, 14, 2)
        .sum(axis=(2, 4))
    )
    return pd.DataFrame((blocks >= 2).astype(int).reshape(len(images), -1)).add_prefix("p")


train = pixels(bbl.datasets.load_mnist())
test = pixels(bbl.datasets.load_mnist("test")).head(50)
kept = train.columns[(train.mean() > 0.01) & (train.mean() < 0.99)]
train = train[kept]
test = test[kept]
print(train.shape, test.shape)

# %% [markdown]
# ## Three models
#
# With `method="shbm"`, each pixel is regressed on the others with an L1-like penalty, and the
# selected pairs are fitted jointly. With 1,000 images of 119 pixels, about one pair in seven is
# selected. ln Z is not needed below, so the fast approximation `log_z="half"` is sufficient.

# %%
settings = {
    "independent": ("~ .", {"method": "naive"}),
    "all pairs": ("~ .^2", {"lambda_": 0.003, "log_z": "half"}),
    "sparse": (
        "~ .",
        {"method": "shbm", "order": 2, "lambda_": 20.0, "ridge": 0.003, "log_z": "half"},
    ),
}
fits = {}
for name, (formula, options) in settings.items():
    began = time.perf_counter()
    fits[name] = bbl.bbl(formula, train, verbose=0, **options)
    counts = fits[name].order_counts["all"]
    print(f"{name}: {counts.get(2, 0)} pairs, {time.perf_counter() - began:.1f} s")

# %% [markdown]
# The strongest interactions are between neighbouring pixels. `votes` shows how many of the two
# regressions selected the pair.

# %%
terms = fits["sparse"].terms
print(terms[["predictors", "weight", "strength", "votes"]].head(8).round(2).to_string(index=False))

# %% [markdown]
# ## A quarter of the pixels masked
#
# `mask=` treats the given cells as missing, so that reconstructions can be compared with the true
# values.

# %%
mask = np.random.default_rng(0).random(test.shape) < 0.25
true = test.to_numpy()
rows = []
filled = {}
for name, fit in fits.items():
    p = fit.reconstruct(test, mask, verbose=0).xs(1, axis=1, level="level")[list(kept)].to_numpy()
    filled[name] = p
    hit = np.where(true, p, 1 - p)[mask]
    rows.append((name, 100 * np.mean(hit < 0.5), -np.mean(np.log(hit)), fit.pnll(test)))
print(
    pd.DataFrame(rows, columns=["model", "wrong pixels, %", "log-loss", "pnll"])
    .round(3)
    .to_string(index=False)
)

# %% [markdown]
# The sparse machine reconstructs pixels as well as the model of all pairs, with a seventh of the
# couplings; see `benchmarks/results/highorder.md` for results on 200 images with settings chosen on
# held-out images. `pnll`, the negative log pseudo-likelihood of a whole image, does not need a mask
# and ranks the models in the same way.

# %%
places = [int(name[1:]) for name in kept]


def image(values):
    out = np.zeros(196)
    out[places] = values
    return out.reshape(14, 14)


shown = [2, 5, 13, 21, 34, 47]
columns = {"image": true.astype(float), "masked": np.where(mask, np.nan, true), **filled}
figure, axes = plt.subplots(
    len(columns), len(shown), figsize=(1.15 * len(shown), 1.2 * len(columns))
)
grey = plt.get_cmap("Greys").with_extremes(bad="#E69F00")
for row, (name, values) in zip(axes, columns.items(), strict=True):
    for ax, k in zip(row, shown, strict=True):
        ax.imshow(image(values[k]), cmap=grey, vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name, fontsize=9)
figure.tight_layout(pad=0.4)
plt.show()

# %% [markdown]
# ## The lower half masked
#
# Masked pixels are reconstructed jointly: given the upper half, the distribution of the lower half
# is also a Boltzmann machine. Its probabilities are estimated by Gibbs sampling.

# %%
lower = np.tile(np.array(places) >= 98, (len(shown), 1))
figure, axes = plt.subplots(2, len(shown), figsize=(1.15 * len(shown), 2.5))
p = (
    fits["sparse"]
    .reconstruct(test.iloc[shown], lower, verbose=0)
    .xs(1, axis=1, level="level")[list(kept)]
    .to_numpy()
)
for k, pair in enumerate(axes.T):
    for ax, values in zip(pair, (np.where(lower[k], np.nan, true[shown[k]]), p[k]), strict=True):
        ax.imshow(image(values), cmap=grey, vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
figure.tight_layout(pad=0.4)
plt.show()
