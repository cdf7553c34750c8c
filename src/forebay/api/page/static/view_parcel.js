// One parcel: where it is, and everything that happened to it.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { age, bytes, clock, number } from "./format.js";
import { table } from "./table.js";
import { confirm, input } from "./dialog.js";
import { stateOf } from "./states.js";

export const title = (page) => `Parcel ${page.name}`;
export const load = (page) => get(`/api/v1/parcels/${segment(page.name)}`);

const link = (did) => h("a", { href: `/parcels/${segment(did)}` }, did);
const seqs = (ranges) => ranges.map((range) => `${range.queue} ${number(range.firstSeq)}–${number(range.lastSeq)}`).join(", ");

export function draw(page, { parcel, steps, events, children, joined }) {
  return [
    h("div", { class: "buttons" }, stateOf(parcel.state),
      page.can("consume") && parcel.state === "ERROR" ? h("button", { type: "button", class: "primary", onclick: () => resume(page) }, "Resume…") : null,
      page.can("consume") && h("button", { type: "button", onclick: () => replay(page) }, "Replay…"),
      page.can("consume") && h("button", { type: "button", onclick: () => annotate(page) }, "Annotate…"),
      page.can("admin") && !parcel.finishedAt ? h("button", { type: "button", class: "danger", onclick: () => cancel(page) }, "Cancel…") : null),
    parcel.error ? h("pre", { class: "bad", tabindex: "0" }, parcel.error) : null,
    h("dl", {}, [
      ["flow", h("a", { href: `/parcels?flow=${segment(parcel.flow)}` }, `${parcel.flow} (version ${parcel.version})`)],
      ["messages", h("a", { href: `/queues/${segment(parcel.queue)}?seq=${parcel.firstSeq}` }, `${number(parcel.messages)} of ${parcel.queue}, seq ${number(parcel.firstSeq)} to ${number(parcel.lastSeq)}`)],
      ["size", bytes(parcel.size)], ["cut", clock(parcel.createdAt)], ["changed", clock(parcel.updatedAt)], ["finished", clock(parcel.finishedAt)],
      ["due again", parcel.dueAt ? clock(parcel.dueAt) : null], ["worker", parcel.worker || null], ["parent", parcel.parent ? link(parcel.parent) : null],
      ["children", children.length ? children.map((did) => [link(did), " "]) : null], ["joined from", joined.length ? joined.map((did) => [link(did), " "]) : null],
      ["annotations", Object.entries(parcel.annotations).map(([name, value]) => `${name}=${value}`).join(", ") || null],
    ].filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("h2", {}, "Steps"),
    table(page, { label: "Steps", name: "steps", rows: steps, key: (row) => String(row.step), columns: [
      { name: "step", title: "Step", value: (row) => row.step, numeric: true },
      { name: "action", title: "Action", value: (row) => row.action },
      { name: "class", title: "Action class", value: (row) => row.actionClass },
      { name: "state", title: "State", value: (row) => row.state, cell: (row) => stateOf(row.state) },
      { name: "attempts", title: "Attempts", value: (row) => row.attempts, numeric: true },
      { name: "reads", title: "Reads", cell: (row) => seqs(row.ranges) },
      { name: "queued", title: "Queued", value: (row) => row.queuedAt, cell: (row) => clock(row.queuedAt) },
    ] }),
    h("h2", {}, "History"),
    table(page, { label: "History", name: "events", rows: events, key: (row) => String(row.number), columns: [
      { name: "at", title: "At", value: (row) => row.number, cell: (row) => clock(row.at) },
      { name: "event", title: "Event", value: (row) => row.event },
      { name: "action", title: "Action", value: (row) => row.action },
      { name: "took", title: "Took", value: (row) => took(row), cell: (row) => age(took(row)), numeric: true },
      { name: "worker", title: "Worker", value: (row) => row.worker },
      { name: "attempt", title: "Attempt", value: (row) => row.attempt, numeric: true },
      { name: "in", title: "Rows in", value: (row) => row.rowsIn, cell: (row) => number(row.rowsIn), numeric: true },
      { name: "out", title: "out", value: (row) => row.rowsOut, cell: (row) => number(row.rowsOut), numeric: true },
      { name: "filtered", title: "filtered", value: (row) => row.filtered, cell: (row) => number(row.filtered), numeric: true },
      { name: "bad", title: "bad", value: (row) => row.bad, cell: (row) => number(row.bad), numeric: true },
      { name: "text", title: "Text", cell: (row) => (row.text ? h("pre", { tabindex: "0" }, row.text) : "") },
    ] }),
  ];
}

const took = (row) => (row.startedAt ? (Date.parse(row.at) - Date.parse(row.startedAt)) / 1000 : null);

const resume = (page) => confirm(page, { title: "Resume this parcel", text: "Its action begins anew, under the newest definition of the flow.", button: "Resume",
  run: async () => { await post("/api/v1/parcels/resume", { dids: [page.name] }); return "It is queued again."; } });
const cancel = (page) => confirm(page, { title: "Cancel this parcel", text: "No action sees it any more.", button: "Cancel it", isDangerous: true,
  run: async () => { await post("/api/v1/parcels/cancel", { dids: [page.name] }); return "It is cancelled."; } });
const replay = (page) => confirm(page, { title: "Replay this parcel", text: "A new parcel with the same messages goes through the flow. What the first one gave stays.", button: "Replay",
  run: async () => `It is parcel ${(await post(`/api/v1/parcels/${segment(page.name)}/replay`)).did}.` });
const annotate = (page) => confirm(page, { title: "Annotate this parcel", button: "Annotate", fields: [input("name", "Name", { required: true }), input("value", "Value", { required: true })],
  run: async ({ name, value }) => { await post(`/api/v1/parcels/${segment(page.name)}/annotate`, { annotations: { [name]: value }, overwrite: true }); return `${name} is set.`; } });
