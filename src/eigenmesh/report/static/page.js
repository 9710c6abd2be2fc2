"use strict";
// The state of a run is computed from its events; everything on the page is drawn from that state.
const RUN = JSON.parse(document.getElementById("run").textContent);
const SVG = "http://www.w3.org/2000/svg";
// How often the server is asked for news; after so much silence it counts as gone.
const EVERY_MS = 500, SILENT_S = 10;
const MOST_POINTS = 500, MOST_LINES = 200, MOST_NAMED = 40, MOST_ROWS = 12, MOST_COLUMNS = 4;
const $ = (id) => document.getElementById(id);
// On a phone the pictures have fewer units, so that their text stays readable.
const narrow = matchMedia("(max-width: 34rem)");
const finite = (value) => typeof value === "number" && Number.isFinite(value);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// 1e-06 as 1e−6: with a minus sign, after which no line is broken.
const whole = (text) => `${text}`.replace(/(\d)(?:\.0)?e([+-])0*(\d+)/g, (_, digit, sign, power) => `${digit}e${sign === "-" ? "−" : ""}${power}`);

function number(value) {
  if (!finite(value)) return "not measured";
  if (Number.isInteger(value) && Math.abs(value) < 1e12) return value.toLocaleString("en");
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return whole(value.toExponential(1));
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

function bytes(value) {
  const names = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (value >= 1000 && power < names.length - 1) { value /= 1000; power += 1; }
  return `${power ? value.toPrecision(3) : value} ${names[power]}`;
}

const rounded = (value) => number(Number(value.toPrecision(3)));
const seconds = (value) => (value < 120 ? `${rounded(value)} s` : `${rounded(value / 60)} min`);
const milliseconds = (value) => (value < 1 ? `${rounded(1000 * value)} ms` : seconds(value));
const percent = (share) => `${rounded(100 * share)} %`;

// --- The state from the events ---

function nothing() {
  return {
    first: null, last: null, next: null, planned: null, fits: [], started: null, record: null, curves: noCurves(), certified: null, certificate: null, members: null, site: null,
    neighbours: new Map(), lost: new Map(), links: new Map(), trips: new Map(), batches: [], ended: null, lines: [],
  };
}

// Points of each curve: rounds, seconds since 1970, value.
const noCurves = () => ({ bound: [], residual: [], error: [] });
const link = (one, other) => (one < other ? `${one}\n${other}` : `${other}\n${one}`);

function take(state, event) {
  // A forecast may have been made long before the run, so it does not count as its start.
  if (event.kind !== "planned") state.first ??= event.time_s;
  state.last = event.time_s;
  state.lines.push(event);
  if (state.lines.length > 2 * MOST_LINES) state.lines.splice(0, MOST_LINES);
  switch (event.kind) {
    case "planned": state.next = event; break;
    case "started":
      // A report leaves out a network that is still the same.
      // A peer that is restarted continues the same fit.
      Object.assign(state, { started: { ...state.started, ...event }, planned: state.next ?? (state.members ? state.planned : null), next: null });
      Object.assign(state, { record: null, curves: noCurves(), certified: null, certificate: null, ended: null, links: new Map() });
      state.fits.push({ began: event.time_s, solver: event.solver, averaging: event.averaging, record: null, end: "", curves: state.curves });
      break;
    case "record":
      state.record = event;
      if (state.fits.length) state.fits[state.fits.length - 1].record = event;
      for (const [key, points] of Object.entries(state.curves)) {
        if (finite(event[key]) && event[key] > 0) points.push([event.rounds, event.time_s, event[key]]);
      }
      break;
    case "certified": state.certified = event; break;
    case "certificate": state.certificate = event; break;
    case "batch_checked": state.batches.push(event); break;
    case "members":
      if (state.ended?.outcome === "done") state.planned = null;
      state.members = event;
      state.ended = null;
      for (const name of event.members) state.lost.delete(name);
      for (const name of event.missing ?? []) state.lost.set(name, event.time_s);
      break;
    case "site_status": state.site = event; break;
    case "neighbour_status":
      state.neighbours.set(event.name, event);
      if (event.round_trip_s && state.members) state.trips.set(link(state.members.site, event.name), event.round_trip_s);
      break;
    case "link_latency": state.trips.set(link(event.one, event.other), event.round_trip_s); break;
    case "lost": for (const name of event.names) state.lost.set(name, event.time_s); break;
    case "link_traffic": {
      const key = link(event.sender, event.receiver);
      const sum = state.links.get(key) ?? { messages: 0, bytes: 0 };
      state.links.set(key, { messages: sum.messages + event.messages, bytes: sum.bytes + event.bytes });
      break;
    }
    case "ended":
      state.ended = event;
      if (state.fits.length) state.fits[state.fits.length - 1].end = event.converged ? "certified" : event.outcome === "done" ? "not certified" : event.message || event.outcome;
      break;
  }
}

// --- Sentences about the state ---

function bestBound(state) {
  const points = state.curves.bound;
  if (points.length) return points[points.length - 1][2];
  return state.certified && finite(state.certified.bound) ? state.certified.bound : null;
}

// --- Whether the run is still there ---

// What is known of a run that has not said how it ended: when it was last heard, and whether its process is gone.
const fate = { ...(RUN.fate ?? { heard: null, now: null, lost: false }), at: Date.now(), broken: null };

// Seconds since the last event, by the clock of the server.
const quiet = () => Math.max(0, fate.now - fate.heard + (RUN.live ? (Date.now() - fate.at) / 1000 : 0));
const clock = (date) => date.toLocaleTimeString("en", { hour12: false });
const silent = () => RUN.live && (fate.broken !== null || Date.now() - fate.at > 1000 * SILENT_S);
// Only the latest state of a run can be lost.
const goesOn = (state) => !state.ended && state.lines.length && follows;

// What became of a run that has not ended; empty while it goes on.
function loss(state) {
  return goesOn(state) && fate.lost ? "is lost: its process has ended without saying why" : "";
}

// When the run was last heard, and whether this page still hears of it.
function heardWords(state) {
  if (!goesOn(state) || fate.heard === null) return "";
  const last = `Last event ${seconds(Math.round(quiet()))} ${RUN.live ? "ago" : "before this page was written"}, at ${clock(new Date(1000 * fate.heard))}.`;
  if (silent()) return `${last} This page is no longer updated: its server has not answered since ${clock(new Date(fate.broken ?? fate.at))}. The run may go on.`;
  return last;
}

// In a stream, each batch is a fit.
const several = (state) => state.fits.length > 1 && !state.batches.length && !state.members;

const ENDS = { stopped: "was stopped", parked: "has been parked", aborted: "was ended by a site", failed: "has failed" };
const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function stateWords(state) {
  const record = state.record, bound = bestBound(state), tol = state.started?.tol;
  const near = bound === null ? "" : `, certified bound ${number(bound)}`;
  const who = several(state) ? `${state.started.solver} is done` : "Done";
  if (state.ended) {
    const { outcome, converged, message } = state.ended;
    if (outcome === "done") return converged ? `${who}: every component is within ${number(bound)} of the true one (target ${number(tol)}).` : `${who}, not certified to ${number(tol)}${near}: ${sentence(message)}`;
    return `The run ${ENDS[outcome] ?? "has ended"}: ${sentence(message || "no reason was given")}`;
  }
  const lost = loss(state);
  if (lost) return `The run ${lost}.${record ? ` It had reached round ${number(record.rounds)}${near}.` : ""}`;
  if (!state.started) return state.members ? `Connecting as ${state.members.site}.` : RUN.says ?? "No event yet.";
  if (!record) return `Preparing: ${state.started.solver} over ${state.started.nodes.length} nodes.`;
  const batch = state.batches.length ? ` batch ${state.fits.length - 1},` : several(state) ? ` ${state.started.solver},` : "";
  return `Running:${batch} round ${number(record.rounds)} of a budget of ${number(state.started.max_rounds)}${near}, target ${number(tol)}, ${bytes(record.bytes)} sent.`;
}

function pace(state) {
  // Decades of the bound or residual per round over the last records.
  const bounds = state.curves.bound, key = bounds.length && bounds[bounds.length - 1][2] < 1 ? "bound" : "residual";
  const known = state.curves[key].slice(-8);
  if (known.length < 3) return null;
  const [a, b] = [known[0], known[known.length - 1]];
  const decades = Math.log10(a[2] / b[2]);
  return { key, decades, perRound: decades / Math.max(1, b[0] - a[0]), last: b[2] };
}

function whyWords(state) {
  if (state.ended?.outcome === "done") return "";
  if (state.ended || loss(state).startsWith("is lost")) return state.members ? "Start the peer again: it continues from its journal." : "Start it again: a fit begins anew.";
  const down = [...state.neighbours.values()].filter((one) => !one.connected);
  const waiting = [...state.neighbours.values()].filter((one) => one.waiting && one.connected);
  if (state.lost.size) return `${[...state.lost.keys()].join(", ")} is lost.`;
  if (down.length) return `The run waits for the link to ${down.map((one) => one.name).join(", ")}${down[0].refusal ? `: ${down[0].refusal}` : ", which is down."}`;
  if (waiting.length && state.site?.waiting_since && state.last - state.site.waiting_since > 3) {
    return `The run has waited ${seconds(state.last - state.site.waiting_since)} for ${waiting.map((one) => one.name).join(", ")}.`;
  }
  const speed = pace(state);
  if (!speed || !state.started) return "";
  if (speed.decades < 0.05) return `The ${speed.key} has hardly changed in the last checks: close eigenvalues, a step that is too small, or the limit of the precision.`;
  const goal = state.started.tol;
  if (speed.key === "bound" && speed.last > goal) {
    const left = Math.log10(speed.last / goal) / speed.perRound;
    return `At this rate it needs about ${number(Math.ceil(left))} more rounds.`;
  }
  return "";
}

// --- The map ---

function nodesOf(state) {
  const names = new Set(state.started?.nodes ?? state.members?.members ?? []);
  for (const name of state.lost.keys()) names.add(name);
  return [...names];
}

function linkLook(state, one, other) {
  const self = state.members?.site;
  const far = self === one ? other : self === other ? one : null;
  const seen = far === null ? null : state.neighbours.get(far);
  if (state.lost.has(one) || state.lost.has(other)) return { kind: "lost", bytes: 0 };
  if (seen && !seen.connected && !state.ended) return { kind: "down", bytes: seen.bytes_sent + seen.bytes_received };
  if (seen) return { kind: seen.waiting && !state.ended ? "waits" : "up", bytes: seen.bytes_sent + seen.bytes_received };
  const sent = state.links.get(link(one, other));
  return { kind: sent || !self ? "up" : "unseen", bytes: sent?.bytes ?? 0 };
}

// Round-trip times on the links, the slowest first; a label that would cover another is shown only in the table.
function tripLabels(state, pairs, place) {
  const known = pairs.map(([one, other]) => ({ one, other, trip: state.trips.get(link(one, other)) }))
    .filter(({ one, other, trip }) => finite(trip) && place.has(one) && place.has(other)).sort((a, b) => b.trip - a.trip);
  const taken = [...place.values()], labels = [];
  for (const { one, other, trip } of known.slice(0, MOST_NAMED)) {
    const [x1, y1] = place.get(one), [x2, y2] = place.get(other);
    const free = [1 / 2, 1 / 3, 2 / 3].map((share) => [x1 + share * (x2 - x1), y1 + share * (y2 - y1)])
      .find(([x, y]) => taken.every(([left, top]) => Math.abs(x - left) > 54 || Math.abs(y - top) > 18));
    if (!free) continue;
    taken.push(free);
    const text = milliseconds(trip), width = 7 * text.length + 4;
    const label = draw("text", { x: free[0], y: free[1] + 4, "text-anchor": "middle", class: "trip" }, text);
    label.dataset.trip = `${one} ${other}`;
    labels.push(draw("rect", { x: free[0] - width / 2, y: free[1] - 8, width, height: 16, fill: "var(--paper)" }), label);
  }
  return labels;
}

const LOOKS = {
  up: { stroke: "var(--blue)", words: "link, wider with more bytes" },
  unseen: { stroke: "var(--soft)", words: "between other sites: known at the end" },
  waits: { stroke: "var(--orange)", "stroke-dasharray": "8 4", words: "this site waits for it" },
  down: { stroke: "var(--red)", "stroke-dasharray": "2 5", words: "down" },
  lost: { stroke: "var(--red)", "stroke-dasharray": "2 5", words: "lost" },
};

function drawMap(state) {
  const names = nodesOf(state), edges = state.started?.links ?? [];
  const [width, height, circle, letters] = narrow.matches ? [370, 270, 95, 10] : [560, 390, 155, 16];
  const middle = width / 2, radius = names.length < 2 ? 0 : circle, named = names.length <= MOST_NAMED;
  const place = new Map(names.map((name, at) => {
    const angle = (2 * Math.PI * at) / names.length - Math.PI / 2;
    return [name, [middle + radius * Math.cos(angle), height / 2 + radius * Math.sin(angle)]];
  }));
  const self = state.members?.site;
  const pairs = edges.length ? edges : [...state.neighbours.keys()].map((name) => [self, name]);
  const looks = pairs.map(([one, other]) => linkLook(state, one, other));
  // Many links in a small space are drawn thinner, so that they can be distinguished.
  const most = Math.max(1, ...looks.map((look) => look.bytes)), thin = pairs.length <= MOST_NAMED ? 1 : narrow.matches ? 0.4 : 0.7;
  const counts = {};
  for (const look of looks) counts[look.kind] = (counts[look.kind] ?? 0) + 1;
  const said = Object.entries(counts).map(([kind, count]) => `${count} ${{ waits: "waited for", unseen: "between other sites" }[kind] ?? kind}`).join(", ");
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${names.length} nodes; links: ${said || "none"}` });
  pairs.forEach(([one, other], at) => {
    if (!place.has(one) || !place.has(other)) return;
    const [x1, y1] = place.get(one), [x2, y2] = place.get(other), { words, ...look } = LOOKS[looks[at].kind];
    const line = draw("line", { x1, y1, x2, y2, "stroke-width": thin * (1 + 5 * Math.sqrt(looks[at].bytes / most)), ...look });
    line.dataset.link = `${one} ${other}`;
    line.dataset.look = looks[at].kind;
    const trip = state.trips.get(link(one, other));
    line.append(draw("title", {}, `${one} – ${other}: ${words}, ${bytes(looks[at].bytes)}${finite(trip) ? `, round trip ${milliseconds(trip)}` : ""}`));
    picture.append(line);
  });
  picture.append(...tripLabels(state, pairs, place));
  for (const [name, [x, y]] of place) {
    const gone = state.lost.has(name);
    const dot = draw("circle", { cx: x, cy: y, r: name === self ? 10 : 7, fill: gone ? "var(--paper)" : "var(--ink)", stroke: gone ? "var(--red)" : "var(--ink)", "stroke-width": 2 });
    dot.append(draw("title", {}, gone ? `${name}: lost` : name));
    picture.append(dot);
    if (named) {
      const right = x >= middle - 1, text = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
      const ends = Math.abs(x - middle) < 1, upper = y < height / 2;
      const label = draw("text", { x: ends ? x : x + (right ? 13 : -13), y: ends ? y + (upper ? -15 : 25) : y + 4, "text-anchor": ends ? "middle" : right ? "start" : "end" }, text);
      if (name === self) label.append(draw("tspan", { x: label.getAttribute("x"), dy: ends && upper ? -14 : 14 }, "(here)"));
      if (gone) label.setAttribute("class", "gone");
      picture.append(label);
    }
  }
  $("map").replaceChildren(picture);
  const timed = pairs.some(([one, other]) => state.trips.has(link(one, other)));
  const times = timed ? [make("li", {}, make("span", { class: "trip" }, "ms"), "round trip over a link")] : [];
  $("map-legend").replaceChildren(...Object.keys(counts).map((kind) => sample(LOOKS[kind], LOOKS[kind].words)), ...times);
}

function sample({ words, ...look }, text) {
  return make("li", {}, draw("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" }, draw("line", { x1: 0, y1: 6, x2: 28, y2: 6, "stroke-width": 3, ...look })), text);
}

// --- Charts ---

function thinned(points) {
  // Keeps the largest and the smallest value of each stretch, so that no peak is lost.
  if (points.length <= MOST_POINTS) return points;
  const kept = [], step = (2 * points.length) / MOST_POINTS;
  for (let start = 0; start < points.length; start += step) {
    const first = Math.floor(start), end = Math.min(points.length, Math.floor(start + step));
    let low = first, high = first;
    for (let at = first; at < end; at += 1) {
      if (points[at][2] < points[low][2]) low = at;
      if (points[at][2] > points[high][2]) high = at;
    }
    kept.push(...[low, high].sort((one, other) => one - other).map((at) => points[at]));
  }
  return kept;
}

function ticks(low, high, whole) {
  // About five ticks, at 1, 2 or 5 times a power of ten.
  const least = Math.max((high - low) / 5.5, whole ? 1 : 0), power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= least * (1 - 1e-9));
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

function chart(series, { across, label, target = null, mark = null, log = true, bars = false, small = false }) {
  const [width, height] = small || narrow.matches ? [370, 250] : [560, 340], left = 54, right = 14, top = mark === null ? 14 : 20, bottom = 46;
  const all = series.flatMap((one) => one.points);
  // Smaller values are below double precision.
  const scale = log ? (value) => Math.max(LOWEST, Math.log10(value)) : (value) => value;
  const values = all.map((point) => scale(point[1]));
  if (target !== null) values.push(scale(target));
  const xs = all.map((point) => point[0]);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (!all.length) { picture.append(draw("text", { x: left, y: height / 2 }, "Nothing measured yet.")); return picture; }
  const span = (list) => list.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  let [x0, x1] = span(xs), [y0, y1] = span(values);
  if (log) [y0, y1] = [Math.floor(y0), Math.ceil(y1)]; else y0 = Math.min(0, y0);
  [x0, x1] = bars ? [x0 - 0.5, x1 + 0.5] : [Math.min(0, x0), x1];
  // A forecast far to the right would squeeze the curves; an arrow points to it instead.
  const near = mark !== null && mark <= FAR * x1;
  if (near) [x0, x1] = [Math.min(x0, mark), Math.max(x1, mark)];
  if (x0 === x1) x1 = x0 + 1;
  if (y0 === y1) y1 = y0 + 1;
  const X = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const Y = (y) => height - bottom - ((scale(y) - y0) / (y1 - y0)) * (height - top - bottom);
  for (const tick of ticks(y0, y1, log)) {
    const y = height - bottom - ((tick - y0) / (y1 - y0)) * (height - top - bottom);
    picture.append(draw("line", { x1: left, x2: width - right, y1: y, y2: y, stroke: "var(--line)", "stroke-width": 0.7 }));
    picture.append(draw("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, log ? whole(`1e${tick}`) : percent(tick)));
  }
  if (!bars) for (const x of ticks(x0, x1, xs.every(Number.isInteger))) {
    picture.append(draw("text", { x: X(x), y: height - bottom + 18, "text-anchor": X(x) > width - 24 ? "end" : "middle" }, number(x)));
  }
  picture.append(draw("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, across));
  if (target !== null) {
    picture.append(draw("line", { x1: left, x2: width - right, y1: Y(target), y2: Y(target), stroke: "var(--green)", "stroke-width": 2, "stroke-dasharray": "6 4" }));
  }
  if (mark !== null) {
    const x = near ? X(mark) : width - right, leftOf = x > width / 2;
    if (near) picture.append(draw("line", { x1: x, x2: x, y1: top, y2: height - bottom, "stroke-width": 2, ...FORECAST }));
    picture.append(draw("text", { x: x + (leftOf ? -6 : 6), y: top - 6, "text-anchor": leftOf ? "end" : "start" }, near ? "forecast" : `forecast: ${rounded(mark)} →`));
  }
  for (const one of series) {
    if (bars) {
      for (const [x, y] of one.points) {
        picture.append(draw("rect", { x: X(x - 0.4), y: Y(y), width: X(x + 0.4) - X(x - 0.4), height: Math.max(0, height - bottom - Y(y)), fill: one.look.stroke }));
        if (one.points.length <= 20) picture.append(draw("text", { x: X(x), y: height - bottom + 18, "text-anchor": "middle" }, `${x}`));
      }
      continue;
    }
    const points = one.points;
    picture.append(draw("polyline", { points: points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join(" "), fill: "none", "stroke-width": 2, ...one.look }));
    if (points.length <= 40) for (const [x, y] of points) picture.append(draw("circle", { cx: X(x), cy: Y(y), r: points.length > 1 ? 3 : 5, fill: one.look.stroke }));
  }
  return picture;
}

let axis = "rounds";
const DASHES = ["none", "8 4", "2 3", "10 3 2 3"];
const FAR = 4, LOWEST = -17, FORECAST = { stroke: "var(--soft)", "stroke-dasharray": "1 5", "stroke-linecap": "round" };
const CURVES = {
  bound: { look: { stroke: "var(--blue)" }, words: "certified bound on sin(angle)" },
  residual: { look: { stroke: "var(--orange)", "stroke-dasharray": "8 4" }, words: "residual" },
  // Records have the mean of sin²; its root is a sine, as bound and target are.
  error: { look: { stroke: "var(--ink)", "stroke-dasharray": "2 3" }, words: "true error: root mean square of sin(angle)", value: Math.sqrt },
};

// Whether a reader has chosen rounds or seconds.
let chosen = false;

function press(wanted) {
  axis = wanted;
  for (const button of document.querySelectorAll("[data-axis]")) button.setAttribute("aria-pressed", String(button.dataset.axis === wanted));
}

// Several fits in one chart, a line for each: by true error if it is known, against seconds if nobody asks for rounds.
function drawFitsChart(state) {
  if (!chosen) press("seconds");
  const measured = state.fits.filter((one) => one.record);
  const key = ["error", "bound", "residual"].find((name) => measured.every((one) => one.curves[name].length)) ?? "residual";
  const { words, value = Number } = CURVES[key];
  const series = state.fits.map(({ solver, began, curves }, at) => ({
    look: { stroke: COLOURS[at % COLOURS.length], "stroke-dasharray": DASHES[at % DASHES.length] }, words: solver,
    points: thinned(curves[key]).map(([rounds, time, size]) => [axis === "rounds" ? rounds : time - began, value(size)]),
  })).filter((one) => one.points.length);
  const target = state.started?.tol ?? null;
  $("chart").replaceChildren(chart(series, { across: axis, label: `${words} against ${axis}, for ${series.map((one) => one.words).join(", ")}; target ${number(target)}`, target }));
  const goal = target === null ? [] : [sample({ stroke: "var(--green)", "stroke-dasharray": "6 4" }, `target ${number(target)}`)];
  $("chart-legend").replaceChildren(make("li", {}, `${words}:`), ...series.map((one) => sample(one.look, one.words)), ...goal);
}

function drawChart(state) {
  if (several(state)) { drawFitsChart(state); return; }
  const across = ([rounds, time]) => (axis === "rounds" ? rounds : time - (state.started?.time_s ?? state.first));
  const series = Object.entries(CURVES).map(([key, { look, words, value = Number }]) => ({
    look, words, points: thinned(state.curves[key]).map((point) => [across(point), value(point[2])]),
  })).filter((one) => one.points.length);
  const target = state.started?.tol ?? null, bound = bestBound(state);
  const planned = state.planned, mark = finite(planned?.[axis]) ? planned[axis] : null;
  const forecast = mark === null ? null : axis === "rounds" ? `forecast of the planner: ${number(Math.round(mark))} rounds` : `forecast of the planner: ${seconds(mark)} at ${number(1000 * planned.latency_s)} ms per round`;
  const label = `Bound against ${axis}: ${bound === null ? "not certified yet" : number(bound)}; target ${number(target)}${forecast ? `; ${forecast}` : ""}`;
  $("chart").replaceChildren(chart(series, { across: axis, label, target, mark }));
  const expected = forecast ? [sample(FORECAST, forecast)] : [];
  const goal = target === null ? [] : [sample({ stroke: "var(--green)", "stroke-dasharray": "6 4" }, `target ${number(target)}`)];
  $("chart-legend").replaceChildren(...series.map((one) => sample(one.look, one.words)), ...goal, ...expected);
}

function drawStream(state) {
  $("stream-section").hidden = !state.batches.length;
  if (!state.batches.length) return;
  const points = (key) => state.batches.filter((one) => finite(one[key])).map((one) => [one.batch, one[key]]);
  const series = [
    { look: { stroke: "var(--blue)" }, words: "variance lost", points: points("variance_lost") },
    { look: { stroke: "var(--orange)", "stroke-dasharray": "8 4" }, words: "samples above the limit of T²", points: points("t2_share") },
    { look: { stroke: "var(--ink)", "stroke-dasharray": "2 3" }, words: "samples above the limit of SPE", points: points("spe_share") },
  ];
  const alarms = state.batches.filter((one) => one.alarm);
  const label = `${state.batches.length} batches, ${alarms.length} alarms`;
  const legend = make("ul", { class: "legend" }, ...series.map((one) => sample(one.look, one.words)));
  $("stream").replaceChildren(chart(series, { across: "batch", label, log: false }), legend);
  $("alarms").replaceChildren(...alarms.slice(-20).map((one) => make("li", { class: "alarm" }, `Alarm in batch ${one.batch}: ${one.message}`)));
}

// --- Tables and words ---

function table(caption, heads, rows) {
  if (narrow.matches && heads.length > MOST_COLUMNS && rows.length < MOST_COLUMNS) {
    // On a phone, a table that is wider than high is transposed.
    [heads, ...rows] = heads.map((head, at) => [head, ...rows.map((row) => row[at])]);
  }
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const lines = rows.map((row) => make("tr", {}, ...row.map((text) => make("td", {}, text))));
  const all = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...lines));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, all);
}

function drawLinks(state) {
  if (state.neighbours.size) {
    const rows = [...state.neighbours.values()].map((one) => [
      one.name, one.connected ? (one.waiting && !state.ended ? "waited for" : "up") : state.ended ? "closed" : "down", one.round_trip_s ? milliseconds(one.round_trip_s) : "–", number(one.round), bytes(one.bytes_sent), bytes(one.bytes_received),
      one.last_heard ? `${seconds(Math.max(0, state.last - one.last_heard))} ago` : "never",
    ]);
    $("links").replaceChildren(table("Neighbours of this site", ["neighbour", "link", "round trip", "its round", "sent", "received", "last heard"], rows));
    return;
  }
  const timed = state.trips.size > 0, sent = (key) => state.links.get(key)?.bytes ?? 0;
  const rows = [...new Set([...state.links.keys(), ...state.trips.keys()])].sort((one, other) => sent(other) - sent(one)).map((key) => {
    const sum = state.links.get(key), trip = state.trips.get(key);
    return [key.replace("\n", " – "), sum ? number(sum.messages) : "–", sum ? bytes(sum.bytes) : "–", ...(timed ? [finite(trip) ? milliseconds(trip) : "–"] : [])];
  });
  const caption = `${rows.length > MOST_ROWS ? `The ${MOST_ROWS} of ${rows.length} links` : "Links"} with most bytes, both directions together`;
  const note = state.links.size ? [] : [make("p", {}, "The traffic by link is known at the end of a fit.")];
  $("links").replaceChildren(...note, ...(rows.length ? [table(caption, ["link", "messages", "payload", ...(timed ? ["round trip"] : [])], rows.slice(0, MOST_ROWS))] : []));
}

function drawFits(state) {
  $("fits-section").hidden = !several(state);
  if (!several(state)) return;
  const alike = state.fits.every((one) => one.averaging === state.fits[0].averaging);
  const rows = state.fits.map(({ began, solver, averaging, record, end }, at) => [
    solver, ...(alike ? [] : [averaging]), record ? number(record.rounds) : "–", record ? bytes(record.bytes) : "–",
    record ? seconds(record.time_s - began) : "–", record && finite(record.bound) ? number(record.bound) : "–", end || (at === state.fits.length - 1 && !loss(state) ? "runs" : "–"),
  ]);
  $("fits").replaceChildren(table(`Fits one after the other${alike ? `, ${state.fits[0].averaging} averaging` : ""}`, ["solver", ...(alike ? [] : ["averaging"]), "rounds", "sent", "time", "bound", "end"], rows));
}

function drawFacts(state) {
  const { started, members, record } = state;
  const facts = {};
  if (members) Object.assign(facts, { run: members.run, "this site": members.site, sites: members.members.join(", ") });
  if (started) {
    facts.method = `${started.solver}, ${started.averaging} averaging`;
    facts.network = `${started.nodes.length} nodes, ${started.links.length} links`;
    facts.asked = started.n_components < 1 ? `components for ${number(started.n_components)} of the variance` : `${started.n_components} components of ${number(started.n_features)} features, to ${number(started.tol)}`;
  }
  if (record) facts[state.ended ? "in all" : "so far"] = `${number(record.rounds)} rounds, ${number(record.messages)} messages, ${bytes(record.bytes)}`;
  if (state.first !== null) facts.time = seconds(state.last - state.first);
  Object.assign(facts, RUN.facts ?? {});
  $("facts").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, whole(value))]));
}

function drawCertificate(state) {
  const { certified, certificate } = state;
  $("certificate-section").hidden = !certified && !certificate;
  const sofar = certified ? [`After ${number(certified.rounds)} rounds the nodes certified a bound of ${number(certified.bound)} on sin(angle) to the true components.`, ...certified.warnings.map((text) => `${text[0].toUpperCase()}${text.slice(1)}.`)] : [];
  $("certificate").replaceChildren(...(certificate?.words ?? sofar).map((text) => make("p", {}, whole(text))));
}

function drawLeft(left) {
  $("left-section").hidden = !left;
  if (!left) return;
  $("left").replaceChildren(...left.words.map((text) => make("p", {}, text)), table("By neighbour", ["neighbour", "messages", "payload"], left.neighbours.map(([name, messages, sum]) => [name, number(messages), bytes(sum)])));
}

function pixels(values, [rows, columns], words) {
  const canvas = make("canvas", { width: columns, height: rows, role: "img", "aria-label": words });
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const most = Math.max(...values.map(Math.abs)) || 1;
  values.forEach((value, at) => {
    // Blue for negative weights, orange for positive ones, white for zero.
    const share = Math.abs(value) / most, ends = value < 0 ? [0, 95, 153] : [168, 67, 0];
    ends.forEach((end, channel) => { image.data[4 * at + channel] = 255 + share * (end - 255); });
    image.data[4 * at + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  return make("figure", {}, canvas, make("figcaption", {}, words));
}

function drawComponents() {
  const found = RUN.components;
  if (!found) return;
  $("components-section").hidden = false;
  const shares = found.shares.map((share, at) => [at + 1, share]);
  let sum = 0;
  const rows = shares.map(([at, share]) => { sum += share; return [`${at}`, `${(100 * share).toFixed(2)} %`, `${(100 * sum).toFixed(2)} %`, number(found.bounds[at - 1])]; });
  const scree = chart([{ look: { stroke: "var(--blue)" }, points: shares }], { across: "component", label: `Share of the variance: ${rows.map((row) => row[1]).join(", ")}`, log: false, bars: true, small: true });
  const parts = [make("div", { class: "figures" }, make("figure", {}, scree, make("figcaption", {}, "Share of the variance of each component")), table("Components", ["component", "share", "together", "bound"], rows))];
  if (found.images) parts.push(make("div", { class: "pixels" }, ...found.images.map((values, at) => pixels(values, found.shape, `component ${at + 1}`))));
  if (found.loadings) parts.push(make("p", {}, "Largest loadings of each component:"), make("div", { class: "loadings" }, ...found.loadings.map((pairs, at) => table(`Component ${at + 1}`, ["feature", "loading"], pairs.map(([name, value]) => [name, value.toFixed(4)])))));
  if (found.scores) parts.push(scores(found.scores, found.shares));
  $("components").replaceChildren(...parts);
}

// Colours that colour-blind readers can distinguish, and shapes: together, 55 nodes all look different.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6bb1", "#7f7f7f", "#b0306a", "#4b5fd6", "#9a9a2e"];
const SHAPES = ["M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0", "M-.9,-.9h1.8v1.8h-1.8z", "M0,-1.2L1.1,.8h-2.2z", "M0,-1.3L1.3,0L0,1.3L-1.3,0z", "M-1.2,-.8h2.4L0,1.2z"];

function mark(x, y, size, node) {
  const shape = SHAPES[node % SHAPES.length];
  return draw("path", { d: shape, transform: `translate(${x} ${y}) scale(${size})`, fill: COLOURS[node % COLOURS.length] });
}

function scores({ nodes, points }, shares) {
  const size = 420, edge = 30, picture = draw("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `Scores of ${points.length} samples on components 1 and 2` });
  const ends = [0, 1].map((at) => { const all = points.map((point) => point[at]); return [Math.min(0, ...all), Math.max(0, ...all)]; });
  const along = (value, at) => edge + ((value - ends[at][0]) / (ends[at][1] - ends[at][0] || 1)) * (size - 2 * edge);
  const axes = [{ x1: edge, x2: size - edge, y1: size - along(0, 1), y2: size - along(0, 1) }, { x1: along(0, 0), x2: along(0, 0), y1: edge, y2: size - edge }];
  for (const line of axes) picture.append(draw("line", { ...line, stroke: "var(--line)" }));
  picture.append(draw("text", { x: size / 2, y: size - 6, "text-anchor": "middle" }, `component 1, ${percent(shares[0])} of the variance`));
  picture.append(draw("text", { x: 12, y: size / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${size / 2})` }, `component 2, ${percent(shares[1])} of the variance`));
  for (const [x, y, node] of points) {
    const dot = mark(along(x, 0).toFixed(1), (size - along(y, 1)).toFixed(1), 2.8, node);
    dot.setAttribute("fill-opacity", 0.7);
    dot.append(draw("title", {}, nodes[node]));
    picture.append(dot);
  }
  const dot = (name, node) => make("li", {}, draw("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, mark(6, 6, 4.5, node)), name);
  const names = nodes.length <= MOST_NAMED ? [make("ul", { class: "legend dots" }, ...nodes.map(dot))] : [];
  return make("figure", { class: "scores" }, make("div", {}, picture, make("figcaption", {}, `Scores of ${number(points.length)} samples by node; point at one for its name`)), ...names);
}

// What a page says beside a run, or without one: sections of words and a table.
function drawSections() {
  $("sections").replaceChildren(...(RUN.sections ?? []).map(({ title, words = [], heads, rows }, at) => {
    const shown = table(title, heads, rows);
    shown.querySelector("caption").remove();
    return make("section", { "aria-labelledby": `h-own-${at}`, class: heads.length === 2 ? "words" : "" }, make("h2", { id: `h-own-${at}` }, title), ...words.map((text) => make("p", {}, text)), shown);
  }));
}

// Without links there is no network to show, and nothing that changes with time.
function hideUnused(state) {
  const linked = Boolean(RUN.live || state.started?.links.length || state.members);
  for (const id of ["network-section", "links-section", "scrub"]) $(id).hidden = !linked;
  $("log-section").hidden = !RUN.live && !events.length;
}

function drawRepeat() {
  if (!RUN.repeat) return;
  $("repeat-section").hidden = false;
  $("repeat").replaceChildren(...RUN.repeat.commands.map((text) => make("pre", { tabindex: "0" }, text)), make("p", {}, RUN.repeat.versions));
}

// --- Time ---

let events = RUN.events ?? [], state = nothing(), shown = 0, follows = true, due = false, left = RUN.left ?? null;

function advance(until) {
  if (until < shown) { state = nothing(); shown = 0; }
  for (; shown < until; shown += 1) take(state, events[shown]);
}

function render() {
  due = false;
  const began = performance.now(), slider = $("time");
  slider.max = events.length;
  if (follows) slider.value = events.length;
  advance(Number(slider.value));
  const words = `${number(shown)} of ${number(events.length)} events${state.first === null ? "" : `, ${seconds(state.last - state.first)}`}`;
  $("time-text").textContent = words;
  slider.setAttribute("aria-valuetext", words);
  say();
  hideUnused(state);
  for (const part of [drawMap, drawChart, drawStream, drawFits, drawLinks, drawFacts, drawCertificate]) part(state);
  drawLeft(left);
  $("log").replaceChildren(...state.lines.slice(-MOST_LINES).reverse().map((event) => {
    const { version, time_s, kind, ...rest } = event;
    return make("li", {}, `${Math.max(0, time_s - state.first).toFixed(2)} s ${kind} ${JSON.stringify(rest).slice(0, 300)}`);
  }));
  document.body.dataset.events = shown;
  document.body.dataset.frameMs = (performance.now() - began).toFixed(1);
}

// The sentences at the top; live, they also change with time alone.
function say() {
  for (const [id, words] of [["state", stateWords(state)], ["why", whyWords(state)], ["heard", heardWords(state)]]) {
    // Unchanged words are left alone: screen readers announce changes.
    if ($(id).textContent !== words) $(id).textContent = words;
    $(id).hidden = !words;
  }
}

function soon() {
  // The page is drawn at most five times per second.
  if (due) return;
  due = true;
  setTimeout(() => requestAnimationFrame(render), 200);
}

$("time").addEventListener("input", () => { follows = Number($("time").value) === events.length; render(); });
$("latest").addEventListener("click", () => { follows = true; render(); });
for (const button of document.querySelectorAll("[data-axis]")) {
  button.addEventListener("click", () => {
    chosen = true;
    press(button.dataset.axis);
    drawChart(state);
  });
}

// Asks the server for news, at once if there are more, and again after a pause if it does not answer.
async function ask() {
  let wait = EVERY_MS;
  try {
    const answer = await fetch(`${RUN.live}&seen=${events.length}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const news = await answer.json(), changed = JSON.stringify(news.left) !== JSON.stringify(left);
    Object.assign(fate, { heard: news.heard, now: news.now, lost: news.lost, at: Date.now(), broken: null });
    events.push(...news.events);
    left = news.left;
    if (news.events.length || changed) soon();
    if (news.more) wait = 0;
  } catch {
    fate.broken ??= Date.now();
  }
  say();
  setTimeout(ask, wait);
}

if (RUN.live) {
  setInterval(say, 1000);
  ask();
}
narrow.addEventListener("change", () => { drawComponents(); drawSections(); render(); });
drawComponents();
drawSections();
drawRepeat();
render();
