// The status of a server: its models, histograms of their latency, and how they change while the page is open.

import { el, replace, svg } from "./dom.js";
import { chart, legend } from "./chart.js";
import { setDark } from "./colours.js";
import { bytes, figure, percent, plural, seconds } from "./format.js";

const POLL_MS = 1000;
const KEPT_SAMPLES = 120;
const RECENT_SAMPLES = 10;
const [WIDTH, HEIGHT, FOOT] = [420, 150, 26];
const samples = [];
let shown = null;

const keyOf = (model) => `${model.name}:${model.version}`;

function difference(now, before) {
  return before ? now.counts.map((count, n) => Math.max(0, count - before.counts[n])) : now.counts;
}

function quantile(bounds, counts, share) {
  const total = counts.reduce((a, b) => a + b, 0);
  let seen = 0;
  for (let n = 0; n < counts.length && total; n++) {
    if (counts[n] && seen + counts[n] >= share * total) {
      const low = n ? bounds[n - 1] : 0;
      const high = n < bounds.length ? bounds[n] : low;
      return low + ((high - low) * (share * total - seen)) / counts[n];
    }
    seen += counts[n];
  }
  return null;
}

function bars(bounds, counts, label, written) {
  const first = Math.max(0, counts.findIndex((count) => count) - 1);
  const last = Math.min(counts.length - 1, counts.length - [...counts].reverse().findIndex((count) => count));
  const picked = counts.slice(first, last + 1);
  const highest = Math.max(1, ...picked);
  const total = picked.reduce((a, b) => a + b, 0);
  const width = WIDTH / Math.max(picked.length, 4);
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart" });
  picked.forEach((count, n) => {
    const height = ((HEIGHT - FOOT) * count) / highest;
    const bound = first + n < bounds.length ? written(bounds[first + n]) : `> ${written(bounds[bounds.length - 1])}`;
    root.append(svg("rect", { class: "bar", x: n * width + 1, y: HEIGHT - FOOT - height, width: Math.max(1, width - 2), height },
      svg("title", {}, `up to ${bound}: ${count.toLocaleString("en")} (${percent(count / Math.max(1, total))})`)));
    if (picked.length < 9 || n % 2 === 1) root.append(svg("text", { x: n * width + width, y: HEIGHT - 10, "text-anchor": "end" }, bound));
  });
  return root;
}

function seriesOf(key) {
  const series = { rate: [], p50: [], p99: [] };
  for (let n = 1; n < samples.length; n++) {
    const [now, before] = [samples[n].models.get(key), samples[n - 1].models.get(key)];
    if (!now || !before) continue;
    const at = samples[n].now - samples[samples.length - 1].now;
    const counts = difference(now.request_seconds, before.request_seconds);
    const count = counts.reduce((a, b) => a + b, 0);
    series.rate.push([at, count / Math.max(1e-3, samples[n].now - samples[n - 1].now)]);
    for (const [name, share] of [["p50", 0.5], ["p99", 0.99]]) {
      const value = quantile(now.request_seconds.bounds, counts, share);
      if (value !== null) series[name].push([at, 1e3 * value]);
    }
  }
  return series;
}

function facts(model) {
  const count = (distribution) => distribution.counts.reduce((a, b) => a + b, 0);
  const batches = count(model.batch_rows);
  const rows = batches ? figure(model.batch_rows.sum / batches) : "–";
  const failed = Object.entries(model.statuses).filter(([status]) => status !== "200");
  return [
    ["answered", (model.statuses[200] || 0).toLocaleString("en")],
    ["refused or failed", failed.map(([status, n]) => `${status}: ${n.toLocaleString("en")}`).join(", ") || "none"],
    ["p50, p90, p99", ["0.5", "0.9", "0.99"].map((q) => seconds(model.request_seconds.quantiles[q])).join(", ")],
    ["in the queue, p99", seconds(model.queue_seconds.quantiles["0.99"])],
    ["computing a batch, p50", seconds(model.compute_seconds.quantiles["0.5"])],
    ["rows of a batch, on average", rows],
    ["waiting now, running now", `${model.waiting}, ${model.running}`],
    ["batches", model.objection ? `none: ${model.objection}` : `up to ${model.max_batch} rows`],
    ["inputs", model.inputs.join("; ")],
    ["outputs", model.outputs.join("; ")],
  ];
}

function card(model) {
  const key = keyOf(model);
  const old = samples[Math.max(0, samples.length - 1 - RECENT_SAMPLES)].models.get(key);
  const isRecent = samples.length > 1;
  const latest = (name) => difference(model[name], isRecent && old ? old[name] : null);
  const series = seriesOf(key);
  const span = isRecent ? "of the last ten seconds" : "since the start";
  return el("section", { class: "model" }, el("h2", {}, `${model.name} `, el("small", { class: "soft" }, `version ${model.version}`)),
    el("table", {}, facts(model).map(([name, value]) => el("tr", {}, el("th", {}, name), el("td", {}, value)))),
    el("div", { class: "charts" },
      el("figure", {}, el("h3", {}, `latency ${span}`), bars(model.request_seconds.bounds, latest("request_seconds"), "latency", seconds)),
      el("figure", {}, el("h3", {}, `rows of batches ${span}`), bars(model.batch_rows.bounds, latest("batch_rows"), "rows of batches", String)),
      el("figure", {}, el("h3", {}, "requests per second"), chart({ series: [{ name: "requests per second", hue: 255, points: series.rate }], height: HEIGHT, fromZero: true, xLabel: "seconds" })),
      el("figure", {}, el("h3", {}, "latency in ms"), chart({
        series: [{ name: "p50", hue: 145, points: series.p50 }, { name: "p99", hue: 25, points: series.p99 }], height: HEIGHT, fromZero: true, xLabel: "seconds",
      }), legend([{ name: "p50", hue: 145 }, { name: "p99", hue: 25 }]))));
}

function display(status) {
  samples.push({ now: status.now, models: new Map(status.models.map((model) => [keyOf(model), model])) });
  if (samples.length > KEPT_SAMPLES) samples.shift();
  const missing = status.index.filter((entry) => entry.state !== "READY" || entry.reason);
  replace(shown,
    el("header", {}, el("div", { class: "title" }, el("h1", {}, "tilegrad server ", el("small", {}, `version ${status.version}`)),
      el("div", { class: "facts" }, el("span", {}, "running for ", el("b", {}, duration(status.now - status.started))),
        el("span", {}, el("b", {}, plural(status.models.length, "model"))), el("span", {}, "bodies in memory ", el("b", {}, bytes(status.waiting_bytes)))),
      status.draining ? el("p", { class: "note" }, "The server is ending: it answers the requests that it has.") : "",
      missing.map((entry) => el("p", { class: "note" }, `${entry.name}, version ${entry.version}: ${entry.reason || "not loaded"}`)))),
    status.models.map(card));
}

function duration(time) {
  const [hours, minutes] = [Math.floor(time / 3600), Math.floor(time / 60) % 60];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${Math.floor(time % 60)} s` : `${Math.floor(time)} s`;
}

async function poll() {
  try {
    const answer = await fetch("/status");
    if (answer.ok) display(await answer.json());
  } catch {
    // the server has ended: the page keeps what it knows
  }
  setTimeout(poll, POLL_MS);
}

function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  setDark(dark);
  shown = el("main", { class: "status" });
  document.body.append(shown);
  display(JSON.parse(document.getElementById("data").textContent));
  setTimeout(poll, POLL_MS);
}

start();
