"""What a training export promises: loss, names, ties, switch, provenance, dynamic axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.exporters.mode import SWITCH
from fuseline.exporters.provenance import MODULE, SOURCE
from fuseline.exporters.verify import CheckReport, Runner
from fuseline.tools.campaigns import zoo

Pair = tuple[Any, Model]


def _feeds(module: Any, batch: int, seq: int, seed: int = 0) -> dict[str, Any]:
    return {name: value.numpy() for name, value in zoo.batch(module, batch, seq, seed).items()}


def evaluation(model: Model) -> Model:
    return Pipeline.parse("evaluation-mode").run(model).model


def test_loss_comes_first_and_logits_are_kept(bert: Pair) -> None:
    _, model = bert
    assert [o.name for o in model.graph.outputs] == ["loss", "logits"]
    assert [i.name for i in model.graph.inputs] == ["input_ids", "attention_mask", "token_type_ids", "labels"]
    assert model.training
    assert model.facts.training.loss == "loss"
    assert model.facts.interface.labels == ("labels",)


def test_the_graph_is_valid_and_fits_the_runtime(bert: Pair) -> None:
    proto = bert[1].to_proto()
    onnx.checker.check_model(proto, full_check=True)
    assert proto.ir_version <= 10
    assert {i.domain: i.version for i in proto.opset_import} == {"": 18}


def test_parameters_keep_their_torch_names(bert: Pair) -> None:
    module, model = bert
    expected = {name for name, p in module.named_parameters() if p.requires_grad}
    assert {p.name for p in model.parameters if p.trainable} == expected
    for parameter in model.parameters:
        if parameter.trainable:
            assert parameter.value == parameter.name
            content = model.graph.initializers[parameter.value].const_value
            assert content is not None
            np.testing.assert_array_equal(
                content.numpy(), module.get_parameter(parameter.name).detach().numpy()
            )


def test_unused_buffers_stay_in_the_map_without_a_value(bert: Pair) -> None:
    kinds = {p.name: (p.kind, p.trainable) for p in bert[1].parameters}
    assert kinds["bert.embeddings.position_ids"] == ("buffer", False)


def test_tied_weights_are_stored_once_and_known_under_every_name(gpt2: Pair) -> None:
    _, model = gpt2
    embedding, head = model.parameters["transformer.wte.weight"], model.parameters["lm_head.weight"]
    assert embedding.value == head.value == "transformer.wte.weight"
    assert "lm_head.weight" not in model.graph.initializers


def test_every_dropout_reads_the_switch(bert: Pair, gpt2: Pair) -> None:
    for module, model in (bert, gpt2):
        dropouts = [n for n in model.nodes() if n.op_type == "Dropout"]
        # Embedding, and per layer: attention weights, attention output, feed-forward output; BERT's head.
        assert len(dropouts) == 1 + 2 * 3 + (1 if "Bert" in type(module).__name__ else 0)
        assert all(n.inputs[2] is not None and n.inputs[2].name == SWITCH for n in dropouts)
        assert model.facts.training.switch == SWITCH


def test_evaluation_copy_equals_torch_in_eval_mode(gpt2: Pair) -> None:
    module, model = gpt2
    batch = zoo.batch(module, 2, 11)
    module.eval()
    with torch.no_grad():
        expected = module(**batch)
    module.train()
    evaluated = evaluation(model)
    for graph in (evaluated, Pipeline.resolve("inference").run(evaluated).model):
        actual = Runner(graph)(_feeds(module, 2, 11))
        np.testing.assert_allclose(actual["loss"], expected.loss.numpy(), rtol=1e-5)
        np.testing.assert_allclose(actual["logits"], expected.logits.numpy(), atol=1e-5)


def test_training_drops_and_evaluation_does_not(bert: Pair) -> None:
    module, model = bert
    feeds = _feeds(module, 3, 8)
    train, evaluate = Runner(model), Runner(evaluation(model))
    assert not np.array_equal(train(feeds)["logits"], train(feeds)["logits"])
    np.testing.assert_array_equal(evaluate(feeds)["logits"], evaluate(feeds)["logits"])


def test_checked_on_three_shapes_with_batch_one(bert: Pair) -> None:
    report = CheckReport.from_json(bert[1].facts.origin.check)
    shapes = {c.shape for c in report.checks}
    assert len(shapes) == 3
    assert any(shape.startswith("batch=1,") for shape in shapes)
    assert report.ok
    assert report.difference("loss") <= 1e-5


def test_axes_have_names(bert: Pair) -> None:
    graph = bert[1].graph
    assert [str(d) for d in graph.inputs[0].shape or ()] == ["batch", "sequence"]
    assert bert[1].facts.interface.dynamic_axes["labels"] == {"0": "batch"}
    assert bert[1].facts.interface.inputs["attention_mask"].default == 1


def test_nodes_know_module_and_source_line(bert: Pair) -> None:
    _, model = bert
    softmax = [n for n in model.nodes() if n.op_type == "Softmax"]
    assert [n.metadata_props[MODULE] for n in softmax] == [
        "bert.encoder.layer.0.attention.self",
        "bert.encoder.layer.1.attention.self",
    ]
    assert "transformers/" in softmax[0].metadata_props[SOURCE]
    assert all(n.metadata_props.get(MODULE) for n in model.nodes())
    # The guard against negative ids is the exporter's own; everything else has a line of the model's code.
    ours = [n.op_type for n in model.nodes() if not n.metadata_props.get(SOURCE)]
    assert sorted(ours) == ["Constant", "Constant", "Less", "Where"]
    loss = next(n for n in model.nodes() if n.op_type == "SoftmaxCrossEntropyLoss")
    assert loss.metadata_props[MODULE] == "BertForSequenceClassification"
    assert all(not key.startswith("pkg.torch") for n in model.nodes() for key in n.metadata_props)


def test_batch_norm_trains_and_returns_its_statistics(resnet: Pair) -> None:
    module, model = resnet
    name = "resnet.embedder.embedder.normalization.running_var"
    updated = f"{name}.updated"
    assert model.facts.training.updates[updated] == name
    batch = zoo.batch(module, 4, 7)
    before = {n: b.clone() for n, b in module.named_buffers()}
    with torch.no_grad():
        module(**batch)
    moved = module.get_buffer(name).numpy().copy()
    for n, b in module.named_buffers():
        b.copy_(before[n])
    actual = Runner(model)(_feeds(module, 4, 7))
    np.testing.assert_allclose(actual[updated], moved, rtol=1e-5)
    assert int(actual["resnet.embedder.embedder.normalization.num_batches_tracked.updated"]) == 1


def test_batch_norm_evaluates_with_its_buffers(resnet: Pair) -> None:
    module, model = resnet
    batch = zoo.batch(module, 3, 7)
    module.eval()
    with torch.no_grad():
        expected = module(**batch).logits.numpy()
    module.train()
    evaluated = evaluation(model)
    assert [o.name for o in evaluated.graph.outputs] == ["loss", "logits"]
    np.testing.assert_allclose(Runner(evaluated)(_feeds(module, 3, 7))["logits"], expected, atol=1e-5)


def test_the_module_is_left_as_it_was(resnet: Pair) -> None:
    module, _ = resnet
    assert module.training
    assert int(module.get_buffer("resnet.embedder.embedder.normalization.num_batches_tracked")) == 0


def test_facts_survive_a_file(bert: Pair, tmp_path: Any) -> None:
    _, model = bert
    model.save(tmp_path / "bert.onnx")
    loaded = Model.load(tmp_path / "bert.onnx")
    assert loaded.facts == model.facts
    assert loaded.parameters == model.parameters
