import { el } from "./dom.js";
export function timeView(panel) { panel.append(el("p", {}, "later")); }
