// Elements are made from text and properties only: nothing that comes from a model is ever parsed as markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
const put = (host, ...children) => { host.replaceChildren(); fill(host, {}, children); };
const byId = (id) => document.getElementById(id);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : /(s|x|ch)$/.test(word) ? "es" : "s"}`;
// A name of thousands of characters keeps its two ends.
const middle = (text) => (text.length > 240 ? `${text.slice(0, 160)} … ${text.slice(-60)}` : text);
