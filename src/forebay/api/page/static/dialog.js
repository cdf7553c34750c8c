// What changes something: says first what it will do and to how many, then how far it is, then what it did.

import { h } from "./dom.js";
import { Refused } from "./server.js";

export function tell(text, tone = "good") {
  const place = document.getElementById("notices");
  const note = h("p", { class: `note ${tone}` }, text, h("button", { type: "button", class: "plain", "aria-label": "Close", onclick: () => note.remove() }, "×"));
  place.append(note);
  setTimeout(() => note.remove(), tone === "bad" ? 20_000 : 8_000);
}

// Something harmless: done at once, said when done.
export async function act(page, done, run) {
  try { const result = await run(); tell(typeof done === "function" ? done(result) : done); }
  catch (error) { if (!(error instanceof Refused)) throw error; tell(error.message, "bad"); }
  await page.reload();
}

// title; text: what it does; preview(values) → a sentence, or null; fields: nodes with names; button: its label;
// run(values, progress) → a sentence; progress(done, of).
export function confirm(page, { title, text, fields = [], preview, button, run, isDangerous = false, word }) {
  const bar = h("progress", { hidden: true, "aria-label": "Progress" });
  const said = h("p", { class: "said", role: "status" });
  const go = h("button", { type: "submit", class: isDangerous ? "danger" : "primary", disabled: Boolean(preview) }, button);
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const typed = word && h("label", { class: "field" }, h("span", {}, "Type ", h("code", {}, word), " to go on"), h("input", { name: "__word", autocomplete: "off", required: true }));
  const form = h("form", { method: "dialog" },
    h("h2", { id: "dialog-title" }, title), text && h("p", {}, text), fields, typed, said, bar,
    h("div", { class: "buttons" }, cancel, go));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  const values = () => Object.fromEntries(new FormData(form));
  let latest = 0;
  const look = async () => {
    if (!preview) return;
    const number = ++latest;
    go.disabled = true;
    said.textContent = "Counting…";
    try {
      const found = await preview(values());
      if (number !== latest) return;
      said.textContent = found ?? "";
      go.disabled = found === null;
    } catch (error) { if (number === latest) said.textContent = error.message; }
  };
  let waiting;
  form.oninput = (event) => { if (event.target.name !== "__word") { clearTimeout(waiting); waiting = setTimeout(look, 250); } };
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (word && values().__word !== word) { said.textContent = `That is not ${word}.`; return; }
    go.disabled = cancel.disabled = true;
    bar.hidden = false;
    try {
      const result = await run(values(), (done, of) => { bar.max = of || 1; bar.value = done; });
      dialog.close();
      tell(result);
    } catch (error) {
      said.textContent = error.message;
      go.disabled = cancel.disabled = false;
      if (!(error instanceof Refused)) throw error;
    } finally { bar.hidden = true; await page.reload(); }
  };
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  look();
}

export const input = (name, label, properties = {}) =>
  h("label", { class: "field" }, h("span", {}, label), h("input", { name, autocomplete: "off", ...properties }));
