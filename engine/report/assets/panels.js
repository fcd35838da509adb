// The timeline, the rewrites of a pass, and the inspector.
function timeline(app) {
  const rows = [], idle = (p) => !app.run.data.labels.length && !p.changes && !p.error && !p.reverted;
  let folded = [];
  const flush = () => {
    if (!folded.length) return;
    const names = folded;
    rows.push(h("li", { class: "idle" }, h("details", {}, h("summary", {}, `${plural(names.length, "pass")} changed nothing`), h("ul", {}, names.map((p) => h("li", {}, `${p.index} ${p.name}`))))));
    folded = [];
  };
  for (const pass of app.run.passes) {
    if (idle(pass)) { folded.push(pass); continue; }
    flush();
    rows.push(h("li", {}, passButton(app, pass)));
  }
  flush();
  const last = app.run.count - 1, changed = app.run.passes.filter((p) => p.changes && !p.reverted).length;
  const whole = !app.run.data.labels.length && last > 0 && h("li", {}, h("button", { type: "button", "data-from": 0, "data-to": last, onclick: () => app.openRun() }, h("b", {}, "The whole run"), h("small", {}, `${changed} of ${plural(app.run.passes.length, "pass")} changed something`)));
  const start = h("li", {}, h("button", { type: "button", "data-to": 0, onclick: () => app.go({ from: 0, to: 0, pass: null, panel: "graph" }) }, h("b", {}, app.run.label(0)), h("small", {}, plural(app.run.state(0).nodes.size, "node"))));
  put(byId("timeline"), h("h2", {}, app.run.data.labels.length ? "Models" : "Passes"), h("ol", {}, whole, start, rows));
}

function passButton(app, pass) {
  const state = pass.reverted ? "reverted" : pass.error ? "failed" : pass.verification ? "verified" : "";
  const seconds = typeof pass.seconds !== "number" ? "" : pass.seconds < 1 ? `${(pass.seconds * 1e3).toFixed(pass.seconds < 0.01 ? 1 : 0)}\u00a0ms` : `${pass.seconds.toFixed(1)}\u00a0s`;
  return h("button", { type: "button", "data-pass": pass.index, class: state, onclick: () => app.openPass(pass) },
    h("b", {}, !app.run.data.labels.length && h("span", { class: "number" }, `${pass.index} `), pass.name),
    h("small", {}, `${plural(pass.changes, "change")}${seconds ? ` · ${seconds}` : ""}`),
    h("small", {}, nodesText(pass.nodes_before, pass.nodes_after)),
    pass.verification && h("small", { class: "check" }, `✓ ${pass.verification}${pass.difference ? `, within ${Number(pass.difference).toExponential(1)}` : ""}`),
    (pass.error || pass.reverted) && h("small", { class: "error" }, `${pass.reverted ? "reverted: " : ""}${(pass.error || "").split("\n")[0]}`));
}

const nodesText = (was, is) => (was === is ? plural(is, "node") : `${was.toLocaleString("en")} → ${plural(is, "node")} (${is > was ? "+" : "−"}${Math.abs(is - was).toLocaleString("en")})`);

function rewrites(app) {
  const host = byId("rewrites"), pass = app.pass();
  if (!pass) { put(host, overview(app)); return; }
  const groups = pass.rewrites || [];
  put(host,
    h("header", {}, h("h2", {}, pass.name), pass.summary && h("p", {}, pass.summary), pass.text !== pass.name && h("p", { class: "text" }, pass.text), pass.error ? h("p", { class: "error whole" }, `${pass.reverted ? "reverted: " : ""}${pass.error}`) : h("p", {}, `${plural(groups.reduce((n, g) => n + g.places.length, 0), "rewrite")}${groups.length > 1 ? `, ${plural(groups.length, "kind")} of them` : ""}`),
      Object.keys(pass.statistics || {}).length > 0 && h("p", {}, Object.entries(pass.statistics).map(([k, v]) => `${k} ${v}`).join(", "))),
    h("div", { class: "cards" }, groups.map((group, index) => rewriteCard(app, pass, group, index))),
    (pass.rejections || []).length > 0 && rejections(app, pass));
}

function rewriteCard(app, pass, group, index) {
  const shown = group.before || group.after, sides = [drawing(group.before, "before"), drawing(group.after, "after")];
  const width = sides.map((side) => Number(side.getAttribute("width")) || 150), single = group.places.length === 1;
  // Drawings become smaller to stand beside each other, as long as they can be read; else one stands below the other.
  const screen = document.body.clientWidth, room = (screen > 820 ? screen - 600 : screen) - 120;
  return h("article", { class: `rewrite ${width[0] + width[1] > 230 ? "wide" : ""}`, id: `rewrite-${index}` },
    h("h3", {}, h("span", { class: "times" }, `×${group.places.length}`), ` ${kindOf(pass, group)}`),
    shown && h("div", { class: `pair ${room < 0.6 * (width[0] + width[1]) ? "stacked" : ""}`, style: `--before:${width[0]}px;--after:${width[1]}px` }, sides[0], h("div", { class: "arrow", "aria-hidden": "true" }, "→"), sides[1]),
    h("div", { class: "steps" }, h("button", { type: "button", class: "next", onclick: () => app.walk(pass, group, 0) }, single ? "Show in the graph" : "Show them in the graph")),
    h("details", { open: group.places.length <= 4 }, h("summary", {}, plural(group.places.length, "place")),
      h("ul", { class: "places" }, group.places.slice(0, 400).map((place, at) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => app.walk(pass, group, at) }, middle(place.module || place.site)), place.module ? h("small", {}, ` ${middle(place.site)}`) : null)))));
}

// Which place of a rewrite the graph shows, and the way to the next.
function placeBar(app) {
  const host = byId("places"), { places } = app;
  host.hidden = !places;
  if (!places) return;
  const { pass, group, index } = places, step = (by) => app.walk(pass, group, index + by), place = group.places[index];
  put(host, h("b", {}, pass.name), h("span", {}, `place ${index + 1} of ${group.places.length}`), h("small", {}, middle(place.module || place.site)),
    group.places.length > 1 && [h("button", { type: "button", "aria-label": "Previous place", title: "Previous place (p)", onclick: () => step(-1) }, "‹"), h("button", { type: "button", "aria-label": "Next place", title: "Next place (n)", onclick: () => step(1) }, "›")],
    h("button", { type: "button", onclick: () => app.go({ panel: "rewrites" }) }, "Back to the rewrite"));
}

// What the pass says of a rewrite; where that is only its own summary, the operators.
function kindOf(pass, group) {
  if (group.note && group.note !== pass.summary) return group.note;
  const operators = (picture) => (!picture ? "nothing" : picture.counts ? plural(Object.values(picture.counts).reduce((a, b) => a + b), "node") : brief(picture.nodes.map((n) => n.op.split(".").at(-1))));
  return group.before || group.after ? `${operators(group.before)} → ${operators(group.after)}` : group.note || "rewrite";
}

const brief = (words, most = 5) => (words.length > most ? `${words.slice(0, most - 1).join(", ")}, … ${words.at(-1)}` : words.join(", "));

function rejections(app, pass) {
  const reasons = new Map();
  for (const { site, reason } of pass.rejections) reasons.has(reason) ? reasons.get(reason).push(site) : reasons.set(reason, [site]);
  return h("article", { class: "rejections" }, h("h3", {}, "Left alone"), h("ul", {}, [...reasons].map(([reason, sites]) => h("li", {}, breakable(reason), " ", h("small", {}, sites.length > 1 ? `×${sites.length}: ` : ""),
    sites.slice(0, 12).map((site) => h("button", { type: "button", class: "link", onclick: () => app.openName(site) }, middle(site)))))));
}

function inspector(app) {
  const host = byId("inspector"), { node, box, value } = app.view;
  if (value !== null) { put(host, valueDetails(app, value)); return; }
  if (node === null) {
    put(host, box ? moduleDetails(app, box) : modelDetails(app));
    return;
  }
  const life = app.run.life(node), alive = app.run.node(node, app.view.to) || app.run.node(node, app.view.from);
  const version = alive || app.run.version(life.findLast((e) => e.version !== undefined).version);
  const at = app.run.node(node, app.view.to) ? app.view.to : life.findLast((e) => e.version !== undefined && e.kind !== "went").point;
  put(host, h("h2", {}, breakable(version.op)), h("p", { class: "name", title: version.name }, middle(version.name)), fate(app, node),
    table("Outputs", version.outputs.map((name, i) => [name ? valueLink(app, scoped(name, version.graph)) : "—", version.types[i]])),
    operands(app, version, at),
    table("Attributes", Object.entries(version.attributes).map(([k, v]) => [k, middle(v)])),
    costs(app, node),
    table("Where it comes from", [["module", middle(version.module)], ["source", version.source], ["graph", version.graph === "main" ? "" : version.graph], ["made by", version.by]].filter(([, v]) => v)),
    whyNot(app, version), history(app, life));
}

function fate(app, uid) {
  const status = app.run.difference(app.view.from, app.view.to).get(uid);
  return status ? h("p", { class: `status ${status}` }, status) : null;
}

const table = (title, rows, kind = null) => rows.length > 0 && h("section", {}, h("h3", {}, title), h("dl", { class: kind }, rows.map(([name, value]) => [h("dt", {}, typeof name === "string" ? breakable(name) : name), h("dd", {}, typeof value === "string" ? breakable(value) : value)])));

// A long name may be broken behind a dot, a slash or an underline, or between words, rather than anywhere; a type behind a comma.
const breakable = (name) => middle(name).split(/(?<=[./_,[])|(?<=[a-z])(?=[A-Z])/).flatMap((part, i) => (i ? [h("wbr", {}), part] : [part]));

function operands(app, version, point) {
  const makers = app.run.makers(point), state = app.run.state(point);
  const rows = version.inputs.map((value, index) => {
    if (!value) return [String(index), "—"];
    const key = app.run.meant(value, version.graph, point), maker = makers.get(key), weight = state.weights.get(key), plain = number(app.run, value, version.graph, point);
    if (weight !== undefined) return [String(index), [valueLink(app, key), " ", weightText(app.run.data.weights[weight])]];
    if (maker === undefined) return [String(index), [valueLink(app, key), " ", breakable(state.interface.inputs[value] || "")]];
    const made = app.run.node(maker, point);
    return [String(index), [h("button", { type: "button", class: "link", onclick: () => app.openNode(maker, point) }, breakable(value)), " ", breakable(plain !== null ? `= ${plain}` : made.types[made.outputs.indexOf(value)] || "")]];
  });
  return table("Inputs", rows, "indexed");
}

function weightText(row) {
  const { type, elements, ...rest } = row;
  if (elements) return `${type} = ${elements.length === 1 ? elements[0] : `[${elements.join(", ")}]`}`;
  return `${type}${Object.keys(rest).length ? ` (${Object.entries(rest).map(([k, v]) => `${k} ${v}`).join(", ")})` : ""}`;
}

function whyNot(app, version) {
  const found = app.run.passes.flatMap((pass) => (pass.rejections || []).filter((r) => r.site === version.name).map((r) => [pass.name, r.reason]));
  const near = (app.run.data.misses || []).filter((m) => m.root === version.name || m.node === version.name);
  const rows = near.map((m) => [m.pass, m.root === version.name ? m.text : [m.text, " ", h("button", { type: "button", class: "link", onclick: () => app.openName(m.root) }, `(from ${m.root})`)]]);
  return [table("Why it was left alone", found), table("Why was this not fused?", rows)];
}

function costs(app, uid) {
  const known = (app.run.data.costs || {})[uid];
  if (!known) return null;
  const rows = [["operations", known[0] ? amountText(known[0], "op") : ""], ["makes", known[1] ? amountText(known[1], "B") : ""]];
  return table("Cost", rows.filter(([, text]) => text));
}

const valueLink = (app, name) => h("button", { type: "button", class: "link", title: "The history of this value", onclick: () => app.openValue(name) }, breakable(unscoped(name)));

function valueDetails(app, name) {
  const life = app.run.valueLife(name);
  // One that is not there at this point is described as it was last.
  const last = life.findLast((e) => e.kind !== "went"), alive = life.findLast((e) => e.point <= app.view.to);
  const to = (alive && alive.kind !== "went") || !last ? app.view.to : last.point, state = app.run.state(to);
  const maker = app.run.makers(to).get(name), weight = state.weights.get(name);
  const node = (uid, point) => h("button", { type: "button", class: "link", onclick: () => app.openNode(uid, point) }, `${app.run.node(uid, point).op} ${middle(app.run.node(uid, point).name)}`);
  const type = maker !== undefined ? app.run.node(maker, to).types[app.run.node(maker, to).outputs.indexOf(unscoped(name))] : state.interface.inputs[name];
  const readers = (app.run.readers(to).get(name) || []).slice(0, 40);
  const rows = life.map((event, i) => {
    const before = life[i - 1] || { readers: [] }, fresh = event.readers.filter((r) => !before.readers.includes(r)), lost = before.readers.filter((r) => !event.readers.includes(r));
    const where = h("button", { type: "button", class: "link", onclick: () => app.go({ from: Math.max(0, event.point - 1), to: event.point, pass: null }) }, app.run.label(event.point));
    const made = event.maker !== before.maker && event.maker !== undefined && [" made by ", node(event.maker, event.point)];
    return h("li", {}, where, event.kind === "went" ? " went" : event.kind === "came" ? (event.point ? " came" : " exported") : " rewired", made,
      i > 0 && event.kind !== "went" && h("small", {}, [fresh.length ? ` +${plural(fresh.length, "reader")}` : "", lost.length ? ` −${plural(lost.length, "reader")}` : ""].join("")));
  });
  if (!life.length) return h("div", {}, h("h2", {}, middle(unscoped(name))), h("p", {}, "There is no value of this name at any point."));
  return h("div", {}, h("h2", { title: unscoped(name) }, breakable(unscoped(name))), h("p", {}, `a value${type ? `: ${type}` : ""}${to === app.view.to ? "" : `, as it was at “${app.run.label(to)}”`}`),
    weight !== undefined && table("Weight", [["", weightText(app.run.data.weights[weight])]], "plain"),
    table("Made by", maker === undefined ? [] : [["", node(maker, to)]], "plain"),
    table("Read by", readers.map((uid) => ["", node(uid, to)]), "plain"),
    h("section", { class: "history" }, h("h3", {}, "History"), h("ol", {}, rows)));
}

function history(app, life) {
  const words = { came: "came", changed: "changed", went: "went" };
  const rows = life.map((event) => {
    const where = h("button", { type: "button", class: "link", onclick: () => app.go({ from: Math.max(0, event.point - 1), to: event.point, pass: null, panel: "graph" }) }, app.run.label(event.point));
    const version = event.version === undefined ? null : app.run.version(event.version);
    const from = event.kind === "came" && version.replaces.length > 0 && [" in place of ", version.replaces.slice(0, 8).map((name) => [h("button", { type: "button", class: "link", onclick: () => app.openEarlier(name, event.point) }, middle(name)), " "])];
    const into = (event.heirs || []).length > 0 && [" replaced by ", event.heirs.slice(0, 8).map((uid) => [h("button", { type: "button", class: "link", onclick: () => app.openNode(uid, event.point) }, app.run.node(uid, event.point).op), " "])];
    const what = event.kind === "changed" && h("small", {}, ` ${differences(app.run.version(event.before), version)}`);
    return h("li", {}, where, ` ${event.point === 0 ? "exported" : words[event.kind]}`, from, into, what);
  });
  return h("section", { class: "history" }, h("h3", {}, "History"), h("ol", {}, rows));
}

function differences(before, after) {
  const texts = [];
  for (const field of ["name", "inputs", "outputs", "types"]) {
    const was = [].concat(before[field]), is = [].concat(after[field]);
    for (let i = 0; i < Math.max(was.length, is.length); i++) if (was[i] !== is[i]) texts.push(`${field.replace(/s$/, "")} ${middle(was[i] || "—")} → ${middle(is[i] || "—")}`);
  }
  for (const key of new Set([...Object.keys(before.attributes), ...Object.keys(after.attributes)])) if (before.attributes[key] !== after.attributes[key]) texts.push(`${key} ${before.attributes[key] || "—"} → ${after.attributes[key] || "—"}`);
  return texts.slice(0, 6).join("; ");
}

// A training step gives a gradient for every weight.
const some = (rows, most = 24) => (rows.length > most ? [...rows.slice(0, most), ["…", `and ${rows.length - most} more`]] : rows);

function modelDetails(app) {
  const { interface: sides, nodes } = app.run.state(app.view.to), counts = new Map();
  for (const version of nodes.values()) {
    const { op } = app.run.version(version);
    counts.set(op, (counts.get(op) || 0) + 1);
  }
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 14).map(([op, count]) => [op, String(count)]);
  return h("div", {}, h("h2", {}, app.run.data.title), h("p", {}, plural(nodes.size, "node"), app.run.count > 1 && ` at “${app.run.label(app.view.to)}”`),
    table("Operators", most, "numbers"), table("Inputs", some(Object.entries(sides.inputs))), table("Outputs", some(Object.entries(sides.outputs))));
}

function moduleDetails(app, path) {
  const status = app.run.difference(app.view.from, app.view.to), inside = [];
  const parents = app.run.parents(app.view.to);
  for (const uid of app.run.state(app.view.to).order) {
    const home = parents.get(uid);
    if (home !== undefined && (home === path || home.startsWith(path + SEPARATOR))) inside.push(uid);
  }
  return h("div", {}, h("h2", {}, middle(path.split(SEPARATOR).join("."))), h("p", {}, `${plural(inside.length, "node")}, ${inside.filter((u) => status.has(u)).length} changed`),
    h("ul", { class: "places" }, inside.slice(0, 120).map((uid) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => app.openNode(uid, app.view.to) }, app.run.node(uid, app.view.to).op), h("small", {}, ` ${middle(app.run.node(uid, app.view.to).name)}`)))));
}
