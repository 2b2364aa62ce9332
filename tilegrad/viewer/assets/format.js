// Numbers as people write them.

const DASH = "–";

function inUnits(value, units) {
  const [unit, size] = units.find(([, size]) => Math.abs(value) >= size) || units[units.length - 1];
  return `${figure(value / size)} ${unit}`;
}

export function figure(value) {
  if (!Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size >= 1 ? value.toFixed(2) : String(+value.toPrecision(3));
}

export function seconds(value) {
  if (value === null || value === undefined) return DASH;
  return inUnits(value, [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]);
}

export function bytes(value) {
  return inUnits(value, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]]);
}

export function percent(share) {
  if (share === null || share === undefined) return DASH;
  return share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(100 * share)} %`;
}

export function rate(amount, time, unit) {
  return time ? `${figure(amount / time / 1e9)} ${unit}` : DASH;
}

export function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

export function shortened(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
