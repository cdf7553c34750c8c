// Pictures of figures over time, as SVG. Colours are the style sheet's.

import { h, s } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 300;

function points(values, top, height) {
  const step = WIDTH / Math.max(values.length - 1, 1);
  return values.map((value, place) => [place * step, value === null ? null : height - (value / top) * (height - 3) - 1]);
}

function path(found, height, closed) {
  let text = "", start = null, last = null;
  for (const [x, y] of found) {
    if (y === null) { if (closed && last) text += `L${last} ${height}L${start} ${height}Z`; start = last = null; continue; }
    text += `${start === null ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    start ??= x.toFixed(1); last = x.toFixed(1);
  }
  if (closed && last) text += `L${last} ${height}L${start} ${height}Z`;
  return text;
}

const greatest = (lists) => Math.max(...lists.map((values) => values.reduce((most, value) => Math.max(most, value ?? 0), 0)));

// lines: [{ values, name, tone }]; `text` says a value. The pointer reads values off it.
export function timeline({ label, times, lines, text, height = 64, stacked = false }) {
  const shown = stacked ? pile(lines) : lines;
  const top = greatest(shown.map((line) => line.values)) || 1;
  const last = lines.map((line) => `${line.name} ${text(line.values.findLast((value) => value !== null) ?? 0)}`).join(", ");
  const cursor = s("line", { class: "cursor", y1: 0, y2: height, x1: -9, x2: -9 });
  const read = h("output", { class: "read" }, times.length ? `${last}` : "no figures yet");
  const move = (event) => {
    if (!times.length) return;
    const box = event.currentTarget.getBoundingClientRect();
    const place = Math.max(0, Math.min(times.length - 1, Math.round(((event.clientX - box.left) / box.width) * (times.length - 1))));
    const x = (place * WIDTH) / Math.max(times.length - 1, 1);
    const figure = event.currentTarget.closest("figure");
    figure.querySelector(".cursor").setAttribute("x1", x);
    figure.querySelector(".cursor").setAttribute("x2", x);
    figure.querySelector(".read").textContent = `${clock(times[place])}: ${lines.map((line) => `${line.name} ${text(line.values[place])}`).join(", ")}`;
  };
  const leave = (event) => {
    const figure = event.currentTarget.closest("figure");
    figure.querySelector(".cursor").setAttribute("x1", -9);
    figure.querySelector(".cursor").setAttribute("x2", -9);
    figure.querySelector(".read").textContent = last;
  };
  const drawn = [...shown].reverse().map((line) => [
    s("path", { class: `area ${line.tone}`, d: path(points(line.values, top, height), height, true) }),
    s("path", { class: `line ${line.tone}`, d: path(points(line.values, top, height), height, false) }),
  ]);
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("span", {}, label), h("span", { class: "quiet" }, `up to ${text(top === 1 && !greatest(shown.map((line) => line.values)) ? 0 : top)}`)),
    s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}, over the last hour: now ${last}`, onpointermove: move, onpointerleave: leave }, ...drawn, cursor),
    read);
}

function pile(lines) {
  const sums = [];
  return lines.map((line) => ({ ...line, values: line.values.map((value, place) => (sums[place] = (sums[place] ?? 0) + (value ?? 0))) }));
}

// buckets: [{ label, count }]
export function bars({ label, buckets, note }) {
  const top = Math.max(...buckets.map((bucket) => bucket.count), 1);
  const width = WIDTH / Math.max(buckets.length, 1);
  const rects = buckets.map((bucket, place) => {
    const tall = bucket.count ? Math.max((bucket.count / top) * 60, 1) : 0;
    return s("rect", { x: place * width + 1, y: 62 - tall, width: Math.max(width - 2, 1), height: tall, class: "bar" }, s("title", {}, `${bucket.label}: ${bucket.count}`));
  });
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("span", {}, label), h("span", { class: "quiet" }, note)),
    s("svg", { viewBox: `0 0 ${WIDTH} 64`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${note}` }, ...rects),
    h("div", { class: "axis" }, h("span", {}, buckets[0]?.label ?? ""), h("span", {}, buckets.at(-1)?.label ?? "")));
}
