// The graph: a canvas that draws what is in sight. Modules fold and unfold; colours are kernels, times or modules.

import { button, canvasIn, el, onceAFrame } from "./dom.js";
import { plural, seconds, shortened } from "./format.js";
import { heat, hueOf, inks, stroke, tint } from "./colours.js";
import { select, store, subscribe } from "./store.js";
import { arrange, treeOf } from "./layout.js";

const FONT = "12px system-ui, sans-serif", SMALL = "10.5px system-ui, sans-serif";
const MAX_LABEL = 34, LEAF_HEIGHT = 36, GROUP_HEIGHT = 46;
const MIN_SCALE = 0.02, MAX_SCALE = 3, TEXT_SCALE = 0.4, READABLE_SCALE = 0.55;
const MAX_BOXES_A_FRAME = 1500; // of more boxes in sight one stands for those that would cover each other
const MAX_EDGES_A_FRAME = 3000;
const MAX_BANDS = 40; // kernels of a group that are shown by their colours
const BUCKET = 400; // height of the stripes by which edges are found, in pixels
const UNFOLD_UP_TO = 24; // groups open from the beginning if the graph has at most so many nodes

export function graphView(panel) {
  const state = {
    panel, tree: null, drawing: null, unfolded: new Set(), mode: "kernel", x: 0, y: 0, scale: 1, stats: null, times: [],
  };
  const stage = el("div", { class: "stage" });
  const canvas = canvasIn(stage, "Graph. Arrows move along edges, Enter unfolds, plus and minus zoom.", () => resized(state));
  Object.assign(state, { stage, canvas, draw: onceAFrame(() => paintGraph(state)) });
  panel.append(graphTools(state), stage);
  follow(state);
  subscribe((what) => {
    if (what === "step") beginGraph(state);
    if (what === "selection") reveal(state);
    if (["selection", "theme", "tab"].includes(what)) state.draw();
  });
  return state;
}

function resized(state) {
  if (!state.fitted) return fit(state, true);
  reveal(state); // what is selected may be beyond the new border
  state.draw();
}

function graphTools(state) {
  const modes = ["kernel", "time", "phase"].map((mode) =>
    button(mode, () => {
      state.mode = mode;
      modes.forEach((b) => b.setAttribute("aria-pressed", b.textContent === mode));
      state.draw();
    }, { "aria-pressed": mode === "kernel" }),
  );
  return el("div", { class: "tools" },
    el("span", { class: "group", role: "group", "aria-label": "colour" }, el("span", { class: "soft" }, "colour by"), modes),
    el("span", { class: "group" },
      button("fold all", () => fold(state, false)), button("unfold all", () => fold(state, true))),
    el("span", { class: "group" },
      button("−", () => zoom(state, 1 / 1.3), { title: "zoom out (-)" }),
      button("+", () => zoom(state, 1.3), { title: "zoom in (+)" }),
      button("fit", () => fit(state), { title: "show everything (0)" })),
    (state.count = el("span", { class: "soft count" })));
}

function beginGraph(state) {
  const step = store.step;
  state.unfolded = new Set();
  state.tree = step && treeOf(step);
  state.drawing = null;
  if (!step) return;
  const whole = step.kernels.reduce((sum, k) => sum + (k.seconds || 0), 0);
  state.times = step.nodes.map((node) => (whole ? node.kernels.reduce((s, k) => s + (step.kernels[k]?.seconds || 0), 0) / whole : 0));
  if (step.nodes.length <= UNFOLD_UP_TO) for (const key of state.tree.groups.keys()) state.unfolded.add(key);
  arranged(state);
  fit(state, true);
}

function fold(state, open) {
  state.unfolded = new Set(open ? state.tree.groups.keys() : []);
  arranged(state);
  fit(state, true);
}

// Lays out what is unfolded, and prepares what a frame needs to find what is in sight.
function arranged(state) {
  const measure = measurer(state);
  const drawing = arrange(store.step, state.tree, state.unfolded, measure);
  drawing.order = drawing.boxes.map((_, b) => b).sort((a, b) => drawing.boxes[a].depth - drawing.boxes[b].depth || drawing.boxes[a].y - drawing.boxes[b].y);
  drawing.stripes = new Map();
  drawing.edges.forEach((edge, e) => {
    const [a, b] = [drawing.boxes[edge.from], drawing.boxes[edge.to]];
    const [top, bottom] = [Math.min(a.y, b.y), Math.max(a.y + a.height, b.y + b.height)];
    for (let s = Math.floor(top / BUCKET); s <= Math.floor(bottom / BUCKET); s++) {
      if (!drawing.stripes.has(s)) drawing.stripes.set(s, []);
      drawing.stripes.get(s).push(e);
    }
  });
  state.drawing = drawing;
  const shown = drawing.boxes.filter((box) => !box.open).length;
  state.count.textContent = `${shown.toLocaleString("en")} of ${plural(store.step.nodes.length, "value")}`;
  state.draw();
}

function measurer(state) {
  const context = state.canvas.getContext("2d");
  const widths = new Map();
  const width = (text, font) => {
    const key = font + text;
    if (!widths.has(key)) {
      context.font = font;
      widths.set(key, context.measureText(text).width);
    }
    return widths.get(key);
  };
  return (child) => {
    const [head, below] = labelsOf(child);
    const wide = Math.max(width(head, typeof child === "number" ? FONT : `600 ${FONT}`), width(below, SMALL));
    return { width: Math.ceil(wide) + 26, height: typeof child === "number" ? LEAF_HEIGHT : GROUP_HEIGHT };
  };
}

function labelsOf(child) {
  const step = store.step;
  if (typeof child === "number") {
    const node = step.nodes[child];
    return [shortened(node.role === "operation" ? node.op : node.name, MAX_LABEL), shortened(node.type, MAX_LABEL)];
  }
  const own = new Set(child.nodes.flatMap((n) => step.nodes[n].kernels));
  const spent = [...own].reduce((sum, k) => sum + (step.kernels[k]?.seconds || 0), 0);
  const count = plural(child.nodes.filter((n) => step.nodes[n].role === "operation").length, "operation");
  const parts = own.size ? [count, plural(own.size, "kernel"), ...(spent ? [seconds(spent)] : [])] : [plural(child.nodes.length, "tensor")];
  return [shortened(child.label, MAX_LABEL), parts.join(" · ")];
}

// -- painting

function paintGraph(state) {
  const { canvas, drawing, scale } = state;
  const context = canvas.getContext("2d");
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ink = inks();
  context.clearRect(0, 0, width, height);
  state.stats = { boxes: 0, edges: 0, visited: 0 };
  if (!drawing || !width) return;
  const view = { left: -state.x / scale, top: -state.y / scale, right: (width - state.x) / scale, bottom: (height - state.y) / scale };
  context.save();
  context.translate(state.x, state.y);
  context.scale(scale, scale);
  for (const b of drawing.order) if (drawing.boxes[b].open) paintOpen(state, context, drawing.boxes[b], view, ink);
  paintEdges(state, context, view, ink);
  paintBoxes(state, context, view, ink);
  context.restore();
}

function inSight(box, view) {
  return box.x < view.right && box.x + box.width > view.left && box.y < view.bottom && box.y + box.height > view.top;
}

function paintOpen(state, context, box, view, ink) {
  if (!inSight(box, view)) return;
  state.stats.boxes++;
  rounded(context, box.x, box.y, box.width, box.height, 10);
  context.fillStyle = ink.line;
  context.globalAlpha = 0.28;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = isSelectedGroup(box.group) ? ink.accent : ink.line;
  context.lineWidth = isSelectedGroup(box.group) ? 2 : 1;
  context.stroke();
  if (state.scale < TEXT_SCALE * 0.6) return;
  context.font = FONT;
  context.fillStyle = ink.soft;
  context.textAlign = "left";
  context.fillText(`− ${box.group.label}`, box.x + 10, box.y + 18);
}

function paintBoxes(state, context, view, ink) {
  const { drawing, scale, stats } = state;
  const cell = 3 / scale;
  const covered = drawing.boxes.length > MAX_BOXES_A_FRAME ? new Set() : null;
  for (const b of drawing.order) {
    const box = drawing.boxes[b];
    if (box.open || !inSight(box, view)) continue;
    stats.visited++;
    if (stats.boxes >= MAX_BOXES_A_FRAME && !isMarked(box)) continue;
    if (covered && scale < TEXT_SCALE) {
      const key = Math.round(box.x / cell / 8) * 1e6 + Math.round(box.y / cell / 4);
      if (covered.has(key) && !isMarked(box)) continue;
      covered.add(key);
    }
    stats.boxes++;
    paintBox(state, context, box, ink);
  }
}

function paintBox(state, context, box, ink) {
  const [fill, edge] = coloursOf(state, box, ink);
  const marked = markOf(box);
  const faded = store.selection && !marked;
  rounded(context, box.x, box.y, box.width, box.height, box.group ? 9 : 6);
  context.fillStyle = ink.sheet;
  context.fill();
  context.globalAlpha = faded ? 0.45 : 1;
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = marked === "selected" ? ink.accent : marked ? ink.mark : edge;
  context.lineWidth = marked === "selected" ? 3 : marked ? 2 : 1;
  if (state.scale > 0.15 || marked) context.stroke();
  if (box.group && state.mode === "kernel") paintKernels(context, box);
  if (state.scale >= TEXT_SCALE) {
    const [head, below] = labelsOf(box.group || box.node);
    context.textAlign = "center";
    context.fillStyle = ink.ink;
    context.font = box.group ? `600 ${FONT}` : FONT;
    context.fillText(head, box.x + box.width / 2, box.y + (box.group ? 20 : 16));
    context.fillStyle = ink.soft;
    context.font = SMALL;
    context.fillText(below, box.x + box.width / 2, box.y + (box.group ? 36 : 29));
  }
  context.globalAlpha = 1;
}

// The kernels of a folded group, as a band of their colours.
function paintKernels(context, box) {
  const own = [...new Set(box.nodes.flatMap((n) => store.step.nodes[n].kernels))].slice(0, MAX_BANDS);
  const [left, wide] = [box.x + 9, (box.width - 18) / own.length];
  own.forEach((k, n) => {
    context.fillStyle = stroke(hueOf(k));
    context.fillRect(left + n * wide, box.y + box.height - 4, Math.max(1, wide - 1), 2.5);
  });
}

function coloursOf(state, box, ink) {
  const step = store.step;
  if (state.mode === "time") return [heat(box.group ? shareOf(box.group) : state.times[box.node]), ink.line];
  const node = step.nodes[box.nodes[0]];
  if (state.mode === "phase") {
    const hue = { forward: 245, backward: 25, update: 150 }[box.group ? phaseOf(box.group) : node.phase];
    return [node.role === "operation" || box.group ? tint(hue) : ink.sheet, stroke(hue)];
  }
  if (box.group) return [ink.sheet, ink.soft];
  if (!node.kernels.length) return [ink.ground, ink.line];
  return [tint(hueOf(node.kernels[0])), stroke(hueOf(node.kernels[0]))];
}

function phaseOf(group) {
  return store.step.nodes[group.nodes[group.nodes.length - 1]].phase;
}

function shareOf(group) {
  const kernels = store.step.kernels;
  const whole = kernels.reduce((sum, k) => sum + (k.seconds || 0), 0);
  const own = new Set(group.nodes.flatMap((n) => store.step.nodes[n].kernels));
  return whole ? [...own].reduce((sum, k) => sum + (kernels[k]?.seconds || 0), 0) / whole : 0;
}

function isSelectedGroup(group) {
  return store.selection?.kind === "group" && store.selection.id === group.key;
}

function isMarked(box) {
  return Boolean(markOf(box));
}

function markOf(box) {
  const { selection, related } = store;
  if (!selection) return "";
  if (box.group ? isSelectedGroup(box.group) : selection.kind === "node" && selection.id === box.node) return "selected";
  return box.nodes.some((n) => related.nodes.has(n)) ? "related" : "";
}

function paintEdges(state, context, view, ink) {
  const { drawing, stats, scale } = state;
  const seen = new Set();
  const marked = [];
  context.strokeStyle = ink.soft;
  context.globalAlpha = (store.selection ? 0.18 : 0.42) * Math.min(1, Math.max(0.1, 1.8 * scale)); // from afar boxes count
  context.lineWidth = Math.max(1, 0.7 / scale);
  context.beginPath();
  for (let s = Math.floor(view.top / BUCKET); s <= Math.floor(view.bottom / BUCKET); s++) {
    for (const e of drawing.stripes.get(s) || []) {
      if (seen.has(e) || seen.size >= MAX_EDGES_A_FRAME) continue;
      seen.add(e);
      const edge = drawing.edges[e];
      const [a, b] = [drawing.boxes[edge.from], drawing.boxes[edge.to]];
      if (Math.max(a.x + a.width, b.x + b.width) < view.left || Math.min(a.x, b.x) > view.right) continue;
      if (store.selection && (markOf(a) === "selected" || markOf(b) === "selected")) marked.push(edge);
      else curve(context, drawing, edge);
      stats.edges++;
    }
  }
  context.stroke();
  context.globalAlpha = 1;
  context.strokeStyle = ink.accent;
  context.lineWidth = Math.max(1.5, 1 / scale);
  context.beginPath();
  marked.forEach((edge) => curve(context, drawing, edge));
  context.stroke();
}

function curve(context, drawing, edge) {
  const [a, b] = [drawing.boxes[edge.from], drawing.boxes[edge.to]];
  let [x, y] = [a.x + a.width / 2, a.y + a.height];
  context.moveTo(x, y);
  for (const [u, v] of [...edge.points, [b.x + b.width / 2, b.y]]) {
    const bend = Math.max(10, Math.min(40, Math.abs(v - y) / 2));
    if (u === x) context.lineTo(u, v);
    else context.bezierCurveTo(x, y + bend, u, v - bend, u, v);
    [x, y] = [u, v];
  }
}

function rounded(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

// -- moving

function zoom(state, factor, x = state.canvas.clientWidth / 2, y = state.canvas.clientHeight / 2) {
  const scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, state.scale * factor));
  state.x = x - ((x - state.x) * scale) / state.scale;
  state.y = y - ((y - state.y) * scale) / state.scale;
  state.scale = scale;
  state.draw();
}

// Shows everything; or, if that would be too small to read, the beginning.
function fit(state, readable = false) {
  const { drawing, canvas } = state;
  if (!drawing) return;
  const [width, height] = [canvas.clientWidth || 800, canvas.clientHeight || 500];
  state.scale = Math.max(MIN_SCALE, Math.min(1.15, (width - 40) / drawing.width, (height - 40) / drawing.height));
  let middle = drawing.width / 2;
  if (readable && state.scale < READABLE_SCALE) {
    state.scale = READABLE_SCALE;
    const first = drawing.boxes.filter((box) => !box.open).reduce((a, b) => (b.y < a.y ? b : a));
    if (drawing.width * state.scale > width) middle = first.x + first.width / 2;
  }
  state.x = width / 2 - middle * state.scale;
  state.y = Math.max(20, (height - drawing.height * state.scale) / 2);
  state.fitted = Boolean(canvas.clientWidth);
  state.draw();
}

// Unfolds and moves so that what is selected is in sight.
function reveal(state) {
  const { selection, related } = store;
  if (!selection || !state.drawing || state.own) return;
  const [first] = related.nodes;
  if (first === undefined) return;
  if (selection.kind === "node" || selection.kind === "group") {
    let opened = false;
    const group = selection.kind === "group" ? state.tree.groups.get(selection.id)?.parent : groupOf(state, first);
    for (let at = group; at && at.key; at = at.parent) {
      opened = opened || !state.unfolded.has(at.key);
      state.unfolded.add(at.key);
    }
    if (opened) arranged(state);
  }
  const box = state.drawing.boxes[state.drawing.boxOf.get(first)];
  const { canvas, scale } = state;
  const [x, y] = [state.x + (box?.x || 0) * scale, state.y + (box?.y || 0) * scale];
  const away = x < 10 || y < 10 || x + box.width * scale > canvas.clientWidth - 10 || y + box.height * scale > canvas.clientHeight - 10;
  if (box && canvas.clientWidth && away) {
    state.scale = Math.max(scale, 0.7);
    state.x = canvas.clientWidth / 2 - (box.x + box.width / 2) * state.scale;
    state.y = canvas.clientHeight / 2 - (box.y + box.height / 2) * state.scale;
  }
}

function groupOf(state, node) {
  let found = null;
  for (const group of state.tree.groups.values()) if (group.children.includes(node)) found = group;
  return found;
}

function boxAt(state, x, y) {
  const [u, v] = [(x - state.x) / state.scale, (y - state.y) / state.scale];
  let found = null;
  for (const b of state.drawing?.order || []) {
    const box = state.drawing.boxes[b];
    if (u >= box.x && u <= box.x + box.width && v >= box.y && v <= box.y + box.height) found = box;
  }
  return found;
}

function choose(state, box) {
  state.own = true; // what is clicked stays where it is
  if (!box) select(null);
  else if (box.group) select({ kind: "group", id: box.group.key, label: box.group.label, ids: box.nodes });
  else select({ kind: "node", id: box.node });
  state.own = false;
}

function toggle(state, group) {
  const before = state.drawing.boxes.find((box) => box.group === group);
  if (state.unfolded.has(group.key)) state.unfolded.delete(group.key);
  else state.unfolded.add(group.key);
  arranged(state);
  const after = state.drawing.boxes.find((box) => box.group === group);
  if (before && after) {
    state.x += (before.x + before.width / 2 - after.x - after.width / 2) * state.scale;
    state.y += (before.y - after.y) * state.scale;
  }
  state.draw();
}

function follow(state) {
  const { canvas } = state;
  const pointers = new Map();
  let moved = 0, spread = 0;
  const place = (event) => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = 0;
    spread = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const [x, y] = place(event), [u, v] = pointers.get(event.pointerId);
    pointers.set(event.pointerId, [x, y]);
    moved += Math.abs(x - u) + Math.abs(y - v);
    if (pointers.size === 2) {
      const [[a, b], [c, d]] = [...pointers.values()];
      const now = Math.hypot(a - c, b - d);
      if (spread) zoom(state, now / spread, (a + c) / 2, (b + d) / 2);
      spread = now;
    } else if (moved > 4) {
      state.x += x - u;
      state.y += y - v;
      state.draw();
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    pointers.delete(event.pointerId);
    if (moved <= 4 && event.button === 0) choose(state, boxAt(state, ...place(event)));
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("dblclick", (event) => {
    const box = boxAt(state, ...place(event));
    if (box?.group) toggle(state, box.group);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(state, Math.exp(-event.deltaY / 400), ...place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => pressed(state, event));
}

function pressed(state, event) {
  const acts = {
    "+": () => zoom(state, 1.3), "=": () => zoom(state, 1.3), "-": () => zoom(state, 1 / 1.3), 0: () => fit(state),
    Enter: () => unfoldSelected(state), " ": () => unfoldSelected(state), Escape: () => select(null),
    ArrowUp: () => walk(state, -1, 0), ArrowDown: () => walk(state, 1, 0),
    ArrowLeft: () => walk(state, 0, -1), ArrowRight: () => walk(state, 0, 1),
  };
  if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  acts[event.key]();
}

function unfoldSelected(state) {
  const group = store.selection?.kind === "group" && state.tree.groups.get(store.selection.id);
  if (group) toggle(state, group);
}

// Moves the selection along an edge, or to the nearest box on the left or right.
function walk(state, down, right) {
  const { drawing } = state;
  const shut = drawing.boxes.filter((box) => !box.open);
  const now = shut.find((box) => markOf(box) === "selected");
  let next = now ? null : shut.reduce((a, b) => (b.y < a.y ? b : a));
  if (now && down) {
    const edges = drawing.edges.filter((e) => drawing.boxes[down > 0 ? e.from : e.to] === now);
    next = edges.map((e) => drawing.boxes[down > 0 ? e.to : e.from])[0];
  } else if (now) {
    const side = shut.filter((box) => (box.x - now.x) * right > 0 && Math.abs(box.y - now.y) < box.height + now.height);
    next = side.sort((a, b) => Math.abs(a.x - now.x) - Math.abs(b.x - now.x))[0];
  }
  if (!next) return;
  if (next.group) select({ kind: "group", id: next.group.key, label: next.group.label, ids: next.nodes });
  else select({ kind: "node", id: next.node });
}
