// What waits for workers, warm and cold, by flow and action; and what runs.

import { h } from "./dom.js";
import { get, segment } from "./server.js";
import { age, ago, clock, number, since } from "./format.js";
import { field, table, toggle } from "./table.js";

const LONG_MS = 5 * 60_000;

export const title = () => "Queue metrics";

export async function load() {
  const [detailed, running, plugins] = await Promise.all([
    get("/api/v2/metrics/queues/detailed"), get("/api/v2/metrics/queues/running"),
    get("/api/v2/metrics/queues/action-plugins").catch((error) => { if (error.status === 401) throw error; return {}; }),
  ]);
  return { detailed, running, plugins };
}

export function draw(page, { detailed, running, plugins }) {
  const isGrouped = page.query.get("group") === "1";
  const search = (page.query.get("search") ?? "").toLowerCase();
  const all = joined(detailed);
  const found = all.filter((row) => [row.flow, row.type, row.action, row.actionClass].some((text) => text.toLowerCase().includes(search)));
  const rows = isGrouped ? byClass(found) : found;
  const now = Date.parse(detailed.timestamp);
  const total = (name) => number(found.reduce((sum, row) => sum + row[name], 0));
  return [
    h("div", { class: "filters" }, field(page, "search", "Filter"), toggle(page, "group", "Group by action class")),
    h("section", { "aria-labelledby": "waiting" }, h("h2", { id: "waiting" }, "Action queues"),
      h("p", { class: "quiet" }, `${total("warm")} warm and ${total("cold")} cold parcels wait. Figures of ${clock(detailed.timestamp)}.`),
      table(page, {
        label: "Action queues", rows, sort: "-total", key: (row) => `${row.actionClass}|${row.flow}|${row.action}`,
        empty: all.length ? "No queue fits the filter." : "No parcel waits.",
        columns: [
          ...(isGrouped ? [{ name: "flow", title: "Flows", value: (row) => row.flows, numeric: true }] : [
            { name: "flow", title: "Flow", value: (row) => row.flow, cell: (row) => h("a", { href: `/parcels?flow=${segment(row.flow)}` }, row.flow) },
            { name: "type", title: "Type", value: (row) => row.type },
            { name: "action", title: "Action", value: (row) => row.action }]),
          { name: "class", title: "Action class", value: (row) => row.actionClass, cell: (row) => h("span", { class: "hint", tabindex: "0", title: plugins[row.actionClass] ? `from ${plugins[row.actionClass]}` : "it is not known what provides it" }, row.actionClass) },
          { name: "warm", title: "Warm", value: (row) => row.warm, cell: (row) => number(row.warm), numeric: true },
          { name: "cold", title: "Cold", value: (row) => row.cold, cell: (row) => h("span", { class: row.cold ? "cold" : undefined }, number(row.cold)), numeric: true },
          { name: "total", title: "Total", value: (row) => row.total, cell: (row) => number(row.total), numeric: true },
          { name: "oldest", title: "Oldest", value: (row) => since(row.oldest, now), cell: (row) => h("span", { title: clock(row.oldest) }, ago(row.oldest, now)), numeric: true },
        ] })),
    h("details", { class: "panel", id: "running" },
      h("summary", {}, h("h2", {}, `Running tasks (${running.tasks.length})`)),
      table(page, {
        label: "Running tasks", name: "running", rows: running.tasks, sort: "-duration", key: (task) => `${task.did}|${task.actionName}`, empty: "No action runs.",
        columns: [
          { name: "did", title: "DID", value: (task) => task.did, cell: (task) => h("a", { href: `/parcels/${segment(task.did)}` }, task.did) },
          { name: "task", title: "Action", value: (task) => task.actionName },
          { name: "taskclass", title: "Action class", value: (task) => task.actionClass },
          { name: "duration", title: "Duration", value: (task) => task.runningForMs, cell: (task) => h("span", { class: task.runningForMs > LONG_MS ? "warn" : undefined }, age(task.runningForMs / 1000), task.runningForMs > LONG_MS && h("span", { class: "unseen" }, " (long)")), numeric: true },
          { name: "started", title: "Started", value: (task) => task.startTime, cell: (task) => clock(task.startTime) },
          { name: "worker", title: "Worker", value: (task) => task.appName },
        ] }),
      h("p", { class: "quiet" }, `A worker counts as stale after ${age(running.heartbeatThresholdMs / 1000)} without a heartbeat. Tasks of more than five minutes are marked.`)),
  ];
}

function joined({ warmQueues, coldQueues }) {
  const rows = new Map();
  for (const [tier, list] of [["warm", warmQueues], ["cold", coldQueues]]) {
    for (const each of list) {
      const key = JSON.stringify([each.actionClass, each.flowName, each.actionName]);
      const row = rows.get(key) ?? { flow: each.flowName, type: each.flowType ?? "", action: each.actionName, actionClass: each.actionClass, warm: 0, cold: 0, total: 0, oldest: null };
      row[tier] += each.count;
      row.total += each.count;
      row.oldest = earliest(row.oldest, each.oldestQueuedAt);
      rows.set(key, row);
    }
  }
  return [...rows.values()];
}

function byClass(found) {
  const rows = new Map();
  for (const each of found) {
    const row = rows.get(each.actionClass) ?? { flow: "", action: "", actionClass: each.actionClass, names: new Set(), flows: 0, warm: 0, cold: 0, total: 0, oldest: null };
    row.flows = row.names.add(each.flow).size;
    for (const name of ["warm", "cold", "total"]) row[name] += each[name];
    row.oldest = earliest(row.oldest, each.oldest);
    rows.set(each.actionClass, row);
  }
  return [...rows.values()];
}

const earliest = (a, b) => (!a || (b && Date.parse(b) < Date.parse(a)) ? b : a);
