// What is shown and what is selected, and what a selection means in every view.

export const store = { page: null, step: null, number: 0, tab: "graph", selection: null, related: nothing() };
const listeners = new Set();

function nothing() {
  return { nodes: new Set(), kernels: new Set(), lines: new Set(), owners: new Set(), labels: new Set() };
}

export function subscribe(listener) {
  listeners.add(listener);
}

function tell(what) {
  for (const listener of listeners) listener(what);
}

export function open(page) {
  store.page = page;
  show(0);
}

export function show(number) {
  store.number = number;
  store.step = store.page.steps[number] || null;
  store.selection = null;
  store.related = nothing();
  tell("step");
}

// New runs of a training that goes on.
export function update(runs, notes) {
  store.page.runs = runs;
  store.page.notes = notes;
  tell("runs");
}

export function select(selection) {
  store.selection = selection;
  store.related = selection ? relatedTo(selection) : nothing();
  tell("selection");
}

export function tellTheme() {
  tell("theme");
}

export function goTo(tab) {
  store.tab = tab;
  tell("tab");
}

export function within(module, path) {
  return module === path || module.startsWith(`${path}.`);
}

function relatedTo({ kind, id, ids }) {
  const found = nothing();
  const step = store.step;
  if (kind === "label") found.labels.add(id);
  if (!step) return found;
  const add = (name, values) => values.forEach((value) => value !== null && value !== undefined && found[name].add(value));
  if (kind === "node") add("nodes", [id]);
  if (kind === "group") add("nodes", ids);
  if (kind === "kernel") add("kernels", [id]);
  if (kind === "line") add("lines", [id]);
  if (kind === "owner") {
    const owner = step.memory.owners[id];
    add("owners", [id]);
    add("nodes", [owner.node]);
    add("kernels", [owner.kernel]);
    add("lines", [owner.line]);
  }
  if (kind === "label") spread(found, step, store.page.traces);
  if (kind === "kernel") {
    step.nodes.forEach((node, n) => node.kernels.includes(id) && found.nodes.add(n));
    add("lines", step.kernels[id].lines);
  }
  if (kind === "line") {
    step.nodes.forEach((node, n) => node.line === id && found.nodes.add(n));
    add("kernels", step.lines[id].kernels);
  }
  if (kind === "node" || kind === "group") {
    for (const n of found.nodes) {
      add("kernels", step.nodes[n].kernels);
      add("lines", [step.nodes[n].line]);
    }
  }
  step.memory.owners.forEach((owner, n) => {
    const mine = owner.node !== null ? found.nodes.has(owner.node) : found.kernels.has(owner.kernel);
    if (kind !== "owner" && mine) found.owners.add(n);
  });
  store.page.traces.forEach((trace, t) =>
    trace.labels.forEach((label, n) => matches(label, found, step) && found.labels.add(`${t}/${n}`)),
  );
  return found;
}

// A span of a profile belongs to the kernels of its name that compute for its line.
function matches(label, found, step) {
  return label.kind === "launch" && [...found.kernels].some((k) => sameKernel(label, step.kernels[k], step));
}

function sameKernel(label, kernel, step) {
  if (label.name !== kernel.name) return false;
  const named = kernel.lines.map((l) => `${step.lines[l].file}:${step.lines[l].number}`);
  return !label.line || named.some((line) => label.line === line || label.line.startsWith(`${line} `));
}

function spread(found, step, traces) {
  const [id] = found.labels;
  const [t, n] = id.split("/").map(Number);
  const label = traces[t].labels[n];
  step.kernels.forEach((kernel, k) => {
    if (label.kind === "launch" && sameKernel(label, kernel, step)) {
      found.kernels.add(k);
      kernel.lines.forEach((l) => found.lines.add(l));
      step.nodes.forEach((node, n) => node.kernels.includes(k) && found.nodes.add(n));
    }
  });
}
