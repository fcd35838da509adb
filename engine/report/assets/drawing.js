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
    const w = Math.max(textWidth(node.op, 8), Math.min(240, detail.length * 6.2 + 24));
    return { node, detail, w, h: detail ? 38 : 27, layer: node.at[0], column: node.at[1] };
  });
  const rows = [];
  for (const box of boxes) (rows[box.layer] ||= []).push(box);
  let y = 2, least = 0;
  for (const row of rows.filter(Boolean)) {
    least = Math.min(least, pack(row));
    for (const box of row) box.y = y;
    y += Math.max(...row.map((b) => b.h)) + 24;
  }
  for (const box of boxes) Object.assign(box, { ax: box.x - least + 2, ay: box.y });
  const width = Math.max(...boxes.map((b) => b.ax + b.w)) + 2, height = y - 22;
  const label = `${kind}: ${picture.nodes.map((n) => `${n.op}(${n.operands.join(", ")})`).join(", ")}`;
  return s("svg", { class: `drawing ${kind}`, viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    picture.edges.map(([a, b]) => s("path", { d: wire(boxes[a], boxes[b]) })),
    boxes.map((box) => s("g", { transform: `translate(${box.ax} ${box.ay})` },
      s("title", {}, `${box.node.op} ${JSON.stringify(box.node.attributes)}`),
      s("rect", { width: box.w, height: box.h, rx: 6 }),
      s("text", { x: box.w / 2, y: box.detail ? 16 : 18, class: "name middle" }, box.node.op),
      box.detail && s("text", { x: box.w / 2, y: 31, class: "detail middle" }, shorten(box.detail, box.w / 5.7)))));
}
