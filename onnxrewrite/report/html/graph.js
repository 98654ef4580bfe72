// One graph, folded by module: where everything stands, drawing it, moving about in it.
// dagre lays out one open group at a time, so that nothing takes longer than what is seen.  Knows nothing of rewrites.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const OPEN_AT_FIRST = 40; // boxes
const MOST_SEEN = 800; // boxes, when more and more are opened
const READABLE = 0.65; // the least scale at first
const REVEAL_AT_MOST = 200; // nodes
const MOST_EDGES = 150; // that bear on where boxes stand
const MANY_READERS = 3;
const MOST_PORTS = 24;
const [LANE, MOST_LANES] = [7, 12]; // beside the boxes, for edges that go round
const HEIGHT = 26; // of a node
const HEAD = 22; // of an open group's title
const PAD = 12;
const [NAME, OPERATOR, GROUP, TWIN, TEXT] = [0, 1, 2, 3, 4]; // of a node
const [LABEL, PARENT, PATH] = [0, 1, 2]; // of a group

function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

function shape(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  parent?.append(made);
  return made;
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const ending = (text, length) => (text.length > length ? `…${text.slice(1 - length)}` : text);

const pen = document.createElement("canvas").getContext("2d");
pen.font = "600 12px system-ui, sans-serif";
const widths = new Map();
function widthOf(text) {
  if (!widths.has(text)) widths.set(text, Math.ceil(pen.measureText(text).width));
  return widths.get(text);
}

function entry(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

// A box is a node, by its number, or a group, by -1 - its number.
class Side {
  // `drawn`: nodes, edges and groups; `act`: told of a box that was clicked, or of null for the ground.
  constructor(figure, caption, drawn, act) {
    Object.assign(this, { name: figure.id, act, ...drawn });
    this.open = new Set([0]);
    this.selected = new Set();
    this.placed = new Map();
    this.byPath = new Map(this.groups.map((group, number) => [group[PATH], number]));
    this.children = this.groups.map(() => []);
    this.groups.forEach((group, number) => number && this.children[group[PARENT]].push(-1 - number));
    this.nodes.forEach((node, number) => this.children[node[GROUP]].push(number));
    this.sort();
    this.count = this.groups.map(() => ({ nodes: 0, changed: 0, ends: 0 }));
    this.nodes.forEach((node, number) => {
      for (const group of this.around(number)) {
        this.count[group].nodes += node[OPERATOR] !== "";
        this.count[group].changed += node[OPERATOR] !== "" && node[TWIN] < 0;
        this.count[group].ends += node[OPERATOR] === "";
      }
    });
    this.lift();
    this.prepare(figure, caption);
    this.listen();
  }

  // In computing order, a group where its first node is: then what reads stands below what is read.
  sort() {
    this.first = this.groups.map(() => Infinity);
    this.nodes.forEach((_, number) => {
      for (const group of this.around(number)) this.first[group] = Math.min(this.first[group], number);
    });
    for (const boxes of this.children) boxes.sort((a, b) => this.order(a) - this.order(b));
  }

  order(box) {
    return box < 0 ? this.first[-1 - box] : box;
  }

  // The groups around a box, from the inside to the whole.
  around(box) {
    const found = [];
    let group = box < 0 ? this.groups[-1 - box][PARENT] : this.nodes[box][GROUP];
    for (; group >= 0; group = this.groups[group][PARENT]) found.push(group);
    return found;
  }

  // Each edge, told to the groups that it crosses: the innermost one around both ends knows which of its boxes it
  // connects, the others where it comes in or goes out.
  lift() {
    this.inner = this.groups.map(() => ({ edges: new Map(), ins: new Map(), outs: new Map() }));
    for (let at = 0; at < this.edges.length; at += 2) {
      const [from, to] = [this.edges[at], this.edges[at + 1]];
      const [sources, readers] = [this.around(from), this.around(to)];
      const meeting = readers.find((group) => sources.includes(group));
      let [a, b] = [from, to];
      for (const group of sources.slice(0, sources.indexOf(meeting))) {
        entry(this.inner[group].outs, from, () => ({ box: a, ends: [] })).ends.push(to);
        a = -1 - group;
      }
      for (const group of readers.slice(0, readers.indexOf(meeting))) {
        entry(
          entry(this.inner[group].ins, from, () => new Map()),
          b,
          () => [],
        ).push(to);
        b = -1 - group;
      }
      const edge = entry(this.inner[meeting].edges, `${a}>${b}`, () => ({ a, b, sources: new Map() }));
      entry(edge.sources, from, () => []).push(to);
    }
  }

  isOpen(box) {
    return box < 0 && this.open.has(-1 - box);
  }

  // The closed groups that are seen.
  closed() {
    const inside = [...this.open].flatMap((group) => this.children[group]);
    return inside.filter((box) => box < 0 && !this.isOpen(box)).map((box) => -1 - box);
  }

  // How many boxes would be seen.
  seen(groups) {
    return [...this.open, ...groups].reduce((sum, group) => sum + this.children[group].length, 0);
  }

  // Open one level more, as long as that can be drawn.
  openMore() {
    for (const group of this.closed()) if (this.seen([group]) <= MOST_SEEN) this.open.add(group);
  }

  // Open the largest groups, as long as there is room, and close again what is too wide to be read.
  openSome() {
    for (;;) {
      const fitting = this.closed().filter((group) => this.seen([group]) <= OPEN_AT_FIRST);
      if (!fitting.length) break;
      this.open.add(fitting.reduce((a, b) => (this.count[b].nodes > this.count[a].nodes ? b : a)));
    }
    const { width } = this.svg.getBoundingClientRect();
    for (let tries = 0; tries < 20 && this.place(0).width * READABLE > width; tries++) {
      const innermost = [...this.open].filter((group) => group && !this.children[group].some((box) => this.isOpen(box)));
      if (!innermost.length) break;
      this.open.delete(innermost.reduce((a, b) => (this.place(b).width > this.place(a).width ? b : a)));
    }
  }

  // Open all groups around some nodes, not too many of them; whether that changed anything.
  reveal(nodes) {
    const then = this.open.size;
    for (const node of nodes.slice(0, REVEAL_AT_MOST)) for (const group of this.around(node)) this.open.add(group);
    return this.open.size > then;
  }

  // The box that shows a node now: itself, or the outermost closed group around it.
  shown(node) {
    const closed = this.around(node)
      .reverse()
      .find((group) => !this.open.has(group));
    return closed === undefined ? node : -1 - closed;
  }

  // ------------------------------------------------------------------------------------------ where things stand

  label(box) {
    if (box < 0) return ending(this.groups[-1 - box][LABEL], 34);
    const node = this.nodes[box];
    return node[OPERATOR] ? ending(node[OPERATOR].replace(/^com\.microsoft\./, ""), 30) : ending(node[NAME], 26);
  }

  note(box) {
    const { nodes, changed, ends } = this.count[-1 - box];
    if (!nodes) return plural(ends, "value");
    return changed
      ? `${plural(nodes, "node")}, ${changed} ${this.name === "before" ? "replaced" : "new"}`
      : plural(nodes, "node");
  }

  full(box) {
    const node = this.nodes[box];
    return box < 0 ? [this.groups[-1 - box][PATH], this.note(box)] : [node[NAME], node[OPERATOR] || node[TEXT]];
  }

  size(box) {
    if (box >= 0) return { width: widthOf(this.label(box)) + 22, height: HEIGHT };
    return { width: Math.max(widthOf(this.label(box)), widthOf(this.note(box)) * 0.9) + 30, height: 42 };
  }

  // An open group and everything in it, from its own corner; as it was, if nothing inside was opened or closed.
  place(group) {
    const inside = new Map(
      this.children[group].filter((box) => this.isOpen(box)).map((box) => [box, this.place(-1 - box)]),
    );
    const known = this.placed.get(group);
    if (
      known &&
      known.inside.size === inside.size &&
      [...inside].every(([box, each]) => known.inside.get(box) === each)
    )
      return known;
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ nodesep: 14, ranksep: 24, edgesep: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const box of this.children[group]) {
      const { width, height } = inside.get(box) ?? this.size(box);
      graph.setNode(box, { width, height });
    }
    const { near, far } = this.links(group);
    for (const { start, end } of near) if (typeof start === "number") graph.setEdge(start, end);
    if (group) this.border(graph, group, near);
    dagre.layout(graph);
    const made = this.measure(graph, group, inside, far);
    this.placed.set(group, made);
    return made;
  }

  // What is connected in a group: by edges that bear on where boxes stand, and by such as go round all of it.  These
  // are those from a box that many read, to those of its readers that wait for something else anyway.
  links(group) {
    const { edges, ins } = this.inner[group];
    const found = new Map([...edges].map(([key, { a, b }]) => [key, { key, start: a, end: b, order: this.order(a) }]));
    for (const [from, readers] of ins) {
      const start = this.port(group, "in", from);
      for (const end of readers.keys()) found.set(`${start}>${end}`, { key: `${start}>${end}`, start, end, order: -1 });
    }
    const all = [...found.values()];
    const [readers, latest] = [new Map(), new Map()];
    for (const { start, end, order } of all) {
      readers.set(start, (readers.get(start) ?? 0) + 1);
      latest.set(end, Math.max(order, latest.get(end) ?? -1));
    }
    const isFar = ({ start, end, order }) => readers.get(start) > MANY_READERS && latest.get(end) > order;
    const near = all.filter((link) => !isFar(link)).sort((a, b) => this.order(a.end) - a.order - this.order(b.end) + b.order);
    return { near: near.slice(0, MOST_EDGES), far: [...near.slice(MOST_EDGES), ...all.filter(isFar)] };
  }

  // The point where what a node computes crosses the border of a group: its own, unless there are very many.
  port(group, way, from) {
    const { ins, outs } = this.inner[group];
    if (way === "in") return ins.size > MOST_PORTS ? "in" : `in ${from}`;
    return outs.size > MOST_PORTS ? `out of ${outs.get(from).box}` : `out ${from}`;
  }

  // Points on the upper and the lower border for what comes in and goes out, held there by two heavy points.
  border(graph, group, near) {
    const { ins, outs } = this.inner[group];
    const point = (name) => graph.setNode(name, { width: 1, height: 1 });
    const [first, last] = [graph.sources(), graph.sinks()];
    if (ins.size) point("top");
    for (const box of ins.size ? first : []) graph.setEdge("top", box, { weight: 0, minlen: 2 });
    for (const from of ins.keys()) {
      const port = this.port(group, "in", from);
      point(port);
      graph.setEdge("top", port, { weight: 99 });
    }
    for (const { start, end } of near) if (typeof start === "string") graph.setEdge(start, end);
    if (outs.size) point("bottom");
    for (const box of outs.size ? last : []) graph.setEdge(box, "bottom", { weight: 0, minlen: 2 });
    for (const [from, { box }] of outs) {
      const port = this.port(group, "out", from);
      point(port);
      graph.setEdge(port, "bottom", { weight: 99 });
      graph.setEdge(box, port);
    }
  }

  // What dagre found, moved so that the group's corner is at 0, 0.
  measure(graph, group, inside, far) {
    const boxes = this.children[group].map((box) => ({ box, ...graph.node(box) }));
    const ports = graph.nodes().filter((name) => /^(in|out)/.test(name));
    const edges = graph.edges().filter(({ v, w }) => v !== "top" && w !== "bottom");
    const crossed = edges.flatMap((edge) => graph.edge(edge).points.map(({ x }) => x));
    const lanes = new Map([...new Set(far.map(({ start }) => start))].map((start, at) => [start, (at % MOST_LANES) + 1]));
    const edge = Math.min(...boxes.map((b) => b.x - b.width / 2), ...crossed);
    const left = edge - LANE * Math.min(lanes.size, MOST_LANES);
    const right = Math.max(...boxes.map((b) => b.x + b.width / 2), ...crossed);
    const top = Math.min(...boxes.map((b) => b.y - b.height / 2));
    const bottom = Math.max(...boxes.map((b) => b.y + b.height / 2));
    const title = group ? widthOf(this.label(-1 - group)) + widthOf(this.note(-1 - group)) + 44 : 0;
    const width = Math.max(right - left + 2 * PAD, title);
    const [dx, dy] = [(width - right + left) / 2 - left, (group ? HEAD + PAD : PAD) - top];
    const moved = ({ x, y }) => ({ x: x + dx, y: y + dy });
    const paths = edges.map(({ v, w }) => [`${v}>${w}`, graph.edge(v, w).points.map(moved)]);
    const round = far.map(({ key, start, end }) => {
      const [from, to] = [graph.node(start), graph.node(end)];
      const [y, low] = [typeof start === "string" ? -dy : from.y + from.height / 2, to.y - to.height / 2];
      const lane = edge - LANE * lanes.get(start);
      const points = [[from.x, y], [lane, y + 14], [lane, y + 34], [lane, low - 34], [lane, low - 14], [to.x, low]];
      return [key, points.map(([x, y]) => moved({ x, y }))];
    });
    return {
      inside,
      width,
      height: bottom + dy + (group ? PAD + 4 : PAD),
      boxes: new Map(
        boxes.map((b) => [
          b.box,
          { x: b.x - b.width / 2 + dx, y: b.y - b.height / 2 + dy, width: b.width, height: b.height },
        ]),
      ),
      ports: new Map(ports.map((name) => [name, graph.node(name).x + dx])),
      paths: new Map([...paths, ...round]),
    };
  }

  // ------------------------------------------------------------------------------------------ drawing

  prepare(figure, caption) {
    this.view = { x: 0, y: 0, k: 1 };
    this.svg = shape(null, "svg", { role: "group", tabindex: 0, "aria-label": `The graph ${this.name}` });
    const arrow = {
      id: `arrow-${this.name}`,
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 7,
      markerHeight: 7,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    };
    shape(shape(shape(this.svg, "defs"), "marker", arrow), "path", { d: "M0 1L8 4L0 7z" });
    this.world = shape(this.svg, "g", { class: "world" });
    const buttons = [
      ["+", "Zoom in", () => this.zoom(1.3)],
      ["−", "Zoom out", () => this.zoom(1 / 1.3)],
      ["⤢", "Show all", () => this.fit()],
    ];
    const zoom = element("div", { class: "zoom" });
    for (const [sign, label, action] of buttons) {
      const button = element("button", { type: "button", title: label, "aria-label": `${label}, ${this.name}` }, sign);
      button.addEventListener("click", action);
      zoom.append(button);
    }
    const title = element("figcaption", {}, element("strong", {}, caption), plural(this.count[0].nodes, "node"));
    figure.append(title, this.svg, zoom);
  }

  draw() {
    this.world.replaceChildren();
    this.where = new Map();
    this.lines = [];
    this.layers = Object.fromEntries(
      ["back", "edges", "front"].map((name) => [name, shape(this.world, "g", { class: name })]),
    );
    const whole = this.place(0);
    Object.assign(this, { width: whole.width, height: whole.height });
    this.drawGroup(0, whole, { x: 0, y: 0 });
    this.mark();
  }

  drawGroup(group, placed, corner) {
    for (const [box, at] of placed.boxes) {
      const own = { ...at, x: corner.x + at.x, y: corner.y + at.y };
      const inside = placed.inside.get(box);
      this.where.set(box, own);
      inside ? this.drawOpen(box, own) : this.drawBox(box, own);
      if (inside) this.drawGroup(-1 - box, inside, own);
    }
    this.drawEdges(group, placed, corner);
  }

  drawBox(box, { x, y, width, height }) {
    const node = this.nodes[box];
    const kind = box < 0 ? "group" : !node[OPERATOR] ? "end" : node[TWIN] < 0 ? "changed" : "kept";
    const made = this.button(box, `box ${kind}`, x, y);
    shape(made, "rect", { width, height, rx: kind === "end" ? height / 2 : 5 });
    shape(made, "text", { x: width / 2, y: box < 0 ? 17 : height / 2 + 4 }, this.label(box));
    if (box >= 0) return;
    shape(made, "text", { class: "note", x: width / 2, y: 31 }, this.note(box));
    const { nodes, changed } = this.count[-1 - box];
    if (changed)
      shape(made, "rect", { class: "share", y: height - 4, width: (width * changed) / nodes, height: 4, rx: 2 });
  }

  drawOpen(box, { x, y, width, height }) {
    shape(this.layers.back, "rect", { class: "open", x, y, width, height, rx: 8 });
    const made = this.button(box, "head", x, y);
    shape(made, "rect", { width, height: HEAD, rx: 8 });
    shape(made, "text", { x: 10, y: 15 }, `− ${this.label(box)}`);
    shape(made, "text", { class: "note", x: width - 10, y: 15 }, this.note(box));
  }

  button(box, kind, x, y) {
    const [name, what] = this.full(box);
    const about = {
      class: kind,
      transform: `translate(${x},${y})`,
      tabindex: 0,
      role: "button",
      "data-box": box,
      "aria-label": `${what}: ${name}`,
    };
    const made = shape(this.layers.front, "g", about);
    if (box < 0) made.setAttribute("aria-expanded", this.isOpen(box));
    shape(made, "title", {}, `${name}\n${what}`);
    return made;
  }

  // The edges of a group; where a box is open, they begin or end at the point where they cross the border of that.
  drawEdges(group, { boxes, inside, ports, paths, height }, corner) {
    const { edges, ins, outs } = this.inner[group];
    const crossing = (way) => (box, from) => {
      if (!inside.has(box)) return null;
      const at = boxes.get(box);
      const x = at.x + inside.get(box).ports.get(this.port(-1 - box, way, from));
      return { x, y: way === "in" ? at.y : at.y + at.height };
    };
    const [enters, leaves] = [crossing("in"), crossing("out")];
    const line = (connected, key, start, end, hasArrow) => {
      const points = paths.get(key);
      const all = [start ?? points[0], ...points.slice(1, -1), end ?? points.at(-1)];
      const moved = all.map(({ x, y }) => ({ x: x + corner.x, y: y + corner.y }));
      this.line(connected, moved, hasArrow);
    };
    for (const [key, { a, b, sources }] of edges) {
      const pairs = [...sources];
      const isWhole = !inside.has(a) && !inside.has(b);
      if (isWhole) line(pairs, key, null, null, true);
      for (const pair of isWhole ? [] : pairs) line([pair], key, leaves(a, pair[0]), enters(b, pair[0]), !inside.has(b));
    }
    for (const [from, readers] of ins) {
      const port = this.port(group, "in", from);
      const start = { x: ports.get(port), y: 0 };
      for (const [box, ends] of readers) {
        line([[from, ends]], `${port}>${box}`, start, enters(box, from), !inside.has(box));
      }
    }
    for (const [from, { box, ends }] of outs) {
      const port = this.port(group, "out", from);
      line([[from, ends]], `${box}>${port}`, leaves(box, from), { x: ports.get(port), y: height }, false);
    }
  }

  // A smooth line through points; `connected` is told as pairs of a node and those that read it.
  line(connected, points, hasArrow) {
    const middle = (p, q) => ({ x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 });
    let d = `M${points[0].x} ${points[0].y}`;
    for (let at = 1; at < points.length - 1; at++) {
      const to = at === points.length - 2 ? points[at + 1] : middle(points[at], points[at + 1]);
      d += `Q${points[at].x} ${points[at].y} ${to.x} ${to.y}`;
    }
    if (points.length === 2) d += `L${points[1].x} ${points[1].y}`;
    const made = shape(this.layers.edges, "path", hasArrow ? { d, "marker-end": `url(#arrow-${this.name})` } : { d });
    this.lines.push({ made, connected });
  }

  // Show what is selected: the boxes, the edges between them, and of a single one all its edges.
  mark() {
    const boxes = new Set([...this.selected].map((node) => this.shown(node)));
    const isIn = (node) => this.selected.has(node);
    const single = ([from, ends]) => isIn(from) || ends.some(isIn);
    const inner = ([from, ends]) => isIn(from) && ends.some(isIn);
    const isChosen = this.selected.size === 1 ? single : inner;
    this.svg.classList.toggle("choosing", this.selected.size > 0);
    for (const made of this.layers.front.children) made.classList.toggle("chosen", boxes.has(Number(made.dataset.box)));
    for (const { made, connected } of this.lines) made.classList.toggle("chosen", connected.some(isChosen));
  }

  // ------------------------------------------------------------------------------------------ moving about

  moved(isSmooth) {
    this.world.classList.toggle("smooth", Boolean(isSmooth));
    this.world.style.transform = `translate(${this.view.x}px,${this.view.y}px) scale(${this.view.k})`;
  }

  zoom(factor, at) {
    const { width, height } = this.svg.getBoundingClientRect();
    const [x, y] = at ?? [width / 2, height / 2];
    const k = Math.min(3, Math.max(0.02, this.view.k * factor));
    this.view = { x: x - ((x - this.view.x) * k) / this.view.k, y: y - ((y - this.view.y) * k) / this.view.k, k };
    this.moved(!at);
  }

  shift(dx, dy) {
    Object.assign(this.view, { x: this.view.x + dx, y: this.view.y + dy });
    this.moved();
  }

  // As much as can still be read, from the top.
  begin() {
    const { width, height } = this.svg.getBoundingClientRect();
    const k = Math.min(1, Math.max(READABLE, Math.min(width / this.width, height / this.height)));
    const y = Math.max(0, (height - this.height * k) / 2);
    this.view = { x: (width - this.width * k) / 2, y, k };
    this.moved();
  }

  fit() {
    this.look({ x: 0, y: 0, width: this.width, height: this.height });
  }

  look(area) {
    const { width, height } = this.svg.getBoundingClientRect();
    const k = Math.min(1.2, Math.max(0.02, Math.min((width - 24) / area.width, (height - 24) / area.height)));
    this.view = { x: width / 2 - (area.x + area.width / 2) * k, y: height / 2 - (area.y + area.height / 2) * k, k };
    this.moved(true);
  }

  lookAt(nodes) {
    const areas = [...new Set(nodes.map((node) => this.shown(node)))].map((box) => this.where.get(box));
    if (!areas.length) return;
    const least = (of) => areas.reduce((found, area) => Math.min(found, of(area)), Infinity);
    const [x, y] = [least((a) => a.x) - 40, least((a) => a.y) - 40];
    const [right, low] = [-least((a) => -a.x - a.width) + 40, -least((a) => -a.y - a.height) + 40];
    this.look({ x, y, width: right - x, height: low - y });
  }

  // Draw anew and let a box stay where it was, while what surrounds it makes room.
  redrawAround(box) {
    const then = this.where.get(box);
    this.draw();
    const now = this.where.get(box);
    if (!now || !then) return;
    this.shift((then.x + then.width / 2 - now.x - now.width / 2) * this.view.k, (then.y - now.y) * this.view.k);
  }

  listen() {
    const fingers = new Map();
    let travelled = 0;
    const place = (event) => {
      const frame = this.svg.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    const apart = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]);
    this.svg.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, place(event));
      travelled = 0;
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const [old, now] = [fingers.get(event.pointerId), place(event)];
      const then = fingers.size === 2 ? apart([...fingers.values()]) : 0;
      fingers.set(event.pointerId, now);
      travelled += apart([old, now]);
      if (travelled > 4) this.svg.setPointerCapture(event.pointerId);
      if (fingers.size === 2) this.zoom(apart([...fingers.values()]) / (then || 1), now);
      else this.shift(now[0] - old[0], now[1] - old[1]);
    });
    for (const end of ["pointerup", "pointercancel"])
      this.svg.addEventListener(end, (event) => fingers.delete(event.pointerId));
    this.svg.addEventListener("click", (event) => {
      const made = event.target.closest("[data-box]");
      if (travelled <= 4) this.act(made && Number(made.dataset.box));
    });
    this.svg.addEventListener("keydown", (event) => this.press(event));
    this.svg.addEventListener("wheel", (event) => this.wheel(event, place(event)), { passive: false });
  }

  // The page scrolls under the wheel, unless zooming is meant.
  wheel(event, at) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY / 300), at);
  }

  press(event) {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    const made = event.target.closest("[data-box]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) this.shift(...step);
    else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") this.act(null);
    else if (made && (event.key === "Enter" || event.key === " ")) this.act(Number(made.dataset.box));
    else return;
    event.preventDefault();
  }
}
