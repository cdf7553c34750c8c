// Dead letters: find them, look at them, send them round again, throw them away.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { clock, many, number, payload } from "./format.js";
import { field, pager, table } from "./table.js";
import { confirm } from "./dialog.js";

const LIMIT = 50;
const FILTERS = ["queue", "consumerGroup", "partition", "transactionId"];

export const title = () => "Dead letters";

export async function load(page) {
  return get("/api/v1/dlq", { ...wanted(page), limit: LIMIT, offset: page.query.get("offset") });
}

function wanted(page) {
  const found = {};
  for (const name of FILTERS) if (page.query.get(name)) found[name] = page.query.get(name);
  for (const name of ["from", "to"]) if (page.query.get(name)) found[name] = new Date(page.query.get(name)).toISOString();
  return found;
}

export function draw(page, { messages, total, pagination }) {
  return [
    h("div", { class: "filters" },
      field(page, "queue", "Queue"), field(page, "consumerGroup", "Group"), field(page, "partition", "Partition"), field(page, "transactionId", "transactionId"),
      field(page, "from", "Failed from", { type: "datetime-local", step: "1" }), field(page, "to", "to", { type: "datetime-local", step: "1" })),
    h("p", { class: "buttons" }, h("strong", {}, many(total, "dead letter")),
      page.can("consume") && total ? h("button", { type: "button", class: "primary", onclick: () => replay(page, total) }, `Replay ${number(total)}…`) : null,
      page.can("admin") && total ? h("button", { type: "button", class: "danger", onclick: () => purge(page, total) }, `Purge ${number(total)}…`) : null),
    table(page, { label: "Dead letters", rows: messages, key: (row) => String(row.letterId), empty: "No dead letter fits.", columns: [
      { name: "queue", title: "Queue", value: (row) => row.queue, cell: (row) => h("a", { href: `/queues/${segment(row.queue)}` }, row.queue) },
      { name: "group", title: "Group", value: (row) => row.consumerGroup },
      { name: "partition", title: "Partition", value: (row) => row.partition },
      { name: "failed", title: "Failed", value: (row) => row.failedAt, cell: (row) => clock(row.failedAt) },
      { name: "reason", title: "Reason", value: (row) => row.errorMessage },
      { name: "retries", title: "Retries", value: (row) => row.retryCount, numeric: true },
      { name: "id", title: "transactionId", value: (row) => row.transactionId },
      { name: "payload", title: "Payload", cell: (row) => h("pre", { tabindex: "0" }, payload(row.data, row.encoding).slice(0, 20_000)) },
    ] }),
    pager(page, pagination),
  ];
}

// Says before how many there are, while it runs how many are left, and at the end how many it were.
async function inPieces(page, total, run, progress) {
  const looking = setInterval(async () => {
    try { progress(total - (await get("/api/v1/dlq", { ...wanted(page), limit: 1 })).total, total); } catch { /* the next look */ }
  }, 1_000);
  try { return await run(); } finally { clearInterval(looking); }
}

const everything = (page) => (Object.keys(wanted(page)).length ? wanted(page) : { all: true });
const counted = (page, what) => async () => {
  const { total } = await get("/api/v1/dlq", { ...wanted(page), limit: 1 });
  return total ? `${many(total, "dead letter")} ${what}.` : null;
};

function replay(page, total) {
  confirm(page, { title: "Replay dead letters", text: "Each is pushed again as a new message at the end of its partition, for the group in which it died alone.", preview: counted(page, "will be replayed"), button: "Replay",
    run: async (_, progress) => {
      const { replayed } = await inPieces(page, total, () => post("/api/v1/dlq/replay", everything(page)), progress);
      return `${many(replayed, "dead letter")} replayed.`;
    } });
}

function purge(page, total) {
  confirm(page, { title: "Purge dead letters", text: "They are deleted, and cannot be replayed any more.", preview: counted(page, "will be deleted"), button: "Purge", isDangerous: true,
    run: async (_, progress) => {
      const { purged } = await inPieces(page, total, () => post("/api/v1/dlq/purge", everything(page)), progress);
      return `${many(purged, "dead letter")} deleted.`;
    } });
}
