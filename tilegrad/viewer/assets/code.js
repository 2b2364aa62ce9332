// From the user's line to machine code: lines, their operations, their kernels, why they are fused, every text.

import { button, el, replace } from "./dom.js";
import { percent, plural, seconds } from "./format.js";
import { heat } from "./colours.js";
import { select, store, subscribe } from "./store.js";
import { kernelChip, linkTo } from "./inspector.js";
import { codeBlock, coloured } from "./source.js";

const MAX_CHIPS = 4;

export function codeView(panel) {
  const state = { lines: el("div", { class: "lines" }), way: el("div", { class: "way" }), kernel: 0, text: "text" };
  panel.append(el("div", { class: "split" }, state.lines, state.way));
  subscribe((what) => {
    if (what === "step" || what === "theme") {
      state.kernel = 0;
      listLines(state);
    }
    if (["step", "theme", "selection"].includes(what)) {
      followSelection(state);
      showWay(state);
    }
  });
}

function listLines(state) {
  const step = store.step;
  state.rows = [];
  if (!step) return;
  const most = Math.max(...step.lines.map((line) => line.share || 0), 1e-9);
  let file = "", before = 0;
  const parts = [];
  step.lines.forEach((line, l) => {
    if (line.file !== file) parts.push(el("h3", {}, line.file));
    else if (line.number !== before + 1) parts.push(el("div", { class: "gap" }, "⋯"));
    [file, before] = [line.file, line.number];
    const row = el("button", {
      type: "button", class: "row", on: { click: () => select({ kind: "line", id: l }) },
      title: line.text.trim() + (line.share ? `\n${percent(line.share)} of the time of all kernels` : ""),
    },
      el("span", { class: "bar", style: line.share ? { background: heat(line.share / most) } : {} }),
      el("span", { class: "number" }, String(line.number)),
      el("code", {}, coloured(line.text || " ")),
      el("span", { class: "chips" }, line.kernels.slice(0, MAX_CHIPS).map(kernelChip),
        line.kernels.length > MAX_CHIPS ? el("span", { class: "soft" }, `+${line.kernels.length - MAX_CHIPS}`) : null));
    state.rows[l] = row;
    parts.push(row);
  });
  if (!step.lines.length) parts.push(el("p", { class: "soft pad" }, "No source lines are known."));
  replace(state.lines, parts);
}

function followSelection(state) {
  const { related, selection } = store;
  state.rows?.forEach((row, l) => {
    row.classList.toggle("related", related.lines.has(l));
    row.classList.toggle("selected", selection?.kind === "line" && selection.id === l);
  });
  const [first] = related.lines;
  if (first !== undefined) state.rows[first]?.scrollIntoView({ block: "nearest" });
  const kernels = [...related.kernels];
  if (kernels.length && !kernels.includes(state.kernel)) state.kernel = Math.min(...kernels);
}

function showWay(state) {
  const step = store.step;
  if (!step) return replace(state.way, el("p", { class: "soft pad" }, "There is no compiled function here."));
  const kernel = step.kernels[state.kernel];
  const listed = store.related.kernels.size ? [...store.related.kernels].filter((k) => step.kernels[k]).sort((a, b) => a - b) : step.kernels.map((_, k) => k);
  replace(state.way,
    operations(step),
    el("h3", {}, `2 · ${store.related.kernels.size ? "its kernels" : "kernels"}`),
    el("div", { class: "picks", role: "group", "aria-label": "kernels" }, listed.map((k) =>
      button("", () => { state.kernel = k; select({ kind: "kernel", id: k }); }, { class: "pick", "aria-pressed": k === state.kernel, title: step.kernels[k].title }))),
    kernel ? kernelPart(state, kernel) : el("p", { class: "soft" }, "Nothing was compiled."),
    passes(step));
  [...state.way.querySelectorAll(".pick")].forEach((pick, n) => pick.append(kernelChip(listed[n]), step.kernels[listed[n]].title));
}

function operations(step) {
  const chosen = [...store.related.nodes].filter((n) => step.nodes[n].role === "operation").sort((a, b) => a - b);
  const head = el("h3", {}, "1 · ", chosen.length ? plural(chosen.length, "operation") : "operations");
  if (!chosen.length) return [head, el("p", { class: "soft" }, "Select a line: the operations that it recorded stand here.")];
  return [head, el("ol", { class: "operations" }, chosen.slice(0, 60).map((n) => {
    const node = step.nodes[n];
    return el("li", {}, linkTo({ kind: "node", id: n }, node.op, el("span", { class: "soft" }, ` ${node.type}${node.phase === "forward" ? "" : `, ${node.phase}`}`)));
  }), chosen.length > 60 ? el("li", { class: "soft" }, `and ${chosen.length - 60} more`) : null)];
}

function kernelPart(state, kernel) {
  const texts = [["text", "tile kernel", kernel.text], ["source", kernel.language, kernel.source], ["machine", "machine code", kernel.machine]];
  const there = texts.filter(([, , text]) => text);
  const [key, , text] = there.find(([key]) => key === state.text) || there[0] || ["text", "", ""];
  return [
    el("h3", {}, "3 · why"),
    el("ul", { class: "why" }, kernel.why.map((text) => el("li", {}, text)), kernel.hint ? el("li", { class: "hint" }, kernel.hint) : null),
    el("h3", {}, "4 · what runs ", el("span", { class: "soft" }, kernel.seconds ? `${seconds(kernel.seconds)}, ${percent(kernel.share)} of the limit` : "")),
    el("div", { class: "tools", role: "group", "aria-label": "form of the kernel" }, there.map(([k, name]) =>
      button(name, () => { state.text = k; showWay(state); }, { "aria-pressed": k === key })),
      key === "machine" && kernel.hot.length ? el("span", { class: "soft" }, plural(kernel.hot.length, "inner loop"), " marked") : null),
    codeBlock(text, key === "machine" ? kernel.hot : []),
  ];
}

function passes(step) {
  if (!step.passes.length) return [];
  return [el("h3", {}, "How the compiler got there"),
    el("ol", { class: "passes" }, step.passes.map((pass) => {
      const head = [el("b", {}, pass.name), " ", el("span", { class: pass.state === "changed" ? "state changed" : "state" }, pass.state),
        pass.state === "changed" ? el("span", { class: "soft" }, ` ${seconds(pass.seconds)}, ${pass.operations.toLocaleString("en")} ${pass.name === "fuse" || pass.name === "order" || pass.name === "program" ? "groups" : "operations"}`) : null,
        el("p", {}, pass.sentence)];
      return el("li", {}, pass.text ? lazily(head, pass.text) : head);
    }))];
}

// Details whose text is made when they are opened.
function lazily(head, text) {
  const details = el("details", {}, el("summary", {}, head));
  details.addEventListener("toggle", () => details.open && details.children.length === 1 && details.append(codeBlock(text)));
  return details;
}
