"""A second device, `"second"`, for tests of device placement on a machine that has none but its CPU.

Its tensors are wrappers (`SecondTensor`) around CPU tensors, and every operation runs on what is inside. As on CUDA:

- operands of two devices are refused; 0-dim CPU tensors are allowed beside tensors of the device, and CPU tensors as
  indices of one (`x[mask]`), but neither the other way round nor in a list (`torch.cat`);
- `.numpy()`, `np.asarray`, and so scipy and `torch.from_numpy`, are refused; `.cpu()`, `.to`, `.tolist()`, `.item()`
  and `copy_` bring numbers over;
- a generator of the CPU is refused;
- views share memory and version counters with their bases; in-place operations, `out=`, autograd, `nn.Module.to`,
  optimisers, half precision, autocast (of products) and CSR tensors work.

Unlike CUDA: it draws the random numbers of the CPU's generator and rounds as the CPU does, so that its results can be
held against the CPU's; there is one such device, without streams or events, and optimisers take their plain loops
(neither foreach nor fused). What a device may lack it has, except for float64, which
`without_float64` takes away as MPS does.
Import this before the first gradient of a process is taken: autograd counts devices then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["SECOND", "SecondTensor", "other_devices", "without_float64"]

other_devices = pytest.mark.parametrize(
    "device",
    [
        "second",
        pytest.param(
            "cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
        ),
    ],
)

aten = torch.ops.aten

FACTORIES = (
    "arange", "arange.start", "arange.start_step", "empty.memory_format", "empty_strided", "eye", "eye.m", "full",
    "linspace", "ones", "rand", "randint", "randint.low", "randn", "randperm", "scalar_tensor", "tril_indices",
    "triu_indices", "zeros",
)  # fmt: skip
INDEXED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
COPIES = (aten.copy_.default, aten._copy_from.default)
PRODUCTS = ("mm", "addmm", "matmul", "linear")  # that autocast computes in less precision
AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


class Second(backend_registration._DummyBackendModule):
    """What torch asks of a device's module, `torch.second`."""

    def is_available(self) -> bool:
        """No: `nn.DataParallel` and others that look for devices of their own are to find none."""
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """What autocast may compute in."""
        return [torch.float16, torch.bfloat16]


class SecondTensor(Tensor):
    """A tensor of the second device around a CPU tensor, `inner`."""

    inner: Tensor
    float64: ClassVar[bool] = True
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> SecondTensor:
        if inner.dtype == torch.float64 and not cls.float64:
            raise TypeError("Cannot convert a tensor to float64, which this device does not have")
        strided = inner.layout == torch.strided
        strides = {"strides": inner.stride(), "storage_offset": inner.storage_offset()} if strided else {}
        tensor = Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=SECOND, dispatch_layout=not strided, **strides
        )
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` on what is inside the tensors of the device; the results are on it unless asked elsewhere."""
        kwargs = kwargs or {}
        if func is torch.ops.prim.layout.default:
            return args[0].inner.layout
        if func is aten.alias.default and args[0].inner.layout != torch.strided:
            func = aten.detach.default
        _refuse_mixed(func, args, kwargs)
        target = kwargs.get("device") or SECOND
        given = {name: "cpu" if name == "device" and value is not None else value for name, value in kwargs.items()}
        result = func(*tree_map(_unwrapped, args), **tree_map(_unwrapped, given))
        written = _written(func, args, kwargs)
        if written is not None:
            return written
        return tree_map(_wrapped, result) if torch.device(target).type == "second" else result

    def tolist(self) -> Any:
        """As every device has it: by way of the CPU."""
        return self.cpu().tolist()

    def __repr__(self) -> str:
        return f"SecondTensor({self.inner})"


@contextmanager
def without_float64() -> Iterator[None]:
    """The second device as if it had no float64."""
    SecondTensor.float64 = False
    try:
        yield
    finally:
        SecondTensor.float64 = True


def _unwrapped(value: Any) -> Any:
    return value.inner if isinstance(value, SecondTensor) else value


def _wrapped(value: Any) -> Any:
    return SecondTensor(value) if isinstance(value, Tensor) else value


def _written(func: Any, args: Any, kwargs: Any) -> Any:
    """The tensors that `func` wrote into, which are what it gives back; None where it wrote into none."""
    written = [one for one in func._schema.arguments if one.alias_info is not None and one.alias_info.is_write]
    if not written or not func._schema.returns:
        return None
    named = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    tensors = [named[one.name] for one in written]
    if torch.Tag.inplace_view in func.tags:  # the wrapper, too, has another shape then
        with no_dispatch():
            func(*args, **kwargs)
    for tensor in tensors:
        assert not isinstance(tensor, SecondTensor) or tensor.shape == tensor.inner.shape, f"{func} resized its output"
    return tensors[0] if len(func._schema.returns) == 1 else tuple(tensors)


def _refuse_mixed(func: Any, args: Any, kwargs: Any) -> None:
    """Operands of two devices are refused as CUDA's are, and so are generators of the CPU."""
    generators = [one for one in tree_leaves(kwargs) if isinstance(one, torch.Generator)]
    if any(one.device.type == "cpu" for one in generators):
        raise RuntimeError("Expected a 'second' device type for generator but found 'cpu'")
    if func in COPIES:
        return
    if func in INDEXED:  # by tensors of the CPU, too
        args = (args[0], *args[2:]) if isinstance(args[0], SecondTensor) else args
    for value in (*args, *kwargs.values()):
        in_list = isinstance(value, list | tuple)
        for one in tree_leaves(value):
            if isinstance(one, Tensor) and not isinstance(one, SecondTensor) and (one.dim() or in_list):
                raise RuntimeError(f"Expected all tensors to be on the same device, second:0 and cpu ({func})")
    mutable = func._schema.is_mutable and isinstance(args[0], Tensor)
    if mutable and not isinstance(args[0], SecondTensor):
        raise RuntimeError(f"Expected all tensors to be on the same device, cpu and second:0 ({func})")


def _factory(name: str) -> Any:
    packet, _, overload = name.partition(".")
    func = getattr(getattr(aten, packet), overload or "default")

    def made(*args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> Tensor:
        _refuse_mixed(func, (), kwargs)
        return SecondTensor(func(*args, device="cpu", **kwargs))

    return made


def _copied(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return SecondTensor.__torch_dispatch__(aten.copy_.default, (), (target, source))


def _autocast(name: str) -> Any:
    func = getattr(aten, name).default

    def cast(*args: Any) -> Tensor:
        lower = torch.get_autocast_dtype("second")
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            return func(*(one.to(lower) if isinstance(one, Tensor) else one for one in args))

    return cast


def _registered() -> list[torch.library.Library]:
    """The device, its factories, the copy that `torch.tensor(…, device="second")` makes by itself, and its autocast."""
    backend_registration._setup_privateuseone_for_python_backend("second", Second())
    library, others = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    for name in FACTORIES:
        library.impl(name, _factory(name), "PrivateUse1")
    library.impl("_copy_from", _copied, "PrivateUse1")
    for name in PRODUCTS:
        library.impl(name, _autocast(name), "AutocastPrivateUse1")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    return [library, others]


_LIBRARIES = _registered()  # the kernels live as long as these do
SECOND = torch.device("second", 0)
