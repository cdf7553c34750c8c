// All queues, a page of them at a time.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { age, bytes, clock, number, short } from "./format.js";
import { field, pager, table, toggle } from "./table.js";
import { confirm, input } from "./dialog.js";

const LIMIT = 100;

export const title = () => "Queues";

export const load = (page) => get("/api/v1/journey/queues", {
  search: page.query.get("search"), namespace: page.query.get("namespace"), internal: page.query.get("internal") === "1" ? "true" : "",
  sort: page.query.get("sort"), limit: LIMIT, offset: page.query.get("offset"),
});

export function draw(page, { queues, pagination }) {
  return [
    h("div", { class: "filters" },
      field(page, "search", "Name contains"), field(page, "namespace", "Namespace"), toggle(page, "internal", "Internal queues too"),
      page.can("write") && h("button", { type: "button", onclick: () => create(page) }, "New queue…")),
    table(page, {
      label: "Queues", rows: queues, sort: "-waiting", key: (queue) => queue.name,
      empty: page.query.get("search") ? "No queue fits." : "There are no queues yet. The first push makes one.",
      columns: [
        { name: "name", title: "Queue", value: (queue) => queue.name, cell: (queue) => h("a", { href: `/queues/${segment(queue.name)}` }, queue.name) },
        { name: "waiting", title: "Waiting", hint: "For the group that is furthest behind", value: (queue) => queue.waiting, cell: (queue) => short(queue.waiting), numeric: true },
        { name: "leased", title: "Leased", value: (queue) => queue.leased, cell: (queue) => short(queue.leased), numeric: true },
        { name: "lag", title: "Behind", value: (queue) => queue.lagSeconds, cell: (queue) => (queue.lagSeconds ? age(queue.lagSeconds) : "–"), numeric: true },
        { name: "dead", title: "Dead", value: (queue) => queue.deadLetters, cell: (queue) => (queue.deadLetters ? h("a", { class: "warn", href: `/dead-letters?queue=${segment(queue.name)}` }, short(queue.deadLetters)) : "0"), numeric: true },
        { name: "lost", title: "Lost", value: (queue) => queue.lost, cell: (queue) => h("span", { class: queue.lost ? "bad" : undefined }, short(queue.lost)), numeric: true },
        { name: "kept", title: "Kept", value: (queue) => queue.kept, cell: (queue) => short(queue.kept), numeric: true },
        { name: "size", title: "Size", value: (queue) => queue.sizeBytes, cell: (queue) => bytes(queue.sizeBytes), numeric: true },
        { name: "groups", title: "Groups", value: (queue) => queue.groups, numeric: true },
        { name: "partitions", title: "Partitions", value: (queue) => queue.partitions, cell: (queue) => number(queue.partitions), numeric: true },
        { name: "namespace", title: "Namespace", value: (queue) => queue.namespace },
        { name: "created", title: "Made", value: (queue) => queue.createdAt, cell: (queue) => clock(queue.createdAt) },
      ] }),
    pager(page, pagination),
  ];
}

function create(page) {
  confirm(page, {
    title: "New queue", button: "Make it",
    fields: [input("queue", "Name", { required: true, maxlength: "255" }), input("seconds", "Keep finished messages for (seconds; 0: for ever)", { type: "number", min: "0", value: "0" })],
    run: async ({ queue, seconds }) => {
      await post("/api/v1/configure", { queue, options: Number(seconds) ? { completedRetentionSeconds: Number(seconds) } : {} });
      return `Queue ${queue} is there.`;
    },
  });
}
