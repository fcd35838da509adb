// How wide a text is drawn, in the fonts of the style sheet: no count of letters says that of every script.
const NAME = "600 13px system-ui, sans-serif", DETAIL = "11px ui-monospace, monospace", LONGEST = 80;
const pen = document.createElement("canvas").getContext("2d"), widths = new Map();

function drawnWidth(text, font) {
  const key = `${font}|${text}`;
  if (!widths.has(key)) {
    pen.font = font;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

const boxWidth = (text, font) => Math.min(300, Math.max(72, drawnWidth(text.slice(0, LONGEST), font) + 24));

// The beginning of a text, as far as it fits.
function shorten(text, width, font) {
  if (text.length <= LONGEST && drawnWidth(text, font) <= width) return text;
  const letters = [...text.slice(0, LONGEST)];
  while (letters.length > 3 && drawnWidth(`${letters.join("")}…`, font) > width) letters.pop();
  return `${letters.join("")}…`;
}
