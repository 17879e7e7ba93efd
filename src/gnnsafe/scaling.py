"""Feature scaling, fitted on training nodes and applied to every graph that a detector is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from gnnsafe.checks import check_features, check_finite, check_mask, check_tensor
from gnnsafe.errors import require, require_known
from gnnsafe.sparse import csr_tensor

__all__ = ["FeatureScaling", "Scale", "is_bag_of_words", "row_normalised"]

Scale = Literal["auto", "standard", "rows", "none"]
RESOLUTION = torch.finfo(torch.float32).eps  # what varies by less of its size is rounding
WORDS_APART = 100.0  # times the usual column's largest value: how much larger a word count's may be
ROWS = 2**14  # that are in double precision at once


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """How features are made comparable: x' = (x − center) / spread by columns, or x' = w x / Σ|x| by rows.

    Mean and standard deviation are those of the training nodes alone: other nodes stay held out, as the error rates of
    a detector require. They are computed in float64, since an offset of 1e9 leaves float32 no digits. A
    column that does not vary among training nodes carries nothing a model could have learnt, and becomes 0 everywhere.
    Sparse features stay sparse: their columns are divided by their root mean square and not shifted. Rows are the
    paper's, which sum to 1, times w, the mean number of entries that training nodes have: an entry is then about 1
    whatever it counts, and training needs no more epochs than with words as they are.
    What is fitted is kept on the CPU, and applied on the device of the features.

    Raises:
        InputError: `factor` or `center` is not one finite float64 number per column (by rows: `factor` one in all).
    """

    kind: Literal["standard", "rows"]
    """By columns, or by rows."""
    center: Tensor | None = None
    """The mean of each column, float64; None by rows."""
    factor: Tensor | None = None
    """1 / spread of each column, 0 where it does not vary; or w alone. Float64."""

    def __post_init__(self) -> None:
        for name in ("factor",) if self.kind == "rows" else ("factor", "center"):
            tensor = check_tensor(name, getattr(self, name)).cpu()
            size = 1 if self.kind == "rows" else len(self._given("factor"))
            right = tensor.dtype == torch.float64 and tensor.shape == (size,)
            require(right, name, f"be {size} numbers in float64", f"{tensor.dtype} {list(tensor.shape)}")
            check_finite(name, tensor)
            object.__setattr__(self, name, tensor)

    def _given(self, name: Literal["center", "factor"]) -> Tensor:
        tensor: Tensor = getattr(self, name)
        return tensor

    @classmethod
    def fit(cls, x: Tensor, mask: Tensor, scale: Scale = "auto") -> FeatureScaling | None:
        """The scaling that suits the features of the training nodes in `mask`.

        Args:
            x: Features, [nodes, features], dense or CSR.
            mask: The training nodes.
            scale: "standard" by columns, "rows" by rows, "none" (which gives None), or "auto": by rows where the
                features are a bag of words (see `is_bag_of_words`), else by columns.

        Returns:
            The scaling; None where features are to be left as they are.

        Raises:
            UnknownNameError: There is no such `scale`.
            InputError: Features or mask break a rule.
        """
        require_known("scale", scale, get_args(Scale))
        check_features(x)
        mask = check_mask("mask", mask, x.shape[0]).to(x.device)
        if scale == "none":
            return None
        if scale == "rows" or (scale == "auto" and is_bag_of_words(x)):
            return cls("rows", factor=_words(x, mask))
        sparse = x.layout == torch.sparse_csr
        mean, spread = _moments(x, mask)
        center = torch.zeros_like(mean) if sparse else mean
        size = (mean.square() + spread.square()).sqrt()
        varies = (size > 0) if sparse else (spread > RESOLUTION * mean.abs())
        return cls("standard", center, torch.where(varies, 1 / (size if sparse else spread), 0.0))

    def __call__(self, x: Tensor) -> Tensor:
        """The features, scaled, in their own precision; sparse ones become dense where columns are shifted."""
        if self.kind == "rows":
            return row_normalised(x) * float(self._given("factor"))
        center, factor = self._given("center").to(x.device), self._given("factor").to(x.device)
        require(x.shape[1] == len(center), "x", f"have the {len(center)} features that the scaling knows", x.shape[1])
        if x.layout == torch.sparse_csr and bool(center.any()):
            x = x.to_dense()  # fitted on dense features: what is shifted is zero no longer
        if x.layout == torch.sparse_csr:
            return _with_values(x, (x.values().double() * factor[x.col_indices()]).to(x.dtype))
        return torch.cat([((block.double() - center) * factor).to(x.dtype) for block in _blocks(x)])

    @property
    def constant(self) -> int:
        """How many columns did not vary among training nodes, and are left out."""
        return int((self._given("factor") == 0).sum())

    def __str__(self) -> str:
        if self.kind == "rows":
            return f"a bag of words: rows divided by their sum, times {float(self._given('factor')):.4g}"
        left_out = f", {self.constant:,} left out that do not vary in float32" if self.constant else ""
        return f"columns standardised by the training nodes' mean and standard deviation{left_out}"


def is_bag_of_words(x: Tensor) -> bool:
    """Whether features are counts or weights of words rather than numbers on scales of their own.

    They are where none is negative, at least half are zero, every column is zero somewhere, and no column's largest
    value is more than 100 times that of the usual (median) column which has any.

    >>> is_bag_of_words(torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]))
    True
    >>> is_bag_of_words(torch.tensor([[0.0, 1.0, 41.0], [1.0, 0.0, 23.0]]))
    False
    """
    entries = _entries(x)
    if entries.numel() == 0 or float(entries.min()) < 0:
        return False
    found = _columns_of(x, (entries != 0).to(torch.float32), "sum")
    largest = _columns_of(x, entries, "amax")
    used = largest[found > 0]
    few = float(found.sum()) <= x.shape[0] * x.shape[1] / 2 and bool((found < x.shape[0]).all())
    return few and len(used) > 0 and bool(largest.max() <= WORDS_APART * used.median())


def row_normalised(x: Tensor) -> Tensor:
    """Rows whose sizes sum to 1, x / Σ|x|; a row of zeros stays as it is.

    >>> row_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    if x.layout == torch.sparse_csr:
        rows = torch.repeat_interleave(torch.arange(x.shape[0], device=x.device), x.crow_indices().diff())
        total = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        total = total.index_add(0, rows, x.values().abs().double())[rows]
        return _with_values(x, (x.values().double() / total.where(total > 0, 1.0)).to(x.dtype))
    total = x.abs().sum(dim=1, keepdim=True)
    return x / total.where(total > 0, 1)


def _words(x: Tensor, mask: Tensor) -> Tensor:
    """The mean number of entries of the nodes in `mask`."""
    if x.layout == torch.sparse_csr:
        return x.crow_indices().diff()[mask].double().mean().reshape(1)
    return (x[mask] != 0).double().sum(dim=1).mean().reshape(1)


def _entries(x: Tensor) -> Tensor:
    return x.values() if x.layout == torch.sparse_csr else x


def _columns_of(x: Tensor, entries: Tensor, reduce: Literal["sum", "amax"]) -> Tensor:
    """The sum or the largest of each column's entries, as float32; zeros that are not stored count."""
    if x.layout != torch.sparse_csr:
        return entries.sum(dim=0) if reduce == "sum" else entries.amax(dim=0)
    zeros = torch.zeros(x.shape[1], dtype=entries.dtype, device=x.device)
    return zeros.scatter_reduce(0, x.col_indices(), entries, reduce)


def _moments(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column over the nodes in `mask`, in float64, zeros included."""
    count = int(mask.sum())
    if x.layout == torch.sparse_csr:
        chosen = torch.repeat_interleave(mask, x.crow_indices().diff())
        columns, values = x.col_indices()[chosen], x.values()[chosen].double()
        zeros = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        mean = zeros.index_add(0, columns, values) / count
        square = zeros.index_add(0, columns, values.square()) / count
        return mean, (square - mean.square()).clamp(min=0).sqrt()
    rows = x[mask]
    mean = torch.stack([block.double().sum(dim=0) for block in _blocks(rows)]).sum(dim=0) / count
    squares = torch.stack([(block.double() - mean).square().sum(dim=0) for block in _blocks(rows)])
    return mean, (squares.sum(dim=0) / count).sqrt()


def _blocks(x: Tensor) -> Iterator[Tensor]:
    return (x[start : start + ROWS] for start in range(0, len(x), ROWS))


def _with_values(x: Tensor, values: Tensor) -> Tensor:
    return csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)
