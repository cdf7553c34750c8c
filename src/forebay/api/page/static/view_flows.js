// Flows of dispatch, streaming queries, and the workers that serve them.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { age, ago, many, number, rate, short } from "./format.js";
import { table } from "./table.js";
import { act, confirm } from "./dialog.js";
import { stateOf } from "./states.js";

export const title = () => "Flows";

export async function load() {
  const [dispatch, reports, running] = await Promise.all([get("/api/v1/dispatch/flows"), get("/api/v1/flows"), get("/api/v2/metrics/queues/running")]);
  return { dispatch: dispatch.flows, reports: reports.flows, tasks: running.tasks };
}

export function draw(page, { dispatch, reports, tasks }) {
  const onParcels = new Set(dispatch.map((flow) => flow.name));
  const byName = new Map(reports.map((each) => [each.report.name, each]));
  return [
    h("section", { "aria-labelledby": "parcels" }, h("h2", { id: "parcels" }, "On parcels"), parcelFlows(page, dispatch, byName, tasks)),
    h("section", { "aria-labelledby": "streams" }, h("h2", { id: "streams" }, "Streaming queries"), streams(page, reports.filter((each) => !onParcels.has(each.report.name)))),
    h("section", { "aria-labelledby": "workers" }, h("h2", { id: "workers" }, "Workers"), workers(page, reports, tasks)),
  ];
}

function parcelFlows(page, flows, reports, tasks) {
  const counted = (flow, state, count) => (count ? h("a", { href: `/parcels?flow=${segment(flow.name)}&state=${state}` }, number(count)) : "0");
  return table(page, { label: "Flows on parcels", rows: flows, sort: "flow", key: (row) => row.name, empty: "There is no flow on parcels.", columns: [
    { name: "flow", title: "Flow", value: (row) => row.name, cell: (row) => h("a", { href: `/parcels?flow=${segment(row.name)}` }, row.name) },
    { name: "state", title: "State", value: (row) => row.state, cell: (row) => [stateOf(row.state), row.reason ? h("span", { class: "quiet" }, ` ${row.reason}`) : null, cause(reports.get(row.name))] },
    { name: "warm", title: "Warm", value: (row) => row.queued, cell: (row) => counted(row, "QUEUED", row.queued), numeric: true },
    { name: "cold", title: "Cold", value: (row) => row.cold, cell: (row) => counted(row, "COLD_QUEUED", row.cold), numeric: true },
    { name: "leased", title: "Leased", value: (row) => row.leased, cell: (row) => counted(row, "LEASED", row.leased), numeric: true },
    { name: "joining", title: "Joining", value: (row) => row.joining, cell: (row) => counted(row, "JOINING", row.joining), numeric: true },
    { name: "exporting", title: "Exporting", value: (row) => row.exporting, cell: (row) => counted(row, "EXPORTING", row.exporting), numeric: true },
    { name: "errors", title: "Errors", value: (row) => row.errors, cell: (row) => h("span", { class: row.errors ? "bad" : undefined }, counted(row, "ERROR", row.errors)), numeric: true },
    { name: "bad", title: "Bad records", value: (row) => reports.get(row.name)?.report.badRows ?? 0, cell: (row) => badOf(reports.get(row.name)?.report), numeric: true },
    { name: "uncut", title: "Waits to be cut", value: (row) => row.waitingSince, cell: (row) => (row.waitingSince ? ago(row.waitingSince) : "–") },
    { name: "workers", title: "Workers", value: (row) => workersOf(row, reports, tasks).join(", ") },
    ...(page.can("admin") ? [{ name: "do", title: "Do", cell: (row) => h("div", { class: "buttons" },
      row.state === "RUNNING" ? h("button", { type: "button", "aria-label": `Pause ${row.name}`, onclick: () => pause(page, "dispatch/flows", row.name) }, "Pause…") : h("button", { type: "button", class: "primary", "aria-label": `Resume ${row.name}`, onclick: () => go(page, "dispatch/flows", row.name) }, "Resume"),
      row.state !== "STOPPED" ? h("button", { type: "button", "aria-label": `Stop ${row.name}`, onclick: () => stop(page, row.name) }, "Stop…") : null) }] : []),
  ] });
}

const workersOf = (flow, reports, tasks) => {
  const names = new Set(tasks.filter((task) => flow.definition?.steps?.some((step) => step.actionClass === task.actionClass) ?? false).map((task) => task.appName));
  const report = reports.get(flow.name)?.report;
  if (report?.host) names.add(`${report.host}:${report.pid}`);
  return [...names];
};

// Records that were set aside are messages of the flow's error queue.
function badOf(report) {
  if (!report) return "–";
  const bad = report.badRows && report.errorQueue ? h("a", { class: "warn", href: `/queues/${segment(report.errorQueue)}` }, number(report.badRows)) : number(report.badRows);
  return report.skippedRows ? [bad, h("div", { class: "quiet" }, `${number(report.skippedRows)} skipped`)] : bad;
}

const cause = (each) => (each?.report.cause ? h("pre", { class: "bad", tabindex: "0" }, each.report.cause) : null);

function streams(page, flows) {
  return table(page, { label: "Streaming queries", name: "streams", rows: flows, sort: "flow", key: (row) => row.report.name, empty: "No worker has reported a streaming query.", columns: [
    { name: "flow", title: "Flow", value: (row) => row.report.name },
    { name: "state", title: "State", value: (row) => row.report.state, cell: (row) => [stateOf(row.report.state), row.report.note ? h("span", { class: "quiet" }, ` ${row.report.note}`) : null, cause(row)] },
    { name: "lag", title: "Behind by", value: (row) => row.report.lag, cell: (row) => (row.report.lag === null ? "not known" : short(row.report.lag)), numeric: true },
    { name: "rate", title: "Rows/s", value: (row) => row.report.rowsPerSecond, cell: (row) => rate(row.report.rowsPerSecond), numeric: true },
    { name: "rows", title: "Rows", value: (row) => row.report.rows, cell: (row) => short(row.report.rows), numeric: true },
    { name: "batch", title: "Last batch", value: (row) => row.report.batchSeconds, cell: (row) => age(row.report.batchSeconds), numeric: true },
    { name: "bad", title: "Bad records", value: (row) => row.report.badRows, cell: (row) => badOf(row.report), numeric: true },
    { name: "restarts", title: "Restarts", value: (row) => row.report.restarts, numeric: true },
    { name: "worker", title: "Worker", value: (row) => row.report.host, cell: (row) => (row.report.host ? `${row.report.host}:${row.report.pid}` : "–") },
    ...(page.can("admin") ? [{ name: "do", title: "Do", cell: (row) => (row.isPaused || row.report.state === "failed"
      ? h("button", { type: "button", class: "primary", "aria-label": `Resume ${row.report.name}`, onclick: () => go(page, "flows", row.report.name) }, "Resume")
      : h("button", { type: "button", "aria-label": `Pause ${row.report.name}`, onclick: () => pause(page, "flows", row.report.name) }, "Pause…")) }] : []),
  ] });
}

function workers(page, reports, tasks) {
  const found = new Map();
  const of = (name) => found.get(name) ?? found.set(name, { name, tasks: 0, longest: 0, flows: [], heard: null }).get(name);
  for (const task of tasks) { const row = of(task.appName); row.tasks += 1; row.longest = Math.max(row.longest, task.runningForMs / 1000); }
  for (const { report, updatedAt } of reports) {
    if (!report.host) continue;
    const row = of(`${report.host}:${report.pid}`);
    row.flows.push(report.name);
    if (updatedAt > (row.heard ?? "")) row.heard = updatedAt;
  }
  return table(page, { label: "Workers", name: "workers", rows: [...found.values()], sort: "worker", key: (row) => row.name, empty: "No worker is heard. Start one with: forebay worker -c forebay.yaml", columns: [
    { name: "worker", title: "Worker", value: (row) => row.name },
    { name: "flows", title: "Flows", value: (row) => row.flows.join(", ") },
    { name: "tasks", title: "Tasks now", value: (row) => row.tasks, numeric: true },
    { name: "longest", title: "Longest", value: (row) => row.longest, cell: (row) => (row.tasks ? age(row.longest) : "–"), numeric: true },
    { name: "heard", title: "Heard", value: (row) => row.heard, cell: (row) => (row.heard ? `${ago(row.heard)} ago` : "at work") },
  ] });
}

const go = (page, of, name) => act(page, `${name} runs.`, () => post(`/api/v1/${of}/${segment(name)}/resume`));
const pause = (page, of, name) => confirm(page, { title: `Pause ${name}`, text: "What waits goes on to wait; what runs now ends first. Its source takes pushes as before.", button: "Pause",
  run: async () => { await post(`/api/v1/${of}/${segment(name)}/pause`); return `${name} is paused.`; } });
const stop = (page, name) => confirm(page, { title: `Stop ${name}`, text: "No more parcels are cut from its source until it is resumed; the source takes pushes as before. Parcels that there are go on.", button: "Stop", isDangerous: true,
  run: async () => { await post(`/api/v1/dispatch/flows/${segment(name)}/stop`); return `${many(1, "flow")} stopped: ${name}.`; } });
