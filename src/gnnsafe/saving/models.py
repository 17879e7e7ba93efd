"""The model of a saved detector: a registered one with its weights, any other by what tells it from the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gnnsafe.errors import InputError, SavedFileError, require, require_known
from gnnsafe.hashing import weights_digest
from gnnsafe.models import MODELS
from gnnsafe.randomness import OwnRandomness
from gnnsafe.saving.parts import PARTS, Unpacking, UnregisteredError, packed

__all__ = ["SavedModel"]


@dataclass(frozen=True)
class SavedModel:
    """What tells a model from any other; a registered one has `arguments`, and its weights are saved too."""

    name: str
    """Of its class."""
    registered: str | None
    """Its name in `MODELS`."""
    state: dict[str, str]
    """Type and shape of every weight."""
    weights: str
    """A hash of them."""
    arguments: dict[str, Any] | None

    @classmethod
    def of(cls, model: nn.Module, tensors: dict[str, Tensor]) -> SavedModel:
        """The model; if it is registered, its weights are put into `tensors`."""
        state, registered = _state(model), MODELS.name_of(type(model))
        if registered is not None:
            other = next((name for name in model.state_dict() if name not in state), None)
            require(other is None, "model", "have tensors alone in its state to be saved", f"'{other}'")
            tensors.update({f"model.{name}": tensor for name, tensor in state.items()})
        arguments = None if registered is None else _arguments(model)
        return cls(type(model).__name__, registered, _shapes(state), weights_digest(model), arguments)

    def built(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        """The registered model that was saved, in evaluation mode.

        Raises:
            InputError: It was not registered when it was saved.
            SavedFileError: There is no such model, or `tensors` are not its weights.
        """
        if self.registered is None or self.arguments is None:
            raise InputError(
                f"'model' must be given: the detector was saved with a {self.name}, which is not one of gnnsafe.models "
                "(got none); use gnnsafe.load(folder, model)"
            )
        made = MODELS.get(self.registered)
        if made is None:
            raise UnregisteredError(
                f"'model' must be a registered one (got '{self.registered}', a {self.name}); import or install what "
                "registers it"
            )
        try:
            self._check_arguments(made, Unpacking(tensors))
            # Of ours no weights are drawn and no memory is taken: they are all in the file.
            with torch.device("meta") if made in MODELS.own else OwnRandomness(0):
                model: nn.Module = made(**self.arguments)
        except Exception as error:  # whatever a constructor of a user's raises
            raise SavedFileError(f"'folder' must hold the arguments of a {self.name} (got {error})") from error
        state = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        have, want = ({name: tensor.shape for name, tensor in part.items()} for part in (state, model.state_dict()))
        for name in sorted(have.keys() | want.keys()):
            if have.get(name) != want.get(name):
                got, right = (list(part[name]) if name in part else "none" for part in (have, want))
                raise SavedFileError(f"'model.{name}' must have the shape {right} (got {got})")
            if state[name].is_floating_point() != model.state_dict()[name].is_floating_point():
                raise SavedFileError(f"'model.{name}' must be of the model's type (got {state[name].dtype})")
        model.load_state_dict(state, assign=True)
        return model.eval()

    def _check_arguments(self, made: type[nn.Module], unpacking: Unpacking) -> None:
        """They are of the types that the constructor declares; whole numbers are no larger than the file."""
        kinds = get_type_hints(made.__init__)
        for name, value in (self.arguments or {}).items():
            require_known("model.arguments", name, signature(made).parameters)
            unpacking.value(kinds[name], value, f"model.arguments.{name}")
            if kinds[name] is int:
                unpacking.count(value, f"model.arguments.{name}")

    def check(self, model: nn.Module) -> None:
        """`model` is the one that was saved: its class, its arguments if it is registered, its shapes, every weight."""
        empty = any(is_lazy(one) or one.is_meta for one in (*model.parameters(), *model.buffers()))
        remedy = "load them first, after a call of the model where its layers are lazy"
        require(not empty, "model", "have weights", "one without", remedy)
        name, state = type(model).__name__, _state(model)
        self._require_same(name == self.name, f"a {name}")
        arguments = {} if self.arguments is None or MODELS.name_of(type(model)) is None else _arguments(model)
        for have, want in ((_shapes(state), self.state), (arguments, self.arguments or {})):
            for key in sorted({*have, *want}):
                found, right = have.get(key, "none"), want.get(key, "none")
                self._require_same(found == right, f"one whose {key} is {found}, not {right}")
        self._require_same(weights_digest(model) == self.weights, "one with other weights")

    def _require_same(self, holds: bool, got: str) -> None:
        if not holds:
            raise SavedFileError(f"'model' must be the {self.name} that the detector was saved with (got {got})")


PARTS[SavedModel.__name__] = SavedModel


def _arguments(model: nn.Module) -> dict[str, Any]:
    """The arguments that a registered model was constructed with."""
    arguments: Any = model.arguments
    return {name: packed(value, name, {}) for name, value in arguments.items()}


def _shapes(state: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in state.items()}


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
