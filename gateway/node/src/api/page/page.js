// A node's own page: its links, its clients' throughput, the end of its log.
//
// All texts are set by textContent: a name is never markup.

import { chart } from "./chart.js";
import { expected, rate, size, span } from "./figures.js";
import { isRunning, rows, said } from "./speed.js";

const TOKEN = "underpass-token";
// The node is asked this often, ms.
const STATUS_MS = 2000;
const THROUGHPUT_MS = 5000;
const LOG_MS = 3000;
const SPEED_MS = 1000;
// What is shown at most: a hub has hundreds of paths.
const MOST_PATHS = 50;
const MOST_LINES = 400;

/**
 * @typedef {object} Path
 * @property {string} name
 * @property {number} neighbour
 * @property {boolean} up
 * @property {boolean} blocked
 * @property {import("./figures.js").Link} link
 * @property {number | null} rate_bps
 * @property {{capacity_bps: number | null, base_rtt_ms: number | null, queue_ms: number, loss: number}} measured
 */
/**
 * @typedef {object} Status
 * @property {string} node
 * @property {string} role
 * @property {string} version
 * @property {number} uptime_s
 * @property {Path[]} paths
 * @property {string[]} classes
 * @property {Record<string, {open: number, backlog_bytes: number}>} streams
 * @property {{classes: Record<string, {custody_bytes: number}>}} custody
 */
/**
 * @typedef {object} Throughput
 * @property {number} interval_s
 * @property {number} intervals
 * @property {Record<string, {sent_bps: number[], received_bps: number[]}>} classes
 */

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind */
function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${id}`);
  return element;
}

const signIn = byId("sign-in", HTMLFormElement);
const token = byId("token", HTMLInputElement);
const refused = byId("refused", HTMLElement);
const page = byId("page", HTMLElement);
const state = byId("state", HTMLElement);
const signOut = byId("sign-out", HTMLButtonElement);
const filter = byId("with", HTMLInputElement);
const speedBegin = byId("speed-begin", HTMLButtonElement);
const speedEnd = byId("speed-end", HTMLButtonElement);

// The node does not know this token, or does not let it ask this.
class Refused extends Error {}

// The node's clock minus this browser's, ms: the browser's may be hours off.
let clock_ms = 0;
/** @type {Throughput | null} */
let throughput = null;
/** @type {string[]} */
let lines = [];
let nextLine = 0;
let answered = performance.now();
// Which sign-in the running requests belong to.
let session = 0;

/** @param {string} path @param {RequestInit} [more] @returns {Promise<any>} */
async function ask(path, more = {}) {
  const bearer = `Bearer ${sessionStorage.getItem(TOKEN)}`;
  const headers = { "Content-Type": "application/json", Authorization: bearer };
  const timeout = AbortSignal.timeout(20_000);
  const answer = await fetch(path, { signal: timeout, cache: "no-store", ...more, headers });
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isFinite(date)) clock_ms = date - Date.now();
  const body = answer.status === 204 ? null : await answer.json();
  if (answer.ok) return body;
  const detail = String(body.detail ?? answer.status);
  if ([401, 403, 429].includes(answer.status)) throw new Refused(detail);
  throw new Error(detail);
}

/** @param {string} name @param {string} text @param {string} [className] */
function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className !== "") made.className = className;
  return made;
}

/** @param {Path} path */
function card(path) {
  const made = element("article", "", "card");
  const head = element("header", "");
  const [word, mood] = path.blocked ? ["blocked", "bad"] : path.up ? ["up", "good"] : ["down", "bad"];
  head.append(element("h3", path.name), element("span", word, `badge ${mood}`));
  const facts = document.createElement("dl");
  const fact = (/** @type {string} */ name, /** @type {string | null} */ text, mood = "") => {
    if (text !== null) facts.append(element("dt", name), element("dd", text, mood));
  };
  const { link, measured } = path;
  const ahead = expected(path.blocked, link, Date.now() + clock_ms);
  fact("To", `ipn:${path.neighbour}.0`);
  fact("Blocked by", link.blocked_by && `${link.blocked_by}, for ${span(link.blocked_s ?? 0)}`, "bad");
  fact("Blockage", ahead, "ahead");
  fact("Rate", path.rate_bps === null ? "unlimited" : rate(path.rate_bps));
  fact("Carries", measured.capacity_bps === null ? null : rate(measured.capacity_bps));
  fact("Round trip", measured.base_rtt_ms === null ? null : `${measured.base_rtt_ms.toFixed(0)} ms`);
  fact("Queue", `${measured.queue_ms.toFixed(0)} ms`);
  fact("Loss", `${(measured.loss * 100).toFixed(1)} %`);
  fact("Last heard", link.silence_s === null ? "never" : `${span(link.silence_s)} ago`);
  made.append(head, facts);
  return made;
}

/** @param {Status} status */
function showStatus(status) {
  document.title = `${status.node} · Underpass`;
  byId("node", HTMLElement).textContent = status.node;
  const about = `${status.role}, version ${status.version}, up ${span(status.uptime_s)}`;
  byId("about", HTMLElement).textContent = about;
  const cards = status.paths.slice(0, MOST_PATHS).map(card);
  const left = status.paths.length - cards.length;
  if (left > 0) cards.push(element("p", `and ${left} more`));
  if (status.paths.length === 0) cards.push(element("p", "No path is known yet."));
  byId("links", HTMLElement).replaceChildren(...cards);
  const rows = status.classes.map((name) => {
    const row = document.createElement("tr");
    const head = element("th", name);
    head.setAttribute("scope", "row");
    const curve = throughput?.classes[name];
    const known = (/** @type {number[] | undefined} */ bps) => {
      const latest = bps?.at(-1);
      return latest === undefined ? "-" : rate(latest);
    };
    const cells = [
      String(status.streams[name]?.open ?? 0),
      known(curve?.sent_bps),
      known(curve?.received_bps),
      size(status.streams[name]?.backlog_bytes ?? 0),
      size(status.custody.classes[name]?.custody_bytes ?? 0),
    ];
    row.append(head, ...cells.map((text) => element("td", text, "number")));
    return row;
  });
  byId("classes", HTMLElement).replaceChildren(...rows);
}

/** @param {Throughput} now */
function showThroughput(now) {
  throughput = now;
  /** @param {"sent_bps" | "received_bps"} direction */
  const sum = (direction) => {
    const curves = Object.values(now.classes).map((one) => one[direction]);
    const length = Math.max(0, ...curves.map((curve) => curve.length));
    return Array.from({ length }, (_, place) =>
      curves.reduce((total, curve) => total + (curve[place] ?? 0), 0),
    );
  };
  const figure = chart(sum("sent_bps"), sum("received_bps"), now.interval_s, now.intervals);
  byId("curve", HTMLElement).replaceChildren(figure);
}

function showLog() {
  const log = byId("log", HTMLElement);
  // Who reads what is older is not carried away.
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const wanted = filter.value.toLowerCase();
  log.textContent = lines.filter((line) => line.toLowerCase().includes(wanted)).join("\n");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

/** @param {{first: number, next: number, lines: string[]}} more */
function takeLog(more) {
  // A node that has started again counts anew.
  if (more.first !== nextLine) lines = [];
  nextLine = more.next;
  lines = [...lines, ...more.lines].slice(-MOST_LINES);
  if (more.lines.length > 0) showLog();
}

/** @param {import("./speed.js").Report} report */
function showSpeed(report) {
  byId("speed-state", HTMLElement).textContent = said(report);
  const made = rows(report).map((texts) => {
    const row = document.createElement("tr");
    const head = element("th", texts[0] ?? "");
    head.setAttribute("scope", "row");
    row.append(head, ...texts.slice(1).map((text) => element("td", text, "number")));
    return row;
  });
  byId("speed", HTMLElement).hidden = made.length === 0;
  byId("speed-rows", HTMLElement).replaceChildren(...made);
  speedBegin.disabled = isRunning(report);
  speedEnd.hidden = !isRunning(report);
}

async function testSpeed() {
  const mine = session;
  try {
    let report = await ask("/v1/speed-test", { method: "POST", body: "{}" });
    while (mine === session) {
      showSpeed(report);
      if (!isRunning(report)) return;
      await new Promise((resume) => setTimeout(resume, SPEED_MS));
      report = await ask("/v1/speed-test");
    }
  } catch (error) {
    // A token that may only read stays signed in.
    speedBegin.disabled = false;
    const why = error instanceof Error ? error.message : String(error);
    if (mine === session) byId("speed-state", HTMLElement).textContent = why;
  }
}

/** @param {string} why */
function toSignIn(why) {
  session += 1;
  sessionStorage.removeItem(TOKEN);
  page.hidden = true;
  signOut.hidden = true;
  signIn.hidden = false;
  refused.textContent = why;
  state.textContent = "";
  lines = [];
  nextLine = 0;
  byId("log", HTMLElement).textContent = "";
  byId("speed-state", HTMLElement).textContent = "";
  byId("speed", HTMLElement).hidden = true;
  token.focus();
}

/** A screen reader tells each change: what is the same is left alone. @param {string} text */
function tell(text) {
  if (state.textContent !== text) state.textContent = text;
}

/**
 * Asks again and again, until the user signs out; not while nobody looks.
 * @param {number} every_ms
 * @param {() => Promise<void>} once
 */
async function follow(every_ms, once) {
  const mine = session;
  while (mine === session) {
    try {
      if (!document.hidden) {
        await once();
        answered = performance.now();
      }
      if (mine === session) tell("");
    } catch (error) {
      if (mine !== session) return;
      if (error instanceof Refused) return toSignIn(error.message);
      const at = new Date(Date.now() + answered - performance.now());
      tell(`The node does not answer: figures are of ${at.toLocaleTimeString()}`);
    }
    await new Promise((resume) => setTimeout(resume, every_ms));
  }
}

function start() {
  if (sessionStorage.getItem(TOKEN) === null) return toSignIn("");
  session += 1;
  const mine = session;
  answered = performance.now();
  signIn.hidden = true;
  const still = (/** @type {() => void} */ show) => {
    if (mine === session) show();
  };
  let others = false;
  void follow(STATUS_MS, async () => {
    const status = await ask("/v1/status");
    still(() => {
      page.hidden = false;
      signOut.hidden = false;
      showStatus(status);
      // Not before: a wrong token counts as one guess.
      if (!others) followOthers(still);
      others = true;
    });
  });
}

/** @param {(show: () => void) => void} still */
function followOthers(still) {
  void follow(THROUGHPUT_MS, async () => {
    const now = await ask("/v1/throughput");
    still(() => showThroughput(now));
  });
  void follow(LOG_MS, async () => {
    const more = await ask(`/v1/log?from=${nextLine}`);
    still(() => takeLog(more));
  });
}

signIn.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = token.value.trim();
  token.value = "";
  // No header could carry others.
  if (!/^[!-~]+$/.test(text)) return toSignIn("a token has no spaces, and letters without accents");
  sessionStorage.setItem(TOKEN, text);
  refused.textContent = "";
  start();
});
signOut.addEventListener("click", () => toSignIn(""));
speedBegin.addEventListener("click", () => void testSpeed());
speedEnd.addEventListener("click", () => {
  // What became of it shows the next look.
  ask("/v1/speed-test", { method: "DELETE" }).catch(() => undefined);
});
filter.addEventListener("input", showLog);
start();
