// What colours mean: nodes that came and went, or an amount, or the pass that made them.
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

const SPREAD = (name) => [...name].reduce((n, c) => (n * 31 + c.charCodeAt(0)) % 360, 7);

// The colour of a box, or null for its own.
function colours(app) {
  const { overlay, to } = app.view;
  if (overlay === "") return null;
  if (overlay === "made") return (box) => { const by = (app.run.node(box.id, to) || { by: "" }).by; return by ? tint(SPREAD(by)) : null; };
  const { amounts, colour } = scale(app, overlay);
  return (box) => colour(amounts.get(box.id));
}

function scale(app, overlay) {
  const key = `${overlay}|${app.view.to}`;
  if (!app.scaled || app.scaled.key !== key) {
    const amounts = app.run.amounts(overlay, app.view.to), known = [...amounts.values()].filter((n) => n > 0);
    const least = known.reduce((a, b) => Math.min(a, b), Infinity), most = known.reduce((a, b) => Math.max(a, b), 0);
    const [low, high] = known.length ? [Math.log(least), Math.log(most)] : [0, 0];
    app.scaled = { key, amounts, least, most, colour: (n) => (n > 0 ? tint(210 - 210 * Math.min(1, (Math.log(n) - low) / Math.max(1e-9, high - low))) : null) };
  }
  return app.scaled;
}

function legend(app) {
  const { overlay, from, to, mode } = app.view, host = byId("legend"), key = byId("key");
  const kinds = { unified: ["added", "removed", "changed"], split: ["removed", "added", "changed"], after: ["added", "changed"] }[mode];
  key.hidden = overlay !== "" || from === to;
  put(key, kinds.map((kind) => h("span", { class: kind }, { added: "came", removed: "went", changed: "changed" }[kind])));
  host.hidden = !OVERLAYS[overlay];
  if (host.hidden) return;
  const { least, most } = scale(app, overlay), { unit, what, nothing } = OVERLAYS[overlay];
  if (!most) { put(host, nothing); return; }
  const sizes = Object.entries(app.run.data.sizes || {}).map(([name, size]) => `${name} ${size}`).join(", ");
  put(host, `${what}: `, amountText(least, unit), h("span", { class: "ramp", "aria-hidden": "true" }), amountText(most, unit), unit && sizes ? ` · at ${sizes}` : "");
}
