// The run: points are rebuilt from the first one and what each pass changed.
const SEPARATOR = "\u001f";
const INSIDE = " / ";   // between the path of a graph and the attribute that holds another one
const scoped = (value, graph) => (graph === "main" ? value : graph + SEPARATOR + value);
const unscoped = (key) => key.split(SEPARATOR).at(-1);
const around = (graph) => graph.slice(0, Math.max(0, graph.lastIndexOf(INSIDE)));
const FIELDS = ["name", "op", "inputs", "outputs", "types", "attributes", "module", "source", "by", "replaces", "graph"];

class Run {
  constructor(data) {
    this.data = data;
    this.passes = data.passes;
    this.states = [];
    this.count = data.points.length;
    this.parsed = new Map();
    this.arrangements = new Map();
  }

  state(index) {
    while (this.states.length <= index) this.states.push(this.next(this.states.at(-1), this.data.points[this.states.length]));
    return this.states[index];
  }

  next(before, point) {
    const gone = new Set(point.gone);
    const nodes = new Map(before ? before.nodes : []);
    const order = before ? before.order.filter((uid) => !gone.has(uid)) : [];
    for (const uid of gone) nodes.delete(uid);
    const fresh = point.came.filter(([, uid]) => !nodes.has(uid));
    for (const [, uid, version] of point.came) nodes.set(uid, version);
    // The places are those of the new order, and come in ascending order.
    const merged = [];
    let old = 0;
    for (const [place, uid] of fresh) {
      while (merged.length < place && old < order.length) merged.push(order[old++]);
      merged.push(uid);
    }
    for (; old < order.length; old++) merged.push(order[old]);
    return {
      nodes,
      order: merged,
      containers: changed(before && before.containers, point.containers),
      weights: changed(before && before.weights, point.weights),
      interface: point.interface || before.interface,
    };
  }

  version(number) {
    if (!this.parsed.has(number)) {
      const row = this.data.versions[number];
      this.parsed.set(number, Object.fromEntries(FIELDS.map((field, i) => [field, row[i]])));
    }
    return this.parsed.get(number);
  }

  node(uid, point) {
    const version = this.state(point).nodes.get(uid);
    return version === undefined ? null : this.version(version);
  }

  // Where each value comes from, at a point. Two branches may use one name: inside other graphs it is said with theirs.
  makers(point) {
    const state = this.state(point);
    if (!state.makers) {
      state.makers = new Map();
      for (const [uid, version] of state.nodes) for (const value of this.version(version).outputs) if (value) state.makers.set(scoped(value, this.version(version).graph), uid);
    }
    return state.makers;
  }

  // What a name means in a graph: the value of the innermost graph around it that has one of that name.
  meant(value, graph, point) {
    const makers = this.makers(point), { weights } = this.state(point);
    for (let path = graph; path; path = around(path)) {
      const key = scoped(value, path);
      if (makers.has(key) || weights.has(key)) return key;
    }
    return Object.hasOwn(this.state(point).interface.inputs, value) ? value : scoped(value, graph);
  }

  source(value, graph, point) {
    return value ? this.makers(point).get(this.meant(value, graph, point)) : undefined;
  }

  // The node whose attribute a graph is, or undefined.
  holder(graph, point) {
    const state = this.state(point);
    if (!state.holders) {
      state.holders = new Map();
      for (const [uid, version] of state.nodes) state.holders.set(scoped(this.version(version).name, this.version(version).graph), uid);
    }
    const attribute = graph.slice(around(graph).length + INSIDE.length);
    return around(graph) ? state.holders.get(scoped(attribute.slice(0, attribute.lastIndexOf(".")), around(graph))) : undefined;
  }

  // The box that each node and each box is in, at a point.
  parents(point) {
    const state = this.state(point);
    if (!state.parents) {
      state.parents = new Map();
      for (const [path, layout] of state.containers) for (const [child] of this.data.layouts[layout]) state.parents.set(child, path);
    }
    return state.parents;
  }

  difference(from, to) {
    const before = this.state(from).nodes, after = this.state(to).nodes, found = new Map();
    for (const [uid, version] of after) {
      if (!before.has(uid)) found.set(uid, "added");
      else if (before.get(uid) !== version) found.set(uid, "changed");
    }
    for (const uid of before.keys()) if (!after.has(uid)) found.set(uid, "removed");
    return found;
  }

  // The last few are kept: opening a box asks for the same one, going back for one of the others.
  arrangement(point, ghosts, from, to) {
    const key = [point, ghosts, from, to].join("|"), found = this.arrangements.get(key) || new Arrangement(this, point, ghosts, from, to);
    this.arrangements.delete(key);
    this.arrangements.set(key, found);
    if (this.arrangements.size > 6) this.arrangements.delete(this.arrangements.keys().next().value);
    return found;
  }

  // The pass that led to a point; none led to the first.
  passTo(point) {
    return this.passes.find((p) => p.point === point && p.changes && !p.reverted) || null;
  }

  // The life of a node: when it came, what changed it, when it went and what came in its place.
  life(uid) {
    const events = [];
    let last;
    for (let point = 0; point < this.count; point++) {
      const version = this.state(point).nodes.get(uid);
      if (version === last) continue;
      const kind = last === undefined ? "came" : version === undefined ? "went" : "changed";
      events.push({ point, kind, version, before: last });
      if (kind === "went") events.at(-1).heirs = this.heirs(this.version(last).name, point);
      last = version;
    }
    return events;
  }

  heirs(name, point) {
    const found = [];
    for (const [, uid, version] of this.data.points[point].came) if (this.version(version).replaces.includes(name)) found.push(uid);
    return found;
  }

  // The node of that name that lived last before a point.
  named(name, before) {
    for (let point = before; point >= 0; point--) {
      for (const [uid, version] of this.state(point).nodes) if (this.version(version).name === name) return { uid, point };
    }
    return null;
  }

  // The pass that made a node; none made those that came with the model.
  madeAt() {
    if (!this.made) {
      this.made = new Map();
      this.data.points.forEach(({ came }, point) => { for (const [, uid] of came) if (!this.made.has(uid)) this.made.set(uid, this.passTo(point)); });
    }
    return this.made;
  }

  // What an overlay shows, at a point: of every node, and of every box the sum (or the worst) inside.
  amounts(overlay, point) {
    const found = new Map(), parents = this.parents(point), makers = this.madeAt();
    for (const [uid, version] of this.state(point).nodes) {
      const cost = (this.data.costs || {})[uid];
      const amount = overlay === "difference" ? (makers.get(uid) || {}).difference || 0 : cost ? cost[overlay === "cost" ? 0 : 1] || 0 : 0;
      if (!amount) continue;
      found.set(uid, amount);
      for (let box = parents.get(uid); box; box = parents.get(box)) found.set(box, overlay === "difference" ? Math.max(found.get(box) || 0, amount) : (found.get(box) || 0) + amount);
    }
    return found;
  }

  // The life of a value: who made it and who read it, wherever either changed.
  valueLife(name) {
    const events = [];
    let last = null;
    for (let point = 0; point < this.count; point++) {
      const maker = this.makers(point).get(name), readers = this.readers(point).get(name) || [];
      const held = this.state(point).weights.has(name) || Object.hasOwn(this.state(point).interface.inputs, name);
      const there = maker !== undefined || held || readers.length > 0;
      const key = there ? `${maker}|${readers.join()}|${held}` : null;
      if (key === last) continue;
      events.push({ point, kind: last === null ? "came" : there ? "changed" : "went", maker, readers, held });
      last = key;
    }
    return events;
  }

  readers(point) {
    const state = this.state(point);
    if (!state.readers) {
      state.readers = new Map();
      for (const [uid, version] of state.nodes) for (const value of new Set(this.version(version).inputs)) {
        if (!value) continue;
        const key = this.meant(value, this.version(version).graph, point);
        state.readers.set(key, [...(state.readers.get(key) || []), uid]);
      }
    }
    return state.readers;
  }

  label(point) {
    if (this.data.labels.length) return this.data.labels[point];
    if (point === 0) return "as it came";
    const pass = this.passTo(point);
    return pass ? `${pass.index} ${pass.name}` : `point ${point}`;
  }
}

function changed(before, delta) {
  const made = new Map(before || []);
  for (const [key, value] of Object.entries(delta)) value === null ? made.delete(key) : made.set(key, value);
  return made;
}

async function unpack() {
  const packed = Uint8Array.from(atob(byId("data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
