// All stages: what comes in, what waits, what is at risk, and what is wrong now.

import { h } from "./dom.js";
import { get } from "./server.js";
import { age, many, number, rate, short } from "./format.js";
import { bars, timeline } from "./charts.js";

const STAGES = {
  ingest: { title: "Ingest", link: "/buffers", unit: "message", waits: "in buffer files" },
  queues: { title: "Queues", link: "/queues", unit: "message", waits: "not read by all groups" },
  dispatch: { title: "Dispatch", link: "/queue-metrics", unit: "parcel", waits: "warm, cold or joining" },
  spark: { title: "Spark", link: "/flows", unit: "parcel", waits: "being worked on" },
  export: { title: "Export", link: "/destinations", unit: "item", waits: "on the way out" },
};
const LOOKS_OF_HISTORY = 2;

export const title = () => "Journey";

export async function load(page, last) {
  const turn = (last?.turn ?? -1) + 1;
  const isDue = !last || turn % LOOKS_OF_HISTORY === 0;
  const [now, history, ledger, latency] = await Promise.all([
    get("/api/v1/journey"),
    isDue ? get("/api/v1/journey/history") : last.history,
    isDue ? optional(get("/api/v1/ledger", { accounts: "false" })) : last.ledger,
    isDue ? optional(get("/api/v1/journey/latency")) : last.latency,
  ]);
  return { turn, now, history, ledger, latency };
}

const optional = (request) => request.catch((error) => { if (error.status === 401) throw error; return null; });

export function draw(page, { now, history, ledger, latency }) {
  return [
    h("ol", { class: "stages" }, now.stages.map((stage) => card(stage, history))),
    now.exporting ? h("p", { class: "quiet" }, `${many(now.exporting, "parcel")} wait for their destination's yes.`) : null,
    h("section", { "aria-labelledby": "wrong" }, h("h2", { id: "wrong" }, "What is wrong now"), troubles(now)),
    ledger && ledgerLine(ledger),
    h("section", { "aria-labelledby": "hour" }, h("h2", { id: "hour" }, "The last hour"), h("div", { class: "charts" },
      flowing(history, "queues", "Messages stored and finished", "stored", "finished"),
      waitingOf(history, "queues", "Messages that wait"),
      timeline({ label: "Parcels, warm and cold", times: history.times, stacked: true, text: short, lines: [
        { name: "warm", values: history.series["dispatch.warm"] ?? [], tone: "warm" },
        { name: "cold", values: history.series["dispatch.cold"] ?? [], tone: "cold" }] }),
      waitingOf(history, "export", "Items on the way out"),
      ...(latency?.histograms ?? []).filter((each) => each.count).map(distribution))),
  ];
}

function card(stage, history) {
  const own = STAGES[stage.name];
  const waiting = history.series[`${stage.name}.waiting`] ?? [];
  return h("li", { class: "stage", key: stage.name },
    h("h2", {}, h("a", { href: own.link }, own.title)),
    h("dl", {},
      h("dt", {}, "in"), h("dd", {}, rate(stage.inPerSecond)),
      h("dt", {}, "out"), h("dd", {}, rate(stage.outPerSecond)),
      h("dt", {}, "waiting"), h("dd", { title: `${many(stage.waiting, own.unit)} ${own.waits}` }, short(stage.waiting)),
      h("dt", {}, "oldest"), h("dd", {}, stage.waiting ? age(stage.oldestSeconds) : "–"),
      h("dt", {}, "at risk"), h("dd", { class: stage.atRisk ? "bad" : undefined, title: "In memory or in a buffer file only" }, short(stage.atRisk))),
    timeline({ label: "waiting", times: history.times, text: short, height: 36, lines: [{ name: "", values: waiting, tone: "first" }] }));
}

function troubles({ troubles: found }) {
  if (!found.length) return h("p", { class: "banner good" }, "Nothing: every stage takes, works and gives.");
  return h("ul", { class: "troubles" }, found.map((trouble) =>
    h("li", { class: trouble.severity }, h("span", { class: "word" }, trouble.severity), h("span", {}, trouble.text), h("a", { href: trouble.link, "aria-label": `See: ${trouble.text}` }, "See →"))));
}

const flowing = (history, stage, label, come, go) => timeline({ label, times: history.times, text: rate, lines: [
  { name: come, values: history.series[`${stage}.in`] ?? [], tone: "first" },
  { name: go, values: history.series[`${stage}.out`] ?? [], tone: "second" }] });

const waitingOf = (history, stage, label) => timeline({ label, times: history.times, text: short, lines: [
  { name: "waiting", values: history.series[`${stage}.waiting`] ?? [], tone: "first" }] });

const TIMES = {
  push: "a push until it is durable", pop: "a pop", queue: "a message in its queue", commit: "a commit of the store", append: "a record of the log",
  sync: "a sync of the log", action: "an action", export: "a batch on its way",
};

function distribution({ name, count, buckets, p50, p99 }) {
  return bars({ label: `Time of ${TIMES[name] ?? name}`, note: `half within ${age(p50)}, 99 % within ${age(p99)}, of ${number(count)}`, buckets: buckets.map((bucket) => ({ label: bucket.le === null ? "more" : age(bucket.le), count: bucket.count })) });
}

const LEDGER = { queue: "Queues", group: "Groups", flow: "Flows", "send queue": "Send queues" };

function ledgerLine(ledger) {
  return h("section", { "aria-labelledby": "ledger" }, h("h2", { id: "ledger" }, "Ledger"),
    ledger.balanced ? null : h("ul", { class: "troubles" }, ledger.differences.map((text) => h("li", { class: "broken" }, h("span", { class: "word" }, "broken"), h("span", {}, text)))),
    h("p", { class: `banner ${ledger.balanced ? "good" : "bad"}` }, ledger.balanced ? "Balanced: what was accepted is all accounted for." : "Not balanced. Count again from storage with: forebay audit"),
    h("dl", { class: "ledger" }, ledger.totals.filter((total) => total.accepted).map((total) => [
      h("dt", {}, LEDGER[total.stage] ?? total.stage),
      h("dd", {}, `${number(total.accepted)} ${total.unit} accepted = ${Object.entries(total.parts).filter(([, count]) => count).map(([name, count]) => `${number(count)} ${name}`).join(" + ") || "0"}`)])));
}
