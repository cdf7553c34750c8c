// Destinations and exports: what waits, why it waits, and what was refused.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { age, ago, bytes, clock, many, number, short } from "./format.js";
import { table } from "./table.js";
import { act, confirm } from "./dialog.js";
import { stateOf } from "./states.js";

export const title = () => "Destinations";

export async function load(page) {
  const { exports } = await get("/api/v1/exports");
  const chosen = page.query.get("letters");
  const letters = chosen ? (await get(`/api/v1/exports/${segment(chosen)}/dead-letters`)).letters : null;
  return { exports, chosen, letters };
}

export function draw(page, { exports, chosen, letters }) {
  const now = Date.now();
  return [
    table(page, { label: "Destinations and exports", rows: exports, sort: "-waiting", key: (row) => `${row.kind}|${row.name}`, empty: "Nothing leaves this server: no destination is configured.", columns: [
      { name: "name", title: "Name", value: (row) => row.name, cell: (row) => [row.name, h("br"), h("span", { class: "quiet" }, `${row.kind === "export" ? "export to " + row.destination : row.kind}, from ${row.source}`)] },
      { name: "breaker", title: "Breaker", value: (row) => row.breaker, cell: (row) => [stateOf(row.breaker), row.paused ? [" ", stateOf("paused")] : null, row.retrySeconds ? h("div", { class: "quiet" }, `again in ${age(row.retrySeconds)}`) : null] },
      { name: "waiting", title: "Waiting", value: (row) => row.waiting, cell: (row) => [short(row.waiting), row.waitingBytes !== null ? h("div", { class: "quiet" }, bytes(row.waitingBytes)) : null], numeric: true },
      { name: "oldest", title: "Oldest", value: (row) => row.oldestAt, cell: (row) => (row.oldestAt ? ago(row.oldestAt, now) : "–"), numeric: true },
      { name: "sent", title: "Sent", value: (row) => row.sentItems, cell: (row) => [short(row.sentItems), h("div", { class: "quiet" }, many(row.sent, "request"))], numeric: true },
      { name: "retried", title: "Retried", value: (row) => row.retried, cell: (row) => number(row.retried), numeric: true },
      { name: "backoff", title: "Backoff", value: (row) => row.backoffSeconds, cell: (row) => (row.backoffSeconds ? age(row.backoffSeconds) : "–"), numeric: true },
      { name: "dead", title: "Dead", value: (row) => row.dead, cell: (row) => deadOf(row), numeric: true },
      { name: "dropped", title: "Dropped", value: (row) => row.dropped, cell: (row) => h("span", { class: row.dropped ? "bad" : undefined }, number(row.dropped)), numeric: true },
      { name: "error", title: "Errors", value: (row) => row.lastError, cell: (row) => [Object.entries(row.errors ?? {}).map(([name, count]) => h("span", { class: "state" }, `${name} ${number(count)}`)), row.lastError ? h("pre", { tabindex: "0" }, row.lastError) : null] },
      ...(page.can("admin") ? [{ name: "do", title: "Do", cell: (row) => (row.paused
        ? h("button", { type: "button", class: "primary", "aria-label": `Resume ${row.name}`, onclick: () => act(page, `${row.name} sends again.`, () => post(`/api/v1/exports/${segment(row.name)}/resume`)) }, "Resume")
        : h("button", { type: "button", "aria-label": `Pause ${row.name}`, onclick: () => pause(page, row.name) }, "Pause…")) }] : []),
    ] }),
    letters ? deadLetters(page, chosen, letters) : null,
  ];
}

function deadOf(row) {
  if (!row.dead && !row.deadLetters) return "0";
  if (row.kind === "export") {
    const [queue, group] = row.source.split("@");
    return h("a", { class: "warn", href: `/dead-letters?queue=${segment(queue)}&consumerGroup=${segment(group)}` }, number(row.dead));
  }
  return h("a", { class: row.deadLetters ? "warn" : undefined, href: `/destinations?letters=${segment(row.name)}` }, number(row.deadLetters ?? row.dead));
}

function deadLetters(page, name, letters) {
  const path = `/api/v1/exports/${segment(name)}/dead-letters`;
  return h("section", { "aria-labelledby": "letters" }, h("h2", { id: "letters" }, `Dead letters of ${name}`),
    letters.length && page.can("admin") ? h("p", { class: "buttons" },
      h("button", { type: "button", class: "primary", onclick: () => confirm(page, { title: `Replay dead letters of ${name}`, text: "They go to the end of its send queue, the oldest first.", preview: () => `${many(letters.length, "batch", "batches")} will be sent again.`, button: "Replay", run: async () => `${many((await post(`${path}/replay`)).count, "batch", "batches")} queued again.` }) }, `Replay ${letters.length}…`),
      h("button", { type: "button", class: "danger", onclick: () => confirm(page, { title: `Purge dead letters of ${name}`, text: "What they held is lost.", preview: () => `${many(letters.length, "batch", "batches")} will be deleted.`, button: "Purge", isDangerous: true, run: async () => `${many((await post(`${path}/purge`)).count, "batch", "batches")} deleted.` }) }, `Purge ${letters.length}…`)) : null,
    table(page, { label: `Dead letters of ${name}`, name: "letters-sort", rows: letters, key: (row) => row.id, empty: "There are none.", columns: [
      { name: "at", title: "Since", value: (row) => row.buriedAt, cell: (row) => clock(row.buriedAt) },
      { name: "error", title: "Error", value: (row) => row.error, cell: (row) => h("span", { class: "state" }, row.error) },
      { name: "message", title: "Answer", value: (row) => row.message },
      { name: "attempts", title: "Attempts", value: (row) => row.attempts, numeric: true },
      { name: "items", title: "Items", value: (row) => row.items, cell: (row) => number(row.items), numeric: true },
      { name: "size", title: "Size", value: (row) => row.size, cell: (row) => bytes(row.size), numeric: true },
    ] }));
}

const pause = (page, name) => confirm(page, { title: `Pause ${name}`, text: "Nothing is sent until it is resumed, on all servers; what is under way is finished. Nothing is lost: it waits.", button: "Pause",
  run: async () => { await post(`/api/v1/exports/${segment(name)}/pause`); return `${name} is paused.`; } });
