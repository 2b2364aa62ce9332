// The graph as a tree of modules, and a layered drawing of what is unfolded.

const FOLD_FROM = 3; // values of one line that fold into a group
const GAP_X = 18, GAP_Y = 34, PAD = 16, HEAD = 28, THREAD = 6;
const SWEEPS = 6, RELAXATIONS = 10, MAX_THREADS = 4000;

// The tree: a group has a key, a label, a list of children (groups and numbers of nodes), and all nodes in it.
export function treeOf(step) {
  const root = group("", "", null);
  const groups = new Map([["", root]]);
  const enter = (parent, key, label) => {
    if (!groups.has(key)) {
      const made = group(key, label, parent);
      groups.set(key, made);
      parent.children.push(made);
    }
    return groups.get(key);
  };
  const perLine = new Map();
  step.nodes.forEach((node) => {
    const key = `${node.phase}:${node.line}`;
    if (!node.module && node.line !== null) perLine.set(key, (perLine.get(key) || 0) + 1);
  });
  const hollow = hollowModules(step);
  const states = step.nodes.filter((node) => node.role === "optimizer state").length;
  step.nodes.forEach((node, n) => {
    let parent = root;
    const of = node.phase === "backward" ? "gradient of " : node.phase === "update" ? "update of " : "";
    if (node.module && node.role !== "optimizer state") {
      const parts = node.module.split(".");
      let named = "";
      parts.forEach((part, depth) => {
        const path = parts.slice(0, depth + 1).join(".");
        if (hollow.has(`${node.phase}:${path}`)) return;
        parent = enter(parent, `${node.phase}:module:${path}`, named ? path.slice(named.length + 1) : of + path);
        named = path;
      });
    } else if (node.line !== null && perLine.get(`${node.phase}:${node.line}`) >= FOLD_FROM) {
      const line = step.lines[node.line];
      parent = enter(root, `${node.phase}:line:${node.line}`, (node.phase === "backward" ? of : "") + callOf(line.text));
    } else if (node.role === "optimizer state" && states >= FOLD_FROM) {
      parent = enter(root, "optimizer state", "optimizer state");
    }
    parent.children.push(n);
    for (let at = parent; at; at = at.parent) at.nodes.push(n);
  });
  return { root, groups };
}

// Lists of modules that compute nothing themselves, and whose parts feed each other through other modules: as groups
// they would close a cycle.
function hollowModules(step) {
  const members = new Map(), own = new Set();
  step.nodes.forEach((node, n) => {
    if (!node.module) return;
    if (node.role === "operation") own.add(`${node.phase}:${node.module}`);
    const parts = node.module.split(".");
    parts.forEach((_, depth) => {
      const key = `${node.phase}:${parts.slice(0, depth + 1).join(".")}`;
      if (!members.has(key)) members.set(key, new Set());
      members.get(key).add(n);
    });
  });
  const readers = step.nodes.map(() => []);
  step.nodes.forEach((node, n) => node.reads.forEach((r) => readers[r].push(n)));
  const returns = (inside) => {
    const stack = [...inside].flatMap((n) => readers[n].filter((m) => !inside.has(m)));
    const seen = new Set(stack);
    while (stack.length) {
      for (const m of readers[stack.pop()]) {
        if (inside.has(m)) return true;
        if (!seen.has(m)) stack.push(m) && seen.add(m);
      }
    }
    return false;
  };
  return new Set([...members.keys()].filter((key) => !own.has(key) && returns(members.get(key))));
}

function group(key, label, parent) {
  return { key, label, parent, children: [], nodes: [] };
}

// The call in a line of source, as a name: "loss = F.cross_entropy(net(x), y)" is "cross_entropy".
function callOf(text) {
  const bare = text.trim().replace(/^return\s+/, "").replace(/^[\w.,\s[\]"']+[-+*/@]?=(?!=)\s*/, "");
  const name = /^([\w.]+)\(/.exec(bare);
  return name ? name[1].split(".").slice(-2).join(".").replace(/^(functional|nn|F|tg)\./, "") : bare.slice(0, 32) || "line";
}

// Boxes with absolute places, outer ones first, and edges as lists of points.
export function arrange(step, tree, unfolded, measure) {
  const boxes = [];
  const whole = inside(step, tree.root, unfolded, measure);
  place(whole, 0, 0, boxes, 0);
  const boxOf = new Map(); // of a node, the box that stands for it
  boxes.forEach((box, b) => !box.open && box.nodes.forEach((n) => boxOf.set(n, b)));
  return { boxes, boxOf, edges: routed(step, boxes, boxOf, whole), width: whole.width, height: whole.height };
}

function inside(step, from, unfolded, measure) {
  const items = from.children.map((child) => {
    if (typeof child === "number") return { node: child, nodes: [child], ...measure(child) };
    if (!unfolded.has(child.key)) return { group: child, nodes: child.nodes, ...measure(child) };
    const inner = inside(step, child, unfolded, measure);
    const title = measure(child).width;
    return { group: child, nodes: child.nodes, inner, width: Math.max(inner.width, title) + 2 * PAD, height: inner.height + PAD + HEAD };
  });
  const owner = new Map();
  items.forEach((item, i) => item.nodes.forEach((n) => owner.set(n, i)));
  const edges = new Set();
  from.nodes.forEach((n) =>
    step.nodes[n].reads.forEach((r) => {
      const [a, b] = [owner.get(r), owner.get(n)];
      if (a !== undefined && a !== b) edges.add(a * items.length + b);
    }),
  );
  return { items, ...layered(items, [...edges].map((e) => [Math.floor(e / items.length), e % items.length])) };
}

function place(inner, x, y, boxes, depth) {
  for (const item of inner.items) {
    const box = { ...item, x: x + item.x, y: y + item.y, depth, open: Boolean(item.inner), number: boxes.length };
    item.box = box;
    boxes.push(box);
    if (item.inner) place(item.inner, box.x + PAD + (item.width - 2 * PAD - item.inner.width) / 2, box.y + HEAD, boxes, depth + 1);
  }
  inner.left = x;
  inner.top = y;
}

// Edges between the boxes of nodes; through the threads of the level where both ends stand beside each other.
function routed(step, boxes, boxOf, whole) {
  const threads = new Map();
  const collect = (inner) => {
    for (const [key, points] of inner.threads) {
      const [a, b] = key.split(">").map((i) => inner.items[i].box.number);
      threads.set(`${a}>${b}`, points.map(([x, y]) => [x + inner.left, y + inner.top]));
    }
    inner.items.forEach((item) => item.inner && collect(item.inner));
  };
  collect(whole);
  const found = new Map();
  step.nodes.forEach((node, n) =>
    node.reads.forEach((r) => {
      const [a, b] = [boxOf.get(r), boxOf.get(n)];
      if (a === undefined || b === undefined || a === b) return;
      const key = `${a}>${b}`;
      if (!found.has(key)) found.set(key, { from: a, to: b, points: threads.get(key) || [] });
    }),
  );
  return [...found.values()];
}

// Layers from top to bottom: each item below all that it reads, few crossings, straight long edges.
function layered(items, edges) {
  const count = items.length;
  if (!edges.length && count > 3) return grid(items);
  const [below, above] = neighbours(count, edges);
  const layer = layers(count, below, above);
  const cells = items.map((item, i) => ({ i, width: item.width, layer: layer[i] }));
  const links = [];
  const threads = new Map();
  for (const [a, b] of edges) {
    if (layer[b] <= layer[a]) continue; // closes a cycle
    let last = a;
    if (layer[b] - layer[a] > 1 && cells.length - count < MAX_THREADS) {
      const chain = [];
      for (let at = layer[a] + 1; at < layer[b]; at++) {
        links.push([last, cells.length]);
        last = cells.length;
        chain.push(last);
        cells.push({ i: -1, width: THREAD, layer: at });
      }
      threads.set(`${a}>${b}`, chain);
    }
    links.push([last, b]);
  }
  const rows = ordered(cells, links);
  spreadOut(cells, rows, links);
  const tops = [];
  let y = 0;
  for (const row of rows) {
    const height = Math.max(0, ...row.filter((c) => c < count).map((c) => items[c].height));
    tops.push([y, height]);
    y += height + GAP_Y;
  }
  const left = Math.min(0, ...cells.map((c) => c.x));
  const right = Math.max(1, ...cells.map((c) => c.x + c.width));
  items.forEach((item, i) => {
    const [top, height] = tops[layer[i]];
    item.x = cells[i].x - left;
    item.y = top + (height - item.height) / 2;
  });
  const routes = new Map();
  for (const [key, chain] of threads) {
    routes.set(key, chain.flatMap((c) => {
      const [x, [top, height]] = [cells[c].x - left + THREAD / 2, tops[cells[c].layer]];
      return [[x, top], [x, top + height]];
    }));
  }
  return { width: right - left, height: Math.max(1, y - GAP_Y), threads: routes };
}

// Items that do not read each other, in rows.
function grid(items) {
  const columns = Math.ceil(Math.sqrt(items.length / 2));
  let y = 0, width = 0;
  for (let n = 0; n < items.length; n += columns) {
    let x = 0;
    const row = items.slice(n, n + columns);
    for (const item of row) {
      [item.x, item.y] = [x, y];
      x += item.width + GAP_X;
    }
    width = Math.max(width, x - GAP_X);
    y += Math.max(...row.map((item) => item.height)) + GAP_X;
  }
  return { width, height: y - GAP_X, threads: new Map() };
}

function neighbours(count, edges) {
  const below = Array.from({ length: count }, () => []), above = Array.from({ length: count }, () => []);
  for (const [a, b] of edges) {
    below[a].push(b);
    above[b].push(a);
  }
  return [below, above];
}

// The longest path from above, without edges that close a cycle; what reads nothing moves down to its first reader.
function layers(count, below, above) {
  const state = new Uint8Array(count), layer = new Int32Array(count), order = [];
  for (let start = 0; start < count; start++) {
    const stack = state[start] ? [] : [[start, 0]];
    while (stack.length) {
      const top = stack[stack.length - 1];
      if (!state[top[0]]) state[top[0]] = 1;
      const next = below[top[0]][top[1]++];
      if (next === undefined) {
        state[top[0]] = 2;
        order.push(top[0]);
        stack.pop();
      } else if (!state[next]) stack.push([next, 0]);
    }
  }
  const rank = new Int32Array(count);
  order.reverse().forEach((n, at) => (rank[n] = at));
  for (const n of order) for (const m of below[n]) if (rank[m] > rank[n]) layer[m] = Math.max(layer[m], layer[n] + 1);
  for (let n = 0; n < count; n++) {
    const readers = below[n].filter((m) => rank[m] > rank[n]).map((m) => layer[m]);
    if (!above[n].length && readers.length) layer[n] = Math.min(...readers) - 1;
  }
  return layer;
}

function ordered(cells, links) {
  const rows = [];
  cells.forEach((cell, c) => (rows[cell.layer] ||= []).push(c));
  for (let r = 0; r < rows.length; r++) rows[r] ||= [];
  const [below, above] = neighbours(cells.length, links);
  const at = new Float64Array(cells.length);
  rows.forEach((row) => row.forEach((c, n) => (at[c] = n)));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const near = down ? above : below;
    for (let k = 0; k < rows.length; k++) {
      const row = rows[down ? k : rows.length - 1 - k];
      const middle = new Map(row.map((c) => [c, near[c].length ? near[c].reduce((s, m) => s + at[m], 0) / near[c].length : at[c]]));
      row.sort((a, b) => middle.get(a) - middle.get(b));
      row.forEach((c, n) => (at[c] = n));
    }
  }
  return rows;
}

// Positions from left to right: near the middle of the neighbours, without overlaps, in the order of the rows.
function spreadOut(cells, rows, links) {
  const [below, above] = neighbours(cells.length, links);
  for (const row of rows) {
    let x = 0;
    const width = row.reduce((s, c) => s + cells[c].width + GAP_X, -GAP_X);
    for (const c of row) {
      cells[c].x = x - width / 2;
      x += cells[c].width + GAP_X;
    }
  }
  const middle = (c) => cells[c].x + cells[c].width / 2;
  for (let turn = 0; turn < RELAXATIONS; turn++) {
    const down = turn % 2 === 0;
    for (let k = 0; k < rows.length; k++) {
      const row = rows[down ? k : rows.length - 1 - k];
      const wanted = row.map((c) => {
        const near = turn === RELAXATIONS - 1 ? [...above[c], ...below[c]] : down ? above[c] : below[c];
        return near.length ? near.reduce((s, m) => s + middle(m), 0) / near.length - cells[c].width / 2 : cells[c].x;
      });
      settle(row, wanted, cells);
    }
  }
}

// The places nearest to the wanted ones that do not overlap: blocks of touching cells stand at their mean.
function settle(row, wanted, cells) {
  const blocks = [];
  let offset = 0;
  row.forEach((c, n) => {
    let block = { sum: wanted[n] - offset, count: 1 };
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].count > block.sum / block.count) {
      const before = blocks.pop();
      block = { sum: block.sum + before.sum, count: block.count + before.count };
    }
    blocks.push(block);
    offset += cells[c].width + GAP_X;
  });
  let n = 0;
  offset = 0;
  for (const block of blocks) {
    for (let k = 0; k < block.count; k++, n++) {
      cells[row[n]].x = block.sum / block.count + offset;
      offset += cells[row[n]].width + GAP_X;
    }
  }
}
