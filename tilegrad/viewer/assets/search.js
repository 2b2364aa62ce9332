// One search over operations, parameters, kernels, lines and spans.

import { el, replace } from "./dom.js";
import { goTo, select, store } from "./store.js";

const MAX_FOUND = 40;
const TABS = { node: "graph", kernel: "code", line: "code", owner: "memory", label: "time" };

export function searchBox() {
  const list = el("ul", { class: "found", role: "listbox", id: "found", hidden: true });
  const input = el("input", {
    type: "search", placeholder: "Search  /", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
    role: "combobox", "aria-controls": "found", "aria-expanded": "false",
  });
  let at = -1, hits = [];
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  };
  const mark = () => [...list.children].forEach((item, n) => {
    item.setAttribute("aria-selected", n === at);
    if (n === at) item.scrollIntoView({ block: "nearest" });
  });
  const take = (hit) => {
    if (!hit) return;
    close();
    if (store.tab !== TABS[hit.kind] && !(store.tab === "graph" && hit.kind !== "label")) goTo(TABS[hit.kind]);
    select({ kind: hit.kind, id: hit.id });
  };
  const look = () => {
    hits = search(input.value);
    at = hits.length ? 0 : -1;
    replace(list, hits.length
      ? hits.map((hit) => el("li", { role: "option", on: { pointerdown: (event) => { event.preventDefault(); take(hit); } } },
          el("span", { class: "kind" }, hit.what), hit.text))
      : [el("li", { class: "soft" }, "nothing is called so")]);
    list.hidden = !input.value.trim();
    input.setAttribute("aria-expanded", String(!list.hidden));
    mark();
  };
  input.addEventListener("input", look);
  input.addEventListener("focus", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + hits.length) % Math.max(1, hits.length);
      mark();
    } else if (event.key === "Enter") take(hits[at]);
    else if (event.key === "Escape") input.blur();
    else return;
    event.preventDefault();
  });
  return { box: el("div", { class: "search" }, input, list), input };
}

// Whatever has all words of the query in its text, in the order of the views.
function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const found = [];
  const add = (kind, id, what, text, more = "") => {
    const whole = `${text} ${more} ${what}`.toLowerCase();
    if (found.length < MAX_FOUND && words.every((word) => whole.includes(word))) found.push({ kind, id, what, text });
  };
  const { step, page } = store;
  if (step) {
    step.kernels.forEach((kernel, k) => add("kernel", k, "kernel", `${k} ${kernel.title}`, kernel.name));
    step.nodes.forEach((node, n) => node.role !== "operation" && add("node", n, node.role, node.name, node.type));
    step.lines.forEach((line, l) => add("line", l, "line", `${line.number} ${line.text.trim()}`, line.file));
    step.nodes.forEach((node, n) => node.role === "operation" && add("node", n, "operation", `${node.op} ${node.type}`, `${node.module} ${node.name} ${node.phase}`));
    step.memory.owners.forEach((owner, o) => owner.node === null && add("owner", o, "memory", owner.name, owner.kind));
  }
  page.traces.forEach((trace, t) => trace.labels.forEach((label, n) => add("label", `${t}/${n}`, label.kind || "span", label.name, `${label.line} ${label.module}`)));
  return found;
}
