import { el } from "./dom.js";
export function trainingView(panel) { panel.append(el("p", {}, "later")); }
