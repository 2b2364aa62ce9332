// The page: heading, views, inspector, keys, theme, and news from the server.

import { button, el, replace } from "./dom.js";
import { setDark } from "./colours.js";
import { goTo, open, select, show, store, subscribe, tellTheme, update } from "./store.js";
import { graphView } from "./graph.js";
import { codeView } from "./code.js";
import { timeView } from "./time.js";
import { memoryView } from "./memory.js";
import { trainingView } from "./training.js";
import { inspector } from "./inspector.js";
import { searchBox } from "./search.js";

const POLL_MS = 1000;
const VIEWS = [
  ["graph", "Graph", graphView, (page) => page.steps.length, "No compiled function is here: tilegrad.explain(step, x).save(\"step.html\") writes one."],
  ["code", "Code", codeView, (page) => page.steps.length, "No compiled function is here: tilegrad.explain(step, x).save(\"step.html\") writes one."],
  ["time", "Time", timeView, (page) => page.steps.length || page.traces.length, "No times are here: prof.export_chrome_trace(\"trace.json\") writes them."],
  ["memory", "Memory", memoryView, (page) => page.steps.length || page.traces.some((t) => t.counters.length), "No memory is here: it comes with a compiled function, or with profile(profile_memory=True)."],
  ["training", "Training", trainingView, (page) => page.runs.length || page.live, "No training is here: tilegrad.tensorboard.SummaryWriter writes one."],
];

function start() {
  const page = JSON.parse(document.getElementById("data").textContent);
  theme();
  const views = el("main", { class: "views" });
  const aside = el("aside", { class: "inspector", "aria-live": "polite", "aria-label": "selection" });
  const { box, input } = searchBox();
  const heading = el("div", { class: "title" });
  const tabs = el("div", { class: "tabs", role: "tablist" });
  document.body.append(
    el("div", { class: page.steps.length || page.traces.length ? "app" : "app lean" },
      el("header", {}, heading, box, button("◐", flip, { class: "theme", title: "light or dark (t)", "aria-label": "light or dark" })),
      el("nav", {}, tabs), views, aside));
  const panels = {};
  const handles = {};
  VIEWS.forEach(([key, name, make, has, without], n) => {
    const there = has(page);
    const panel = el("section", { id: `view-${key}`, class: `view ${key}`, role: "tabpanel", "aria-label": name, hidden: true });
    tabs.append(button("", () => goTo(key), { role: "tab", id: `tab-${key}`, "aria-controls": `view-${key}`, class: there ? "" : "bare", title: `${name} (${n + 1})` }));
    replace(tabs.lastChild, el("kbd", {}, String(n + 1)), name);
    panels[key] = panel;
    views.append(panel);
    if (there) handles[key] = make(panel);
    else panel.append(el("p", { class: "without" }, without));
  });
  inspector(aside);
  subscribe((what) => {
    if (what === "step") head(heading);
    if (what === "tab") {
      for (const [key, panel] of Object.entries(panels)) {
        panel.hidden = key !== store.tab;
        document.getElementById(`tab-${key}`).setAttribute("aria-selected", key === store.tab);
      }
      document.body.dataset.view = store.tab;
      history.replaceState(null, "", `#${store.tab}`);
    }
  });
  open(page);
  const first = VIEWS.find(([, , , has]) => has(page)) || VIEWS[0];
  const asked = location.hash.slice(1);
  goTo(panels[asked] ? asked : first[0]);
  document.addEventListener("keydown", (event) => keys(event, input));
  window.tilegrad = { store, handles, select, goTo };
  if (page.live) setTimeout(poll, POLL_MS);
}

function head(heading) {
  const { page, step } = store;
  const facts = step ? step.facts.map(([name, value]) => el("li", {}, el("b", {}, value), " ", name)) : [];
  const choice = page.steps.length > 1
    ? el("select", { "aria-label": "function", on: { change: (event) => show(Number(event.target.value)) } },
        page.steps.map((s, n) => el("option", { value: n, selected: n === store.number }, s.name)))
    : null;
  replace(heading,
    el("h1", {}, choice || (step ? step.name : page.title), step?.device ? el("small", {}, ` on ${step.device}`) : null),
    el("ul", { class: "facts" }, facts),
    [step?.note, ...page.notes].filter(Boolean).map((note) => el("p", { class: "note" }, note)));
}

function keys(event, input) {
  if (event.target.matches?.("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) goTo(view[0]);
  else if (event.key === "/") input.focus();
  else if (event.key === "t") flip();
  else if (event.key === "Escape") select(null);
  else return;
  event.preventDefault();
}

// -- light and dark: as the system says, until the reader chooses

function theme() {
  const asked = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try {
    kept = localStorage.getItem("tilegrad-theme");
  } catch {
    // a page from a file may keep nothing
  }
  wear(kept ? kept === "dark" : asked.matches);
  asked.addEventListener("change", () => wear(asked.matches));
}

function wear(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  setDark(dark);
  tellTheme();
}

function flip() {
  const dark = document.documentElement.dataset.theme !== "dark";
  wear(dark);
  try {
    localStorage.setItem("tilegrad-theme", dark ? "dark" : "light");
  } catch {
    // then it lasts as long as the page
  }
}

// -- news of a training that goes on

let version = "";

async function poll() {
  try {
    const answer = await fetch(`runs?seen=${encodeURIComponent(version)}`);
    if (answer.status === 200) {
      const news = await answer.json();
      version = news.version;
      update(news.runs, news.notes);
    }
    document.body.classList.remove("lost");
  } catch {
    document.body.classList.add("lost");
  }
  setTimeout(poll, POLL_MS);
}

function damaged(problem) {
  const words = `The data of this page is damaged: ${problem.message}`;
  const title = document.querySelector(".title");
  if (title) title.append(el("p", { class: "note" }, words)); // what can be shown stays
  else replace(document.body, el("p", { class: "without" }, words));
}

addEventListener("error", (event) => event.error && damaged(event.error), { once: true });
start();
