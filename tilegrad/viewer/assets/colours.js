// One scale of colours for all views: a hue for each kernel, a heat for time, a tint for each kind of memory.

const HUE_STEP = 137.5; // neighbours differ strongly
const KINDS = {
  parameter: 250, gradient: 25, "optimizer state": 310, buffer: 200, activation: 145, temporary: 80, input: 220,
  output: 170, constant: 220,
};

let dark = false;

export function setDark(value) {
  dark = value;
}

export function hueOf(kernel) {
  return (245 + kernel * HUE_STEP) % 360;
}

export function tint(hue) {
  return dark ? `oklch(0.36 0.06 ${hue})` : `oklch(0.93 0.04 ${hue})`;
}

export function stroke(hue) {
  return dark ? `oklch(0.72 0.11 ${hue})` : `oklch(0.6 0.12 ${hue})`;
}

// From quiet to hot; `share` is from 0 to 1.
export function heat(share) {
  const t = Math.sqrt(Math.min(1, Math.max(0, share)));
  const hue = 95 - 70 * t;
  return dark ? `oklch(${0.3 + 0.3 * t} ${0.02 + 0.14 * t} ${hue})` : `oklch(${0.97 - 0.3 * t} ${0.02 + 0.14 * t} ${hue})`;
}

export function kindHue(kind) {
  return KINDS[kind] ?? 220;
}

export function runHue(number) {
  return (255 + number * 95) % 360;
}

// The colours of the style sheet, for canvases.
export function inks() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    ground: get("--ground"), sheet: get("--sheet"), ink: get("--ink"), soft: get("--soft"), line: get("--line"),
    accent: get("--accent"), mark: get("--mark"),
  };
}
