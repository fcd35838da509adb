"""The pass `keep-outputs`."""

from __future__ import annotations

from dataclasses import replace

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.pruning import keep_only
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.optimizer import WAITS_FOR

__all__ = ["KeepOutputs"]


class KeepOutputs(Pass):
    """graph with many outputs → the same with those named, and nothing computed for others alone

    Inputs that only the others read are gone with them. Outputs that are new contents of buffers or
    accumulated gradients stay, unless `updates` is off.
    """

    name = "keep-outputs"
    names: tuple[str, ...] = ()
    updates: bool = True

    def run(self, model: Model, rewriter: Rewriter) -> int:
        graph, facts = model.graph, model.facts
        known = {str(v.name): v for v in graph.outputs}
        for name in self.names:
            if name not in known:
                raise ModelError(f"the graph has no output {name!r}", hint=did_you_mean(name, known))
        written = facts.training.updates if self.updates else {}
        kept = [v for name, v in known.items() if name in self.names or name in written]
        if not kept:
            raise ModelError("no output would be left", hint=f"the graph has {', '.join(known)}")
        if len(kept) == len(known) or not rewriter.permit("outputs", self.summary()):
            return rewriter.changes
        dropped = known.keys() - {str(v.name) for v in kept}
        for node in list(graph):
            # The update waits for outputs that may still read a weight; these are gone.
            if node.metadata_props.get(WAITS_FOR) in dropped and node.inputs[0] is not None:
                node.outputs[0].replace_all_uses_with(node.inputs[0])
        keep_only(model, rewriter, kept)
        if not self.updates:
            model.facts.training = replace(facts.training, updates={})
        left = tuple(name for name in facts.interface.outputs if name not in dropped)
        model.facts.interface = replace(facts.interface, outputs=left)
        return rewriter.changes
