// Source with its words coloured; long texts stay few elements.

import { el } from "./dom.js";

const TOKENS = /(#[^\n]*|\/\/[^\n]*)|("[^"\n]*"|'[^'\n]*')|\b(def|for|in|if|else|while|return|range|import|from|with|as|class|lambda|not|and|or|let|store|group|over|along|graph|const|void|float|int|unsigned|__global__|__shared__)\b|\b((?:tl|tg)\.\w+)|((?<![\w.])-?\d[\d.]*(?:e[-+]?\d+)?\b)/g;
const CLASSES = ["", "comment", "string", "keyword", "call", "number"];
const MAX_COLOURED = 30000; // characters; a longer text is not coloured

export function coloured(text) {
  if (text.length > MAX_COLOURED) return [text];
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    if (match.index > end) parts.push(text.slice(end, match.index));
    const kind = CLASSES[match.findIndex((group, n) => n && group !== undefined)];
    parts.push(el("span", { class: `t-${kind}` }, match[0]));
    end = match.index + match[0].length;
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
}

// A block of code; `hot` has the first and the last line of each part to mark.
export function codeBlock(text, hot = []) {
  if (!hot.length) return el("pre", { class: "listing", tabindex: 0 }, coloured(text));
  const lines = text.split("\n");
  const parts = [];
  let at = 0;
  for (const [first, last] of hot) {
    if (first < at) continue;
    parts.push(`${lines.slice(at, first).join("\n")}\n`);
    parts.push(el("span", { class: "hot", title: "an inner loop" }, `${lines.slice(first, last + 1).join("\n")}\n`));
    at = last + 1;
  }
  parts.push(lines.slice(at).join("\n"));
  return el("pre", { class: "listing", tabindex: 0 }, parts);
}
