// Parcels: search, and what can be done with all that fit.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { ago, bytes, clock, many, number } from "./format.js";
import { field, table } from "./table.js";
import { confirm } from "./dialog.js";
import { stateOf } from "./states.js";

const LIMIT = 100;
const COUNTED_AT_ONCE = 1_000;
const COUNTED_MAX = 50_000;
const STATES = ["", "IN_FLIGHT", "QUEUED", "COLD_QUEUED", "LEASED", "JOINING", "EXPORTING", "ERROR", "COMPLETE", "FILTERED", "CANCELLED", "PAUSED"];
const FILTERS = ["flow", "state", "action", "actionClass", "error", "did"];

export const title = () => "Parcels";

function wanted(page) {
  const found = {};
  for (const name of FILTERS) if (page.query.get(name)) found[name] = page.query.get(name);
  for (const name of ["since", "before"]) if (page.query.get(name)) found[name] = new Date(page.query.get(name)).toISOString();
  return found;
}

export const load = (page) => get("/api/v1/parcels", { ...wanted(page), limit: LIMIT, after: page.query.get("after") });

export function draw(page, { parcels, next }) {
  const isChosen = Object.keys(wanted(page)).length > 0;
  return [
    h("div", { class: "filters" },
      field(page, "flow", "Flow"), field(page, "state", "State", { options: STATES.map((state) => [state, state || "any"]) }), field(page, "action", "Action"),
      field(page, "actionClass", "Action class"), field(page, "error", "Error contains"), field(page, "did", "DID begins with"),
      field(page, "since", "Cut from", { type: "datetime-local", step: "1" }), field(page, "before", "to", { type: "datetime-local", step: "1" })),
    isChosen && parcels.length ? h("p", { class: "buttons" },
      page.can("consume") && h("button", { type: "button", class: "primary", onclick: () => resume(page) }, "Resume what fits…"),
      page.can("admin") && h("button", { type: "button", class: "danger", onclick: () => cancel(page) }, "Cancel what fits…")) : null,
    table(page, { label: "Parcels", rows: parcels, key: (row) => row.did, empty: isChosen ? "No parcel fits." : "There are no parcels. A flow on parcels cuts its source into them.", columns: [
      { name: "did", title: "DID", value: (row) => row.did, cell: (row) => h("a", { href: `/parcels/${segment(row.did)}` }, row.did) },
      { name: "flow", title: "Flow", value: (row) => row.flow },
      { name: "state", title: "State", value: (row) => row.stepState || row.state, cell: (row) => stateOf(row.stepState || row.state) },
      { name: "action", title: "Action", value: (row) => row.action },
      { name: "messages", title: "Messages", value: (row) => row.messages, cell: (row) => number(row.messages), numeric: true },
      { name: "size", title: "Size", value: (row) => row.size, cell: (row) => bytes(row.size), numeric: true },
      { name: "attempts", title: "Attempts", value: (row) => row.attempts, numeric: true },
      { name: "updated", title: "Changed", value: (row) => row.updatedAt, cell: (row) => h("span", { title: clock(row.updatedAt) }, `${ago(row.updatedAt)} ago`) },
      { name: "worker", title: "Worker", value: (row) => row.worker },
      { name: "error", title: "Error", value: (row) => row.error, cell: (row) => row.error.split("\n")[0].slice(0, 200) },
    ] }),
    h("p", { class: "pager" },
      page.query.get("after") ? h("button", { type: "button", onclick: () => page.change({ after: "" }) }, "← First") : null,
      next ? h("button", { type: "button", onclick: () => page.change({ after: next }) }, "After →") : null),
  ];
}

const counted = (page, states, what) => async () => {
  let fit = 0, seen = 0, after;
  do {
    const { parcels, next } = await get("/api/v1/parcels", { ...wanted(page), limit: COUNTED_AT_ONCE, after });
    fit += parcels.filter((parcel) => states(parcel)).length;
    seen += parcels.length;
    after = next;
  } while (after && seen < COUNTED_MAX);
  if (!fit && !after) return null;
  return `${after ? "More than " : ""}${many(fit, "parcel")} ${what}.`;
};

function resume(page) {
  confirm(page, { title: "Resume parcels", text: "Those in ERROR that fit the filter begin their action anew, under the newest definition of their flow.", preview: counted(page, (parcel) => parcel.state === "ERROR", "will be resumed"), button: "Resume",
    run: async () => `${many((await post("/api/v1/parcels/resume", wanted(page))).resumed, "parcel")} resumed.` });
}

function cancel(page) {
  const ended = new Set(["COMPLETE", "FILTERED", "CANCELLED"]);
  confirm(page, { title: "Cancel parcels", text: "What fits the filter and has not ended is given up: no action sees it any more.", preview: counted(page, (parcel) => !ended.has(parcel.state), "will be cancelled"), button: "Cancel them", isDangerous: true, word: "cancel",
    run: async () => `${many((await post("/api/v1/parcels/cancel", wanted(page))).cancelled, "parcel")} cancelled.` });
}
