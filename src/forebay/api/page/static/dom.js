// Elements from values. Text becomes text nodes, so that nothing a producer sends can become markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = Symbol("handlers");

function fill(node, properties, children) {
  node[HANDLERS] = {};
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) { node[name] = value; node[HANDLERS][name] = value; }
    else if (name === "key") node.dataset.key = value;
    else if (name === "value" || name === "checked") { node[name] = value; node.setAttribute(name, value === true ? "" : value); }
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export const h = (name, properties, ...children) => fill(document.createElement(name), properties, children);
export const s = (name, properties, ...children) => fill(document.createElementNS(SVG, name), properties, children);

// Makes `old` look like `fresh` and leaves alone what is the same: focus, scrolling and open panels stay.
export function morph(old, fresh) {
  for (const name of Object.keys(old[HANDLERS] ?? {})) if (!fresh[HANDLERS]?.[name]) old[name] = null;
  Object.assign(old, fresh[HANDLERS]);
  old[HANDLERS] = fresh[HANDLERS];
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "open" && old.tagName === "DETAILS") continue; // the reader opens and closes it
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if ("value" in fresh && old !== document.activeElement && fresh.hasAttribute("value")) old.value = fresh.value;
  if ("checked" in fresh && old.checked !== fresh.checked && old.type !== "radio") old.checked = fresh.checked;
  morphChildren(old, fresh);
  if (old.tagName === "SELECT" && fresh.hasAttribute("value")) old.value = fresh.getAttribute("value");
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let place = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const known = next.dataset?.key ? keyed.get(next.dataset.key) : place;
    const fits = known && (next.dataset?.key || !known.dataset?.key) && isAlike(known, next);
    if (!fits) { old.insertBefore(next, place); continue; }
    if (known !== place) old.insertBefore(known, place); else place = place.nextSibling;
    if (known.nodeType === Node.TEXT_NODE) { if (known.data !== next.data) known.data = next.data; }
    else morph(known, next);
  }
  while (place) { const gone = place; place = place.nextSibling; gone.remove(); }
}

const isAlike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName;
