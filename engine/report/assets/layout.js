// Coordinates. Layer and column of every child of a box are given; here, where sizes are known, boxes get their place.
const GAP = 26, LEVEL = 46, PADDING = 18, HEADER = 30, COLUMN = 150, ROW = 40;
const textWidth = (text, size = 7.3) => Math.min(300, Math.max(72, text.length * size + 26));

class Scene {
  // `ghosts`: a point whose vanished nodes are shown too; `open`: the boxes that are expanded.
  constructor(run, point, ghosts, open) {
    this.run = run;
    this.point = point;
    this.ghosts = ghosts === point ? null : ghosts;
    this.open = open;
    this.boxes = [];
    this.shown = new Map();   // node → the box that stands for it
    this.status = ghosts === null ? new Map() : run.difference(ghosts, point);
    const root = this.box("", 0);
    this.move(root, 0, 0);
    this.width = root.w;
    this.height = root.h;
    this.edges = this.wires();
  }

  children(path) {
    const layout = this.run.state(this.point).containers.get(path);
    const placed = layout === undefined ? [] : this.run.data.layouts[layout];
    if (this.ghosts === null) return placed;
    const present = new Set(placed.map(([child]) => child));
    const before = this.run.state(this.ghosts).containers.get(path);
    if (before === undefined) return placed;
    const old = this.run.data.layouts[before], gone = old.filter(([child]) => !present.has(child) && this.isGhost(child));
    if (!gone.length) return placed;
    // What is gone keeps its height, and both versions are stretched to the depth of the deeper one.
    const depth = (rows) => Math.max(1, ...rows.map(([, layer]) => layer + 1)), deepest = Math.max(depth(old), depth(placed));
    const stretch = (rows, by, aside) => rows.map(([child, layer, column]) => [child, layer * by, column + aside]);
    return [...stretch(placed, deepest / depth(placed), 0), ...stretch(gone, deepest / depth(old), 0.45)];
  }

  isGhost(child) {
    return typeof child === "number" ? this.status.get(child) === "removed" : !this.run.state(this.point).containers.has(child);
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

  box(path, depth) {
    const items = this.children(path).map(([child, layer, column]) => {
      const made = typeof child === "number" ? this.leaf(child) : this.module(child, path, depth);
      return Object.assign(made, { layer, column });
    });
    const rows = new Map();
    for (const item of items) {
      const level = Math.round(item.layer * 2) / 2;
      rows.has(level) ? rows.get(level).push(item) : rows.set(level, [item]);
    }
    const layers = [...rows].sort((a, b) => a[0] - b[0]);
    let y = path === "" ? 0 : HEADER + PADDING / 2;
    let least = 0;
    for (const [, row] of layers) {
      least = Math.min(least, pack(row));
      for (const item of row) item.y = y;
      y += Math.max(...row.map((i) => i.h)) + LEVEL;
    }
    for (const item of items) item.x += PADDING - least;
    const w = Math.max(160, ...items.map((i) => i.x + i.w)) + PADDING;
    return { items, w, h: Math.max(ROW, y - LEVEL + PADDING) };
  }

  leaf(uid) {
    const alive = this.run.state(this.point).nodes.has(uid);
    const version = this.run.node(uid, alive ? this.point : this.ghosts);
    const detail = summary(this.run, version, alive ? this.point : this.ghosts);
    const made = { kind: "node", id: uid, label: version.op, detail, status: this.status.get(uid) || "" };
    return Object.assign(made, { w: Math.max(textWidth(version.op, 8), textWidth(detail, 6.2)), h: detail ? ROW : 28, items: [] });
  }

  module(path, outer, depth) {
    const inner = this.through(path);
    const label = (outer ? inner.slice(outer.length + 1) : inner).split(SEPARATOR).join(".");
    const tally = this.tally(inner);
    const made = { kind: "module", id: inner, label, detail: tally.text, changes: tally.changes, status: this.isGhost(path) ? "removed" : "" };
    if (!this.open.has(inner)) {
      return Object.assign(made, { w: Math.max(textWidth(label, 8), textWidth(tally.text, 6.2)), h: ROW + 6, items: [], closed: true });
    }
    const inside = this.box(inner, depth + 1);
    return Object.assign(made, inside, { w: Math.max(inside.w, textWidth(label, 8) + 40) });
  }

  // How many nodes a box holds and how many of them changed; modules that are alike are counted together.
  tally(path) {
    let count = 0, changes = 0;
    const visit = (inside) => {
      for (const [child] of this.children(inside)) {
        if (typeof child !== "number") visit(child);
        else {
          if (this.status.get(child) !== "removed") count++;
          if (this.status.has(child)) changes++;
        }
      }
    };
    visit(path);
    const inner = this.children(path).filter(([child]) => typeof child !== "number").length;
    const numbered = this.children(path).every(([child]) => typeof child !== "number" && /^\d+$/.test(child.split(SEPARATOR).at(-1)));
    return { changes, text: `${numbered && inner > 1 ? `×${inner} · ` : ""}${plural(count, "node")}${changes ? ` · ${changes.toLocaleString("en")} changed` : ""}` };
  }

  move(box, x, y) {
    for (const item of box.items) {
      item.ax = x + item.x;
      item.ay = y + item.y;
      this.boxes.push(item);
      if (item.kind === "node") this.shown.set(item.id, item);
      else if (item.closed) this.stand(item.id, item);
      else this.move(item, item.ax, item.ay);
    }
  }

  stand(path, box) {
    for (const [child] of this.children(path)) typeof child === "number" ? this.shown.set(child, box) : this.stand(child, box);
  }

  wires() {
    const found = new Map();
    for (const [uid, box] of this.shown) {
      const alive = this.run.state(this.point).nodes.has(uid), at = alive ? this.point : this.ghosts;
      const makers = this.run.makers(at);
      for (const value of this.run.node(uid, at).inputs) {
        const source = this.shown.get(makers.get(value));
        if (!source || source === box) continue;
        const key = `${source.id}|${box.id}`;
        const ghost = !alive || this.status.get(makers.get(value)) === "removed";
        if (!found.has(key) || !ghost) found.set(key, { source, target: box, ghost, value });
      }
    }
    return [...found.values()];
  }
}

// Puts a row's boxes as near to their columns as their widths allow; gives the leftmost edge.
function pack(row) {
  row.sort((a, b) => a.column - b.column);
  let edge = -Infinity, drift = 0;
  for (const item of row) {
    const wanted = item.column * COLUMN - item.w / 2;
    item.x = Math.max(wanted, edge + GAP);
    edge = item.x + item.w;
    drift += item.x - wanted;
  }
  for (const item of row) item.x -= drift / row.length;
  return row.length ? row[0].x : 0;
}

// What a node reads that is a number, and its most telling attributes: enough to recognise it.
function summary(run, version, point) {
  const makers = run.makers(point), state = run.state(point);
  const numbers = version.inputs.map((value) => number(run, value, makers, state, point)).filter((x) => x !== null);
  const attributes = Object.entries(version.attributes).filter(([, text]) => text.length < 16).slice(0, 2).map(([k, v]) => `${k}=${v}`);
  return [...numbers.slice(0, 2), ...attributes].join(" · ") || (version.types[0] && version.types[0] !== "?" ? version.types[0] : "");
}

// The text of a constant of few elements, or null.
function number(run, value, makers, state, point) {
  const weight = state.weights.get(value);
  if (weight !== undefined) {
    const elements = run.data.weights[weight].elements;
    return elements && elements.length <= 3 ? elements.join(", ") || "[]" : null;
  }
  const maker = makers.get(value) === undefined ? null : run.node(makers.get(value), point);
  if (!maker || maker.op !== "Constant") return null;
  const text = Object.values(maker.attributes)[0] || "";
  const inside = /\{([^}]*)\}/.exec(text);
  return inside ? (inside[1].length < 18 ? inside[1] : null) : text.length < 18 ? text : null;
}
