// What is in which box at a point, with the ghosts of another one. It depends on nothing that a click changes, so it is
// computed once, and opening a box costs what is drawn anew.
class Arrangement {
  // `ghosts`: a point whose vanished nodes are shown too.
  constructor(run, point, ghosts) {
    this.run = run;
    this.point = point;
    this.ghosts = ghosts === point ? null : ghosts;
    this.status = ghosts === null ? new Map() : run.difference(ghosts, point);
    this.inside = new Map();
    this.counts = new Map();
  }

  children(path) {
    if (!this.inside.has(path)) this.inside.set(path, this.placed(path));
    return this.inside.get(path);
  }

  placed(path) {
    const layout = this.run.state(this.point).containers.get(path);
    const placed = layout === undefined ? [] : this.run.data.layouts[layout];
    if (this.ghosts === null) return placed;
    const present = new Set(placed.map(([child]) => child));
    const before = this.run.state(this.ghosts).containers.get(path);
    if (before === undefined) return placed;
    const old = this.run.data.layouts[before], gone = old.filter(([child]) => !present.has(child) && this.isGhost(child));
    if (!gone.length) return placed;
    // What is gone keeps its height, and both versions are stretched to the depth of the deeper one.
    const depth = (rows) => rows.reduce((most, [, layer]) => Math.max(most, layer + 1), 1), deepest = Math.max(depth(old), depth(placed));
    const stretch = (rows, by, aside) => rows.map(([child, layer, column]) => [child, layer * by, column + aside]);
    return [...stretch(placed, deepest / depth(placed), 0), ...stretch(gone, deepest / depth(old), 0.45)];
  }

  isGhost(child) {
    return typeof child === "number" ? this.status.get(child) === "removed" : !this.run.state(this.point).containers.has(child);
  }

  // A node, and the point at which it is there.
  node(uid) {
    const at = this.run.state(this.point).nodes.has(uid) ? this.point : this.ghosts;
    return [this.run.node(uid, at), at];
  }

  // A chain of boxes that hold nothing but the next is one box.
  through(path) {
    let inner = path;
    for (;;) {
      const inside = this.children(inner);
      if (inside.length !== 1 || typeof inside[0][0] === "number") return inner;
      inner = inside[0][0];
    }
  }

  // How many nodes a box holds, and how many of them came, went and changed.
  count(path) {
    if (!this.counts.has(path)) {
      const sums = { nodes: 0, added: 0, removed: 0, changed: 0 };
      for (const [child] of this.children(path)) {
        if (typeof child !== "number") for (const [kind, number] of Object.entries(this.count(child))) sums[kind] += number;
        else {
          const status = this.status.get(child);
          if (status) sums[status]++;
          if (status !== "removed") sums.nodes++;
        }
      }
      this.counts.set(path, sums);
    }
    return this.counts.get(path);
  }

  // Modules of a list (`layer.0`, `layer.1`, …) are alike, and are counted together.
  isList(path) {
    const inside = this.children(path);
    return inside.length > 1 && inside.every(([child]) => typeof child !== "number" && /^\d+$/.test(child.split(SEPARATOR).at(-1)));
  }

  // The box inside that holds nearly everything, or null.
  dominant(path) {
    const all = this.count(path).nodes;
    const found = this.children(path).find(([child]) => typeof child !== "number" && this.count(child).nodes > 0.8 * all);
    return found ? this.through(found[0]) : null;
  }

  // A box in words.
  tally(path) {
    const { nodes, added, removed, changed } = this.count(path), inside = this.children(path);
    const moves = [["+", added], ["−", removed], ["~", changed]].filter(([, n]) => n).map(([sign, n]) => sign + n.toLocaleString("en")).join(" ");
    const held = nodes || !removed ? `${plural(nodes, "node")}${moves ? `  ${moves}` : ""}` : `${plural(removed, "node")}, gone`;
    return { changes: added + removed + changed, text: `${this.isList(path) ? `×${inside.length} · ` : ""}${held}` };
  }

  // Which node reads which: [source, target, whether that is gone].
  connections() {
    if (!this.connected) {
      this.connected = [];
      const visit = (path) => { for (const [child] of this.children(path)) typeof child === "number" ? this.connect(child) : visit(child); };
      visit("");
    }
    return this.connected;
  }

  connect(uid) {
    const [version, at] = this.node(uid), makers = this.run.makers(at), alive = at === this.point;
    for (const value of version.inputs) {
      const source = makers.get(value);
      if (source !== undefined && source !== uid) this.connected.push([source, uid, !alive]);
    }
    const before = alive && this.ghosts !== null && this.run.node(uid, this.ghosts);
    if (before) this.connectGhosts(uid, before);
  }

  // What a node that stays has read of nodes that went.
  connectGhosts(uid, before) {
    const makers = this.run.makers(this.ghosts);
    for (const value of before.inputs) {
      const source = makers.get(value);
      if (this.status.get(source) === "removed") this.connected.push([source, uid, true]);
    }
  }
}
