// Trainings: curves of several runs over each other, live while they go on; norms by layer, pictures, confusion.

import { el, onceAFrame, replace } from "./dom.js";
import { figure, plural } from "./format.js";
import { heat, runHue, stroke, tint } from "./colours.js";
import { select, store, subscribe, within } from "./store.js";
import { chart, legend } from "./chart.js";

const GRADIENT = /grad/i, RATE = /(^|[/_. ])(lr|learning[ _-]?rate)([/_. ]|$)/i, SPEED = /throughput|per[ _]?sec|samples\/s|images\/s|it\/s/i;
const MAX_LAYERS = 14; // curves of one chart of norms
const HUE_OF_LAYER = 47;

export function trainingView(panel) {
  const state = { hidden: new Set(), smooth: 0.6, axis: "step", tools: el("div", { class: "tools" }), cards: el("div", { class: "cards" }) };
  state.draw = onceAFrame(() => drawTraining(state));
  panel.append(state.tools, state.cards);
  subscribe((what) => {
    if (["step", "runs", "theme"].includes(what)) state.draw();
    if (what === "selection") state.draw();
    if (what === "tab" && store.tab === "training") state.draw();
  });
  return state;
}

function shownRuns(state) {
  return store.page.runs.map((run, number) => ({ ...run, hue: runHue(number) })).filter((run) => !state.hidden.has(run.name));
}

function drawTraining(state) {
  if (store.tab !== "training") return;
  const all = store.page.runs;
  const runs = shownRuns(state);
  replace(state.tools,
    all.map((run, number) => el("label", { class: "run" },
      el("input", { type: "checkbox", checked: !state.hidden.has(run.name), on: { change: (event) => {
        if (event.target.checked) state.hidden.delete(run.name);
        else state.hidden.add(run.name);
        state.draw();
      } } }), el("span", { class: "dash", style: { background: stroke(runHue(number)) } }), run.name)),
    el("label", {}, el("span", { class: "soft" }, "smooth "), el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: state.smooth, "aria-label": "smoothing", on: { input: (event) => { state.smooth = Number(event.target.value); state.draw(); } } })),
    el("label", {}, el("span", { class: "soft" }, "over "), el("select", { "aria-label": "axis", on: { change: (event) => { state.axis = event.target.value; state.draw(); } } },
      ["step", "minutes"].map((name) => el("option", { value: name, selected: name === state.axis }, name)))),
    store.page.live ? el("span", { class: "live" }, "live") : null);
  const cards = [...headCards(state, runs), ...curveCards(state, runs), ...normCards(state, runs), ...matrixCards(runs), ...pictureCards(runs), ...textCards(runs)];
  const top = state.cards.scrollTop;
  replace(state.cards, cards.length ? cards : el("p", { class: "without" }, all.length ? "No run is shown." : "Waiting for the first event of the training."));
  state.cards.scrollTop = top;
}

function tagsOf(runs, part) {
  return [...new Set(runs.flatMap((run) => Object.keys(run[part])))];
}

function axisOf(state, points) {
  const start = points.find((p) => p[1] !== null)?.[1];
  if (state.axis === "step" || start === undefined) return points.map((p) => [p[0], p[2]]);
  return points.map((p) => [(p[1] - start) / 60, p[2]]);
}

// An average that forgets, without its pull towards the beginning.
function smoothed(points, weight) {
  let sum = 0, mass = 0;
  return points.map(([x, y]) => {
    if (y === null) return [x, null];
    sum = weight * sum + (1 - weight) * y;
    mass = weight * mass + (1 - weight);
    return [x, sum / mass];
  });
}

function curves(state, runs, part, tag) {
  return runs.filter((run) => run[part][tag]).flatMap((run) => {
    const points = axisOf(state, run[part][tag]);
    const smooth = points.length > 20 && state.smooth > 0;
    return [...(smooth ? [{ name: run.name, hue: run.hue, points, thin: true, faded: true }] : []),
      { name: run.name, hue: run.hue, points: smooth ? smoothed(points, state.smooth) : points }];
  });
}

function card(title, about, ...content) {
  return el("figure", { class: "card" }, el("figcaption", {}, el("b", {}, title), about ? ` ${about}` : null), content);
}

// What is looked at first: loss, learning rate, throughput.
function order(tag) {
  return [/loss/i, /acc|score|f1|bleu|perplex/i, RATE, SPEED].findIndex((pattern) => pattern.test(tag)) + 1 || 9;
}

function curveCards(state, runs) {
  const tags = tagsOf(runs, "curves").filter((tag) => !GRADIENT.test(tag)).sort((a, b) => order(a) - order(b));
  return tags.map((tag) => {
    const last = runs.filter((run) => run.curves[tag]).map((run) => figure(run.curves[tag].at(-1)[2]));
    return card(tag, `now ${last.join(", ")}`, chart({ series: curves(state, runs, "curves", tag), xLabel: state.axis, label: tag }));
  });
}

// Steps per second, from the wall times of the longest curve.
function headCards(state, runs) {
  const series = runs.map((run) => {
    const longest = Object.values(run.curves).reduce((a, b) => (b.length > a.length ? b : a), []);
    const timed = longest.filter((p) => p[1] !== null);
    const every = Math.max(1, Math.floor(timed.length / 60));
    const points = [];
    for (let n = every; n < timed.length; n += every) {
      const [a, b] = [timed[n - every], timed[n]];
      if (b[1] > a[1] && b[0] > a[0]) points.push([b[0], (b[0] - a[0]) / (b[1] - a[1])]);
    }
    return { name: run.name, hue: run.hue, points };
  }).filter((s) => s.points.length > 1);
  if (!series.length) return [];
  return [card("throughput", `steps per second, now ${series.map((s) => figure(s.points.at(-1)[1])).join(", ")}`, chart({ series, xLabel: "step", fromZero: true, label: "throughput" }))];
}

function layerOf(tag) {
  return tag.replace(/^.*?grad(ient)?s?(_?norms?)?[/_.: ]+(of )?/i, "").replace(/[/_.]?(grad(ient)?s?|norms?)$/i, "").replaceAll("/", ".") || tag;
}

// Norms of gradients by layer on one chart for each run; a layer is selected as its parameter.
function normCards(state, runs) {
  const cards = [];
  for (const run of runs) {
    const found = [...Object.entries(run.norms), ...Object.entries(run.curves).filter(([tag]) => GRADIENT.test(tag))];
    for (const [title, own] of [["gradient norms by layer", found.filter(([tag]) => GRADIENT.test(tag))], ["norms of other tensors", found.filter(([tag]) => !GRADIENT.test(tag))]]) {
      if (!own.length) continue;
      const shown = own.slice(0, MAX_LAYERS).map(([tag, points], n) => ({ name: layerOf(tag), hue: (n * HUE_OF_LAYER + 20) % 360, points: axisOf(state, points), faded: fadedLayer(layerOf(tag)) }));
      const left = own.length > MAX_LAYERS ? `, the first ${MAX_LAYERS} of ${own.length}` : "";
      cards.push(card(title, `${run.name}${left}`, chart({ series: shown, xLabel: state.axis, yLog: true, label: title }),
        legend(shown.map((s) => ({ name: s.name, hue: s.hue, act: parameterOf(s.name) })))));
    }
  }
  return cards;
}

function parameterOf(name) {
  const n = store.step ? store.step.nodes.findIndex((node) => node.name === name && node.role === "parameter") : -1;
  return n < 0 ? null : () => select({ kind: "node", id: n });
}

function fadedLayer(name) {
  const { selection, related, step } = store;
  if (!selection || !step) return false;
  const known = step.nodes.some((node) => node.name === name);
  if (!known) return false;
  return ![...related.nodes].some((n) => step.nodes[n].name === name || (step.nodes[n].module && within(name, step.nodes[n].module)));
}

function matrixCards(runs) {
  return runs.flatMap((run) => Object.values(grouped(run.matrices)).map((same) => {
    const matrix = same.at(-1);
    const rows = matrix.rows.map((own, r) => {
      const sum = own.reduce((a, b) => a + b, 0) || 1;
      return el("tr", {}, el("th", { scope: "row" }, matrix.labels[r]), own.map((count, c) =>
        el("td", { class: r === c ? "right" : null, style: count ? { background: r === c ? tint(150) : heat(Math.min(1, 0.15 + (2 * count) / sum)) } : {}, title: `${figure(count)} of ${figure(sum)}: ${matrix.labels[r]} taken for ${matrix.labels[c]}` }, count ? figure(count).replace(/\.?0+$/, (zeros) => (zeros.startsWith(".") ? "" : zeros)) : "")));
    });
    const right = matrix.rows.reduce((sum, own, r) => sum + own[r], 0), whole = matrix.rows.flat().reduce((a, b) => a + b, 0) || 1;
    return card(matrix.tag, `${run.name}, step ${matrix.step}: ${((100 * right) / whole).toFixed(1)} % right. Rows: what it is; columns: what it was taken for.`,
      el("div", { class: "scroll" }, el("table", { class: "confusion" }, el("tbody", {}, el("tr", {}, el("th", {}), matrix.labels.map((label) => el("th", { scope: "col" }, label))), rows))));
  }));
}

function grouped(matrices) {
  const found = {};
  for (const matrix of matrices) (found[matrix.tag] ||= []).push(matrix);
  return found;
}

function pictureCards(runs) {
  return runs.filter((run) => run.pictures.length).map((run) => card("pictures", `${run.name}, ${plural(run.pictures.length, "picture")}`,
    el("ul", { class: "pictures" }, run.pictures.map((picture) =>
      el("li", {}, el("img", { src: `data:image/png;base64,${picture.png}`, alt: picture.tag, style: { width: `${widthOf(picture)}px` } }), el("span", {}, picture.tag), el("span", { class: "soft" }, `step ${picture.step}`))))));
}

// Small pictures are enlarged: the width of a PNG file stands in its bytes 16 to 19.
function widthOf(picture) {
  const head = atob(picture.png.slice(0, 32));
  const width = [16, 17, 18, 19].reduce((sum, n) => sum * 256 + head.charCodeAt(n), 0) || 1;
  return width <= 32 ? 84 : Math.max(width, Math.floor(280 / width) * width);
}

function textCards(runs) {
  return runs.flatMap((run) => Object.entries(run.texts).map(([tag, text]) => card(tag, run.name, el("pre", { class: "quote" }, text))));
}
