// The shell: finds the view for the address, draws it, asks again, and says when figures are old.

import { h, morph } from "./dom.js";
import { Refused, ask, get, post, segment } from "./server.js";
import { age } from "./format.js";
import { tell } from "./dialog.js";

const EVERY_MS = 5_000;
const STALE_MS = 15_000;

const PAGES = [
  ["/", "journey", "Journey"],
  ["/queues", "queues", "Queues"],
  ["/queue-metrics", "queue_metrics", "Queue metrics"],
  ["/parcels", "parcels", "Parcels"],
  ["/flows", "flows", "Flows"],
  ["/destinations", "destinations", "Destinations"],
  ["/dead-letters", "dead_letters", "Dead letters"],
  ["/buffers", "buffers", "Buffers"],
  ["/access", "access", "Access"],
];
const INNER = [[/^\/queues\/([^/]+)$/, "queue"], [/^\/parcels\/([^/]+)$/, "parcel"]];

const main = document.getElementById("view");
const nav = document.getElementById("nav");
const corner = document.getElementById("corner");

let session = null;
let shown = null; // the page that is drawn
let turn = 0; // an answer that belongs to an earlier turn is thrown away
let timer;

function found(path) {
  for (const [pattern, view] of INNER) {
    const match = pattern.exec(path);
    if (match) return { view, name: decodeURIComponent(match[1]) };
  }
  const page = PAGES.find(([own]) => own === path);
  return { view: page?.[1] ?? "nowhere", name: null };
}

function makePage(module, name) {
  const page = {
    module, name, data: null, freshAt: 0, error: null, chosen: new Set(),
    query: new URLSearchParams(location.search),
    can: (scope) => session.scopes.includes("admin") || session.scopes.includes(scope),
    get session() { return session; },
    // Filters go into the address. What is typed replaces the last step of the history, the rest adds one.
    change(values, { replaces = false } = {}) {
      for (const [key, value] of Object.entries(values)) value ? page.query.set(key, value) : page.query.delete(key);
      for (const turned of ["offset", "after"]) if (!(turned in values)) page.query.delete(turned);
      const text = page.query.toString();
      history[replaces ? "replaceState" : "pushState"](null, "", location.pathname + (text ? `?${text}` : ""));
      page.draw();
      return page.reload();
    },
    type(values) {
      clearTimeout(page.typing);
      page.typing = setTimeout(() => page.change(values, { replaces: true }), 200);
    },
    reload: () => (page === shown ? refresh() : undefined),
    draw() {
      if (page !== shown) return;
      const title = module.title(page);
      document.title = `${title} · Forebay`;
      const body = page.data === null
        ? h("p", { class: page.error ? "banner bad" : "quiet" }, page.error ?? "Asking the server…")
        : module.draw(page, page.data);
      morph(main, h("main", { id: "view", tabindex: "-1", "aria-busy": page.data === null ? "true" : undefined },
        h("h1", {}, title), page.data !== null && page.error && h("p", { class: "banner bad", role: "alert" }, `These figures are old: ${page.error}.`), body));
      drawCorner();
    },
  };
  return page;
}

async function open() {
  const { view, name } = found(location.pathname);
  const own = ++turn;
  clearTimeout(timer);
  const module = await import(`./view_${view}.js`);
  if (own !== turn) return;
  shown = makePage(module, name);
  main.replaceChildren();
  drawNav();
  shown.draw();
  await refresh();
}

async function refresh() {
  const page = shown, own = ++turn;
  clearTimeout(timer);
  try {
    const data = await page.module.load(page, page.data);
    if (own !== turn || page !== shown) return;
    page.data = data; page.error = null; page.freshAt = Date.now();
  } catch (error) {
    if (own !== turn || page !== shown) return;
    if (error.status === 401) return askForKey();
    page.error = error.message;
    if (!(error instanceof Refused)) console.error(error);
  }
  page.draw();
  timer = setTimeout(() => { if (!document.hidden) refresh(); }, page.module.everyMs ?? EVERY_MS);
}

function drawNav() {
  const here = location.pathname;
  morph(nav, h("nav", { id: "nav", "aria-label": "Pages" }, PAGES.map(([path, , title]) =>
    h("a", { href: path, "aria-current": here === path || (path !== "/" && here.startsWith(`${path}/`)) ? "page" : undefined }, title))));
}

function drawCorner() {
  const old = shown?.freshAt && Date.now() - shown.freshAt > STALE_MS;
  const state = !shown?.freshAt ? ["quiet", "no figures yet"] : old ? ["bad", `stale: figures are ${age((Date.now() - shown.freshAt) / 1000)} old`] : ["good", "live"];
  morph(corner, h("div", { id: "corner" },
    h("span", { class: `pill ${state[0]}`, id: "freshness" }, state[1]),
    h("button", { type: "button", class: "plain", "aria-label": "Light or dark", title: "Light or dark", onclick: turnTheme }, "◐"),
    session?.keysInForce && session.signedIn && h("span", { class: "signed-in" }, session.name, h("button", { type: "button", id: "sign-out", onclick: signOut }, "Sign out"))));
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not kept then */ }
}

function askForKey() {
  turn += 1;
  clearTimeout(timer);
  shown = null;
  session = { ...session, keysInForce: true, signedIn: false };
  nav.replaceChildren();
  drawCorner();
  document.title = "Sign in · Forebay";
  const said = h("p", { class: "said", role: "alert" });
  const form = h("form", { class: "sign-in", onsubmit: async (event) => {
    event.preventDefault();
    said.textContent = "";
    try { session = await post("/api/v1/session", { key: form.elements.key.value.trim() }); await open(); }
    catch (error) { said.textContent = error.message; form.elements.key.select(); }
  } },
    h("label", { class: "field" }, h("span", {}, "API key"), h("input", { type: "password", name: "key", required: true, autocomplete: "current-password", maxlength: "1000" })),
    h("p", { class: "quiet" }, "Keys are made with ", h("code", {}, "forebay keys create"), "."), said,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Sign in")));
  main.replaceChildren(h("h1", {}, "Sign in"), form);
  form.elements.key.focus();
}

async function signOut() {
  try { await ask("DELETE", "/api/v1/session"); askForKey(); }
  catch (error) { tell(error.message, "bad"); }
}

async function start() {
  try { session = await get("/api/v1/session"); }
  catch (error) {
    main.replaceChildren(h("h1", {}, "Forebay"), h("p", { class: "banner bad", role: "alert" }, `${error.message}. Trying again.`));
    setTimeout(start, 2_000);
    return;
  }
  if (session.keysInForce && !session.signedIn) askForKey(); else await open();
}

// Links of the page's own are followed without loading it again.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.origin !== location.origin || link.target) return;
  if (link.hash && link.pathname === location.pathname) return;
  if (found(link.pathname).view === "nowhere" || !session || (session.keysInForce && !session.signedIn)) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  open().then(() => { scrollTo(0, 0); main.focus({ preventScroll: true }); });
});
addEventListener("popstate", () => { if (session && shown) open(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && shown) refresh(); });
setInterval(() => { if (shown) drawCorner(); }, 1_000);

export { segment };
start();
