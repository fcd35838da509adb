// Search: names, operators, modules, passes and values; also nodes that are gone, since that is what people ask for.
const MOST_HITS = 40;

function search(app) {
  const words = byId("search").value.trim().toLowerCase(), list = byId("hits");
  if (words.length < 2) { showHits(false); return; }
  const found = [...passHits(app, words), ...moduleHits(app, words), ...nodeHits(app, words), ...valueHits(app, words)];
  // What begins so comes first; of the same rank, in the order of the model.
  const sorted = found.sort((a, b) => a.rank - b.rank);
  app.hits = sorted.slice(0, MOST_HITS);
  const row = (hit, i) => h("li", { role: "option", id: `hit-${i}`, "aria-selected": String(i === 0), onclick: () => take(app, hit) }, h("span", {}, middle(hit.text)), hit.note && h("small", {}, middle(hit.note)));
  const rest = sorted.length - app.hits.length;
  list.replaceChildren(...app.hits.map(row), ...(rest || !sorted.length ? [h("li", { class: "none" }, rest ? `and ${rest.toLocaleString("en")} more` : "nothing found")] : []));
  showHits(true, app.hits.length ? 0 : null);
}

const ranked = (words, ...texts) => (texts.some((t) => t.toLowerCase() === words) ? 0 : texts.some((t) => t.toLowerCase().startsWith(words)) ? 1 : texts.some((t) => t.toLowerCase().includes(words)) ? 2 : null);

const passHits = (app, words) => app.run.passes.filter((p) => p.name.toLowerCase().includes(words)).map((p) => ({ rank: p.changes ? 0 : 2.5, text: `pass ${p.index} ${p.name}`, note: p.changes || p.error ? "" : "changed nothing", go: () => app.openPass(p) }));

function moduleHits(app, words) {
  const shown = [...app.run.state(app.view.to).containers.keys()].filter(Boolean).map((path) => [path, path.split(SEPARATOR).join(".")]);
  return shown.filter(([, text]) => text.toLowerCase().includes(words)).slice(0, 12).map(([path, text]) => ({ rank: 0, text: `module ${text}`, go: () => app.openModule(path) }));
}

function nodeHits(app, words) {
  const { run, view } = app, found = [], seen = new Set();
  // From the point that is looked at; then those of others, from the last one on.
  for (const point of [view.to, ...Array.from({ length: run.count }, (_, i) => run.count - 1 - i)]) {
    for (const [uid, version] of run.state(point).nodes) {
      if (seen.has(uid)) continue;
      seen.add(uid);
      const node = run.version(version), rank = ranked(words, node.op, node.op.split(".").at(-1), node.name, ...node.outputs);
      if (rank === null) continue;
      const there = point === view.to;
      found.push({ rank: rank + (there ? 0 : 0.5), text: `${node.op} ${node.name}`, note: there ? node.module : `not here, but at “${run.label(point)}”`, go: () => app.openNode(uid, point) });
    }
  }
  return found;
}

function valueHits(app, words) {
  const { weights, interface: sides } = app.run.state(app.view.to);
  return [...Object.keys(sides.inputs), ...weights.keys()].map((name) => [name, ranked(words, unscoped(name))]).filter(([, rank]) => rank !== null).map(([name, rank]) => ({ rank, text: `value ${unscoped(name)}`, go: () => app.openValue(name) }));
}

// The list, and to a screen reader which of its lines Enter would take.
function showHits(shown, at = null) {
  const input = byId("search");
  byId("hits").hidden = !shown;
  input.ariaExpanded = String(shown);
  at === null ? input.removeAttribute("aria-activedescendant") : input.setAttribute("aria-activedescendant", `hit-${at}`);
}

function searchKey(app, event) {
  const options = [...byId("hits").querySelectorAll("[role=option]")], at = options.findIndex((o) => o.ariaSelected === "true");
  if (event.key === "Enter" && app.hits && app.hits[Math.max(0, at)]) take(app, app.hits[Math.max(0, at)]);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = (at + (event.key === "ArrowDown" ? 1 : -1) + options.length) % Math.max(1, options.length);
    options.forEach((o, i) => (o.ariaSelected = String(i === next)));
    if (options[next]) showHits(true, next), options[next].scrollIntoView({ block: "nearest" });
  }
}

function take(app, hit) {
  showHits(false);
  byId("search").blur();
  hit.go();
  app.right.follow(app.view.node ?? app.view.box);
}
