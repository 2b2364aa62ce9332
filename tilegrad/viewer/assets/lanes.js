// Spans on lanes, or merged to a flame: a canvas that draws what is in sight.

import { canvasIn, el, onceAFrame } from "./dom.js";
import { seconds, shortened } from "./format.js";
import { inks, stroke, tint } from "./colours.js";

const ROW = 19, GAP = 10, TITLE = 18, AXIS = 20, MIN_PIXELS = 0.6;

// `timeline`: lanes of spans [start, length, depth, label]; `look`: hue, name and mark of a label.
export function lanesIn(panel, look, choose) {
  const stage = el("div", { class: "stage lanes" });
  const state = { stage, look, timeline: null, left: 0, scale: 1, top: 0, drawn: 0 };
  state.canvas = canvasIn(stage, "Spans over time. Arrows move, plus and minus zoom.", () => (state.fitted ? state.draw() : fitLanes(state)));
  state.draw = onceAFrame(() => paintLanes(state));
  panel.append(stage);
  steer(state, choose);
  state.show = (timeline) => {
    state.timeline = prepared(timeline);
    stage.style.setProperty("--tall", `${Math.max(90, state.timeline.height)}px`);
    fitLanes(state);
  };
  return state;
}

// The spans of each row of each lane in order, to find those in sight by halving.
function prepared(timeline) {
  let y = AXIS, end = 1e-9, begin = Infinity;
  const lanes = timeline.lanes.map((lane) => {
    const rows = [];
    for (const span of lane.spans) {
      (rows[span[2]] ||= []).push(span);
      end = Math.max(end, span[0] + span[1]);
      begin = Math.min(begin, span[0]);
    }
    for (let d = 0; d < rows.length; d++) (rows[d] ||= []).sort((a, b) => a[0] - b[0]);
    const place = { name: lane.name, rows, y };
    y += TITLE + rows.length * ROW + GAP;
    return place;
  });
  return { lanes, begin: begin === Infinity ? 0 : begin, end, height: y };
}

function fitLanes(state) {
  const { timeline, canvas } = state;
  if (!timeline) return;
  state.fitted = Boolean(canvas.clientWidth);
  state.scale = ((canvas.clientWidth || 800) - 24) / (timeline.end - timeline.begin);
  state.left = timeline.begin - 12 / state.scale;
  state.top = 0;
  state.draw();
}

function paintLanes(state) {
  const { canvas, timeline, scale, left, top, look } = state;
  const context = canvas.getContext("2d");
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ink = inks();
  context.clearRect(0, 0, width, height);
  state.drawn = 0;
  if (!timeline) return;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  for (const lane of timeline.lanes) {
    const y = lane.y - top;
    if (y > height || y + TITLE + lane.rows.length * ROW < 0) continue;
    lane.rows.forEach((row, depth) => {
      const v = y + TITLE + depth * ROW;
      if (v > -ROW && v < height) paintRow(state, context, row, v, width, ink, look);
    });
    context.fillStyle = ink.soft;
    context.fillText(lane.name, 6, y + 12);
  }
  axis(context, width, scale, left, ink);
}

function paintRow(state, context, row, y, width, ink, look) {
  const { scale, left } = state;
  const right = left + width / scale;
  let reached = -Infinity;
  for (let n = firstInSight(row, left); n < row.length && row[n][0] < right; n++) {
    const [start, length, , label] = row[n];
    const x = (start - left) * scale;
    const wide = Math.max(length * scale, MIN_PIXELS);
    const { hue, name, mark } = look(label);
    if (x + wide < reached + MIN_PIXELS && !mark) continue; // it would be less than a pixel of its own
    reached = x + wide;
    state.drawn++;
    const from = Math.max(x, -2), to = Math.min(x + wide, width + 2);
    context.globalAlpha = mark === "faded" ? 0.35 : 1;
    context.fillStyle = tint(hue);
    context.fillRect(from, y, Math.max(to - from - (wide > 3 ? 1 : 0), MIN_PIXELS), ROW - 2);
    if (wide > 6 || mark === "related") {
      context.fillStyle = mark === "related" ? ink.accent : stroke(hue);
      context.fillRect(from, y, mark === "related" ? to - from : 2, mark === "related" ? 3 : ROW - 2);
    }
    if (to - from > 34) {
      context.fillStyle = ink.ink;
      context.fillText(shortened(name, Math.floor((to - from - 10) / 6)), from + 6, y + 13);
    }
    context.globalAlpha = 1;
  }
}

function firstInSight(row, left) {
  let [low, high] = [0, row.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle][0] + row[middle][1] < left) low = middle + 1;
    else high = middle;
  }
  return low;
}

function axis(context, width, scale, left, ink) {
  const rough = 90 / scale;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough);
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, width, AXIS - 2);
  context.fillStyle = ink.soft;
  context.strokeStyle = ink.line;
  for (let n = Math.ceil(left / step); n * step < left + width / scale; n++) {
    const x = (n * step - left) * scale;
    context.fillText(n ? seconds(n * step * 1e-6) : "0", x + 3, 12);
    context.beginPath();
    context.moveTo(x, 2);
    context.lineTo(x, AXIS - 4);
    context.stroke();
  }
}

function spanAt(state, x, y) {
  const { timeline, left, scale, top } = state;
  const at = left + x / scale;
  for (const lane of timeline?.lanes || []) {
    const depth = Math.floor((y + top - lane.y - TITLE) / ROW);
    const row = lane.rows[depth];
    if (!row || y + top < lane.y + TITLE) continue;
    const span = row[firstInSight(row, at - 2 / scale)];
    if (span && span[0] <= at + 2 / scale) return span;
  }
  return null;
}

function zoomLanes(state, factor, x = state.canvas.clientWidth / 2) {
  const at = state.left + x / state.scale;
  const whole = state.canvas.clientWidth / (state.timeline.end - state.timeline.begin);
  state.scale = Math.min(Math.max(state.scale * factor, whole * 0.5), whole * 1e6);
  state.left = at - x / state.scale;
  state.draw();
}

function steer(state, choose) {
  const { canvas } = state;
  let last = null, moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = [event.offsetX, event.offsetY];
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = last ? null : spanAt(state, event.offsetX, event.offsetY);
    canvas.title = found ? `${state.look(found[3]).name}: ${seconds(found[1] * 1e-6)}` : "";
    if (!last) return;
    const [x, y] = [event.offsetX, event.offsetY];
    moved += Math.abs(x - last[0]) + Math.abs(y - last[1]);
    state.left -= (x - last[0]) / state.scale;
    state.top = Math.max(0, Math.min(Math.max(0, state.timeline.height - canvas.clientHeight), state.top - (y - last[1])));
    last = [x, y];
    state.draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    last = null;
    if (moved <= 4) choose(spanAt(state, event.offsetX, event.offsetY));
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey) state.left += event.deltaY / state.scale;
    else zoomLanes(state, Math.exp(-event.deltaY / 400), event.offsetX);
    state.draw();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = canvas.clientWidth / 8 / state.scale;
    const acts = {
      "+": () => zoomLanes(state, 1.4), "=": () => zoomLanes(state, 1.4), "-": () => zoomLanes(state, 1 / 1.4), 0: () => fitLanes(state),
      ArrowLeft: () => (state.left -= step), ArrowRight: () => (state.left += step),
      ArrowUp: () => (state.top = Math.max(0, state.top - ROW)), ArrowDown: () => (state.top += ROW),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
    state.draw();
  });
}

// Equal stacks of all lanes as one, the longest first; `same` gives the label that stands for a label.
export function flame(lanes, same) {
  const root = { total: 0, inside: new Map() };
  for (const lane of lanes) {
    const stack = [];
    for (const [, length, depth, own] of lane.spans) {
      const label = same(own);
      stack.length = depth;
      const above = stack[depth - 1] || root;
      if (!above.inside.has(label)) above.inside.set(label, { label, total: 0, inside: new Map() });
      const node = above.inside.get(label);
      node.total += length;
      stack[depth] = node;
      if (!depth) root.total += length;
    }
  }
  const spans = [];
  const lay = (node, start, depth) => {
    let at = start;
    for (const child of [...node.inside.values()].sort((a, b) => b.total - a.total)) {
      spans.push([at, child.total, depth, child.label]);
      lay(child, at, depth + 1);
      at += child.total;
    }
  };
  lay(root, 0, 0);
  return [{ name: "all lanes, equal stacks merged", spans }];
}
