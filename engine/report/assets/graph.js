// Drawing a scene: only what is in view exists in the document, so that thousands of nodes stay fluent.
class Camera {
  constructor() {
    this.x = 0; this.y = 0; this.scale = 1; this.listeners = [];
  }
  set(x, y, scale) {
    Object.assign(this, { x, y, scale: Math.min(3, Math.max(0.02, scale)) });
    for (const listener of this.listeners) listener();
  }
  zoom(factor, px, py) {
    const scale = Math.min(3, Math.max(0.02, this.scale * factor)), ratio = scale / this.scale;
    this.set(px - (px - this.x) * ratio, py - (py - this.y) * ratio, scale);
  }
}

class GraphView {
  constructor(figure, camera, actions) {
    this.figure = figure;
    this.caption = figure.querySelector("figcaption");
    this.camera = camera;
    this.actions = actions;
    this.wires = s("g", { class: "wires" });
    // Expanded boxes lie below the wires, what is wired lies above them.
    this.frames = s("g", {});
    this.nodes = s("g", {});
    this.world = s("g", {}, this.frames, this.wires, this.nodes);
    this.svg = s("svg", { role: "group", "aria-label": "Graph", tabindex: 0 }, this.world);
    figure.append(this.svg);
    this.drawn = new Map();
    this.selected = null;
    camera.listeners.push(() => this.refresh());
    this.listen();
    new ResizeObserver(() => this.refresh()).observe(figure);
  }

  listen() {
    const pointers = new Map();
    let moved = 0;
    const local = (event) => {
      const edge = this.svg.getBoundingClientRect();
      return [event.clientX - edge.left, event.clientY - edge.top];
    };
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.camera.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), ...local(event));
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, local(event)); moved = 0; });
    this.svg.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = local(event), others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (moved > 4 && !this.svg.hasPointerCapture(event.pointerId)) this.svg.setPointerCapture(event.pointerId);
      if (others.length) {
        const was = Math.hypot(before[0] - others[0][0], before[1] - others[0][1]), is = Math.hypot(now[0] - others[0][0], now[1] - others[0][1]);
        this.camera.zoom(is / Math.max(1, was), ...others[0]);
      } else if (moved > 4) {
        this.camera.set(this.camera.x + now[0] - before[0], this.camera.y + now[1] - before[1], this.camera.scale);
      }
      pointers.set(event.pointerId, now);
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) this.svg.addEventListener(end, (event) => pointers.delete(event.pointerId));
    this.svg.addEventListener("click", (event) => { if (moved > 4) event.stopPropagation(); }, true);
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (step) { event.preventDefault(); this.camera.set(this.camera.x + step[0], this.camera.y + step[1], this.camera.scale); }
      const factor = { "+": 1.25, "=": 1.25, "-": 0.8 }[event.key];
      if (factor) this.camera.zoom(factor, this.svg.clientWidth / 2, this.svg.clientHeight / 2);
    });
  }

  // Whoever came with the keyboard stays on the box, although every picture is drawn anew.
  follow(id) {
    this.wanted = id ?? null;
    this.refresh();
  }

  show(scene, caption, colour) {
    const held = this.svg.contains(document.activeElement) ? this.scene.boxes.find((b) => this.drawn.get(b) === document.activeElement) : null;
    if (held) this.wanted = held.id;
    this.scene = scene;
    this.colour = colour;
    this.caption.textContent = scene.boxes.length ? caption : `${caption}: no nodes`;
    this.figure.classList.toggle("bare", !scene.boxes.length);
    for (const group of [this.frames, this.wires, this.nodes]) group.replaceChildren();
    this.drawn.clear();
    this.refresh();
  }

  size() {
    return [this.svg.clientWidth || 600, this.svg.clientHeight || 400];
  }

  fit(beside) {
    if (!this.scene) return;
    const [w, h] = this.size(), widest = Math.max(this.scene.width, beside.width), highest = Math.max(this.scene.height, beside.height);
    const usable = Math.max(0.05, Math.min(1.1, (w - 40) / widest, (h - 64) / highest));
    this.camera.set((w - this.scene.width * usable) / 2, 44, usable);
  }

  // All of some boxes, where they fit at a size that can be read; else their middle.
  centre(boxes) {
    const [w, h] = this.size(), left = Math.min(...boxes.map((b) => b.ax)), right = Math.max(...boxes.map((b) => b.ax + b.w));
    const top = Math.min(...boxes.map((b) => b.ay)), bottom = Math.max(...boxes.map((b) => b.ay + Math.min(b.h, h)));
    const fits = Math.min((w - 48) / (right - left), (h - 96) / (bottom - top));
    const scale = Math.min(1.1, Math.max(0.55, Math.min(fits, Math.max(0.6, this.camera.scale))));
    this.camera.set(w / 2 - ((left + right) / 2) * scale, h / 2 - ((top + bottom) / 2) * scale, scale);
  }

  refresh() {
    if (!this.scene || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const { x, y, scale } = this.camera, [w, h] = this.size(), margin = 120 / scale;
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    this.svg.classList.toggle("far", scale < 0.32);
    const left = -x / scale - margin, right = (w - x) / scale + margin, top = -y / scale - margin, bottom = (h - y) / scale + margin;
    const visible = (box) => box.ax < right && box.ax + box.w > left && box.ay < bottom && box.ay + box.h > top;
    const wanted = new Set(this.scene.boxes.filter((box) => visible(box) && box.w * scale > 3));
    for (const [box, element] of this.drawn) if (!wanted.has(box)) { element.remove(); this.drawn.delete(box); }
    // Boxes come outermost first, and what is drawn later lies on top: a missing one is put at its place.
    const behind = new Map();
    for (const box of this.scene.boxes) {
      if (!wanted.has(box)) continue;
      const group = box.kind === "module" && !box.closed ? this.frames : this.nodes;
      let element = this.drawn.get(box);
      if (!element) {
        element = this.element(box);
        this.drawn.set(box, element);
        behind.has(group) ? behind.get(group).after(element) : group.prepend(element);
      }
      element.classList.toggle("selected", this.selected === box.id);
      behind.set(group, element);
    }
    this.drawWires(wanted, scale);
    this.refocus();
    if (this.actions.drawn) this.actions.drawn(this);
  }

  refocus() {
    if (this.wanted === null || this.wanted === undefined) return;
    const box = this.scene.boxes.find((b) => b.id === this.wanted), element = box && this.drawn.get(box);
    if (element) { element.focus({ preventScroll: true }); this.wanted = null; }
  }

  drawWires(wanted, scale) {
    const near = this.scene.edges.filter((e) => wanted.has(e.source) || wanted.has(e.target)).slice(0, scale < 0.1 ? 1500 : 4000);
    this.wires.replaceChildren(...near.map((edge) => {
      const touched = this.selected !== null && (edge.source.id === this.selected || edge.target.id === this.selected);
      return s("path", { d: wire(edge.source, edge.target, edge.lanes), class: `${edge.ghost ? "ghost" : ""} ${touched ? "touched" : ""}` });
    }));
  }

  element(box) {
    const words = `${box.kind === "module" ? "module " : ""}${box.label}${box.detail ? `, ${box.detail}` : ""}${box.status ? `, ${box.status}` : ""}`;
    const act = (event) => {
      if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      this.actions.pick(box);
    };
    const tint = this.colour && (box.kind === "node" || box.closed) ? this.colour(box) : null;
    const open = box.kind === "module" && !box.closed;
    return s("g", {
      class: `box ${box.kind} ${open ? "open" : ""} ${box.status} ${box.changes ? "touched" : ""} ${tint ? "tinted" : ""}`,
      transform: `translate(${box.ax} ${box.ay})`, tabindex: 0, role: "button", "aria-label": words,
      "aria-expanded": box.kind === "module" ? String(open) : null, "data-id": box.id, onclick: act, onkeydown: act,
    },
      s("rect", { width: box.w, height: box.h, rx: box.kind === "module" ? 10 : 6, style: tint ? `fill:${tint}` : null }),
      s("text", { x: open ? 14 : box.w / 2, y: open ? 20 : box.detail ? 17 : 19, class: `name ${open ? "" : "middle"}` },
        shorten(`${box.kind === "module" ? (open ? "▾ " : "▸ ") : ""}${box.label}`, box.w - 12, NAME)),
      !open && box.detail && s("text", { x: box.w / 2, y: box.kind === "module" ? 34 : 32, class: "detail middle" }, shorten(box.detail, box.w - 12, DETAIL)),
    );
  }
}

// Downwards from the bottom to the top, along its lanes; what leads upwards, or to a box beside, goes around on the right.
function wire(source, target, lanes) {
  const x1 = source.ax + source.w / 2, y1 = source.ay + source.h, x2 = target.ax + target.w / 2, y2 = target.ay;
  if (y2 > y1) {
    let [x, y, path] = [x1, y1, `M${x1} ${y1}`];
    for (const to of [...lanes, { x: x2, top: y2, bottom: y2 }]) {
      if (to.top < y) continue;
      const bend = Math.max(14, (to.top - y) / 2.2);
      path += `C${x} ${y + bend} ${to.x} ${to.top - bend} ${to.x} ${to.top}${to.bottom > to.top ? `V${to.bottom}` : ""}`;
      [x, y] = [to.x, to.bottom];
    }
    return path;
  }
  const right = source.ax + source.w, end = target.ax + target.w, from = source.ay + source.h / 2, to = target.ay + Math.min(target.h, 46) / 2;
  const out = Math.max(right, end) + 34;
  return `M${right} ${from}C${out} ${from} ${out} ${to} ${end} ${to}`;
}

class Minimap {
  constructor(host, view) {
    this.host = host;
    this.view = view;
    this.frame = s("rect", { class: "frame" });
    this.boxes = s("g", {});
    this.svg = s("svg", {}, this.boxes, this.frame);
    host.append(this.svg);
    host.addEventListener("pointerdown", (event) => this.go(event));
    host.addEventListener("pointermove", (event) => event.buttons && this.go(event));
  }

  update() {
    const scene = this.view.scene, [w, h] = this.view.size(), { x, y, scale } = this.view.camera;
    if (!scene) return;
    if (this.scene !== scene) {
      this.scene = scene;
      this.svg.setAttribute("viewBox", `0 0 ${scene.width} ${scene.height}`);
      this.boxes.replaceChildren(...scene.boxes.slice(0, 1200).map((b) => s("rect", { x: b.ax, y: b.ay, width: b.w, height: b.h, class: `${b.kind} ${b.status} ${b.changes ? "touched" : ""}` })));
    }
    // Where all is in view the map would only cover it.
    this.host.hidden = x >= 0 && y >= 0 && x + scene.width * scale <= w && y + scene.height * scale <= h;
    for (const [name, value] of Object.entries({ x: -x / scale, y: -y / scale, width: w / scale, height: h / scale })) this.frame.setAttribute(name, value);
  }

  go(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    const [w, h] = this.view.size(), { scale } = this.view.camera;
    this.view.camera.set(w / 2 - point.x * scale, h / 2 - point.y * scale, scale);
  }
}
