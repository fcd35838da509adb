// Coordinates. Layer and column of every child of a box are given; here, where sizes are known, boxes get their place.
const GAP = 26, LEVEL = 46, PADDING = 18, HEADER = 30, COLUMN = 150, ROW = 40, MOST_IN_A_ROW = 8;
const textWidth = (text, size = 7.3) => Math.min(300, Math.max(72, text.length * size + 26));

class Scene {
  // `open`: the boxes that are expanded.
  constructor(arrangement, open) {
    this.arrangement = arrangement;
    this.open = open;
    this.boxes = [];
    this.shown = new Map();   // node → the box that stands for it
    const root = this.box("");
    this.move(root, 0, 0);
    this.width = root.w;
    this.height = root.h;
    this.edges = this.wires();
  }

  box(path) {
    const items = this.arrangement.children(path).map(([child, layer, column]) => {
      const made = typeof child === "number" ? this.leaf(child) : this.module(child, path);
      return Object.assign(made, { layer, column });
    });
    const rows = new Map();
    for (const item of items) {
      const level = Math.round(item.layer * 2) / 2;
      rows.has(level) ? rows.get(level).push(item) : rows.set(level, [item]);
    }
    const layers = [...rows].sort((a, b) => a[0] - b[0]).flatMap(([, row]) => lines(row));
    let y = path === "" ? 0 : HEADER + PADDING / 2;
    let least = 0;
    for (const row of layers) {
      least = Math.min(least, pack(row));
      for (const item of row) item.y = y;
      y += Math.max(...row.map((i) => i.h)) + LEVEL;
    }
    for (const item of items) item.x += PADDING - least;
    const w = Math.max(160, ...items.map((i) => i.x + i.w)) + PADDING;
    return { items, w, h: Math.max(ROW, y - LEVEL + PADDING) };
  }

  leaf(uid) {
    const { arrangement } = this, [version, at] = arrangement.node(uid);
    const detail = summary(arrangement.run, version, at);
    const made = { kind: "node", id: uid, label: version.op, detail, status: arrangement.status.get(uid) || "" };
    return Object.assign(made, { w: Math.max(textWidth(version.op, 8), textWidth(detail, 6.2)), h: detail ? ROW : 28, items: [] });
  }

  module(path, outer) {
    const { arrangement } = this, inner = arrangement.through(path), tally = arrangement.tally(inner);
    const label = (outer ? inner.slice(outer.length + 1) : inner).split(SEPARATOR).join(".");
    const made = { kind: "module", id: inner, label, detail: tally.text, changes: tally.changes, status: arrangement.isGhost(path) ? "removed" : "" };
    if (!this.open.has(inner)) {
      return Object.assign(made, { w: Math.max(textWidth(label, 8), textWidth(tally.text, 6.2)), h: ROW + 6, items: [], closed: true });
    }
    const inside = this.box(inner);
    return Object.assign(made, inside, { w: Math.max(inside.w, textWidth(label, 8) + 40) });
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
    for (const [child] of this.arrangement.children(path)) typeof child === "number" ? this.shown.set(child, box) : this.stand(child, box);
  }

  // One wire between two boxes, however many nodes inside are connected; it is gone only where all of them are.
  wires() {
    const found = new Map();
    for (const [from, to, ghost] of this.arrangement.connections()) {
      const source = this.shown.get(from), target = this.shown.get(to);
      if (!source || !target || source === target) continue;
      if (!found.has(source)) found.set(source, new Map());
      const targets = found.get(source);
      if (!targets.has(target) || !ghost) targets.set(target, { source, target, ghost });
    }
    return [...found.values()].flatMap((targets) => [...targets.values()]);
  }
}

// A layer of very many boxes is broken into lines, as text is: nobody reads a row of forty.
function lines(row) {
  if (row.length <= MOST_IN_A_ROW) return [row];
  const sorted = [...row].sort((a, b) => a.column - b.column), count = Math.ceil(row.length / MOST_IN_A_ROW), each = Math.ceil(row.length / count);
  const middle = (each - 1) / 2;
  return Array.from({ length: count }, (_, i) => sorted.slice(i * each, (i + 1) * each).map((item, at) => Object.assign(item, { column: at - middle })));
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
