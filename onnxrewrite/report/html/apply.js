// The page: both graphs, the list of rewrites, the search; whatever is chosen in one of them is shown in all.
// Text gets in as text only, never as HTML.
"use strict";

const MOST_HITS = 60;
const LOW = 480; // pixels, of a graph that needs no more
const find = (id) => document.getElementById(id);
const data = JSON.parse(find("data").textContent);

find("explorer").hidden = false;
const before = new Side(find("before"), "Before", data.before, (box) => act(before, box));
const after = new Side(find("after"), "After", data.after, (box) => act(after, box));
const sides = [before, after];
const opposite = (side) => (side === before ? after : before);

// The rewrites that took a node in, or made it, by side and node.
const took = new Map(sides.map((side) => [side, side.nodes.map(() => [])]));
data.rewrites.forEach((each, number) => {
  for (const side of sides) for (const node of each[side.name]) took.get(side)[node].push(number);
});

// ------------------------------------------------------------------------------------------ choosing

// Open or close a group on both sides, choose a node, or nothing.
function act(side, box) {
  if (box === null) return nothing();
  if (box >= 0) return chooseNode(side, box);
  const isOpen = side.isOpen(box);
  for (const each of sides) {
    const group = each.byPath.get(side.groups[-1 - box][PATH]);
    if (group === undefined) continue;
    isOpen ? each.open.delete(group) : each.open.add(group);
    each.redrawAround(-1 - group);
  }
  side.svg.querySelector(`[data-box="${box}"]`)?.focus({ preventScroll: true });
}

// Select nodes; open what hides them and go there, on the sides named.
function select(chosen, looking) {
  for (const side of sides) {
    const nodes = chosen(side);
    side.selected = new Set(nodes);
    if (looking.includes(side) && side.reveal(nodes)) side.draw();
    side.mark();
    if (looking.includes(side)) side.lookAt(nodes);
  }
  for (const button of document.querySelectorAll("#rewrites .chosen")) button.classList.remove("chosen");
}

function nothing() {
  select(() => [], []);
  tell(element("p", { class: "faint" }, "Nothing yet: choose a rewrite or a node."));
}

const together = (numbers, side) => [...new Set(numbers.flatMap((number) => data.rewrites[number][side.name]))];

// A node and what it became, or what it was: its twin, or all that the rewrites it had a part in took and made.
function chooseNode(side, node, looking = [opposite(side)]) {
  const twin = side.nodes[node][TWIN];
  const rewrites = took.get(side)[node];
  select((each) => {
    if (each === side) return [...new Set([node, ...together(rewrites, side)])];
    return twin >= 0 ? [twin] : together(rewrites, each);
  }, looking);
  tell(...aboutNode(side, node, rewrites));
}

function goToNode(side, node) {
  if (side.reveal([node])) side.draw();
  chooseNode(side, node);
  side.lookAt([node]);
}

function chooseRewrite(number) {
  select((side) => data.rewrites[number][side.name], sides);
  tell(...aboutRewrite(number));
  document.querySelector(`[data-rewrite="${number}"]`)?.classList.add("chosen");
}

function chooseRule(rule) {
  const numbers = [...data.rewrites.keys()].filter((number) => data.rewrites[number].rule === rule);
  select((side) => together(numbers, side), sides);
  tell(element("p", {}, element("code", {}, rule), ` was applied at ${plural(numbers.length, "place")}.`));
  const list = [...find("rewrites").children].find((each) => each.dataset.rule === rule);
  if (list) list.open = true;
}

// ------------------------------------------------------------------------------------------ telling

const tell = (...content) => find("details").replaceChildren(...content);
const faint = (text) => element("span", { class: "faint" }, text);

function link(text, action, attributes = {}) {
  const made = element("button", { type: "button", class: "link", ...attributes }, text);
  made.addEventListener("click", action);
  return made;
}

function links(numbers, text) {
  const list = element("ul");
  for (const number of numbers) {
    const action = () => chooseRewrite(number);
    list.append(element("li", {}, link(text(data.rewrites[number]), action, { "data-rewrite": number })));
  }
  return list;
}

function aboutNode(side, node, rewrites) {
  const [name, operator, group, twin, text] = side.nodes[node];
  const gone = rewrites.length ? "replaced" : "gone: nothing needs it any more";
  const state = twin >= 0 ? "on both sides" : side === after ? "new" : gone;
  const path = side.groups[group][PATH];
  return [
    element("p", {}, element("strong", {}, operator || text), ` ${name}`, faint(`, ${state}`)),
    ...(path ? [element("p", { class: "faint" }, `in ${path}`)] : []),
    ...(operator ? [element("pre", {}, text)] : []),
    ...(rewrites.length ? [element("p", {}, side === after ? "Made by" : "Taken in by")] : []),
    ...(rewrites.length ? [links(rewrites, ({ rule, value }) => `${rule} at ${value}`)] : []),
  ];
}

function aboutRewrite(number) {
  const { rule, stage, value, text, after: made } = data.rewrites[number];
  const shown = data.texts[text];
  const none = "Nothing of it stands in the result: it only left something out, or was replaced in turn.";
  return [
    element("p", {}, element("strong", {}, rule), ` at ${value}`, faint(`, ${stage} stage`)),
    element("p", {}, `By itself: ${shown.check}.`),
    element("pre", { class: "gone" }, shown.before.join("\n")),
    element("pre", { class: "made" }, shown.after.join("\n")),
    ...(made.length ? [] : [element("p", { class: "faint" }, none)]),
  ];
}

// The rewrites by rule; the places of a rule are written when its list is opened.
function listRewrites() {
  const rules = new Map();
  for (const stage of ["raise", "lower", "canonicalize"]) {
    data.rewrites.forEach((each, number) => each.stage === stage && entry(rules, each.rule, () => []).push(number));
  }
  for (const [rule, numbers] of rules) {
    const title = element("summary", {}, element("code", {}, rule), faint(` ${numbers.length}`));
    const list = element("details", { "data-rule": rule }, title);
    list.addEventListener(
      "toggle",
      () => list.querySelector("ul") ?? list.append(links(numbers, ({ value }) => value)),
    );
    find("rewrites").append(list);
  }
  if (!rules.size) find("rewrites").append(element("p", { class: "faint" }, "None."));
}

// ------------------------------------------------------------------------------------------ finding

function searchable(side, [name, operator, group, , text]) {
  return `${side.groups[group][PATH]} ${name} ${operator || text}`.toLowerCase();
}
const terms = new Map(sides.map((side) => [side, side.nodes.map((node) => searchable(side, node))]));

// Nodes with all the words in module, name and operator; what is on both sides is found once.
function hits(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const isHit = (side, node) => words.every((word) => terms.get(side)[node].includes(word));
  const once = (side, node) => side === before || side.nodes[node][TWIN] < 0;
  return sides.flatMap((side) =>
    [...side.nodes.keys()].filter((node) => once(side, node) && isHit(side, node)).map((node) => ({ side, node })),
  );
}

class Search {
  constructor(box, list) {
    Object.assign(this, { box, list, found: [], at: -1 });
    for (const event of ["input", "focus"]) box.addEventListener(event, () => this.search());
    box.addEventListener("blur", () => this.show(false));
    box.addEventListener("keydown", (event) => this.press(event));
  }

  search() {
    this.found = hits(this.box.value);
    this.at = -1;
    this.list.replaceChildren(...this.found.slice(0, MOST_HITS).map((hit, index) => this.item(hit, index)));
    const rest = this.found.length - MOST_HITS;
    const said = rest > 0 ? `and ${rest} more` : this.found.length ? "" : "No node has such a name or operator.";
    if (said) this.list.append(element("li", { class: "faint" }, said));
    this.show(Boolean(this.box.value.trim()));
  }

  item({ side, node }, index) {
    const [name, operator, , twin, text] = side.nodes[node];
    const where = faint(twin >= 0 ? "" : side.name);
    const about = { role: "option", id: `hit-${index}`, "aria-selected": false };
    const made = element("li", about, element("strong", {}, operator || text), ` ${name} `, where);
    made.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.go(index);
    });
    return made;
  }

  go(index) {
    this.show(false);
    goToNode(this.found[index].side, this.found[index].node);
  }

  move(step) {
    const count = Math.min(this.found.length, MOST_HITS);
    if (!count) return;
    this.at = this.at < 0 && step < 0 ? count - 1 : (this.at + step + count) % count;
    [...this.list.children].forEach(
      (item, index) => item.role && item.setAttribute("aria-selected", index === this.at),
    );
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
    this.box.setAttribute("aria-activedescendant", `hit-${this.at}`);
  }

  press(event) {
    if (event.key === "ArrowDown") this.move(1);
    else if (event.key === "ArrowUp") this.move(-1);
    else if (event.key === "Enter" && this.found.length) this.go(Math.max(this.at, 0));
    else if (event.key === "Escape") this.show(false);
    else return;
    event.preventDefault();
  }

  show(isShown) {
    this.list.hidden = !isShown;
    this.box.setAttribute("aria-expanded", isShown);
    if (!isShown) this.box.removeAttribute("aria-activedescendant");
  }
}

// ------------------------------------------------------------------------------------------ the page

function redraw(open) {
  for (const side of sides) {
    side.open = open(side);
    side.draw();
    side.begin();
  }
}

// What is opened on one side is open on the other, too.
function openAlike(opening) {
  sides.forEach(opening);
  const paths = new Set(sides.flatMap((side) => [...side.open].map((group) => side.groups[group][PATH])));
  redraw((side) => new Set([...side.groups.keys()].filter((group) => paths.has(side.groups[group][PATH]))));
}

function start() {
  listRewrites();
  openAlike((side) => side.openSome());
  const height = 24 + Math.max(...sides.map((side) => side.height));
  for (const side of sides) if (height < LOW) side.svg.style.height = `${Math.max(height, LOW / 2)}px`;
  sides.forEach((side) => side.begin());
  new Search(find("search"), find("hits"));
  find("collapse").addEventListener("click", () => redraw(() => new Set([0])));
  find("expand").addEventListener("click", () => openAlike((side) => side.openMore()));
  const goes = (button, action) =>
    button.addEventListener("click", () => {
      action();
      find("graph").scrollIntoView();
    });
  for (const button of document.querySelectorAll("button[data-rule]"))
    goes(button, () => chooseRule(button.dataset.rule));
  for (const button of document.querySelectorAll("button[data-node]")) {
    goes(button, () => goToNode(button.dataset.side === "after" ? after : before, Number(button.dataset.node)));
  }
  let width = before.svg.clientWidth;
  addEventListener("resize", () => {
    if (before.svg.clientWidth !== width) sides.forEach((side) => side.begin());
    width = before.svg.clientWidth;
  });
  document.documentElement.dataset.drawn = Math.round(performance.now()); // milliseconds
}

start();
