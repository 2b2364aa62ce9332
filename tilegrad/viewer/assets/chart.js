// Line and point charts as SVG, with axes that have round numbers.

import { el, svg } from "./dom.js";
import { figure } from "./format.js";
import { stroke } from "./colours.js";

const LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 30;

class Scale {
  constructor(values, log, from, to) {
    const usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    let [low, high] = usable.length ? [Math.min(...usable), Math.max(...usable)] : [log ? 0.1 : 0, 1];
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - Math.abs(low || 1) / 2, high + Math.abs(high || 1) / 2];
    Object.assign(this, { low, high, log, from, to });
  }

  at(value) {
    const [low, high, v] = this.log ? [Math.log(this.low), Math.log(this.high), Math.log(value)] : [this.low, this.high, value];
    return this.from + ((v - low) / (high - low)) * (this.to - this.from);
  }

  back(place) {
    const share = (place - this.from) / (this.to - this.from);
    if (this.log) return Math.exp(Math.log(this.low) + share * (Math.log(this.high) - Math.log(this.low)));
    return this.low + share * (this.high - this.low);
  }

  ticks(count) {
    if (this.log) {
      const first = Math.ceil(Math.log10(this.low) - 1e-9), last = Math.floor(Math.log10(this.high) + 1e-9);
      const every = Math.max(1, Math.ceil((last - first + 1) / count));
      const found = [];
      for (let n = first; n <= last; n += every) found.push(10 ** n);
      if (found.length > 1) return found;
      const finer = [1, 2, 5].flatMap((m) => [first - 1, first, last + 1].map((n) => m * 10 ** n));
      return [...new Set(finer)].filter((x) => x >= this.low && x <= this.high);
    }
    const rough = (this.high - this.low) / count;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough * 0.999);
    const found = [];
    for (let n = Math.ceil(this.low / step - 1e-9); n * step <= this.high + 1e-9 * step; n++) found.push(n * step);
    return found;
  }
}

// `series`: name, hue, points, and whether they are marks; `select(series, point)` is called by a click.
export function chart({ series, width = 420, height = 220, xLabel = "", yLabel = "", xLog = false, yLog = false, fromZero = false, label = "", select = null }) {
  const points = series.flatMap((s) => s.points);
  const across = new Scale(points.map((p) => p[0]), xLog, LEFT, width - RIGHT);
  const up = new Scale([...points.map((p) => p[1]), ...(fromZero ? [0] : [])], yLog, height - BOTTOM, TOP);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label || series.map((s) => s.name).join(", "), class: "chart" });
  for (const y of up.ticks(4)) {
    root.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: up.at(y), y2: up.at(y) }),
      svg("text", { x: LEFT - 6, y: up.at(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of across.ticks(width > 300 ? 5 : 3)) {
    root.append(svg("text", { x: across.at(x), y: height - BOTTOM + 14, "text-anchor": "middle" }, short(x)));
  }
  root.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM }));
  if (xLabel) root.append(svg("text", { class: "axis-name", x: width - RIGHT, y: height - 4, "text-anchor": "end" }, xLabel));
  if (yLabel) root.append(svg("text", { class: "axis-name", x: LEFT + 4, y: TOP + 8 }, yLabel));
  const usable = ([x, y]) => Number.isFinite(x) && Number.isFinite(y) && y !== null && (!xLog || x > 0) && (!yLog || y > 0);
  for (const s of series) root.append(...drawn(s, usable, across, up, select));
  if (!series.some((s) => s.marks)) readout(root, series, across, up, width, height, usable);
  return root;
}

function drawn(s, usable, across, up, select) {
  const colour = s.hue === undefined ? "var(--soft)" : stroke(s.hue);
  if (s.marks) {
    return s.points.filter(usable).map((point) => svg("circle", {
      cx: across.at(point[0]), cy: up.at(point[1]), r: s.radius || 4, fill: colour, "fill-opacity": s.faded ? 0.25 : 0.85,
      class: s.selected ? "mark selected" : "mark", tabindex: select ? 0 : null,
      on: select ? { click: () => select(s), keydown: (event) => event.key === "Enter" && select(s) } : {},
    }, svg("title", {}, s.name)));
  }
  let pen = "M", path = "";
  for (const point of s.points) {
    if (!usable(point)) pen = "M"; // a gap: what is no number is not drawn
    else {
      path += `${pen}${across.at(point[0]).toFixed(1)} ${up.at(point[1]).toFixed(1)}`;
      pen = "L";
    }
  }
  const first = s.points.find(usable);
  const label = s.label && first ? svg("text", { x: across.at(first[0]) + 4, y: up.at(first[1]) - 4 }, s.label) : null;
  return [label || "", svg("path", { d: path || "M0 0", fill: "none", stroke: colour, "stroke-width": s.thin ? 1 : 1.8, "stroke-opacity": s.faded ? 0.25 : 1, "stroke-linejoin": "round" })];
}

// The values under the pointer.
function readout(root, series, across, up, width, height, usable) {
  const line = svg("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const text = svg("text", { class: "reading", y: height - 4, x: LEFT });
  root.append(line, text);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const at = across.back(x);
    const near = series.filter((s) => !s.thin).map((s) => [s, s.points.filter(usable).reduce((a, b) => (!a || Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a), null)]);
    const found = near.filter(([, p]) => p);
    if (!found.length) return;
    line.setAttribute("x1", across.at(found[0][1][0]));
    line.setAttribute("x2", across.at(found[0][1][0]));
    line.setAttribute("visibility", "visible");
    text.textContent = `${short(found[0][1][0])}: ${found.slice(0, 4).map(([, p]) => figure(p[1])).join(", ")}`;
  });
  root.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden");
    text.textContent = "";
  });
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e12) return `${+(value / 1e12).toPrecision(3)}T`;
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return size && size < 1e-3 ? value.toExponential(0) : String(+value.toPrecision(3));
}

export function legend(items) {
  return el("ul", { class: "legend" }, items.map(({ name, hue, act }) =>
    el("li", {}, el("span", { class: "dash", style: { background: stroke(hue) } }),
      act ? el("button", { type: "button", class: "link", on: { click: act } }, name) : name)));
}
