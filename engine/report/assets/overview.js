// A run as a whole: what became of the operators, and what each pass did, in a line each.
function overview(app) {
  const { run } = app, last = run.count - 1, done = run.passes.filter((p) => p.changes && !p.reverted);
  if (!done.length) return h("div", { class: "empty" }, h("h2", {}, run.label(0)), h("p", {}, `${plural(run.state(0).nodes.size, "node")}. No pass changed anything.`));
  const seconds = run.passes.reduce((sum, p) => sum + (p.seconds || 0), 0), checked = run.passes.filter((p) => p.verification).length;
  const facts = [nodesText(run.state(0).nodes.size, run.state(last).nodes.size), `${done.length} of ${plural(run.passes.length, "pass")} changed something`, `${seconds.toFixed(1)}\u00a0s`, checked && `✓ verified after ${plural(checked, "pass")}`, (run.data.misses || []).length && `${plural(run.data.misses.length, "near miss")}`];
  return h("div", { class: "overview" }, h("h2", {}, "The whole run"), h("p", {}, facts.filter(Boolean).join(" · ")),
    h("h3", {}, "Operators that became more or fewer"), operators(run, last),
    h("h3", {}, "What each pass did"), h("ol", { class: "did" }, done.map((pass) => h("li", {}, didRow(app, pass)))));
}

function operators(run, last) {
  const count = (point, sign, into) => { for (const version of run.state(point).nodes.values()) { const row = into.get(run.version(version).op) || [0, 0]; row[sign]++; into.set(run.version(version).op, row); } };
  const counts = new Map();
  count(0, 0, counts);
  count(last, 1, counts);
  const moved = [...counts].filter(([, [was, is]]) => was !== is).sort(([, a], [, b]) => Math.abs(b[1] - b[0]) - Math.abs(a[1] - a[0]));
  if (!moved.length) return h("p", { class: "nothing" }, "none");
  const chip = ([op, [was, is]]) => h("li", { class: is > was ? "added" : "removed" }, h("b", {}, op), ` ${was} → ${is}`);
  return [h("ul", { class: "chips" }, moved.slice(0, 24).map(chip)), moved.length > 24 && h("details", {}, h("summary", {}, `${moved.length - 24} more`), h("ul", { class: "chips" }, moved.slice(24).map(chip)))];
}

function didRow(app, pass) {
  const kinds = [...kindsOf(pass)].map(([kind, times]) => h("small", {}, `×${times} ${kind}`));
  return h("button", { type: "button", onclick: () => app.openPass(pass) }, h("span", { class: "what" }, h("b", {}, pass.name), pass.summary && h("span", {}, pass.summary), kinds.slice(0, 3), kinds.length > 3 && h("small", {}, `and ${plural(kinds.length - 3, "other kind")}`)), h("span", { class: "amount" }, nodesText(pass.nodes_before, pass.nodes_after)));
}

// Rewrites that differ in their drawing alone (another type, another constant) read the same in a line.
function kindsOf(pass) {
  const kinds = new Map();
  for (const group of pass.rewrites || []) kinds.set(kindOf(pass, group), (kinds.get(kindOf(pass, group)) || 0) + group.places.length);
  return new Map([...kinds].sort(([, a], [, b]) => b - a));
}
