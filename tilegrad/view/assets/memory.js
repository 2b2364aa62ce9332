import { el } from "./dom.js";
export function memoryView(panel) { panel.append(el("p", {}, "later")); }
