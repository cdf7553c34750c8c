// Tables that are sorted by their heads. The sorting stands in the address.

import { h } from "./dom.js";

// columns: [{ name, title, value(row), cell(row)?, numeric?, hint? }]
export function table(page, { label, columns, rows, key, sort, name = "sort", empty, select }) {
  const chosen = page.query.get(name) ?? sort ?? "";
  const isDown = chosen.startsWith("-");
  const by = columns.find((column) => column.name === chosen.replace(/^-/, ""));
  const sorted = by?.value ? [...rows].sort((a, b) => compare(by.value(a), by.value(b)) * (isDown ? -1 : 1)) : rows;
  const head = columns.map((column) => h("th", {
    scope: "col",
    class: column.numeric ? "numeric" : undefined,
    "aria-sort": column === by ? (isDown ? "descending" : "ascending") : undefined,
  }, column.value && rows.length > 1
    ? h("button", { type: "button", class: "sorter", title: column.hint ?? `Sort by ${column.title}`, onclick: () => page.change({ [name]: next(column, by, isDown) }) },
        column.title, h("span", { "aria-hidden": "true" }, column === by ? (isDown ? " ▼" : " ▲") : ""))
    : column.title));
  if (!rows.length) return h("p", { class: "quiet" }, empty ?? "Nothing here.");
  return h("div", { class: "scroller", role: "region", "aria-label": label, tabindex: "0" },
    h("table", {},
      h("caption", { class: "unseen" }, label),
      h("thead", {}, h("tr", {}, select && h("th", { class: "tick" }, select.all(sorted)), head)),
      h("tbody", {}, sorted.map((row) => h("tr", { key: key(row) }, select && h("td", { class: "tick" }, select.one(row)), columns.map((column) => h("td", {
        class: column.numeric ? "numeric" : undefined,
      }, column.cell ? column.cell(row) : column.value(row))))))));
}

// A second press turns it round. Numbers begin with the greatest.
function next(column, by, isDown) {
  if (column !== by) return column.numeric ? `-${column.name}` : column.name;
  return isDown ? column.name : `-${column.name}`;
}

function compare(a, b) {
  if (typeof a === "number" || typeof b === "number") return (a ?? -Infinity) - (b ?? -Infinity);
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

// A field whose value is in the address.
export function field(page, name, label, properties = {}) {
  const { options, ...rest } = properties;
  const value = page.query.get(name) ?? "";
  const own = { id: `field-${name}`, name, ...rest, value };
  const control = options
    ? h("select", { ...own, onchange: (event) => page.change({ [name]: event.target.value }) }, options.map(([code, text]) => h("option", { value: code, selected: code === value }, text)))
    : h("input", { type: "search", autocomplete: "off", spellcheck: "false", ...own, oninput: (event) => page.type({ [name]: event.target.value }) });
  return h("label", { class: "field" }, h("span", {}, label), control);
}

export function toggle(page, name, label) {
  const isOn = page.query.get(name) === "1";
  return h("label", { class: "toggle" }, h("input", { type: "checkbox", checked: isOn, onchange: (event) => page.change({ [name]: event.target.checked ? "1" : "" }) }), label);
}

export function pager(page, { offset, limit, total }) {
  if (total <= limit && !offset) return null;
  const go = (to) => page.change({ offset: to ? String(to) : "" });
  return h("p", { class: "pager" },
    h("button", { type: "button", disabled: !offset, onclick: () => go(Math.max(0, offset - limit)) }, "← Before"),
    h("span", {}, `${offset + 1}–${Math.min(offset + limit, total)} of ${total}`),
    h("button", { type: "button", disabled: offset + limit >= total, onclick: () => go(offset + limit) }, "After →"));
}
