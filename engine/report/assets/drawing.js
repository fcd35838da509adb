// The small before → after drawings of rewrites.
function drawing(picture, kind) {
  if (!picture) return h("p", { class: "nothing" }, "no node");
  if (picture.counts) {
    const rows = Object.entries(picture.counts).sort((a, b) => b[1] - a[1]);
    return h("ul", { class: `counts ${kind}` }, rows.map(([op, count]) => h("li", {}, `${op} ×${count}`)));
  }
  const boxes = picture.nodes.map((node) => {
    const outside = node.operands.filter((o) => !o.startsWith("#"));
    const short = Object.entries(node.attributes).filter(([, v]) => v.length < 18).map(([k, v]) => `${k}=${v}`);
    const detail = [...outside, ...short].join("  ");
    const w = Math.max(boxWidth(node.op, NAME), Math.min(240, boxWidth(detail, DETAIL)));
    return { node, detail, w, h: detail ? 38 : 27, layer: node.at[0], column: node.at[1] };
  });
  const { lanes, left, right, bottom } = stack(boxes, picture.lanes, 2, 24);
  for (const box of boxes) Object.assign(box, { ax: box.x - left + 2, ay: box.y });
  const ways = byOwner(lanes), width = right - left + 4, height = bottom + 2;
  const through = (a, b) => (ways.get(a) || []).filter(({ layer }) => layer > boxes[a].layer && layer < boxes[b].layer).map(({ x, y, h: high }) => ({ x: x - left + 2, top: y, bottom: y + high }));
  const label = `${kind}: ${picture.nodes.map((n) => `${n.op}(${n.operands.join(", ")})`).join(", ")}`;
  return s("svg", { class: `drawing ${kind}`, viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    picture.edges.map(([a, b]) => s("path", { d: wire(boxes[a], boxes[b], through(a, b)) })),
    boxes.map((box) => s("g", { transform: `translate(${box.ax} ${box.ay})` },
      s("title", {}, `${box.node.op} ${JSON.stringify(box.node.attributes)}`),
      s("rect", { width: box.w, height: box.h, rx: 6 }),
      s("text", { x: box.w / 2, y: box.detail ? 16 : 18, class: "name middle" }, shorten(box.node.op, box.w - 12, NAME)),
      box.detail && s("text", { x: box.w / 2, y: 31, class: "detail middle" }, shorten(box.detail, box.w - 12, DETAIL)))));
}
