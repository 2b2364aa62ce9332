// Where the time goes: lanes or a flame, a table, and the roofline of the machine.

import { button, el, replace } from "./dom.js";
import { bytes, figure, percent, rate, seconds } from "./format.js";
import { heat, hueOf } from "./colours.js";
import { select, store, subscribe } from "./store.js";
import { kernelChip } from "./inspector.js";
import { chart } from "./chart.js";
import { flame, lanesIn } from "./lanes.js";

const MAX_ROWS = 200;

export function timeView(panel) {
  const state = { source: 0, flame: false, tools: el("div", { class: "tools" }), below: el("div", { class: "below" }) };
  panel.append(state.tools);
  state.lanes = lanesIn(panel, (label) => lookOf(state, label), (span) => select(span && selectionOf(state, span[3])));
  panel.append(state.below);
  subscribe((what) => {
    if (what === "step") {
      state.source = 0;
      beginTime(state);
    }
    if (what === "selection" || what === "theme") {
      state.lanes.draw();
      tables(state);
    }
  });
  return state;
}

// The step, if its launches were measured, then the traces.
function sources() {
  const timed = store.step?.kernels.some((kernel) => kernel.seconds);
  return [
    ...(timed || (store.step && !store.page.traces.length) ? [{ name: `${store.step.name}, launch after launch`, trace: null }] : []),
    ...store.page.traces.map((trace, number) => ({ name: trace.name, trace, number })),
  ];
}

function chosen(state) {
  return sources()[state.source] || { name: "", trace: null };
}

function beginTime(state) {
  const all = sources();
  const modes = [["lanes", false], ["flame", true]].map(([name, value]) => button(name, () => {
    state.flame = value;
    beginTime(state);
  }, { "aria-pressed": state.flame === value }));
  replace(state.tools,
    all.length > 1 ? el("select", { "aria-label": "times of", on: { change: (event) => { state.source = Number(event.target.value); beginTime(state); } } },
      all.map((source, n) => el("option", { value: n, selected: n === state.source }, source.name))) : el("span", { class: "soft" }, all[0]?.name || ""),
    el("span", { class: "group", role: "group", "aria-label": "form" }, modes),
    chosen(state).trace?.note ? el("span", { class: "soft" }, chosen(state).trace.note) : null);
  const lanes = chosen(state).trace ? chosen(state).trace.lanes : launches();
  state.lanes.show({ lanes: state.flame ? flame(lanes, sameSteps(chosen(state).trace)) : lanes });
  tables(state);
}

// All steps of a training are one: the first stands for them.
function sameSteps(trace) {
  const first = new Map(), found = (trace?.labels || []).map((label, n) => {
    const key = label.kind === "step" ? label.name.replace(/#\d+$/, "*") : n;
    if (!first.has(key)) first.set(key, n);
    return first.get(key);
  });
  return (label) => found[label] ?? label;
}

// The kernels one after the other, for as long as each takes.
function launches() {
  let at = 0;
  const spans = (store.step?.kernels || []).map((kernel, k) => {
    const length = (kernel.seconds || 0) * 1e6;
    at += length;
    return [at - length, length, 0, k];
  });
  return [{ name: store.step ? `${store.step.device || "device"}: medians of single launches` : "", spans: spans.filter((span) => span[1]) }];
}

function selectionOf(state, label) {
  const { trace, number } = chosen(state);
  return trace ? { kind: "label", id: `${number}/${label}` } : { kind: "kernel", id: label };
}

function lookOf(state, label) {
  const { trace, number } = chosen(state);
  const { related, selection } = store;
  if (!trace) {
    const mark = !selection ? "" : related.kernels.has(label) ? "related" : "faded";
    return { hue: hueOf(label), name: store.step.kernels[label].title, mark };
  }
  const { name, kind, module } = trace.labels[label];
  const mark = !selection ? "" : related.labels.has(`${number}/${label}`) ? "related" : "faded";
  return { hue: kind === "launch" ? hueOf(label) : 230, name: module ? `${module}: ${name}` : name, mark };
}

function tables(state) {
  const { trace } = chosen(state);
  const parts = trace ? [spanTable(state, trace)] : [kernelTable(), roofline()];
  replace(state.below, parts);
}

function kernelTable() {
  const { step, related, selection } = store;
  if (!step) return null;
  const whole = step.kernels.reduce((sum, k) => sum + (k.seconds || 0), 0);
  const order = step.kernels.map((_, k) => k).sort((a, b) => (step.kernels[b].seconds || 0) - (step.kernels[a].seconds || 0));
  const rows = order.slice(0, MAX_ROWS).map((k) => {
    const kernel = step.kernels[k];
    const share = whole && kernel.seconds ? kernel.seconds / whole : null;
    return row(related.kernels.has(k), selection?.kind === "kernel" && selection.id === k, { kind: "kernel", id: k }, [
      [kernelChip(k), kernel.title], seconds(kernel.seconds), bar(share), rate(kernel.bytes, kernel.seconds, "GB/s"),
      rate(kernel.operations, kernel.seconds, "GFLOP/s"), percent(kernel.share), kernel.bound]);
  });
  return table(["kernel", "time", "share", "moves", "computes", "of the limit", "bound by"], rows);
}

// A row for each label; the steps of a training are one.
function spanTable(state, trace) {
  const rows = new Map();
  const same = sameSteps(trace);
  trace.lanes.forEach((lane) => lane.spans.forEach(([, length, , label]) => {
    const sum = rows.get(same(label)) || { count: 0, total: 0 };
    sum.count++;
    sum.total += length;
    rows.set(same(label), sum);
  }));
  const order = [...rows.entries()].sort(([, a], [, b]) => b.total - a.total).slice(0, MAX_ROWS);
  const most = order.length ? order[0][1].total : 1;
  return table(["name", "is", "times", "total", "", "mean", "line"], order.map(([first, sum]) => {
    const label = trace.labels[first];
    const selection = selectionOf(state, first);
    const name = label.kind === "step" && sum.count > 1 ? label.name.replace(/#\d+$/, "*") : label.module ? `${label.module}: ${label.name}` : label.name;
    return row(store.related.labels.has(selection.id), store.selection?.id === selection.id, selection, [
      name, label.kind, String(sum.count), seconds(sum.total * 1e-6), bar(sum.total / most), seconds((sum.total / sum.count) * 1e-6), label.line]);
  }));
}

export function row(related, selected, selection, cells) {
  const act = () => select(selection);
  return el("tr", { class: [related ? "related" : "", selected ? "selected" : ""].join(" ").trim() || null, tabindex: 0, on: { click: act, keydown: (event) => event.key === "Enter" && act() } },
    cells.map((cell, n) => el(n ? "td" : "th", n ? {} : { scope: "row" }, cell)));
}

export function table(head, rows) {
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows)));
}

function bar(share) {
  if (share === null) return "";
  return el("span", { class: "share", title: percent(share) }, el("i", { style: { width: `${Math.max(2, 100 * share)}%`, background: heat(share) } }));
}

function roofline() {
  const { step, selection, related } = store;
  const timed = step?.kernels.map((kernel, k) => ({ ...kernel, k })).filter((k) => k.seconds && k.operations && k.bytes) || [];
  if (!timed.length || !step.roof.bytes || !step.roof.operations) return null;
  const ridge = step.roof.operations / step.roof.bytes;
  const intensity = timed.map((k) => k.operations / k.bytes);
  const [low, high] = [Math.min(...intensity, ridge) / 2, Math.max(...intensity, ridge) * 2];
  const under = (bandwidth) => [low, step.roof.operations / bandwidth, high].filter((x) => x >= low).map((x) => [x, Math.min(step.roof.operations, x * bandwidth)]);
  const roofs = Object.entries(step.roof).filter(([name]) => name !== "operations")
    .map(([name, bandwidth]) => ({ name: `${name === "bytes" ? "memory" : name}: ${bytes(bandwidth)}/s`, points: under(bandwidth), thin: name !== "bytes", label: name === "bytes" ? "memory" : name }));
  const whole = timed.reduce((sum, k) => sum + k.seconds, 0);
  const marks = timed.map((k) => ({
    name: `${k.title}: ${figure(k.operations / k.seconds / 1e9)} GFLOP/s`, hue: hueOf(k.k), marks: true, k: k.k,
    radius: 3 + 9 * Math.sqrt(k.seconds / whole), points: [[k.operations / k.bytes, k.operations / k.seconds]],
    faded: Boolean(selection) && !related.kernels.has(k.k), selected: related.kernels.has(k.k),
  }));
  return el("figure", { class: "card" },
    el("figcaption", {}, el("b", {}, "Roofline"), ` ${figure(step.roof.operations / 1e9)} GFLOP/s, ${bytes(step.roof.bytes)}/s from memory and more from each cache, measured on this machine. A circle is a kernel, its area its time.`),
    chart({ series: [...roofs, ...marks], xLog: true, yLog: true, xLabel: "operations per byte", yLabel: "operations per second", width: 640, height: 300, label: "Roofline", select: (s) => s.marks && select({ kind: "kernel", id: s.k }) }));
}
