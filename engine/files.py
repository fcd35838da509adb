"""Reading and writing .onnx files: inline or external weights, over 2 GB, atomic, with readable errors."""

from __future__ import annotations

import mmap
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from fuseline.engine.collector import collector_paused
from fuseline.engine.content import check_content
from fuseline.engine.errors import ModelError, PipelineError, root_cause
from fuseline.engine.outputs import refuse_special_file
from fuseline.engine.returned import declare_returned
from fuseline.engine.sparse import every_graph, make_dense

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = [
    "atomic_write",
    "give_back_pages",
    "load",
    "read_text",
    "save",
    "serialize",
    "weight_bytes",
    "write_text",
]

# Protobuf refuses messages of 2 GiB; leave room for the graph itself.
INLINE_LIMIT = 1 << 30
EXTERNAL_THRESHOLD = 1024


def load(path: str | os.PathLike[str]) -> Model:
    """Read an .onnx file and check it; weights in external files stay there until something needs them."""
    from fuseline.engine.model import Model
    from fuseline.engine.validation import validate

    path = Path(path)
    with collector_paused():
        ir_model = _parse(path)
        model = Model.from_ir(ir_model)
        validate(model, source=str(path))
    return model


def _parse(path: Path) -> ir.Model:
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not an .onnx file")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"there is no file {path}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if not data:
        raise ModelError(f"{path} is empty")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            f"{path} is not an ONNX model, or it is cut short ({len(data):,} bytes do not parse)",
            hint="export or download it again",
        ) from error
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError(f"{path} parses, but holds no ONNX graph with an opset")
    _check_external_places(proto, path)
    try:
        ir_model = ir.from_proto(declare_returned(make_dense(proto)))
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}") from error
    except Exception as error:  # onnx_ir raises many types for broken graphs
        raise ModelError(f"{path}: the graph cannot be read: {root_cause(error)}") from error
    for tensor in (external := check_content(ir_model, str(path))):
        tensor.base_dir = str(path.parent)
    _check_external_files(external, path)
    return ir_model


def read_text(path: Path, what: str) -> str:
    """The content of a text file that a user gave."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{what} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(
            f"{what} {path} is not text: byte {error.start} is not UTF-8", hint="save it as UTF-8"
        ) from error


def _check_external_places(proto: onnx.ModelProto, path: Path) -> None:
    """Offsets and lengths are texts in a file, and may be any."""
    for graph in every_graph(proto):
        for tensor in graph.initializer if isinstance(graph, onnx.GraphProto) else ():
            for entry in tensor.external_data:
                if entry.key in ("offset", "length") and not re.fullmatch("[0-9]+", entry.value):
                    raise ModelError(
                        f"{path}: the {entry.key} of weight {tensor.name!r} is {entry.value!r}, "
                        "no number of bytes",
                        hint="export or download it again",
                    )


def _check_external_files(tensors: list[ir.ExternalTensor], path: Path) -> None:
    folder = path.parent.resolve()
    checked: set[str] = set()
    for tensor in tensors:
        location = str(tensor.location)
        target = (folder / location).resolve()
        if not target.is_relative_to(folder):
            raise ModelError(
                f"{path}: weight {tensor.name!r} points to {location!r}, which leaves the model's folder",
                hint="keep external data beside the model",
            )
        if location not in checked and not target.is_file():
            raise ModelError(
                f"{path}: weight {tensor.name!r} needs the external file {location!r}, which is missing",
                hint=f"put it beside {path.name}",
            )
        checked.add(location)
        if tensor.length is not None and tensor.length != tensor.nbytes:
            raise ModelError(
                f"{path}: weight {tensor.name!r} takes {tensor.nbytes:,} bytes, and the model says that "
                f"{location!r} holds {tensor.length:,} of it",
                hint="export or download it again",
            )
        end = (tensor.offset or 0) + tensor.nbytes
        if end > target.stat().st_size:
            raise ModelError(
                f"{path}: weight {tensor.name!r} ends at byte {end:,} of {location!r}, "
                f"which has {target.stat().st_size:,}",
                hint="the external file is cut short; download it again",
            )


def weight_bytes(ir_model: ir.Model) -> int:
    """The size of all initializers."""
    return sum(
        v.const_value.nbytes
        for graph in ir_model.graphs()
        for v in graph.initializers.values()
        if v.const_value is not None
    )


def save(model: Model, path: str | os.PathLike[str], *, external: bool | None = None) -> None:
    from fuseline.engine.validation import check_finished

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with collector_paused():
        check_finished(model)
        ir_model = model.to_ir()
        if external is None:
            external = weight_bytes(ir_model) > INLINE_LIMIT
        if external:
            _save_external(ir_model, path)
            return
        ir.external_data.load_to_model(ir_model)
        with atomic_write(path) as temporary:
            temporary.write_bytes(_file_bytes(ir_model))


def serialize(ir_model: ir.Model) -> onnx.ModelProto:
    """The message for a file or a session."""
    try:
        return ir.to_proto(ir_model)
    except Exception as error:  # onnx_ir raises several types for what a message cannot hold
        raise ModelError(f"the model cannot be written: {root_cause(error)}") from error


def _file_bytes(ir_model: ir.Model) -> bytes:
    """Without a second word on the shapes of weights: who edits one in the file would have to edit both.

    ONNX Runtime's quantizer, for one, transposes weights and leaves the other word behind, now wrong.
    """
    message = serialize(ir_model)
    graph = message.graph
    weights = {t.name for t in graph.initializer}
    kept = [v for v in graph.value_info if v.name not in weights]
    if len(kept) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(kept)
    made: bytes = message.SerializeToString()
    return made


def _save_external(ir_model: ir.Model, path: Path) -> None:
    """Write the weights under a name of their own, then let the model's rename switch to them."""
    data = path.with_name(f"{path.name}.data")
    old = data if data.exists() else None
    if old:
        data = path.with_name(f"{path.name}.{secrets.token_hex(4)}.data")
    replaced = _data_files(path)
    try:
        ir.external_data.unload_from_model(
            ir_model, str(path.parent), data.name, size_threshold_bytes=EXTERNAL_THRESHOLD
        )
        with atomic_write(path) as temporary:
            temporary.write_bytes(_file_bytes(ir_model))
    except BaseException as error:
        data.unlink(missing_ok=True)
        _say_which(error, data)
        raise
    for stale in replaced - {data}:
        stale.unlink(missing_ok=True)


def give_back_pages(ir_model: ir.Model) -> None:
    """Take the pages of external weights that were read out of memory; who needs them reads them again."""
    for graph in ir_model.graphs():
        for value in graph.initializers.values():
            pages = getattr(value.const_value, "raw", None)
            if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)


def _data_files(path: Path) -> set[Path]:
    """The data files that belong to the model at `path` by our naming, and so may be replaced with it.

    The whole name decides: `m.onnx.bak.data` belongs to `m.onnx.bak`.
    """
    ours = re.compile(re.escape(path.name) + r"(\.[0-9a-f]{8})?\.data")
    return {f for f in path.parent.iterdir() if ours.fullmatch(f.name) and f.is_file()}


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when all went well."""
    refuse_special_file(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _say_which(error, path)
        raise


def _say_which(error: BaseException, path: Path) -> None:
    """Of a file that cannot be opened the system says which one it is, of one that cannot be filled not."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def write_text(path: Path, text: str) -> None:
    """The whole text or nothing."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
