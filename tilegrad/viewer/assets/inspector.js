// What is selected, in words, with what belongs to it in the other views.

import { button, el, replace } from "./dom.js";
import { bytes, percent, plural, seconds } from "./format.js";
import { hueOf, stroke } from "./colours.js";
import { goTo, select, store, subscribe } from "./store.js";

const MAX_LISTED = 12;

export function inspector(aside) {
  const draw = () => {
    const { selection } = store;
    aside.classList.toggle("empty", !selection);
    if (!selection) return replace(aside, intro());
    replace(aside, el("div", { class: "head" }, el("h2", {}, ...titleOf(selection)),
      button("×", () => select(null), { class: "close", "aria-label": "select nothing" })),
      facts(selection), links());
  };
  subscribe((what) => (what === "selection" || what === "step" || what === "theme") && draw());
}

function intro() {
  if (!store.step) return el("p", { class: "soft" }, "Select a span or a curve to see what it is.");
  return [
    el("h2", {}, "Nothing is selected"),
    el("p", { class: "soft" }, "Select an operation, a line, a kernel or a block of memory: what belongs to it is marked in all views."),
    el("dl", { class: "keys" },
      ...[["1 – 5", "the views"], ["/", "search"], ["arrows", "along the graph"], ["Enter", "fold, unfold"], ["Esc", "select nothing"], ["t", "light, dark"]]
        .flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
  ];
}

function titleOf({ kind, id, label }) {
  const step = store.step;
  switch (kind) {
    case "node": {
      const node = step.nodes[id];
      return [node.role === "operation" ? node.op : node.name];
    }
    case "kernel":
      return [kernelChip(id), step.kernels[id].title];
    case "line":
      return [`${step.lines[id].file}:${step.lines[id].number}`];
    case "owner":
      return [step.memory.owners[id].name];
    case "label": {
      const [t, n] = id.split("/").map(Number);
      return [store.page.traces[t].labels[n].name];
    }
  }
  return [label];
}

function facts({ kind, id, ids }) {
  const step = store.step;
  const rows = [];
  const add = (name, value) => value !== "" && value !== null && value !== undefined && rows.push(el("dt", {}, name), el("dd", {}, value));
  const also = [];
  if (kind === "node") {
    const node = step.nodes[id];
    add("type", node.type);
    add("size", bytes(node.bytes));
    add("is", node.role === "operation" ? node.phase : node.role);
    add("module", node.module);
    add("stored as", node.role === "operation" ? node.name || "nothing: it stays within its kernel" : "");
  } else if (kind === "kernel") {
    const kernel = step.kernels[id];
    add("time", seconds(kernel.seconds));
    add("of the limit", kernel.share === null ? "" : `${percent(kernel.share)}${kernel.bound ? `, bound by ${kernel.bound}` : ""}`);
    add("moves", bytes(kernel.bytes));
    add("computes", plural(kernel.operations, "operation"));
    add("called", kernel.name);
    if (kernel.hint) also.push(el("p", { class: "hint" }, kernel.hint));
    also.push(...kernel.why.map((text) => el("p", {}, text)));
  } else if (kind === "line") {
    const line = step.lines[id];
    also.push(el("pre", { class: "quote" }, line.text.trim()));
    add("of the time", percent(line.share));
    add("kernels", line.kernels.length ? String(line.kernels.length) : "none");
  } else if (kind === "owner") {
    const owner = step.memory.owners[id];
    add("size", bytes(owner.bytes));
    add("is", owner.kind);
    add("type", owner.type);
    add("in use", owner.first === 0 && owner.last >= step.memory.live.length - 1 ? "during the whole step" : `from kernel ${owner.first} to ${owner.last}`);
  } else if (kind === "group") {
    add("operations", String(ids.filter((n) => step.nodes[n].role === "operation").length));
    const own = [...store.related.kernels];
    const spent = own.reduce((sum, k) => sum + (step.kernels[k]?.seconds || 0), 0);
    add("kernels", String(own.length));
    add("their time", spent ? seconds(spent) : "");
  } else if (kind === "label") {
    spanFacts(id, add);
  }
  const first = kind === "line" ? also.splice(0, 1) : [];
  return [...first, el("dl", {}, rows), ...also];
}

function spanFacts(id, add) {
  const [t, n] = id.split("/").map(Number);
  const trace = store.page.traces[t];
  const label = trace.labels[n];
  const own = trace.lanes.flatMap((lane) => lane.spans.filter((span) => span[3] === n));
  const total = own.reduce((sum, span) => sum + span[1], 0) * 1e-6;
  add("is", label.kind);
  add("line", label.line);
  add("module", label.module);
  add("times", own.length.toLocaleString("en"));
  add("total", seconds(total));
  add("mean", own.length ? seconds(total / own.length) : "");
}

// The lines, kernels and operations that belong to the selection.
function links() {
  const step = store.step;
  const { related, selection } = store;
  if (!step) return [];
  const part = (title, items, tab) =>
    items.length
      ? [el("h3", {}, title, " ", button("show", () => goTo(tab), { class: "quiet" })),
         el("ul", { class: "links" }, items.slice(0, MAX_LISTED).map((item) => el("li", {}, item)),
            items.length > MAX_LISTED ? el("li", { class: "soft" }, `and ${items.length - MAX_LISTED} more`) : null)]
      : [];
  const lines = selection.kind === "line" ? [] : [...related.lines].sort((a, b) => a - b).map((l) =>
    linkTo({ kind: "line", id: l }, el("span", { class: "soft" }, `${step.lines[l].number} `), step.lines[l].text.trim()));
  const kernels = selection.kind === "kernel" ? [] : [...related.kernels].filter((k) => step.kernels[k]).sort((a, b) => a - b).map((k) =>
    linkTo({ kind: "kernel", id: k }, kernelChip(k), step.kernels[k].title));
  const nodes = selection.kind === "node" ? [] : [...related.nodes].sort((a, b) => a - b).map((n) =>
    linkTo({ kind: "node", id: n }, step.nodes[n].role === "operation" ? step.nodes[n].op : step.nodes[n].name,
      el("span", { class: "soft" }, ` ${step.nodes[n].type}`)));
  const owners = selection.kind === "owner" ? [] : [...related.owners].map((o) =>
    linkTo({ kind: "owner", id: o }, step.memory.owners[o].name, el("span", { class: "soft" }, ` ${bytes(step.memory.owners[o].bytes)}`)));
  return [part("Lines", lines, "code"), part("Kernels", kernels, "time"), part("Operations", nodes, "graph"), part("Memory", owners, "memory")];
}

export function kernelChip(k) {
  return el("span", { class: "chip", style: { "--edge": stroke(hueOf(k)) } }, String(k));
}

export function linkTo(selection, ...content) {
  return el("button", { type: "button", class: "link", on: { click: () => select(selection) } }, ...content);
}
