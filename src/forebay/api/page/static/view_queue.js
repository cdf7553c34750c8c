// One queue: how it stands, its groups, its messages, its options.

import { h } from "./dom.js";
import { ask, get, post, segment } from "./server.js";
import { age, ago, bytes, clock, many, number, payload, rate, short } from "./format.js";
import { field, table } from "./table.js";
import { timeline } from "./charts.js";
import { confirm, input } from "./dialog.js";
import { seek } from "./seek.js";

const LIMIT = 25;

export const title = (page) => page.name;

export async function load(page) {
  const base = segment(page.name);
  const [status, detail, history, lost, found] = await Promise.all([
    get(`/api/v1/status/queues/${base}`), get(`/api/v1/resources/queues/${base}`, { limit: 200 }),
    get(`/api/v1/journey/queues/${base}`), get("/api/v1/status/lost", { queue: page.name, limit: 20 }), messages(page),
  ]);
  return { ...status, detail, history, lost: lost.lost, found };
}

async function messages(page) {
  const wanted = Object.fromEntries(["partition", "seq", "time", "id"].map((name) => [name, page.query.get(name)]));
  try {
    if (wanted.id) return { messages: await withId(page.name, wanted), nextSeq: null };
    let fromSeq = wanted.seq;
    if (wanted.time) { // with a seq beside it, what is behind both
      const range = await get(`/api/v1/arrow/queues/${segment(page.name)}/range`, { time: new Date(wanted.time).toISOString() });
      fromSeq = Math.max(fromSeq ?? 1, range.seqAtTime ?? range.nextSeq);
    }
    return await get("/api/v1/messages", { queue: page.name, partition: wanted.partition, fromSeq: fromSeq ?? (await newest(page, wanted.partition)), limit: LIMIT });
  } catch (error) {
    if (error.status === 401) throw error;
    return { messages: [], nextSeq: null, error: error.message };
  }
}

// Without a choice the newest are shown. Of one partition the whole queue may lie between two of its messages.
async function newest(page, partition) {
  if (partition) return undefined;
  const range = await get(`/api/v1/arrow/queues/${segment(page.name)}/range`);
  return Math.max(range.firstSeq ?? 1, (range.nextSeq ?? 1) - LIMIT);
}

// By transactionId, or by the id that answers give: its last sixty bits are the seq.
async function withId(queue, { id, partition }) {
  const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8([0-9a-f]{3})-([0-9a-f]{12})$/.exec(id.trim());
  if (uuid) {
    const seq = Number.parseInt(uuid[1] + uuid[2], 16);
    const found = await get("/api/v1/messages", { queue, fromSeq: seq, limit: 1 });
    const own = found.messages.filter((message) => message.id === id.trim());
    if (own.length) return own;
  }
  return (await get("/api/v1/messages", { queue, partition, transactionId: id.trim() })).messages;
}

export function draw(page, { queue, consumerGroups, detail, history, lost, found }) {
  const now = Date.now();
  return [
    h("div", { class: "cards" }, [
      ["waiting", short(queue.messages.pending)], ["leased", short(queue.messages.processing)], ["dead letters", short(queue.messages.deadLetter)],
      ["kept", short(queue.messages.total)], ["ever accepted", short(queue.nextSeq - 1)], ["size", bytes(queue.sizeBytes)], ["partitions", number(queue.partitions)], ["made", clock(queue.createdAt)],
    ].map(([name, value]) => h("div", { class: "fact" }, h("b", {}, value), h("span", {}, name)))),
    lost.length ? h("p", { class: "banner bad" }, `${many(lost.reduce((sum, each) => sum + each.messages, 0), "message")} of this queue cannot be read any more: `, lost.map((each) => `seq ${each.firstSeq} to ${each.lastSeq} (${each.reason})`).join("; ")) : null,
    history.times.length ? h("div", { class: "charts", key: "charts" },
      timeline({ label: "Waiting", times: history.times, text: short, lines: [{ name: "waiting", values: history.waiting, tone: "first" }] }),
      timeline({ label: "Pushed", times: history.times, text: rate, lines: [{ name: "pushed", values: history.pushedPerSecond, tone: "second" }] })) : null,
    h("section", { "aria-labelledby": "groups" }, h("h2", { id: "groups" }, "Groups"), groupsTable(page, consumerGroups, now)),
    h("section", { "aria-labelledby": "messages" }, h("h2", { id: "messages" }, "Messages"), browser(page, detail, found)),
    h("details", { class: "panel" }, h("summary", {}, h("h2", {}, `Partitions (${number(queue.partitions)})`)),
      table(page, { label: "Partitions", name: "partitions", rows: detail.partitions, key: (row) => row.id, columns: [
        { name: "partition", title: "Partition", value: (row) => row.name, cell: (row) => h("a", { href: `?partition=${segment(row.name)}` }, row.name) },
        { name: "kept", title: "Kept", value: (row) => row.messages, cell: (row) => number(row.messages), numeric: true },
        { name: "last", title: "Last seq", value: (row) => row.lastSeq, numeric: true },
        { name: "activity", title: "Newest", value: (row) => row.lastActivity, cell: (row) => `${ago(row.lastActivity, now)}` }] }),
      queue.partitions > detail.partitions.length ? h("p", { class: "quiet" }, `The first ${detail.partitions.length} are shown.`) : null),
    h("details", { class: "panel" }, h("summary", {}, h("h2", {}, "Options")),
      h("dl", {}, Object.entries(detail.config).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
      page.can("admin") && h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => setOptions(page, detail) }, "Change options…"),
        h("button", { type: "button", onclick: () => clear(page, queue) }, "Remove its messages…"),
        h("button", { type: "button", class: "danger", onclick: () => remove(page, queue) }, "Delete the queue…"))),
  ];
}

function groupsTable(page, groups, now) {
  return table(page, {
    label: "Groups", name: "groups", rows: groups, sort: "-lag", key: (row) => row.name, empty: "No group reads this queue yet.", columns: [
      { name: "group", title: "Group", value: (row) => row.name },
      { name: "state", title: "State", value: (row) => row.state, cell: (row) => h("span", { class: `state ${{ Stable: "good", Lagging: "warn", Dead: "bad" }[row.state]}` }, row.state) },
      { name: "lag", title: "Behind by", value: (row) => row.totalLag, cell: (row) => number(row.totalLag), numeric: true },
      { name: "age", title: "and", hint: "Sort by time", value: (row) => row.maxTimeLag, cell: (row) => (row.totalLag ? age(row.maxTimeLag) : "–"), numeric: true },
      { name: "leased", title: "Leased", value: (row) => row.leased, cell: (row) => number(row.leased), numeric: true },
      { name: "partitions", title: "Partitions behind", value: (row) => row.partitionsWithLag, cell: (row) => `${number(row.partitionsWithLag)} of ${number(row.partitions)}`, numeric: true },
      { name: "active", title: "Last request", value: (row) => row.lastActiveAt, cell: (row) => (row.lastActiveAt ? `${ago(row.lastActiveAt, now)} ago` : "–") },
      ...(page.can("admin") ? [{ name: "do", title: "Do", cell: (row) => h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => seek(page, page.name, row.name) }, "Seek…"),
        h("button", { type: "button", onclick: () => forget(page, row) }, "Forget…")) }] : []),
    ] });
}

function browser(page, detail, found) {
  const last = found.messages.at(-1)?.seq;
  const partitions = [["", "all"], ...detail.partitions.map((each) => [each.name, each.name])];
  return [
    h("div", { class: "filters" },
      field(page, "partition", "Partition", { options: partitions }),
      field(page, "seq", "From seq", { inputmode: "numeric" }), field(page, "time", "From time", { type: "datetime-local", step: "1" }), field(page, "id", "Id or transactionId"),
      page.can("write") && h("button", { type: "button", onclick: () => push(page) }, "Push a test message…")),
    found.error ? h("p", { class: "banner bad" }, found.error) : null,
    table(page, { label: "Messages", name: "messages", rows: found.messages, key: (row) => row.id, empty: "No message fits.", columns: [
      { name: "seq", title: "Seq", value: (row) => row.seq, numeric: true },
      { name: "partition", title: "Partition", value: (row) => row.partition },
      { name: "created", title: "Accepted", value: (row) => row.createdAt, cell: (row) => h("span", { title: row.createdAt }, clock(row.createdAt)) },
      { name: "id", title: "transactionId", value: (row) => row.transactionId },
      { name: "payload", title: "Payload", cell: (row) => h("pre", { tabindex: "0" }, shortened(payload(row.data, row.encoding))) },
      ...(page.can("admin") ? [{ name: "do", title: "Do", cell: (row) => h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => bury(page, row) }, "To dead letters…"),
        h("button", { type: "button", onclick: () => erase(page, row) }, "Delete…")) }] : []),
    ] }),
    h("p", { class: "pager" },
      found.messages[0]?.seq > 1 && !page.query.get("id") ? h("button", { type: "button", onclick: () => page.change({ seq: String(Math.max(1, found.messages[0].seq - LIMIT)), time: "" }) }, "← Older") : null,
      found.nextSeq ? h("button", { type: "button", onclick: () => page.change({ seq: String(last + 1), time: "" }) }, "Newer →") : null),
  ];
}

const shortened = (text) => (text.length > 20_000 ? `${text.slice(0, 20_000)}… (${many(text.length, "character")})` : text);
const at = (row) => `/api/v1/messages/${segment(row.partitionId)}/${segment(row.transactionId)}`;

function push(page) {
  const text = h("textarea", { name: "text", "aria-label": "Payload", required: true }, '{"hello": "world"}');
  confirm(page, {
    title: `Push to ${page.name}`, text: "JSON is pushed as it is; anything else as a string. Every group of the queue gets it.", button: "Push",
    fields: [h("label", { class: "field" }, h("span", {}, "Payload"), text), input("partition", "Partition", { value: "Default", required: true })],
    run: async ({ text: given, partition }) => {
      let data;
      try { data = JSON.parse(given); } catch { data = given; }
      const [pushed] = await post("/api/v1/push", { items: [{ queue: page.name, partition, payload: data }] });
      return `Pushed as seq ${pushed.seq ?? "?"} (${pushed.status}, ${pushed.receipt}).`;
    },
  });
}

function bury(page, row) {
  confirm(page, { title: `Message ${row.seq} to the dead letters`, text: "Every group that has not finished it gets a dead letter.", button: "Move it", fields: [input("error", "Why", { value: "moved by hand" })],
    run: async ({ error }) => `${many((await post(`${at(row)}/dlq`, { error })).deadLetters, "dead letter")} made.` });
}

function erase(page, row) {
  confirm(page, { title: `Delete message ${row.seq}`, text: "No group gets it any more. This cannot be taken back.", button: "Delete it", isDangerous: true,
    run: async () => (await ask("DELETE", at(row))).message });
}

function forget(page, row) {
  confirm(page, { title: `Forget group ${row.name}`, text: `Its place in ${page.name} is forgotten: should it pop again, it begins as a new group.`, button: "Forget it", isDangerous: true,
    run: async () => { await ask("DELETE", `/api/v1/consumer-groups/${segment(row.name)}/queues/${segment(page.name)}`); return `Group ${row.name} is forgotten.`; } });
}

function setOptions(page, detail) {
  const text = h("textarea", { name: "text", "aria-label": "Options as JSON", required: true }, JSON.stringify(detail.config, null, 2));
  confirm(page, { title: `Options of ${page.name}`, text: "All options as JSON; one that is left out has its default again.", button: "Set them", fields: [text],
    run: async ({ text: given }) => {
      await post("/api/v1/configure", { queue: page.name, namespace: detail.namespace || undefined, task: detail.task || undefined, options: JSON.parse(given) });
      return "The options are set.";
    } });
}

function clear(page, queue) {
  confirm(page, { title: `Remove the messages of ${queue.name}`, preview: () => `${many(queue.messages.total, "message")} are kept now; ${number(queue.messages.pending)} of them no group has finished.`, button: "Remove them", isDangerous: true, word: queue.name,
    run: async () => `${many((await ask("DELETE", `/api/v1/queues/${segment(queue.name)}/clear`)).removed, "message")} removed.` });
}

function remove(page, queue) {
  confirm(page, { title: `Delete ${queue.name}`, text: "With its messages, groups, dead letters and traces.", preview: () => `${many(queue.messages.total, "message")} and ${many(queue.messages.deadLetter, "dead letter")} go with it.`, button: "Delete it", isDangerous: true, word: queue.name,
    run: async () => { await ask("DELETE", `/api/v1/resources/queues/${segment(queue.name)}`); history.replaceState(null, "", "/queues"); dispatchEvent(new PopStateEvent("popstate")); return `${queue.name} is deleted.`; } });
}
