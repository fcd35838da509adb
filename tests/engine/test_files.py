"""Files: round trips with inline and external weights, atomic writes, one clear message per bad file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fuseline.engine.conversion import convert_opset, lower_ir
from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.facts import Facts, Origin
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.runtime import run, session

TEXT = """<ir_version: 8, opset_import: ["" : 13]>
g (float[N,64] x) => (float[N,64] y) <float[64,64] w = {{{}}}>
{{ a = MatMul(x, w)  y = Softplus(a) }}""".format(",".join(["0.01"] * 4096))


def small() -> Model:
    model = Model.from_text(TEXT)
    model.parameters.add(Parameter("layer.weight", "w", (64, 64)))
    model.facts.origin = Origin(task="test")
    return model


def outputs(model: Model | Path) -> np.ndarray:
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    return run(session(model, threads=1), {"x": x})["y"]


@pytest.mark.parametrize("external", [False, True])
def test_round_trip(tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    small().save(path, external=external)
    assert (tmp_path / "m.onnx.data").exists() == external
    loaded = Model.load(path)
    assert loaded.parameters == small().parameters
    assert loaded.facts == Facts(Origin(task="test"))
    np.testing.assert_array_equal(outputs(loaded), outputs(small()))
    np.testing.assert_array_equal(outputs(path), outputs(small()))


def test_saving_over_its_own_external_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    small().save(path, external=True)
    for _ in range(3):
        Model.load(path).save(path, external=True)
    np.testing.assert_array_equal(outputs(path), outputs(small()))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    small().save(path, external=True)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}

    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match=rf"disk full: '{path}'"):
        small().save(path, external=True)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def write(path: Path, proto: onnx.ModelProto) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def with_external(path: Path, location: str) -> Path:
    proto = small().to_proto()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    return write(path, proto)


def test_bad_files(tmp_path: Path) -> None:
    good = tmp_path / "good.onnx"
    small().save(good)
    truncated = tmp_path / "truncated.onnx"
    truncated.write_bytes(good.read_bytes()[:-100])
    text = tmp_path / "text.onnx"
    text.write_text("I am not a model\n")
    cycle = small().to_proto()
    cycle.graph.node[0].input[0] = "y"
    unknown = small().to_proto()
    unknown.graph.node[1].op_type = "Softpluss"
    dangling = small().to_proto()
    dangling.graph.node[0].input[0] = "nowhere"
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "short.data").write_bytes(b"123")
    cases = {
        tmp_path / "none.onnx": "there is no file",
        tmp_path: "is a folder",
        tmp_path / "empty.onnx": "is empty",
        truncated: "cut short",
        text: "is not an ONNX model",
        write(tmp_path / "cycle.onnx", cycle): "has a cycle: .*MatMul_0.*Softplus_1",
        write(
            tmp_path / "unknown.onnx", unknown
        ): "unknown operator 'Softpluss'\n  hint: did you mean 'Softplus'",
        write(tmp_path / "dangling.onnx", dangling): "reads 'nowhere', which nothing produces",
        with_external(tmp_path / "missing.onnx", "gone.data"): "external file 'gone.data', which is missing",
        with_external(tmp_path / "escape.onnx", "../../etc/passwd"): "leaves the model's folder",
        with_external(tmp_path / "absolute.onnx", "/etc/passwd"): "leaves the model's folder",
        with_external(tmp_path / "short.onnx", "short.data"): "ends at byte",
    }
    for path, message in cases.items():
        with pytest.raises(ModelError, match=message):
            Model.load(path)


@pytest.mark.parametrize("target", [18, 21])
def test_opset_conversion_keeps_numbers_names_and_provenance(target: int) -> None:
    model = small()
    next(iter(model.graph)).metadata_props["fuseline.module"] = "layer"
    before = outputs(model)
    assert convert_opset(model, target)
    assert model.opset() == target
    assert next(iter(model.graph)).metadata_props["fuseline.module"] == "layer"
    assert list(model.graph.initializers) == ["w"]
    assert [i.name for i in model.graph.inputs] == ["x"]
    np.testing.assert_array_equal(outputs(model), before)
    assert convert_opset(model, target - 1)
    np.testing.assert_array_equal(outputs(model), before)


def test_impossible_conversion_says_why_and_changes_nothing() -> None:
    model = small()
    with pytest.raises(ModelError, match=r"opset 13 cannot be converted to 11: .*MatMul"):
        convert_opset(model, 11)
    np.testing.assert_array_equal(outputs(model), outputs(small()))


def test_ir_version_is_lowered() -> None:
    model = small()
    model.ir.ir_version = 13
    assert lower_ir(model)
    assert model.ir.ir_version == 10
    assert not lower_ir(model)


def test_transforming_parameters_keeps_the_map() -> None:
    model = small()
    value = model.graph.initializers["w"]
    content = np.arange(4096, dtype=np.float32).reshape(64, 64)
    value.const_value = ir.tensor(content)
    model.transpose_parameter(value, (1, 0))
    tensor = value.const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), content.T)
    np.testing.assert_array_equal(model.parameters.from_graph({"w": tensor.numpy()})["layer.weight"], content)


CAPTURING = """<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[4] x) => (float[4] y) {
    y = If(c) <
        then_branch = t () => (float[4] p) { p = Neg(a) },
        else_branch = e () => (float[4] q) { q = Identity(a) }>
    a = Exp(x)
}"""


def test_a_branch_is_sorted_behind_what_it_captures(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(CAPTURING).SerializeToString())
    model = Model.load(path)
    assert [n.op_type for n in model.clone().graph] == ["Exp", "If"]


def test_an_invalid_model_is_not_written(tmp_path: Path) -> None:
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[4] x) => (float[4] y) { y = Neg(x) }'
    )
    [node] = model.graph
    node.metadata_props["fuseline.pass"] = "mine"
    node.attributes["axs"] = ir.AttrInt64("axs", 1)
    with pytest.raises(ModelError, match="made by 'mine': Neg has no attribute 'axs'"):
        model.save(tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


def _sparse(name: str, indices: list[list[int]] | list[int]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1, 2], np.float32), name)
    return onnx.helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices), ""), [2, 3])


def _with_sparse(indices: list[list[int]] | list[int]) -> onnx.ModelProto:
    """One as an initializer, one as a constant in a branch."""
    branches = "then_branch = t () => (float[2,3] o) { c = Constant() o = Add(x, c) }, "
    branches += "else_branch = e () => (float[2,3] p) { p = Neg(x) }"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,3] x, bool b) => (float[2,3] y) {{
        a = Add(x, s)
        z = If (b) <{branches}>
        y = Add(a, z)
    }}"""
    model = onnx.parser.parse_model(text)
    model.graph.sparse_initializer.append(_sparse("s", indices))
    constant = model.graph.node[1].attribute[0].g.node[0]
    constant.attribute.append(onnx.helper.make_attribute("sparse_value", _sparse("", [0, 4])))
    return model


@pytest.mark.parametrize("indices", [[0, 4], [[0, 0], [1, 1]]])
def test_sparse_tensors_become_dense(tmp_path: Path, indices: list[list[int]] | list[int]) -> None:
    path = tmp_path / "sparse.onnx"
    onnx.save(_with_sparse(indices), path)
    model = Model.load(path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    dense = np.array([[1, 0, 0], [0, 2, 0]], np.float32)
    for chosen, other in ((True, x + dense), (False, -x)):
        outputs = run(session(model), {"x": x, "b": np.array(chosen)})
        np.testing.assert_array_equal(outputs["y"], x + dense + other)


@pytest.mark.parametrize("indices", [[0, 6], [-1, 2], [[0, 0], [1, 3]]])
def test_sparse_tensors_that_point_outside(tmp_path: Path, indices: list[list[int]] | list[int]) -> None:
    path = tmp_path / "sparse.onnx"
    onnx.save(_with_sparse(indices), path)
    with pytest.raises(ModelError, match=r"the sparse tensor 's' has indices outside its shape \[2, 3\]"):
        Model.load(path)


def test_a_file_says_the_shape_of_a_weight_once(tmp_path: Path) -> None:
    """A tool that transposes a weight in the file would leave a second word on its shape behind, wrong."""
    model = small()
    for external in (False, True):
        model.save(tmp_path / "m.onnx", external=external)
        graph = onnx.load(tmp_path / "m.onnx").graph
        assert [t.name for t in graph.initializer] == ["w"]
        assert "w" not in {v.name for v in graph.value_info}


def test_saving_leaves_the_weights_of_a_neighbour_alone(tmp_path: Path) -> None:
    for name in ("m.onnx.bak", "m.onnx", "m.onnx"):
        small().save(tmp_path / name, external=True)
    assert np.array_equal(
        outputs(Model.load(tmp_path / "m.onnx.bak")), outputs(Model.load(tmp_path / "m.onnx"))
    )
    assert len(list(tmp_path.glob("*.data"))) == 2  # what the first m.onnx had is gone


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FuselineError, match="is a device or a pipe"):
        small().save(pipe)
    assert pipe.is_fifo()
    assert [f.name for f in tmp_path.iterdir()] == ["pipe"]


def test_a_length_that_is_not_the_weights_own_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    small().save(path, external=True)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = "400"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="takes 16,384 bytes, and the model says"):
        Model.load(path)


@pytest.mark.parametrize("offset", ["abc", "-64", "1.5", ""])
def test_an_offset_that_is_no_number_is_refused(tmp_path: Path, offset: str) -> None:
    path = tmp_path / "m.onnx"
    small().save(path, external=True)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "offset":
            entry.value = offset
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=f"the offset of weight 'w' is '{offset}', no number of bytes"):
        Model.load(path)
