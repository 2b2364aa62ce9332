// Live bytes over the launches, or over the time of a profile; the owners of the chosen moment.

import { canvasIn, el, onceAFrame, replace } from "./dom.js";
import { bytes, percent } from "./format.js";
import { inks, kindHue, stroke } from "./colours.js";
import { select, store, subscribe } from "./store.js";
import { chart, legend } from "./chart.js";
import { row, table } from "./time.js";

const ORDER = ["input", "constant", "parameter", "buffer", "optimizer state", "output", "gradient", "activation", "temporary"];
const MAX_ROWS_SHOWN = 100, EDGE = 8, SCALE_WIDTH = 64;

export function memoryView(panel) {
  const state = { moment: 0, head: el("div", { class: "tools" }), below: el("div", { class: "below one" }), stage: el("div", { class: "stage memory" }), counters: el("div", { class: "below" }) };
  panel.append(state.head, state.stage, state.below, state.counters);
  state.canvas = canvasIn(state.stage, "Live bytes. Arrows choose a launch.", () => state.draw());
  state.draw = onceAFrame(() => paintMemory(state));
  chooseMoments(state);
  subscribe((what) => {
    if (what === "step") beginMemory(state);
    if (what === "selection" || what === "theme") {
      state.draw();
      showOwners(state);
    }
  });
  return state;
}

function beginMemory(state) {
  const memory = store.step?.memory;
  state.stage.hidden = state.below.hidden = !memory?.live.length;
  replace(state.counters, store.page.traces.flatMap((trace) => trace.counters.map((counter) => el("figure", { class: "card" },
    el("figcaption", {}, el("b", {}, counter.name), ` at most ${bytes(counter.points.reduce((most, p) => Math.max(most, p[1]), 0))}`),
    chart({ series: [{ name: counter.name, hue: 145, points: counter.points.map(([at, value]) => [at / 1e3, value]) }], xLabel: "ms", fromZero: true })))));
  if (!memory?.live.length) return replace(state.head);
  state.kinds = ORDER.filter((kind) => memory.owners.some((owner) => owner.kind === kind));
  state.stacks = stacks(memory, state.kinds);
  state.moment = memory.live.indexOf(Math.max(...memory.live));
  state.peak = state.moment;
  state.draw();
  showOwners(state);
}

// For each kind the live bytes at each moment.
function stacks(memory, kinds) {
  const found = new Map(kinds.map((kind) => [kind, new Float64Array(memory.live.length + 1)]));
  for (const owner of memory.owners) {
    const own = found.get(owner.kind);
    if (!own) continue;
    own[owner.first] += owner.bytes;
    own[owner.last + 1] -= owner.bytes;
  }
  for (const own of found.values()) for (let n = 1; n < own.length; n++) own[n] += own[n - 1];
  return found;
}

function paintMemory(state) {
  const { canvas, stacks: all } = state;
  const memory = store.step?.memory;
  const context = canvas.getContext("2d");
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  context.clearRect(0, 0, width, height);
  if (!memory?.live.length || !all || !width) return;
  const ink = inks();
  const most = Math.max(...memory.live), count = memory.live.length;
  const [wide, high] = [width - SCALE_WIDTH - EDGE, height - 3 * EDGE];
  context.font = "11px system-ui, sans-serif";
  for (const share of [0, 0.5, 1]) {
    const y = height - EDGE - share * high;
    context.fillStyle = ink.line;
    context.fillRect(SCALE_WIDTH, y, wide, 1);
    context.fillStyle = ink.soft;
    context.textAlign = "right";
    context.fillText(bytes(share * most), SCALE_WIDTH - 6, y + 4);
  }
  for (let x = 0, before = -1; x < Math.min(wide, count); x++) {
    const n = count <= wide ? x : Math.floor((x * count) / wide);
    if (n === before) continue;
    before = n;
    const from = SCALE_WIDTH + (n * wide) / count, size = Math.max(1, wide / count - (wide / count > 6 ? 1 : 0));
    let y = height - EDGE;
    for (const [kind, own] of all) {
      const tall = (own[n] / most) * high;
      context.globalAlpha = n === state.moment ? 1 : 0.72;
      context.fillStyle = stroke(kindHue(kind));
      context.fillRect(from, y - tall, size, tall);
      y -= tall;
    }
  }
  context.globalAlpha = 1;
  paintChosen(state, context, ink, memory, wide, height);
}

function paintChosen(state, context, ink, memory, wide, height) {
  const each = wide / memory.live.length;
  for (const o of store.related.owners) {
    const owner = memory.owners[o];
    context.fillStyle = ink.mark;
    context.fillRect(SCALE_WIDTH + owner.first * each, height - EDGE + 1, (owner.last - owner.first + 1) * each, 4);
  }
  context.strokeStyle = ink.accent;
  context.lineWidth = 2;
  context.strokeRect(SCALE_WIDTH + state.moment * each, EDGE, Math.max(2, each), height - 2 * EDGE);
}

function chooseMoments(state) {
  const go = (moment) => {
    state.moment = Math.max(0, Math.min(store.step.memory.live.length - 1, moment));
    state.draw();
    showOwners(state);
  };
  state.canvas.addEventListener("click", (event) => {
    const wide = state.canvas.clientWidth - SCALE_WIDTH - EDGE;
    go(Math.floor(((event.offsetX - SCALE_WIDTH) / wide) * store.step.memory.live.length));
  });
  state.canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter") select({ kind: "kernel", id: state.moment });
    else if (event.key === "Home") go(state.peak);
    else if (by) go(state.moment + by);
    else return;
    event.preventDefault();
  });
}

function showOwners(state) {
  const memory = store.step?.memory;
  if (!memory?.live.length || !state.stacks) return;
  const { moment } = state;
  const live = memory.live[moment];
  replace(state.head,
    el("span", {}, el("b", {}, bytes(live)), moment === state.peak ? " at the peak, during " : " during ",
      el("button", { type: "button", class: "link inline", on: { click: () => select({ kind: "kernel", id: moment }) } }, `${moment} ${memory.moments[moment]}`)),
    legend(state.kinds.map((kind) => ({ name: `${kind} ${bytes(state.stacks.get(kind)[moment])}`, hue: kindHue(kind) }))));
  const there = memory.owners.map((owner, o) => [owner, o]).filter(([owner]) => owner.first <= moment && moment <= owner.last);
  there.sort(([a], [b]) => b.bytes - a.bytes);
  const rows = there.slice(0, MAX_ROWS_SHOWN).map(([owner, o]) => row(
    store.related.owners.has(o), store.selection?.kind === "owner" && store.selection.id === o, { kind: "owner", id: o },
    [owner.name, bytes(owner.bytes), percent(owner.bytes / live), el("span", {}, el("i", { class: "dot", style: { background: stroke(kindHue(owner.kind)) } }), owner.kind), owner.type,
     owner.line === null ? "" : `${store.step.lines[owner.line].file}:${store.step.lines[owner.line].number}`,
     owner.last - owner.first >= memory.live.length - 1 ? "always" : `${owner.first} – ${owner.last}`]));
  const rest = there.slice(MAX_ROWS_SHOWN).reduce((sum, [owner]) => sum + owner.bytes, 0);
  replace(state.below, table(["owner", "size", "share", "is", "type", "line", "in use"], rows),
    rest ? el("p", { class: "soft pad" }, `and ${bytes(rest)} in ${there.length - MAX_ROWS_SHOWN} others`) : null);
}
