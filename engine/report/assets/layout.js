// Coordinates. Layer and column of every child of a box are given; here, where sizes are known, boxes get their place.
const GAP = 26, LEVEL = 46, PADDING = 18, HEADER = 30, COLUMN = 150, ROW = 40, LANE = 4, MOST_IN_A_ROW = 8;

class Scene {
  // `open`: the boxes that are expanded.
  constructor(arrangement, open) {
    this.arrangement = arrangement;
    this.open = open;
    this.boxes = [];
    this.shown = new Map();   // node → the box that stands for it
    const root = Object.assign(this.box(""), { ax: 0, ay: 0, depth: 0 });
    this.move(root);
    this.width = root.w;
    this.height = root.h;
    this.edges = this.wires();
  }

  box(path) {
    const items = this.arrangement.children(path).map(([child, layer, column]) => {
      const made = typeof child === "number" ? this.leaf(child) : this.module(child, path);
      return Object.assign(made, { child, layer, column });
    });
    const stacked = stack(items, this.arrangement.lanes(path), path === "" ? 0 : HEADER + PADDING / 2, LEVEL);
    for (const item of [...items, ...stacked.lanes]) item.x += PADDING - stacked.left;
    const w = Math.max(160, stacked.right - stacked.left + PADDING) + PADDING;
    return { items, lanes: byOwner(stacked.lanes), w, h: Math.max(ROW, stacked.bottom + PADDING) };
  }

  leaf(uid) {
    const { arrangement } = this, [version, at] = arrangement.node(uid);
    const detail = summary(arrangement.run, version, at);
    const made = { kind: "node", id: uid, label: version.op, detail, status: arrangement.status.get(uid) || "" };
    return Object.assign(made, { w: Math.max(boxWidth(version.op, NAME), boxWidth(detail, DETAIL)), h: detail ? ROW : 28, items: [] });
  }

  module(path, outer) {
    const { arrangement } = this, inner = arrangement.through(path), tally = arrangement.tally(inner);
    const label = (outer ? inner.slice(outer.length + 1) : inner).split(SEPARATOR).join(".");
    const made = { kind: "module", id: inner, label, detail: tally.text, changes: tally.changes, status: tally.status };
    if (!this.open.has(inner)) {
      return Object.assign(made, { w: Math.max(boxWidth(`▸ ${label}`, NAME), boxWidth(tally.text, DETAIL)), h: ROW + 6, items: [], closed: true });
    }
    const inside = this.box(inner);
    return Object.assign(made, inside, { w: Math.max(inside.w, boxWidth(`▾ ${label}`, NAME)) });
  }

  move(box) {
    for (const item of box.items) {
      Object.assign(item, { ax: box.ax + item.x, ay: box.ay + item.y, up: box, depth: box.depth + 1 });
      this.boxes.push(item);
      if (item.kind === "node") this.shown.set(item.id, item);
      else if (item.closed) this.stand(item.id, item);
      else this.move(item);
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
    return [...found.values()].flatMap((targets) => [...targets.values()].map((edge) => ({ ...edge, lanes: this.lanes(edge.source, edge.target) })));
  }

  // Where a wire passes layers: in the box that is around both its ends.
  lanes(source, target) {
    let [a, b] = [source, target];
    while (a.depth > b.depth) a = a.up;
    while (b.depth > a.depth) b = b.up;
    while (a.up !== b.up) [a, b] = [a.up, b.up];
    const { ax, ay, lanes } = a.up, own = lanes.get(a.child) || [];
    return own.filter(({ layer }) => layer > a.layer && layer < b.layer).map(({ x, y, h }) => ({ x: ax + x, top: ay + y, bottom: ay + y + h }));
  }
}

// Rows from the top; a lane is a narrow item in the row that it runs through, as high as the row.
function stack(items, placed, top, level) {
  const rows = new Map(), lanes = [];
  const row = (layer) => { if (!rows.has(layer)) rows.set(layer, { items: [], lanes: [] }); return rows.get(layer); };
  for (const item of items) row(item.layer).items.push(item);
  for (const [owner, layer, column] of placed) if (rows.has(layer)) row(layer).lanes.push({ owner, layer, column, w: LANE });
  let y = top, left = 0, right = 0;
  for (const [, { items: boxes, lanes: through }] of [...rows].sort((a, b) => a[0] - b[0])) {
    for (const line of lines(boxes, through)) {
      left = Math.min(left, pack(line));
      right = Math.max(right, ...line.map((i) => i.x + i.w));
      const height = Math.max(...line.map((i) => i.h || 0));
      for (const item of line) {
        item.y = y;
        if (item.owner !== undefined) lanes.push(Object.assign(item, { h: height }));
      }
      y += height + level;
    }
  }
  return { lanes, left, right, bottom: y - level };
}

// From above to below; x is the middle.
function byOwner(lanes) {
  const found = new Map();
  for (const lane of lanes) {
    const spot = { layer: lane.layer, x: lane.x + lane.w / 2, y: lane.y, h: lane.h };
    found.has(lane.owner) ? found.get(lane.owner).push(spot) : found.set(lane.owner, [spot]);
  }
  return found;
}

// A layer of very many boxes is broken into lines, as text is: nobody reads a row of forty. What runs through it passes beside.
function lines(row, lanes) {
  if (row.length <= MOST_IN_A_ROW) return [[...row, ...lanes]];
  const sorted = [...row].sort((a, b) => a.column - b.column), count = Math.ceil(row.length / MOST_IN_A_ROW), each = Math.ceil(row.length / count);
  const middle = (each - 1) / 2, half = sorted[sorted.length >> 1].column;
  return Array.from({ length: count }, (_, i) => [
    ...sorted.slice(i * each, (i + 1) * each).map((item, at) => Object.assign(item, { column: at - middle })),
    ...lanes.map((lane) => ({ ...lane, column: lane.column < half ? -middle - 1 : middle + 1 })),
  ]);
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
  const numbers = version.inputs.map((value) => number(run, value, version.graph, point)).filter((x) => x !== null);
  const attributes = Object.entries(version.attributes).filter(([, text]) => text.length < 16).slice(0, 2).map(([k, v]) => `${k}=${v}`);
  return [...numbers.slice(0, 2), ...attributes].join(" · ") || (version.types[0] && version.types[0] !== "?" ? version.types[0] : "");
}

// The text of a constant of few elements, or null.
function number(run, value, graph, point) {
  if (!value) return null;
  const key = run.meant(value, graph, point), weight = run.state(point).weights.get(key), made = run.makers(point).get(key);
  if (weight !== undefined) {
    const elements = run.data.weights[weight].elements;
    return elements && elements.length <= 3 ? elements.join(", ") || "[]" : null;
  }
  const maker = made === undefined ? null : run.node(made, point);
  if (!maker || maker.op !== "Constant") return null;
  const text = Object.values(maker.attributes)[0] || "";
  const inside = /\{([^}]*)\}/.exec(text);
  return inside ? (inside[1].length < 18 ? inside[1] : null) : text.length < 18 ? text : null;
}
