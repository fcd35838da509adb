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
    if (this.run.count === 1) document.body.classList.add(this.run.passes.length ? "unchanged" : "single");
    if (this.run.count === 1) byId("overlay").options[0].textContent = "none";
    if (this.run.data.labels.length) document.body.classList.add("pair-of-models");
    timeline(this);
    this.listen();
    const given = this.fromAddress();
    // A run that failed is opened to see why, one that a single pass changed at that pass; another one as a whole.
    const first = this.run.passes.find((p) => p.error && !p.reverted) || (this.run.count <= 2 && this.run.passes.find((p) => p.error || (p.changes && !p.reverted)));
    if (!Object.keys(given).length && first) this.openPass(first);
    else this.go(given);
    this.openSmall();
    this.arrive(given);
  }

  // The node that an address names is looked at, wherever it is.
  arrive({ node }) {
    if (node !== undefined) this.reveal([node], node);
  }

  // A small model is shown whole; of a large one the first level, or below it the first that says something.
  openSmall() {
    if (this.run.state(0).nodes.size <= 40) for (const path of this.run.state(this.view.to).containers.keys()) this.open.add(path);
    const shown = this.shown();
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
    byId("fit").addEventListener("click", () => this.fit());
    byId("collapse").addEventListener("click", () => { this.open.clear(); this.redraw(true); });
    byId("changes").addEventListener("click", () => this.showChanges());
    byId("theme").addEventListener("click", () => this.theme());
    byId("help").addEventListener("click", () => this.help());
    byId("search").addEventListener("input", () => search(this));
    byId("search").addEventListener("keydown", (event) => searchKey(this, event));
    document.addEventListener("keydown", (event) => this.key(event));
    for (const group of document.querySelectorAll("[role=tablist], [role=radiogroup]")) group.addEventListener("keydown", arrows);
    addEventListener("hashchange", () => { const given = this.fromAddress(); this.go(given); this.arrive(given); });
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
    if (this.places && view.pass !== this.places.pass.index) this.places = null;
    placeBar(this);
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
    byId("slider").ariaValueText = this.run.label(view.to);
    byId("from").value = view.from;
    byId("to").value = view.to;
    byId("overlay").value = view.overlay;
    byId("where").textContent = this.run.label(view.to);
    byId("step").textContent = `Step ${view.to} of ${this.run.count - 1}`;
    for (const button of document.querySelectorAll("button[data-mode]")) button.setAttribute("aria-checked", String(button.dataset.mode === view.mode));
    for (const button of document.querySelectorAll("button[data-panel]")) button.setAttribute(button.role === "tab" ? "aria-selected" : "aria-pressed", String(button.dataset.panel === view.panel));
    for (const button of document.querySelectorAll("#timeline button")) {
      const { pass, from = String(view.from), to } = button.dataset;
      const here = view.pass !== null ? pass === String(view.pass) : from === String(view.from) && to === String(view.to);
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

  openRun() {
    this.places = null;
    this.go({ pass: null, from: 0, to: this.run.count - 1, node: null, box: null, panel: "rewrites" });
  }

  openPass(pass) {
    const done = pass.changes && !pass.reverted;
    this.places = null;
    this.go({ pass: pass.index, to: pass.point, from: Math.max(0, pass.point - (done ? 1 : 0)), node: null, box: null, panel: pass.error || (pass.rewrites || []).length || (pass.rejections || []).length ? "rewrites" : "graph" });
  }

  // The last node that came is the one that takes the place of the old result; all of them are brought into view.
  openPlace(pass, place) {
    const uid = place.after.at(-1) ?? place.before.at(-1);
    this.go({ pass: pass.index, to: pass.point, from: Math.max(0, pass.point - 1), panel: "graph", mode: this.view.mode === "after" ? "unified" : this.view.mode });
    if (uid !== undefined) this.reveal([...place.after, ...place.before], uid);
  }

  // The places of one kind of rewrite, one after the other.
  walk(pass, group, index) {
    this.places = { pass, group, index: (index + group.places.length) % group.places.length };
    this.openPlace(pass, group.places[this.places.index]);
    placeBar(this);
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
    const boxes = uids.map((uid) => this.right.scene.shown.get(uid) || (this.left.scene && this.left.scene.shown.get(uid)));
    this.focus(boxes.filter(Boolean));
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

  // What the right pane holds, which is the only one unless two stand side by side.
  shown() {
    const { from, to, mode } = this.view;
    return this.run.arrangement(to, mode === "unified" ? from : null, from, to);
  }

  redraw(fit) {
    const { from, to, mode } = this.view;
    this.right.selected = this.left.selected = this.view.node ?? this.view.box;
    if (mode === "split") this.left.show(new Scene(this.run.arrangement(from, null, from, to), this.open), this.run.label(from), colours(this));
    this.right.show(new Scene(this.shown(), this.open), mode === "unified" && from !== to ? `${this.run.label(from)} → ${this.run.label(to)}` : this.run.label(to), colours(this));
    legend(this);
    if (fit) this.aim = () => { this.fitted = this.view.panel === "graph"; this.fit(); };
    requestAnimationFrame(() => this.aimed());
  }

  // Side by side, the larger one must fit.
  fit() {
    this.right.fit(this.view.mode === "split" ? this.left.scene : this.right.scene);
  }

  // Where to look is decided when the picture has a size, and by whoever asked last.
  aimed() {
    const aim = this.aim;
    this.aim = null;
    if (aim) aim();
  }

  focus(boxes) {
    this.fitted = true;
    this.aim = () => boxes.length && this.right.centre(boxes);
    requestAnimationFrame(() => this.aimed());
  }

  // -- search, keys, theme

  openModule(path) {
    const parents = this.run.parents(this.view.to);
    for (let outer = parents.get(path); outer; outer = parents.get(outer)) this.open.add(outer);
    this.open.add(path);
    this.go({ panel: "graph", node: null, box: path });
    this.redraw(false);
    this.focus(this.right.scene.boxes.filter((b) => b.kind === "module" && (b.id === path || b.id.startsWith(path + SEPARATOR))).slice(0, 1));
  }

  key(event) {
    if (event.key === "Escape") { showHits(false); document.activeElement.blur(); this.go({ node: null, box: null }); this.select(); return; }
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = this.run.passes.filter((p) => p.changes || p.error), at = shown.findIndex((p) => p.index === this.view.pass);
    const actions = {
      "/": () => byId("search").focus(), j: () => shown[at + 1] && this.openPass(shown[at + 1]), k: () => (at > 0 ? this.openPass(shown[at - 1]) : this.openRun()),
      n: () => this.stepPlace(1), p: () => this.stepPlace(-1), g: () => this.go({ panel: "graph" }), r: () => this.go({ panel: "rewrites" }),
      u: () => this.go({ mode: "unified" }), s: () => this.go({ mode: "split" }), a: () => this.go({ mode: "after" }), f: () => this.fit(), "?": () => this.help(),
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  }

  stepPlace(by) {
    const pass = this.pass(), group = this.places ? this.places.group : pass && (pass.rewrites || [])[0];
    if (group) this.walk(this.places ? this.places.pass : pass, group, this.places ? this.places.index + by : Math.min(0, by));
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

// Within a group of tabs or choices the arrows go from one to the next, and take it.
function arrows(event) {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const choices = [...event.currentTarget.querySelectorAll("button")], next = choices.at((choices.indexOf(event.target) + by) % choices.length);
  next.focus();
  next.click();
}

// `history` is also the name of a panel; the browser's own is wanted here. Within a notebook the page has no address,
// and some browsers refuse many changes in a row: what is shown is right all the same.
const history_ = { replace: (text) => { try { window.history.replaceState(null, "", text); } catch { /* as said */ } } };

unpack().then((data) => {
  const app = new App(data);
  app.start();
  window.report = app;
  document.body.dataset.ready = "true";
}).catch((error) => document.body.prepend(h("p", { class: "status removed" }, `This report cannot be read: ${error}`)));
