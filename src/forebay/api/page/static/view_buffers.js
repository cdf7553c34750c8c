// Buffer files, what damage has taken, and maintenance.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { age, bytes, clock, many, number } from "./format.js";
import { table } from "./table.js";
import { confirm } from "./dialog.js";

export const title = () => "Buffers and maintenance";

export async function load() {
  const [buffers, lost, maintenance] = await Promise.all([
    get("/api/v1/status/buffers"), optional(get("/api/v1/status/lost", { limit: 100 })), optional(get("/api/v1/system/maintenance"))]);
  return { buffers, lost, maintenance };
}

// While the store is away there are no figures of these, and the buffers are what matters.
const optional = (request) => request.catch((error) => { if (error.status === 401) throw error; return null; });

export function draw(page, { buffers, lost, maintenance }) {
  return [
    h("p", { class: `banner ${buffers.dbHealthy ? "good" : "bad"}` }, buffers.recovering ?? (buffers.dbHealthy ? "The store answers: pushes are stored at once." : `The store does not answer: pushes are kept in buffer files. ${buffers.reason ?? ""}`)),
    h("div", { class: "cards" }, [
      ["messages wait", number(buffers.pending)], ["could not be stored", number(buffers.failed)], ["in files", bytes(buffers.bytes)],
      ["oldest", buffers.pending ? age(buffers.oldestSeconds) : "–"], ["partitions held", number(buffers.partitionsHeld)],
      ...Object.entries(buffers.byKind).map(([kind, count]) => [kind, number(count)]),
    ].map(([name, value]) => h("div", { class: "fact" }, h("b", {}, value), h("span", {}, name)))),
    h("section", { "aria-labelledby": "by-queue" }, h("h2", { id: "by-queue" }, "By queue"),
      table(page, { label: "Buffered messages by queue", rows: Object.entries(buffers.queues), key: ([name]) => name, sort: "-count", empty: "Nothing is buffered.", columns: [
        { name: "queue", title: "Queue", value: ([name]) => name, cell: ([name]) => h("a", { href: `/queues/${segment(name)}` }, name) },
        { name: "count", title: "Messages", value: ([, count]) => count, cell: ([, count]) => number(count), numeric: true }] })),
    buffers.failedFiles.length || buffers.damagedFiles.length ? h("section", { "aria-labelledby": "failed" }, h("h2", { id: "failed" }, "Set aside"),
      h("p", {}, "Look at them and send them again with ", h("code", {}, "forebay buffers list"), " and ", h("code", {}, "forebay buffers retry"), " on the server's machine."),
      h("ul", {}, buffers.failedFiles.map((file) => h("li", {}, `${file.name}: ${bytes(file.bytes)} of queue ${file.queue}`)), buffers.damagedFiles.map((name) => h("li", { class: "bad" }, `${name}: damaged bytes, kept aside`)))) : null,
    h("section", { "aria-labelledby": "lost" }, h("h2", { id: "lost" }, "Lost to damage"),
      lost === null ? h("p", { class: "quiet" }, "Not known while the store is away.") : table(page, { label: "Lost messages", name: "lost", rows: lost.lost, key: (row) => `${row.queue}|${row.partition}|${row.firstSeq}`, empty: "Nothing that was accepted is lost.", columns: [
        { name: "queue", title: "Queue", value: (row) => row.queue }, { name: "partition", title: "Partition", value: (row) => row.partition ?? "not known" },
        { name: "first", title: "From seq", value: (row) => row.firstSeq, numeric: true }, { name: "last", title: "to", value: (row) => row.lastSeq, numeric: true },
        { name: "messages", title: "Messages", value: (row) => row.messages, numeric: true }, { name: "reason", title: "Reason", value: (row) => row.reason }, { name: "found", title: "Found", value: (row) => row.foundAt, cell: (row) => clock(row.foundAt) }] })),
    h("section", { "aria-labelledby": "maintenance" }, h("h2", { id: "maintenance" }, "Maintenance"),
      maintenance === null ? h("p", { class: "quiet" }, "Not known while the store is away.") : [
        switchOf(page, "Push maintenance", maintenance.maintenanceMode, "/api/v1/system/maintenance", "Pushes are buffered, and stored when it ends. All servers of the store follow within a second.", () => many(maintenance.bufferedMessages, "message") + " are buffered now."),
        switchOf(page, "Pop maintenance", maintenance.popMaintenanceMode, "/api/v1/system/maintenance/pop", "Pops find nothing while it is on. Leases that are out go on."),
      ]),
  ];
}

function switchOf(page, name, isOn, path, text, preview) {
  return h("p", { class: "buttons" }, h("strong", {}, name), h("span", { class: `state ${isOn ? "warn" : ""}` }, isOn ? "on" : "off"),
    page.can("admin") && h("button", { type: "button", "aria-label": `Turn ${name} ${isOn ? "off" : "on"}`, onclick: () => confirm(page, {
      title: `${name} ${isOn ? "off" : "on"}`, text, preview, button: isOn ? "Turn off" : "Turn on",
      run: async () => { await post(path, { enabled: !isOn }); return `${name} is ${isOn ? "off" : "on"}.`; } }) }, isOn ? "Turn off…" : "Turn on…"),
    h("span", { class: "quiet" }, text));
}
