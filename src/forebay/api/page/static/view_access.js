// Rights: keys, the caller's own, and what admins did.

import { h } from "./dom.js";
import { ask, get, post, segment } from "./server.js";
import { ago, clock } from "./format.js";
import { field, table } from "./table.js";
import { confirm, input } from "./dialog.js";

export const title = () => "Access";
export const everyMs = 15_000;

const DAY = 86_400;
const SCOPES = ["read", "write", "consume", "admin"];

export async function load(page) {
  if (!page.can("admin") || page.session.queues.length) return { keys: null, actions: null };
  const [keys, audit] = await Promise.all([get("/api/v1/keys", { revoked: page.query.get("revoked") === "1" ? "true" : "" }), get("/api/v1/audit-log", { limit: 100, key: page.query.get("key") })]);
  return { keys: keys.keys, actions: audit.actions };
}

export function draw(page, { keys, actions }) {
  const own = page.session;
  return [
    own.keysInForce
      ? h("p", { class: "banner" }, `You are ${own.name}: ${own.scopes.join(", ")}${own.queues.length ? `, for queues ${own.queues.join(", ")}` : ", for all queues"}${own.expiresAt ? `. Signed in until ${clock(own.expiresAt)}` : ""}.`)
      : h("p", { class: "banner warn" }, "No keys are in force: every client that can connect may do everything. The first key closes this server; it has to be an admin's."),
    keys === null ? h("p", { class: "quiet" }, "Keys and the audit log are shown to admins of all queues.") : [
      h("section", { "aria-labelledby": "keys" }, h("h2", { id: "keys" }, "Keys"),
        h("p", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: () => create(page) }, "New key…")),
        table(page, { label: "Keys", rows: keys, sort: "name", key: (row) => row.id, empty: "There are no keys in the store.", columns: [
          { name: "name", title: "Name", value: (row) => row.name },
          { name: "scopes", title: "May", value: (row) => row.scopes.join(", ") },
          { name: "queues", title: "Queues", value: (row) => row.queues.join(", ") || "all" },
          { name: "created", title: "Made", value: (row) => row.createdAt, cell: (row) => clock(row.createdAt) },
          { name: "used", title: "Used last", value: (row) => row.lastUsedAt, cell: (row) => (row.lastUsedAt ? `${ago(row.lastUsedAt)} ago` : "never") },
          { name: "expires", title: "Ends", value: (row) => row.expiresAt, cell: (row) => (row.revokedAt ? h("span", { class: "bad" }, `revoked ${clock(row.revokedAt)}`) : row.expiresAt ? clock(row.expiresAt) : "never") },
          { name: "do", title: "Do", cell: (row) => (row.revokedAt ? "" : h("div", { class: "buttons" },
            h("button", { type: "button", "aria-label": `Rotate ${row.name}`, onclick: () => rotate(page, row) }, "Rotate…"),
            h("button", { type: "button", "aria-label": `Revoke ${row.name}`, onclick: () => revoke(page, row) }, "Revoke…"))) },
        ] })),
      h("section", { "aria-labelledby": "audit" }, h("h2", { id: "audit" }, "What admins did"),
        h("div", { class: "filters" }, field(page, "key", "Only of the key")),
        table(page, { label: "Audit log", name: "audit", rows: actions, key: (row) => `${row.at}|${row.subject}|${row.action ?? row.route}`, empty: "Nothing yet.", columns: [
          { name: "at", title: "When", value: (row) => row.at, cell: (row) => clock(row.at) },
          { name: "key", title: "Key", value: (row) => row.keyName ?? row.key },
          { name: "what", title: "What", value: (row) => `${row.method} ${row.route}` },
          { name: "subject", title: "On what", value: (row) => row.subject },
          { name: "address", title: "From", value: (row) => row.address },
          { name: "status", title: "Status", value: (row) => row.status, numeric: true },
        ] })),
    ],
  ];
}

// The text of a key is shown once, and never requested again.
function show(name, key) {
  const dialog = h("dialog", { "aria-labelledby": "key-title" }, h("form", { method: "dialog" },
    h("h2", { id: "key-title" }, `The key ${name}`), h("p", {}, "Copy it now: it is not shown again."), h("pre", { tabindex: "0", id: "new-key" }, key),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(key) }, "Copy"), h("button", { type: "submit", class: "primary" }, "I have it"))));
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
}

function create(page) {
  confirm(page, { title: "New key", button: "Make it", fields: [
    input("name", "Name", { required: true, maxlength: "255" }),
    h("fieldset", {}, h("legend", {}, "It may"), SCOPES.map((scope) => h("label", { class: "toggle" }, h("input", { type: "checkbox", name: `scope-${scope}`, checked: scope === "read" }), scope))),
    input("queues", "Only queues (patterns, with commas; empty: all)", { placeholder: "orders.*, invoices" }),
    input("days", "Ends after days (empty: never)", { type: "number", min: "1" })],
    run: async (values) => {
      const scopes = SCOPES.filter((scope) => values[`scope-${scope}`] !== undefined);
      const queues = values.queues.split(",").map((text) => text.trim()).filter(Boolean);
      const made = await post("/api/v1/keys", { name: values.name, scopes, queues, ...(values.days ? { expiresSeconds: Number(values.days) * DAY } : {}) });
      setTimeout(show, 0, values.name, made.key);
      return `Key ${values.name} is made.`;
    } });
}

function rotate(page, row) {
  confirm(page, { title: `Rotate ${row.name}`, text: "It gets a new text; the old one counts until the grace time is over.", button: "Rotate", fields: [input("grace", "Grace time (minutes)", { type: "number", min: "0", value: "60" })],
    run: async ({ grace }) => { const made = await post(`/api/v1/keys/${segment(row.id)}/rotate`, { graceSeconds: Number(grace) * 60 }); setTimeout(show, 0, row.name, made.key); return `Key ${row.name} is rotated.`; } });
}

const revoke = (page, row) => confirm(page, { title: `Revoke ${row.name}`, text: "It counts no more, and browsers that are signed in with it are signed out.", button: "Revoke", isDangerous: true,
  run: async () => { await ask("DELETE", `/api/v1/keys/${segment(row.id)}`); return `Key ${row.name} is revoked.`; } });
