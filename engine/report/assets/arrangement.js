// What is in which box at a point, with the ghosts of another one. It depends on nothing that a click changes, so it is
// computed once, and opening a box costs what is drawn anew.
class Arrangement {
  // `ghosts`: a point whose vanished nodes are shown too. `from`, `to`: the points whose difference is marked.
  constructor(run, point, ghosts, from, to) {
    this.run = run;
    this.point = point;
    this.ghosts = ghosts === point ? null : ghosts;
    this.status = run.difference(from, to);
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
    return [...placed, ...among(placed, old, gone)];
  }

  // The lanes of wires through a box. Where ghosts have layers of their own, a lane goes on between them.
  lanes(path) {
    const { containers } = this.run.state(this.point), placed = containers.has(path) ? this.run.data.lanes[containers.get(path)] : [];
    const between = [...new Set(this.children(path).map(([, layer]) => layer))].filter((layer) => !Number.isInteger(layer));
    return between.length ? [...placed, ...placed.flatMap(([owner, layer, column]) => between.filter((at) => Math.floor(at) === layer).map((at) => [owner, at, column]))] : placed;
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
          if (status !== "removed" || this.ghosts === null) sums.nodes++;
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

  // A box in words, and what became of it where all that it holds came, or went.
  tally(path) {
    const { nodes, added, removed, changed } = this.count(path), inside = this.children(path);
    const moves = [["+", added], ["−", removed], ["~", changed]].filter(([, n]) => n).map(([sign, n]) => sign + n.toLocaleString("en")).join(" ");
    const held = nodes || !removed ? `${plural(nodes, "node")}${moves ? `  ${moves}` : ""}` : `${plural(removed, "node")}, gone`;
    const status = removed && (!nodes || (this.ghosts === null && removed === nodes)) ? "removed" : nodes && added === nodes && !removed ? "added" : "";
    return { changes: added + removed + changed, status, text: `${this.isList(path) ? `×${inside.length} · ` : ""}${held}` };
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
    const [version, at] = this.node(uid), alive = at === this.point;
    for (const value of version.inputs) {
      const source = this.run.source(value, version.graph, at);
      if (source !== undefined && source !== uid) this.connected.push([source, uid, !alive]);
    }
    // What nobody reads inside a branch or a body goes to the node that holds it.
    const outer = this.run.holder(version.graph, at), readers = this.run.readers(at);
    if (outer !== undefined && !version.outputs.some((value) => value && readers.has(scoped(value, version.graph)))) this.connected.push([uid, outer, !alive]);
    const before = alive && this.ghosts !== null && this.run.node(uid, this.ghosts);
    if (before) this.connectGhosts(uid, before);
  }

  // What a node that stays has read of nodes that went.
  connectGhosts(uid, before) {
    for (const value of before.inputs) {
      const source = this.run.source(value, before.graph, this.ghosts);
      if (this.status.get(source) === "removed") this.connected.push([source, uid, true]);
    }
  }
}

// Where ghosts stand in today's picture: in layers of their own, between those that stay and stood above and below them.
function among(placed, old, gone) {
  const now = new Map(placed.map(([child, layer]) => [child, layer])), bottom = Math.max(-1, ...now.values()) + 1;
  const stays = old.filter(([child]) => now.has(child)), gaps = new Map(), homes = new Map();
  const lowest = (rows) => rows.reduce((most, [child]) => Math.max(most, now.get(child)), -1);
  const highest = (rows) => rows.reduce((least, [child]) => Math.min(least, now.get(child)), bottom);
  for (const layer of [...new Set(gone.map(([, layer]) => layer))].sort((a, b) => a - b)) {
    let over = stays.filter(([, was]) => was < layer), under = stays.filter(([, was]) => was > layer);
    // Where those that stay have changed places, the nearest ones count.
    if (lowest(over) >= highest(under)) [over, under] = [nearest(over, layer), nearest(under, layer)];
    const above = lowest(over), below = highest(under), gap = `${above}|${below}`;
    gaps.has(gap) ? gaps.get(gap).push(layer) : gaps.set(gap, [layer]);
    homes.set(layer, { above, span: below > above ? below - above : 1, inside: gaps.get(gap) });
  }
  const height = (layer) => { const { above, span, inside } = homes.get(layer); return above + (span * (inside.indexOf(layer) + 1)) / (inside.length + 1); };
  return gone.map(([child, layer, column]) => [child, height(layer), column + 0.45]);
}

function nearest(rows, layer) {
  const least = rows.reduce((best, [, was]) => Math.min(best, Math.abs(was - layer)), Infinity);
  return rows.filter(([, was]) => Math.abs(was - layer) === least);
}
