"use strict";
// Fetches status.json once a second while the page is visible, and draws it. Text from the manager enters the page only
// as text (textContent), never as markup.

// The states are in the order of v1::BlockState. `quirectl blocks --map` uses the same letters.
const STATES = [
  {letter: ".", key: "free", name: "free"},
  {letter: "c", key: "cached", name: "cached, free when needed"},
  {letter: "u", key: "used", name: "used"},
  {letter: "s", key: "shared", name: "shared"},
  {letter: "P", key: "pinned", name: "pinned"},
];
const BAR_ORDER = [4, 3, 2, 1, 0];
const INTERVAL_MS = 1000;
const MAX_AGE_S = 15;  // Looks are up to ten seconds apart.
const RATE_WINDOW_US = 5e6;
const SPARK_SAMPLES = 120;
const MIN_CELL = 4;
const MAX_CELL = 14;
const MAP_AREA = 300;  // The map of many blocks is fitted into this height in pixels.

const $ = (id) => document.getElementById(id);
const looks = [];  // The answers within RATE_WINDOW_US, the oldest first.
const spark = [];
const cards = new Map();  // Worker cards by address.
let timer = 0;

function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

// null is a rate that is not known yet.
function rate(number) {
  if (number === null) return "-";
  return number < 100 ? number.toFixed(1) : count(number);
}

function seconds(value) {
  if (value === null) return "-";
  return value < 1 ? `${(value * 1e3).toFixed(1)} ms` : `${value.toFixed(2)} s`;
}

function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 1) return `${Math.max(ms, 0)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

// The quantile of what was observed between two looks, linear within a bucket. null when nothing was observed.
function quantile(before, now, q) {
  const counts = now.counts.map((n, i) => Math.max(n - (before ? before.counts[i] : 0), 0));
  const wanted = q * counts.reduce((a, b) => a + b, 0);
  if (wanted === 0) return null;
  let below = 0;
  let lower = 0;
  for (let i = 0; i < now.bounds.length; ++i) {
    if (counts[i] > 0 && below + counts[i] >= wanted) {
      return lower + (now.bounds[i] - lower) * (wanted - below) / counts[i];
    }
    below += counts[i];
    lower = now.bounds[i];
  }
  return lower;
}

function color(key) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${key}`).trim();
}

// Draws one cell in the colour of its state. A large cell also gets a mark, for people who cannot tell the colours.
function drawCell(context, state, x, y, size, colors) {
  const side = size - 1;
  context.fillStyle = colors[state];
  context.fillRect(x, y, side, side);
  if (size < 10) return;
  const middle = Math.floor(side / 2);
  context.fillStyle = colors.mark;
  if (state === 1) context.fillRect(x + 3, y + middle - 1, side - 6, 2);
  if (state === 3) {
    context.fillRect(x + 3, y + middle - 1, side - 6, 2);
    context.fillRect(x + middle - 1, y + 3, 2, side - 6);
  }
  if (state === 4) context.fillRect(x + middle - 2, y + middle - 2, 5, 5);
}

function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

function palette() {
  const colors = STATES.map((state) => color(state.key));
  colors.mark = color("mark");
  return colors;
}

function drawMap(card, colors) {
  const {cells} = card.worker.map;
  const width = card.element.clientWidth - 26;
  const fitting = Math.floor(Math.sqrt(width * MAP_AREA / cells.length));
  const size = Math.min(Math.max(fitting, MIN_CELL), MAX_CELL);
  const columns = Math.max(Math.floor(width / size), 1);
  const rows = Math.ceil(cells.length / columns);
  const context = sized(card.map, columns * size, rows * size);
  for (let i = 0; i < cells.length; ++i) {
    const state = STATES.findIndex((s) => s.letter === cells[i]);
    drawCell(context, state, (i % columns) * size, Math.floor(i / columns) * size, size, colors);
  }
  card.map.dataset.columns = columns;
  card.map.dataset.size = size;
}

function drawLegend(card, colors) {
  const {counts} = card.worker.map;
  card.legend.replaceChildren(...STATES.map((state, i) => {
    const item = document.createElement("li");
    const swatch = document.createElement("canvas");
    drawCell(sized(swatch, 14, 14), i, 0, 0, 15, colors);
    const number = document.createElement("b");
    number.textContent = count(counts[i]);
    number.dataset.state = state.key;
    item.append(swatch, number, ` ${state.name} (${state.letter})`);
    return item;
  }));
}

function drawBar(card) {
  const {counts, num_blocks: total} = card.worker.map;
  const parts = BAR_ORDER.filter((i) => counts[i] > 0);
  while (card.bar.childElementCount < STATES.length) card.bar.append(document.createElement("div"));
  BAR_ORDER.forEach((i, place) => {
    const part = card.bar.children[place];
    part.style.flexGrow = counts[i];
    part.style.background = `var(--${STATES[i].key})`;
  });
  const text = parts.map((i) => `${Math.round(100 * counts[i] / total)}% ${STATES[i].name}`).join(", ");
  card.bar.setAttribute("aria-label", `Blocks: ${text}`);
  card.map.setAttribute("aria-label", `Map of ${total} blocks: ${text}`);
}

function blockAt(card, event) {
  const size = Number(card.map.dataset.size);
  const columns = Number(card.map.dataset.columns);
  const cell = Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size);
  if (event.offsetX >= columns * size || cell < 0 || cell >= card.worker.map.cells.length) return null;
  return cell;
}

function hover(card, event) {
  const cell = blockAt(card, event);
  if (cell === null) return;
  const {cells, blocks_per_cell: group, num_blocks: total} = card.worker.map;
  const first = cell * group;
  const last = Math.min(first + group, total) - 1;
  const state = STATES.find((s) => s.letter === cells[cell]).name;
  card.map.title = group === 1 ? `block ${first}: ${state}` : `blocks ${first}-${last}: mostly ${state}`;
}

function describe(block) {
  const owners = block.owners.map((owner) => `${owner.request} (sample ${owner.sample}, entry ${owner.entry})`);
  if (block.num_owners > owners.length) owners.push(`${block.num_owners - owners.length} more`);
  const parts = [`Block ${block.block}: ${STATES[block.state - 1].name}`,
    `${block.references} references`, `${block.pins} pins`];
  if (block.is_cached) parts.push(`cached at prefix depth ${block.depth}, last used ${block.age_steps} steps ago`);
  parts.push(owners.length > 0 ? `owners: ${owners.join(", ")}` : "no owners");
  return parts.join("; ");
}

async function pick(card, block) {
  card.pick.querySelector("input").value = block;
  const query = new URLSearchParams({worker: card.worker.address, block});
  try {
    const answer = await fetch(`block.json?${query}`);
    card.block.textContent = answer.ok ? describe(await answer.json()) : (await answer.text()).trim();
  } catch (error) {
    card.block.textContent = `The manager does not answer: ${error.message}`;
  }
}

function newCard() {
  const element = $("worker").content.firstElementChild.cloneNode(true);
  const card = {element};
  for (const part of element.querySelectorAll("[data-of]")) card[part.dataset.of] = part;
  card.map.addEventListener("mousemove", (event) => hover(card, event));
  card.map.addEventListener("click", (event) => {
    const cell = blockAt(card, event);
    if (cell !== null) pick(card, cell * card.worker.map.blocks_per_cell);
  });
  card.pick.addEventListener("submit", (event) => {
    event.preventDefault();
    pick(card, card.pick.querySelector("input").value);
  });
  $("workers").append(element);
  return card;
}

function badge(element, text, kind) {
  element.textContent = text;
  element.className = `badge ${kind}`;
}

function drawRanks(card, ranks) {
  card.ranks.hidden = ranks.length === 0;
  card.ranks.replaceChildren(...ranks.map((rank, number) => {
    const item = document.createElement("li");
    const more = rank.state === "ready" ? rank.device : rank.error;
    item.textContent = `rank ${number} at ${rank.address} is ${rank.state}` + (more ? `: ${more}` : "");
    return item;
  }));
}

function drawWorker(card, worker, before, now) {
  card.worker = worker;
  card.address.textContent = worker.address;
  badge(card.state, worker.state, worker.state === "ready" ? "good" : "bad");
  const old = before && before.workers.find((w) => w.address === worker.address);
  const span = before ? (now.time_us - before.time_us) / 1e6 : 0;
  const steps = old && old.epoch === worker.epoch && span > 0 ? (worker.steps - old.steps) / span : null;
  const facts = [worker.device, `epoch ${worker.epoch}`, `step ${worker.map ? worker.map.step : worker.steps}`,
    `${rate(steps)} steps/s`, `${worker.running} running`, `${worker.waiting} waiting`,
    `${count(worker.preemptions)} preempted`];
  if (worker.generation > 0 && !worker.is_current) {
    facts.push(`old generation ${worker.generation} (model ${worker.model}): no new requests`);
  }
  if (worker.host_blocks > 0) facts.push(`host tier ${worker.host_used} of ${worker.host_blocks} blocks`);
  card.facts.textContent = facts.filter(Boolean).join(" \u00b7 ");
  card.error.hidden = !worker.error;
  card.error.textContent = worker.error || "";
  drawRanks(card, worker.ranks || []);
  for (const part of [card.bar, card.legend, card.map, card.pick]) part.hidden = !worker.map;
  if (!worker.map) return;
  const {num_blocks: total, blocks_per_cell: group} = worker.map;
  card.scale.textContent = `${count(total)} blocks of ${worker.block_size} tokens` +
    (group > 1 ? `, a cell is ${group} blocks in the state that most of them have` : "");
  card.pick.querySelector("input").max = total - 1;
  for (const part of card.pick.querySelectorAll("label, button, output")) part.hidden = !now.has_names;
  const colors = palette();
  drawBar(card);
  drawLegend(card, colors);
  drawMap(card, colors);
}

function drawWorkers(before, now) {
  const there = new Set(now.workers.map((worker) => worker.address));
  for (const [address, card] of cards) {
    if (there.has(address)) continue;
    card.element.remove();
    cards.delete(address);
  }
  for (const worker of now.workers) {
    if (!cards.has(worker.address)) cards.set(worker.address, newCard());
    drawWorker(cards.get(worker.address), worker, before, now);
  }
}

function drawRequests(now) {
  const {requests} = now;
  $("requests").hidden = !now.has_names || requests.length === 0;
  $("requests-note").textContent = !now.has_names ? now.why_no_names
    : requests.length === 0 ? "None." : now.num_requests > requests.length
      ? `${requests.length} of ${now.num_requests}` : "";
  $("requests").tBodies[0].replaceChildren(...requests.map((request) => {
    const row = document.createElement("tr");
    for (const value of [request.id, request.tenant, request.state, duration(request.age_ms),
      count(request.prompt_tokens), count(request.cached_tokens), count(request.generated_tokens),
      request.sequences, request.blocks, request.shared_blocks, request.worker]) {
      row.insertCell().textContent = value;
    }
    row.cells[0].title = request.id;
    return row;
  }));
}

function drawRates(before, now) {
  const span = before ? (now.time_us - before.time_us) / 1e6 : 0;
  const increase = (key) => span > 0 ? Math.max(now.totals[key] - before.totals[key], 0) : 0;
  const perSecond = (key) => span > 0 ? increase(key) / span : null;
  $("generated").textContent = rate(perSecond("generated_tokens"));
  $("prompt").textContent = rate(perSecond("prompt_tokens"));
  const started = increase("started_tokens");
  $("cached").textContent = started > 0 ? `${Math.round(100 * increase("cached_tokens") / started)}% cached` : "\u00a0";
  for (const name of ["ttft", "itl", "queue"]) {
    const old = before && before[name];
    $(`${name}50`).textContent = seconds(quantile(old, now[name], 0.5));
    $(`${name}95`).textContent = seconds(quantile(old, now[name], 0.95));
  }
  $("running").textContent = count(now.workers.reduce((sum, worker) => sum + worker.running, 0));
  $("waiting").textContent = count(now.workers.reduce((sum, worker) => sum + worker.waiting, 0));
  if (span > 0) spark.push(perSecond("generated_tokens"));
  if (spark.length > SPARK_SAMPLES) spark.shift();
  const most = Math.max(...spark, 1);
  $("line").setAttribute("points", spark.map((value, i) =>
    `${SPARK_SAMPLES - spark.length + i},${(23 - 22 * value / most).toFixed(1)}`).join(" "));
}

function draw(now) {
  // A manager that was restarted counts from 0 again.
  if (looks.length > 0 && looks[looks.length - 1].time_us > now.time_us) looks.length = 0;
  while (looks.length > 1 && looks[1].time_us <= now.time_us - RATE_WINDOW_US) looks.shift();
  const before = looks[0];
  looks.push(now);
  $("model").textContent = `${now.model || "model not known yet"} \u00b7 ${now.version} \u00b7 up ${
    duration(now.uptime_ms)}`;
  badge($("state"), now.is_draining ? "draining" : now.is_ready ? "ready" : "not ready", now.is_ready ? "good" : "bad");
  $("warnings").hidden = now.warnings.length === 0;
  $("warnings").textContent = now.warnings.join(" ");
  drawRates(before, now);
  drawWorkers(before, now);
  drawRequests(now);
  document.body.dataset.looks = Number(document.body.dataset.looks || 0) + 1;
}

function complain(text) {
  $("trouble").hidden = text === "";
  $("trouble").textContent = text;
}

async function look() {
  clearTimeout(timer);
  if (document.hidden || $("pause").checked) return;
  try {
    const answer = await fetch("status.json");
    const now = answer.ok ? await answer.json() : null;
    const age = Number(answer.headers.get("Age"));
    const stale = age > MAX_AGE_S ? `The step loops do not answer. This is the state ${duration(age * 1000)} ago.` : "";
    complain(answer.ok ? stale : (await answer.text()).trim());
    const isNew = now && (looks.length === 0 || now.time_us !== looks[looks.length - 1].time_us);
    if (isNew && !$("pause").checked) draw(now);  // Somebody may have paused meanwhile.
  } catch (error) {
    complain(`The manager does not answer: ${error.message}`);
  }
  clearTimeout(timer);
  timer = setTimeout(look, INTERVAL_MS);
}

function redraw() {
  const colors = palette();
  for (const card of cards.values()) {
    if (!card.worker.map) continue;
    drawLegend(card, colors);
    drawMap(card, colors);
  }
}

document.addEventListener("visibilitychange", look);
$("pause").addEventListener("change", look);
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
look();
