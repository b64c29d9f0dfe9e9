"use strict";
// State: for each group and rule the cuts of its lower and upper bound (-1: none), and whether the rule is on. Counts of one rule are exact;
// those of rules together are exact where the bounds are as given or those of a level, else estimated from the sample.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const {rules, groups, levels} = data;
const MISSING = 255, GIVEN = 0;
const byId = id => document.getElementById(id);
const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const ranks = bytesOf(data.sample.ranks);
const sampleGroups = bytesOf(data.sample.groups);
const units = new Float32Array(bytesOf(data.sample.units).buffer);
const sampled = groups.map(() => 0);
for (const group of sampleGroups) sampled[group]++;
const stepNames = ["as given", ...levels.map(level => level.replace(/_/g, " "))];
const givenStep = data.level ? levels.indexOf(data.level) + 1 : 0;

const stateOf = (group, rule, step) => ({lower: groups[group].rules[rule].lower[step], upper: groups[group].rules[rule].upper[step], on: true});
const state = groups.map((_, group) => rules.map((_, rule) => stateOf(group, rule, GIVEN)));
let shown = groups.length > 1 ? -1 : 0;  // the group whose sliders are shown; -1: all

// ---------------------------------------------------------------- how things are written

const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const integer = value => whole.format(Math.round(value));
const percent = (part, of) => {
  if (!of) return "\u2013";
  const share = 100 * part / of;
  if (share > 0 && share < 0.05) return "< 0.1 %";
  if (share < 100 && share >= 99.95) return "> 99.9 %";
  return (share === 0 || share === 100 ? share.toFixed(0) : share.toFixed(1)) + " %";
};
const scaled = (value, units, step) => {
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) { value /= step; at++; }
  return (at && value < 99.95 ? value.toPrecision(3) : whole.format(Math.round(value))) + units[at];
};
const bytes = value => scaled(value, [" B", " kB", " MB", " GB", " TB", " PB"], 1000);
const tokens = value => scaled(value, ["", " thousand", " million", " billion", " trillion"], 1000) + " tokens";
const text = value => data.knowsText ? `${bytes(value)}, ${tokens(value * data.tokensPerByte)}` : "";
const real = value => {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return whole.format(value);
  const size = Math.abs(value);
  return size >= 1000 && size < 1e9 ? value.toLocaleString("en-US", {maximumFractionDigits: 1}) : String(Number(value.toPrecision(4)));
};
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) name in made && name !== "list" ? made[name] = value : made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const drawn = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const below = value => {  // the next smaller double
  const view = new DataView(new ArrayBuffer(8));
  if (value === 0) return -Number.MIN_VALUE;
  view.setFloat64(0, value);
  view.setBigInt64(0, view.getBigInt64(0) + (value > 0 ? -1n : 1n));
  return view.getFloat64(0);
};
// A cut as a bound. An upper bound is inclusive, and its cut lies just above it; a lower bound at such a cut excludes the value.
const lowerValue = (rule, cuts, cut) => rules[rule].whole ? Math.ceil(cuts.cuts[cut]) : cuts.cuts[cut];
const upperValue = (rule, cuts, cut) => rules[rule].whole && !cuts.upperCuts.includes(cut) ? Math.ceil(cuts.cuts[cut]) - 1 : below(cuts.cuts[cut]);
const lowerText = (rule, cuts, cut) => cut < 0 ? "no lower bound"
  : cuts.upperCuts.includes(cut) && !rules[rule].whole ? "> " + real(below(cuts.cuts[cut])) : "\u2265 " + real(lowerValue(rule, cuts, cut));
const upperText = (rule, cuts, cut) => cut < 0 ? "no upper bound"
  : cuts.upperCuts.includes(cut) || rules[rule].whole ? "\u2264 " + real(upperValue(rule, cuts, cut)) : "< " + real(cuts.cuts[cut]);

// ---------------------------------------------------------------- counts

// Documents and bytes that a rule drops by itself in a group: exact.
const alone = (group, rule) => {
  const {lower, upper, on} = state[group][rule], cuts = groups[group].rules[rule];
  if (!on) return [0, 0];
  return [0, 1].map(kind => {
    let dropped = data.keepsMissing ? 0 : cuts.missing[kind];
    if (lower >= 0) dropped += cuts.left[lower][kind];
    if (upper >= 0) dropped += cuts.whole[kind] - cuts.left[upper][kind];
    return kind ? dropped * groups[group].perUnit : dropped;
  });
};
const same = (one, other) => one.lower === other.lower && one.upper === other.upper && one.on === other.on;
// The step at which all rules of a group stand; -1 if there is none.
const stepOf = group => stepNames.findIndex((_, step) => state[group].every((each, rule) => same(each, stateOf(group, rule, step))));
// What the rules together keep of a group, and what each alone drops: exact at a step, else from the sample with twice the standard error.
const together = group => {
  const known = groups[group], step = stepOf(group), total = known.total[0];
  const only = rules.map(() => 0);
  let kept = 0, keptUnits = 0, square = 0;
  const own = state[group], count = rules.length;
  for (let row = 0; row < sampleGroups.length; row++) {
    if (sampleGroups[row] !== group) continue;
    let failed = -1, many = false;
    for (let rule = 0; rule < count; rule++) {
      const rank = ranks[row * count + rule], {lower, upper, on} = own[rule];
      if (!on || (rank === MISSING ? data.keepsMissing : (lower < 0 || rank > lower) && (upper < 0 || rank <= upper))) continue;
      if (failed >= 0) { many = true; break; }
      failed = rule;
    }
    if (failed < 0) { kept++; keptUnits += units[row]; square += units[row] * units[row]; }
    else if (!many) only[failed]++;
  }
  const seen = sampled[group], weight = seen ? total / seen : 0, isAll = seen >= total;
  const share = seen ? kept / seen : 0;
  const left = seen > 1 ? (1 - seen / total) / (seen - 1) : 0;
  const variance = kept && kept < seen ? share * (1 - share) * left : (isAll ? 0 : (1.5 / Math.max(seen, 1)) ** 2);
  const mean = seen ? keptUnits / seen : 0;
  const found = {
    kept: kept * weight, bytes: keptUnits * weight * known.perUnit, only: only.map(number => number * weight),
    variance: variance * total * total, bytesVariance: Math.max(square / Math.max(seen, 1) - mean * mean, 0) * left * (total * known.perUnit) ** 2,
    exact: isAll, onlyExact: isAll,
  };
  if (step < 0) return found;
  const [documents, size] = known.kept[step];
  Object.assign(found, {kept: documents, bytes: size * known.perUnit, variance: 0, bytesVariance: 0, exact: true});
  if (stepOf(group) === GIVEN || (step === givenStep)) { found.only = known.only.map(each => each[0]); found.onlyExact = true; }
  return found;
};
const chosen = () => shown < 0 ? groups.map((_, group) => group) : [shown];
const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);
const totals = () => {
  const found = chosen().map(together);
  return {
    kept: sum(found, each => each.kept), bytes: sum(found, each => each.bytes),
    error: 2 * Math.sqrt(sum(found, each => each.variance)), bytesError: 2 * Math.sqrt(sum(found, each => each.bytesVariance)),
    only: rules.map((_, rule) => sum(found, each => each.only[rule])),
    exact: found.every(each => each.exact), onlyExact: found.every(each => each.onlyExact),
  };
};

// ---------------------------------------------------------------- what stands at the top

if (!groups.length) {  // nothing has a slider
  document.querySelectorAll("main section, .bar").forEach(each => { each.hidden = each.id !== "notes-panel"; });
  byId("notes").append(...[...data.notes, "no document belongs to a group that has bounds"].map(note => element("li", {textContent: note})));
  document.documentElement.dataset.drawn = "yes";
  return;
}
const documents = sum(groups, group => group.total[0]);
byId("about").textContent = [
  data.name, `${integer(documents)} documents`, `${rules.length} ${rules.length === 1 ? "rule" : "rules"}`,
  data.given ? `thresholds: ${data.given.replace(/_/g, " ")}` : "bounds as given", data.by ? `bounds by ${data.by}` : "",
].filter(Boolean).join(" \u00b7 ");

const chooser = byId("group");
if (groups.length > 1) {
  chooser.append(element("option", {value: -1, textContent: "all"}));
  groups.forEach((group, number) => chooser.append(element("option", {value: number, textContent: `${group.name} (${integer(group.total[0])})`})));
  if (data.by) byId("chooser").firstChild.textContent = data.by[0].toUpperCase() + data.by.slice(1) + " ";
  chooser.addEventListener("change", () => { shown = Number(chooser.value); build(); });
} else byId("chooser").hidden = true;

const buttons = stepNames.map((name, step) => {
  if (step === GIVEN && givenStep > 0) return null;  // the same as a level
  const button = element("button", {type: "button", textContent: name});
  button.addEventListener("click", () => {
    for (const group of chosen()) rules.forEach((_, rule) => { state[group][rule] = stateOf(group, rule, step); });
    build();
  });
  byId("levels").append(button);
  return button;
});

// ---------------------------------------------------------------- rules

const HEIGHT = 70;
const histogram = (edges, bars) => {
  const count = bars.length, most = Math.max(1, ...bars);
  const made = drawn("svg", {viewBox: `0 0 ${Math.max(count, 1)} ${HEIGHT}`, preserveAspectRatio: "none", class: "bars", "aria-hidden": "true"});
  const boxes = bars.map((bar, number) => {
    const high = bar ? Math.max(1.5, HEIGHT * bar / most) : 0;
    const box = drawn("rect", {x: number + 0.04, width: 0.92, y: HEIGHT - high, height: high, class: "plain"});
    made.append(box);
    return box;
  });
  return {made, boxes};
};
const line = (at, kind) => drawn("line", {x1: at, x2: at, y1: 0, y2: HEIGHT, class: kind});
const ends = edges => element("div", {className: "ends"}, element("span", {textContent: real(edges[0])}), element("span", {textContent: real(Number(edges[edges.length - 1].toPrecision(2)))}));

let cards = [];
const build = () => {
  const holder = byId("rules");
  holder.textContent = "";
  const {only} = totals();
  const order = rules.map((_, rule) => rule).sort((one, other) => only[other] - only[one] || dropped(other)[0] - dropped(one)[0] || one - other);
  cards = order.map(rule => { const card = cardOf(rule); holder.append(card.made); return card; });
  byId("rules-caption").textContent = shown < 0
    ? "Those that cost most come first. The slider of a rule moves it from level to level in all groups; choose a group to move bounds freely. What a rule drops is exact."
    : "Those that cost most come first. Sliders stop at the edges of what was counted, so what a rule drops is exact.";
  update();
};
const dropped = rule => chosen().map(group => alone(group, rule)).reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);

const cardOf = rule => {
  const title = element("h3", {textContent: rules[rule].name, title: rules[rule].signal});
  const on = element("input", {type: "checkbox", checked: chosen().every(group => state[group][rule].on)});
  on.addEventListener("change", () => { for (const group of chosen()) state[group][rule].on = on.checked; update(); });
  const says = [0, 1].map(() => element("b")), labels = [0, 1].map(() => element("span"));
  const counts = element("div", {className: "counts"}, element("div", {}, says[0], labels[0]), element("div", {}, says[1], labels[1]));
  const body = shown < 0 ? byLevels(rule) : byValues(rule, shown);
  const made = element("article", {className: "rule"},
    element("header", {}, title, element("label", {className: "small"}, on, "on")), counts, ...body.parts);
  const refresh = result => {
    const [documents, size] = dropped(rule), every = sum(chosen(), group => groups[group].total[0]);
    made.classList.toggle("off", chosen().every(group => !state[group][rule].on));
    says[0].textContent = integer(documents);
    labels[0].textContent = [`dropped, ${percent(documents, every)}`, text(size)].filter(Boolean).join("\n");
    says[1].textContent = (result.onlyExact ? "" : "\u2248 ") + integer(result.only[rule]);
    labels[1].textContent = "dropped by no other rule";
    body.refresh();
  };
  return {made, refresh};
};

// Sliders over the values of one group. Their scale is that of the histogram; they stand at cuts alone.
const byValues = (rule, group) => {
  const cuts = groups[group].rules[rule];
  if (!cuts.cuts.length) return {parts: [element("p", {className: "muted small", textContent: "No document has a value."})], refresh: () => {}};
  const {made, boxes} = histogram(cuts.edges, cuts.bars), bars = cuts.bars.length;
  for (const step of stepNames.keys()) for (const cut of [cuts.lower[step], cuts.upper[step]]) if (step && cut >= 0) made.append(line(cuts.at[cut], "tick"));
  const marks = {lower: line(0, "bound"), upper: line(0, "bound")};
  made.append(marks.lower, marks.upper);
  const sliders = ["lower", "upper"].filter(end => cuts[end].some(cut => cut >= 0)).map(end => {
    const input = element("input", {type: "range", min: 0, max: bars, step: "any"});
    input.setAttribute("aria-label", `${end} bound of ${rules[rule].name}`);
    const says = element("span"), cost = element("span", {className: "muted"});
    const move = cut => { state[group][rule] = {...state[group][rule], [end]: cut}; update(); };
    input.addEventListener("input", () => move(nearest(cuts, Number(input.value), end)));
    input.addEventListener("change", () => { input.value = place(end); });
    input.addEventListener("keydown", event => {
      const by = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10}[event.key];
      if (!by) return;
      event.preventDefault();
      const cut = state[group][rule][end], last = cuts.cuts.length - 1;
      const next = end === "upper" && cut < 0 ? (by < 0 ? last : -1) : cut + by;
      move(end === "upper" && next > last ? -1 : Math.min(Math.max(next, end === "upper" ? 0 : -1), last));
      input.value = place(end);
    });
    return {end, input, says, cost, made: element("div", {className: "slider"}, element("div", {className: "says"}, says, cost), input)};
  });
  const place = end => { const cut = state[group][rule][end]; return cut < 0 ? (end === "lower" ? 0 : bars) : cuts.at[cut]; };
  const refresh = () => {
    const own = state[group][rule], from = place("lower"), to = place("upper");
    boxes.forEach((box, bar) => box.setAttribute("class", own.on && (bar + 0.5 < from || bar + 0.5 > to) ? "out" : "in"));
    for (const end of ["lower", "upper"]) {
      const at = place(end);
      marks[end].setAttribute("x1", at);
      marks[end].setAttribute("x2", at);
      marks[end].style.display = own[end] < 0 ? "none" : "";
    }
    for (const {end, input, says, cost} of sliders) {
      const cut = own[end];
      says.textContent = end === "lower" ? lowerText(rule, cuts, cut) : upperText(rule, cuts, cut);
      const documents = cut < 0 ? 0 : end === "lower" ? cuts.left[cut][0] : cuts.whole[0] - cuts.left[cut][0];
      cost.textContent = `drops ${integer(documents)}`;
      if (document.activeElement !== input) input.value = place(end);
      input.setAttribute("aria-valuetext", says.textContent + ", " + cost.textContent);
    }
  };
  const missing = cuts.missing[0] ? [element("p", {className: "muted small", textContent: `${integer(cuts.missing[0])} without a value ${cuts.missing[0] === 1 ? "is" : "are"} ${data.keepsMissing ? "kept" : "dropped"}`})] : [];
  return {parts: [element("div", {className: "plot"}, made), ends(cuts.edges), ...sliders.map(each => each.made), ...missing], refresh};
};
const nearest = (cuts, at, end) => {
  let best = -1, away = end === "lower" ? at : cuts.bars.length - at;  // the end of the scale: no bound
  cuts.at.forEach((place, cut) => { if (Math.abs(place - at) < away) { away = Math.abs(place - at); best = cut; } });
  return best;
};

// One slider over the levels of all groups.
const byLevels = rule => {
  const {edges, bars} = rules[rule];
  const plot = bars.length ? [element("div", {className: "plot"}, histogram(edges, bars).made), ends(edges)] : [];
  const steps = stepNames.map((_, step) => step).filter(step => step || !givenStep);
  if (steps.length < 2) return {parts: plot, refresh: () => {}};
  const stands = () => steps.findIndex(step => groups.every((_, group) => same({...state[group][rule], on: true}, stateOf(group, rule, step))));
  const input = element("input", {type: "range", min: 0, max: steps.length - 1, step: 1, value: Math.max(stands(), 0)});
  input.setAttribute("aria-label", `level of ${rules[rule].name}`);
  input.addEventListener("input", () => {
    groups.forEach((_, group) => { state[group][rule] = {...stateOf(group, rule, steps[Number(input.value)]), on: state[group][rule].on}; });
    update();
  });
  const says = element("span");
  const refresh = () => {
    const at = stands();
    says.textContent = at < 0 ? "bounds of its own in some groups" : stepNames[steps[at]];
    if (at >= 0) input.value = at;
    input.setAttribute("aria-valuetext", says.textContent);
  };
  return {parts: [...plot, element("div", {className: "slider"}, element("div", {className: "says"}, says), input)], refresh};
};

// ---------------------------------------------------------------- tables

const row = (tag, cells) => element("tr", {}, ...cells.map((cell, number) => {
  const made = element(number && tag === "td" ? "td" : "th", {});
  made.append(...[cell].flat());
  return made;
}));
const keptTable = () => {
  const table = byId("kept-table");
  table.textContent = "";
  const many = groups.length > 1;
  const cells = (name, numbers, of) => row("td", [name, ...(many ? [sum(numbers, each => each), ...numbers] : numbers).map((number, at) => {
    const every = many ? (at ? of[at - 1] : sum(of, each => each)) : of[at];
    return [integer(number), element("span", {className: "share", textContent: percent(number, every)})];
  })]);
  const every = groups.map(group => group.total[0]);
  table.append(element("thead", {}, row("th", ["", ...(many ? ["all"] : []), ...groups.map(group => groups.length > 1 ? group.name : "documents")])));
  const body = element("tbody", {}, cells("all documents", every, every));
  stepNames.forEach((name, step) => {
    if (step === GIVEN && givenStep > 0) return;
    body.append(cells(name, groups.map(group => group.kept[step][0]), every));
  });
  table.append(body);
};
const overlapTable = () => {
  const matrix = data.overlap[shown + (groups.length > 1 ? 1 : 0)] || data.overlap[0], table = byId("overlap");
  byId("overlap-panel").hidden = rules.length < 2;
  table.textContent = "";
  const number = rule => `${rule + 1}`;
  table.append(element("thead", {}, row("th", ["", ...rules.map((each, rule) => element("abbr", {title: each.name, textContent: number(rule)}))])));
  table.append(element("tbody", {}, ...rules.map((each, rule) => {
    const made = row("td", [`${rule + 1} ${each.name}`, ...rules.map((_, other) => {
      const of = matrix[rule][rule];
      return rule === other ? "" : of ? `${Math.round(100 * matrix[rule][other] / of)} %` : "\u2013";
    })]);
    [...made.children].slice(1).forEach((cell, other) => {
      const share = matrix[rule][rule] ? matrix[rule][other] / matrix[rule][rule] : 0;
      cell.title = `${integer(matrix[rule][other])} documents: ${each.name} and ${rules[other].name}`;
      cell.style.background = rule === other ? "" : `rgb(var(--warm) / calc(${share.toFixed(3)} * var(--heat)))`;
    });
    return made;
  })));
};
const exampleRule = byId("example-rule");
const exampleList = () => {
  const holder = byId("examples"), rule = Number(exampleRule.value);
  holder.textContent = "";
  for (const side of ["inside", "outside"]) {
    const found = data.examples.filter(each => each.rule === rule && each.side === side && (shown < 0 || groups[shown].name === each.group));
    const docs = found.map(each => element("div", {className: "doc"},
      element("div", {}, element("b", {textContent: real(each.value)}), ` (bound ${each.bound === "lower" ? "\u2265" : "\u2264"} ${real(each.limit)}) `,
        element("span", {className: "muted small", textContent: (groups.length > 1 ? each.group + " \u00b7 " : "") + each.id})),
      ...(each.text ? [element("p", {textContent: each.text, dir: "auto", tabIndex: 0})] : [])));
    holder.append(element("div", {className: side === "inside" ? "side" : "side out"},
      element("h3", {textContent: `Just ${side}`}), ...(docs.length ? docs : [element("span", {className: "muted", textContent: "none"})])));
  }
};
const named = rules.map((each, rule) => [each.name, rule]).filter(([, rule]) => data.examples.some(each => each.rule === rule));
named.forEach(([name, rule]) => exampleRule.append(element("option", {value: rule, textContent: name})));
exampleRule.addEventListener("change", exampleList);
byId("examples-panel").hidden = !named.length;

// ---------------------------------------------------------------- thresholds as the sliders stand

const thresholds = () => {
  const bounds = {};
  rules.forEach((each, rule) => {
    const own = {};
    groups.forEach((group, number) => {
      const {lower, upper, on} = state[number][rule], cuts = group.rules[rule];
      if (!on || !cuts.cuts.length) return;
      own[group.name] = {lower: lower < 0 ? null : lowerValue(rule, cuts, lower), upper: upper < 0 ? null : upperValue(rule, cuts, upper)};
    });
    if (Object.keys(own).length) bounds[each.signal] = own;
  });
  return JSON.stringify({level: null, by: data.column, kind: data.kind, nulls: data.nulls, bounds}, null, 1);
};
byId("copy").addEventListener("click", async () => {
  const area = byId("json");
  area.closest("details").open = true;
  const range = document.createRange();
  range.selectNodeContents(area);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  let done = false;
  try { await navigator.clipboard.writeText(area.textContent); done = true; } catch { done = document.execCommand("copy"); }
  byId("copied").textContent = done ? "copied" : "select the text below and copy it";
});

// ---------------------------------------------------------------- all that changes

const update = () => {
  const result = totals(), every = sum(chosen(), group => groups[group].total[0]);
  byId("kept").textContent = (result.exact ? "" : "\u2248 ") + integer(result.kept);
  byId("fill").style.width = `${every ? 100 * result.kept / every : 0}%`;
  const seen = sum(chosen(), group => sampled[group]);
  byId("detail").textContent = [
    `${percent(result.kept, every)} of ${integer(every)}`, text(result.bytes),
    result.exact ? "exact" : `estimate from ${integer(seen)} documents, \u00b1 ${integer(Math.min(result.error, every))} (19 of 20)`,
  ].filter(Boolean).join(" \u00b7 ");
  buttons.forEach((button, step) => button?.setAttribute("aria-pressed", String(chosen().every(group =>
    state[group].every((each, rule) => same(each, stateOf(group, rule, step)))))));
  for (const card of cards) card.refresh(result);
  byId("json").textContent = thresholds();
  overlapTable();
  exampleList();
};
const rest = data.rest ? [
  data.rest.documents ? `${integer(data.rest.documents)} documents belong to no group that has bounds: every rule drops them, and they are not on this page` : "",
  data.rest.others ? `the ${integer(data.rest.groups)} smallest groups, ${integer(data.rest.others)} documents, are not on this page` : "",
].filter(Boolean) : [];
const method = `what rules together keep is exact for the bounds as given and for levels; elsewhere it is estimated from ${integer(sampleGroups.length)} documents that a seed chose`;
byId("notes").append(...[...data.notes, method, ...rest].map(note => element("li", {textContent: note})));
keptTable();
build();
document.documentElement.dataset.drawn = "yes";
})();
