// Elements from data. Texts become text nodes: no text is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, options = {}, ...children) {
  return filled(document.createElement(tag), options, children);
}

export function svg(tag, options = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), options, children);
}

function filled(element, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
}

export function button(label, run, options = {}) {
  return el("button", { type: "button", on: { click: run }, ...options }, label);
}

// A canvas as large as its container, in device pixels; `draw` is called after each change of size.
export function canvasIn(container, label, draw) {
  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": label });
  container.append(canvas);
  const fit = () => {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [container.clientWidth, container.clientHeight];
    if (!width || !height) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  };
  new ResizeObserver(fit).observe(container);
  return canvas;
}

// Calls `run` once in the next frame, however often it was asked to.
export function onceAFrame(run) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      run();
    });
  };
}
