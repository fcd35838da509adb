// What is shown is one object, which the address bar repeats, so that a view can be shared as a link.
const SHORTCUTS = [["/", "search"], ["j, k", "next, previous pass"], ["n, p", "next, previous place of the rewrite"], ["g, r", "graph, rewrites"], ["u, s, a", "unified, side by side, after"], ["f", "fit"], ["+3 −2 ~1", "in a box: nodes that came, went, changed"], ["+, −, arrows", "zoom and move the focused graph"], ["Esc", "close, clear the selection"]];

class App {
  constructor(data) {
    this.run = new Run(data);
    this.view = { from: 0, to: this.run.count - 1, pass: null, node: null, box: null, value: null, mode: this.run.count > 1 ? "unified" : "after", panel: this.run.passes.some((p) => (p.rewrites || []).length) ? "rewrites" : "graph", overlay: "" };
    this.open = new Set();
    this.camera = new Camera();
    const actions = { pick: (box) => this.pick(box), drawn: () => this.minimap && this.minimap.update() };
    this.left = new GraphView(byId("left"), this.camera, actions);
    this.right = new GraphView(byId("right"), this.camera, actions);
    this.minimap = new Minimap(byId("minimap"), this.right);
  }

  start() {
    byId("title").textContent = this.run.data.title;
    document.title = this.run.data.title;
    byId("slider").max = this.run.count - 1;
    for (const id of ["from", "to"]) byId(id).replaceChildren(...Array.from({ length: this.run.count }, (_, i) => h("option", { value: i }, this.run.label(i))));
    if (this.run.count === 1) document.body.classList.add("single");
    if (this.run.data.labels.length) document.body.classList.add("pair-of-models");
    timeline(this);
    this.listen();
    const given = this.fromAddress();
    const first = this.run.passes.find((p) => p.changes && !p.reverted);
    if (!Object.keys(given).length && first) this.openPass(first);
    else this.go(given);
    this.openSmall();
  }

  // A small model is shown whole; of a large one the first level, or below it the first that says something.
  openSmall() {
    if (this.run.state(0).nodes.size <= 40) for (const path of this.run.state(this.view.to).containers.keys()) this.open.add(path);
    const shown = this.run.arrangement(this.view.to, this.view.mode === "unified" ? this.view.from : null);
    const readable = (path) => path !== null && !shown.isList(path) && shown.children(path).length <= 16;
    for (let path = shown.dominant(""); readable(path); path = shown.dominant(path)) this.open.add(path);
    this.redraw(true);
  }

  listen() {
    const numbered = (id, key) => byId(id).addEventListener("input", (event) => this.go({ [key]: Number(event.target.value), pass: null }));
    numbered("from", "from");
    numbered("to", "to");
    byId("slider").addEventListener("input", (event) => { const to = Number(event.target.value); this.go({ to, from: Math.max(0, to - 1), pass: (this.run.passTo(to) || { index: null }).index }); });
    for (const button of document.querySelectorAll("button[data-panel]")) button.addEventListener("click", () => this.go({ panel: button.dataset.panel }));
    for (const button of document.querySelectorAll("button[data-mode]")) button.addEventListener("click", () => this.go({ mode: button.dataset.mode }));
    byId("overlay").addEventListener("input", (event) => this.go({ overlay: event.target.value }));
    byId("fit").addEventListener("click", () => this.right.fit());
    byId("collapse").addEventListener("click", () => { this.open.clear(); this.redraw(true); });
    byId("changes").addEventListener("click", () => this.showChanges());
    byId("theme").addEventListener("click", () => this.theme());
    byId("help").addEventListener("click", () => this.help());
    byId("search").addEventListener("input", () => this.search());
    byId("search").addEventListener("keydown", (event) => this.searchKey(event));
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.go(this.fromAddress()));
  }

  // -- where we are

  pass() {
    return this.view.pass === null ? null : this.run.passes.find((p) => p.index === this.view.pass) || null;
  }

  go(change) {
    const before = { ...this.view };
    // A value is looked at until something else is chosen.
    if (!("value" in change) && ("node" in change || "box" in change)) change = { ...change, value: null };
    Object.assign(this.view, change);
    const last = this.run.count - 1, view = this.view;
    view.to = Math.min(last, Math.max(0, view.to));
    view.from = Math.min(last, Math.max(0, view.from));
    this.mark();
    if (view.pass !== before.pass || view.to !== before.to || !this.started) rewrites(this);
    inspector(this);
    const moved = ["from", "to", "mode", "overlay"].some((k) => view[k] !== before[k]);
    if (moved || !this.started) this.redraw(!this.started || view.mode !== before.mode || (view.panel === "graph" && !this.fitted));
    else if (view.panel !== before.panel && view.panel === "graph") requestAnimationFrame(() => (this.fitted ? this.right.refresh() : this.redraw(true)));
    this.started = true;
    this.toAddress();
  }

  mark() {
    const { view } = this;
    document.body.dataset.panel = view.panel;
    document.body.dataset.mode = view.mode;
    byId("slider").value = view.to;
    byId("from").value = view.from;
    byId("to").value = view.to;
    byId("overlay").value = view.overlay;
    byId("where").textContent = `${view.to} of ${this.run.count - 1}: ${this.run.label(view.to)}`;
    for (const button of document.querySelectorAll("button[data-mode]")) button.setAttribute("aria-checked", String(button.dataset.mode === view.mode));
    for (const button of document.querySelectorAll("button[data-panel]")) button.setAttribute(button.role === "tab" ? "aria-selected" : "aria-pressed", String(button.dataset.panel === view.panel));
    for (const button of document.querySelectorAll("#timeline button")) {
      const here = view.pass !== null ? button.dataset.pass === String(view.pass) : button.dataset.point === "0" && view.to === 0;
      here ? button.setAttribute("aria-current", "step") : button.removeAttribute("aria-current");
    }
  }

  toAddress() {
    const { from, to, pass, node, value, mode, panel, overlay } = this.view, parts = { from, to, mode, panel };
    if (overlay) parts.colour = overlay;
    if (value !== null) parts.value = value;
    if (pass !== null) parts.pass = pass;
    if (node !== null) parts.node = (this.run.node(node, to) || this.run.node(node, from) || { name: "" }).name;
    const text = `#${new URLSearchParams(parts)}`;
    if (text !== location.hash) history_.replace(text);
  }

  fromAddress() {
    const given = new URLSearchParams(location.hash.slice(1)), found = {};
    for (const key of ["from", "to", "pass"]) if (given.has(key) && Number.isInteger(Number(given.get(key)))) found[key] = Number(given.get(key));
    // A link may be of another run.
    for (const key of ["from", "to"]) if (found[key] !== undefined) found[key] = Math.min(this.run.count - 1, Math.max(0, found[key]));
    if (found.pass !== undefined && !this.run.passes.some((p) => p.index === found.pass)) delete found.pass;
    if (found.pass !== undefined && found.to === undefined) {
      const pass = this.run.passes.find((p) => p.index === found.pass);
      Object.assign(found, { to: pass.point, from: Math.max(0, pass.point - (pass.changes && !pass.reverted ? 1 : 0)) });
    }
    if (["after", "unified", "split"].includes(given.get("mode"))) found.mode = given.get("mode");
    if (["passes", "rewrites", "graph", "details"].includes(given.get("panel"))) found.panel = given.get("panel");
    if (["made", ...Object.keys(OVERLAYS)].includes(given.get("colour"))) found.overlay = given.get("colour");
    if (given.get("value")) found.value = given.get("value");
    if (given.get("node")) {
      const place = this.run.named(given.get("node"), found.to ?? this.run.count - 1);
      if (place) Object.assign(found, { node: place.uid, panel: "graph" });
    }
    return found;
  }

  // -- going places

  openPass(pass) {
    const done = pass.changes && !pass.reverted;
    this.places = null;
    this.go({ pass: pass.index, to: pass.point, from: Math.max(0, pass.point - (done ? 1 : 0)), node: null, box: null, panel: (pass.rewrites || []).length || (pass.rejections || []).length ? "rewrites" : "graph" });
  }

  openPlace(pass, place) {
    const uid = place.after[0] ?? place.before[0];
    this.go({ pass: pass.index, to: pass.point, from: Math.max(0, pass.point - 1), panel: "graph", mode: this.view.mode === "after" ? "unified" : this.view.mode });
    if (uid !== undefined) this.reveal([...place.after, ...place.before], uid);
  }

  openNode(uid, point) {
    const inView = this.run.node(uid, this.view.to) || (this.view.mode !== "after" && this.run.node(uid, this.view.from));
    this.go(inView ? { panel: "graph" } : { from: Math.max(0, point - 1), to: point, pass: null, panel: "graph" });
    this.reveal([uid], uid);
  }

  openName(name) {
    const place = this.run.named(name, this.view.to) || this.run.named(name, this.run.count - 1);
    if (place) this.openNode(place.uid, place.point);
  }

  openValue(name) {
    this.go({ value: name, panel: document.body.clientWidth <= 820 ? "details" : this.view.panel });
  }

  openEarlier(name, point) {
    const place = this.run.named(name, point - 1);
    if (place) this.openNode(place.uid, place.point);
  }

  reveal(uids, selected) {
    for (const uid of uids) this.openAround(uid);
    this.go({ node: selected, box: null });
    this.redraw(false);
    this.focus(this.right.scene.shown.get(selected) || (this.left.scene && this.left.scene.shown.get(selected)));
  }

  openAround(uid) {
    for (const point of [this.view.to, this.view.from]) {
      const parents = this.run.parents(point);
      for (let path = parents.get(uid); path; path = parents.get(path)) this.open.add(path);
    }
  }

  pick(box) {
    if (box.kind === "node") return this.go({ node: box.id, box: null }), this.select();
    const opened = !this.open.has(box.id);
    opened ? this.open.add(box.id) : this.open.delete(box.id);
    const anchor = { x: this.camera.x + box.ax * this.camera.scale, y: this.camera.y + box.ay * this.camera.scale };
    this.redraw(false);
    // The box that was clicked stays under the pointer.
    const now = this.right.scene.boxes.find((b) => b.id === box.id) || box;
    this.camera.set(anchor.x - now.ax * this.camera.scale, anchor.y - now.ay * this.camera.scale, this.camera.scale);
    this.go({ node: null, box: box.id });
    this.select();
  }

  select() {
    for (const view of [this.left, this.right]) { view.selected = this.view.node ?? this.view.box; view.refresh(); }
  }

  showChanges() {
    let first = null;
    for (const uid of this.run.difference(this.view.from, this.view.to).keys()) { this.openAround(uid); first ??= uid; }
    this.redraw(true);
  }

  // -- drawing

  redraw(fit) {
    const { from, to, mode } = this.view, colour = this.colour();
    this.right.selected = this.left.selected = this.view.node ?? this.view.box;
    if (mode === "split") this.left.show(new Scene(this.run.arrangement(from, null), this.open), this.run.label(from), this.marks(from, to, colour, "removed"));
    const scene = new Scene(this.run.arrangement(to, mode === "unified" ? from : null), this.open);
    this.right.show(scene, mode === "unified" && from !== to ? `${this.run.label(from)} → ${this.run.label(to)}` : this.run.label(to), mode === "unified" ? colour : this.marks(from, to, colour, "added"));
    this.legend();
    if (fit) this.aim = () => { this.fitted = this.view.panel === "graph"; this.right.fit(); };
    requestAnimationFrame(() => this.aimed());
  }

  // Where to look is decided when the picture has a size, and by whoever asked last.
  aimed() {
    const aim = this.aim;
    this.aim = null;
    if (aim) aim();
  }

  focus(box) {
    this.fitted = true;
    this.aim = () => box && this.right.centre(box);
    requestAnimationFrame(() => this.aimed());
  }

  // Side by side, both panes know what differs from the other.
  marks(from, to, colour, kind) {
    if (colour) return colour;
    const status = this.run.difference(from, to);
    return (box) => ({ [kind]: `var(--${kind})`, changed: "var(--changed)" })[status.get(box.id)] || null;
  }

  colour() {
    const { overlay, to } = this.view;
    if (overlay === "made") return (box) => { const by = (this.run.node(box.id, to) || { by: "" }).by; return by ? tint([...by].reduce((n, c) => (n * 31 + c.charCodeAt(0)) % 360, 7)) : null; };
    if (overlay === "") return null;
    const scale = this.scale(overlay);
    return (box) => scale.colour(this.amount(overlay, box));
  }

  // What an overlay shows of a box: of a module, the sum (or the worst) of all nodes in it.
  amount(overlay, box) {
    const key = `${overlay}|${this.view.to}`;
    if (this.amountsFor !== key) { this.amounts = this.run.amounts(overlay, this.view.to); this.amountsFor = key; }
    return this.amounts.get(box.id);
  }

  scale(overlay) {
    const known = [...this.run.amounts(overlay, this.view.to)].filter(([, n]) => n > 0).map(([, n]) => n);
    const low = Math.log(known.length ? known.reduce((a, b) => Math.min(a, b)) : 1), high = Math.log(known.length ? known.reduce((a, b) => Math.max(a, b)) : 1);
    return { known, colour: (n) => (n > 0 ? tint(210 - 210 * Math.min(1, (Math.log(n) - low) / Math.max(1e-9, high - low))) : null) };
  }

  legend() {
    const { overlay, to } = this.view, host = byId("legend");
    host.hidden = !OVERLAYS[overlay];
    if (host.hidden) return;
    const { known } = this.scale(overlay), { unit, what, nothing } = OVERLAYS[overlay];
    if (!known.length) { put(host, nothing); return; }
    const sizes = Object.entries(this.run.data.sizes || {}).map(([name, size]) => `${name} ${size}`).join(", ");
    const bar = h("span", { class: "ramp", "aria-hidden": "true" });
    const [least, most] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
    put(host, `${what}: `, amountText(least, unit), bar, amountText(most, unit), unit && sizes ? ` · at ${sizes}` : "");
  }

  // -- search, keys, theme

  search() {
    const words = byId("search").value.trim().toLowerCase(), list = byId("hits");
    if (words.length < 2) { list.hidden = true; return; }
    const hits = [];
    for (const pass of this.run.passes) if (pass.name.includes(words)) hits.push({ text: `pass ${pass.index} ${pass.name}`, go: () => this.openPass(pass) });
    for (const path of this.run.state(this.view.to).containers.keys()) {
      const shown = path.split(SEPARATOR).join(".");
      if (path && shown.toLowerCase().includes(words)) hits.push({ text: `module ${shown}`, go: () => this.openModule(path) });
      if (hits.length > 12) break;
    }
    for (const [uid, version] of this.run.state(this.view.to).nodes) {
      const node = this.run.version(version);
      if ([node.op, node.name, ...node.outputs].some((t) => t.toLowerCase().includes(words))) hits.push({ text: `${node.op} ${node.name}`, go: () => this.openNode(uid, this.view.to) });
      if (hits.length > 40) break;
    }
    this.hits = hits;
    list.replaceChildren(...(hits.length ? hits.map((hit, i) => h("li", { role: "option", "aria-selected": i === 0, onclick: () => this.take(hit) }, hit.text)) : [h("li", { class: "none" }, "nothing found")]));
    list.hidden = false;
  }

  searchKey(event) {
    const options = [...byId("hits").querySelectorAll("[role=option]")], at = options.findIndex((o) => o.ariaSelected === "true");
    if (event.key === "Enter" && this.hits && this.hits[Math.max(0, at)]) this.take(this.hits[Math.max(0, at)]);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = (at + (event.key === "ArrowDown" ? 1 : -1) + options.length) % Math.max(1, options.length);
      options.forEach((o, i) => (o.ariaSelected = String(i === next)));
      if (options[next]) options[next].scrollIntoView({ block: "nearest" });
    }
  }

  take(hit) {
    byId("hits").hidden = true;
    byId("search").blur();
    hit.go();
  }

  openModule(path) {
    const parents = this.run.parents(this.view.to);
    for (let outer = parents.get(path); outer; outer = parents.get(outer)) this.open.add(outer);
    this.open.add(path);
    this.go({ panel: "graph", node: null, box: path });
    this.redraw(false);
    this.focus(this.right.scene.boxes.find((b) => b.kind === "module" && (b.id === path || b.id.startsWith(path + SEPARATOR))));
  }

  key(event) {
    if (event.key === "Escape") { byId("hits").hidden = true; document.activeElement.blur(); this.go({ node: null, box: null }); this.select(); return; }
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = this.run.passes.filter((p) => p.changes || p.error), at = shown.findIndex((p) => p.index === this.view.pass);
    const step = (by) => { const card = document.querySelector(".rewrite"); if (card) card.querySelectorAll(".steps button")[by > 0 ? 1 : 0].click(); };
    const actions = {
      "/": () => byId("search").focus(), j: () => shown[at + 1] && this.openPass(shown[at + 1]), k: () => at > 0 && this.openPass(shown[at - 1]),
      n: () => this.stepPlace(1, step), p: () => this.stepPlace(-1, step), g: () => this.go({ panel: "graph" }), r: () => this.go({ panel: "rewrites" }),
      u: () => this.go({ mode: "unified" }), s: () => this.go({ mode: "split" }), a: () => this.go({ mode: "after" }), f: () => this.right.fit(), "?": () => this.help(),
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  }

  stepPlace(by, otherwise) {
    if (!this.places) return otherwise(by);
    const { group } = this.places, pass = this.pass();
    this.places.index = (this.places.index + by + group.places.length) % group.places.length;
    this.openPlace(pass, group.places[this.places.index]);
  }

  theme() {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  }

  help() {
    const dialog = byId("shortcuts");
    dialog.replaceChildren(h("h2", {}, "Keyboard"), h("dl", {}, SHORTCUTS.map(([keys, what]) => [h("dt", {}, keys), h("dd", {}, what)])), h("form", { method: "dialog" }, h("button", {}, "Close")));
    dialog.showModal();
  }
}

const OVERLAYS = {
  cost: { unit: "op", what: "operations of a node or of all in a box", nothing: "no operator here has a known cost" },
  memory: { unit: "B", what: "bytes that a node, or all in a box, makes", nothing: "no sizes are known" },
  difference: { unit: "", what: "how far results moved at the pass that made a node, as a part of the largest", nothing: "nothing was verified, or no result moved at all" },
};

// 1234567 → 1.23 M; differences stay as they are.
function amountText(amount, unit) {
  if (!unit) return amount.toExponential(1);
  const step = amount >= 1e9 ? [1e9, "G"] : amount >= 1e6 ? [1e6, "M"] : amount >= 1e3 ? [1e3, "k"] : [1, ""];
  return `${step[0] === 1 ? Math.round(amount) : (amount / step[0]).toPrecision(3)}\u00a0${step[1]}${unit}`;
}

const tint = (hue) => `color-mix(in srgb, hsl(${hue} 80% 50%) 38%, var(--node))`;

// `history` is also the name of a panel; the browser's own is wanted here.
const history_ = { replace: (text) => window.history.replaceState(null, "", text) };

unpack().then((data) => {
  const app = new App(data);
  app.start();
  window.report = app;
  document.body.dataset.ready = "true";
}, (error) => document.body.prepend(h("p", { class: "status removed" }, `This report cannot be read: ${error}`)));
